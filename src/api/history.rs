//! What the record is asked over time: who has the most incidents, and how often they were right.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::series::Timestamp;
use crate::store::{OffenderKind, Precision};
use crate::wire::rfc3339;

use super::Shared;
use super::answer::{ApiError, success};
use super::incidents::refused;
use super::parameters::Parameters;

/// How far back is looked when the caller does not say.
const SPAN: Duration = Duration::from_secs(90 * 86_400);
/// The length of one span of the precision when the caller does not say.
const STEP: Duration = Duration::from_secs(7 * 86_400);
/// The most spans in one answer.
const STEPS_MAX: f64 = 1000.0;
/// Offenders in one answer when the caller does not say.
const LIMIT_DEFAULT: usize = 20;
/// The most offenders in one answer.
const LIMIT_MAX: usize = 1000;

/// The stretch of time that is asked about.
fn span(parameters: &mut Parameters, now: Timestamp) -> Result<[Timestamp; 2], ApiError> {
    let to = parameters.instant("to")?.unwrap_or(now);
    let from = parameters.instant("from")?.unwrap_or_else(|| to.minus(SPAN));
    if to < from {
        return Err(ApiError::bad_data("invalid parameter \"to\": is before `from`"));
    }
    Ok([from, to])
}

/// The kind of offenders of this name.
fn kind(name: &str) -> Option<OffenderKind> {
    match name {
        "dependency" => Some(OffenderKind::Dependency),
        "client" => Some(OffenderKind::Client),
        _ => None,
    }
}

/// `GET /api/v1/offenders`
pub(super) async fn offenders(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut parameters = Parameters::parse(query.as_deref())?;
    let by = parameters.one_of("by", kind, "dependency, client")?;
    let [from, to] = span(&mut parameters, shared.clock.now())?;
    let limit = parameters.count("limit", LIMIT_DEFAULT, LIMIT_MAX)?;
    parameters.finish()?;
    let by = by.unwrap_or(OffenderKind::Dependency);
    let found = shared
        .store
        .offenders(by, from, to, limit)
        .await
        .map_err(|error| refused("counting the offenders", &error))?;
    let lines: Vec<Value> = found
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "incidents": one.incidents,
                "excess_requests": one.excess_requests,
                "last_at": rfc3339(one.last_at),
            })
        })
        .collect();
    Ok(success(json!({"offenders": lines, "next_cursor": null})))
}

/// `GET /api/v1/precision`
pub(super) async fn precision(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut parameters = Parameters::parse(query.as_deref())?;
    let [from, to] = span(&mut parameters, shared.clock.now())?;
    let step = parameters.duration("step")?.unwrap_or(STEP);
    parameters.finish()?;
    if to.seconds_since(from) / step.as_secs_f64() > STEPS_MAX {
        return Err(ApiError::bad_data(format!(
            "invalid parameter \"step\": gives more than {STEPS_MAX} spans"
        )));
    }
    let found = shared
        .store
        .precision(from, to, step)
        .await
        .map_err(|error| refused("counting the feedback", &error))?;
    let lines: Vec<Value> = found.iter().map(line).collect();
    Ok(success(json!({"precision": lines, "next_cursor": null})))
}

#[expect(clippy::cast_precision_loss, reason = "people judge fewer incidents than 2^52")]
fn line(one: &Precision) -> Value {
    json!({
        "classification": one.class.as_str(),
        "from": rfc3339(one.from),
        "right": one.right,
        "judged": one.judged,
        "precision": one.right as f64 / one.judged.max(1) as f64,
    })
}
