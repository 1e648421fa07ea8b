//! The management paths, as Prometheus has them, and the plain index.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use tokio::sync::oneshot;

use crate::telemetry::metrics::CONTENT_TYPE;

use super::{Readiness, Shared, plain, routes};

/// `GET /`: a plain index.
pub(super) async fn index() -> Html<String> {
    let items: Vec<String> = routes()
        .iter()
        .filter(|(path, _)| !path.contains('{') && *path != "/" && *path != "/-/reload")
        .map(|(path, _)| format!("<li><a href=\"{path}\">{path}</a></li>\n"))
        .collect();
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>squall</title>\n\
         <h1>squall {}</h1>\n<ul>\n{}</ul>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        items.concat()
    ))
}

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
