//! OpenMetrics text with timestamps, as `promtool tsdb create-blocks-from openmetrics` takes it.
//!
//! A general parser builds every label set of every line. Here a line is cut at its closing brace
//! and the text before it is looked up among the series seen so far: only a series' first line is
//! taken apart, every other costs one hash and two numbers. Series may come one after the other or
//! interleaved by time, and a file is read once, in pieces, so that its size does not matter.
//!
//! What `promtool` refuses is refused here with its line, but for the missing `# EOF`, which is a
//! warning: a dump that was cut short is still worth analysing.
//!
//! # Example
//!
//! ```
//! use squall::series::Sample;
//! use squall::series::table::LabelBuffer;
//! use squall::source::openmetrics::{Sink, read};
//!
//! #[derive(Default)]
//! struct Sum(f64);
//!
//! impl Sink for Sum {
//!     fn series(&mut self, labels: &mut LabelBuffer) -> Option<u32> {
//!         (labels.value("__name__") == "requests_total").then_some(0)
//!     }
//!     fn sample(&mut self, _series: u32, sample: Sample) {
//!         self.0 += sample.value;
//!     }
//! }
//!
//! let text = "requests_total{job=\"a\"} 3 10.5\nother{job=\"a\"} 9 10.5\nrequests_total 4 11\n# EOF\n";
//! let mut sum = Sum::default();
//! let summary = read(&mut text.as_bytes(), &mut sum)?;
//! assert_eq!((sum.0, summary.samples, summary.warnings.len()), (7.0, 2, 0));
//! # Ok::<(), squall::source::openmetrics::OpenMetricsError>(())
//! ```

use std::collections::HashMap;
use std::io::{self, BufRead};

use flate2::bufread::MultiGzDecoder;

use crate::series::table::LabelBuffer;
use crate::series::{Sample, Timestamp};

/// Longest line, in bytes: a label set is rarely over a few hundred.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// First bytes of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Takes what a file holds.
pub trait Sink {
    /// A series seen for the first time, its name under `__name__`; none leaves its samples out.
    fn series(&mut self, labels: &mut LabelBuffer) -> Option<u32>;

    /// One sample of a series that was taken.
    fn sample(&mut self, series: u32, sample: Sample);
}

/// What a file held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Samples of the series taken.
    pub samples: u64,
    /// Names that the file declares to be gauges.
    pub gauges: Vec<String>,
    /// What is odd about it, without being wrong.
    pub warnings: Vec<String>,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenMetricsError {
    /// The bytes cannot be read or unpacked.
    #[error("cannot read the text")]
    Unreadable(#[source] io::Error),
    /// A line is not OpenMetrics.
    #[error("line {line}: {says}")]
    Malformed {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        says: &'static str,
    },
}

/// Reads a file of OpenMetrics, plain or gzip.
///
/// # Errors
///
/// When it cannot be read, or at its first line that is not OpenMetrics with a timestamp.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn Sink) -> Result<Summary, OpenMetricsError> {
    let head = input.fill_buf().map_err(OpenMetricsError::Unreadable)?;
    if head.starts_with(&GZIP_MAGIC) {
        let mut plain = io::BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input));
        read_plain(&mut plain, sink)
    } else {
        read_plain(input, sink)
    }
}

