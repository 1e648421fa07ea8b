//! The `prometheus` section: the servers to ask.

use std::path::Path;
use std::time::Duration;

use crate::rules::spanned::{Faults, Fields, Node};
use crate::series::selector::parse_duration;

use super::http::{self, HttpConfig};
use super::written;

/// A Prometheus, or Thanos, Mimir or VictoriaMetrics by the same API.
#[derive(Debug, Clone, PartialEq)]
pub struct PrometheusConfig {
    /// A name of your choice, unique; incidents carry it. Default: `prometheus`.
    pub name: String,
    /// The address, with the path prefix where there is one.
    pub url: String,
    /// How often it is asked, `1s` to `5m`. Default: the shortest scrape interval seen.
    pub poll_interval: Option<Duration>,
    /// How long one answer may take, `100ms` to `5m`. Default: `10s`.
    pub timeout: Duration,
    /// How it is spoken to.
    pub http: HttpConfig,
}

/// Name of a source that has none.
const NAME: &str = "prometheus";
/// How long one answer may take: a raw query of a few thousand series takes well under a second,
/// and a server that needs ten has other troubles.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds of the timeout.
const TIMEOUT_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(300)];
/// Bounds of the poll interval: faster than a second floods the server that squall is to protect,
/// slower than five minutes pages after the fact.
const POLL_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Reads one server.
pub(crate) fn read(
    node: &Node,
    path: &str,
    folder: &Path,
    faults: &Faults,
) -> Option<PrometheusConfig> {
    let mut fields = Fields::open(node, path, faults)?;
    let name = fields.text("name").unwrap_or_else(|| NAME.to_owned());
    let url = http::url(&mut fields, "url");
    if !fields.has("url") {
        fields.fault("url", "is missing");
    }
    let poll_interval = duration_in(&mut fields, "poll_interval", POLL_RANGE);
    let timeout = duration_in(&mut fields, "timeout", TIMEOUT_RANGE).unwrap_or(TIMEOUT);
    let http = http::take(&mut fields, folder, faults);
    fields.finish();
    Some(PrometheusConfig { name, url: url?, poll_interval, timeout, http })
}

/// Reads a duration as Prometheus writes it.
pub(crate) fn duration(fields: &mut Fields<'_>, key: &'static str) -> Option<Duration> {
    let text = fields.text(key)?;
    let read = parse_duration(&text);
    if read.is_none() {
        fields.fault(key, format!("must be a duration such as 15s or 1h30m, got `{text}`"));
    }
    read
}

/// Reads a duration within bounds.
pub(crate) fn duration_in(
    fields: &mut Fields<'_>,
    key: &'static str,
    [min, max]: [Duration; 2],
) -> Option<Duration> {
    let read = duration(fields, key)?;
    if (min..=max).contains(&read) {
        return Some(read);
    }
    let (min, max, read) = (written(min), written(max), written(read));
    fields.fault(key, format!("must be {min} to {max}, got {read}"));
    None
}
