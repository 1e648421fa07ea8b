//! squall's own retries, seen by squall: a fleet of daemons whose receiver fails for an hour, in
//! every way that receivers fail, pages nobody, and what they had to say arrives.
//!
//! In virtual time, over outboxes in memory. What the receiver sees is scraped from it as if it
//! counted its requests, and goes through the pipeline as any dependency would.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use squall::classify::Class;
use squall::notify::{Kind, Message, NoMeter, Notifier, NotifyError, Now, Worker};
use squall::pipeline::{Trust, WatchId};
use squall::series::{Labels, Role, Sample, Timestamp};
use squall::store::{Event, MemoryOutbox, Outbox};
use tokio::time::Instant;

use crate::store::example::notification;
use crate::support::replay::{keep, pages, pipeline};

const SEED: u64 = 20_261_130;
/// Daemons that tell one receiver.
const DAEMONS: usize = 600;
/// Targets that count the receiver's requests, each scraped at a phase of its own.
const TARGETS: usize = 10;
/// Other requests that the receiver serves, a second.
const OTHERS: f64 = 20.0;
/// When the receiver begins to fail, and when it is back.
const FAILS: [f64; 2] = [1800.0, 1800.0 + 3600.0];
/// The end of the story: every daemon has had its turn by then.
const END: f64 = FAILS[1] + 700.0;
/// Seconds between two scrapes of a target.
const SCRAPE: f64 = 5.0;

/// What becomes of a request that comes at this second: an answer after a while, or a failure. For
/// a quarter of the hour each, the receiver refuses, resets connections, asks for patience, hangs.
fn outcome(at: f64) -> Result<(), NotifyError> {
    let receiver = "hook".to_owned();
    let status = |status, retry_after| {
        let (receiver, body) = ("hook".to_owned(), String::new());
        Err(NotifyError::Status { receiver, status, body, retry_after })
    };
    let since = at - FAILS[0];
    if !(0.0..FAILS[1] - FAILS[0]).contains(&since) {
        return Ok(());
    }
    match since {
        ..900.0 => status(503, None),
        900.0..1800.0 => Err(NotifyError::Unreachable { receiver, cause: "reset".into() }),
        1800.0..2700.0 => status(429, Some(Duration::from_secs(30))),
        _ => Err(NotifyError::Timeout { receiver }),
    }
}

/// One request that the receiver has seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: f64,
    target: usize,
    is_failure: bool,
}

/// The receiver, as one daemon reaches it.
struct Failing {
    began: Instant,
    daemon: usize,
    seen: Arc<Mutex<Vec<Seen>>>,
    keys: Arc<Mutex<Vec<(usize, String)>>>,
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failing({})", self.daemon)
    }
}

impl Notifier for Failing {
    fn name(&self) -> &'static str {
        "hook"
    }

    fn kind(&self) -> Kind {
        Kind::Webhook
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let at = self.began.elapsed().as_secs_f64();
            let outcome = outcome(at);
            let target = self.daemon % TARGETS;
            self.seen.lock().unwrap().push(Seen { at, target, is_failure: outcome.is_err() });
            match outcome {
                // The worker's own limit ends it.
                Err(NotifyError::Timeout { .. }) => return std::future::pending().await,
                outcome => {
                    // An answer takes a while.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    outcome?;
                }
            }
            self.keys.lock().unwrap().push((self.daemon, message.key.clone()));
            Ok(())
        })
    }
}

