//! Where samples come from: Prometheus over HTTP, OpenMetrics text, the simulator.
//!
//! A source pushes samples into a [`SampleSink`] while it decodes them, so that an answer of a
//! hundred thousand series never exists as a tree of objects. What it returns is only how complete
//! the answer was; an incomplete one opens and closes nothing, and the next poll asks again for
//! everything since the last complete one ([`Cursor`]).
//!
//! Own manners: polls start at a random offset ([`crate::clock::ticker`]), retries wait a time
//! drawn from the whole range (full jitter) and stop when the poll's budget is spent, and what the
//! server asks for in `Retry-After` is honoured. A detector of thundering herds is not one.

pub mod decode;
pub mod openmetrics;
pub mod prometheus;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::series::selector::Selector;
use crate::series::table::LabelBuffer;
use crate::series::{Labels, Sample, Timestamp};

/// Takes decoded samples, series by series.
pub trait SampleSink: Send {
    /// A series begins. False says that its samples are not wanted. May sort the labels.
    fn series(&mut self, labels: &mut LabelBuffer) -> bool;

    /// One sample of the series begun last.
    fn sample(&mut self, sample: Sample);
}

/// A sink that keeps everything: for tests, `doctor`, and small answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Collected(pub Vec<(Labels, Vec<Sample>)>);

impl SampleSink for Collected {
    fn series(&mut self, labels: &mut LabelBuffer) -> bool {
        self.0.push((labels.to_labels(), Vec::new()));
        true
    }

    fn sample(&mut self, sample: Sample) {
        if let Some((_, samples)) = self.0.last_mut() {
            samples.push(sample);
        }
    }
}

/// A stretch of time to ask for: `after < sample <= until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Samples at this instant or before may be left out.
    pub after: Timestamp,
    /// The last instant wanted.
    pub until: Timestamp,
}

impl Window {
    /// The length, zero when the window is empty.
    #[must_use]
    pub fn length(&self) -> Duration {
        let millis = self.until.millis().saturating_sub(self.after.millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// The two halves.
    #[must_use]
    pub fn split(&self) -> (Self, Self) {
        let middle = self.after.plus(self.length() / 2);
        (Self { until: middle, ..*self }, Self { after: middle, ..*self })
    }
}

/// How complete one answer was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Series in it; one cut by splitting is counted for each part.
    pub series: u64,
    /// Samples in it.
    pub samples: u64,
    /// What the server warned of: parts of the data may be missing.
    pub warnings: Vec<String>,
}

impl Answer {
    /// Whether nothing says that anything is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.warnings.is_empty()
    }

    /// Adds the parts of a split question.
    pub fn merge(&mut self, other: Self) {
        self.series += other.series;
        self.samples += other.samples;
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// An answer to come.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// Something that can be asked for raw samples.
pub trait Source: fmt::Debug + Send + Sync {
    /// The configured name.
    fn name(&self) -> &str;

    /// Pushes the raw samples of the selected series in the window, and some outside of it.
    ///
    /// After an error the sink may have got a part. That does no harm as long as the caller does
    /// not move its watermark: the next answer brings the rest.
    fn samples<'a>(
        &'a self,
        selector: &'a Selector,
        window: Window,
        sink: &'a mut dyn SampleSink,
    ) -> Answering<'a, Answer>;

    /// The source's own clock.
    fn now(&self) -> Answering<'_, Timestamp>;
}

/// Why a question was not answered: the label of the metric, the field of the log line, and what
/// decides about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No connection, or one that broke.
    Unreachable,
    /// No complete answer in time.
    Timeout,
    /// A status that is no success.
    BadStatus,
    /// The server refuses to read that much at once.
    TooExpensive,
    /// The answer is larger than we take.
    TooLarge,
    /// The answer makes no sense.
    Decode,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Timeout,
        Self::BadStatus,
        Self::TooExpensive,
        Self::TooLarge,
        Self::Decode,
    ];

    /// The fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::BadStatus => "bad_status",
            Self::TooExpensive => "too_expensive",
            Self::TooLarge => "too_large",
            Self::Decode => "decode",
        }
    }
}

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection, or one that broke.
    #[error("cannot reach source `{source_name}`")]
    Unreachable {
        /// The configured name.
        source_name: String,
        /// What the HTTP client says, or why the request cannot be signed.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No complete answer in time.
    #[error("source `{source_name}` did not answer within {limit:?}")]
    Timeout {
        /// The configured name.
        source_name: String,
        /// The limit.
        limit: Duration,
    },
    /// A status that is no success.
    #[error("source `{source_name}` answered {status}: {message}")]
    BadStatus {
        /// The configured name.
        source_name: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words, cut short.
        message: String,
        /// Whether the same question may be answered later.
        is_transient: bool,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The server refuses to read that much at once.
    #[error("source `{source_name}` refuses to read that much: {message}")]
    TooExpensive {
        /// The configured name.
        source_name: String,
        /// The server's own words, cut short.
        message: String,
    },
    /// The answer is larger than we take.
    #[error("the answer of source `{source_name}` is over {limit_bytes} bytes")]
    TooLarge {
        /// The configured name.
        source_name: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The answer makes no sense.
    #[error("cannot decode the answer of source `{source_name}`")]
    Decode {
        /// The configured name.
        source_name: String,
        /// What is wrong with it.
        #[source]
        cause: decode::DecodeError,
    },
}

impl SourceError {
    /// The closed form of what went wrong.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Unreachable { .. } => Reason::Unreachable,
            Self::Timeout { .. } => Reason::Timeout,
            Self::BadStatus { .. } => Reason::BadStatus,
            Self::TooExpensive { .. } => Reason::TooExpensive,
            Self::TooLarge { .. } => Reason::TooLarge,
            Self::Decode { .. } => Reason::Decode,
        }
    }

    /// Whether the same question may be answered later. An answer that makes no sense is not asked
    /// for at length: the source has done so once, in case it was cut off on its way.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::BadStatus { is_transient, .. } => *is_transient,
            Self::TooExpensive { .. } | Self::TooLarge { .. } | Self::Decode { .. } => false,
        }
    }

    /// Whether a smaller question may be answered.
    #[must_use]
    pub const fn is_too_much(&self) -> bool {
        matches!(self, Self::TooExpensive { .. } | Self::TooLarge { .. })
    }

    /// When the server wants to be asked again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::BadStatus { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// First wait before a retry is drawn from zero to this.
