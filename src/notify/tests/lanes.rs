//! From incidents to receivers in virtual time: in order, at least once, and well-mannered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use super::*;
use crate::store::{
    Answer, Claim, Grouping, LaneSize, LastSent, MemoryOutbox, NewNotification, Notification,
    NotificationState, Outbox, Outcome,
};

const SEED: u64 = 42;

/// One try that reached a double.
#[derive(Debug, Clone)]
struct Try {
    at: Duration,
    key: String,
    incidents: Vec<String>,
    taken: bool,
}

/// A receiver that answers by a plan.
struct Double {
    started: Instant,
    tries: Mutex<Vec<Try>>,
    answer: Box<dyn Fn(Duration, usize) -> Result<(), NotifyError> + Send + Sync>,
    delay: Duration,
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Double")
    }
}

impl Double {
    fn new(
        answer: impl Fn(Duration, usize) -> Result<(), NotifyError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            tries: Mutex::default(),
            answer: Box::new(answer),
            delay: Duration::from_millis(20),
        })
    }

    fn tries(&self) -> Vec<Try> {
        self.tries.lock().unwrap().clone()
    }

    fn taken(&self) -> Vec<Try> {
        self.tries().into_iter().filter(|one| one.taken).collect()
    }
}

impl Notifier for Double {
    fn name(&self) -> &'static str {
        "hook"
    }

    fn kind(&self) -> Kind {
        Kind::Webhook
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let at = self.started.elapsed();
            tokio::time::sleep(self.delay).await;
            let answer = (self.answer)(at, self.tries.lock().unwrap().len());
            self.tries.lock().unwrap().push(Try {
                at,
                key: message.key.clone(),
                incidents: message.told.iter().map(|told| told.incident.id.clone()).collect(),
                taken: answer.is_ok(),
            });
            answer
        })
    }
}

fn status(status: u16, retry_after: Option<u64>) -> NotifyError {
    NotifyError::Status {
        receiver: "hook".to_owned(),
        status,
        body: String::new(),
        retry_after: retry_after.map(Duration::from_secs),
    }
}

fn route(name: &str) -> Receiver {
    Receiver {
        name: name.to_owned(),
        route: Route::default(),
        settings: Settings::Webhook {
            url: Secret::Inline(String::new()),
            secret: None,
            http: Http::plain().unwrap(),
        },
    }
}

fn worker(outbox: &Arc<MemoryOutbox>, double: &Arc<Double>, owner: &str, seed: u64) -> Worker {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let now: Now = Arc::new(|| Timestamp::from_millis(0));
    Worker::new(outbox.clone(), double.clone(), owner, now, Arc::new(NoMeter))
        .with_draw(move || rng.random::<f64>())
}

/// Runs a worker for so long of virtual time.
async fn work(mut worker: Worker, limit: Duration) {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        let wait = worker.turn().await;
        tokio::time::sleep(wait).await;
    }
}

