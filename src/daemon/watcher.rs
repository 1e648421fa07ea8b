//! One source: asked at its own pace, its samples through its own pipeline, changes handed on.
//!
//! Asking and passing stand in one task and not in two with a channel between them: a poll is
//! useless before its pass, and the pass is the only reader of what was asked. The samples of a
//! watch are held back until all its selectors were answered, since requests without their errors
//! look like a surge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, random_fraction};
use crate::config::WatchConfig;
use crate::incident::{Incident, IncidentId, State};
use crate::pipeline::around::Around;
use crate::pipeline::replay::{Feed, POLL_RANGE, Replay, median_spacing};
use crate::pipeline::{Change, Pipeline, Reason, Trust, WatchId};
use crate::series::selector::Selector;
use crate::series::table::{LabelBuffer, SeriesEntry};
use crate::series::{Role, Sample, Timestamp};
use crate::source::{Cursor, SampleSink, Source};
use crate::store::Store;
use crate::telemetry::{Chain, Metrics};

use super::recorder::Report;
use super::replicas::{Narrowed, Replicas, Share};

/// How far a poll reaches back over the last one: a sample becomes visible after its scrape, by up
/// to the scrape's time-out and, through remote write, some seconds more.
const OVERLAP: Duration = Duration::from_secs(16);
/// How far back the first poll reaches, which is what a baseline is learned from.
const REACH: Duration = Duration::from_secs(3600);
/// The interval of the polls before any scrape interval is known.
const POLL_FIRST: Duration = Duration::from_secs(5);
/// The furthest that two clocks are believed to be apart; beyond it our own is taken.
const SKEW_MAX_SECONDS: f64 = 3600.0;
/// The random wait of replicas that divide the work anew, which all hear of it together.
const START_OVER_WITHIN: Duration = Duration::from_secs(1);
/// Time the record gets to say what was open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Polls between two looks at the source's clock.
const CLOCK_POLLS: u64 = 100;

/// Open incidents around which the series are cut anew on every poll, so that their pictures are
/// live; a cut takes some milliseconds. Where more are open, each is cut when it changes.
const LIVE_CUTS_MAX: usize = 16;

/// What one source is asked, in its running form.
pub(crate) struct Watcher {
    pub(crate) source: Box<dyn Source>,
    pub(crate) watches: Vec<Asked>,
    pub(crate) pipeline: Pipeline,
    /// Makes a pipeline that has seen nothing.
    pub(crate) fresh: Box<dyn Fn() -> Pipeline + Send + Sync>,
    /// Who else watches.
    pub(crate) replicas: Replicas,
    /// What is this replica's.
    pub(crate) share: Share,
    /// Where incidents of others stand that are taken over.
    pub(crate) store: Arc<dyn Store>,
    /// The configured interval; none takes the shortest scrape interval seen.
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    /// Whether the pipeline has seen this source's history already, before a reload.
    pub(crate) is_warm: bool,
    /// Incidents that were open when the daemon last stopped.
    pub(crate) open: Vec<Incident>,
}

/// One watch of a source.
pub(crate) struct Asked {
    name: String,
    by: Vec<String>,
    selectors: Vec<(Role, Selector)>,
    cursor: Cursor,
    narrowed: Narrowed,
}

impl Asked {
    pub(crate) fn new(config: &WatchConfig, source: &str, share: &Share) -> Self {
        Self {
            name: config.name.clone(),
            by: config.by.clone(),
            selectors: config.selectors(),
            cursor: Cursor::new(OVERLAP, REACH),
            narrowed: Narrowed::new(share.clone(), source, &config.name, &config.by),
        }
    }

    fn start_over(&mut self, source: &str, share: &Share) {
        self.cursor = Cursor::new(OVERLAP, REACH);
        self.narrowed = Narrowed::new(share.clone(), source, &self.name, &self.by);
    }
}

/// The answer to one watch.
struct Answered {
    trust: Trust,
    feeds: Vec<Feed>,
    fault: Option<String>,
}

