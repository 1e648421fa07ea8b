//! What the record is asked afterwards: what was believed, what people said, what comes back.

use std::path::Path;
use std::time::Duration;

use super::record::decode;
use super::sql::{Database, Row, SqlStore, Value};
use super::{
    Answer, Batch, IncidentQuery, Offender, OffenderKind, Page, Precision, Reason, Revision,
    SeriesAround, Store, StoreError,
};
use crate::classify::{Class, ScheduleFamily};
use crate::incident::{Feedback, Incident, IncidentId, State};
use crate::series::Timestamp;
use crate::wire::{Instant3339, SeenBeforeJson};

/// Two estimates of one wait differ by less than this; the fits promise 10 % each.
const SAME_WAIT_RATIO: f64 = 1.2;

/// Two estimates of one factor differ by less than this: 1.5 and 2 must stay apart.
const SAME_FACTOR_RATIO: f64 = 1.12;

/// Earlier incidents named in an answer; the others are only counted.
const NAMED_MAX: i64 = 10;

/// Incidents deleted in one transaction, so that retention never holds the write lock for long.
const FORGET_BATCH: i64 = 500;

impl SqlStore {
    async fn read_revisions(&self, id: &IncidentId) -> Result<Vec<Revision>, StoreError> {
        let failed = self.database.error("read the revisions");
        let rows = self
            .database
            .read(
                "read the revisions",
                "SELECT at, reason, body FROM revisions WHERE incident = $1 ORDER BY at, reason",
                &[id.0.as_str().into()],
            )
            .await?;
        let mut revisions = Vec::with_capacity(rows.len());
        for row in rows {
            let reason = row.text(1).map_err(&failed)?;
            revisions.push(Revision {
                at: Timestamp::from_millis(row.int(0).map_err(&failed)?),
                reason: Reason::parse(&reason).unwrap_or(Reason::Revised),
                incident: decode("body", &id.0, &row.text(2).map_err(&failed)?)?,
            });
        }
        Ok(revisions)
    }

