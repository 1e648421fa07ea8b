//! Prometheus over HTTP, and whatever speaks its query API: Thanos, Mimir, `VictoriaMetrics`.
//!
//! A range query would be the obvious way to ask for a stretch of time. It puts values on a grid of
//! steps and repeats the last one where there was no scrape, so that the true scrape times, which
//! cut time finer than any grid, are gone. An **instant query on a range selector** (`x{…}[45s]`)
//! returns the samples as they were scraped, on every one of these servers.
//!
//! # Method
//!
//! * Form POST, so that no proxy's limit on addresses matters; `nocache=1`, which
//!   `VictoriaMetrics` needs to be fresh and others ignore; gzip, but not from this machine, where
//!   packing takes a server longer than everything else.
//! * The window's left end is open in Prometheus 3 and closed before: samples at it may come twice
//!   and are dropped by (series, millisecond) later on.
//! * "Too many samples" or "series": the window is halved, or the series are split by the last
//!   characters of the instance's host, down to [`QUESTIONS_MAX`] questions.
//! * 429, 5xx, broken connections and Prometheus' 400 for a query that timed out in the queue are
//!   tried again within the budget, after waits of full jitter or as `Retry-After` says.
//! * Limits: time for each answer, bytes unpacked for each answer.
//!
//! # Assumptions and what happens when they fail
//!
//! * `warnings` mean that samples may be missing. Notes on the query itself ("PromQL info: …") do
//!   not, and are left out.

mod answer;
mod split;

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::ACCEPT_ENCODING;
use tokio::time::Instant;

use super::{Answer, Answering, SampleSink, Source, SourceError, Window, decode, retry_wait};
use crate::clock::random_fraction;
use crate::http::{Client, HttpConfig, HttpError};
use crate::series::Timestamp;
use crate::series::selector::Selector;
use crate::telemetry::Metrics;

/// Most bytes taken of one answer, unpacked: some 400,000 samples of 100,000 series, four times
/// what a poll of that many needs.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Longest window asked for at once. At 15 s a series has 240 samples in it, so that a thousand
/// series are six megabytes.
pub const WINDOW_MAX: Duration = Duration::from_secs(3600);

/// Most questions that one is split into. A server that refuses that small parts will not answer.
pub const QUESTIONS_MAX: usize = 64;

/// Largest body of an error that is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// How a server is asked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The configured name.
    pub name: String,
    /// The address, with the path prefix where there is one.
    pub url: String,
    /// Limit on one answer.
    pub timeout: Duration,
    /// Limit on one question with all its retries and parts: a poll interval.
    pub budget: Duration,
    /// Limit on one answer, unpacked.
    pub answer_bytes_max: usize,
    /// How it is spoken to.
    pub http: HttpConfig,
}

impl Config {
    /// The configuration of a server with nothing but an address.
    #[must_use]
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            timeout: Duration::from_secs(10),
            budget: Duration::from_secs(15),
            answer_bytes_max: ANSWER_BYTES_MAX,
            http: HttpConfig::default(),
        }
    }
}

/// How a path is asked: queries by POST, which no limit on addresses cuts; listings by GET, since
/// some have nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

