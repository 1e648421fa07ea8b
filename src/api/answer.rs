//! The envelope of every answer, and the errors, as Prometheus writes them.
//!
//! A client that reads Prometheus' API reads this one: `status`, then `data`, or `errorType` and
//! `error`, with the same status codes. The public message says what the caller can change; what
//! went wrong inside goes to the log with the request's id.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

/// What kind of error an answer is; the names are those of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorType {
    /// A parameter or the body is wrong.
    BadData,
    /// There is nothing of this name.
    NotFound,
    /// The server cannot do it now, and may a little later.
    Unavailable,
    /// It took too long.
    Timeout,
}

impl ErrorType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::BadData => "bad_data",
            Self::NotFound => "not_found",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::BadData => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Unavailable | Self::Timeout => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// Its kind.
    pub kind: ErrorType,
    /// What the caller is told.
    pub message: String,
}

impl ApiError {
    /// A parameter or body that is wrong.
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self { kind: ErrorType::BadData, message: message.into() }
    }

    /// Something that is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { kind: ErrorType::NotFound, message: message.into() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "status": "error",
            "errorType": self.kind.as_str(),
            "error": self.message,
        });
        (self.kind.status(), Json(body)).into_response()
    }
}

/// An answer that is a success.
#[derive(Debug, Serialize)]
struct Success<T> {
    status: &'static str,
    data: T,
}

/// Wraps `data` in the envelope of a success.
pub(crate) fn success<T: Serialize>(data: T) -> Response {
    Json(Success { status: "success", data }).into_response()
}

/// Wraps `data` with warnings that it is not all there could be, as Prometheus does.
pub(crate) fn success_with_warnings<T: Serialize>(data: T, warnings: &[String]) -> Response {
    if warnings.is_empty() {
        return success(data);
    }
    Json(json!({"status": "success", "data": data, "warnings": warnings})).into_response()
}

/// The answer where no path is.
pub(super) async fn no_such_path() -> ApiError {
    ApiError::not_found("there is nothing at this path; `/api/v1/openapi.json` lists what there is")
}

/// The answer to a method that a path does not take.
pub(super) async fn wrong_method() -> Response {
    let body = json!({
        "status": "error",
        "errorType": ErrorType::BadData.as_str(),
        "error": "this path does not take this method",
    });
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}
