//! The HTTP side: `router(state)` gives it all, and nothing else knows axum.
//!
//! A client of Prometheus' API finds its way here: the same envelope, the same error types and
//! status codes, the same management paths. Every parameter has a limit, every answer a time, and
//! what is live comes from the [`Board`] that the daemon publishes after each pass, so that a slow
//! store never delays the answer to "what is firing?".

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};

use crate::clock::Clock;
use crate::incident::{Dependency, Incident, IncidentId};
use crate::store::Store;
use crate::wire::around::SeriesJson;

mod admin;
mod answer;
mod auth;
mod dependencies;
mod events;
mod history;
mod incidents;
mod openapi;
mod page;
mod parameters;
mod pictures;
mod serve;
#[cfg(test)]
mod tests;
mod tls;

pub use serve::{BindError, bind, serve};
pub use tls::{TlsError, server_config};

/// Longest time an answer may take, but for the stream of events: a page is read from SQLite in
/// milliseconds, and a browser gives up later than this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest body taken: a feedback with the longest note fits many times.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Changes kept for a reader of events that is slow; further behind it is told that it missed some.
pub const EVENTS_KEPT: usize = 256;

/// What is live: published by the daemon after every pass.
#[derive(Debug, Clone, Default)]
pub struct Board {
    /// Open and recent incidents.
    pub incidents: Vec<Incident>,
    /// What is kept around those that are open, so that they can be drawn before they are written.
    pub around: BTreeMap<IncidentId, Arc<SeriesJson>>,
    /// Everything watched.
    pub dependencies: Vec<Dependency>,
    /// How each source answered last.
    pub sources: Vec<SourceHealth>,
    /// Why nothing can be written, while the store fails.
    pub storage_fault: Option<String>,
}

/// How a source answered last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceHealth {
    /// Its configured name.
    pub name: String,
    /// Why it does not answer; none while it does.
    pub fault: Option<String>,
}

/// Whether the daemon can do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// Not yet, or not any more.
    NotReady(&'static str),
}

/// One change of an incident, for the stream of events.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// `opened`, `fired`, `revised`, `resolved` or `reopened`.
    pub reason: &'static str,
    /// The incident as it is now.
    pub incident: Incident,
}

/// The schedules and presets known, as they are listed.
#[derive(Debug, Clone, Default)]
pub struct KnownRules {
    /// The retry schedules.
    pub schedules: Vec<serde_json::Value>,
    /// The telemetry conventions.
    pub presets: Vec<serde_json::Value>,
}

/// A request to read the configuration again, and where its outcome goes.
pub type ReloadRequest = oneshot::Sender<Result<(), String>>;

/// Everything the answers are made from.
pub struct Parts {
    /// The record.
    pub store: Arc<dyn Store>,
    /// What is live.
    pub board: watch::Receiver<Arc<Board>>,
    /// Changes as they happen.
    pub changes: broadcast::Sender<Arc<ChangeEvent>>,
    /// Whether the daemon can do its work.
    pub ready: watch::Receiver<Readiness>,
    /// Asks for a reload.
    pub reload: mpsc::Sender<ReloadRequest>,
    /// The rules known.
    pub rules: watch::Receiver<Arc<KnownRules>>,
    /// TLS and basic authentication.
    pub web: watch::Receiver<Arc<WebConfig>>,
    /// Writes squall's own metrics.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ends the streams of events.
    pub stop: CancellationToken,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("ready", &*self.ready.borrow()).finish_non_exhaustive()
    }
}

/// The parts, shared by all requests.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    parts: Arc<Parts>,
    passwords: Arc<auth::Passwords>,
}

impl std::ops::Deref for Shared {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// TLS, basic authentication and headers, in the form of exporter-toolkit's web configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct WebConfig {
    /// TLS; none serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Headers added to every answer.
    pub headers: BTreeMap<String, String>,
    /// Users and the bcrypt hashes of their passwords; none lets everybody in.
    pub users: BTreeMap<String, String>,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self { tls: None, http2: true, headers: BTreeMap::new(), users: BTreeMap::new() }
    }
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebConfig")
            .field("tls", &self.tls)
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

/// Where the certificates are and who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that signed it, PEM.
    pub cert_file: PathBuf,
    /// Its key, PEM.
    pub key_file: PathBuf,
    /// Certificates that sign those of clients, PEM.
    pub client_ca_file: Option<PathBuf>,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
    /// The oldest version spoken.
    pub version_min: TlsVersion,
    /// The newest version spoken.
    pub version_max: TlsVersion,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// None is asked for.
    None,
    /// One that is shown must be good.
    VerifyIfGiven,
    /// A good one must be shown.
    RequireAndVerify,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.2
    V1_2,
    /// 1.3
    V1_3,
}

/// Every path and what answers there; `openapi` describes exactly these.
fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/", get(page::index)),
        ("/-/healthy", get(admin::healthy)),
        ("/-/ready", get(admin::ready)),
        ("/-/reload", post(admin::reload).put(admin::reload)),
        ("/metrics", get(admin::metrics)),
        ("/api/v1/incidents", get(incidents::list)),
        ("/api/v1/incidents/{id}", get(incidents::one)),
        ("/api/v1/incidents/{id}/feedback", post(incidents::feedback)),
        ("/api/v1/incidents/{id}/plot.svg", get(pictures::plot)),
        ("/api/v1/alerts", get(incidents::alerts)),
        ("/api/v1/offenders", get(history::offenders)),
        ("/api/v1/precision", get(history::precision)),
        ("/api/v1/dependencies", get(dependencies::list)),
        ("/api/v1/dependencies/{id}", get(dependencies::one)),
        ("/api/v1/schedules", get(dependencies::schedules)),
        ("/api/v1/presets", get(dependencies::presets)),
        ("/api/v1/openapi.json", get(openapi::document)),
    ]
}

/// The path of the stream of events, apart from the others because it never ends by a time-out.
const EVENTS_PATH: &str = "/api/v1/events";

/// Everything over HTTP, as a value: a test calls it without a socket.
pub fn router(parts: Parts) -> Router {
    let shared = Shared { parts: Arc::new(parts), passwords: Arc::default() };
    let mut timed = Router::new();
    for (path, answers) in routes().into_iter().chain(page::routes()) {
        timed = timed.route(path, answers);
    }
    let timed = timed.layer(middleware::from_fn(in_time));
    Router::new()
        .route(EVENTS_PATH, get(events::stream))
        .merge(timed)
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::wrong_method)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(CompressionLayer::new().gzip(true))
        .layer(middleware::from_fn_with_state(shared.clone(), auth::check))
        .layer(middleware::from_fn_with_state(shared.clone(), add_headers))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .with_state(shared)
}

/// Ends an answer that takes too long.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => answer::ApiError {
            kind: answer::ErrorType::Timeout,
            message: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        }
        .into_response(),
    }
}

/// Adds the headers of the web configuration, and those that every answer should have.
async fn add_headers(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let web = shared.web.borrow().clone();
    for (name, value) in &web.headers {
        if let (Ok(name), Ok(value)) =
            (header::HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            headers.insert(name, value);
        }
    }
    response
}

/// A plain text answer.
fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.into()).into_response()
}
