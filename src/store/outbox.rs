//! The outbox: notifications that are durable before they are sent.
//!
//! Each receiver has a lane, sent in the order of insertion, one delivery at a time. A delivery is
//! the head of the lane, with the first pages that follow it when they come from one cause. What
//! goes into a delivery is fixed by its first try, so every later try (by whichever replica) sends
//! the same notifications under the same key, which is what makes a repeated send harmless.
//!
//! A claim is a lease on the database's clock. Whoever holds it finishes it; when the holder dies
//! the lease runs out and the next to ask takes over. A holder that comes back too late finds that
//! it no longer owns the delivery, and its answer is ignored.

use std::time::Duration;

use super::{Answer, Standing};
use crate::incident::IncidentId;
use crate::series::Timestamp;

mod choose;
mod memory;
mod sql;

pub use memory::MemoryOutbox;
pub(super) use sql::insert;

/// What a notification tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// An incident fires, and nobody was told yet.
    Firing,
    /// Its class or severity changed since it was told.
    Changed,
    /// It still fires, and the last word is long ago.
    Repeated,
    /// It is over.
    Resolved,
    /// It was told, and turned out not to be worth a page.
    Withdrawn,
    /// Somebody asked for a test.
    Test,
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 6] =
        [Self::Firing, Self::Changed, Self::Repeated, Self::Resolved, Self::Withdrawn, Self::Test];

    /// The fixed name used in the outbox and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Changed => "changed",
            Self::Repeated => "repeated",
            Self::Resolved => "resolved",
            Self::Withdrawn => "withdrawn",
            Self::Test => "test",
        }
    }

    /// The event with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }

    /// Whether it takes the page back.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Resolved | Self::Withdrawn)
    }
}

/// A notification to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNotification {
    /// Its identity: inserted once, however often and by however many replicas.
    pub key: String,
    /// The configured name of the receiver.
    pub receiver: String,
    /// The incident it is about.
    pub incident: IncidentId,
    /// Its number among the notifications of this incident to this receiver, from 1.
    pub sequence: u64,
    /// What it tells.
    pub event: Event,
    /// The class and severity it tells.
    pub standing: Standing,
    /// When the trouble started, to find the others from the same cause.
    pub cause_at: Timestamp,
    /// The incident as it was then, as wire text.
    pub body: String,
    /// When it was decided.
    pub created_at: Timestamp,
    /// How long the first try waits for others from the same cause.
    pub hold: Duration,
}

/// Where a notification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotificationState {
    /// To be sent.
    Pending,
    /// Taken by the receiver.
    Sent,
    /// Given up.
    Dead,
}

impl NotificationState {
    /// The fixed name used in the outbox and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Dead => "dead",
        }
    }

    /// The state with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pending, Self::Sent, Self::Dead].into_iter().find(|state| state.as_str() == name)
    }
}

/// A kept notification.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Its place in the lane.
    pub id: i64,
    /// What was asked to be kept.
    pub content: NewNotification,
    /// Where it is.
    pub state: NotificationState,
    /// Tries so far, the running one included.
    pub attempts: u64,
    /// What went wrong last.
    pub error: Option<String>,
}

/// When pages of one receiver become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// The largest distance between the starts of two storms from one cause.
    pub within: Duration,
    /// The most incidents one page lists.
    pub incidents_max: usize,
}

/// What a claim finds in a lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Nothing waits.
    Empty,
    /// Something waits, and is not due, or another replica has it, for this long.
    Later(Duration),
    /// To be sent now, and then finished.
    Ready(Delivery),
}

/// One or several notifications that go out as one message.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The same for every try: the key of the first notification in it.
    pub key: String,
    /// The receiver.
    pub receiver: String,
    /// Who holds the lease.
    pub owner: String,
    /// How long the lease runs from the claim.
    pub lease: Duration,
    /// Tries so far, this one included.
    pub attempts: u64,
    /// How long ago the first notification was kept.
    pub age: Duration,
    /// The incident whose page this belongs to.
    pub group: IncidentId,
    /// What is told, in order.
    pub notifications: Vec<Notification>,
    /// The other incidents of the same page that still fire, as they were last told.
    pub others: Vec<Notification>,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver took it.
    Sent,
    /// Try again after this long.
    Retry {
        /// The wait.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// Give up.
    Dead {
        /// What went wrong.
        error: String,
    },
}

/// What a receiver was last told of an incident.
#[derive(Debug, Clone, PartialEq)]
pub struct LastSent {
    /// The receiver.
    pub receiver: String,
    /// The incident.
    pub incident: IncidentId,
    /// The number of that notification.
    pub sequence: u64,
    /// What it told.
    pub event: Event,
    /// The class and severity it told.
    pub standing: Standing,
    /// When it was decided.
    pub created_at: Timestamp,
}

/// One line of the outbox's sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSize {
    /// The receiver.
    pub receiver: String,
    /// Notifications to be sent.
    pub pending: u64,
    /// Notifications given up.
    pub dead: u64,
}

/// The durable queue between detection and the receivers.
pub trait Outbox: Send + Sync {
    /// Keeps notifications by themselves; with their incidents they go through `Store::save`.
    fn enqueue<'a>(&'a self, notifications: &'a [NewNotification]) -> Answer<'a, ()>;

    /// Takes the next delivery of a receiver's lane for `lease`.
    fn claim<'a>(
        &'a self,
        receiver: &'a str,
        owner: &'a str,
        lease: Duration,
        grouping: Grouping,
    ) -> Answer<'a, Claim>;

    /// Ends a try; false when the lease was lost meanwhile, and the outcome was ignored.
    fn finish<'a>(&'a self, delivery: &'a Delivery, outcome: &'a Outcome) -> Answer<'a, bool>;

    /// The last word to each receiver about each of the incidents.
    fn last_sent<'a>(&'a self, incidents: &'a [IncidentId]) -> Answer<'a, Vec<LastSent>>;

    /// What was given up, newest first.
    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<Notification>>;

    /// Puts a dead letter back into its lane; false when there is no such dead letter.
    fn resend(&self, id: i64) -> Answer<'_, bool>;

    /// How much waits in each lane.
    fn lanes(&self) -> Answer<'_, Vec<LaneSize>>;
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
