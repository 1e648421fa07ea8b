//! The daemon on a paused clock: a simulated fleet behind the `Source` trait, a store in memory,
//! and an hour that passes in a second. Each test is a story, and says what must not happen too.

use std::sync::Arc;
use std::time::Duration;

use squall::classify::Class;
use squall::clock::{Clock, TokioClock};
use squall::daemon;
use squall::incident::{DependencyKey, Incident, IncidentId, State};
use squall::rules::Rules;
use squall::series::{Labels, Timestamp};
use squall::sim::scenario::Scenario;
use squall::store::{Event, Reason, Store};
use squall::telemetry::Metrics;
use tokio_util::sync::CancellationToken;

use crate::support::fleet::{BEGIN, Fleet, Manner, start};
use crate::support::memory_store::MemoryStore;

/// How often the daemon of a story asks.
const POLL: Duration = Duration::from_secs(1);

/// A running daemon and what it works on.
struct Story {
    clock: TokioClock,
    fleet: Arc<Fleet>,
    store: Arc<MemoryStore>,
    metrics: Metrics,
    stop: CancellationToken,
    daemon: tokio::task::JoinHandle<Result<(), daemon::DaemonError>>,
}

impl Story {
    async fn begin(scenario: &str) -> Self {
        Self::begin_at(BEGIN, scenario, Arc::default()).await
    }

    /// A daemon that starts at `now`, with what the record holds.
    async fn begin_at(now: Timestamp, scenario: &str, store: Arc<MemoryStore>) -> Self {
        let clock = TokioClock::starting_at(now);
        let scenario =
            Scenario::parse("story", scenario, &Rules::builtin()).expect("a good scenario");
        let fleet = Fleet::new(scenario, 7, clock);
        let metrics = Metrics::new();
        let (stop, daemon) = start(&fleet, &store, clock, metrics.clone(), POLL).await;
        Self { clock, fleet, store, metrics, stop, daemon }
    }

    /// Lets time pass until `seconds` from the beginning.
    async fn until(&self, seconds: f64) {
        let now = self.clock.now().seconds_since(BEGIN);
        assert!(seconds > now, "the story is at {now} s already");
        tokio::time::sleep(Duration::from_secs_f64(seconds - now)).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.daemon.await.expect("no panic").expect("an end in order");
    }

    fn incidents(&self) -> Vec<Incident> {
        self.store.latest().into_values().collect()
    }

    /// Expects each of these lines in the metrics.
    fn expect_metrics(&self, lines: &[&str]) {
        let text = self.metrics.encode();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "`{line}` is not in\n{text}");
        }
    }

    /// One page, its end, and between them at most a changed mind.
    fn expect_told_once(&self) {
        let told: Vec<Event> =
            self.store.notifications().iter().map(|it| it.content.event).collect();
        let (Some((first, rest)), true) = (told.split_first(), told.len() <= 3) else {
            panic!("told {told:?}");
        };
        assert_eq!((*first, rest.last()), (Event::Firing, Some(&Event::Resolved)), "{told:?}");
        let between = &rest[..rest.len() - 1];
        assert!(between.iter().all(|event| *event == Event::Changed), "{told:?}");
    }

    fn expect_one(&self, class: Class) -> Incident {
        let incidents = self.incidents();
        assert_eq!(incidents.len(), 1, "{incidents:#?}");
        assert_eq!(incidents[0].verdict.class, class, "{incidents:#?}");
        incidents[0].clone()
    }
}

/// A herd that fails together at 120 s and comes back on 1, 2, 4, … s without jitter.
const HERD: &str = "
about: A herd.
duration: 1h
dependencies:
- name: payments
  faults: [{at: 120s, for: 30500ms}]
clients:
- {name: others, calls: payments, rate: 20}
- name: herd
  calls: payments
  size: 2000
  at: 120s
  within: 100ms
  retry: {schedule: exponential, base: 1s, factor: 2, cap: 32s, jitter: none, retries: 7}
