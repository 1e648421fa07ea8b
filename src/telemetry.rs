//! Tracing set-up, squall's own metrics, and the one printer of an error with its causes.

mod live;
pub mod metrics;

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

pub use metrics::Metrics;

/// An error and its causes on one line: `cannot do this: because of that`.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One line for people, `time level message key=value …`.
    #[default]
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// A level or a filter that tracing does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no log level; use error, warn, info, debug or trace")]
pub struct InvalidLevel(pub String);

/// Logs to standard error from now on; only what is called first in a process has an effect.
///
/// `level` is a level, or a filter such as `info,squall::source=debug`. Libraries log from `warn`
/// up unless the filter names them.
///
/// # Errors
///
/// When the level is not one.
pub fn init(level: &str, format: LogFormat) -> Result<(), InvalidLevel> {
    let is_level = tracing::Level::from_str(level).is_ok();
    let filter = if is_level { format!("warn,squall={level}") } else { level.to_owned() };
    let filter = EnvFilter::try_new(filter).map_err(|_cause| InvalidLevel(level.to_owned()))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Else a line that cannot be written (the disk of the log is full) is told on the same
        // stream, and the standard library panics.
        .log_internal_errors(false)
        .with_timer(Utc);
    let outcome = match format {
        LogFormat::Logfmt => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Set already: by a test, or by a program that this library is part of.
    outcome.ok();
    Ok(())
}

/// RFC 3339 with milliseconds, in UTC.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{:.3}", jiff::Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[test]
    fn causes_follow_the_error() {
        assert_eq!(Chain(&Outer(Inner)).to_string(), "outer: inner");
    }

    #[test]
    fn levels_and_filters_are_taken_and_other_words_refused() {
        assert!(init("info", LogFormat::Logfmt).is_ok());
        assert!(init("info,squall::source=debug", LogFormat::Json).is_ok());
        assert_eq!(init("a=b=c", LogFormat::Json), Err(InvalidLevel("a=b=c".to_owned())));
    }
}