fn read_plain(input: &mut dyn BufRead, sink: &mut dyn Sink) -> Result<Summary, OpenMetricsError> {
    let mut summary = Summary::default();
    let mut known: HashMap<Box<[u8]>, Option<u32>> = HashMap::new();
    let mut labels = LabelBuffer::default();
    let mut line = Vec::new();
    let mut number = 0;
    let mut ended = false;
    loop {
        line.clear();
        let mut bounded = io::Read::take(&mut *input, LINE_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(OpenMetricsError::Unreadable)?;
        if read == 0 {
            break;
        }
        number += 1;
        let malformed = |says| OpenMetricsError::Malformed { line: number, says };
        if ended {
            return Err(malformed("text after `# EOF`"));
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read > LINE_BYTES_MAX {
            return Err(malformed("a line longer than 64 KiB"));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.first() == Some(&b'#') {
            ended = comment(&line, &mut summary);
            continue;
        }
        if line.is_empty() {
            return Err(malformed("an empty line"));
        }
        let (series, rest) = split(&line).ok_or_else(|| malformed("a series without a value"))?;
        let id = match known.get(series) {
            Some(id) => *id,
            None => {
                labels.clear();
                parse_series(series, &mut labels).map_err(malformed)?;
                let id = sink.series(&mut labels);
                known.insert(series.into(), id);
                id
            }
        };
        let Some(id) = id else { continue };
        sink.sample(id, parse_sample(rest).map_err(malformed)?);
        summary.samples += 1;
    }
    if !ended {
        summary.warnings.push("the text does not end with `# EOF`: it may be cut short".to_owned());
    }
    Ok(summary)
}

/// Notes what a comment declares; true for the end of the text.
fn comment(line: &[u8], summary: &mut Summary) -> bool {
    if line == b"# EOF" {
        return true;
    }
    if let Some(declared) = line.strip_prefix(b"# TYPE ")
        && let Some(name) = declared.strip_suffix(b" gauge")
    {
        summary.gauges.push(String::from_utf8_lossy(name).into_owned());
    }
    false
}

/// Cuts a line into its series and what follows.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = line.iter().position(|byte| matches!(byte, b'{' | b' '))?;
    if line[open] == b' ' {
        return Some((&line[..open], &line[open + 1..]));
    }
    // A brace inside quotes is part of a value.
    let (mut quoted, mut escaped) = (false, false);
    for (index, &byte) in line.iter().enumerate().skip(open + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some((&line[..=index], &line[index + 1..])),
            _ => {}
        }
    }
    None
}

/// Takes a series apart: `name{a="x",b="y"}`, or `{"a name",a="x"}` as Prometheus 3 quotes names.
fn parse_series(series: &[u8], labels: &mut LabelBuffer) -> Result<(), &'static str> {
    let text = std::str::from_utf8(series).map_err(|_not_utf8| "not UTF-8")?;
    let (name, mut rest) = match text.split_once('{') {
        None => (text, ""),
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap_or(rest)),
    };
    if !name.is_empty() {
        labels.push("__name__", name);
    }
    let mut has_name = !name.is_empty();
    rest = rest.trim_start();
    while !rest.is_empty() {
        let (label, after, was_quoted) = if rest.starts_with('"') {
            let (label, after) = quoted(rest)?;
            (label, after.trim_start(), true)
        } else {
            let end = rest.find(['=', ' ']).ok_or("a label without a value")?;
            (rest[..end].to_owned(), rest[end..].trim_start(), false)
        };
        if let Some(after) = after.strip_prefix('=') {
            let (value, after) = quoted(after.trim_start())?;
            labels.push(&label, &value);
            rest = after;
        } else if was_quoted && !has_name {
            labels.push("__name__", &label);
            has_name = true;
            rest = after;
        } else {
            return Err("a label without a value");
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err("labels without a comma between them"),
        };
    }
    if has_name { Ok(()) } else { Err("a series without a name") }
}

/// Reads a quoted text and gives what follows it.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let inner = text.strip_prefix('"').ok_or("a label value without quotes")?;
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &inner[index + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                Some((_, other)) => {
                    value.push('\\');
                    value.push(other);
                }
                None => return Err("a label value that does not end"),
            },
            other => value.push(other),
        }
    }
    Err("a label value that does not end")
}

/// Reads ` value timestamp`, and leaves an exemplar alone.
fn parse_sample(rest: &[u8]) -> Result<Sample, &'static str> {
    let text = std::str::from_utf8(rest).map_err(|_not_utf8| "not UTF-8")?;
    let mut words = text.split_ascii_whitespace();
    let value = words.next().ok_or("a series without a value")?;
    let value: f64 = value.parse().map_err(|_not_a_number| "a value that is no number")?;
    let at = words.next().filter(|word| *word != "#").ok_or("a sample without a timestamp")?;
    let at = timestamp(at).ok_or("a timestamp that is no number of seconds")?;
    Ok(Sample { at, value })
}

/// Seconds with up to three digits after the point, read without rounding; anything else as a
/// number.
fn timestamp(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_short = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if is_short
        && let Ok(seconds) = whole.parse::<i64>()
        && seconds >= 0
    {
        let millis = millis_of(fraction);
        return Some(Timestamp::from_millis(seconds.checked_mul(1000)?.checked_add(millis)?));
    }
    let seconds: f64 = text.parse().ok()?;
    seconds.is_finite().then(|| Timestamp::from_seconds(seconds))
}

