//! The daemon: builds the parts, owns their tasks, and ends them in order.
//!
//! ```text
//! watcher (one a source) ─► recorder ─► store ─► sender (one a receiver)
//!                               └► board, events ─► web
//! ```
//!
//! All tasks stand in one `JoinSet`; one that ends before it was told to is a failure of the
//! daemon, named in the log, and ends it, so that whoever supervises it starts it again: a daemon
//! that has quietly stopped watching is worse than one that is gone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::api::{
    self, Board, ChangeEvent, KnownRules, Parts, Readiness, ReloadRequest, WebConfig,
};
use crate::clock::Clock;
use crate::config::{Config, Engine, PrometheusConfig, WatchConfig};
use crate::incident::Incident;
use crate::pipeline::{self, Pipeline};
use crate::rules::Rules;
use crate::source::Source;
use crate::store::{self, Store, StoreError};
use crate::telemetry::{Chain, Metrics};

mod build;
mod chores;
mod invariants;
mod recorder;
mod replicas;
mod senders;
mod signals;
mod watcher;

pub use build::{notifiers, prometheus_source, prometheus_sources, store_config};
pub use signals::until_told;

use recorder::{PlannerFactory, REPORTS_WAITING, Recorder, Report};
use replicas::Replicas;
use senders::{Common, Sender};
use watcher::{Asked, Watcher};

/// Time for everything to end before what is left is named and dropped. Kubernetes gives 30 s
/// between asking and killing.
const GRACE: Duration = Duration::from_secs(20);

/// Reads the configuration again.
pub type Loader = Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>;
/// Makes a source from its configuration.
pub type SourceFactory =
    Box<dyn Fn(&PrometheusConfig) -> Result<Box<dyn Source>, DaemonError> + Send + Sync>;

/// Everything a configuration says.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What to ask, watch and tell.
    pub config: Config,
    /// TLS and basic authentication.
    pub web: WebConfig,
}