scrape: {interval: 1s, targets: 4}
";

#[tokio::test(start_paused = true)]
async fn a_herd_is_one_incident_told_once_and_told_to_be_over() {
    let story = Story::begin(HERD).await;
    story.until(119.0).await;
    assert!(story.incidents().is_empty(), "{:#?}", story.incidents());
    story.until(148.0).await;
    let fired = story.expect_one(Class::BackoffWithoutJitter);
    assert_eq!(fired.state, State::Firing);
    let started = fired.verdict.started_at.seconds_since(BEGIN);
    assert!((started - 120.0).abs() < 3.0, "{started}");
    story.until(900.0).await;
    let ended = story.expect_one(Class::BackoffWithoutJitter);
    assert_eq!((ended.state, &ended.id), (State::Resolved, &fired.id));
    story.expect_told_once();
    story.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_in_mid_storm_neither_opens_nor_ends_anything() {
    let story = Story::begin(HERD).await;
    story.until(148.0).await;
    let fired = story.expect_one(Class::BackoffWithoutJitter);
    story.fleet.behave(Manner::Fails);
    story.until(700.0).await;
    let still = story.expect_one(Class::BackoffWithoutJitter);
    assert_eq!(
        (still.state, still.updated_at <= fired.updated_at.plus_seconds(5.0)),
        (State::Firing, true)
    );
    story.fleet.behave(Manner::Answers);
    story.until(1000.0).await;
    assert_eq!(story.expect_one(Class::BackoffWithoutJitter).state, State::Resolved);
    story.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_warnings_opens_nothing_until_it_is_whole_again() {
    let story = Story::begin(HERD).await;
    story.until(100.0).await;
    story.fleet.behave(Manner::Warns);
    story.until(150.0).await;
    assert!(story.incidents().is_empty(), "{:#?}", story.incidents());
    story.fleet.behave(Manner::Answers);
    story.until(170.0).await;
    story.expect_one(Class::BackoffWithoutJitter);
    story.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_no_writes_holds_up_nothing_and_catches_up() {
    let story = Story::begin(HERD).await;
    story.until(100.0).await;
    story.store.break_down(true);
    story.until(160.0).await;
    assert!(story.store.saved().is_empty());
    let changes = story.metrics.encode();
    let waiting = changes.lines().find_map(|it| it.strip_prefix("squall_backlog_changes "));
    assert!(waiting.is_some_and(|count| count != "0"), "{changes}");
    story.expect_metrics(&["squall_storage_up 0"]);
    story.store.break_down(false);
    story.until(170.0).await;
    let fired = story.expect_one(Class::BackoffWithoutJitter);
    story.expect_metrics(&["squall_storage_up 1", "squall_backlog_changes 0"]);
    assert!(fired.detected_at.is_some_and(|at| at.seconds_since(BEGIN) < 150.0), "{fired:#?}");
    assert_eq!(story.store.notifications().len(), 1);
    story.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_storm_that_another_replica_named_otherwise_goes_on_under_that_name() {
    let store = Arc::new(MemoryStore::default());
    // Another replica fired it in polls of its own, and its share is ours now.
    let mut known = crate::store::example::incident(1);
    known.id = IncidentId("named-by-another".to_owned());
    known.dependency = DependencyKey {
        source: "main".to_owned(),
        watch: "http".to_owned(),
        labels: Labels::new([("dependency", "payments")]),
    };
    known.verdict.started_at = BEGIN.plus_seconds(120.4);
    known.detected_at = Some(BEGIN.plus_seconds(124.0));
    known.updated_at = BEGIN.plus_seconds(126.0);
    store.save(&crate::store::example::batch(Reason::Fired, known)).await.unwrap();

    let story = Story::begin_at(BEGIN.plus_seconds(130.0), HERD, store).await;
    story.until(600.0).await;
    let last = story.expect_one(Class::BackoffWithoutJitter);
    assert_eq!((last.id.0.as_str(), last.state), ("named-by-another", State::Resolved));
    story.end().await;
}