/// Milliseconds in up to three decimal digits.
fn millis_of(fraction: &str) -> i64 {
    let mut millis = 0;
    for place in 0..3 {
        let digit = fraction.as_bytes().get(place).map_or(0, |byte| i64::from(byte - b'0'));
        millis = millis * 10 + digit;
    }
    millis
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Default)]
    struct All {
        series: Vec<String>,
        samples: Vec<(u32, Sample)>,
    }

    impl Sink for All {
        fn series(&mut self, labels: &mut LabelBuffer) -> Option<u32> {
            self.series.push(labels.to_labels().to_string());
            u32::try_from(self.series.len() - 1).ok()
        }

        fn sample(&mut self, series: u32, sample: Sample) {
            self.samples.push((series, sample));
        }
    }

    fn check(text: &str, series: &[&str], samples: &[(u32, i64, f64)]) {
        let mut all = All::default();
        read(&mut text.as_bytes(), &mut all).expect("good text");
        let found: Vec<(u32, i64, f64)> =
            all.samples.iter().map(|(id, s)| (*id, s.at.millis(), s.value)).collect();
        assert_eq!(
            (all.series, found),
            (series.iter().map(ToString::to_string).collect(), samples.to_vec())
        );
    }

    fn refused(text: &str) -> String {
        read(&mut text.as_bytes(), &mut All::default()).expect_err("bad text").to_string()
    }

    #[test]
    fn series_are_told_apart_by_their_text_and_times_are_exact() {
        check(
            "# TYPE a counter\na_total{x=\"1\"} 3 1.5\na_total{x=\"2\"} 4e0 2\na_total{x=\"1\"} 5 2.125 # {} 1\nb 1 0.1\n# EOF\n",
            &[
                "{__name__=\"a_total\", x=\"1\"}",
                "{__name__=\"a_total\", x=\"2\"}",
                "{__name__=\"b\"}",
            ],
            &[(0, 1500, 3.0), (1, 2000, 4.0), (0, 2125, 5.0), (2, 100, 1.0)],
        );
    }

    #[test]
    fn quotes_hold_braces_commas_and_escapes() {
        check(
            "a{p=\"}{,\\\"\\\\\\n\", q=\"x\"} 1 1\n{\"http.requests\", z=\"1\"} 2 1\n# EOF\n",
            &[
                "{__name__=\"a\", p=\"}{,\\\"\\\\\\n\", q=\"x\"}",
                "{__name__=\"http.requests\", z=\"1\"}",
            ],
            &[(0, 1000, 1.0), (1, 1000, 2.0)],
        );
    }

    #[test]
    fn what_is_no_sample_is_refused_with_its_line() {
        assert_eq!(refused("a 1 1\n\n# EOF\n"), "line 2: an empty line");
        assert_eq!(refused("a 1\n# EOF\n"), "line 1: a sample without a timestamp");
        assert_eq!(refused("a one 1\n"), "line 1: a value that is no number");
        assert_eq!(refused("a{b=1} 1 1\n"), "line 1: a label value without quotes");
        assert_eq!(refused("a{b=\"1 1 1\n"), "line 1: a series without a value");
        assert_eq!(refused("# EOF\na 1 1\n"), "line 2: text after `# EOF`");
        assert_eq!(refused("a 1 soon\n"), "line 1: a timestamp that is no number of seconds");
    }

    #[test]
    fn a_text_cut_short_is_a_warning_and_gzip_is_unpacked() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"a 1 1\na 2 2\n").expect("written to memory");
        let packed = packed.finish().expect("written to memory");
        let mut all = All::default();
        let summary = read(&mut packed.as_slice(), &mut all).expect("good text");
        assert_eq!((summary.samples, summary.warnings.len()), (2, 1));
    }

    #[test]
    fn a_line_has_a_bound() {
        let long = |length: usize| format!("a{{b=\"{}\"}} 1 1\n# EOF\n", "x".repeat(length));
        assert!(read(&mut long(60_000).as_bytes(), &mut All::default()).is_ok());
        assert_eq!(refused(&long(70_000)), "line 1: a line longer than 64 KiB");
    }
}
