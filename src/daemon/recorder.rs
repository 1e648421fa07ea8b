//! What changed, made durable together with the notifications it causes, and published.
//!
//! One task for all sources, so that the record has one writer. When the store takes no writes,
//! changes wait in the [`Backlog`] and detection goes on; what is live is published at once either
//! way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::{Board, ChangeEvent, SourceHealth};
use crate::incident::{Dependency, Incident, IncidentId, State};
use crate::notify::Planner;
use crate::pipeline::around::Around;
use crate::pipeline::{Change, Reason};
use crate::series::Timestamp;
use crate::store::{self, Backlog, Batch, MemoryOutbox, Saved, SeriesAround, Store, StoreError};
use crate::telemetry::{Chain, Metrics};
use crate::wire::around::SeriesJson;

use super::invariants::broken;

/// Reports that wait for the recorder: one or two a source, as many as sources are sensible.
pub(crate) const REPORTS_WAITING: usize = 16;
/// Time the outbox gets to say what was told before; then it is decided without.
const PLAN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long nothing is written before storage is asked whether it takes writes at all: a disk
/// that does not is known before the night it is needed.
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// The outcome of one poll of one source.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) source: String,
    pub(crate) now: Timestamp,
    pub(crate) changes: Vec<Change>,
    /// What is kept around those that changed or are open.
    pub(crate) around: Vec<Around>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) dependencies: Vec<Dependency>,
    /// Why the source does not answer, or what it warns of.
    pub(crate) fault: Option<String>,
    /// Whether its history has been seen.
    pub(crate) is_warm: bool,
}

/// What the recorder knows of one source.
#[derive(Debug, Default)]
struct Known {
    incidents: Vec<Incident>,
    around: BTreeMap<IncidentId, Arc<SeriesJson>>,
    dependencies: Vec<Dependency>,
    fault: Option<String>,
    is_warm: bool,
}

/// Writes and publishes.
pub(crate) struct Recorder {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) planner: watch::Receiver<Arc<PlannerFactory>>,
    pub(crate) board: watch::Sender<Arc<Board>>,
    pub(crate) warm: watch::Sender<bool>,
    pub(crate) changes: broadcast::Sender<Arc<ChangeEvent>>,
    /// The sources there are; those of others are forgotten.
    pub(crate) sources: watch::Receiver<Vec<String>>,
    /// Wakes the senders when something waits for them.
    pub(crate) wake: watch::Sender<u64>,
    pub(crate) metrics: Metrics,
}

/// Makes the planner of the present configuration.
pub(crate) struct PlannerFactory(pub(crate) Box<dyn Fn() -> Planner + Send + Sync>);

impl Recorder {
    /// Records until the last sender of reports is gone, then saves what waits.
    pub(crate) async fn run(mut self, mut reports: mpsc::Receiver<Report>) {
        let mut known: BTreeMap<String, Known> = BTreeMap::new();
        let mut planner = (self.planner.borrow_and_update().0)();
        let mut saver = Saver::new(Arc::clone(&self.store), self.metrics.clone());
        loop {
            tokio::select! {
                biased;
                // Cancel-safe: a report not yet received stays in the channel.
                report = reports.recv() => {
                    let Some(report) = report else { break };
                    if self.planner.has_changed().unwrap_or(false) {
                        planner = (self.planner.borrow_and_update().0)();
                    }
                    let around = report.around.iter().map(|it| (it.incident.clone(), Arc::new(SeriesJson::from(it))));
                    let around: BTreeMap<_, _> = around.collect();
                    saver.add(self.batch(&report, &around, &mut planner).await);
                    self.publish_changes(&report);
                    let one = known.entry(report.source).or_default();
                    one.incidents = report.incidents;
                    one.around.extend(around);
                    let open = |id: &IncidentId| {
                        one.incidents.iter().any(|it| it.id == *id && it.state != State::Resolved)
                    };
                    one.around.retain(|id, _| open(id));
                    one.dependencies = report.dependencies;
                    one.fault = report.fault;
                    one.is_warm = report.is_warm;
                    known.retain(|name, _| self.sources.borrow().contains(name));
                    self.publish(&known, saver.fault.clone());
                    saver.start();
                    self.metrics.backlog(saver.changes());
                }
                // Cancel-safe: the task goes on, and is asked again.
                told = saver.saved() => {
                    self.publish(&known, saver.fault.clone());
                    self.metrics.backlog(saver.changes());
                    if told {
                        self.wake.send_modify(|count| *count += 1);
                    }
                }
            }
        }
        saver.finish().await;
    }

