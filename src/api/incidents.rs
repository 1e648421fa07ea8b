//! Incidents: the list, one with its series, what is firing, and what people say of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::classify::{Class, Severity};
use crate::incident::{Feedback, Incident, IncidentId, State as Standing};
use crate::store::{Cursor, IncidentQuery, LIMIT_DEFAULT, LIMIT_MAX, StoreError};
use crate::wire::around::SeriesJson;
use crate::wire::{IncidentJson, rfc3339};

use super::Shared;
use super::answer::{self, ApiError, ErrorType, success};
use super::parameters::Parameters;

/// The classes, for a message.
const CLASSES: &str = "backoff-without-jitter, retry-storm-without-backoff, partial-jitter, \
                       jittered-backoff, inconclusive";
/// Longest note of a feedback, in characters.
const NOTE_MAX: usize = 4000;
/// Longest id, in bytes; ours are shorter.
const ID_BYTES_MAX: usize = 128;

/// `GET /api/v1/incidents`
///
/// What is pending is live only: the record begins when an incident fires. So the first page is
/// what is pending, and then the record. While the store does not answer, what is live is all; while
/// it takes no writes, what is live goes before what it holds.
pub(super) async fn list(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let listed = listed(&shared, &query_of(Parameters::parse(query.as_deref())?)?).await?;
    let incidents: Vec<IncidentJson> = listed.incidents.iter().map(IncidentJson::from).collect();
    let data = json!({"incidents": incidents, "next_cursor": listed.next_cursor});
    Ok(answer::success_with_warnings(data, &listed.warnings))
}

