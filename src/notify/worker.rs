//! One worker a receiver: takes deliveries from its lane and sees them through.
//!
//! The worker never decides what is told and never blocks who decides. It holds a lease while it
//! sends; before it sends it makes sure that the lease cannot have run out (a process may be
//! stopped for a minute between any two lines). When the end of a try cannot be written down, the
//! worker keeps it and writes it before anything else, so that what was sent is not sent again
//! only because the database was away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::manners::{Manners, Pace};
use super::{Kind, Message, Notifier, NotifyError, Reason};
use crate::series::Timestamp;
use crate::store::{Claim, Delivery, Grouping, Outbox, Outcome};

/// Tells the wall time of a try.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long a delivery is a worker's own. Three times what a receiver may take, and short enough
/// that another replica takes over within the promised 30 s of a death.
const LEASE: Duration = Duration::from_secs(25);

/// How long one try may take, whatever the notifier does.
const TRY_LIMIT: Duration = Duration::from_secs(12);

/// How often an empty lane is looked at: the most that a page is late for being kept first.
const IDLE: Duration = Duration::from_millis(500);

/// The longest sleep, since a lease may end earlier than was said.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// How long a notification is tried. After a day the page is history, and in the record.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Storms that start this close to each other are taken to have one cause: clients and
/// dependencies fail within seconds of it, and estimates of the start differ by a scrape.
const CAUSE_WITHIN: Duration = Duration::from_secs(30);

/// The most incidents on one page; more are told of in the next.
const INCIDENTS_PER_PAGE: usize = 50;

/// How a try ended, as a closed set for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The receiver took it.
    Sent,
    /// It will be tried again.
    Failed(Reason),
    /// It was given up.
    Dead(Reason),
}

/// Counts the tries.
pub trait Meter: fmt::Debug + Send + Sync {
    /// One try of one message ended.
    fn attempted(&self, kind: Kind, outcome: AttemptOutcome, took: Duration);

    /// The retry state of a receiver after a try.
    fn paced(&self, kind: Kind, pace: Pace);
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMeter;

impl Meter for NoMeter {
    fn attempted(&self, _: Kind, _: AttemptOutcome, _: Duration) {}
    fn paced(&self, _: Kind, _: Pace) {}
}

/// Sees the deliveries of one receiver through.
pub struct Worker {
    outbox: Arc<dyn Outbox>,
    notifier: Arc<dyn Notifier>,
    owner: String,
    now: Now,
    meter: Arc<dyn Meter>,
    draw: Box<dyn FnMut() -> f64 + Send>,
    manners: Manners,
    started: Instant,
    not_before: Instant,
    pub(super) unfinished: Option<(Delivery, Outcome)>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("notifier", &self.notifier)
            .field("owner", &self.owner)
            .field("manners", &self.manners)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker for this receiver. `owner` names the replica and the start of its process: after a
    /// restart the old lease is somebody else's.
    #[must_use]
    pub fn new(
        outbox: Arc<dyn Outbox>,
        notifier: Arc<dyn Notifier>,
        owner: &str,
        now: Now,
        meter: Arc<dyn Meter>,
    ) -> Self {
        let started = Instant::now();
        Self {
            outbox,
            notifier,
            owner: owner.to_owned(),
            now,
            meter,
            draw: Box::new(rand::random::<f64>),
            manners: Manners::default(),
            started,
            not_before: started,
            unfinished: None,
        }
    }

    /// Draws the jitter from `draw` (uniform in `[0, 1)`), for a run that can be repeated.
    #[must_use]
    pub fn with_draw(mut self, draw: impl FnMut() -> f64 + Send + 'static) -> Self {
        self.draw = Box::new(draw);
        self
    }

    /// Works until told to stop; a try under way is seen through.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let wait = self.turn().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Sends what is due now, for a stop in good order: until the lane is empty or not due.
    pub async fn flush(&mut self) {
        while self.turn().await.is_zero() {}
    }

