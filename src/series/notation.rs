//! Prometheus' test notation for series: `1+2x3 _ 4 stale`.
//!
//! Fixtures written as the lists of values they stand for are long and hide what is special in
//! them. Everyone who has written a test for a Prometheus rule can read this notation.
//!
//! # Method
//!
//! ```text
//! 5            one value                  _       a missing sample
//! 5x3          four times 5               _x3     three missing samples
//! 1+2x3        1 3 5 7                    stale   a stale marker
//! 9-2x3        9 7 5 3
//! ```
//!
//! Note Prometheus' own oddity: `x3` after a number gives four samples, after `_` three.
//!
//! # Example
//!
//! ```
//! use squall::series::notation::{Point, parse, print};
//!
//! let points = parse("1+2x3 _ stale")?;
//! assert_eq!(points.len(), 6);
//! assert_eq!((points[3], points[4], points[5]), (Point::Value(7.0), Point::Missing, Point::Stale));
//! assert_eq!(print(&points), "1+2x3 _ stale");
//! # Ok::<(), squall::series::notation::InvalidNotation>(())
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use super::{Sample, Timestamp};

/// Most points one text may stand for: a fixture is small, and `0x999999999` is a typing mistake.
pub const POINTS_MAX: usize = 1_000_000;

/// One point of a fixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// A value; may be NaN or infinite.
    Value(f64),
    /// No sample.
    Missing,
    /// A stale marker.
    Stale,
}

/// A text that is not in the notation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNotation {
    /// A word that is none of the forms.
    #[error("`{0}` is not a value, `a+bxn`, `a-bxn`, `axn`, `_`, `_xn` or `stale`")]
    Word(String),
    /// More than [`POINTS_MAX`] points.
    #[error("more than {POINTS_MAX} points")]
    TooMany,
}

/// Parses a text.
///
/// # Errors
///
/// The first word that is not in the notation, or too many points.
pub fn parse(text: &str) -> Result<Vec<Point>, InvalidNotation> {
    let mut points = Vec::new();
    for word in text.split_whitespace() {
        let fault = || InvalidNotation::Word(word.to_owned());
        if word == "stale" {
            points.push(Point::Stale);
            continue;
        }
        let (body, times) = match word.rsplit_once('x') {
            // Hexadecimal numbers are not taken, so an `x` always repeats.
            Some((body, times)) => (body, times.parse::<usize>().map_err(|_cause| fault())?),
            None => (word, 0),
        };
        if points.len() + times >= POINTS_MAX {
            return Err(InvalidNotation::TooMany);
        }
        if body == "_" {
            let missing = if word == "_" { 1 } else { times };
            points.extend(std::iter::repeat_n(Point::Missing, missing));
            continue;
        }
        let (start, step) = split_step(body).ok_or_else(fault)?;
        if step.is_some() && !word.contains('x') {
            return Err(fault());
        }
        let mut value = start;
        for n in 0..=times {
            if n > 0 {
                value += step.unwrap_or(0.0);
            }
            points.push(Point::Value(value));
        }
    }
    Ok(points)
}

/// `a`, `a+b` or `a-b`.
fn split_step(body: &str) -> Option<(f64, Option<f64>)> {
    if let Some(value) = number(body) {
        return Some((value, None));
    }
    // A sign at the start or after an exponent is part of the number.
    body.char_indices()
        .skip(1)
        .filter(|(_, c)| matches!(c, '+' | '-'))
        .find_map(|(index, _)| Some((number(&body[..index])?, Some(number(&body[index..])?))))
}

fn number(text: &str) -> Option<f64> {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_special =
        matches!(text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str(), "nan" | "inf");
    if has_digit || is_special { text.parse().ok() } else { None }
}

