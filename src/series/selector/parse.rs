//! The parser of selectors: one pass, no tree, since a plain selector has none.
//!
//! It recognises just enough of the rest of PromQL to say what it is that it refuses.

use std::time::Duration;

use super::{InvalidSelector, MatchOp, Matcher, SELECTOR_BYTES_MAX, Selector, SelectorFault};

/// Functions whose window is a low-pass filter on the counter.
const RATES: &[&str] = &["rate", "irate", "increase", "delta", "idelta", "deriv", "rate_over_sum"];

const AGGREGATIONS: &[&str] = &[
    "sum",
    "avg",
    "min",
    "max",
    "count",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "quantile",
    "count_values",
    "limitk",
    "limit_ratio",
];

/// Parses a Prometheus duration such as `15s`, `1h30m` or `500ms`; units must descend.
///
/// ```
/// use squall::series::selector::parse_duration;
/// assert_eq!(parse_duration("1h30m"), Some(std::time::Duration::from_secs(5400)));
/// assert_eq!(parse_duration("30m1h"), None);
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 7] = [
        ("y", 31_536_000_000),
        ("w", 604_800_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    let mut next_unit = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let index = UNITS.iter().position(|(unit, _)| *unit == &rest[..letters])?;
        if index < next_unit {
            return None;
        }
        next_unit = index + 1;
        millis = millis.checked_add(number.checked_mul(UNITS[index].1)?)?;
        rest = &rest[letters..];
    }
    Some(Duration::from_millis(millis))
}

/// Writes a duration as Prometheus does, the largest units first: `1h30m`, `1m500ms`.
///
/// ```
/// use squall::series::selector::format_duration;
/// assert_eq!(format_duration(std::time::Duration::from_millis(90_500)), "1m30s500ms");
/// ```
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
    {
        let number = millis / size;
        millis %= size;
        if number > 0 {
            text.push_str(&number.to_string());
            text.push_str(unit);
        }
    }
    text
}

