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

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The exact type that Prometheus 3 asks for.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds in seconds: from a local answer to the longest time limit.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Why a question to a source failed; the reasons of `source`, at zero from the start.
const SOURCE_REASONS: [&str; 6] =
    ["unreachable", "timeout", "bad_status", "too_expensive", "too_large", "decode"];

/// Why the record takes no writes; the reasons of `store`, at zero from the start.
const STORAGE_REASONS: [&str; 9] = [
    "unreachable",
    "timeout",
    "busy",
    "read_only",
    "full",
    "corrupt",
    "newer_schema",
    "decode",
    "other",
];

/// How a try to notify ends, at zero from the start: the increase of a counter that appears at one
/// is nothing to Prometheus.
const OUTCOMES: [&str; 3] = ["sent", "failed", "dead"];

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotificationLabels {
    receiver: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StorageReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutboxLabels {
    receiver: String,
    state: &'static str,
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
    tick_duration: Histogram,
    series: Gauge,
    series_gap_steps: Counter,
    incidents: Family<ClassLabels, Counter>,
    incident_active: Family<ActiveLabels, Gauge>,
    // What `incident_active` holds: so that only what ended is taken out of it, and a scrape in
    // between never misses what goes on.
    active: Arc<Mutex<BTreeSet<ActiveLabels>>>,
    incident_feedback: Family<FeedbackLabels, Gauge>,
    notifications: Family<NotificationLabels, Counter>,
    outbox: Family<OutboxLabels, Gauge>,
    storage_up: Gauge,
    storage_errors: Family<StorageReasonLabels, Counter>,
    storage_backlog: Gauge,
    invariant_violations: Family<InvariantLabels, Counter>,
    dropped: Counter,
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
            tick_duration: Histogram::new(SECONDS),
            series: Gauge::default(),
            series_gap_steps: Counter::default(),
            incidents: Family::default(),
            incident_active: Family::default(),
            active: Arc::default(),
            incident_feedback: Family::default(),
            notifications: Family::default(),
            outbox: Family::default(),
            storage_up: Gauge::default(),
            storage_errors: Family::default(),
            storage_backlog: Gauge::default(),
            invariant_violations: Family::default(),
            dropped: Counter::default(),
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
            "tick_duration_seconds",
            "Time that one pass from samples to incidents takes",
            self.tick_duration.clone(),
        );
        registry.register("series", "Raw series being watched", self.series.clone());
        registry.register(
            "series_gap_steps",
            "Scrapes missing from the watched series",
            self.series_gap_steps.clone(),
        );
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
            "notifications",
            "Tries to notify a receiver, by outcome",
            self.notifications.clone(),
        );
        registry.register(
            "outbox_notifications",
            "Notifications kept for a receiver: pending ones, and dead ones that were given up",
            self.outbox.clone(),
        );
        self.register_storage(&mut registry);
        registry.register(
            "invariant_violations",
            "Results dropped because they broke an invariant: a fault of the program",
            self.invariant_violations.clone(),
        );
        registry.register(
            "polls_dropped",
            "Polls dropped because the pipeline was behind",
            self.dropped.clone(),
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
        registry.register(
            "storage_backlog_changes",
            "Changes of incidents that wait for the record to take writes",
            self.storage_backlog.clone(),
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

    /// One pass of the pipeline.
    pub fn tick(&self, elapsed: Duration) {
        self.tick_duration.observe(elapsed.as_secs_f64());
    }

    /// The number of raw series now.
    pub fn series(&self, count: usize) {
        self.series.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Scrapes found missing.
    pub fn series_gaps(&self, steps: u64) {
        self.series_gap_steps.inc_by(steps);
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

    /// Makes the counters of a configured receiver, at zero.
    pub fn receiver_known(&self, receiver: &str) {
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

    /// What is kept for a receiver.
    pub fn outbox(&self, receiver: &str, pending: u64, dead: u64) {
        for (state, count) in [("pending", pending), ("dead", dead)] {
            let labels = OutboxLabels { receiver: receiver.to_owned(), state };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.outbox.get_or_create(&labels).set(count);
        }
    }

    /// The end of a try to write: why it failed, and how many changes of incidents still wait.
    pub fn storage(&self, failed: Option<&'static str>, waiting: usize) {
        self.storage_up.set(i64::from(failed.is_none()));
        if let Some(reason) = failed {
            self.storage_errors.get_or_create(&StorageReasonLabels { reason }).inc();
        }
        self.storage_backlog.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// A broken invariant.
    pub fn invariant_violation(&self, invariant: &'static str) {
        self.invariant_violations.get_or_create(&InvariantLabels { invariant }).inc();
    }

    /// A poll that the pipeline had no time for.
    pub fn poll_dropped(&self) {
        self.dropped.inc();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything counted once.
    fn exposition() -> String {
        let metrics = Metrics::new();
        metrics.source_known("main");
        metrics.source_query("main", Duration::from_millis(30));
        metrics.source_query_error("main", "timeout");
        metrics.source_up("main", true);
        metrics.tick(Duration::from_millis(5));
        metrics.series(7);
        metrics.series_gaps(3);
        metrics.incident("partial-jitter");
        metrics.incidents_active([("payments", "partial-jitter")]);
        metrics.feedback("partial-jitter", 3, 1);
        metrics.receiver_known("hook");
        metrics.notification("hook", "sent");
        metrics.outbox("hook", 2, 1);
        metrics.storage(Some("full"), 3);
        metrics.invariant_violation("counts_are_finite");
        metrics.poll_dropped();
        metrics.config_reload(true, 1_790_000_000);
        metrics.encode()
    }

    #[test]
    fn closed_sets_of_label_values_start_at_zero() {
        let text = exposition();
        for line in [
            "squall_source_query_errors_total{source=\"main\",reason=\"decode\"} 0",
            "squall_source_query_errors_total{source=\"main\",reason=\"timeout\"} 1",
            "squall_incidents_total{class=\"inconclusive\"} 0",
            "squall_notifications_total{receiver=\"hook\",outcome=\"dead\"} 0",
            "squall_outbox_notifications{receiver=\"hook\",state=\"dead\"} 1",
            "squall_storage_up 0",
            "squall_storage_errors_total{reason=\"full\"} 1",
            "squall_storage_errors_total{reason=\"read_only\"} 0",
            "squall_storage_backlog_changes 3",
            "squall_incident_feedback{class=\"partial-jitter\",verdict=\"right\"} 3",
            "squall_incident_feedback{class=\"inconclusive\",verdict=\"wrong\"} 0",
            "squall_source_query_duration_seconds_count{source=\"main\"} 1",
            "squall_config_last_reload_success_timestamp_seconds 1790000000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_incident_is_active_until_it_ends_or_changes_its_class() {
        let metrics = Metrics::new();
        metrics.incidents_active([("payments", "inconclusive"), ("search", "partial-jitter")]);
        metrics.incidents_active([("payments", "backoff-without-jitter")]);
        let text = metrics.encode();
        let active: Vec<&str> =
            text.lines().filter(|line| line.starts_with("squall_incident_active{")).collect();
        let wanted = "squall_incident_active{dependency=\"payments\",\
                      classification=\"backoff-without-jitter\"} 1";
        assert_eq!(active, [wanted]);
    }

    #[test]
    fn every_sample_has_a_declared_family_and_the_name_of_its_kind() {
        let text = exposition();
        let mut kinds = std::collections::HashMap::new();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').unwrap();
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                kinds.insert(name.to_owned(), kind.to_owned());
            }
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_count", "_sum"]
                .into_iter()
                .find_map(|end| name.strip_suffix(end).filter(|f| kinds.contains_key(*f)));
            assert!(kinds.contains_key(family.unwrap_or(name)), "{line}");
            assert!(name.starts_with("squall_"), "{line}");
        }
        assert!(text.ends_with('\n') && !text.contains("# EOF"));
    }
}
