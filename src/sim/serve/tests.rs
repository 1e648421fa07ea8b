//! The live world answers as a Prometheus does, and complete up to the present.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::Value;
use tower::util::ServiceExt;

use super::super::shop::shop;
use super::{Live, router};
use crate::clock::TokioClock;
use crate::series::Timestamp;

/// A shop with five minutes of history, on the virtual clock.
fn live() -> Arc<Live> {
    let clock = Arc::new(TokioClock::starting_at(Timestamp::from_millis(1_790_000_000_000)));
    Live::start(&shop(300.0), 1, 1.0, 300.0, clock, "127.0.0.1:9100")
}

async fn ask(live: &Arc<Live>, request: Request<Body>) -> (StatusCode, Vec<u8>) {
    let answer = router(Arc::clone(live)).oneshot(request).await.expect("an answer");
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 24).await.expect("a body");
    (status, body.to_vec())
}

async fn get(live: &Arc<Live>, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let (status, body) = ask(live, request).await;
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test(start_paused = true)]
async fn raw_samples_of_the_last_seconds_come_as_from_a_prometheus() {
    let live = live();
    tokio::time::advance(Duration::from_secs(40)).await;
    let form = "query=http_client_requests_total%7Bdependency%3D%22payments%22%2Ccode%3D~%225..%22%7D%5B10s%5D";
    let request = Request::post("/api/v1/query")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .expect("a request");
    let (status, body) = ask(&live, request).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(answer["data"]["resultType"], "matrix");
    let series = answer["data"]["result"].as_array().expect("a list");
    assert_eq!(series.len(), 2 * 4, "one failing series for each target of two callers");
    for one in series {
        assert_eq!(one["metric"]["code"], "503");
        let values = one["values"].as_array().expect("samples");
        assert!((9..=11).contains(&values.len()), "{values:?}");
        for sample in values {
            let at = sample[0].as_f64().expect("seconds");
            assert!((1_790_000_029.9..=1_790_000_040.0).contains(&at), "{at}");
            assert!(sample[1].is_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn targets_can_be_scraped_and_their_counters_grow() {
    let live = live();
    let (_, groups) = get(&live, "/targets").await;
    assert_eq!(groups.as_array().map(Vec::len), Some(6 * 4));
    let path = groups[2]["labels"]["__metrics_path__"].as_str().expect("a path").to_owned();
    let mut totals = Vec::new();
    for _ in 0..2 {
        let request = Request::get(&path).body(Body::empty()).expect("a request");
        let (status, body) = ask(&live, request).await;
        assert_eq!(status, StatusCode::OK);
        let text = String::from_utf8(body).expect("text");
        assert!(text.ends_with("# EOF\n"));
        let total: f64 = text
            .lines()
            .filter(|line| line.starts_with("http_client_requests_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        totals.push(total);
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    // 40 calls a second of the checkout over its four targets, for ten seconds.
    assert!((totals[1] - totals[0]) > 60.0, "{totals:?}");
    let (status, _) = get(&live, "/targets/99/metrics").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn the_listings_and_the_refusals_have_the_shapes_of_prometheus() {
    let live = live();
    let (_, time) = get(&live, "/api/v1/query?query=time()").await;
    assert_eq!(time["data"]["resultType"], "scalar");
    let (_, values) = get(&live, "/api/v1/label/dependency/values").await;
    assert_eq!(values["data"].as_array().map(Vec::len), Some(6));
    let (_, series) = get(&live, "/api/v1/series?match[]=http_client_requests_total").await;
    assert_eq!(series["data"].as_array().map(Vec::len), Some((6 + 1) * 2 * 4));
    let (_, targets) = get(&live, "/api/v1/targets?state=active").await;
    assert_eq!(targets["data"]["activeTargets"][0]["scrapeInterval"], "1s");
    let (_, metadata) = get(&live, "/api/v1/metadata").await;
    assert_eq!(metadata["data"]["http_client_requests_total"][0]["type"], "counter");
    let (_, build) = get(&live, "/api/v1/status/buildinfo").await;
    assert_eq!(build["data"]["version"], "3.5.0");
    let (status, refused) = get(&live, "/api/v1/query?query=rate(x[1m])").await;
    assert_eq!(
        (status, refused["errorType"].as_str()),
        (StatusCode::BAD_REQUEST, Some("bad_data"))
    );
    let (status, _) = get(&live, "/-/ready").await;
    assert_eq!(status, StatusCode::OK);
}
