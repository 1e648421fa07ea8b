//! squall's own metrics, in the text format that every Prometheus takes.
//!
//! A counter with a label value appears when it is first counted, which hides the first event from
//! a rate: squall's own favourite trap. Counters with a closed set of label values are therefore
//! made at the start, at zero.
//!
//! # Example
//!
//! ```
//! use squall::telemetry::Metrics;
//!
//! let metrics = Metrics::new();
//! metrics.incident("backoff-without-jitter");
//! assert!(metrics.encode().contains("squall_incidents_total{class=\"backoff-without-jitter\"} 1"));
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::live::LiveGauges;

#[cfg(test)]
mod tests;

/// The exact type that Prometheus 3 asks for.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds in seconds: from a local answer to the longest time limit.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Why a question to a source failed; the reasons of `source`, at zero from the start.
const SOURCE_REASONS: [&str; 6] =
    ["unreachable", "timeout", "bad_status", "too_expensive", "too_large", "decode"];

/// Why the record takes no writes; the reasons of `store`, at zero from the start.
const STORAGE_REASONS: [&str; 10] = [
    "unreachable",
    "timeout",
    "busy",
    "read_only",
    "full",
    "io",
    "corrupt",
    "newer_schema",
    "decode",
    "other",
];

/// How a try to notify ends, at zero from the start: the increase of a counter that appears at one
/// is nothing to Prometheus.
const OUTCOMES: [&str; 3] = ["sent", "failed", "dead"];

/// The states of dependencies, at zero from the start.
const DEPENDENCY_STATES: [&str; 4] = ["learning", "watched", "blind", "stale"];

