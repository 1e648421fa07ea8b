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

use super::sql::{Row, SqlStore, Transaction, Value};
use super::{Answer, Standing, StoreError};
use crate::classify::{Class, Severity};
use crate::incident::IncidentId;
use crate::series::Timestamp;

mod choose;
mod memory;

use choose::{Candidate, Choice, choose};
pub use memory::MemoryOutbox;

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

/// The columns that [`notification_of`] reads, for a table alias `o`.
const COLUMNS: &str = "o.id, o.key, o.receiver, o.incident, o.sequence, o.event, o.class, \
    o.severity, o.cause_at, o.body, o.created_at, o.state, o.attempts, o.error, o.due_at, \
    o.lease_until, o.batch, o.inserted_at";

/// The most rows of a lane looked at for one delivery.
const LOOK_AHEAD: usize = 200;

/// Ids in one `IN` list; both engines take more, and a longer statement is slower to prepare.
const IDS_PER_QUERY: usize = 500;

/// Keeps notifications inside a transaction.
pub(super) async fn insert(
    tx: &mut Transaction,
    clock: &str,
    notifications: &[NewNotification],
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO outbox (key, receiver, incident, sequence, event, class, severity, cause_at, \
         body, created_at, state, due_at, attempts, lease_until, inserted_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', {clock} + $11, 0, 0, {clock}) \
         ON CONFLICT (key) DO NOTHING"
    );
    for new in notifications {
        tx.execute(
            &sql,
            &[
                new.key.as_str().into(),
                new.receiver.as_str().into(),
                new.incident.0.as_str().into(),
                i64::try_from(new.sequence).unwrap_or(i64::MAX).into(),
                new.event.as_str().into(),
                new.standing.class.as_str().into(),
                new.standing.severity.as_str().into(),
                new.cause_at.millis().into(),
                new.body.as_str().into(),
                new.created_at.millis().into(),
                millis(new.hold).into(),
            ],
        )
        .await?;
    }
    Ok(())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// `$first, $first+1, …` for `count` values.
pub(super) fn placeholders(first: usize, count: usize) -> String {
    (first..first + count).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ")
}

/// Reads one row of [`COLUMNS`].
fn notification_of(row: &Row) -> Result<Notification, sqlx::Error> {
    let unknown = |column: &str, value: &str| {
        sqlx::Error::Decode(format!("`{column}` has the unknown value `{value}`").into())
    };
    let (event, class, severity, state) = (row.text(5)?, row.text(6)?, row.text(7)?, row.text(11)?);
    Ok(Notification {
        id: row.int(0)?,
        content: NewNotification {
            key: row.text(1)?,
            receiver: row.text(2)?,
            incident: IncidentId(row.text(3)?),
            sequence: u64::try_from(row.int(4)?).unwrap_or(0),
            event: Event::parse(&event).ok_or_else(|| unknown("event", &event))?,
            standing: Standing {
                class: Class::parse(&class).ok_or_else(|| unknown("class", &class))?,
                severity: Severity::parse(&severity)
                    .ok_or_else(|| unknown("severity", &severity))?,
            },
            cause_at: Timestamp::from_millis(row.int(8)?),
            body: row.text(9)?,
            created_at: Timestamp::from_millis(row.int(10)?),
            hold: Duration::ZERO,
        },
        state: NotificationState::parse(&state).ok_or_else(|| unknown("state", &state))?,
        attempts: u64::try_from(row.int(12)?).unwrap_or(0),
        error: row.text_or_null(13)?,
    })
}

fn candidate_of(row: &Row) -> Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        notification: notification_of(row)?,
        due_at: row.int(14)?,
        lease_until: row.int(15)?,
        batch: row.text_or_null(16)?,
        inserted_at: row.int(17)?,
    })
}

