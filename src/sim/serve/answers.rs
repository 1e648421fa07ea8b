//! The answers of a Prometheus over the simulated scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Form, Path, Query as OfUrl, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

use super::super::SimulatedSeries;
use super::Live;
use super::query::{Expression, Query, Vector, parse};
use super::selector::Selector;
use crate::series::{Labels, Sample, Timestamp};

/// How far back a plain selector looks, as Prometheus does.
const LOOKBACK_SECONDS: f64 = 300.0;

pub(super) fn router() -> Router<Arc<Live>> {
    Router::new()
        .route("/-/ready", get(|| async { "The simulation is ready.\n" }))
        .route("/-/healthy", get(|| async { "The simulation is healthy.\n" }))
        .route("/api/v1/query", get(query_get).post(query_post))
        .route("/api/v1/series", get(series_get).post(series_post))
        .route("/api/v1/labels", get(labels))
        .route("/api/v1/label/{name}/values", get(label_values))
        .route("/api/v1/metadata", get(metadata))
        .route("/api/v1/targets", get(targets))
        .route("/api/v1/alertmanagers", get(alertmanagers))
        .route("/api/v1/status/buildinfo", get(buildinfo))
        .route("/api/v1/status/runtimeinfo", get(runtimeinfo))
}

type Parameters = Vec<(String, String)>;

fn success(data: Value) -> Response {
    axum::Json(json!({"status": "success", "data": data})).into_response()
}

fn bad_data(says: &str) -> Response {
    let body = json!({"status": "error", "errorType": "bad_data", "error": says});
    (StatusCode::BAD_REQUEST, axum::Json(body)).into_response()
}

fn value_of<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p str> {
    parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

async fn query_get(State(live): State<Arc<Live>>, OfUrl(url): OfUrl<Parameters>) -> Response {
    query_with(&live, &url)
}

async fn query_post(
    State(live): State<Arc<Live>>,
    OfUrl(url): OfUrl<Parameters>,
    Form(mut form): Form<Parameters>,
) -> Response {
    form.extend(url);
    query_with(&live, &form)
}

fn query_with(live: &Live, parameters: &Parameters) -> Response {
    let Some(text) = value_of(parameters, "query").filter(|text| !text.is_empty()) else {
        return bad_data(
            "invalid parameter \"query\": unknown position: parse error: no expression found in input",
        );
    };
    let world = live.present();
    let at = match value_of(parameters, "time").filter(|time| !time.is_empty()) {
        None => live.now(&world),
        Some(time) => match instant(time) {
            Some(at) => at,
            None => return bad_data(&format!("invalid parameter \"time\": cannot parse {time:?}")),
        },
    };
    match parse(text) {
        Err(says) => bad_data(&format!("invalid parameter \"query\": parse error: {says}")),
        Ok(Query::Time) => success(json!({
            "resultType": "scalar",
            "result": [seconds(at), format!("{}", at.seconds())],
        })),
        Ok(Query::Range(selector, range)) => {
            let from = at.plus_seconds(-range);
            let result: Vec<Value> = matching(world.series(), &selector)
                .filter_map(|one| {
                    let values: Vec<Value> = inside(&one.samples, from, at)
                        .map(|sample| json!([seconds(sample.at), sample.value.to_string()]))
                        .collect();
                    (!values.is_empty())
                        .then(|| json!({"metric": object(&one.labels), "values": values}))
                })
                .collect();
            success(json!({"resultType": "matrix", "result": result}))
        }
        Ok(Query::Vector(expression)) => {
            let latest = |selector: &Selector| -> Vector {
                let from = at.plus_seconds(-LOOKBACK_SECONDS);
                matching(world.series(), selector)
                    .filter_map(|one| {
                        let last = inside(&one.samples, from, at).last()?;
                        Some((one.labels.clone(), last.value))
                    })
                    .collect()
            };
            let result: Vec<Value> = expression
                .value(&latest)
                .iter()
                .map(|(labels, value)| {
                    json!({"metric": object(labels), "value": [seconds(at), value.to_string()]})
                })
                .collect();
            success(json!({"resultType": "vector", "result": result}))
        }
    }
}

/// Samples in the left-open range, in the order of time, one of each instant.
fn inside(
    samples: &[Sample],
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = Sample> + use<> {
    let mut kept: BTreeMap<Timestamp, Sample> = BTreeMap::new();
    // Newest first, with a margin for samples that came out of order.
    for sample in samples.iter().rev() {
        if sample.at > from && sample.at <= to {
            kept.entry(sample.at).or_insert(*sample);
        } else if sample.at < from.plus_seconds(-LOOKBACK_SECONDS) {
            break;
        }
    }
    kept.into_values()
}

/// The series of a selector, in the order of their labels.
fn matching<'s>(
    series: &'s [SimulatedSeries],
    selector: &Selector,
) -> impl Iterator<Item = &'s SimulatedSeries> + use<'s> {
    let mut found: Vec<&SimulatedSeries> =
        series.iter().filter(|one| selector.matches(&one.labels)).collect();
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    found.into_iter()
}

fn object(labels: &Labels) -> Value {
    let pairs = labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// Seconds as Prometheus writes them: whole, or with three digits.
fn seconds(at: Timestamp) -> Value {
    if at.millis() % 1000 == 0 {
        Value::from(at.millis() / 1000)
    } else {
        Value::from(at.seconds())
    }
}

/// An instant given in Unix seconds or in RFC 3339.
fn instant(text: &str) -> Option<Timestamp> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => Some(Timestamp::from_seconds(seconds)),
        Ok(_) => None,
        Err(_) => {
            let stamp: jiff::Timestamp = text.parse().ok()?;
            Some(Timestamp::from_millis(stamp.as_millisecond()))
        }
    }
}