/// Every daemon has two things to say while the receiver is down: that a storm is there, and that
/// it is over.
async fn fleet() -> (Vec<Seen>, Vec<(usize, String)>) {
    let (seen, keys) = (Arc::default(), Arc::default());
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for daemon in 0..DAEMONS {
        let outbox = Arc::new(MemoryOutbox::new());
        let notifier =
            Arc::new(Failing { began, daemon, seen: Arc::clone(&seen), keys: Arc::clone(&keys) });
        let mut rng = ChaCha8Rng::seed_from_u64(SEED + daemon as u64);
        let now: Now = Arc::new(|| crate::store::example::START);
        let worker = Worker::new(outbox.clone(), notifier, "me", now, Arc::new(NoMeter));
        let mut worker = worker.with_draw(move || rng.random::<f64>());
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(FAILS[0])).await;
            let told = [Event::Firing, Event::Resolved];
            let told: Vec<_> =
                (1..).zip(told).map(|(n, event)| notification("hook", 1, n, event)).collect();
            outbox.enqueue(&told).await.unwrap();
            while began.elapsed() < Duration::from_secs_f64(END) {
                let wait = worker.turn().await;
                tokio::time::sleep(wait).await;
            }
            assert!(outbox.lanes().await.unwrap().is_empty(), "daemon {daemon} is not done");
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let seen: Vec<Seen> = std::mem::take(&mut *seen.lock().unwrap());
    let keys = std::mem::take(&mut *keys.lock().unwrap());
    (seen, keys)
}

/// What else the receiver serves, and refuses while it is down.
fn others() -> Vec<Seen> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut others = Vec::new();
    let mut at = 0.0;
    while at < END {
        at -= (1.0 - rng.random::<f64>()).ln() / OTHERS;
        let is_failure = outcome(at).is_err();
        others.push(Seen { at, target: rng.random_range(0..TARGETS), is_failure });
    }
    others
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_for_an_hour_gets_everything_in_order_and_pages_nobody() {
    println!("seed {SEED}");
    let (mut seen, keys) = fleet().await;
    let tries = seen.iter().filter(|one| one.is_failure).count();
    // The budget of each: 10 at once, and one in twelve seconds after that.
    assert!(tries <= DAEMONS * 311, "{tries} tries");
    for daemon in 0..DAEMONS {
        let told: Vec<&str> =
            keys.iter().filter(|(by, _)| *by == daemon).map(|(_, key)| key.as_str()).collect();
        assert_eq!(told, ["hook/1/1", "hook/1/2"], "daemon {daemon}: everything once, in order");
    }

    seen.extend(others());
    seen.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut pipeline = pipeline();
    let mut kept = Vec::new();
    let begin = crate::store::example::START;
    let mut counts = [[0.0; 2]; TARGETS];
    let mut next = seen.iter().peekable();
    let mut now = 0.0;
    for target in (0..TARGETS).cycle() {
        #[expect(clippy::cast_precision_loss, reason = "ten targets")]
        let step = SCRAPE / TARGETS as f64;
        now += step;
        if now > END {
            break;
        }
        while let Some(one) = next.next_if(|one| one.at <= now) {
            counts[one.target][usize::from(one.is_failure)] += 1.0;
        }
        scrape(&mut pipeline, target, counts[target], begin.plus_seconds(now));
        if target == TARGETS - 1 {
            keep(&mut kept, pipeline.pass(begin.plus_seconds(now), &[Trust::Whole]));
        }
    }
    let said: Vec<String> = kept.iter().map(|it| it.verdict.summary.clone()).collect();
    assert!(kept.iter().all(|incident| !pages(incident)), "{said:#?}");
    let classes: Vec<_> = kept.iter().map(|incident| incident.verdict.class).collect();
    assert_eq!(classes, [Class::JitteredBackoff], "{said:#?}");
}

fn scrape(
    pipeline: &mut squall::pipeline::Pipeline,
    target: usize,
    counts: [f64; 2],
    at: Timestamp,
) {
    for (code, value) in ["200", "503"].into_iter().zip(counts) {
        let instance = format!("10.0.0.{target}:8080");
        let labels = Labels::new([
            ("__name__", "http_client_requests_total"),
            ("dependency", "hook"),
            ("instance", instance.as_str()),
            ("code", code),
        ]);
        let sample = Sample { at, value };
        pipeline.push(WatchId(0), Role::Requests, &labels, sample);
        if code == "503" {
            pipeline.push(WatchId(0), Role::Errors, &labels, sample);
        }
    }
}
