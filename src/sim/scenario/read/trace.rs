//! Recorded arrivals: a text file of instants, or of instants and rates.
//!
//! ```text
//! # calls of an access log            # or: a rate over time
//! 1790002800.125                      0,50
//! 1790002800.190                      60,80
//! ```
//!
//! Instants are seconds from the start of the scenario. Those of a trace that begins beyond 1e9 are
//! Unix seconds and count from its first line.

use std::sync::Arc;

/// From here on a number is Unix time and no time since a start: thirty years.
const UNIX_SECONDS_MIN: f64 = 1e9;

/// What a trace holds.
#[derive(Debug, PartialEq)]
pub(super) enum Trace {
    /// The instant of each call.
    Instants(Arc<[f64]>),
    /// Calls per second over time.
    Rates(Vec<(f64, f64)>),
}

/// Reads a trace; the error says which line is wrong.
pub(super) fn parse(text: &str) -> Result<Trace, String> {
    let mut rows: Vec<(f64, Option<f64>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut cells = line.split(',').map(|cell| cell.trim().parse::<f64>().ok());
        let good = |cell: Option<f64>| cell.filter(|value| value.is_finite() && *value >= 0.0);
        let (at, rate) = match (cells.next(), cells.next(), cells.next()) {
            (Some(at), None, None) => (good(at), Some(None)),
            (Some(at), Some(rate), None) => (good(at), good(rate).map(Some)),
            _ => (None, None),
        };
        let (Some(at), Some(rate)) = (at, rate) else {
            return Err(format!(
                "line {number} must be an instant in seconds, or an instant and a rate, got `{line}`"
            ));
        };
        if let Some((before, rate_before)) = rows.last() {
            let rises = if rate.is_some() { at > *before } else { at >= *before };
            if !rises {
                return Err(format!("line {number} does not come after the one before it"));
            }
            if rate.is_some() != rate_before.is_some() {
                return Err(format!(
                    "line {number} is unlike the one before it: give all a rate, or none"
                ));
            }
        }
        rows.push((at, rate));
    }
    let Some((first, rate)) = rows.first().copied() else { return Err("is empty".to_owned()) };
    let origin = if first >= UNIX_SECONDS_MIN { first } else { 0.0 };
    Ok(match rate {
        None => Trace::Instants(rows.iter().map(|(at, _)| at - origin).collect()),
        Some(_) => Trace::Rates(
            rows.iter().filter_map(|(at, rate)| Some((at - origin, (*rate)?))).collect(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_rates_are_told_apart_and_unix_time_counts_from_the_first_line() {
        let instants = |values: &[f64]| Ok(Trace::Instants(values.into()));
        assert_eq!(parse("# log\n0.5\n\n0.5\n2\n"), instants(&[0.5, 0.5, 2.0]));
        assert_eq!(parse("1790002800.125\n1790002801.125"), instants(&[0.0, 1.0]));
        assert_eq!(parse("0, 50\n60, 80"), Ok(Trace::Rates(vec![(0.0, 50.0), (60.0, 80.0)])));
    }

    #[test]
    fn what_is_no_trace_is_refused_by_its_line() {
        for (text, says) in [
            ("", "is empty"),
            ("1\nx", "line 2 must be an instant in seconds, or an instant and a rate, got `x`"),
            (
                "1,2,3",
                "line 1 must be an instant in seconds, or an instant and a rate, got `1,2,3`",
            ),
            ("-1", "line 1 must be an instant in seconds, or an instant and a rate, got `-1`"),
            ("2\n1", "line 2 does not come after the one before it"),
            ("1,5\n1,6", "line 2 does not come after the one before it"),
            ("1\n2,6", "line 2 is unlike the one before it: give all a rate, or none"),
        ] {
            assert_eq!(parse(text), Err(says.to_owned()), "{text:?}");
        }
    }
}