    /// Does one thing; returns how long to wait before the next.
    pub async fn turn(&mut self) -> Duration {
        let receiver = self.notifier.name().to_owned();
        if let Some((delivery, outcome)) = self.unfinished.take()
            && let Err(error) = self.outbox.finish(&delivery, &outcome).await
        {
            tracing::warn!(receiver, reason = error.reason().as_str(), %error,
                    "cannot write down the end of a try");
            self.unfinished = Some((delivery, outcome));
            return SLEEP_MAX.mul_f64((self.draw)());
        }
        let gate = self.not_before.saturating_duration_since(Instant::now());
        if !gate.is_zero() {
            return gate.min(SLEEP_MAX);
        }
        let grouping = Grouping { within: CAUSE_WITHIN, incidents_max: INCIDENTS_PER_PAGE };
        let asked = Instant::now();
        let delivery = match self.outbox.claim(&receiver, &self.owner, LEASE, grouping).await {
            Ok(Claim::Empty) => return IDLE,
            Ok(Claim::Later(wait)) => return wait.clamp(Duration::from_millis(1), SLEEP_MAX),
            Ok(Claim::Ready(delivery)) => delivery,
            Err(error) => {
                tracing::warn!(receiver, reason = error.reason().as_str(), %error,
                    "cannot look for notifications");
                return SLEEP_MAX.mul_f64((self.draw)());
            }
        };
        let left = delivery.lease.saturating_sub(asked.elapsed());
        if left < TRY_LIMIT {
            // Too late to be sure that nobody else has it by the time the receiver answers.
            return Duration::ZERO;
        }
        let outcome = self.attempt(&delivery).await;
        self.unfinished = Some((delivery, outcome));
        Duration::ZERO
    }

    async fn attempt(&mut self, delivery: &Delivery) -> Outcome {
        let kind = self.notifier.kind();
        let begun = Instant::now();
        let sent = match Message::read(delivery, (self.now)()) {
            Ok(message) => {
                let try_once = self.notifier.send(&message);
                match tokio::time::timeout(TRY_LIMIT, try_once).await {
                    Ok(sent) => sent,
                    Err(_) => Err(NotifyError::Timeout { receiver: delivery.receiver.clone() }),
                }
            }
            Err(error) => Err(error),
        };
        let took = begun.elapsed();
        let outcome = match sent {
            Ok(()) => {
                self.manners.succeeded();
                self.meter.attempted(kind, AttemptOutcome::Sent, took);
                tracing::info!(
                    receiver = delivery.receiver,
                    key = delivery.key,
                    attempts = delivery.attempts,
                    "notified"
                );
                Outcome::Sent
            }
            Err(error) => self.failed(delivery, &error, kind, took),
        };
        self.meter.paced(kind, self.manners.pace());
        outcome
    }

    fn failed(
        &mut self,
        delivery: &Delivery,
        error: &NotifyError,
        kind: Kind,
        took: Duration,
    ) -> Outcome {
        let reason = error.reason();
        let text = chain(error);
        if error.is_final() || delivery.age >= GIVE_UP_AFTER {
            self.meter.attempted(kind, AttemptOutcome::Dead(reason), took);
            tracing::error!(
                receiver = delivery.receiver,
                key = delivery.key,
                reason = reason.as_str(),
                error = text,
                "gave a notification up"
            );
            return Outcome::Dead { error: text };
        }
        let since_start = self.started.elapsed();
        let wait = self.manners.failed(since_start, (self.draw)(), took, error.retry_after());
        self.not_before = Instant::now() + wait;
        self.meter.attempted(kind, AttemptOutcome::Failed(reason), took);
        tracing::warn!(
            receiver = delivery.receiver,
            key = delivery.key,
            reason = reason.as_str(),
            error = text,
            wait_seconds = wait.as_secs_f64(),
            "will try a notification again"
        );
        Outcome::Retry { after: wait, error: text }
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