pub const RETRY_BASE: Duration = Duration::from_millis(200);

/// And no wait is drawn from more than this: a poll's budget is seconds.
pub const RETRY_CAP: Duration = Duration::from_secs(5);

/// The wait before retry number `retry` (from zero): uniform on `[0, min(cap, base 2^retry))` by
/// `fraction` in `[0, 1)`, but never less than the server asked for.
///
/// ```
/// use std::time::Duration;
/// use squall::source::retry_wait;
/// assert_eq!(retry_wait(2, 0.5, None), Duration::from_millis(400));
/// assert_eq!(retry_wait(99, 0.5, None), Duration::from_millis(2500));
/// // What the server asks for is spread as well, upwards.
/// let asked = Some(Duration::from_secs(10));
/// assert_eq!(retry_wait(0, 0.5, asked), Duration::from_millis(10_100));
/// ```
#[must_use]
pub fn retry_wait(retry: u32, fraction: f64, retry_after: Option<Duration>) -> Duration {
    let range = RETRY_CAP.min(RETRY_BASE.saturating_mul(2_u32.saturating_pow(retry.min(20))));
    retry_after.unwrap_or_default() + range.mul_f64(fraction.clamp(0.0, 1.0))
}

/// Where the polls of one watch have got to.
///
/// A sample becomes visible later than its timestamp: by the duration of the scrape on Prometheus,
/// by up to six seconds through remote write. So each poll reaches back over the last one, and the
/// newest stretch is not yet closed.
///
/// ```
/// use std::time::Duration;
/// use squall::series::Timestamp;
/// use squall::source::Cursor;
///
/// let at = Timestamp::from_seconds;
/// let mut cursor = Cursor::new(Duration::from_secs(16), Duration::from_secs(300));
/// let first = cursor.window(at(1000.0));
/// assert_eq!((first.after, first.until), (at(700.0), at(1000.0)));
/// assert_eq!(cursor.succeeded(first.until, Duration::from_secs(6)), at(994.0));
/// // A poll fails; the next one still starts from the last that did not.
/// let third = cursor.window(at(1030.0));
/// assert_eq!(third.after, at(984.0));
/// ```
#[derive(Debug, Clone)]
pub struct Cursor {
    overlap: Duration,
    reach: Duration,
    answered: Option<Timestamp>,
}

impl Cursor {
    /// A cursor whose windows overlap by `overlap` and reach back by `reach` at most, which is
    /// also what the first poll asks for.
    #[must_use]
    pub const fn new(overlap: Duration, reach: Duration) -> Self {
        Self { overlap, reach, answered: None }
    }

    /// What to ask for at `now`.
    #[must_use]
    pub fn window(&self, now: Timestamp) -> Window {
        let furthest = now.minus(self.reach);
        let after = self.answered.map_or(furthest, |at| at.minus(self.overlap).max(furthest));
        Window { after, until: now }
    }

    /// Notes a whole answer up to `until`; returns the watermark, under which nothing more comes.
    pub fn succeeded(&mut self, until: Timestamp, visibility_lag: Duration) -> Timestamp {
        self.answered = self.answered.max(Some(until));
        until.minus(visibility_lag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_fill_the_whole_range_and_stay_under_the_cap() {
        for retry in 0..40 {
            assert_eq!(retry_wait(retry, 0.0, None), Duration::ZERO);
            assert!(retry_wait(retry, 0.999, None) < RETRY_CAP);
        }
    }

    #[test]
    fn halves_meet_and_cover_the_window() {
        let at = Timestamp::from_millis;
        let window = Window { after: at(0), until: at(1001) };
        let (first, second) = window.split();
        assert_eq!((first.after, first.until), (at(0), second.after));
        assert_eq!(second.until, at(1001));
    }

    #[test]
    fn merged_answers_keep_each_warning_once() {
        let part = Answer { series: 1, samples: 2, warnings: vec!["hole".to_owned()] };
        let mut whole = part.clone();
        whole.merge(part);
        assert_eq!(whole, Answer { series: 2, samples: 4, warnings: vec!["hole".to_owned()] });
        assert!(!whole.is_whole());
    }
}