/// Writes points, runs of equal steps and of missing points shortened; [`parse`] reads it back.
#[must_use]
pub fn print(points: &[Point]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = points;
    while let Some((first, tail)) = rest.split_first() {
        let mut word = String::new();
        let used = match *first {
            Point::Stale => {
                word.push_str("stale");
                1
            }
            Point::Missing => {
                let run = rest.iter().take_while(|point| **point == Point::Missing).count();
                word.push('_');
                if run > 1 {
                    write!(word, "x{run}").expect("writing to text cannot fail");
                }
                run
            }
            Point::Value(start) => {
                let step = match tail.first() {
                    Some(Point::Value(next)) => next - start,
                    _ => 0.0,
                };
                let run = run_length(rest, start, step);
                if run > 2 {
                    match step {
                        0.0 => write!(word, "{start}x{}", run - 1),
                        step => write!(word, "{start}{step:+}x{}", run - 1),
                    }
                    .expect("writing to text cannot fail");
                    run
                } else {
                    write!(word, "{start}").expect("writing to text cannot fail");
                    1
                }
            }
        };
        words.push(word);
        rest = &rest[used..];
    }
    words.join(" ")
}

/// How many points from the first are exactly what [`parse`] would make of start and step.
fn run_length(points: &[Point], start: f64, step: f64) -> usize {
    if !start.is_finite() || !step.is_finite() {
        return 1;
    }
    let mut value = start;
    let mut run = 0;
    for point in points {
        if run > 0 {
            value += step;
        }
        if *point != Point::Value(value) {
            break;
        }
        run += 1;
    }
    run
}

/// The samples of a text, `spacing` apart from `start`; stale markers as NaN.
///
/// # Errors
///
/// As [`parse`].
pub fn samples(
    text: &str,
    start: Timestamp,
    spacing: Duration,
) -> Result<Vec<Sample>, InvalidNotation> {
    let mut at = start;
    let mut samples = Vec::new();
    for point in parse(text)? {
        match point {
            Point::Value(value) => samples.push(Sample { at, value }),
            Point::Stale => samples.push(Sample { at, value: f64::NAN }),
            Point::Missing => {}
        }
        at = at.plus(spacing);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &[f64]) {
        let values: Vec<f64> = parse(text)
            .unwrap()
            .into_iter()
            .map(|point| match point {
                Point::Value(value) => value,
                Point::Missing => -1000.0,
                Point::Stale => -2000.0,
            })
            .collect();
        assert_eq!(values, expected, "{text}");
    }

    #[test]
    fn each_form_is_read() {
        check("1 -2 3.5e2", &[1.0, -2.0, 350.0]);
        check("1+2x3", &[1.0, 3.0, 5.0, 7.0]);
        check("9-2x3", &[9.0, 7.0, 5.0, 3.0]);
        check("-1-1x1 5x2", &[-1.0, -2.0, 5.0, 5.0, 5.0]);
        check("1e+2+1e-1x1", &[100.0, 100.1]);
        check("_ _x2 stale", &[-1000.0, -1000.0, -1000.0, -2000.0]);
        check("", &[]);
        check("+Inf -Inf", &[f64::INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["a", "1+2", "1x", "x3", "1+x3", "_x", "--1", "1+2x-3", "0x1p3x"] {
            assert_eq!(parse(text), Err(InvalidNotation::Word(text.to_owned())), "{text}");
        }
        assert_eq!(parse("0x999999999"), Err(InvalidNotation::TooMany));
    }

    #[test]
    fn samples_skip_what_is_missing() {
        let spacing = Duration::from_secs(15);
        let samples = samples("1 _ 3", Timestamp::from_millis(0), spacing).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1].at, Timestamp::from_millis(30_000));
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(
            points in proptest::collection::vec(prop_oneof![
                4 => (0_i32..5).prop_map(|value| Point::Value(f64::from(value))),
                1 => (-1e9_f64..1e9).prop_map(Point::Value),
                1 => Just(Point::Missing),
                1 => Just(Point::Stale),
            ], 0..40),
        ) {
            prop_assert_eq!(parse(&print(&points)), Ok(points));
        }
    }
}