/// Whether an address is this machine's own.
fn is_here(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A server that is asked for samples.
#[derive(Debug)]
pub struct Prometheus {
    config: Config,
    base: String,
    /// Whether answers are worth packing.
    packs: bool,
    client: Client,
    metrics: Metrics,
}

impl Prometheus {
    /// A source; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// When the HTTP settings cannot be used.
    pub fn new(config: Config, metrics: Metrics) -> Result<Self, HttpError> {
        let client = Client::new(config.http.clone())?;
        let base = config.url.trim_end_matches('/').to_owned();
        let packs = !is_here(&base);
        Ok(Self { config, base, packs, client, metrics })
    }

    /// The server's version, where it says one; not to be relied upon for what it can do.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn version(&self) -> Result<Option<String>, SourceError> {
        let body = self.retrying(Method::Get, "/api/v1/status/buildinfo", &[]).await?;
        decode::decode_version(&body).map_err(|cause| self.undecodable(cause))
    }

    /// Runs any instant query, at the server's own time, into the sink: for `doctor`.
    ///
    /// # Errors
    ///
    /// When it is not answered.
    pub async fn instant(
        &self,
        query: &str,
        sink: &mut dyn SampleSink,
    ) -> Result<Answer, SourceError> {
        self.decoded(&[("query", query), ("nocache", "1")], sink).await.map(answer::of)
    }

    /// The body of an answer at a path of the API, such as `/api/v1/targets`, asked by GET with
    /// these parameters.
    ///
    /// # Errors
    ///
    /// When it is not answered.
    pub async fn get(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<u8>, SourceError> {
        self.retrying(Method::Get, path, parameters).await
    }

    async fn fetch(
        &self,
        selector: &Selector,
        window: Window,
        sink: &mut dyn SampleSink,
    ) -> Result<Answer, SourceError> {
        let mut whole = Answer::default();
        for part in split::windows(window, WINDOW_MAX) {
            let mut open =
                vec![split::Question { selector: selector.clone(), window: part, cuts: 0 }];
            let mut asked = 0;
            while let Some(question) = open.pop() {
                asked += 1;
                match self.ask(&question, sink).await {
                    Ok(answer) => whole.merge(answer),
                    Err(error) if error.is_too_much() && asked + open.len() < QUESTIONS_MAX => {
                        match question.split(&error) {
                            Some((first, second)) => open.extend([second, first]),
                            None => return Err(error),
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(whole)
    }

    async fn ask(
        &self,
        question: &split::Question,
        sink: &mut dyn SampleSink,
    ) -> Result<Answer, SourceError> {
        let query =
            format!("{}[{}ms]", question.selector, question.window.length().as_millis().max(1));
        let time = answer::seconds(question.window.until);
        let timeout = format!("{}ms", self.config.timeout.as_millis());
        let form = [
            ("query", query.as_str()),
            ("time", time.as_str()),
            ("timeout", timeout.as_str()),
            ("nocache", "1"),
        ];
        self.decoded(&form, sink).await.map(answer::of)
    }

    /// Runs a query into the sink; one whose answer makes no sense is asked again once, since it
    /// may have been cut off on its way.
    async fn decoded(
        &self,
        form: &[(&str, &str)],
        sink: &mut dyn SampleSink,
    ) -> Result<decode::Decoded, SourceError> {
        match self.decoded_once(form, sink).await {
            Err(SourceError::Decode { .. }) => {
                tokio::time::sleep(retry_wait(0, random_fraction(), None)).await;
                self.decoded_once(form, sink).await
            }
            outcome => outcome,
        }
    }

    async fn decoded_once(
        &self,
        form: &[(&str, &str)],
        sink: &mut dyn SampleSink,
    ) -> Result<decode::Decoded, SourceError> {
        let body = self.retrying(Method::Post, "/api/v1/query", form).await?;
        decode::decode(&body, sink).map_err(|cause| {
            let error = self.undecodable(cause);
            self.metrics.source_query_error(&self.config.name, error.reason().as_str());
            error
        })
    }

    /// Asks until there is an answer, a lasting refusal, or no budget left.
    async fn retrying(
        &self,
        method: Method,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<u8>, SourceError> {
        let start = Instant::now();
        let mut retry = 0;
        loop {
            let asked = Instant::now();
            let outcome = self.once(method, path, parameters).await;
            self.metrics.source_query(&self.config.name, asked.elapsed());
            let error = match outcome {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            self.metrics.source_query_error(&self.config.name, error.reason().as_str());
            let wait = retry_wait(retry, random_fraction(), error.retry_after());
            if !error.is_transient() || start.elapsed() + wait >= self.config.budget {
                return Err(error);
            }
            tracing::debug!(
                source = %self.config.name,
                reason = error.reason().as_str(),
                wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "asking again"
            );
            tokio::time::sleep(wait).await;
            retry += 1;
        }
    }

    /// One request; its body if it is a success and JSON.
    async fn once(
        &self,
        method: Method,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<u8>, SourceError> {
        let url = format!("{}{path}", self.base);
        let requests = self.client.requests();
        let request = match method {
            Method::Get => requests.get(url).query(parameters),
            Method::Post => requests.post(url).form(parameters),
        };
        let request = match self.packs {
            true => request,
            false => request.header(ACCEPT_ENCODING, "identity"),
        };
        let unreachable = |cause: Box<dyn std::error::Error + Send + Sync>| {
            SourceError::Unreachable { source_name: self.config.name.clone(), cause }
        };
        let request = self.client.sign(request.timeout(self.config.timeout)).await;
        let request = request.map_err(|cause| unreachable(Box::new(cause)))?;
        let failed = |cause: reqwest::Error| {
            if cause.is_timeout() && !cause.is_connect() {
                SourceError::Timeout {
                    source_name: self.config.name.clone(),
                    limit: self.config.timeout,
                }
            } else {
                unreachable(Box::new(cause.without_url()))
            }
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let limit =
            if status.is_success() { self.config.answer_bytes_max } else { ERROR_BYTES_MAX };
        let head = answer::Head::of(&response);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                if status.is_success() {
                    let source_name = self.config.name.clone();
                    return Err(SourceError::TooLarge { source_name, limit_bytes: limit });
                }
                break;
            }
            body.extend_from_slice(&chunk);
        }
        if status == reqwest::StatusCode::UNAUTHORIZED {
            self.client.forget_token().await;
        }
        if !status.is_success() {
            return Err(answer::refusal(&self.config.name, status.as_u16(), &head, &body));
        }
        if !head.is_json && body.first() != Some(&b'{') {
            let cause = decode::DecodeError::ContentType { content_type: head.content_type };
            return Err(self.undecodable(cause));
        }
        Ok(body)
    }

    fn undecodable(&self, cause: decode::DecodeError) -> SourceError {
        SourceError::Decode { source_name: self.config.name.clone(), cause }
    }
}

impl Source for Prometheus {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn samples<'a>(
        &'a self,
        selector: &'a Selector,
        window: Window,
        sink: &'a mut dyn SampleSink,
    ) -> Answering<'a, Answer> {
        Box::pin(self.fetch(selector, window, sink))
    }

    fn now(&self) -> Answering<'_, Timestamp> {
        Box::pin(async {
            // A scalar on Prometheus, a vector of one on VictoriaMetrics.
            let mut vector = super::Collected::default();
            let decoded =
                self.decoded(&[("query", "time()"), ("nocache", "1")], &mut vector).await?;
            let sample = decoded.scalar.or_else(|| vector.0.first()?.1.first().copied());
            sample
                .map(|sample| Timestamp::from_seconds(sample.value))
                .ok_or_else(|| self.undecodable(decode::DecodeError::Missing { expected: "time" }))
        })
    }
}

#[cfg(test)]
mod tests;