    async fn read_series(&self, id: &IncidentId) -> Result<Vec<SeriesAround>, StoreError> {
        let rows = self
            .database
            .read(
                "read the series",
                "SELECT kind, at, body FROM series WHERE incident = $1 ORDER BY kind",
                &[id.0.as_str().into()],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(SeriesAround {
                    incident: id.clone(),
                    kind: row.text(0)?,
                    at: Timestamp::from_millis(row.int(1)?),
                    body: row.bytes(2)?,
                })
            })
            .collect::<Result<_, _>>()
            .map_err(self.database.error("read the series"))
    }

    async fn write_feedback(
        &self,
        id: &IncidentId,
        feedback: &Feedback,
    ) -> Result<bool, StoreError> {
        let values: [Value; 5] = [
            id.0.as_str().into(),
            feedback.at.millis().into(),
            i64::from(feedback.genuine).into(),
            feedback.class.map(Class::as_str).into(),
            feedback.note.as_str().into(),
        ];
        let mut tx = self.database.begin("save feedback").await?;
        let touched = tx
            .execute(
                "UPDATE incidents SET feedback_at = $2, feedback_genuine = $3, \
                 feedback_class = $4, feedback_note = $5 WHERE id = $1",
                &values,
            )
            .await?;
        if touched == 0 {
            return Ok(false);
        }
        tx.execute(
            "INSERT INTO feedback (incident, at, genuine, class, note) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (incident, at) DO UPDATE \
             SET genuine = excluded.genuine, class = excluded.class, note = excluded.note",
            &values,
        )
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn read_feedback(&self, id: &IncidentId) -> Result<Vec<Feedback>, StoreError> {
        let rows = self
            .database
            .read(
                "read the feedback",
                "SELECT at, genuine, class, note FROM feedback WHERE incident = $1 ORDER BY at",
                &[id.0.as_str().into()],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Feedback {
                    at: Timestamp::from_millis(row.int(0)?),
                    genuine: row.int(1)? != 0,
                    class: row.text_or_null(2)?.and_then(|class| Class::parse(&class)),
                    note: row.text(3)?,
                })
            })
            .collect::<Result<_, _>>()
            .map_err(self.database.error("read the feedback"))
    }

    async fn find_seen_before(&self, incident: &Incident) -> Result<SeenBeforeJson, StoreError> {
        let mut values: Vec<Value> = vec![
            incident.dependency.name().into(),
            incident.dependency.labels.to_string().into(),
            incident.dependency.watch.as_str().into(),
            incident.id.0.as_str().into(),
            incident.verdict.started_at.millis().into(),
        ];
        // `dependency` leads, for it has the index; the labels settle two of one name.
        let mut condition = "dependency = $1 AND labels = $2 AND watch = $3 AND id <> $4 \
                             AND opened_at < $5"
            .to_owned();
        match incident.verdict.schedule.as_ref().filter(|s| s.base_seconds.is_finite()) {
            Some(schedule) => {
                condition
                    .push_str(" AND base_seconds BETWEEN $6 AND $7 AND factor BETWEEN $8 AND $9");
                values.extend([
                    Value::from(schedule.base_seconds / SAME_WAIT_RATIO),
                    Value::from(schedule.base_seconds * SAME_WAIT_RATIO),
                    Value::from(schedule.factor / SAME_FACTOR_RATIO),
                    Value::from(schedule.factor * SAME_FACTOR_RATIO),
                ]);
                // A cap that was not reached makes one schedule look exponential and the next
                // capped; a polynomial's factor is a power and is never compared with a factor.
                condition.push_str(match schedule.family {
                    ScheduleFamily::Polynomial => " AND family = 'polynomial'",
                    _ => " AND family <> 'polynomial'",
                });
            }
            None => {
                condition.push_str(" AND family IS NULL AND class = $6");
                values.push(incident.verdict.class.as_str().into());
            }
        }
        let failed = self.database.error("look for earlier incidents");
        let sql = format!(
            "SELECT COUNT(*), COALESCE(MIN(opened_at), 0), COALESCE(MAX(opened_at), 0) \
             FROM incidents WHERE {condition}"
        );
        let rows = self.database.read("look for earlier incidents", &sql, &values).await?;
        let Some(row) = rows.first() else { return Ok(never_seen()) };
        let times = u64::try_from(row.int(0).map_err(&failed)?).unwrap_or(0);
        if times == 0 {
            return Ok(never_seen());
        }
        let at = |millis| Some(Instant3339(Timestamp::from_millis(millis)));
        let (first, last) = (row.int(1).map_err(&failed)?, row.int(2).map_err(&failed)?);
        let sql = format!(
            "SELECT id FROM incidents WHERE {condition} ORDER BY opened_at DESC, id DESC \
             LIMIT {NAMED_MAX}"
        );
        let rows = self.database.read("look for earlier incidents", &sql, &values).await?;
        let incidents =
            rows.iter().map(|row| row.text(0)).collect::<Result<_, _>>().map_err(&failed)?;
        Ok(SeenBeforeJson { times, first_at: at(first), last_at: at(last), incidents })
    }

    async fn find_offenders(
        &self,
        by: OffenderKind,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<Offender>, StoreError> {
        let column = match by {
            OffenderKind::Dependency => "dependency",
            OffenderKind::Client => "client",
        };
        let sql = format!(
            "SELECT {column}, COUNT(*), CAST(SUM(excess_requests) AS DOUBLE PRECISION), \
             MAX(opened_at) FROM incidents WHERE opened_at >= $1 AND opened_at < $2 \
             AND {column} IS NOT NULL GROUP BY {column} \
             ORDER BY COUNT(*) DESC, SUM(excess_requests) DESC, {column} LIMIT $3"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = [from.millis().into(), to.millis().into(), limit.into()];
        let rows = self.database.read("count the offenders", &sql, &values).await?;
        rows.iter()
            .map(|row| {
                Ok(Offender {
                    name: row.text(0)?,
                    incidents: u64::try_from(row.int(1)?).unwrap_or(0),
                    excess_requests: row.float(2)?,
                    last_at: Timestamp::from_millis(row.int(3)?),
                })
            })
            .collect::<Result<_, _>>()
            .map_err(self.database.error("count the offenders"))
    }

    async fn find_precision(
        &self,
        from: Timestamp,
        to: Timestamp,
        step: Duration,
    ) -> Result<Vec<Precision>, StoreError> {
        let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX).max(1);
        // Right means: a storm it was, and nobody named another class.
        let rows = self
            .database
            .read(
                "count the feedback",
                "SELECT (opened_at - $1) / $3, class, CAST(SUM(CASE WHEN feedback_genuine <> 0 \
                 AND COALESCE(feedback_class, class) = class THEN 1 ELSE 0 END) AS BIGINT), \
                 COUNT(*) FROM incidents WHERE opened_at >= $1 AND opened_at < $2 \
                 AND feedback_genuine IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2",
                &[from.millis().into(), to.millis().into(), step.into()],
            )
            .await?;
        let failed = self.database.error("count the feedback");
        let mut lines = Vec::with_capacity(rows.len());
        for row in rows {
            let span = row.int(0).map_err(&failed)?;
            let Some(class) = Class::parse(&row.text(1).map_err(&failed)?) else { continue };
            let start = from.millis().saturating_add(span.saturating_mul(step));
            lines.push(Precision {
                class,
                from: Timestamp::from_millis(start),
                right: u64::try_from(row.int(2).map_err(&failed)?).unwrap_or(0),
                judged: u64::try_from(row.int(3).map_err(&failed)?).unwrap_or(0),
            });
        }
        Ok(lines)
    }

    async fn count_all(&self) -> Result<Vec<(Class, State, u64)>, StoreError> {
        let rows = self
            .database
            .read(
                "count the incidents",
                "SELECT class, state, COUNT(*) FROM incidents GROUP BY class, state \
                 ORDER BY class, state",
                &[],
            )
            .await?;
        let counted = |row: &Row| -> Result<Option<(Class, State, u64)>, sqlx::Error> {
            let (class, state) = (Class::parse(&row.text(0)?), State::parse(&row.text(1)?));
            let count = u64::try_from(row.int(2)?).unwrap_or(0);
            Ok(class.zip(state).map(|(class, state)| (class, state, count)))
        };
        rows.iter()
            .filter_map(|row| counted(row).transpose())
            .collect::<Result<_, _>>()
            .map_err(self.database.error("count the incidents"))
    }

    async fn forget(&self, cutoff: Timestamp) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let mut tx = self.database.begin("forget old incidents").await?;
            // A notification that still waits keeps nothing alive: it carries its own text. Those
            // that ended go by the time of their incident.
            tx.execute(
                "DELETE FROM outbox WHERE state <> 'pending' AND created_at < $1 \
                 AND id IN (SELECT id FROM outbox WHERE state <> 'pending' AND created_at < $1 \
                 AND incident NOT IN (SELECT id FROM incidents WHERE state IN \
                 ('pending', 'firing')) LIMIT $2)",
                &[cutoff.millis().into(), FORGET_BATCH.into()],
            )
            .await?;
            let touched = tx
                .execute(
                    "DELETE FROM incidents WHERE id IN (SELECT id FROM incidents \
                     WHERE state = 'resolved' AND opened_at < $1 \
                     AND COALESCE(ended_at, updated_at) < $1 ORDER BY opened_at LIMIT $2)",
                    &[cutoff.millis().into(), FORGET_BATCH.into()],
                )
                .await?;
            tx.commit().await?;
            forgotten += touched;
            if touched < u64::try_from(FORGET_BATCH).unwrap_or(u64::MAX) {
                return Ok(forgotten);
            }
        }
    }

    async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let Database::Sqlite(pool) = &self.database else {
            return Err(StoreError::Unsupported {
                operation: "copy itself to a file",
                engine: self.database.engine(),
            });
        };
        // A consistent copy of the moment, made beside writers; it refuses to overwrite a file.
        sqlx::query("VACUUM INTO $1")
            .bind(path.display().to_string())
            .execute(pool)
            .await
            .map(drop)
            .map_err(self.database.error("copy itself to a file"))
    }
}

