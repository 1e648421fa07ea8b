//! The part of PromQL that is answered: raw samples, and what `squall doctor` asks to find its way
//! through a server it does not know.
//!
//! Reading raw counters takes a selector with a range. Finding out which counters there are takes
//! `count`, `count by`, `topk` and `and` over plain selectors, and nothing else: functions of a
//! range (`rate`) are refused, since an answer that differs from Prometheus' own in its
//! extrapolation would be worse than none.

use std::collections::{BTreeMap, HashSet};

use super::selector::{Selector, quoted, selector, word};
use crate::series::Labels;

/// Deepest nesting of parentheses that is read.
const DEPTH_MAX: usize = 16;

/// What is asked for.
#[derive(Debug)]
pub(super) enum Query {
    /// `time()`.
    Time,
    /// The samples in a range of so many seconds.
    Range(Selector, f64),
    /// One value for each series.
    Vector(Expression),
}

/// What one value for each series is made of.
#[derive(Debug)]
pub(super) enum Expression {
    /// The latest samples.
    Select(Selector),
    /// How many series there are, for each combination of these labels.
    Count(Vec<String>, Box<Self>),
    /// So many of the largest, the largest first.
    TopK(usize, Box<Self>),
    /// Those of the first with the labels of one of the second, their names aside.
    And(Box<Self>, Box<Self>),
}

/// One value for each series.
pub(super) type Vector = Vec<(Labels, f64)>;

impl Expression {
    /// Its value; `latest` gives the latest samples of a selector, in the order of their labels.
    pub(super) fn value(&self, latest: &dyn Fn(&Selector) -> Vector) -> Vector {
        match self {
            Self::Select(selector) => latest(selector),
            Self::Count(by, of) => {
                let by: Vec<&str> = by.iter().map(String::as_str).collect();
                let mut counts: BTreeMap<Labels, f64> = BTreeMap::new();
                for (labels, _) in of.value(latest) {
                    *counts.entry(labels.project(&by)).or_default() += 1.0;
                }
                counts.into_iter().collect()
            }
            Self::TopK(most, of) => {
                let mut all = of.value(latest);
                all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
                all.truncate(*most);
                all
            }
            Self::And(first, second) => {
                let wanted: HashSet<Labels> =
                    second.value(latest).iter().map(|(labels, _)| unnamed(labels)).collect();
                let mut all = first.value(latest);
                all.retain(|(labels, _)| wanted.contains(&unnamed(labels)));
                all
            }
        }
    }
}

fn unnamed(labels: &Labels) -> Labels {
    Labels::new(labels.iter().filter(|(name, _)| *name != "__name__"))
}

/// Reads a query; the error is what is wrong, for the person who wrote it.
pub(super) fn parse(text: &str) -> Result<Query, String> {
    let text = text.trim();
    if text == "time()" {
        return Ok(Query::Time);
    }
    let (expression, rest) = conjunction(text, 0)?;
    match expression {
        Expression::Select(selector) if !rest.is_empty() => {
            let range = rest
                .strip_prefix('[')
                .and_then(|inner| inner.trim_end().strip_suffix(']'))
                .and_then(|range| crate::rules::spanned::parse_seconds(range.trim()))
                .filter(|seconds| *seconds > 0.0)
                .ok_or_else(|| {
                    format!("expected a range such as [45s] and nothing after it, got `{rest}`")
                })?;
            Ok(Query::Range(selector, range))
        }
        _ if !rest.is_empty() => Err(format!("expected nothing more, got `{rest}`")),
        expression => Ok(Query::Vector(expression)),
    }
}

type Read<'t, T> = Result<(T, &'t str), String>;

fn conjunction(text: &str, depth: usize) -> Read<'_, Expression> {
    let (mut first, mut rest) = operand(text, depth)?;
    while let ("and", after) = word(rest) {
        let (second, after) = operand(after.trim_start(), depth)?;
        first = Expression::And(Box::new(first), Box::new(second));
        rest = after;
    }
    Ok((first, rest))
}

