//! The management paths, as Prometheus has them.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;

use crate::telemetry::metrics::CONTENT_TYPE;

use super::{Readiness, Shared, plain};

/// `GET /-/healthy`: 200 as long as anything is answered at all.
pub(super) async fn healthy() -> Response {
    plain(StatusCode::OK, "squall is healthy.\n")
}

/// `GET /-/ready`: whether the daemon can do its work.
pub(super) async fn ready(State(shared): State<Shared>) -> Response {
    match &*shared.ready.borrow() {
        // Detection goes on without the record, so this is no reason to take squall out of service.
        Readiness::Ready => match &shared.board.borrow().storage_fault {
            None => plain(StatusCode::OK, "squall is ready.\n"),
            Some(why) => {
                plain(StatusCode::OK, format!("squall is ready; storage takes no writes: {why}.\n"))
            }
        },
        Readiness::NotReady(why) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, format!("squall is not ready: {why}.\n"))
        }
    }
}

/// `POST /-/reload`: reads the configuration again; a bad one keeps the old.
pub(super) async fn reload(State(shared): State<Shared>) -> Response {
    let (sender, outcome) = oneshot::channel();
    if shared.reload.send(sender).await.is_err() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "squall is stopping\n");
    }
    match outcome.await {
        Ok(Ok(())) => plain(StatusCode::OK, ""),
        Ok(Err(why)) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to reload config: {why}\n"))
        }
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "squall is stopping\n"),
    }
}

/// `GET /metrics`: squall's own metrics.
pub(super) async fn metrics(State(shared): State<Shared>) -> Response {
    // Prometheus 3 fails a scrape with any other type.
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], (shared.metrics)()).into_response()
}