/// What a daemon is made from.
pub struct Setup {
    /// The configuration to begin with.
    pub loaded: Loaded,
    /// Reads the configuration again.
    pub loader: Loader,
    /// Makes the sources.
    pub sources: SourceFactory,
    /// The record.
    pub store: Arc<dyn Store>,
    /// Where the web listens.
    pub listener: TcpListener,
    /// Where people reach the page.
    pub external_url: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What the pipelines are told besides their watches.
    pub pipeline: pipeline::Config,
    /// squall's own metrics.
    pub metrics: Metrics,
    /// Where changes of incidents are told as they happen.
    pub changes: broadcast::Sender<Arc<ChangeEvent>>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

/// Why a daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The record cannot be opened or read.
    #[error("cannot open the record")]
    Store(#[source] StoreError),
    /// A source cannot be made from its configuration.
    #[error("cannot set up source `{name}`")]
    Source {
        /// Its configured name.
        name: String,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A receiver cannot be made from its configuration.
    #[error("cannot set up receiver `{name}`")]
    Receiver {
        /// Its configured name.
        name: String,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be served.
    #[error("cannot serve TLS")]
    Tls(#[source] api::TlsError),
    /// A part ended before it was told to.
    #[error("the {part} ended before it was told to")]
    Ended {
        /// Which.
        part: String,
        /// Its panic, where it had one.
        #[source]
        cause: Option<JoinError>,
    },
}

/// What a task gives back when it ends.
enum Ended {
    Watcher(String),
    Other,
}

/// A source that is being watched.
struct Watched {
    source: PrometheusConfig,
    watches: Vec<WatchConfig>,
    /// The rules that its pipeline names culprits by.
    rules: Arc<Rules>,
    stop: CancellationToken,
    /// Its task.
    task: Id,
}

impl Watched {
    /// Whether a new configuration asks for the same, so that its history can be kept.
    fn is_like(&self, source: &PrometheusConfig, watches: &[WatchConfig], rules: &Rules) -> bool {
        self.source == *source && self.watches == watches && *self.rules == *rules
    }
}

/// A source of a new configuration, what to watch there, and its client unless it is watched like
/// this already.
type Plan = (PrometheusConfig, Vec<WatchConfig>, Option<Box<dyn Source>>);

/// The running daemon.
struct Daemon {
    rules: watch::Sender<Arc<KnownRules>>,
    factory: SourceFactory,
    loader: Loader,
    clock: Arc<dyn Clock>,
    pipeline: pipeline::Config,
    external_url: String,
    metrics: Metrics,
    store: Arc<dyn Store>,
    tasks: JoinSet<Ended>,
    names: HashMap<Id, String>,
    watched: Vec<Watched>,
    stop: CancellationToken,
    reports: mpsc::Sender<Report>,
    source_names: watch::Sender<Vec<String>>,
    planner: watch::Sender<Arc<PlannerFactory>>,
    web: watch::Sender<Arc<WebConfig>>,
    tls: watch::Sender<Option<Arc<rustls::ServerConfig>>>,
    common: Common,
    replicas: Replicas,
    senders: Option<CancellationToken>,
    retention: watch::Sender<Duration>,
}

/// Runs a daemon until `stop`; `reload` asks it to read its configuration again.
///
/// # Errors
///
/// When a part cannot start, or ends before it was told to.
pub async fn run(
    setup: Setup,
    reload: (mpsc::Sender<ReloadRequest>, mpsc::Receiver<ReloadRequest>),
    stop: CancellationToken,
) -> Result<(), DaemonError> {
    let Setup {
        loaded,
        loader,
        sources,
        store,
        listener,
        external_url,
        clock,
        pipeline,
        metrics,
        changes,
    } = setup;
    let (reload_sender, mut reloads) = reload;
    let tls = tls_of(&loaded.web)?;
    let (reports, reports_reader) = mpsc::channel(REPORTS_WAITING);
    let (source_names, source_names_reader) = watch::channel(Vec::new());
    let (board, board_reader) = watch::channel(Arc::new(Board::default()));
    let (warm, mut warm_reader) = watch::channel(false);
    let (ready, ready_reader) =
        watch::channel(Readiness::NotReady("the last hour is not read yet"));
    let known = build::known_rules(&loaded.config.rules.known);
    let (rules, rules_reader) = watch::channel(Arc::new(known));
    let (web, web_reader) = watch::channel(Arc::new(loaded.web.clone()));
    let (tls, tls_reader) = watch::channel(tls);
    let (wake, wake_reader) = watch::channel(0);
    let (planner, planner_reader) = watch::channel(Arc::new(build::planner(&loaded.config)?));
    let (retention, retention_reader) = watch::channel(loaded.config.storage.retention);
    let (living, living_reader) = watch::channel(replicas::Living::default());
    let owner = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());

    let mut daemon = Daemon {
        rules,
        factory: sources,
        loader,
        clock: Arc::clone(&clock),
        pipeline: pipeline::Config { fits: chores::fit_stopwatch(metrics.clone()), ..pipeline },
        external_url,
        metrics: metrics.clone(),
        store: Arc::clone(&store),
        tasks: JoinSet::new(),
        names: HashMap::new(),
        watched: Vec::new(),
        stop: stop.clone(),
        reports,
        source_names,
        planner,
        web,
        tls,
        common: Common {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            board: board_reader.clone(),
            wake: wake_reader,
            owner: owner.clone(),
        },
        replicas: Replicas::new(&owner, living_reader),
        senders: None,
        retention,
    };

    // The web ends last: it answers not-ready while the rest ends.
    let web_stop = CancellationToken::new();
    let exposed = metrics.clone();
    let router = api::router(Parts {
        store: Arc::clone(&store),
        board: board_reader,
        changes: changes.clone(),
        ready: ready_reader,
        reload: reload_sender,
        rules: rules_reader,
        web: web_reader,
        metrics: Arc::new(move || exposed.encode()),
        clock: Arc::clone(&clock),
        stop: web_stop.clone(),
    });
    let web_task = api::serve(listener, router, tls_reader, web_stop.clone());
    daemon.spawn("web server", async move {
        web_task.await;
        Ended::Other
    });
    let recorder = Recorder {
        store: Arc::clone(&store),
        planner: planner_reader,
        board,
        warm,
        changes,
        sources: source_names_reader,
        metrics: metrics.clone(),
        wake,
    };
    let recorder_id = daemon.spawn("recorder", async move {
        recorder.run(reports_reader).await;
        Ended::Other
    });
    let forgetting =
        chores::forget(Arc::clone(&store), Arc::clone(&clock), retention_reader, stop.clone());
    daemon.spawn("retention", async move {
        forgetting.await;
        Ended::Other
    });
    let outbox = chores::count_outbox(
        Arc::clone(&store),
        daemon.common.wake.clone(),
        metrics.clone(),
        stop.clone(),
    );
    daemon.spawn("outbox counter", async move {
        outbox.await;
        Ended::Other
    });
    let counting = chores::count_feedback(Arc::clone(&store), clock, metrics, stop.clone());
    daemon.spawn("feedback counter", async move {
        counting.await;
        Ended::Other
    });
    // SQLite is one daemon's; on PostgreSQL there may be others.
    if let Engine::Postgres(_) = loaded.config.storage.engine {
        daemon.join(living).await;
    }
    daemon.apply(&loaded).await?;
    daemon.note_reload(true);
    if loaded.config.prometheus.is_empty() {
        tracing::warn!("no source is configured: there is nothing to watch");
        ready.send_replace(Readiness::Ready);
    }

    let outcome = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            Some(request) = reloads.recv() => {
                let outcome = daemon.reload().await;
                // Whoever asked may have gone away.
                drop(request.send(outcome));
            }
            Some(ended) = daemon.tasks.join_next_with_id() => {
                if let Err(error) = daemon.ended(ended) {
                    break Err(error);
                }
            }
            Ok(()) = warm_reader.changed() => {
                if *warm_reader.borrow_and_update() {
                    tracing::info!("ready");
                    ready.send_replace(Readiness::Ready);
                }
            }
        }
    };
    ready.send_replace(Readiness::NotReady("stopping"));
    stop.cancel();
    daemon.shut_down(web_stop, recorder_id).await;
    outcome
}

impl Daemon {
    /// Says in the record that this replica lives, from now to the end; waits until it was said
    /// once, so that the work is divided from the start.
    async fn join(&mut self, living: watch::Sender<replicas::Living>) {
        let mut first = living.subscribe();
        let (store, me) = (Arc::clone(&self.store), self.common.owner.clone());
        let beating = replicas::beat(store, me, living, self.stop.clone());
        self.spawn("heartbeat", async move {
            beating.await;
            Ended::Other
        });
        // Without an answer it watches everything, as if it were alone.
        drop(tokio::time::timeout(store::MEMBER_TTL, first.changed()).await);
    }

