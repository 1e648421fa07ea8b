//! Label sets, samples, and the one observation squall reasons about: the interval.
//!
//! A counter sample says nothing by itself. Two successive samples of one target say "N requests
//! arrived in (a, b]", and that is the only thing detection is given: no grid, no interpolation,
//! no rate. Targets are scraped at different phases, so the intervals of many targets cut time
//! finer than any one of them.

pub mod counter;
pub mod history;
pub mod notation;
pub mod observer;
pub mod selector;
pub mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An instant in Unix milliseconds, as the sources stamp their samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The instant `seconds` after the Unix epoch, rounded to the millisecond.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1000.0).round() as i64)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds fit 53 bits until the year 287396"
    )]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Seconds from `earlier` to `self`; negative when `self` is the earlier one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "differences are far below 53 bits")]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / 1000.0
    }

    /// The instant `seconds` later (earlier when negative), rounded to the millisecond.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
    pub fn plus_seconds(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1000.0).round() as i64))
    }

    /// The instant `duration` later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The instant `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// A sorted set of label names and values, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// Builds a set from pairs: sorted by name, empty values dropped, the last of a repeated name kept.
    pub fn new<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<Arc<str>>,
        V: Into<Arc<str>>,
    {
        let mut all: Vec<(Arc<str>, Arc<str>)> =
            pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let mut kept: Vec<(Arc<str>, Arc<str>)> = Vec::with_capacity(all.len());
        for pair in all {
            match kept.last_mut() {
                Some(last) if last.0 == pair.0 => *last = pair,
                _ => kept.push(pair),
            }
        }
        kept.retain(|(_, value)| !value.is_empty());
        Self(kept.into())
    }

    /// The value of `name`, or none when the label is absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(candidate, _)| candidate.as_ref().cmp(name))
            .ok()
            .map(|index| self.0[index].1.as_ref())
    }

    /// The pairs, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// The subset with the given names, in their own order of names.
    #[must_use]
    pub fn project<S: AsRef<str>>(&self, names: &[S]) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, _)| names.iter().any(|wanted| wanted.as_ref() == name.as_ref()))
                .cloned()
                .collect(),
        )
    }

    /// Whether there is no label at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Labels {
    /// Writes the set as Prometheus does: `{a="x", b="y"}`, with `\`, `"` and newlines escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{name}=\"{value}\"")?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When the target was scraped.
    pub at: Timestamp,
    /// The counter's value then. NaN stands for a stale marker or an exposed NaN: a break.
    pub value: f64,
}

/// The number of an interned series, dense from zero within one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// The number of a scrape target within one dependency, dense from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

/// One observation: what arrived through one target between two of its scrapes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The target whose two scrapes bound it.
    pub target: TargetId,
    /// The earlier scrape; requests at this instant are not in the interval.
    pub from: Timestamp,
    /// The later scrape; requests at this instant are in the interval.
    // Invariant: later than `from`.
    pub to: Timestamp,
    /// Requests that arrived, a count. Never negative, never NaN.
    pub requests: f64,
    /// Requests that failed, a count; zero where no error selector is given.
    pub errors: f64,
}

impl Interval {
    /// The length in seconds, always positive.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to.seconds_since(self.from)
    }
}

/// What a watched selector's counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Every attempt sent to the dependency.
    Requests,
    /// The attempts that failed; a subset of the requests.
    Errors,
    /// Retries as a client library counts them; corroborates, never required.
    Retries,
    /// Requests wanted, retries not counted; corroborates, never required.
    Calls,
}