/// `count` storms an hour apart, so that no two share a cause, each told and ended.
async fn storms(outbox: &MemoryOutbox, count: u32) -> Vec<NewNotification> {
    let mut planner = Planner::new(&[route("hook")]);
    let mut kept = Vec::new();
    for n in 0..count {
        let mut firing = incident_of(&format!("d{n:03}"));
        firing.verdict.started_at =
            firing.verdict.started_at.plus(Duration::from_secs(3600 * u64::from(n)));
        for incident in [firing.clone(), over(firing)] {
            let planned =
                planner.plan(outbox, std::slice::from_ref(&incident), incident.updated_at).await;
            assert_eq!(planned.len(), 1, "{planned:?}");
            outbox.enqueue(&planned).await.unwrap();
            kept.extend(planned);
        }
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_for_an_hour_gets_everything_in_order() {
    println!("seed {SEED}");
    let outbox = Arc::new(MemoryOutbox::new());
    let hour = Duration::from_secs(3600);
    let double = Double::new(move |at, _| if at < hour { Err(status(503, None)) } else { Ok(()) });
    let kept = storms(&outbox, 20).await;
    work(worker(&outbox, &double, "me", SEED), hour + Duration::from_secs(400)).await;

    let taken: Vec<String> = double.taken().into_iter().map(|one| one.key).collect();
    let expected: Vec<String> = kept.iter().map(|one| one.key.clone()).collect();
    assert_eq!(taken, expected);
    let failed: Vec<Try> = double.tries().into_iter().filter(|one| !one.taken).collect();
    assert!(failed.iter().all(|one| one.key == expected[0]), "the head only, under its own key");
    // The budget: 10 at once and one in twelve seconds after that.
    assert!(failed.len() <= 311, "{} tries in an hour", failed.len());
    // Full jitter at the cap: the mean wait is half of it, and short waits happen as well as long.
    let waits: Vec<f64> =
        failed.windows(2).skip(9).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect();
    let mean = waits.iter().sum::<f64>() / f64::from(u32::try_from(waits.len()).unwrap());
    assert!(waits.len() >= 10, "{waits:?}");
    // 300 s uniform: the mean of n draws has a standard error of 87 / sqrt(n); four of them.
    let error = 4.0 * 87.0 / f64::from(u32::try_from(waits.len()).unwrap()).sqrt();
    assert!((mean - 150.0).abs() < error, "mean {mean} of {waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 302.0), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_kept_aside_and_the_lane_goes_on() {
    let outbox = Arc::new(MemoryOutbox::new());
    let double = Double::new(|_, tries| if tries == 0 { Err(status(400, None)) } else { Ok(()) });
    let kept = storms(&outbox, 2).await;
    work(worker(&outbox, &double, "me", SEED), Duration::from_secs(60)).await;
    assert_eq!(double.tries().len(), 4);
    let dead = outbox.dead_letters(10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].content.key, kept[0].key);
    assert!(dead[0].error.as_deref().unwrap().contains("answered 400"), "{dead:?}");
    // Sent again by hand, under the same key.
    assert!(outbox.resend(dead[0].id).await.unwrap());
    work(worker(&outbox, &double, "me", SEED), Duration::from_secs(10)).await;
    assert_eq!(double.taken().last().unwrap().key, kept[0].key);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let outbox = Arc::new(MemoryOutbox::new());
    let double =
        Double::new(|_, tries| if tries == 0 { Err(status(429, Some(90))) } else { Ok(()) });
    storms(&outbox, 1).await;
    work(worker(&outbox, &double, "me", SEED), Duration::from_secs(240)).await;
    let tries = double.tries();
    let wait = tries[1].at - tries[0].at;
    // As long as it asked for, and spread over as long again.
    assert!(wait >= Duration::from_secs(90), "{wait:?}");
    assert!(wait <= Duration::from_secs(186), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_never_answers_is_left_in_time_and_blocks_nobody_else() {
    let outbox = Arc::new(MemoryOutbox::new());
    let mut slow = Arc::into_inner(Double::new(|_, _| Ok(()))).unwrap();
    slow.delay = Duration::from_secs(3600);
    let slow = Arc::new(slow);
    storms(&outbox, 1).await;
    let mut worker = worker(&outbox, &slow, "me", SEED);
    let begun = Instant::now();
    // The hold of a first page, the try, and its end.
    while worker.unfinished.is_none() {
        let wait = worker.turn().await;
        tokio::time::sleep(wait).await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(15), "{:?}", begun.elapsed());
    worker.turn().await;
    let first = &outbox.all()[0];
    assert_eq!(first.error.as_deref(), Some("receiver `hook` did not answer in time"));
    assert_eq!(first.state, NotificationState::Pending);
}

#[tokio::test(start_paused = true)]
async fn after_a_day_a_page_is_given_up() {
    println!("seed {SEED}");
    let outbox = Arc::new(MemoryOutbox::new());
    let double = Double::new(|_, _| Err(status(503, None)));
    storms(&outbox, 1).await;
    work(worker(&outbox, &double, "me", SEED), Duration::from_secs(24 * 3600 + 1200)).await;
    let lanes = outbox.lanes().await.unwrap();
    assert_eq!(lanes[0].dead, 2);
    let last = double.tries().last().unwrap().at;
    assert!(last >= Duration::from_secs(24 * 3600), "{last:?}");
}

/// An outbox seen by a replica that is stopped for a minute right after it claims.
struct Paused(Arc<MemoryOutbox>);

impl Outbox for Paused {
    fn enqueue<'a>(&'a self, new: &'a [NewNotification]) -> Answer<'a, ()> {
        self.0.enqueue(new)
    }
    fn claim<'a>(
        &'a self,
        receiver: &'a str,
        owner: &'a str,
        lease: Duration,
        grouping: Grouping,
    ) -> Answer<'a, Claim> {
        Box::pin(async move {
            let claim = self.0.claim(receiver, owner, lease, grouping).await?;
            if matches!(claim, Claim::Ready(_)) {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Ok(claim)
        })
    }
    fn finish<'a>(&'a self, delivery: &'a Delivery, outcome: &'a Outcome) -> Answer<'a, bool> {
        self.0.finish(delivery, outcome)
    }
    fn last_sent<'a>(&'a self, incidents: &'a [IncidentId]) -> Answer<'a, Vec<LastSent>> {
        self.0.last_sent(incidents)
    }
    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<Notification>> {
        self.0.dead_letters(limit)
    }
    fn resend(&self, id: i64) -> Answer<'_, bool> {
        self.0.resend(id)
    }
    fn lanes(&self) -> Answer<'_, Vec<LaneSize>> {
        self.0.lanes()
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_paused_for_a_minute_one_pages_within_thirty_seconds() {
    let outbox = Arc::new(MemoryOutbox::new());
    let double = Double::new(|_, _| Ok(()));
    let one = incident();
    // Both replicas decide the same.
    for _ in 0..2 {
        let mut planner = Planner::new(&[route("hook")]);
        let planned =
            planner.plan(outbox.as_ref(), std::slice::from_ref(&one), one.updated_at).await;
        outbox.enqueue(&planned).await.unwrap();
    }
    assert_eq!(outbox.all().len(), 1);
    let now: Now = Arc::new(|| Timestamp::from_millis(0));
    let paused: Arc<dyn Outbox> = Arc::new(Paused(outbox.clone()));
    let stopped = Worker::new(paused, double.clone(), "stopped", now, Arc::new(NoMeter));
    let limit = Duration::from_secs(180);
    // The paused one is first to ask.
    let other = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        work(worker(&outbox, &double, "other", SEED), limit).await;
    };
    tokio::join!(work(stopped, limit), other);
    let tries = double.tries();
    assert_eq!(tries.len(), 1, "{tries:?}");
    assert!(tries[0].at <= Duration::from_secs(32), "taken over at {:?}", tries[0].at);
}

