//! Plain counter selectors: `name{a="x", b!="y", c=~"..", d!~".."}`, and why nothing else is taken.
//!
//! squall reads raw counters. Whatever a query does to them before (a rate over a window, a sum, a
//! shift) has already averaged the waves away or mixed targets that are scraped at different
//! phases, and no later step can undo it. So the parser knows the selector alone and, for anything
//! else, says what it found, where, and for a rate how much of a wave its window leaves.
//!
//! # Method
//!
//! A rate over a window `w_eff` is a boxcar filter. Of a wave of period `P` it leaves
//!
//! ```text
//! gain = |sin(pi w_eff / P) / (pi w_eff / P)|        w_eff = (floor(w / T) - 1) T
//! ```
//!
//! with `T` the scrape interval: a window of `w` holds `floor(w / T)` samples, and the first and
//! the last of them are `w_eff` apart. Regular expressions are anchored at both ends and `.`
//! matches a newline, as in Prometheus 3.
//!
//! # Example
//!
//! ```
//! use squall::series::Labels;
//! use squall::series::selector::Selector;
//!
//! let selector: Selector = r#"http_requests_total{job="shop", code=~"5.."}"#.parse()?;
//! let labels = Labels::new([("__name__", "http_requests_total"), ("job", "shop"), ("code", "503")]);
//! assert!(selector.matches(&labels));
//! assert_eq!(selector.to_string(), r#"http_requests_total{job="shop",code=~"5.."}"#);
//!
//! let refused = "rate(http_requests_total[1m])".parse::<Selector>().unwrap_err();
//! assert_eq!(refused.window, Some(std::time::Duration::from_secs(60)));
//! # Ok::<(), squall::series::selector::InvalidSelector>(())
//! ```

mod parse;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex::Regex;

use super::Labels;

pub use parse::{format_duration, parse_duration};

/// Longest selector taken, in bytes: `VictoriaMetrics` refuses queries over 16 KiB, and the
/// window and the parts that splitting adds need room.
pub const SELECTOR_BYTES_MAX: usize = 12 * 1024;

/// Largest compiled regular expression, in bytes. Matchers are applied to every series of a file,
/// so a pattern that needs megabytes is a mistake and not a matcher.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Matches,
    /// `!~`
    NotMatches,
}

impl MatchOp {
    /// As written in PromQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Matches => "=~",
            Self::NotMatches => "!~",
        }
    }
}

/// One condition on one label; an absent label counts as the empty string.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    // Invariant: present exactly for the two regular-expression operators.
    regex: Option<Regex>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl Matcher {
    /// Builds a matcher.
    ///
    /// # Errors
    ///
    /// When the value of a regular-expression matcher is not one, or compiles to over 1 MiB.
    pub fn new(
        name: impl Into<String>,
        op: MatchOp,
        value: impl Into<String>,
    ) -> Result<Self, Box<regex::Error>> {
        let (name, value) = (name.into(), value.into());
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Matches | MatchOp::NotMatches => Some(
                regex::RegexBuilder::new(&format!("^(?s:{value})$"))
                    .size_limit(REGEX_BYTES_MAX)
                    .build()?,
            ),
        };
        Ok(Self { name, op, value, regex })
    }

    /// The label it looks at.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it compares.
    #[must_use]
    pub const fn op(&self) -> MatchOp {
        self.op
    }

    /// What it compares with.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether a label of this value (empty when absent) satisfies it.
    #[must_use]
    pub fn accepts(&self, value: &str) -> bool {
        let is_match = self.regex.as_ref().is_some_and(|regex| regex.is_match(value));
        match self.op {
            MatchOp::Equal => value == self.value,
            MatchOp::NotEqual => value != self.value,
            MatchOp::Matches => is_match,
            MatchOp::NotMatches => !is_match,
        }
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain_name(&self.name, false) {
            f.write_str(&self.name)?;
        } else {
            write_quoted(f, &self.name)?;
        }
        f.write_str(self.op.as_str())?;
        write_quoted(f, &self.value)
    }
}

/// A plain selector of counter series: a metric name and matchers.
///
/// At least one matcher does not match the empty string, as Prometheus demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    name: Option<String>,
    matchers: Vec<Matcher>,
}

impl Selector {
    /// The metric name, where it is given as one and not by a matcher on `__name__`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The matchers in the order written, without the metric name.
    #[must_use]
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// The same selector with one more condition.
    #[must_use]
    pub fn and(mut self, matcher: Matcher) -> Self {
        self.matchers.push(matcher);
        self
    }

