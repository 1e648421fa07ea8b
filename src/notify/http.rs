//! Sending one HTTP request to a receiver, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;

use super::NotifyError;
use crate::http::{Client, HttpConfig, HttpError};

/// How long a receiver may take. A third of a lease, so that nobody takes over while it is asked.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The most of an answer that is read; more is no answer to a notification.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The most of an answer that is kept for a person.
const QUOTE_CHARS_MAX: usize = 200;

/// How requests are made.
#[derive(Debug, Clone)]
pub struct Http(Arc<Client>);

impl Http {
    /// A client with these settings.
    ///
    /// # Errors
    ///
    /// When a certificate, a key, a header or the proxy cannot be used.
    pub fn new(config: HttpConfig) -> Result<Self, HttpError> {
        Ok(Self(Arc::new(Client::without_redirects(config)?)))
    }

    /// A client with the certificates that the system trusts, and nothing else.
    ///
    /// # Errors
    ///
    /// When the system's certificates cannot be used.
    pub fn plain() -> Result<Self, HttpError> {
        Self::new(HttpConfig::default())
    }

    /// Posts a JSON body; returns the answer's text when its status is a success.
    pub(super) async fn post(
        &self,
        receiver: &str,
        url: &str,
        extra: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<String, NotifyError> {
        let mut request = self
            .0
            .requests()
            .post(url)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body);
        for (name, value) in extra {
            request = request.header(*name, value);
        }
        let request = self.0.sign(request).await.map_err(|error| NotifyError::Unreachable {
            receiver: receiver.to_owned(),
            cause: Box::new(error),
        })?;
        let failed = |error: reqwest::Error| failure(receiver, error);
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            self.0.forget_token().await;
        }
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(seconds_of);
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let room = ANSWER_BYTES_MAX.saturating_sub(answer.len());
            answer.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if room <= chunk.len() {
                break;
            }
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if status.is_success() {
            return Ok(answer);
        }
        Err(NotifyError::Status {
            receiver: receiver.to_owned(),
            status: status.as_u16(),
            body: quote(&answer),
            retry_after,
        })
    }
}

fn failure(receiver: &str, error: reqwest::Error) -> NotifyError {
    let receiver = receiver.to_owned();
    if error.is_timeout() {
        return NotifyError::Timeout { receiver };
    }
    // The address may hold a secret, as those of Slack do.
    NotifyError::Unreachable { receiver, cause: Box::new(error.without_url()) }
}

/// The start of an answer, on one line.
pub(super) fn quote(answer: &str) -> String {
    let line: String = answer.trim().chars().take(QUOTE_CHARS_MAX).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `Retry-After` in seconds. The other form, a date, is read against no clock here: receivers of
/// alerts send seconds, and a wrong clock would turn a date into any wait.
fn seconds_of(text: &str) -> Option<Duration> {
    text.trim().parse::<u64>().ok().map(Duration::from_secs)
}