pub(super) fn selector(text: &str) -> Result<Selector, InvalidSelector> {
    let mut parser = Parser { text, at: 0 };
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(parser.fault(SelectorFault::TooLong));
    }
    parser.skip_blank();
    let start = parser.at;
    let mut name = None;
    let word = parser.word(true);
    if !word.is_empty() {
        parser.refuse_expression(word, start)?;
        name = Some(word.to_owned());
        parser.skip_blank();
    }
    let mut matchers = Vec::new();
    if parser.peek() == Some('{') {
        parser.at += 1;
        parser.braces(&mut name, &mut matchers)?;
    } else if name.is_none() {
        return Err(parser.refuse_start());
    }
    parser.skip_blank();
    parser.refuse_rest()?;
    let selects_something = name.is_some() || matchers.iter().any(|m| !m.accepts(""));
    if !selects_something {
        parser.at = start;
        return Err(parser.fault(SelectorFault::MatchesEverything));
    }
    Ok(Selector { name, matchers })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn fault(&self, fault: SelectorFault) -> InvalidSelector {
        let position = self.text[..self.at].chars().count() + 1;
        InvalidSelector { position, fault, window: None }
    }

    fn expected(&self, what: &'static str) -> InvalidSelector {
        self.fault(SelectorFault::Syntax(what))
    }

    /// Skips white space and `#` comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn word(&mut self, colons: bool) -> &'a str {
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return "";
        }
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':')))
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// A function call or an aggregation that starts with `word`.
    fn refuse_expression(&mut self, word: &str, start: usize) -> Result<(), InvalidSelector> {
        let after_word = self.at;
        self.skip_blank();
        let called = self.peek() == Some('(');
        let lower = word.to_ascii_lowercase();
        let grouped = AGGREGATIONS.contains(&lower.as_str()) && {
            let rest = self.rest().to_ascii_lowercase();
            ["by", "without"].iter().any(|keyword| {
                rest.strip_prefix(keyword).is_some_and(|after| after.trim_start().starts_with('('))
            })
        };
        self.at = after_word;
        if !(called || grouped) {
            return Ok(());
        }
        self.at = start;
        let fault = if RATES.contains(&lower.as_str()) || lower.ends_with("_over_time") {
            SelectorFault::Rate(lower)
        } else if AGGREGATIONS.contains(&lower.as_str()) {
            SelectorFault::Aggregation(lower)
        } else {
            SelectorFault::Function(lower)
        };
        let mut refused = self.fault(fault);
        refused.window = rate_window(self.rest());
        Err(refused)
    }

    /// Something that is neither a name nor a brace.
    fn refuse_start(&self) -> InvalidSelector {
        match self.peek() {
            None => self.expected("a metric name"),
            Some('(' | '+' | '-' | '0'..='9') => {
                let mut refused = self.fault(SelectorFault::Arithmetic);
                refused.window = rate_window(self.rest());
                refused
            }
            Some(_) => self.expected("a metric name or `{`"),
        }
    }

    /// Whatever follows a complete selector.
    fn refuse_rest(&mut self) -> Result<(), InvalidSelector> {
        let rest = self.rest();
        let Some(next) = rest.chars().next() else { return Ok(()) };
        let fault = match next {
            '[' => {
                let inside = &rest[..rest.find(']').unwrap_or(rest.len())];
                if inside.contains(':') { SelectorFault::Subquery } else { SelectorFault::Range }
            }
            '@' => SelectorFault::Shift,
            '+' | '-' | '*' | '/' | '%' | '^' | '=' | '!' | '<' | '>' => SelectorFault::Arithmetic,
            _ => {
                let start = self.at;
                let word = self.word(false).to_ascii_lowercase();
                self.at = start;
                match word.as_str() {
                    "offset" => SelectorFault::Shift,
                    "and" | "or" | "unless" | "atan2" => SelectorFault::Arithmetic,
                    _ => SelectorFault::Syntax("the end of the selector"),
                }
            }
        };
        let mut refused = self.fault(fault);
        refused.window = rate_window(rest);
        Err(refused)
    }

    /// What stands between the braces, the opening one already taken.
    fn braces(
        &mut self,
        name: &mut Option<String>,
        matchers: &mut Vec<Matcher>,
    ) -> Result<(), InvalidSelector> {
        loop {
            self.skip_blank();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return Ok(());
                }
                None => return Err(self.expected("`}`")),
                Some(_) => {}
            }
            let start = self.at;
            let quoted = matches!(self.peek(), Some('"' | '\''));
            let label = if quoted { self.quoted()? } else { self.word(false).to_owned() };
            if label.is_empty() {
                return Err(self.expected("a label name"));
            }
            self.skip_blank();
            if quoted && matches!(self.peek(), Some(',' | '}')) {
                if name.is_some() {
                    self.at = start;
                    return Err(self.expected("one metric name, not two"));
                }
                *name = Some(label);
            } else {
                matchers.push(self.matcher(label)?);
            }
            self.skip_blank();
            match self.peek() {
                Some(',') => self.at += 1,
                Some('}') => {}
                _ => return Err(self.expected("`,` or `}`")),
            }
        }
    }

    fn matcher(&mut self, label: String) -> Result<Matcher, InvalidSelector> {
        let rest = self.rest();
        let op = [MatchOp::Matches, MatchOp::NotMatches, MatchOp::NotEqual, MatchOp::Equal]
            .into_iter()
            .find(|op| rest.starts_with(op.as_str()))
            .ok_or_else(|| self.expected("`=`, `!=`, `=~` or `!~`"))?;
        self.at += op.as_str().len();
        self.skip_blank();
        let start = self.at;
        if !matches!(self.peek(), Some('"' | '\'' | '`')) {
            return Err(self.expected("a quoted value"));
        }
        let value = self.quoted()?;
        Matcher::new(label, op, value.clone()).map_err(|_cause| {
            self.at = start;
            self.fault(SelectorFault::Regex(value))
        })
    }

    /// A string in double, single or back quotes, with Go's escapes in the first two.
    fn quoted(&mut self) -> Result<String, InvalidSelector> {
        let Some(quote) = self.peek() else { return Err(self.expected("a quoted value")) };
        self.at += 1;
        let mut value = String::new();
        loop {
            let Some(next) = self.peek() else { return Err(self.expected("a closing quote")) };
            self.at += next.len_utf8();
            if next == quote {
                return Ok(value);
            }
            if next != '\\' || quote == '`' {
                value.push(next);
                continue;
            }
            let Some(escaped) = self.peek() else {
                return Err(self.expected("a closing quote"));
            };
            self.at += escaped.len_utf8();
            value.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                '\\' | '"' | '\'' => escaped,
                'x' => self.hex(2)?,
                'u' => self.hex(4)?,
                'U' => self.hex(8)?,
                _ => return Err(self.expected("an escape that Go knows")),
            });
        }
    }

    fn hex(&mut self, digits: usize) -> Result<char, InvalidSelector> {
        let code = self
            .rest()
            .get(..digits)
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .and_then(char::from_u32)
            .ok_or_else(|| self.expected("hexadecimal digits"))?;
        self.at += digits;
        Ok(code)
    }
}

/// The first window in brackets outside quotes.
fn rate_window(text: &str) -> Option<Duration> {
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(open), '\\') if open != '`' => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, '[') => {
                let inside = &text[index + 1..];
                let end = inside.find([']', ':'])?;
                return parse_duration(inside[..end].trim());
            }
            (None, _) => {}
        }
    }
    None
}