    fn spawn(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Ended> + Send + 'static,
    ) -> Id {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name.into());
        id
    }

    /// What it means that a task has ended.
    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) -> Result<(), DaemonError> {
        match ended {
            Ok((id, Ended::Watcher(name))) => {
                self.names.remove(&id);
                // A watcher that a reload stopped is no longer in the list.
                if self.watched.iter().any(|it| it.task == id) {
                    return Err(DaemonError::Ended {
                        part: format!("watcher of `{name}`"),
                        cause: None,
                    });
                }
                Ok(())
            }
            Ok((id, Ended::Other)) => {
                let part = self.names.remove(&id).unwrap_or_default();
                // Senders end when a reload replaces them.
                if part.starts_with("sender") {
                    return Ok(());
                }
                Err(DaemonError::Ended { part, cause: None })
            }
            Err(cause) => {
                let part = self.names.remove(&cause.id()).unwrap_or_default();
                Err(DaemonError::Ended { part, cause: Some(cause) })
            }
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    async fn reload(&mut self) -> Result<(), String> {
        let loaded = match (self.loader)() {
            Ok(loaded) => loaded,
            Err(why) => {
                self.note_reload(false);
                tracing::error!(why, "the configuration is not good; the old one stays");
                return Err(why);
            }
        };
        match self.apply(&loaded).await {
            Ok(()) => {
                self.note_reload(true);
                tracing::info!("the configuration was read again");
                Ok(())
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                self.note_reload(false);
                tracing::error!(why, "the configuration cannot be put to use; the old one stays");
                Err(why)
            }
        }
    }

    fn note_reload(&self, is_success: bool) {
        self.metrics.config_reload(is_success, self.clock.now().millis() / 1000);
    }

    /// Puts a configuration to use. Everything that can fail is made before anything is changed.
    async fn apply(&mut self, loaded: &Loaded) -> Result<(), DaemonError> {
        let tls = tls_of(&loaded.web)?;
        let planner = build::planner(&loaded.config)?;
        let senders = build::senders(&loaded.config, &self.external_url, &self.metrics)?;
        let open = match self.store.open_incidents().await {
            Ok(open) => open,
            Err(error) => {
                // Detection goes on without the record; what fires again gets the same id.
                tracing::error!(error = %Chain(&error), "cannot read what was open");
                Vec::new()
            }
        };
        let rules = Arc::new(loaded.config.rules.known.clone());
        let mut plans: Vec<Plan> = Vec::new();
        for source in &loaded.config.prometheus {
            let watches: Vec<WatchConfig> = loaded
                .config
                .watch
                .iter()
                .filter(|watch| watch.sources.is_empty() || watch.sources.contains(&source.name))
                .cloned()
                .collect();
            let is_watched = self.watched.iter().any(|it| it.is_like(source, &watches, &rules));
            let client = if is_watched { None } else { Some((self.factory)(source)?) };
            plans.push((source.clone(), watches, client));
        }
        // Nothing fails from here on.
        let names = plans.iter().map(|(source, ..)| source.name.clone()).collect();
        self.source_names.send_replace(names);
        let mut before = std::mem::take(&mut self.watched);
        for (source, watches, client) in plans {
            self.metrics.source_known(&source.name);
            match client {
                Some(client) => self.watch(source, watches, client, &open, &rules),
                None => {
                    let is_it = |it: &Watched| it.is_like(&source, &watches, &rules);
                    if let Some(index) = before.iter().position(is_it) {
                        self.watched.push(before.swap_remove(index));
                    }
                }
            }
        }
        for gone in before {
            gone.stop.cancel();
        }
        self.rules.send_replace(Arc::new(build::known_rules(&rules)));
        self.planner.send_replace(Arc::new(planner));
        self.web.send_replace(Arc::new(loaded.web.clone()));
        self.tls.send_replace(tls);
        self.retention.send_replace(loaded.config.storage.retention);
        self.replace_senders(senders);
        Ok(())
    }

    /// Starts to watch a source.
    fn watch(
        &mut self,
        source: PrometheusConfig,
        watches: Vec<WatchConfig>,
        client: Box<dyn Source>,
        open: &[Incident],
        rules: &Arc<Rules>,
    ) {
        let stop = self.stop.child_token();
        let running: Vec<pipeline::Watch> =
            watches.iter().map(|watch| watch.watch(&source.name)).collect();
        let (settings, known) = (self.pipeline.clone(), Arc::clone(rules));
        let fresh = move || Pipeline::new(settings.clone(), running.clone(), Arc::clone(&known));
        let mut replicas = self.replicas.clone();
        let share = replicas.share();
        let watcher = Watcher {
            source: client,
            watches: watches.iter().map(|watch| Asked::new(watch, &source.name, &share)).collect(),
            pipeline: fresh(),
            fresh: Box::new(fresh),
            replicas,
            share,
            store: Arc::clone(&self.store),
            poll_interval: source.poll_interval,
            clock: Arc::clone(&self.clock),
            reports: self.reports.clone(),
            metrics: self.metrics.clone(),
            stop: stop.clone(),
            is_warm: false,
            open: open.iter().filter(|it| it.dependency.source == source.name).cloned().collect(),
        };
        let name = source.name.clone();
        let task = self.spawn(format!("watcher of `{name}`"), async move {
            watcher.run().await;
            Ended::Watcher(name)
        });
        let rules = Arc::clone(rules);
        self.watched.push(Watched { source, watches, rules, stop, task });
    }

    /// Ends the senders there are and starts those of the new configuration. The outbox holds a
    /// delivery under way for its lease, so that the two never send the same one together.
    fn replace_senders(&mut self, next: Vec<Sender>) {
        if let Some(old) = self.senders.take() {
            old.cancel();
        }
        // Not a child of `stop`: what fires while the daemon ends is still sent.
        let stop = CancellationToken::new();
        for sender in next {
            let (common, stop) = (self.common.clone(), stop.clone());
            self.spawn(sender.name(), async move {
                sender.run(common, stop).await;
                Ended::Other
            });
        }
        self.senders = Some(stop);
    }

    /// Ends everything in order: watchers, recorder, senders, web.
    async fn shut_down(mut self, web_stop: CancellationToken, recorder: Id) {
        let until = tokio::time::Instant::now() + GRACE;
        // The recorder ends when the last sender of reports is gone.
        let (closed, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.reports, closed));
        self.join_until(until, |names| !names.contains_key(&recorder)).await;
        if let Some(senders) = self.senders.take() {
            senders.cancel();
        }
        self.join_until(until, |names| !names.values().any(|name| name.starts_with("sender")))
            .await;
        web_stop.cancel();
        self.join_until(until, HashMap::is_empty).await;
        if !self.names.is_empty() {
            let pending: Vec<&str> = self.names.values().map(String::as_str).collect();
            tracing::warn!(pending = pending.join(", "), "ended without waiting any longer");
        }
        self.tasks.abort_all();
    }

    /// Joins tasks until `done` of those that are left, or until it is too late.
    async fn join_until(
        &mut self,
        until: tokio::time::Instant,
        done: impl Fn(&HashMap<Id, String>) -> bool,
    ) {
        while !done(&self.names) {
            match tokio::time::timeout_at(until, self.tasks.join_next_with_id()).await {
                Ok(Some(Ok((id, _)))) => {
                    self.names.remove(&id);
                }
                Ok(Some(Err(error))) => {
                    let part = self.names.remove(&error.id()).unwrap_or_default();
                    tracing::error!(part, %error, "a part did not end in order");
                }
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// The server side of TLS, where it is configured.
fn tls_of(web: &WebConfig) -> Result<Option<Arc<rustls::ServerConfig>>, DaemonError> {
    let Some(files) = &web.tls else { return Ok(None) };
    api::server_config(files, web.http2).map(Some).map_err(DaemonError::Tls)
}