impl Watcher {
    /// Polls until told to stop.
    pub(crate) async fn run(mut self) {
        let mut interval = self.poll_interval.unwrap_or(POLL_FIRST);
        // A random offset, so that many squalls do not ask a server together.
        let mut next = Instant::now() + interval.mul_f64(random_fraction());
        let mut skew_seconds = 0.0;
        for poll in 0.. {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.replicas.changed() => {
                    self.start_over().await;
                    // What somebody else has left is looked after at once.
                    next = Instant::now() + START_OVER_WITHIN.mul_f64(random_fraction());
                    continue;
                }
                () = tokio::time::sleep_until(next) => {}
            }
            if poll % CLOCK_POLLS == 0 {
                skew_seconds = self.skew().await.unwrap_or(skew_seconds);
            }
            // The one `now` of this poll, on the clock that stamps the samples.
            let now = self.clock.now().plus_seconds(skew_seconds);
            let stop = self.stop.clone();
            let report = tokio::select! {
                biased;
                // What is lost is a poll that nobody would have waited for.
                () = stop.cancelled() => break,
                report = self.poll(now) => report,
            };
            if self.reports.send(report).await.is_err() {
                break;
            }
            interval = self.poll_interval.unwrap_or_else(|| self.shortest_interval(now));
            // After a stall the polls are delayed and never made up for in a burst.
            next = (next + interval).max(Instant::now());
        }
    }

    /// Forgets everything and begins as after a start, with what is this replica's now.
    async fn start_over(&mut self) {
        self.share = self.replicas.share();
        self.pipeline = (self.fresh)();
        self.is_warm = false;
        for asked in &mut self.watches {
            asked.start_over(self.source.name(), &self.share);
        }
        self.open = match tokio::time::timeout(OPEN_TIMEOUT, self.store.open_incidents()).await {
            Ok(Ok(open)) => open,
            // What fires again gets the same id.
            Ok(Err(error)) => {
                tracing::error!(error = %Chain(&error), "cannot read what was open");
                Vec::new()
            }
            Err(_) => {
                tracing::error!("what was open was not read in time");
                Vec::new()
            }
        };
        self.open.retain(|incident| incident.dependency.source == self.source.name());
    }

    /// Seconds that the source's clock is ahead of ours.
    async fn skew(&self) -> Option<f64> {
        let asked = self.clock.now();
        let theirs = self.source.now().await.ok()?;
        let answered = self.clock.now();
        let middle = asked.plus_seconds(answered.seconds_since(asked) / 2.0);
        let skew = theirs.seconds_since(middle);
        if skew.abs() > SKEW_MAX_SECONDS {
            tracing::warn!(
                source = self.source.name(),
                skew_seconds = skew,
                "the clocks are far apart"
            );
            return None;
        }
        // Half the round trip is the error of the measurement; less than that is no skew.
        Some(if skew.abs() <= answered.seconds_since(asked) { 0.0 } else { skew })
    }

    /// One poll: asks for every watch, passes what came, says what changed.
    async fn poll(&mut self, now: Timestamp) -> Report {
        let asked = Instant::now();
        let mut trust = Vec::with_capacity(self.watches.len());
        let mut feeds = Vec::new();
        let mut fault = None;
        for index in 0..self.watches.len() {
            let answered = self.ask(WatchId(index), now).await;
            trust.push(answered.trust);
            feeds.extend(answered.feeds);
            fault = fault.or(answered.fault);
        }
        let warm_up = !self.is_warm && trust.iter().all(|trust| *trust != Trust::Missing);
        self.metrics.source_up(self.source.name(), trust.iter().all(|it| *it == Trust::Whole));
        let began = Instant::now();
        let (changes, around) = without_blocking(|| {
            let changes = if warm_up {
                self.warm_up(feeds, now, &trust)
            } else {
                self.pass(&feeds, now, &trust)
            };
            let around = self.around(&changes);
            (changes, around)
        });
        self.metrics.tick(began.elapsed());
        self.metrics.poll(self.source.name(), asked.elapsed());
        self.metrics.series(self.source.name(), self.pipeline.series());
        Report {
            source: self.source.name().to_owned(),
            now,
            changes,
            around,
            incidents: self.pipeline.incidents().cloned().collect(),
            dependencies: self.pipeline.dependencies(now),
            fault,
            is_warm: self.is_warm,
        }
    }

    /// What is kept around the incidents that changed, and around those that are open.
    fn around(&self, changes: &[Change]) -> Vec<Around> {
        let mut wanted: BTreeMap<&IncidentId, &Incident> =
            changes.iter().map(|change| (&change.incident.id, &change.incident)).collect();
        let open = self.pipeline.incidents().filter(|it| it.state != State::Resolved);
        wanted.extend(open.take(LIVE_CUTS_MAX).map(|incident| (&incident.id, incident)));
        wanted.into_values().filter_map(|incident| self.pipeline.around(incident)).collect()
    }

    /// Asks for one watch. Its samples are taken whole or not at all.
    async fn ask(&mut self, watch: WatchId, now: Timestamp) -> Answered {
        let asked = &mut self.watches[watch.0];
        let window = asked.cursor.window(now);
        let mut trust = Trust::Whole;
        let mut feeds = Vec::new();
        let mut fault = None;
        for (role, selector) in &asked.selectors {
            let Some(selector) = asked.narrowed.question(selector) else { continue };
            let mut sink = FeedSink {
                pipeline: &mut self.pipeline,
                narrowed: &mut asked.narrowed,
                watch,
                role: *role,
                feeds: &mut feeds,
            };
            match self.source.samples(&selector, window, &mut sink).await {
                Ok(answer) if answer.is_whole() => {}
                Ok(answer) => {
                    tracing::warn!(
                        source = self.source.name(),
                        watch = asked.name,
                        warnings = answer.warnings.join("; "),
                        "an answer is not complete: it opens and closes nothing",
                    );
                    fault = Some(format!("`{}`: {}", asked.name, answer.warnings.join("; ")));
                    trust = Trust::Partial;
                }
                Err(error) => {
                    tracing::warn!(
                        source = self.source.name(), watch = asked.name,
                        reason = error.reason().as_str(), error = %Chain(&error),
                        "not answered: nothing opens or closes",
                    );
                    let fault = Some(format!("`{}`: {}", asked.name, Chain(&error)));
                    return Answered { trust: Trust::Missing, feeds: Vec::new(), fault };
                }
            }
        }
        if trust == Trust::Whole {
            asked.cursor.succeeded(window.until, Duration::ZERO);
        }
        Answered { trust, feeds, fault }
    }

    fn pass(&mut self, feeds: &[Feed], now: Timestamp, trust: &[Trust]) -> Vec<Change> {
        for feed in feeds {
            for &(watch, entry) in &feed.uses {
                for &sample in &feed.samples {
                    self.pipeline.push_entry(watch, entry, sample);
                }
            }
        }
        // What a poll that failed or was cut short did not hold is not gone.
        if trust.iter().all(|trust| *trust == Trust::Whole) {
            self.pipeline.end_round(now);
        }
        self.pipeline.pass(now, trust)
    }

    /// The first answer holds the last hour: it is replayed poll by poll, so that baselines are
    /// there at once and a storm that began while nobody watched is found as it would have been.
    fn warm_up(&mut self, feeds: Vec<Feed>, now: Timestamp, trust: &[Trust]) -> Vec<Change> {
        let interval = self.poll_interval.unwrap_or_else(|| scrape_interval(&feeds));
        let began = now.minus(REACH);
        // A storm older than the replay cannot be found by it, and is taken up before; one within
        // it is found again under the same id.
        let (older, within): (Vec<Incident>, Vec<Incident>) = std::mem::take(&mut self.open)
            .into_iter()
            .filter(|incident| self.share.owns(&incident.dependency))
            .partition(|incident| incident.verdict.started_at < began);
        self.pipeline.take_up(older);
        let mut replay = Replay::new(&mut self.pipeline, interval);
        replay.take(&feeds, |_| ());
        let (mut found, _) = replay.finish();
        for known in within.into_iter().filter(|it| !found.contains_key(&it.id)).collect::<Vec<_>>()
        {
            // Who saw it in other polls may have named it after another scrape.
            let same = found.values().find(|it| is_same_storm(it, &known)).map(|it| it.id.clone());
            let again = same.and_then(|id| found.remove(&id));
            match again {
                Some(over) if over.state == State::Resolved => {
                    let detected_at = known.detected_at;
                    found.insert(known.id.clone(), Incident { id: known.id, detected_at, ..over });
                }
                _ => self.pipeline.take_up(vec![known]),
            }
        }
        self.is_warm = true;
        let mut changes: Vec<Change> = found
            .into_values()
            .map(|incident| Change { reason: reason_of(&incident), incident })
            .collect();
        changes.extend(self.pipeline.pass(now, trust));
        changes
    }

    /// The shortest scrape interval seen, within bounds.
    fn shortest_interval(&self, now: Timestamp) -> Duration {
        self.pipeline
            .dependencies(now)
            .iter()
            .map(|dependency| dependency.scrape_interval_seconds)
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
            .min_by(f64::total_cmp)
            .map_or(POLL_FIRST, Duration::from_secs_f64)
            .clamp(POLL_RANGE[0], POLL_RANGE[1])
    }
}