fn operand(text: &str, depth: usize) -> Read<'_, Expression> {
    if depth > DEPTH_MAX {
        return Err("too many parentheses".to_owned());
    }
    if let Some(inner) = text.strip_prefix('(') {
        let (expression, rest) = conjunction(inner.trim_start(), depth + 1)?;
        return Ok((expression, expect(')', rest)?));
    }
    let (name, after) = word(text);
    let after = after.trim_start();
    match name {
        "count" if after.starts_with('(') || word(after).0 == "by" => {
            let (mut by, rest) = grouping(after)?;
            let rest = expect('(', rest)?;
            let (of, rest) = conjunction(rest, depth + 1)?;
            let mut rest = expect(')', rest)?;
            if by.is_empty() {
                (by, rest) = grouping(rest)?;
            }
            Ok((Expression::Count(by, Box::new(of)), rest))
        }
        "topk" if after.starts_with('(') => {
            let rest = expect('(', after)?;
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = rest.split_at(digits);
            let most =
                number.parse().map_err(|error| format!("topk wants a whole number: {error}"))?;
            let rest = expect(',', rest.trim_start())?;
            let (of, rest) = conjunction(rest, depth + 1)?;
            Ok((Expression::TopK(most, Box::new(of)), expect(')', rest)?))
        }
        _ if after.starts_with('(') && !name.is_empty() => Err(format!(
            "this server keeps raw samples and evaluates no `{name}(…)`: selectors, count, topk \
             and `and` are what it answers"
        )),
        _ => {
            let (selector, rest) = selector(text)?;
            Ok((Expression::Select(selector), rest))
        }
    }
}

/// Reads `by (…)`, where it is there.
fn grouping(text: &str) -> Read<'_, Vec<String>> {
    let ("by", rest) = word(text) else { return Ok((Vec::new(), text)) };
    let mut rest = expect('(', rest.trim_start())?;
    let mut by = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return Ok((by, after.trim_start()));
        }
        let (name, after) = match word(rest) {
            ("", _) => quoted(rest)?,
            (name, after) => (name.to_owned(), after),
        };
        by.push(name);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

fn expect(sign: char, text: &str) -> Result<&str, String> {
    text.strip_prefix(sign)
        .map(str::trim_start)
        .ok_or_else(|| format!("expected `{sign}`, got `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four series: x of two jobs and two codes each, of the values 1 to 4.
    fn latest(selector: &Selector) -> Vector {
        let mut value = 0.0;
        let mut all = Vec::new();
        for job in ["a", "b"] {
            for code in ["200", "503"] {
                value += 1.0;
                all.push((
                    Labels::new([("__name__", "x_total"), ("job", job), ("code", code)]),
                    value,
                ));
            }
        }
        all.retain(|(labels, _)| selector.matches(labels));
        all
    }

    fn check(query: &str, expected: &[(&[(&str, &str)], f64)]) {
        let Ok(Query::Vector(expression)) = parse(query) else { panic!("{query} is no vector") };
        let expected: Vector = expected
            .iter()
            .map(|(labels, value)| (Labels::new(labels.iter().copied()), *value))
            .collect();
        assert_eq!(expression.value(&latest), expected, "{query}");
    }

    #[test]
    fn what_the_doctor_asks_is_answered() {
        check("count(x_total)", &[(&[], 4.0)]);
        check("count(y_total)", &[]);
        let by_job: &[(&[(&str, &str)], f64)] = &[(&[("job", "a")], 2.0), (&[("job", "b")], 2.0)];
        check("count by (job) (x_total)", by_job);
        check("count(x_total) by (job)", by_job);
        check("count(count by (job, \"code\") (x_total{code=\"503\"}))", &[(&[], 2.0)]);
        let largest = [("__name__", "x_total"), ("job", "b"), ("code", "503")];
        check("topk(1, {__name__=\"x_total\"})", &[(&largest, 4.0)]);
        check("count(x_total and x_total{job=\"a\"})", &[(&[], 2.0)]);
        check(
            "count(count by (job) (x_total) and count by (job) (x_total{job=\"b\"}))",
            &[(&[], 1.0)],
        );
    }

    #[test]
    fn a_range_is_read_and_what_cannot_be_answered_is_refused_with_a_reason() {
        assert!(matches!(parse(" time() "), Ok(Query::Time)));
        assert!(matches!(parse("x[1m30s]"), Ok(Query::Range(_, 90.0))));
        for query in [
            "rate(x_total[1m])",
            "count(x_total[1m])",
            "topk(x_total)",
            "count by (job (x)",
            "sum(x_total)",
            "x_total[",
            "x_total[5x]",
            "x_total y_total",
            "{}",
            "x{a=b}",
            "x{a=\"b",
        ] {
            assert!(parse(query).is_err(), "{query}");
        }
        assert!(parse(&"(".repeat(100_000)).is_err());
        let says = parse("rate(x_total[1m])").unwrap_err();
        assert!(says.contains("evaluates no `rate(…)`"), "{says}");
    }
}