/// The classes of `classify`, at zero from the start.
const CLASSES: [&str; 5] = [
    "backoff-without-jitter",
    "retry-storm-without-backoff",
    "partial-jitter",
    "jittered-backoff",
    "inconclusive",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceReasonLabels {
    source: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ActiveLabels {
    dependency: String,
    classification: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct DependencyLabels {
    dependency: String,
    watch: String,
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotificationLabels {
    receiver: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OutboxLabels {
    receiver: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StorageReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FeedbackLabels {
    class: String,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvariantLabels {
    invariant: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

type Histograms = Family<SourceLabels, Histogram, fn() -> Histogram>;

/// All metrics of the process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    source_queries: Family<SourceLabels, Counter>,
    source_query_errors: Family<SourceReasonLabels, Counter>,
    source_query_duration: Histograms,
    source_up: Family<SourceLabels, Gauge>,
    poll_duration: Histograms,
    tick_duration: Histogram,
    fit_duration: Histogram,
    series: Family<SourceLabels, Gauge>,
    incidents: Family<ClassLabels, Counter>,
    incident_active: Family<ActiveLabels, Gauge>,
    // What `incident_active` holds: so that only what ended is taken out of it, and a scrape in
    // between never misses what goes on.
    active: Arc<Mutex<BTreeSet<ActiveLabels>>>,
    incident_feedback: Family<FeedbackLabels, Gauge>,
    incident_amplification: LiveGauges<ActiveLabels>,
    incident_spread: LiveGauges<ActiveLabels>,
    dependency_resolution: LiveGauges<DependencyLabels>,
    dependencies: LiveGauges<StateLabels>,
    notifications: Family<NotificationLabels, Counter>,
    outbox: LiveGauges<OutboxLabels>,
    // The configured receivers, whose lanes are there when nothing is in them.
    receivers: Arc<Mutex<BTreeSet<String>>>,
    backlog: Gauge,
    storage_up: Gauge,
    storage_errors: Family<StorageReasonLabels, Counter>,
    invariant_violations: Family<InvariantLabels, Counter>,
    config_reload_successful: Gauge,
    config_reload_success_timestamp: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers everything.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            source_queries: Family::default(),
            source_query_errors: Family::default(),
            source_query_duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            source_up: Family::default(),
            poll_duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            tick_duration: Histogram::new(SECONDS),
            fit_duration: Histogram::new(SECONDS),
            series: Family::default(),
            incidents: Family::default(),
            incident_active: Family::default(),
            active: Arc::default(),
            incident_feedback: Family::default(),
            incident_amplification: LiveGauges::default(),
            incident_spread: LiveGauges::default(),
            dependency_resolution: LiveGauges::default(),
            dependencies: LiveGauges::default(),
            notifications: Family::default(),
            outbox: LiveGauges::default(),
            receivers: Arc::default(),
            backlog: Gauge::default(),
            storage_up: Gauge::default(),
            storage_errors: Family::default(),
            invariant_violations: Family::default(),
            config_reload_successful: Gauge::default(),
            config_reload_success_timestamp: Gauge::default(),
        };
        for class in CLASSES {
            drop(metrics.incidents.get_or_create(&ClassLabels { class: class.to_owned() }));
            metrics.feedback(class, 0, 0);
        }
        for reason in STORAGE_REASONS {
            drop(metrics.storage_errors.get_or_create(&StorageReasonLabels { reason }));
        }
        // The record was opened before anything could be measured.
        metrics.storage_up.set(1);
        metrics.registry = Arc::new(metrics.register());
        metrics
    }

    fn register(&self) -> Registry {
        let mut registry = Registry::with_prefix("squall");
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "Version of the running program", build);
        registry.register(
            "source_queries",
            "Questions sent to a source, every try counted",
            self.source_queries.clone(),
        );
        registry.register(
            "source_query_errors",
            "Questions to a source that were not answered, by reason",
            self.source_query_errors.clone(),
        );
        registry.register(
            "source_query_duration_seconds",
            "Time from a question to a source to its whole answer",
            self.source_query_duration.clone(),
        );
        registry.register(
            "source_up",
            "Whether the last poll of a source was answered whole",
            self.source_up.clone(),
        );
        registry.register(
            "poll_duration_seconds",
            "Time that one poll takes, from its first question to the end of its pass",
            self.poll_duration.clone(),
        );
        registry.register(
            "tick_duration_seconds",
            "Time that one pass from samples to incidents takes",
            self.tick_duration.clone(),
        );
        registry.register(
            "fit_duration_seconds",
            "Time that one fit of retry schedules to a suspicion takes",
            self.fit_duration.clone(),
        );
        registry.register("series", "Raw series being watched", self.series.clone());
        registry.register("incidents", "Incidents that fired, by class", self.incidents.clone());
        registry.register(
            "incident_active",
            "Whether an incident of a dependency fires, by what it is classified as",
            self.incident_active.clone(),
        );
        registry.register(
            "incident_feedback",
            "Incidents in the record that people said were right or wrong, by class",
            self.incident_feedback.clone(),
        );
        registry.register(
            "incident_amplification",
            "Attempts per request wanted, of each incident that fires",
            self.incident_amplification.family(),
        );
        registry.register(
            "incident_spread",
            "Spread of the waves over the gap to the next, of each incident that fires on a schedule",
            self.incident_spread.family(),
        );
        registry.register(
            "dependency_resolution_seconds",
            "The shortest wait between two waves of retries that can be told apart",
            self.dependency_resolution.family(),
        );
        registry.register(
            "dependencies",
            "Dependencies watched, by how well they can be seen",
            self.dependencies.family(),
        );
        registry.register(
            "notifications",
            "Tries to notify a receiver, by outcome",
            self.notifications.clone(),
        );
        self.register_storage(&mut registry);
        registry.register(
            "invariant_violations",
            "Results dropped because they broke an invariant: a fault of the program",
            self.invariant_violations.clone(),
        );
        registry.register(
            "outbox_notifications",
            "Notifications in the outbox: to be sent (pending) or given up (dead)",
            self.outbox.family(),
        );
        registry.register(
            "backlog_changes",
            "Changes of incidents that wait because the record takes no writes",
            self.backlog.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "Whether the last reload of the configuration succeeded",
            self.config_reload_successful.clone(),
        );
        registry.register(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration was last loaded",
            self.config_reload_success_timestamp.clone(),
        );
        registry
    }

    fn register_storage(&self, registry: &mut Registry) {
        registry.register(
            "storage_up",
            "Whether the record took the last write",
            self.storage_up.clone(),
        );
        registry.register(
            "storage_errors",
            "Writes that the record did not take, by reason",
            self.storage_errors.clone(),
        );
    }

    /// A question to a source, answered or not.
    pub fn source_query(&self, source: &str, elapsed: Duration) {
        let labels = SourceLabels { source: source.to_owned() };
        self.source_queries.get_or_create(&labels).inc();
        self.source_query_duration.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    /// A question to a source that was not answered.
    pub fn source_query_error(&self, source: &str, reason: &'static str) {
        let labels = SourceReasonLabels { source: source.to_owned(), reason };
        self.source_query_errors.get_or_create(&labels).inc();
    }

    /// Makes the counters of a configured source, at zero.
    pub fn source_known(&self, source: &str) {
        drop(self.source_queries.get_or_create(&SourceLabels { source: source.to_owned() }));
        for reason in SOURCE_REASONS {
            let labels = SourceReasonLabels { source: source.to_owned(), reason };
            drop(self.source_query_errors.get_or_create(&labels));
        }
    }

    /// Whether the last poll of a source was answered whole.
    pub fn source_up(&self, source: &str, is_up: bool) {
        let labels = SourceLabels { source: source.to_owned() };
        self.source_up.get_or_create(&labels).set(i64::from(is_up));
    }

    /// One poll of a source, its pass included.
    pub fn poll(&self, source: &str, elapsed: Duration) {
        let labels = SourceLabels { source: source.to_owned() };
        self.poll_duration.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    /// One fit of schedules.
    pub fn fit(&self, elapsed: Duration) {
        self.fit_duration.observe(elapsed.as_secs_f64());
    }

    /// One pass of the pipeline.
    pub fn tick(&self, elapsed: Duration) {
        self.tick_duration.observe(elapsed.as_secs_f64());
    }

    /// The number of raw series of a source now.
    pub fn series(&self, source: &str, count: usize) {
        let labels = SourceLabels { source: source.to_owned() };
        self.series.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An incident fired.
    pub fn incident(&self, class: &str) {
        self.incidents.get_or_create(&ClassLabels { class: class.to_owned() }).inc();
    }

    /// The incidents that fire now, each by the name of its dependency and its class.
    ///
    /// # Panics
    ///
    /// When another thread panicked in here, which nothing in it can.
    pub fn incidents_active<'n>(&self, firing: impl IntoIterator<Item = (&'n str, &'static str)>) {
        let now: BTreeSet<ActiveLabels> = firing
            .into_iter()
            .map(|(dependency, classification)| ActiveLabels {
                dependency: dependency.to_owned(),
                classification,
            })
            .collect();
        let mut active = self.active.lock().expect("nothing in here panics");
        for labels in &now {
            self.incident_active.get_or_create(labels).set(1);
        }
        for ended in active.difference(&now) {
            self.incident_active.remove(ended);
        }
        *active = now;
    }

    /// How many incidents of a class in the record people said were right, and how many wrong.
    pub fn feedback(&self, class: &str, right: u64, wrong: u64) {
        for (verdict, count) in [("right", right), ("wrong", wrong)] {
            let labels = FeedbackLabels { class: class.to_owned(), verdict };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.incident_feedback.get_or_create(&labels).set(count);
        }
    }

    /// How much each incident that fires multiplies its requests, and how far its waves are spread
    /// (none without a schedule); by the name of its dependency and its class.
    pub fn incidents_measured<'n>(
        &self,
        firing: impl IntoIterator<Item = (&'n str, &'static str, f64, Option<f64>)>,
    ) {
        let (mut amplification, mut spread) = (Vec::new(), Vec::new());
        for (dependency, classification, times, share) in firing {
            let labels = ActiveLabels { dependency: dependency.to_owned(), classification };
            spread.extend(share.map(|share| (labels.clone(), share)));
            amplification.push((labels, times));
        }
        self.incident_amplification.set(amplification);
        self.incident_spread.set(spread);
    }

    /// What is watched: the name, watch and source of each, the state it is in, and the shortest wait
    /// that can be told apart there (none before that is known).
    pub fn dependencies<'n>(
        &self,
        watched: impl IntoIterator<Item = ([&'n str; 3], &'static str, Option<f64>)>,
    ) {
        let mut counts = BTreeMap::from(DEPENDENCY_STATES.map(|state| (state, 0_u32)));
        let mut resolution = Vec::new();
        for ([dependency, watch, source], state, gap_seconds) in watched {
            *counts.entry(state).or_default() += 1;
            let labels = DependencyLabels {
                dependency: dependency.to_owned(),
                watch: watch.to_owned(),
                source: source.to_owned(),
            };
            resolution.extend(gap_seconds.map(|gap| (labels, gap)));
        }
        self.dependency_resolution.set(resolution);
        let counts = counts.into_iter();
        self.dependencies.set(counts.map(|(state, count)| (StateLabels { state }, count.into())));
    }

    /// Makes the counters of a configured receiver, at zero.
    ///
    /// # Panics
    ///
    /// When another thread panicked in here, which nothing in it can.
    pub fn receiver_known(&self, receiver: &str) {
        self.receivers.lock().expect("nothing in here panics").insert(receiver.to_owned());
        for outcome in OUTCOMES {
            let labels = NotificationLabels { receiver: receiver.to_owned(), outcome };
            drop(self.notifications.get_or_create(&labels));
        }
    }

    /// A try to notify.
    pub fn notification(&self, receiver: &str, outcome: &'static str) {
        let labels = NotificationLabels { receiver: receiver.to_owned(), outcome };
        self.notifications.get_or_create(&labels).inc();
    }

    /// How many notifications of each receiver wait, and how many were given up. A configured
    /// receiver that is not named has none.
    ///
    /// # Panics
    ///
    /// When another thread panicked in here, which nothing in it can.
    pub fn outbox<'n>(&self, lanes: impl IntoIterator<Item = (&'n str, u64, u64)>) {
        let configured = self.receivers.lock().expect("nothing in here panics").clone();
        let mut sizes: BTreeMap<String, [u64; 2]> =
            configured.into_iter().map(|receiver| (receiver, [0, 0])).collect();
        for (receiver, pending, dead) in lanes {
            sizes.insert(receiver.to_owned(), [pending, dead]);
        }
        self.outbox.set(sizes.into_iter().flat_map(|(receiver, [pending, dead])| {
            let labels = |state| OutboxLabels { receiver: receiver.clone(), state };
            // Exact up to nine quadrillions.
            let [pending, dead] = [pending, dead].map(|count| count as f64);
            [(labels("pending"), pending), (labels("dead"), dead)]
        }));
    }

    /// How many changes of incidents wait for the record.
    pub fn backlog(&self, changes: usize) {
        self.backlog.set(i64::try_from(changes).unwrap_or(i64::MAX));
    }

    /// The end of a try to write: why it failed, and how many changes of incidents still wait.
    pub fn storage(&self, failed: Option<&'static str>, waiting: usize) {
        self.storage_up.set(i64::from(failed.is_none()));
        if let Some(reason) = failed {
            self.storage_errors.get_or_create(&StorageReasonLabels { reason }).inc();
        }
        self.backlog(waiting);
    }

    /// A broken invariant.
    pub fn invariant_violation(&self, invariant: &'static str) {
        self.invariant_violations.get_or_create(&InvariantLabels { invariant }).inc();
    }

    /// The configuration was loaded, or not, at a Unix time in seconds.
    pub fn config_reload(&self, is_success: bool, unix_seconds: i64) {
        self.config_reload_successful.set(i64::from(is_success));
        if is_success {
            self.config_reload_success_timestamp.set(unix_seconds);
        }
    }

    /// The exposition, of the type [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        prometheus_text::encode(&mut text, &self.registry).ok();
        text
    }
}
