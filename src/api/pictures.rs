//! `GET /api/v1/incidents/{id}/plot.svg`: the pictures of an incident.

use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::plot::{self, Look, OFFSET_MINUTES_MAX, Picture, Theme, WIDTHS};
use crate::wire::IncidentJson;

use super::Shared;
use super::answer::ApiError;
use super::incidents::found;
use super::parameters::Parameters;

/// What a picture that is opened by itself may do: show its own colours, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Minutes ahead of UTC, where there is such a zone.
fn offset_minutes(text: &str) -> Option<i32> {
    text.parse().ok().filter(|minutes: &i32| minutes.abs() <= OFFSET_MINUTES_MAX)
}

/// Draws one picture of an incident.
pub(super) async fn plot(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut parameters = Parameters::parse(query.as_deref())?;
    let names = "incident, warped, cohorts, counterfactual, correlogram, spectrum";
    let picture = parameters.one_of("picture", Picture::parse, names)?;
    let theme = parameters.one_of("theme", Theme::parse, "auto, light, dark")?;
    let offset = parameters.one_of("utc_offset", offset_minutes, "the minutes from -840 to 840")?;
    let width = parameters.count("width", 0, WIDTHS[1] as usize)?;
    // Another value makes a browser ask again; it says nothing here.
    parameters.text("v");
    parameters.finish()?;
    let mut look = Look::default()
        .with_theme(theme.unwrap_or_default())
        .with_offset_minutes(offset.unwrap_or_default());
    if let Ok(width) = u32::try_from(width)
        && width > 0
    {
        look = look.with_width(width);
    }
    let (incident, series) = found(&shared, id).await?;
    let wire = IncidentJson::from(&incident);
    let svg = plot::draw(picture.unwrap_or(Picture::Incident), &wire, &series, &look)
        .map_err(|absent| ApiError::not_found(absent.to_string()))?;
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    Ok((headers, svg).into_response())
}
