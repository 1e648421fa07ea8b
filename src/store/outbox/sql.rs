//! The outbox in SQL: both engines, one text.

use std::time::Duration;

use super::choose::{Candidate, Choice, choose};
use super::{
    Claim, Delivery, Event, Grouping, LaneSize, LastSent, NewNotification, Notification,
    NotificationState, Outbox, Outcome, duration, millis,
};
use crate::classify::{Class, Severity};
use crate::incident::IncidentId;
use crate::series::Timestamp;
use crate::store::sql::{Row, SqlStore, Transaction, Value};
use crate::store::{Answer, Standing, StoreError};

/// The columns that [`notification_of`] reads, for a table alias `o`.
const COLUMNS: &str = "o.id, o.key, o.receiver, o.incident, o.sequence, o.event, o.class, \
    o.severity, o.cause_at, o.body, o.created_at, o.state, o.attempts, o.error, o.due_at, \
    o.lease_until, o.batch, o.inserted_at";

/// The most rows of a lane looked at for one delivery.
const LOOK_AHEAD: usize = 200;

/// Ids in one `IN` list; both engines take more, and a longer statement is slower to prepare.
const IDS_PER_QUERY: usize = 500;

/// Keeps notifications inside a transaction.
pub(in crate::store) async fn insert(
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

/// `$first, $first+1, …` for `count` values.
fn placeholders(first: usize, count: usize) -> String {
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