/// Runs work that may take a while without holding up the other tasks of this thread. A runtime of
/// one thread, as tests with a paused clock have, has nobody to hand them to.
fn without_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Whether both are one outage of one dependency.
fn is_same_storm(found: &Incident, known: &Incident) -> bool {
    let begins_before =
        |a: &Incident, b: &Incident| a.verdict.started_at <= b.ended_at.unwrap_or(b.updated_at);
    found.dependency == known.dependency
        && begins_before(found, known)
        && begins_before(known, found)
}

/// Why an incident that a replay found is reported.
fn reason_of(incident: &Incident) -> Reason {
    match incident.state {
        State::Pending => Reason::Opened,
        State::Firing => Reason::Fired,
        State::Resolved => Reason::Resolved,
    }
}

/// The shortest of the series' scrape intervals, each the median spacing of its samples.
fn scrape_interval(feeds: &[Feed]) -> Duration {
    let medians = feeds.iter().filter_map(|feed| median_spacing(&feed.samples));
    medians.min().unwrap_or(POLL_FIRST)
}

/// Takes the series of one selector as feeds of one watch.
struct FeedSink<'a> {
    pipeline: &'a mut Pipeline,
    narrowed: &'a mut Narrowed,
    watch: WatchId,
    role: Role,
    feeds: &'a mut Vec<Feed>,
}

impl SampleSink for FeedSink<'_> {
    fn series(&mut self, labels: &mut LabelBuffer) -> bool {
        if !self.narrowed.is_ours(labels) {
            return false;
        }
        let entry: SeriesEntry = self.pipeline.intern(self.watch, self.role, labels);
        self.feeds.push(Feed { uses: vec![(self.watch, entry)], samples: Vec::new() });
        true
    }

    fn sample(&mut self, sample: Sample) {
        if let Some(feed) = self.feeds.last_mut() {
            feed.samples.push(sample);
        }
    }
}