const fn never_seen() -> SeenBeforeJson {
    SeenBeforeJson { times: 0, first_at: None, last_at: None, incidents: Vec::new() }
}

impl Store for SqlStore {
    fn save<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()> {
        Box::pin(self.save_batch(batch))
    }

    fn incident<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Option<Incident>> {
        Box::pin(self.read_incident(id))
    }

    fn open_incidents(&self) -> Answer<'_, Vec<Incident>> {
        Box::pin(self.read_open())
    }

    fn incidents<'a>(&'a self, query: &'a IncidentQuery) -> Answer<'a, Page> {
        Box::pin(self.read_page(query))
    }

    fn revisions<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<Revision>> {
        Box::pin(self.read_revisions(id))
    }

    fn series<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<SeriesAround>> {
        Box::pin(self.read_series(id))
    }

    fn add_feedback<'a>(&'a self, id: &'a IncidentId, feedback: &'a Feedback) -> Answer<'a, bool> {
        Box::pin(self.write_feedback(id, feedback))
    }

    fn feedback<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<Feedback>> {
        Box::pin(self.read_feedback(id))
    }

    fn seen_before<'a>(&'a self, incident: &'a Incident) -> Answer<'a, SeenBeforeJson> {
        Box::pin(self.find_seen_before(incident))
    }

    fn offenders(
        &self,
        by: OffenderKind,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Offender>> {
        Box::pin(self.find_offenders(by, from, to, limit))
    }

    fn precision(
        &self,
        from: Timestamp,
        to: Timestamp,
        step: Duration,
    ) -> Answer<'_, Vec<Precision>> {
        Box::pin(self.find_precision(from, to, step))
    }

    fn counts(&self) -> Answer<'_, Vec<(Class, State, u64)>> {
        Box::pin(self.count_all())
    }

    fn forget_before(&self, cutoff: Timestamp) -> Answer<'_, u64> {
        Box::pin(self.forget(cutoff))
    }

    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(self.write_something())
    }

    fn heartbeat<'a>(&'a self, replica: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.beat(replica))
    }

    fn leave<'a>(&'a self, replica: &'a str) -> Answer<'a, ()> {
        Box::pin(self.sign_off(replica))
    }

    fn backup<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.copy_to(path))
    }
}