impl SqlStore {
    async fn claim_next(
        &self,
        receiver: &str,
        owner: &str,
        lease: Duration,
        grouping: Grouping,
    ) -> Result<Claim, StoreError> {
        let failed = self.database.error("claim a notification");
        // A cheap look first: an idle lane must not take the write lock on every turn.
        let waiting = self
            .database
            .read(
                "claim a notification",
                "SELECT 1 FROM outbox WHERE receiver = $1 AND state = 'pending' LIMIT 1",
                &[receiver.into()],
            )
            .await?;
        if waiting.is_empty() {
            return Ok(Claim::Empty);
        }
        let mut tx = self.database.begin("claim a notification").await?;
        tx.lock(&format!("lane {receiver}")).await?;
        let clock = format!("SELECT {}", self.database.clock());
        let now = match tx.read(&clock, &[]).await?.first() {
            Some(row) => row.int(0).map_err(&failed)?,
            None => 0,
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM outbox o WHERE o.receiver = $1 AND o.state = 'pending' \
             ORDER BY o.id LIMIT {LOOK_AHEAD}"
        );
        let rows = tx.read(&sql, &[receiver.into()]).await?;
        let candidates =
            rows.iter().map(candidate_of).collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        let taken = match choose(&candidates, now, grouping) {
            Choice::Nothing => return Ok(Claim::Empty),
            Choice::Later(wait) => return Ok(Claim::Later(duration(wait))),
            Choice::Take(taken) => taken,
        };
        let chosen: Vec<&Candidate> =
            taken.into_iter().filter_map(|index| candidates.get(index)).collect();
        let Some(head) = chosen.first().copied() else { return Ok(Claim::Empty) };
        let key = head.batch.clone().unwrap_or_else(|| head.notification.content.key.clone());
        let group = group_of(&mut tx, &head.notification).await.map_err(|error| match error {
            GroupError::Store(error) => error,
            GroupError::Row(cause) => failed(cause),
        })?;
        let mut values: Vec<Value> = vec![
            owner.into(),
            now.saturating_add(millis(lease)).into(),
            key.as_str().into(),
            group.as_str().into(),
        ];
        values.extend(chosen.iter().map(|candidate| Value::from(candidate.notification.id)));
        let sql = format!(
            "UPDATE outbox SET lease_owner = $1, lease_until = $2, batch = $3, group_key = $4, \
             attempts = attempts + 1 WHERE id IN ({})",
            placeholders(5, chosen.len())
        );
        tx.execute(&sql, &values).await?;
        let told: Vec<&str> = chosen
            .iter()
            .map(|candidate| candidate.notification.content.incident.0.as_str())
            .collect();
        let others =
            others_of(&mut tx, receiver, &group, &told).await.map_err(|error| match error {
                GroupError::Store(error) => error,
                GroupError::Row(cause) => failed(cause),
            })?;
        tx.commit().await?;
        Ok(Claim::Ready(Delivery {
            key,
            receiver: receiver.to_owned(),
            owner: owner.to_owned(),
            lease,
            attempts: head.notification.attempts + 1,
            age: duration(now.saturating_sub(head.inserted_at)),
            group: IncidentId(group),
            notifications: chosen
                .iter()
                .map(|candidate| {
                    let mut notification = candidate.notification.clone();
                    notification.attempts += 1;
                    notification
                })
                .collect(),
            others,
        }))
    }

    async fn finish_delivery(
        &self,
        delivery: &Delivery,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        let clock = self.database.clock();
        let (state, after, error) = match outcome {
            Outcome::Sent => ("sent", Duration::ZERO, None),
            Outcome::Retry { after, error } => ("pending", *after, Some(error.as_str())),
            Outcome::Dead { error } => ("dead", Duration::ZERO, Some(error.as_str())),
        };
        let mut tx = self.database.begin("finish a notification").await?;
        let sql = format!(
            "UPDATE outbox SET state = $1, due_at = {clock} + $2, error = $3, lease_owner = NULL, \
             lease_until = 0, finished_at = {clock} \
             WHERE batch = $4 AND lease_owner = $5 AND state = 'pending'"
        );
        let touched = tx
            .execute(
                &sql,
                &[
                    state.into(),
                    millis(after).into(),
                    error.into(),
                    delivery.key.as_str().into(),
                    delivery.owner.as_str().into(),
                ],
            )
            .await?;
        tx.commit().await?;
        Ok(touched > 0)
    }

    async fn last_words(&self, incidents: &[IncidentId]) -> Result<Vec<LastSent>, StoreError> {
        let failed = self.database.error("read what was sent");
        let mut answer = Vec::new();
        for some in incidents.chunks(IDS_PER_QUERY) {
            let values: Vec<Value> = some.iter().map(|id| Value::from(id.0.as_str())).collect();
            let sql = format!(
                "SELECT {COLUMNS} FROM outbox o WHERE o.incident IN ({}) AND o.sequence = \
                 (SELECT MAX(p.sequence) FROM outbox p WHERE p.incident = o.incident \
                 AND p.receiver = o.receiver) ORDER BY o.id",
                placeholders(1, some.len())
            );
            for row in self.database.read("read what was sent", &sql, &values).await? {
                let Notification { content, .. } = notification_of(&row).map_err(&failed)?;
                answer.push(LastSent {
                    receiver: content.receiver,
                    incident: content.incident,
                    sequence: content.sequence,
                    event: content.event,
                    standing: content.standing,
                    created_at: content.created_at,
                });
            }
        }
        Ok(answer)
    }