    /// Whether a series with these labels (its name under `__name__`) is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_by(|name| labels.get(name).unwrap_or(""))
    }

    /// Whether a series is selected whose label values `value_of` gives, empty when absent.
    pub fn matches_by<'a>(&self, mut value_of: impl FnMut(&str) -> &'a str) -> bool {
        self.name.as_ref().is_none_or(|name| value_of("__name__") == name)
            && self.matchers.iter().all(|matcher| matcher.accepts(value_of(&matcher.name)))
    }
}

impl fmt::Display for Selector {
    /// Writes the selector as PromQL, names outside the old character set quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = 0;
        let plain = self.name.as_deref().is_some_and(|name| is_plain_name(name, true));
        if let (true, Some(name)) = (plain, &self.name) {
            f.write_str(name)?;
            if self.matchers.is_empty() {
                return Ok(());
            }
        }
        f.write_str("{")?;
        if let (false, Some(name)) = (plain, &self.name) {
            write_quoted(f, name)?;
            parts += 1;
        }
        for matcher in &self.matchers {
            if parts > 0 {
                f.write_str(",")?;
            }
            parts += 1;
            matcher.fmt(f)?;
        }
        f.write_str("}")
    }
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        parse::selector(text)
    }
}

/// What stands where a plain selector should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectorFault {
    /// `rate(…)` and its like: the window averages waves away.
    Rate(String),
    /// Any other function.
    Function(String),
    /// `sum(…)` and its like: mixes targets scraped at different phases.
    Aggregation(String),
    /// A window in brackets: squall adds its own.
    Range,
    /// A sub-query.
    Subquery,
    /// `offset` or `@`.
    Shift,
    /// An operator between two expressions.
    Arithmetic,
    /// Every matcher also matches the empty string, so that everything would be selected.
    MatchesEverything,
    /// A pattern that is no regular expression, or too large a one.
    Regex(String),
    /// Over [`SELECTOR_BYTES_MAX`].
    TooLong,
    /// Not PromQL; says what was expected.
    Syntax(&'static str),
}

impl fmt::Display for SelectorFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(name) => write!(f, "`{name}` averages the waves away over its window"),
            Self::Function(name) => write!(f, "`{name}(…)` is a function, not raw samples"),
            Self::Aggregation(name) => {
                write!(f, "`{name}` mixes targets that are scraped at different instants")
            }
            Self::Range => f.write_str("a window `[…]` is not wanted, squall adds its own"),
            Self::Subquery => f.write_str("a sub-query does not give raw samples"),
            Self::Shift => f.write_str("`offset` and `@` shift the samples in time"),
            Self::Arithmetic => f.write_str("an operator does not give raw samples"),
            Self::MatchesEverything => {
                f.write_str("at least one matcher must not match the empty string")
            }
            Self::Regex(pattern) => {
                write!(f, "`{pattern}` is no regular expression, or too large a one")
            }
            Self::TooLong => write!(f, "longer than {SELECTOR_BYTES_MAX} bytes"),
            Self::Syntax(expected) => write!(f, "expected {expected}"),
        }
    }
}

/// A text that is not a plain counter selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a plain counter selector, at character {position}: {fault}")]
pub struct InvalidSelector {
    /// Where, in characters from one.
    pub position: usize,
    /// What is wrong.
    pub fault: SelectorFault,
    /// The window of a rate, where one could be read: see [`window_gain`].
    pub window: Option<Duration>,
}

/// The share of a wave of `period` that a rate over `window` leaves, from 0 to 1.
///
/// Zero where the window holds fewer than two samples, since a rate is then empty.
///
/// ```
/// use std::time::Duration;
/// use squall::series::selector::window_gain;
///
/// let seconds = Duration::from_secs;
/// let gain = window_gain(seconds(60), seconds(15), seconds(30));
/// assert!((gain - 0.2122).abs() < 1e-4); // 1 / (1.5 pi)
/// assert!(window_gain(seconds(60), seconds(15), seconds(15)) < 1e-12);
/// ```
#[must_use]
pub fn window_gain(window: Duration, scrape_interval: Duration, period: Duration) -> f64 {
    let scrape = scrape_interval.as_secs_f64();
    if scrape <= 0.0 || period.is_zero() {
        return 0.0;
    }
    // The small constant keeps 60 / 15 from falling to 3 by rounding.
    let samples = (window.as_secs_f64() / scrape + 1e-9).floor();
    if samples < 2.0 {
        return 0.0;
    }
    let phase = std::f64::consts::PI * (samples - 1.0) * scrape / period.as_secs_f64();
    (phase.sin() / phase).abs()
}

/// Whether `name` needs no quotes in PromQL; metric names may hold colons, label names not.
fn is_plain_name(name: &str, colons: bool) -> bool {
    let first = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || (colons && b == b':'))
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '\\' => f.write_str("\\\\")?,
            '"' => f.write_str("\\\"")?,
            '\n' => f.write_str("\\n")?,
            other => write!(f, "{other}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests;
