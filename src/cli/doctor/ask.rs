//! The questions that `squall doctor` asks: few, small, and counted.
//!
//! A Prometheus worth watching is a busy one. No question here may return more than is of use: what
//! could be large is counted first, listed by `topk` and not whole (`limit` is ignored by Prometheus
//! before 2.53 and by `VictoriaMetrics`), and [`QUESTIONS_MAX`] ends it all.

use serde_json::Value;

use crate::series::selector::Selector;
use crate::series::{Labels, Timestamp};
use crate::source::prometheus::Prometheus;
use crate::source::{Answer, Collected, SampleSink, Source, SourceError, Window};

/// Most questions put to one server: some five for each preset that comes with squall.
pub(super) const QUESTIONS_MAX: u32 = 400;

/// Names listed at most; a server with more has them in an order of its own, and says so.
const NAMES_LIMIT: &str = "200000";

/// How far back a metric's name must have been seen.
const NAMES_SECONDS: f64 = 3600.0;

/// One server under examination.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    pub(super) server: &'a Prometheus,
    /// Questions put so far.
    pub(super) questions: u32,
    /// What was not answered, and what answers warned of.
    pub(super) warnings: Vec<String>,
}

/// A scrape interval in use.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scrapes {
    pub(super) interval: String,
    pub(super) targets: usize,
    pub(super) down: usize,
}

impl<'a> Asker<'a> {
    pub(super) const fn new(server: &'a Prometheus) -> Self {
        Self { server, questions: 0, warnings: Vec::new() }
    }

    /// Whether no further question may be put.
    pub(super) const fn is_spent(&self) -> bool {
        self.questions >= QUESTIONS_MAX
    }

    async fn data(
        &mut self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Value, SourceError> {
        self.questions += 1;
        let body = self.server.get(path, parameters).await?;
        let mut answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(answer["data"].take())
    }

    /// The names of the metrics seen lately.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub(super) async fn names(&mut self, now: Timestamp) -> Result<Vec<String>, SourceError> {
        let start = format!("{:.3}", now.plus_seconds(-NAMES_SECONDS).seconds());
        let end = format!("{:.3}", now.seconds());
        let parameters = [("start", start.as_str()), ("end", &end), ("limit", NAMES_LIMIT)];
        let data = self.data("/api/v1/label/__name__/values", &parameters).await?;
        Ok(texts(&data))
    }

    /// The value of a query that gives one number; nothing counts as 0.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub(super) async fn number(&mut self, query: &str) -> Result<f64, SourceError> {
        let series = self.vector(query).await?;
        Ok(series.first().map_or(0.0, |(_, value)| *value))
    }

    /// The series of an instant query, with their values.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub(super) async fn vector(&mut self, query: &str) -> Result<Vec<(Labels, f64)>, SourceError> {
        self.questions += 1;
        let mut series = Collected::default();
        let answer = self.server.instant(query, &mut series).await?;
        self.note(answer);
        let value = |(labels, samples): (Labels, Vec<crate::series::Sample>)| {
            samples.first().map(|sample| (labels, sample.value))
        };
        Ok(series.0.into_iter().filter_map(value).collect())
    }

    /// The raw samples of a selector.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub(super) async fn samples(
        &mut self,
        selector: &Selector,
        window: Window,
        sink: &mut dyn SampleSink,
    ) -> Result<Answer, SourceError> {
        self.questions += 1;
        let answer = self.server.samples(selector, window, sink).await?;
        self.note(answer.clone());
        Ok(answer)
    }

    fn note(&mut self, answer: Answer) {
        for warning in answer.warnings {
            let says = format!("an answer is not complete: {warning}");
            if !self.warnings.contains(&says) {
                self.warnings.push(says);
            }
        }
    }

    /// Whether the server says that a metric is a gauge. Most say nothing of a recording rule or of
    /// what was pushed, and that proves nothing.
    pub(super) async fn is_gauge(&mut self, name: &str) -> bool {
        let parameters = [("metric", name), ("limit", "1")];
        let data = self.data("/api/v1/metadata", &parameters).await.unwrap_or_default();
        let kinds = data[name].as_array().map(Vec::as_slice).unwrap_or_default();
        !kinds.is_empty() && kinds.iter().all(|kind| kind["type"] == "gauge")
    }

    /// The scrape intervals in use, the shortest first. Thanos and Mimir know none.
    pub(super) async fn scrapes(&mut self) -> Vec<Scrapes> {
        let data = self.data("/api/v1/targets", &[("state", "active")]).await.unwrap_or_default();
        let mut all: Vec<Scrapes> = Vec::new();
        for target in data["activeTargets"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let discovered = &target["discoveredLabels"]["__scrape_interval__"];
            let Some(interval) = target["scrapeInterval"].as_str().or(discovered.as_str()) else {
                continue;
            };
            let is_down = target["health"] == "down";
            match all.iter_mut().find(|known| known.interval == interval) {
                Some(known) => {
                    known.targets += 1;
                    known.down += usize::from(is_down);
                }
                None => all.push(Scrapes {
                    interval: interval.to_owned(),
                    targets: 1,
                    down: usize::from(is_down),
                }),
            }
        }
        all.sort_by_key(|known| crate::series::selector::parse_duration(&known.interval));
        all
    }

    /// The addresses of the Alertmanagers that this Prometheus tells.
    pub(super) async fn alertmanagers(&mut self) -> Vec<String> {
        let data = self.data("/api/v1/alertmanagers", &[]).await.unwrap_or_default();
        let active = data["activeAlertmanagers"].as_array().map(Vec::as_slice).unwrap_or_default();
        active
            .iter()
            .filter_map(|it| it["url"].as_str())
            .map(|url| url.split("/api/v").next().unwrap_or(url).to_owned())
            .collect()
    }
}

fn texts(data: &Value) -> Vec<String> {
    let list = data.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|it| it.as_str()).map(str::to_owned).collect()
}