/// One page of incidents.
#[derive(Debug)]
pub(super) struct ListedIncidents {
    pub(super) incidents: Vec<Incident>,
    pub(super) next_cursor: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// The incidents that a question asks for.
pub(super) async fn listed(
    shared: &Shared,
    query: &IncidentQuery,
) -> Result<ListedIncidents, ApiError> {
    let board = shared.board.borrow().clone();
    let live = |only_pending: bool| {
        let mut live: Vec<Incident> = board
            .incidents
            .iter()
            .filter(|it| !only_pending || it.state == Standing::Pending)
            .filter(|it| query.after.is_none() && fits(query, it))
            .cloned()
            .collect();
        live.sort_by(|a, b| (b.verdict.started_at, &b.id).cmp(&(a.verdict.started_at, &a.id)));
        live.truncate(query.limit());
        live
    };
    match shared.store.incidents(query).await {
        Ok(page) => {
            let mut incidents = live(true);
            if board.storage_fault.is_some() {
                let oldest = page.next.as_ref().and_then(|_| page.incidents.last());
                let oldest = oldest.map(|it| it.verdict.started_at);
                // What is older comes with a later page.
                incidents.extend(live(false).into_iter().filter(|it| {
                    it.state != Standing::Pending
                        && oldest.is_none_or(|oldest| it.verdict.started_at >= oldest)
                }));
            }
            let is_newer = |it: &&Incident| {
                board.storage_fault.is_some() && board.incidents.iter().any(|live| live.id == it.id)
            };
            incidents.extend(page.incidents.iter().filter(|it| !is_newer(it)).cloned());
            let next_cursor = page.next.map(|cursor| cursor.to_string());
            Ok(ListedIncidents { incidents, next_cursor, warnings: Vec::new() })
        }
        Err(error) if query.after.is_none() => {
            let refusal = refused("reading the incidents", &error);
            let warnings = vec![refusal.message];
            Ok(ListedIncidents { incidents: live(false), next_cursor: None, warnings })
        }
        Err(error) => Err(refused("reading the incidents", &error)),
    }
}

/// Whether a live incident is one that the question asks for.
fn fits(query: &IncidentQuery, incident: &Incident) -> bool {
    let verdict = &incident.verdict;
    let holds = |words: &String| {
        let words = words.to_lowercase();
        incident.dependency.name().to_lowercase().contains(&words)
            || verdict.summary.to_lowercase().contains(&words)
    };
    query.dependency.as_ref().is_none_or(|it| *it == incident.dependency.name())
        && query.class.is_none_or(|class| class == verdict.class)
        && query.state.is_none_or(|state| state == incident.state)
        && query.severity.is_none_or(|severity| severity == verdict.severity)
        && query.from.is_none_or(|from| verdict.started_at >= from)
        && query.to.is_none_or(|to| verdict.started_at < to)
        && query.schedule.as_ref().is_none_or(|it| verdict.matches.iter().any(|m| m.rule == *it))
        && query.text.as_ref().is_none_or(holds)
}

/// The question that the parameters ask.
pub(super) fn query_of(mut parameters: Parameters) -> Result<IncidentQuery, ApiError> {
    let states = "pending, firing, resolved";
    let cursor = parameters.text("cursor");
    let limit = parameters.count("limit", LIMIT_DEFAULT, LIMIT_MAX)?;
    let mut query = IncidentQuery::default().with_limit(limit).map_err(|error| bad(&error))?;
    query.dependency = parameters.text("dependency");
    query.class = parameters.one_of("classification", Class::parse, CLASSES)?;
    query.state = parameters.one_of("state", Standing::parse, states)?;
    query.severity = parameters.one_of("severity", Severity::parse, "critical, warning, info")?;
    query.from = parameters.instant("from")?;
    query.to = parameters.instant("to")?;
    query.schedule = parameters.text("schedule");
    query.text = parameters.text("q");
    query.after = cursor.as_deref().map(Cursor::parse).transpose().map_err(|error| bad(&error))?;
    parameters.finish()?;
    if let (Some(from), Some(to)) = (query.from, query.to)
        && to < from
    {
        return Err(ApiError::bad_data("invalid parameter \"to\": is before `from`"));
    }
    Ok(query)
}

/// One incident and what is kept around it.
#[derive(Debug, Serialize)]
struct Detailed {
    #[serde(flatten)]
    incident: IncidentJson,
    series: SeriesJson,
}

/// `GET /api/v1/incidents/{id}`
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let (incident, series) = found(&shared, id).await?;
    let mut wire = IncidentJson::from(&incident);
    wire.seen_before = shared.store.seen_before(&incident).await.ok();
    Ok(success(Detailed { incident: wire, series: (*series).clone() }))
}

/// The incident of an id and what is kept around it.
///
/// What is live may not be written yet, or cannot be while the store fails; and the series of an
/// open incident are fresher there.
pub(super) async fn found(
    shared: &Shared,
    id: String,
) -> Result<(Incident, Arc<SeriesJson>), ApiError> {
    let id = id_of(id)?;
    let reading = "reading the incident";
    let board = shared.board.borrow().clone();
    let live = board.incidents.iter().find(|it| it.id == id);
    let incident = match (shared.store.incident(&id).await, live) {
        (Ok(Some(stored)), _) => stored,
        (_, Some(live)) => live.clone(),
        (Ok(None), None) => return Err(no_incident()),
        (Err(error), None) => return Err(refused(reading, &error)),
    };
    if let Some(series) = board.around.get(&id) {
        return Ok((incident, Arc::clone(series)));
    }
    let kept = match shared.store.series(&id).await {
        Ok(kept) => kept,
        Err(_) if live.is_some() => Vec::new(),
        Err(error) => return Err(refused(reading, &error)),
    };
    let values: Vec<(String, Value)> = kept
        .into_iter()
        .filter_map(|part| Some((part.kind, serde_json::from_slice(&part.body).ok()?)))
        .collect();
    let series = SeriesJson::of_kinds(values.iter().map(|(kind, body)| (kind.as_str(), body)));
    Ok((incident, Arc::new(series)))
}

