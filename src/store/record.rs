//! Writing incidents and reading them back.

use super::sql::{Database, Row, SqlStore, Transaction, Value};
use super::{Batch, Reason, Saved, StoreError, outbox};
use crate::incident::{Feedback, Incident, IncidentId};
use crate::series::Timestamp;
use crate::wire::IncidentJson;

/// The columns that [`incident_of`] reads, for a table alias `i`.
pub(super) const COLUMNS: &str =
    "i.id, i.body, i.feedback_genuine, i.feedback_class, i.feedback_note, i.feedback_at";

impl SqlStore {
    pub(super) async fn save_batch(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut tx = self.database.begin("save incidents").await?;
        for saved in &batch.incidents {
            save_incident(&mut tx, saved).await?;
        }
        for series in &batch.series {
            tx.execute(
                "INSERT INTO series (incident, kind, at, body) \
                 SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM incidents WHERE id = $1) \
                 ON CONFLICT (incident, kind) DO UPDATE \
                 SET at = excluded.at, body = excluded.body WHERE excluded.at >= series.at",
                &[
                    series.incident.0.as_str().into(),
                    series.kind.as_str().into(),
                    series.at.millis().into(),
                    series.body.clone().into(),
                ],
            )
            .await?;
        }
        outbox::insert(&mut tx, self.database.clock(), &batch.notifications).await?;
        tx.commit().await
    }

    pub(super) async fn read_incident(
        &self,
        id: &IncidentId,
    ) -> Result<Option<Incident>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM incidents i WHERE i.id = $1");
        let rows = self.database.read("read an incident", &sql, &[id.0.as_str().into()]).await?;
        rows.first().map(|row| incident_of(&self.database, row)).transpose()
    }

    pub(super) async fn read_open(&self) -> Result<Vec<Incident>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM incidents i WHERE i.state IN ('pending', 'firing') \
             ORDER BY i.opened_at, i.id"
        );
        let rows = self.database.read("read the open incidents", &sql, &[]).await?;
        rows.iter().map(|row| incident_of(&self.database, row)).collect()
    }
}

/// Writes one incident, its matched rules and its revision.
async fn save_incident(tx: &mut Transaction, saved: &Saved) -> Result<(), StoreError> {
    let incident = &saved.incident;
    let verdict = &incident.verdict;
    let mut wire = IncidentJson::from(incident);
    wire.feedback = None;
    let body = encode(&wire, &incident.id)?;
    let schedule = verdict.schedule.as_ref();
    let excess = Some(verdict.impact.excess_requests).filter(|excess| excess.is_finite());
    let values: Vec<Value> = vec![
        incident.id.0.as_str().into(),
        incident.dependency.source.as_str().into(),
        incident.dependency.watch.as_str().into(),
        incident.dependency.labels.to_string().into(),
        wire.dependency.as_str().into(),
        verdict.class.as_str().into(),
        incident.state.as_str().into(),
        verdict.severity.as_str().into(),
        verdict.started_at.millis().into(),
        incident.updated_at.millis().into(),
        incident.ended_at.map(Timestamp::millis).into(),
        verdict.summary.as_str().into(),
        schedule.map(|schedule| schedule.family.as_str()).into(),
        schedule.map(|schedule| schedule.base_seconds).filter(|base| base.is_finite()).into(),
        schedule.map(|schedule| schedule.factor).filter(|factor| factor.is_finite()).into(),
        verdict.matches.first().map(|best| best.name.as_str()).into(),
        excess.unwrap_or(0.0).into(),
        body.as_str().into(),
    ];
    // `opened_at` and the feedback are never overwritten; a row newer than this one stays, and so
    // does an end: a replica whose clock is ahead must not take it back.
    let touched = tx
        .execute(
            "INSERT INTO incidents (id, source, watch, labels, dependency, class, state, severity, \
             opened_at, started_at, updated_at, ended_at, summary, family, base_seconds, factor, \
             client, excess_requests, body) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, \
             $17, $18) \
             ON CONFLICT (id) DO UPDATE SET class = excluded.class, state = excluded.state, \
             severity = excluded.severity, started_at = excluded.started_at, \
             updated_at = excluded.updated_at, ended_at = excluded.ended_at, \
             summary = excluded.summary, family = excluded.family, \
             base_seconds = excluded.base_seconds, factor = excluded.factor, \
             client = excluded.client, excess_requests = excluded.excess_requests, \
             body = excluded.body WHERE excluded.updated_at >= incidents.updated_at \
             AND (incidents.state <> 'resolved' OR excluded.state = 'resolved')",
            &values,
        )
        .await?;
    tx.execute(
        "INSERT INTO revisions (incident, at, reason, body) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (incident, at, reason) DO NOTHING",
        &[
            incident.id.0.as_str().into(),
            incident.updated_at.millis().into(),
            saved.reason.as_str().into(),
            body.into(),
        ],
    )
    .await?;
    if touched > 0 {
        save_rules(tx, incident, saved.reason).await?;
    }
    Ok(())
}

async fn save_rules(
    tx: &mut Transaction,
    incident: &Incident,
    reason: Reason,
) -> Result<(), StoreError> {
    let id = incident.id.0.as_str();
    if reason != Reason::Opened {
        tx.execute("DELETE FROM incident_rules WHERE incident = $1", &[id.into()]).await?;
    }
    for found in &incident.verdict.matches {
        tx.execute(
            "INSERT INTO incident_rules (incident, rule, opened_at) \
             SELECT id, $2, opened_at FROM incidents WHERE id = $1 \
             ON CONFLICT (incident, rule) DO NOTHING",
            &[id.into(), found.rule.as_str().into()],
        )
        .await?;
    }
    Ok(())
}

/// The wire text of an incident.
pub(super) fn encode(wire: &IncidentJson, id: &IncidentId) -> Result<String, StoreError> {
    serde_json::to_string(wire).map_err(|cause| StoreError::Decode {
        column: "body",
        row: id.0.clone(),
        cause: Box::new(cause),
    })
}

/// The incident that wire text holds.
pub(super) fn decode(
    column: &'static str,
    row: &str,
    text: &str,
) -> Result<IncidentJson, StoreError> {
    serde_json::from_str(text).map_err(|cause| StoreError::Decode {
        column,
        row: row.to_owned(),
        cause: Box::new(cause),
    })
}

/// Reads one row of [`COLUMNS`].
pub(super) fn incident_of(database: &Database, row: &Row) -> Result<Incident, StoreError> {
    let failed = database.error("read an incident");
    let id = row.text(0).map_err(&failed)?;
    let wire = decode("body", &id, &row.text(1).map_err(&failed)?)?;
    let mut incident = Incident::try_from(wire).map_err(|cause| StoreError::Decode {
        column: "body",
        row: id.clone(),
        cause: Box::new(cause),
    })?;
    if let Some(genuine) = row.int_or_null(2).map_err(&failed)? {
        incident.feedback = Some(Feedback {
            genuine: genuine != 0,
            class: row
                .text_or_null(3)
                .map_err(&failed)?
                .and_then(|class| crate::classify::Class::parse(&class)),
            note: row.text_or_null(4).map_err(&failed)?.unwrap_or_default(),
            at: Timestamp::from_millis(row.int_or_null(5).map_err(&failed)?.unwrap_or_default()),
        });
    }
    Ok(incident)
}