    /// The incidents to save and the notifications they cause.
    async fn batch(
        &self,
        report: &Report,
        around: &BTreeMap<IncidentId, Arc<SeriesJson>>,
        planner: &mut Planner,
    ) -> Batch {
        let mut batch = Batch::default();
        for change in &report.changes {
            // The record begins when an incident fires; what was only pending is live alone.
            if change.incident.detected_at.is_none() {
                continue;
            }
            if let Some(invariant) = broken(&change.incident) {
                tracing::error!(incident = %change.incident.id, invariant, "a result was dropped");
                self.metrics.invariant_violation(invariant);
                continue;
            }
            let reason = match change.reason {
                Reason::Opened | Reason::Fired => store::Reason::Fired,
                Reason::Revised => store::Reason::Revised,
                Reason::Resolved => store::Reason::Resolved,
                Reason::Withdrawn => continue,
            };
            batch.incidents.push(Saved { reason, incident: change.incident.clone() });
            let id = &change.incident.id;
            let parts = around.get(id).map(|series| series.by_kind()).unwrap_or_default();
            batch.series.extend(parts.into_iter().map(|(kind, body)| SeriesAround {
                incident: id.clone(),
                kind: kind.to_owned(),
                at: report.now,
                body,
            }));
        }
        // Those that changed and, for repetition, those that still fire.
        let mut told: Vec<Incident> =
            batch.incidents.iter().map(|saved| saved.incident.clone()).collect();
        for incident in &report.incidents {
            let fires = incident.state == State::Firing && broken(incident).is_none();
            if fires && told.iter().all(|other| other.id != incident.id) {
                told.push(incident.clone());
            }
        }
        let plan = planner.plan(self.store.as_ref(), &told, report.now);
        batch.notifications = match tokio::time::timeout(PLAN_TIMEOUT, plan).await {
            Ok(planned) => planned,
            Err(_) => planner.plan(&MemoryOutbox::default(), &told, report.now).await,
        };
        batch
    }

    /// Tells the readers of events.
    fn publish_changes(&self, report: &Report) {
        for change in &report.changes {
            if change.reason == Reason::Fired {
                self.metrics.incident(change.incident.verdict.class.as_str());
            }
            tracing::info!(
                incident = %change.incident.id,
                dependency = change.incident.dependency.name(),
                class = change.incident.verdict.class.as_str(),
                reason = change.reason.as_str(),
                summary = change.incident.verdict.summary,
                "an incident changed",
            );
            let event =
                ChangeEvent { reason: change.reason.as_str(), incident: change.incident.clone() };
            // No reader is no failure.
            drop(self.changes.send(Arc::new(event)));
        }
    }

    /// Exports what is on the board.
    fn measure(&self, board: &Board) {
        let firing: Vec<(String, &Incident)> = board
            .incidents
            .iter()
            .filter(|incident| incident.state == State::Firing)
            .map(|incident| (incident.dependency.name(), incident))
            .collect();
        self.metrics.incidents_measured(firing.iter().map(|(name, incident)| {
            let verdict = &incident.verdict;
            let spread = verdict.schedule.as_ref().map(|schedule| schedule.jitter_fraction);
            (name.as_str(), verdict.class.as_str(), verdict.impact.amplification, spread)
        }));
        let names: Vec<String> = board.dependencies.iter().map(|it| it.key.name()).collect();
        self.metrics.dependencies(names.iter().zip(&board.dependencies).map(|(name, it)| {
            let gap = it.resolvable_gap_seconds;
            let names = [name.as_str(), it.key.watch.as_str(), it.key.source.as_str()];
            (names, it.state.as_str(), (gap > 0.0).then_some(gap))
        }));
    }