async fn series_get(State(live): State<Arc<Live>>, OfUrl(url): OfUrl<Parameters>) -> Response {
    series_with(&live, &url)
}

async fn series_post(State(live): State<Arc<Live>>, Form(form): Form<Parameters>) -> Response {
    series_with(&live, &form)
}

fn series_with(live: &Live, parameters: &Parameters) -> Response {
    let mut selectors = Vec::new();
    for (_, text) in parameters.iter().filter(|(key, _)| key == "match[]") {
        match parse(text) {
            Ok(Query::Vector(Expression::Select(selector))) => selectors.push(selector),
            Ok(_) => return bad_data("invalid parameter \"match[]\": must be a plain selector"),
            Err(says) => return bad_data(&format!("invalid parameter \"match[]\": {says}")),
        }
    }
    if selectors.is_empty() {
        return bad_data("no match[] parameter provided");
    }
    let world = live.present();
    let matches = |labels: &Labels| selectors.iter().any(|selector| selector.matches(labels));
    let found: BTreeSet<&Labels> =
        world.series().iter().map(|one| &one.labels).filter(|labels| matches(labels)).collect();
    success(found.into_iter().map(object).collect())
}

async fn labels(State(live): State<Arc<Live>>) -> Response {
    let world = live.present();
    let names: BTreeSet<&str> =
        world.series().iter().flat_map(|one| one.labels.iter().map(|(name, _)| name)).collect();
    success(json!(names))
}

async fn label_values(
    State(live): State<Arc<Live>>,
    Path(name): Path<String>,
    OfUrl(parameters): OfUrl<Parameters>,
) -> Response {
    let mut selectors = Vec::new();
    for (_, text) in parameters.iter().filter(|(key, _)| key == "match[]") {
        if let Ok(Query::Vector(Expression::Select(selector))) = parse(text) {
            selectors.push(selector);
        }
    }
    let world = live.present();
    let matches = |labels: &Labels| {
        selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
    };
    let values: BTreeSet<&str> = world
        .series()
        .iter()
        .filter(|one| matches(&one.labels))
        .filter_map(|one| one.labels.get(&name))
        .collect();
    success(json!(values))
}

async fn metadata(State(live): State<Arc<Live>>) -> Response {
    let world = live.present();
    let names: BTreeSet<&str> =
        world.series().iter().filter_map(|one| one.labels.get("__name__")).collect();
    let entry = |name: &str| {
        let help = "Simulated requests of clients to a dependency.";
        (name.to_owned(), json!([{"type": "counter", "help": help, "unit": ""}]))
    };
    success(Value::Object(names.into_iter().map(entry).collect()))
}

async fn targets(State(live): State<Arc<Live>>) -> Response {
    let world = live.present();
    let last = rfc3339(live.now(&world));
    let interval = format!("{}s", live.scrape_seconds);
    let active: Vec<Value> = world
        .targets()
        .into_iter()
        .map(|(number, job, instance)| {
            let path = format!("/targets/{number}/metrics");
            let url = format!("http://{}{path}", live.address);
            json!({
                "discoveredLabels": {
                    "__address__": live.address,
                    "__metrics_path__": path,
                    "__scheme__": "http",
                    "__scrape_interval__": interval,
                    "__scrape_timeout__": interval,
                    "job": job,
                },
                "labels": {"instance": instance, "job": job},
                "scrapePool": job,
                "scrapeUrl": url,
                "globalUrl": url,
                "lastError": "",
                "lastScrape": last,
                "lastScrapeDuration": 0.001,
                "health": "up",
                "scrapeInterval": interval,
                "scrapeTimeout": interval,
            })
        })
        .collect();
    success(json!({"activeTargets": active, "droppedTargets": [], "droppedTargetCounts": {}}))
}

/// Nobody is told of anything here.
async fn alertmanagers() -> Response {
    success(json!({"activeAlertmanagers": [], "droppedAlertmanagers": []}))
}

fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.millis())
        .map(|stamp| stamp.to_string())
        .unwrap_or_default()
}

async fn buildinfo() -> Response {
    success(json!({
        // The behaviour that is imitated: ranges are left-open from 3.0 on.
        "version": "3.5.0",
        "revision": concat!("squall-simulate-", env!("CARGO_PKG_VERSION")),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    }))
}

async fn runtimeinfo(State(live): State<Arc<Live>>) -> Response {
    let world = live.present();
    success(json!({"serverTime": rfc3339(live.now(&world)), "storageRetention": "2h"}))
}
