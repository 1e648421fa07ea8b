//! What the head and the body of an HTTP answer mean, by the habits of several servers.

use std::time::Duration;

use crate::series::Timestamp;
use crate::source::decode::{self, Decoded};
use crate::source::{Answer, SourceError};

/// Characters of a server's message that are kept: enough for its sentence, not for its stack.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// Longest wait that a server is granted; one that wants more is asked again by the next poll.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What servers say when a query reads too much. The phrases are those of Prometheus, Mimir,
/// `VictoriaMetrics` and gRPC between the parts of Thanos.
const TOO_MUCH: &[&str] = &[
    "too many samples",
    "exceeded sample limit",
    "cannot select more than",
    "the number of matching timeseries exceeds",
    "-search.max",
    "err-mimir-max-",
    "received message larger than max",
    "the query exceeded the maximum",
    "exceeds limit",
];

/// What matters in the head of an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    pub(super) content_type: String,
    pub(super) is_json: bool,
    pub(super) retry_after: Option<Duration>,
}

impl Head {
    pub(super) fn of(response: &reqwest::Response) -> Self {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let content_type = text("content-type").unwrap_or("").to_owned();
        let is_json = content_type.starts_with("application/")
            && content_type.split(';').next().is_some_and(|kind| kind.contains("json"));
        let retry_after =
            text("retry-after").and_then(|asked| retry_after(asked, text("date").unwrap_or("")));
        Self { content_type, is_json, retry_after }
    }
}

/// Seconds, or an instant, which is compared with the server's own clock.
fn retry_after(asked: &str, date: &str) -> Option<Duration> {
    let wait = if let Ok(seconds) = asked.trim().parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let instant = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|at| at.timestamp());
        let seconds = instant(asked)?.as_second() - instant(date)?.as_second();
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The error that an unsuccessful answer is.
pub(super) fn refusal(name: &str, status: u16, head: &Head, body: &[u8]) -> SourceError {
    let source_name = name.to_owned();
    let told = decode::decode_error(body).map(|(error_type, text)| format!("{error_type}: {text}"));
    // Asked of the whole text: what it says of limits often stands at its end.
    let lower = told
        .as_deref()
        .map_or_else(|| String::from_utf8_lossy(body).to_lowercase(), str::to_lowercase);
    let message = match told {
        Some(told) => shorten(&told),
        // A proxy's page is of no use to anyone.
        None if head.content_type.starts_with("text/html") => "an HTML page".to_owned(),
        None => shorten(String::from_utf8_lossy(body).trim()),
    };
    if status == 413 || (status != 429 && TOO_MUCH.iter().any(|phrase| lower.contains(phrase))) {
        return SourceError::TooExpensive { source_name, message };
    }
    // Prometheus 2.46 and later answer 400 to a query that timed out while it waited its turn.
    let is_queue_timeout = status == 400 && lower.contains("context deadline exceeded");
    let is_transient = matches!(status, 408 | 425 | 429 | 499)
        || (status >= 500 && status != 501)
        || is_queue_timeout;
    SourceError::BadStatus {
        source_name,
        status,
        message,
        is_transient,
        retry_after: head.retry_after,
    }
}

fn shorten(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = printable.clone().take(MESSAGE_CHARACTERS_MAX).collect();
    if printable.count() > MESSAGE_CHARACTERS_MAX {
        short.push('…');
    }
    short
}

/// The answer without the notes on the query itself, which some versions send as warnings.
pub(super) fn of(decoded: Decoded) -> Answer {
    let mut warnings = decoded.warnings;
    warnings.retain(|warning| !warning.starts_with("PromQL info"));
    for warning in &mut warnings {
        *warning = shorten(warning);
    }
    Answer { series: decoded.series, samples: decoded.samples, warnings }
}

/// Unix seconds with milliseconds, as the API takes them.
pub(super) fn seconds(at: Timestamp) -> String {
    let millis = at.millis();
    format!("{}.{:03}", millis.div_euclid(1000), millis.rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Reason;

    fn check(status: u16, body: &str, reason: Reason, is_transient: bool) {
        let error = refusal("main", status, &Head::default(), body.as_bytes());
        assert_eq!((error.reason(), error.is_transient()), (reason, is_transient), "{error}");
    }

    #[test]
    fn refusals_are_told_apart() {
        let body = |name: &str| {
            std::fs::read_to_string(format!(
                "{}/tests/golden/source/{name}",
                env!("CARGO_MANIFEST_DIR")
            ))
            .unwrap()
        };
        check(422, &body("prom35-error-too-many-samples.json"), Reason::TooExpensive, false);
        check(422, &body("vm145-error-too-many-samples.json"), Reason::TooExpensive, false);
        check(422, &body("vm179-error-too-many-series.json"), Reason::TooExpensive, false);
        check(400, &body("prom35-error-timeout-in-queue.json"), Reason::BadStatus, true);
        check(503, &body("prom242-error-timeout-in-queue.json"), Reason::BadStatus, true);
        check(503, &body("prom35-error-not-ready.txt"), Reason::BadStatus, true);
        check(400, &body("prom35-error-bad-syntax.json"), Reason::BadStatus, false);
        check(401, &body("prom35-error-unauthorized.txt"), Reason::BadStatus, false);
        check(429, "slow down", Reason::BadStatus, true);
        check(413, "", Reason::TooExpensive, false);
        check(302, "", Reason::BadStatus, false);
    }

    #[test]
    fn messages_are_short_and_pages_are_not_quoted() {
        let long = refusal("main", 500, &Head::default(), "é".repeat(1000).as_bytes()).to_string();
        assert!(long.chars().count() < 400, "{long}");
        let head = Head { content_type: "text/html; charset=utf-8".to_owned(), ..Head::default() };
        let page = refusal("main", 502, &head, b"<html>secret</html>").to_string();
        assert_eq!(page, "source `main` answered 502: an HTML page");
    }

    #[test]
    fn the_time_to_ask_again_is_read_in_both_forms() {
        assert_eq!(retry_after("7", ""), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("99999999999", ""), Some(RETRY_AFTER_MAX));
        let date = "Sun, 29 Nov 2026 10:00:00 GMT";
        let later = "Sun, 29 Nov 2026 10:00:30 GMT";
        assert_eq!(retry_after(later, date), Some(Duration::from_secs(30)));
        assert_eq!(retry_after(date, later), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", date), None);
    }

    #[test]
    fn times_are_written_with_milliseconds() {
        assert_eq!(seconds(Timestamp::from_millis(1_767_225_600_007)), "1767225600.007");
        assert_eq!(seconds(Timestamp::from_millis(-1)), "-1.999");
    }
}
