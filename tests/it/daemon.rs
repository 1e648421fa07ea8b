//! The daemon on a paused clock: a simulated fleet behind the `Source` trait, a store in memory,
//! and an hour that passes in a second. Each test is a story, and says what must not happen too.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use squall::api::{EVENTS_KEPT, WebConfig};
use squall::classify::Class;
use squall::clock::{Clock, TokioClock};
use squall::config;
use squall::daemon::{self, Loaded, Setup};
use squall::incident::{DependencyKey, Incident, IncidentId, State};
use squall::rules::Rules;
use squall::series::selector::Selector;
use squall::series::table::LabelBuffer;
use squall::series::{Labels, Timestamp};
use squall::sim::scenario::Scenario;
use squall::sim::world::World;
use squall::source::{Answer, Answering, SampleSink, Source, SourceError, Window};
use squall::store::{Event, Reason, Store};
use squall::telemetry::Metrics;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::support::memory_store::MemoryStore;

/// The wall time at which every story begins.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// What the source does when it is asked.
const ANSWERS: u8 = 0;
const FAILS: u8 = 1;
const WARNS: u8 = 2;

/// A simulated fleet that is asked like a Prometheus.
#[derive(Debug)]
struct Fleet {
    world: Mutex<World>,
    clock: TokioClock,
    manner: AtomicU8,
}

impl Fleet {
    fn new(text: &str, clock: TokioClock) -> Arc<Self> {
        let mut scenario =
            Scenario::parse("story", text, &Rules::builtin()).expect("a good scenario");
        scenario.start_unix_seconds = BEGIN.seconds();
        let world = Mutex::new(World::new(&scenario, 7));
        Arc::new(Self { world, clock, manner: AtomicU8::new(ANSWERS) })
    }

    fn behave(&self, manner: u8) {
        self.manner.store(manner, Ordering::Relaxed);
    }
}

/// The same fleet, as the daemon owns it.
#[derive(Debug)]
struct Asked(Arc<Fleet>);

impl Source for Asked {
    fn name(&self) -> &str {
        "main"
    }

    fn samples<'a>(
        &'a self,
        selector: &'a Selector,
        window: Window,
        sink: &'a mut dyn SampleSink,
    ) -> Answering<'a, Answer> {
        Box::pin(async move {
            let manner = self.0.manner.load(Ordering::Relaxed);
            if manner == FAILS {
                let limit = Duration::from_secs(10);
                return Err(SourceError::Timeout { source_name: "main".to_owned(), limit });
            }
            let mut world = self.0.world.lock().expect("no story panics here");
            world.advance(self.0.clock.now().seconds_since(BEGIN));
            let mut answer = Answer::default();
            let mut buffer = LabelBuffer::default();
            for series in world.series() {
                if !selector.matches(&series.labels) {
                    continue;
                }
                buffer.clear();
                for (name, value) in series.labels.iter() {
                    buffer.push(name, value);
                }
                answer.series += 1;
                if sink.series(&mut buffer) {
                    for sample in &series.samples {
                        if sample.at > window.after && sample.at <= window.until {
                            sink.sample(*sample);
                            answer.samples += 1;
                        }
                    }
                }
            }
            if manner == WARNS {
                answer.warnings.push("a store did not answer".to_owned());
            }
            Ok(answer)
        })
    }

    fn now(&self) -> Answering<'_, Timestamp> {
        Box::pin(async move { Ok(self.0.clock.now()) })
    }
}

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
        let fleet = Fleet::new(scenario, clock);
        let metrics = Metrics::new();
        let (stop, daemon) = start(&fleet, &store, clock, metrics.clone()).await;
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

async fn start(
    fleet: &Arc<Fleet>,
    store: &Arc<MemoryStore>,
    clock: TokioClock,
    metrics: Metrics,
) -> (CancellationToken, tokio::task::JoinHandle<Result<(), daemon::DaemonError>>) {
    let rules = Rules::builtin();
    // Nobody listens at the webhook: what counts here is what is kept for it.
    let text = "
prometheus: [{name: main, url: 'http://127.0.0.1:9', poll_interval: 1s}]
watch:
  - name: http
    requests: http_client_requests_total
    errors: http_client_requests_total{code=~\"5..\"}
    by: [dependency]
notify: [{webhook: {url: 'http://127.0.0.1:9/'}}]
";
    let config = config::read(text, Path::new(""), &rules).expect("a good configuration");
    let loaded = Loaded { config, web: WebConfig::default() };
    let fleet = Arc::clone(fleet);
    let again = loaded.clone();
    let setup = Setup {
        loaded,
        loader: Box::new(move || Ok(again.clone())),
        sources: Box::new(move |_| Ok(Box::new(Asked(Arc::clone(&fleet))))),
        store: Arc::clone(store) as Arc<dyn Store>,
        listener: tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port"),
        external_url: "http://squall.example".to_owned(),
        clock: Arc::new(clock),
        pipeline: squall::pipeline::Config::default(),
        metrics,
        changes: broadcast::channel(EVENTS_KEPT).0,
    };
    let stop = CancellationToken::new();
    let daemon = tokio::spawn(daemon::run(setup, mpsc::channel(1), stop.clone()));
    (stop, daemon)
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
    story.fleet.behave(FAILS);
    story.until(700.0).await;
    let still = story.expect_one(Class::BackoffWithoutJitter);
    assert_eq!(
        (still.state, still.updated_at <= fired.updated_at.plus_seconds(5.0)),
        (State::Firing, true)
    );
    story.fleet.behave(ANSWERS);
    story.until(1000.0).await;
    assert_eq!(story.expect_one(Class::BackoffWithoutJitter).state, State::Resolved);
    story.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_warnings_opens_nothing_until_it_is_whole_again() {
    let story = Story::begin(HERD).await;
    story.until(100.0).await;
    story.fleet.behave(WARNS);
    story.until(150.0).await;
    assert!(story.incidents().is_empty(), "{:#?}", story.incidents());
    story.fleet.behave(ANSWERS);
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