    async fn read_dead(&self, limit: usize) -> Result<Vec<Notification>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM outbox o WHERE o.state = 'dead' ORDER BY o.id DESC LIMIT $1"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.database.read("read the dead letters", &sql, &[limit.into()]).await?;
        rows.iter()
            .map(notification_of)
            .collect::<Result<_, _>>()
            .map_err(self.database.error("read the dead letters"))
    }

    async fn revive(&self, id: i64) -> Result<bool, StoreError> {
        let clock = self.database.clock();
        let mut tx = self.database.begin("resend a notification").await?;
        let sql = format!(
            "UPDATE outbox SET state = 'pending', due_at = {clock}, inserted_at = {clock}, \
             attempts = 0, batch = NULL WHERE id = $1 AND state = 'dead'"
        );
        let touched = tx.execute(&sql, &[id.into()]).await?;
        tx.commit().await?;
        Ok(touched > 0)
    }

    async fn lane_sizes(&self) -> Result<Vec<LaneSize>, StoreError> {
        let failed = self.database.error("read the lanes");
        let rows = self
            .database
            .read(
                "read the lanes",
                "SELECT receiver, CAST(SUM(CASE WHEN state = 'pending' THEN 1 ELSE 0 END) AS \
                 BIGINT), CAST(SUM(CASE WHEN state = 'dead' THEN 1 ELSE 0 END) AS BIGINT) \
                 FROM outbox WHERE state IN ('pending', 'dead') GROUP BY receiver \
                 ORDER BY receiver",
                &[],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(LaneSize {
                    receiver: row.text(0)?,
                    pending: u64::try_from(row.int(1)?).unwrap_or(0),
                    dead: u64::try_from(row.int(2)?).unwrap_or(0),
                })
            })
            .collect::<Result<_, _>>()
            .map_err(failed)
    }
}

enum GroupError {
    Store(StoreError),
    Row(sqlx::Error),
}

/// The incident whose page `notification` belongs to: its own for a first page, else the one that
/// its first page went out under.
async fn group_of(tx: &mut Transaction, notification: &Notification) -> Result<String, GroupError> {
    let content = &notification.content;
    let rows = tx
        .read(
            "SELECT group_key FROM outbox WHERE receiver = $1 AND incident = $2 \
             AND group_key IS NOT NULL AND id <= $3 ORDER BY id DESC LIMIT 1",
            &[
                content.receiver.as_str().into(),
                content.incident.0.as_str().into(),
                notification.id.into(),
            ],
        )
        .await
        .map_err(GroupError::Store)?;
    match rows.first() {
        Some(row) => row.text(0).map_err(GroupError::Row),
        None => Ok(content.incident.0.clone()),
    }
}

/// The other incidents of a page that still fire, as they were last told.
async fn others_of(
    tx: &mut Transaction,
    receiver: &str,
    group: &str,
    told: &[&str],
) -> Result<Vec<Notification>, GroupError> {
    let mut values: Vec<Value> = vec![receiver.into(), group.into()];
    values.extend(told.iter().map(|incident| Value::from(*incident)));
    let sql = format!(
        "SELECT {COLUMNS} FROM outbox o WHERE o.receiver = $1 AND o.group_key = $2 \
         AND o.incident NOT IN ({}) AND o.event NOT IN ('resolved', 'withdrawn') \
         AND o.sequence = (SELECT MAX(p.sequence) FROM outbox p WHERE p.incident = o.incident \
         AND p.receiver = o.receiver) ORDER BY o.id",
        placeholders(3, told.len())
    );
    let rows = tx.read(&sql, &values).await.map_err(GroupError::Store)?;
    rows.iter().map(notification_of).collect::<Result<_, _>>().map_err(GroupError::Row)
}

impl Outbox for SqlStore {
    fn enqueue<'a>(&'a self, notifications: &'a [NewNotification]) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut tx = self.database.begin("keep notifications").await?;
            insert(&mut tx, self.database.clock(), notifications).await?;
            tx.commit().await
        })
    }

    fn claim<'a>(
        &'a self,
        receiver: &'a str,
        owner: &'a str,
        lease: Duration,
        grouping: Grouping,
    ) -> Answer<'a, Claim> {
        Box::pin(self.claim_next(receiver, owner, lease, grouping))
    }

    fn finish<'a>(&'a self, delivery: &'a Delivery, outcome: &'a Outcome) -> Answer<'a, bool> {
        Box::pin(self.finish_delivery(delivery, outcome))
    }

    fn last_sent<'a>(&'a self, incidents: &'a [IncidentId]) -> Answer<'a, Vec<LastSent>> {
        Box::pin(self.last_words(incidents))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<Notification>> {
        Box::pin(self.read_dead(limit))
    }

    fn resend(&self, id: i64) -> Answer<'_, bool> {
        Box::pin(self.revive(id))
    }

    fn lanes(&self) -> Answer<'_, Vec<LaneSize>> {
        Box::pin(self.lane_sizes())
    }
}