#[tokio::test(start_paused = true)]
async fn storms_from_one_cause_are_one_page_that_lists_them() {
    let outbox = Arc::new(MemoryOutbox::new());
    let double = Double::new(|_, _| Ok(()));
    let mut planner = Planner::new(&[route("hook")]);
    let now = incident().updated_at;
    let all: Vec<Incident> = ["a", "b", "c"].map(incident_of).into();
    // Two fire on one poll, the third on the poll of another source a second later.
    for some in [&all[..2], &all[2..]] {
        let planned = planner.plan(outbox.as_ref(), some, now).await;
        outbox.enqueue(&planned).await.unwrap();
        work(worker(&outbox, &double, "me", SEED), Duration::from_secs(1)).await;
    }
    work(worker(&outbox, &double, "me", SEED), Duration::from_secs(10)).await;
    let tries = double.tries();
    assert_eq!(tries.len(), 1, "{tries:?}");
    assert_eq!(tries[0].incidents, ["id-a", "id-b", "id-c"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_tells_nothing_twice_and_numbers_go_on() {
    let outbox = MemoryOutbox::new();
    let firing = incident();
    let mut first = Planner::new(&[route("hook")]);
    let planned = first.plan(&outbox, std::slice::from_ref(&firing), firing.updated_at).await;
    outbox.enqueue(&planned).await.unwrap();
    assert_eq!(first.plan(&outbox, std::slice::from_ref(&firing), firing.updated_at).await, []);

    let mut second = Planner::new(&[route("hook")]);
    assert_eq!(second.plan(&outbox, std::slice::from_ref(&firing), firing.updated_at).await, []);
    let ended = over(firing);
    let end = second.plan(&outbox, std::slice::from_ref(&ended), ended.updated_at).await;
    assert_eq!((end[0].event, end[0].sequence), (Event::Resolved, 2));
    assert_ne!(end[0].key, planned[0].key);
}

#[tokio::test(start_paused = true)]
async fn a_storm_that_ended_before_it_was_told_is_told_and_ended() {
    let outbox = MemoryOutbox::new();
    let ended = over(incident());
    let mut planner = Planner::new(&[route("hook")]);
    let planned = planner.plan(&outbox, std::slice::from_ref(&ended), ended.updated_at).await;
    let events: Vec<Event> = planned.iter().map(|one| one.event).collect();
    assert_eq!(events, [Event::Firing, Event::Resolved]);
    let day_later = ended.updated_at.plus_seconds(86_400.0);
    let mut late = Planner::new(&[route("hook")]);
    assert_eq!(late.plan(&MemoryOutbox::new(), &[ended], day_later).await, []);
}

#[tokio::test(start_paused = true)]
async fn each_receiver_has_its_own_lane_and_its_own_keys() {
    let outbox = MemoryOutbox::new();
    let mut planner = Planner::new(&[route("hook"), route("chat")]);
    let planned = planner.plan(&outbox, &[incident()], incident().updated_at).await;
    let keys: HashMap<&str, &str> =
        planned.iter().map(|one| (one.receiver.as_str(), one.key.as_str())).collect();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys["hook"], keys["chat"]);
}