    /// Puts what is live on the board.
    fn publish(&self, known: &BTreeMap<String, Known>, storage_fault: Option<String>) {
        let sources = self.sources.borrow();
        let health = |name: &String| SourceHealth {
            name: name.clone(),
            fault: match known.get(name) {
                Some(one) => one.fault.clone(),
                None => Some("not asked yet".to_owned()),
            },
        };
        let board = Board {
            incidents: known.values().flat_map(|one| one.incidents.clone()).collect(),
            dependencies: known.values().flat_map(|one| one.dependencies.clone()).collect(),
            around: known.values().flat_map(|one| one.around.clone()).collect(),
            sources: sources.iter().map(health).collect(),
            storage_fault,
        };
        let firing = board.incidents.iter().filter(|incident| incident.state == State::Firing);
        let firing: Vec<(String, &'static str)> = firing
            .map(|incident| (incident.dependency.name(), incident.verdict.class.as_str()))
            .collect();
        self.metrics.incidents_active(firing.iter().map(|(name, class)| (name.as_str(), *class)));
        self.measure(&board);
        self.board.send_replace(Arc::new(board));
        let warm = sources.iter().all(|name| known.get(name).is_some_and(|one| one.is_warm));
        self.warm.send_if_modified(|was| {
            // Once warm is warm: a source that goes away later is a fault of the source.
            let becomes = warm && !*was;
            *was |= warm;
            becomes
        });
    }
}

/// Saves in a task of its own: a store that hangs must not hold up detection.
struct Saver {
    store: Arc<dyn Store>,
    // None while a task has it.
    backlog: Option<Backlog>,
    task: Option<JoinHandle<(Backlog, Result<(), StoreError>)>>,
    waiting: Vec<Batch>,
    // When it was last seen whether storage takes writes.
    tried: Option<Instant>,
    // Whether the batches under way hold notifications.
    tells: bool,
    fault: Option<String>,
    metrics: Metrics,
}

impl Saver {
    fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        let backlog = Some(Backlog::new());
        let waiting = Vec::new();
        let (tried, fault) = (None, None);
        Self { store, backlog, task: None, waiting, tried, tells: false, fault, metrics }
    }

    fn add(&mut self, batch: Batch) {
        self.tells |= !batch.notifications.is_empty();
        match &mut self.backlog {
            Some(backlog) => backlog.push(batch),
            None => self.waiting.push(batch),
        }
    }

    /// Changes that wait and are not being saved.
    fn changes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|batch| batch.incidents.len()).sum();
        waiting + self.backlog.as_ref().map_or(0, Backlog::changes)
    }

    /// Starts to save what waits, unless that is under way; now and then, to see whether it would
    /// be saved.
    fn start(&mut self) {
        let Some(mut backlog) = self.backlog.take() else { return };
        for batch in self.waiting.drain(..) {
            backlog.push(batch);
        }
        let is_idle = backlog.is_empty();
        if is_idle && self.tried.is_some_and(|tried| tried.elapsed() < PROBE_AFTER) {
            self.backlog = Some(backlog);
            return;
        }
        let store = Arc::clone(&self.store);
        self.task = Some(tokio::spawn(async move {
            let outcome = match is_idle {
                true => store.probe().await,
                false => backlog.flush(store.as_ref()).await,
            };
            (backlog, outcome)
        }));
    }

    /// Waits until what is under way is saved or has failed; for ever when nothing is. Says
    /// whether notifications were saved.
    async fn saved(&mut self) -> bool {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let joined = task.await;
        self.task = None;
        self.tried = Some(Instant::now());
        let (backlog, outcome) = match joined {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "saving broke off; what was to be saved is lost");
                (Backlog::new(), Ok(()))
            }
        };
        let failed = outcome.as_ref().err().map(|error| error.reason().as_str());
        self.metrics.storage(failed, backlog.changes());
        self.fault = failed.map(str::to_owned);
        let is_saved = outcome.is_ok();
        if let Err(error) = outcome {
            tracing::error!(
                reason = error.reason().as_str(), waiting = backlog.changes(),
                error = %Chain(&error), "cannot save; detection goes on",
            );
        }
        self.backlog = Some(backlog);
        let tells = is_saved && std::mem::take(&mut self.tells);
        if is_saved && !self.waiting.is_empty() {
            self.tells |= self.waiting.iter().any(|batch| !batch.notifications.is_empty());
            self.start();
        }
        tells
    }

    /// Saves the rest, as far as the store takes it.
    async fn finish(mut self) {
        if self.task.is_some() {
            self.saved().await;
        }
        self.tried = Some(Instant::now());
        self.start();
        if self.task.is_some() {
            self.saved().await;
        }
        if let Some(backlog) = self.backlog.filter(|backlog| !backlog.is_empty()) {
            tracing::warn!(changes = backlog.changes(), "stopped with changes that are not saved");
        }
    }
}
