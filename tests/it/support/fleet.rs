//! A simulated fleet behind the `Source` trait, and a daemon that asks it on a paused clock. Every
//! question is kept, since a daemon has manners of its own to hold.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use squall::api::{EVENTS_KEPT, WebConfig};
use squall::clock::{Clock, TokioClock};
use squall::config;
use squall::daemon::{self, Loaded, Setup};
use squall::rules::Rules;
use squall::series::Timestamp;
use squall::series::selector::Selector;
use squall::series::table::LabelBuffer;
use squall::sim::random::Draws;
use squall::sim::scenario::Scenario;
use squall::sim::world::World;
use squall::source::{Answer, Answering, SampleSink, Source, SourceError, Window};
use squall::store::Store;
use squall::telemetry::Metrics;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::memory_store::MemoryStore;

/// The wall time at which every story begins.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Selectors of the daemon's one watch.
pub(crate) const SELECTORS: usize = 2;

/// What the source does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Answers,
    Fails,
    Warns,
}

/// One question for samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Question {
    pub(crate) at: Timestamp,
    /// Questions that were not answered yet when it was put.
    pub(crate) beside: usize,
    /// The window asked for, seconds.
    pub(crate) window_seconds: f64,
}

/// What a fleet has been asked.
#[derive(Debug, Default)]
struct Log {
    questions: Vec<Question>,
    looks_at_the_clock: usize,
    open: usize,
}

/// A simulated fleet that is asked like a Prometheus.
#[derive(Debug)]
pub(crate) struct Fleet {
    world: Mutex<World>,
    clock: TokioClock,
    manner: Mutex<Manner>,
    /// Draws for each question how it is answered, and how late, in place of one manner.
    luck: Option<Mutex<Draws>>,
    log: Mutex<Log>,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().expect("no test panics while it holds this")
}

impl Fleet {
    /// A fleet whose server behaves as it is told to.
    pub(crate) fn new(mut scenario: Scenario, seed: u64, clock: TokioClock) -> Arc<Self> {
        scenario.start_unix_seconds = BEGIN.seconds();
        Arc::new(Self {
            world: Mutex::new(World::new(&scenario, seed)),
            clock,
            manner: Mutex::new(Manner::Answers),
            luck: None,
            log: Mutex::default(),
        })
    }

    /// One whose server behaves as luck has it.
    pub(crate) fn moody(
        scenario: Scenario,
        seed: u64,
        clock: TokioClock,
        luck: Draws,
    ) -> Arc<Self> {
        let fleet = Self::new(scenario, seed, clock);
        let fleet = Arc::into_inner(fleet).expect("nobody else has it yet");
        Arc::new(Self { luck: Some(Mutex::new(luck)), ..fleet })
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *locked(&self.manner) = manner;
    }

    /// Every question for samples so far.
    pub(crate) fn questions(&self) -> Vec<Question> {
        locked(&self.log).questions.clone()
    }

    /// How often the server's clock was looked at.
    pub(crate) fn looks_at_the_clock(&self) -> usize {
        locked(&self.log).looks_at_the_clock
    }

    /// The manner of the next answer, and how long it takes.
    fn mood(&self) -> (Manner, Duration) {
        let Some(luck) = &self.luck else { return (*locked(&self.manner), Duration::ZERO) };
        let mut luck = locked(luck);
        let manner = match luck.uniform() {
            0.0..0.1 => Manner::Fails,
            0.1..0.2 => Manner::Warns,
            _ => Manner::Answers,
        };
        // Now and then an answer takes longer than a poll.
        let seconds = if luck.chance(0.05) { luck.between(1.0, 90.0) } else { 0.05 };
        (manner, Duration::from_secs_f64(seconds))
    }

    fn answer(&self, selector: &Selector, window: Window, sink: &mut dyn SampleSink) -> Answer {
        let mut world = locked(&self.world);
        world.advance(self.clock.now().seconds_since(BEGIN));
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
        answer
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
            let fleet = &self.0;
            let open = Open::begin(fleet, window);
            let (manner, wait) = fleet.mood();
            tokio::time::sleep(wait).await;
            drop(open);
            if manner == Manner::Fails {
                let limit = Duration::from_secs(10);
                return Err(SourceError::Timeout { source_name: "main".to_owned(), limit });
            }
            let mut answer = fleet.answer(selector, window, sink);
            if manner == Manner::Warns {
                answer.warnings.push("a store did not answer".to_owned());
            }
            Ok(answer)
        })
    }

    fn now(&self) -> Answering<'_, Timestamp> {
        Box::pin(async move {
            locked(&self.0.log).looks_at_the_clock += 1;
            Ok(self.0.clock.now())
        })
    }
}

/// A question that is not answered yet; one that is given up ends, too.
struct Open<'f>(&'f Fleet);

impl<'f> Open<'f> {
    fn begin(fleet: &'f Fleet, window: Window) -> Self {
        let mut log = locked(&fleet.log);
        let (at, beside) = (fleet.clock.now(), log.open);
        let window_seconds = window.length().as_secs_f64();
        log.questions.push(Question { at, beside, window_seconds });
        log.open += 1;
        Self(fleet)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        locked(&self.0.log).open -= 1;
    }
}

/// Starts a daemon that watches the fleet's requests and errors, and asks every `poll`.
pub(crate) async fn start(
    fleet: &Arc<Fleet>,
    store: &Arc<MemoryStore>,
    clock: TokioClock,
    metrics: Metrics,
    poll: Duration,
) -> (CancellationToken, tokio::task::JoinHandle<Result<(), daemon::DaemonError>>) {
    let rules = Rules::builtin();
    // Nobody listens at the webhook: what counts here is what is kept for it.
    let text = format!(
        "
prometheus: [{{name: main, url: 'http://127.0.0.1:9', poll_interval: {}s}}]
watch:
  - name: http
    requests: http_client_requests_total
    errors: http_client_requests_total{{code=~\"5..\"}}
    by: [dependency]
notify: [{{webhook: {{url: 'http://127.0.0.1:9/'}}}}]
",
        poll.as_secs()
    );
    let config = config::read(&text, Path::new(""), &rules).expect("a good configuration");
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
