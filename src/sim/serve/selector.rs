//! Selectors of PromQL: which series of the simulated scrapes are asked for.

use regex::Regex;

use crate::series::Labels;

/// Matchers on labels, `__name__` among them.
#[derive(Debug, Default)]
pub(super) struct Selector(Vec<(String, Match)>);

#[derive(Debug)]
enum Match {
    Equal(String),
    NotEqual(String),
    Like(Regex),
    NotLike(Regex),
}

impl Selector {
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|(name, matcher)| {
            let value = labels.get(name).unwrap_or("");
            match matcher {
                Match::Equal(wanted) => value == wanted,
                Match::NotEqual(unwanted) => value != unwanted,
                Match::Like(pattern) => pattern.is_match(value),
                Match::NotLike(pattern) => !pattern.is_match(value),
            }
        })
    }
}

/// Reads a selector at the start of a text, and returns what follows it; the error is what is wrong,
/// for the person who wrote it.
pub(super) fn selector(text: &str) -> Result<(Selector, &str), String> {
    let (name, after) = word(text);
    let mut selector = Selector::default();
    if !name.is_empty() {
        selector.0.push(("__name__".to_owned(), Match::Equal(name.to_owned())));
    }
    let mut rest = after.trim_start();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = matchers(inner, &mut selector)?.trim_start();
    }
    if selector.0.is_empty() {
        return Err("a selector needs a metric name or a matcher".to_owned());
    }
    Ok((selector, rest))
}

/// The name at the start of a text, which may be none, and what follows it.
pub(super) fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    text.split_at(end.unwrap_or(text.len()))
}

/// Reads matchers up to the closing brace, and returns what follows it.
fn matchers<'t>(mut rest: &'t str, selector: &mut Selector) -> Result<&'t str, String> {
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|end| *end > 0)
            .ok_or("expected a label name or `}`")?;
        let (name, after) = rest.split_at(end);
        let after = after.trim_start();
        let sign = ["=~", "!~", "!=", "="]
            .into_iter()
            .find(|sign| after.starts_with(sign))
            .ok_or_else(|| format!("expected =, !=, =~ or !~ after `{name}`"))?;
        let (value, after) = quoted(after[sign.len()..].trim_start())?;
        let pattern = || {
            Regex::new(&format!("^(?s:{value})$")).map_err(|error| format!("bad pattern: {error}"))
        };
        let matcher = match sign {
            "=~" => Match::Like(pattern()?),
            "!~" => Match::NotLike(pattern()?),
            "!=" => Match::NotEqual(value),
            _ => Match::Equal(value),
        };
        selector.0.push((name.to_owned(), matcher));
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Reads one quoted text, escapes resolved, and returns what follows it.
pub(super) fn quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    let quote = quote.ok_or("expected a quoted value")?;
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((value, &text[at + 1..]));
        }
        match c {
            '\\' if quote != '`' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(c),
        }
    }
    Err("a quoted value does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, labels: &[(&str, &str)], expected: bool) {
        let labels = Labels::new(labels.iter().copied());
        let (found, rest) = selector(query).unwrap_or_else(|says| panic!("{query}: {says}"));
        assert_eq!((found.matches(&labels), rest), (expected, ""), "{query}");
    }

    #[test]
    fn selectors_match_as_in_prometheus() {
        let series = [("__name__", "x_total"), ("job", "shop"), ("code", "503")];
        check("x_total", &series, true);
        check("y_total", &series, false);
        check("x_total{job=\"shop\", code=~\"5..\"}", &series, true);
        check("x_total{code=~\"5\"}", &series, false);
        check("{__name__=~'x.*',code!~\"2..\",}", &series, true);
        check("x_total{missing=\"\"}", &series, true);
        check("x_total{job!=\"shop\"}", &series, false);
    }
}
