//! The preset rule: where one telemetry convention keeps its request counters.
//!
//! A preset saves a person the selectors: which counter, which labels name the dependency and the
//! caller, which values are errors, and what one increment counts. It also says what that
//! convention gets wrong, since a counter flushed once a minute draws waves of its own.

use super::schedule::{Confidence, check_id};
use super::spanned::{Fault, Faults, Fields, Node, parse};

/// Whose side of the wire counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The program that calls.
    Client,
    /// A proxy or mesh between.
    Proxy,
    /// The dependency itself: no caller is known.
    Server,
}

impl Side {
    /// Every side with its fixed name.
    pub const WORDS: [(&'static str, Self); 3] =
        [("client", Self::Client), ("proxy", Self::Proxy), ("server", Self::Server)];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, side)| *side == self).map_or("", |(word, _)| word)
    }
}

/// What one increment of the request counter is when a client retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counts {
    /// Every attempt.
    Attempts,
    /// One for each request wanted: retries are hidden.
    Calls,
    /// It depends on how the instrumentation is wired.
    Depends,
    /// Connections, not requests.
    Connections,
}

impl Counts {
    /// Every meaning with its fixed name.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("attempts", Self::Attempts),
        ("calls", Self::Calls),
        ("depends", Self::Depends),
        ("connections", Self::Connections),
    ];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, counts)| *counts == self).map_or("", |(word, _)| word)
    }
}

/// When the counter moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountedAt {
    /// When the attempt begins.
    Start,
    /// When it ends: a hang is silence and then a burst.
    End,
}

impl CountedAt {
    /// Both with their fixed names.
    pub const WORDS: [(&'static str, Self); 2] = [("start", Self::Start), ("end", Self::End)];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, at)| *at == self).map_or("", |(word, _)| word)
    }
}

/// One telemetry convention.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its fixed id.
    pub id: String,
    /// The product that exports it.
    pub name: String,
    /// 1 is asked for by default, 2 is common, 3 needs an answer from the user.
    pub tier: u32,
    /// Whose side counts.
    pub side: Side,
    /// The version whose names these are.
    pub version: String,
    /// Where they were read.
    pub reference: String,
    /// How sure they are.
    pub confidence: Confidence,
    /// The counter of requests, a plain selector.
    pub requests: String,
    /// The counter of failed requests, a plain selector; none where failures are not counted.
    pub errors: Option<String>,
    /// Counters of retries that corroborate.
    pub retries: Vec<String>,
    /// The counter of requests wanted, retries not counted.
    pub calls: Option<String>,
    /// Counters of an open breaker or a spent budget.
    pub breakers: Vec<String>,
    /// Labels that name the dependency.
    pub by: Vec<String>,
    /// Labels that name the caller.
    pub client: Vec<String>,
    /// What one increment counts.
    pub counts: Counts,
    /// The same in a sentence.
    pub counts_note: String,
    /// When the counter moves.
    pub counted_at: CountedAt,
    /// A selector that finds something exactly where this convention is in use.
    pub probe: String,
    /// Periods of the exporter's own, seconds: no evidence of retries.
    pub flush_seconds: Vec<f64>,
    /// What goes wrong with it.
    pub pitfalls: Vec<String>,
}

impl Preset {
    /// Reads one preset file.
    ///
    /// # Errors
    ///
    /// Every fault of the file, by line.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let node = parse(text).map_err(|fault| vec![fault])?;
        let faults = Faults::default();
        let preset = Self::read(&node, "", &faults);
        match preset {
            Some(preset) if faults.is_empty() => Ok(preset),
            _ => Err(faults.into_sorted()),
        }
    }

    /// Reads a preset from a node of a larger file; faults go to `faults`.
    #[must_use]
    pub fn read(node: &Node, path: &str, faults: &Faults) -> Option<Self> {
        let mut fields = Fields::open(node, path, faults)?;
        let id = fields.required_text("id");
        if let Some(id) = &id {
            check_id(id, &fields);
        }
        let name = fields.required_text("name");
        let tier = fields.count("tier").unwrap_or(3);
        if !(1..=3).contains(&tier) {
            fields.fault("tier", "must be 1, 2 or 3");
        }
        let side = fields.one_of("side", &Side::WORDS).unwrap_or(Side::Client);
        let version = fields.text("version").unwrap_or_default();
        let reference = fields.text("reference").unwrap_or_default();
        let confidence =
            fields.one_of("confidence", &Confidence::WORDS).unwrap_or(Confidence::Source);
        let requests = selector(&mut fields, "requests", true);
        let errors = selector(&mut fields, "errors", false);
        let calls = selector(&mut fields, "calls", false);
        let retries = fields.text_list("retries").unwrap_or_default();
        check_plain(&retries, "retries", &fields);
        let breakers = fields.text_list("breakers").unwrap_or_default();
        check_plain(&breakers, "breakers", &fields);
        if !fields.has("by") {
            fields.fault("by", "is missing");
        }
        let by = labels(&mut fields, "by");
        let client = labels(&mut fields, "client");
        let counts = fields.one_of("counts", &Counts::WORDS).unwrap_or(Counts::Depends);
        let counts_note = fields.text("counts_note").unwrap_or_default();
        let counted_at = fields.one_of("counted_at", &CountedAt::WORDS).unwrap_or(CountedAt::End);
        let probe = selector(&mut fields, "probe", false).or_else(|| requests.clone());
        let flush_seconds = fields.seconds_list("flush").unwrap_or_default();
        let pitfalls = fields.text_list("pitfalls").unwrap_or_default();
        fields.finish();
        Some(Self {
            id: id?,
            name: name?,
            tier,
            side,
            version,
            reference,
            confidence,
            requests: requests?,
            errors,
            retries,
            calls,
            breakers,
            by,
            client,
            counts,
            counts_note,
            counted_at,
            probe: probe?,
            flush_seconds,
            pitfalls,
        })
    }
}

fn labels(fields: &mut Fields<'_>, key: &'static str) -> Vec<String> {
    let labels = fields.text_list(key).unwrap_or_default();
    for label in &labels {
        let mut letters = label.chars();
        let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !first || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            fields.fault(key, format!("`{label}` is not a label name"));
        }
    }
    labels
}

fn selector(fields: &mut Fields<'_>, key: &'static str, required: bool) -> Option<String> {
    let text = if required { fields.required_text(key) } else { fields.text(key) }?;
    check_plain(std::slice::from_ref(&text), key, fields);
    Some(text)
}

/// A first look only: the selector's own parser, in `series`, has the last word when it is used.
fn check_plain(selectors: &[String], key: &str, fields: &Fields<'_>) {
    for selector in selectors {
        // Outside of quotes a plain selector has no call, no range and no arithmetic.
        let outside: String = selector.split('"').step_by(2).collect();
        if outside.contains(['(', ')', '[', ']', '/', '+', '*']) || outside.contains(" - ") {
            fields.fault(
                key,
                format!("must be a plain counter selector, never rate(...) or a sum: `{selector}`"),
            );
        }
    }
}
