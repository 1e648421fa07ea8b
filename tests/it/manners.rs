//! squall's own retries, seen by squall: a fleet of daemons whose receiver fails for an hour is no
//! storm, and what they had to say arrives.
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
/// Targets that count the receiver's requests.
const TARGETS: usize = 4;
/// Other requests that the receiver serves, a second.
const OTHERS: f64 = 20.0;
/// When the receiver begins to fail, and when it is back.
const FAILS: [u64; 2] = [1800, 1800 + 3600];
/// The end of the story: every daemon has had its turn by then.
const END: u64 = FAILS[1] + 700;
/// Seconds between two scrapes.
const SCRAPE: u64 = 5;

/// One request that the receiver has seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    seconds: f64,
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
            // An answer takes a while.
            tokio::time::sleep(Duration::from_millis(50)).await;
            #[expect(clippy::cast_precision_loss, reason = "some thousand seconds")]
            let is_failure = (FAILS[0] as f64..FAILS[1] as f64).contains(&at);
            let target = self.daemon % TARGETS;
            self.seen.lock().unwrap().push(Seen { seconds: at, target, is_failure });
            if is_failure {
                return Err(NotifyError::Status {
                    receiver: "hook".to_owned(),
                    status: 503,
                    body: String::new(),
                    retry_after: None,
                });
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
            tokio::time::sleep(Duration::from_secs(FAILS[0])).await;
            let told = [Event::Firing, Event::Resolved];
            let told: Vec<_> =
                (1..).zip(told).map(|(n, event)| notification("hook", 1, n, event)).collect();
            outbox.enqueue(&told).await.unwrap();
            while began.elapsed() < Duration::from_secs(END) {
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
    let mut seconds = 0.0;
    #[expect(clippy::cast_precision_loss, reason = "some thousand seconds")]
    let [from, to, end] = [FAILS[0], FAILS[1], END].map(|at| at as f64);
    while seconds < end {
        seconds -= (1.0 - rng.random::<f64>()).ln() / OTHERS;
        let is_failure = (from..to).contains(&seconds);
        others.push(Seen { seconds, target: rng.random_range(0..TARGETS), is_failure });
    }
    others
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_for_an_hour_sees_jittered_retries_and_no_storm() {
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
    seen.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut pipeline = pipeline();
    let mut kept = Vec::new();
    let begin = crate::store::example::START;
    let mut counts = [[0.0; 2]; TARGETS];
    let mut next = seen.iter().peekable();
    for second in 1..=END {
        #[expect(clippy::cast_precision_loss, reason = "some thousand seconds")]
        let now = second as f64;
        while let Some(one) = next.next_if(|one| one.seconds <= now) {
            counts[one.target][usize::from(one.is_failure)] += 1.0;
        }
        for (target, counts) in counts.iter().enumerate() {
            // Each target at its own phase.
            if second % SCRAPE == target as u64 % SCRAPE {
                scrape(&mut pipeline, target, *counts, begin.plus_seconds(now));
            }
        }
        if second % SCRAPE == 0 {
            keep(&mut kept, pipeline.pass(begin.plus_seconds(now), &[Trust::Whole]));
        }
    }
    let said: Vec<String> = kept.iter().map(|it| it.verdict.summary.clone()).collect();
    assert!(kept.iter().all(|incident| !pages(incident)), "{said:#?}");
    assert!(
        kept.iter().any(|incident| incident.verdict.class == Class::JitteredBackoff),
        "{said:#?}"
    );
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