/// What a person says of an incident.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeedbackBody {
    verdict: String,
    #[serde(default)]
    class: Option<String>,
    #[serde(default)]
    note: String,
}

/// `POST /api/v1/incidents/{id}/feedback`
pub(super) async fn feedback(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let id = id_of(id)?;
    // A form that another site posts cannot have this type, so a browser asks before it sends.
    let is_json =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(
            |value| value.split(';').next().unwrap_or_default().trim() == "application/json",
        );
    if !is_json {
        return Err(ApiError::bad_data("the body must be application/json"));
    }
    let body: FeedbackBody = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_data(format!("the body is not as wanted: {error}")))?;
    let genuine = match body.verdict.as_str() {
        "true" => true,
        "false" => false,
        other => {
            return Err(ApiError::bad_data(format!(
                "`verdict` must be true or false, got `{other}`"
            )));
        }
    };
    let class = match body.class.as_deref() {
        None | Some("") => None,
        Some(name) => Some(Class::parse(name).ok_or_else(|| {
            ApiError::bad_data(format!("`class` must be one of {CLASSES}, got `{name}`"))
        })?),
    };
    if body.note.chars().count() > NOTE_MAX {
        return Err(ApiError::bad_data(format!("`note` is longer than {NOTE_MAX} characters")));
    }
    let feedback = Feedback { genuine, class, note: body.note, at: shared.clock.now() };
    let known = shared
        .store
        .add_feedback(&id, &feedback)
        .await
        .map_err(|error| refused("writing the feedback", &error))?;
    if known { Ok(success(Value::Null)) } else { Err(no_incident()) }
}

/// `GET /api/v1/alerts`: what is firing, in the shape of Prometheus.
pub(super) async fn alerts(State(shared): State<Shared>) -> Response {
    let board = shared.board.borrow().clone();
    let alerts: Vec<Value> = board.incidents.iter().filter(|it| fires(it)).map(alert_of).collect();
    success(json!({"alerts": alerts}))
}

/// Whether an incident is an alert now.
pub(super) fn fires(incident: &Incident) -> bool {
    incident.state == Standing::Firing && incident.verdict.class.pages(incident.verdict.severity)
}

fn alert_of(incident: &Incident) -> Value {
    let verdict = &incident.verdict;
    let mut labels: BTreeMap<&str, String> =
        incident.dependency.labels.iter().map(|(name, value)| (name, value.to_owned())).collect();
    let alertname = match verdict.class {
        Class::BackoffWithoutJitter => "BackoffWithoutJitter",
        _ => "RetryStorm",
    };
    labels.insert("alertname", alertname.to_owned());
    labels.insert("classification", verdict.class.as_str().to_owned());
    labels.insert("dependency", incident.dependency.name());
    labels.insert("severity", verdict.severity.as_str().to_owned());
    json!({
        "labels": labels,
        "annotations": {"summary": verdict.summary},
        "state": "firing",
        "activeAt": rfc3339(verdict.started_at),
        // Prometheus gives the value of the expression as text; here it is the confidence.
        "value": format!("{:e}", verdict.confidence),
    })
}

/// An id of sane length.
fn id_of(id: String) -> Result<IncidentId, ApiError> {
    if id.len() > ID_BYTES_MAX { Err(no_incident()) } else { Ok(IncidentId(id)) }
}

fn no_incident() -> ApiError {
    ApiError::not_found("there is no incident of this id")
}

fn bad(error: &dyn std::error::Error) -> ApiError {
    ApiError::bad_data(error.to_string())
}

/// The answer when the store does not answer: the caller may try again, the log says why.
pub(super) fn refused(doing: &'static str, error: &StoreError) -> ApiError {
    tracing::warn!(doing, error = %crate::telemetry::Chain(error), "the store does not answer");
    ApiError {
        kind: ErrorType::Unavailable,
        message: format!("{doing} failed: the store says {}", error.reason().as_str()),
    }
}
