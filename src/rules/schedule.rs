//! The schedule rule: one client library's retry policy, as a file of its own.
//!
//! A rule is data that a person can check: it says where its numbers were read, what to change in
//! that library, and the waits that must come out (`cases`), which are run before it is taken.
//!
//! # Example
//!
//! An in-house client takes five lines:
//!
//! ```
//! use squall::rules::schedule::ScheduleRule;
//!
//! let rule = ScheduleRule::parse(
//!     "id: checkout-client\n\
//!      name: Checkout's own HTTP client\n\
//!      policy: {family: exponential, base: 200ms, factor: 2, cap: 10s, attempts: 6}\n\
//!      cases:\n\
//!      - waits: [0.2, 0.4, 0.8, 1.6, 3.2]\n",
//! )
//! .map_err(|faults| faults[0].clone())?;
//! assert_eq!(rule.policy.says(), "200ms x2 up to 10s, 5 retries, no jitter");
//! # Ok::<(), squall::rules::spanned::Fault>(())
//! ```

use super::policy::{CapOrder, Family, Growth, Jitter, Policy, Spread};
use super::spanned::{Fault, Faults, Fields, Node, parse};

/// How far a case's wait may be from the policy's: the digits people write, not a real difference.
const CASE_TOLERANCE: f64 = 0.005;

/// What kind of program the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientKind {
    /// A vendor's client library.
    Sdk,
    /// An HTTP client.
    HttpClient,
    /// A library that retries anything.
    RetryLibrary,
    /// Remote procedure calls.
    Rpc,
    /// A proxy or gateway.
    Proxy,
    /// A database client.
    Database,
    /// A client of a message broker.
    Messaging,
    /// A connection that is taken up again.
    Reconnect,
    /// A controller that restarts or reconciles.
    Controller,
    /// A job queue or workflow scheduler.
    Scheduler,
    /// Below the application: kernel, resolver.
    System,
    /// The user's own.
    InHouse,
}

impl ClientKind {
    /// Every kind with its fixed name.
    pub const WORDS: [(&'static str, Self); 12] = [
        ("sdk", Self::Sdk),
        ("http-client", Self::HttpClient),
        ("retry-library", Self::RetryLibrary),
        ("rpc", Self::Rpc),
        ("proxy", Self::Proxy),
        ("database", Self::Database),
        ("messaging", Self::Messaging),
        ("reconnect", Self::Reconnect),
        ("controller", Self::Controller),
        ("scheduler", Self::Scheduler),
        ("system", Self::System),
        ("in-house", Self::InHouse),
    ];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// Where the numbers of a rule were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// In the library's source at the version named.
    Source,
    /// In its documentation.
    Documentation,
    /// Told by its users.
    Hearsay,
}

impl Confidence {
    /// Every confidence with its fixed name.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("source", Self::Source),
        ("documentation", Self::Documentation),
        ("hearsay", Self::Hearsay),
    ];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, c)| *c == self).map_or("", |(word, _)| word)
    }
}

/// One check that a rule carries.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The line it stands on, from 1.
    pub line: usize,
    /// The planned waits of the first retries, seconds.
    pub waits_seconds: Vec<f64>,
    /// Whether there is no retry after these.
    pub ends: bool,
    /// Shortest and longest wait of the first retries, seconds; empty where not checked.
    pub ranges_seconds: Vec<[f64; 2]>,
}

/// One client library's retry schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRule {
    /// Its fixed id.
    pub id: String,
    /// The library, and the part of it that retries.
    pub name: String,
    /// The language or product family.
    pub ecosystem: String,
    /// What kind of program it is.
    pub kind: ClientKind,
    /// The version whose text was read.
    pub version: String,
    /// Where: repository, path, constant.
    pub reference: String,
    /// How sure the numbers are.
    pub confidence: Confidence,
    /// What else there is to know of it; may be empty.
    pub note: String,
    /// Its behaviour.
    pub policy: Policy,
    /// The setting to change in this library; may be empty.
    pub remedy: String,
    /// Its own checks.
    pub cases: Vec<Case>,
}

impl ScheduleRule {
    /// Reads one rule file and runs its cases.
    ///
    /// # Errors
    ///
    /// Every fault of the file, by line.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let node = parse(text).map_err(|fault| vec![fault])?;
        let faults = Faults::default();
        let rule = Self::read(&node, "", &faults);
        match rule {
            Some(rule) if faults.is_empty() => Ok(rule),
            _ => Err(faults.into_sorted()),
        }
    }

    /// Reads a rule from a node of a larger file; faults go to `faults`.
    #[must_use]
    pub fn read(node: &Node, path: &str, faults: &Faults) -> Option<Self> {
        let mut fields = Fields::open(node, path, faults)?;
        let id = fields.required_text("id");
        if let Some(id) = &id {
            check_id(id, &fields);
        }
        let name = fields.required_text("name");
        let ecosystem = fields.text("ecosystem").unwrap_or_default();
        let kind = fields.one_of("kind", &ClientKind::WORDS).unwrap_or(ClientKind::InHouse);
        let version = fields.text("version").unwrap_or_default();
        let reference = fields.text("reference").unwrap_or_default();
        let confidence =
            fields.one_of("confidence", &Confidence::WORDS).unwrap_or(Confidence::Source);
        let note = fields.text("note").unwrap_or_default();
        let remedy = fields.text("remedy").unwrap_or_default();
        let policy = match fields.node("policy") {
            Some(node) => read_policy(node, &fields.path_of("policy"), faults),
            None => {
                fields.fault("policy", "is missing");
                None
            }
        };
        let cases_path = fields.path_of("cases");
        let mut cases = Vec::new();
        for (index, node) in (0..).zip(fields.list("cases").unwrap_or_default()) {
            let path = format!("{cases_path}[{index}]");
            if let Some(case) = read_case(node, &path, faults) {
                if let Some(policy) = &policy {
                    run_case(&case, policy, &path, faults);
                }
                cases.push(case);
            }
        }
        fields.finish();
        Some(Self {
            id: id?,
            name: name?,
            ecosystem,
            kind,
            version,
            reference,
            confidence,
            note,
            policy: policy?,
            remedy,
            cases,
        })
    }
}

/// Ids stand in URLs, labels and file names: lower case, digits and hyphens.
pub(super) fn check_id(id: &str, fields: &Fields<'_>) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !id.chars().all(plain) || id.starts_with('-') || id.ends_with('-') || id.len() > 64 {
        fields.fault(
            "id",
            format!("must be at most 64 lower-case letters, digits and hyphens, got `{id}`"),
        );
    }
}

fn read_policy(node: &Node, path: &str, faults: &Faults) -> Option<Policy> {
    let mut fields = Fields::open(node, path, faults)?;
    if !fields.has("family") {
        fields.fault("family", "is missing");
    }
    let family = fields.one_of("family", &Family::WORDS);
    let growth = family.and_then(|family| read_growth(family, &mut fields));
    let cap_seconds = fields.seconds("cap");
    let cap_order = fields.one_of("cap_applies", &CapOrder::WORDS);
    let attempts_max = fields.count("attempts");
    let immediate_retries = fields.count("immediate_retries").unwrap_or(0);
    let jitter = match fields.node("jitter") {
        None => Some(Jitter::NONE),
        Some(node) => read_jitter(node, &fields.path_of("jitter"), faults),
    };
    if attempts_max == Some(0) {
        fields.fault("attempts", "counts the first attempt, so it is at least 1");
    }
    if attempts_max.is_some_and(|attempts| attempts <= immediate_retries) && immediate_retries > 0 {
        fields.fault("immediate_retries", "must be fewer than the attempts");
    }
    if cap_seconds.is_some_and(|cap| cap <= 0.0) {
        fields.fault("cap", "must be above 0");
    }
    if let (Some(cap), Some(Growth::Exponential { base_seconds, .. })) = (cap_seconds, &growth)
        && cap < *base_seconds
    {
        fields.fault("cap", "must not be below the base");
    }
    fields.finish();
    Some(Policy {
        immediate_retries,
        growth: growth?,
        cap_seconds,
        cap_order: cap_order.unwrap_or(CapOrder::BeforeJitter),
        attempts_max,
        jitter: jitter?,
    })
}

fn read_growth(family: Family, fields: &mut Fields<'_>) -> Option<Growth> {
    Some(match family {
        Family::Immediate => Growth::Immediate,
        Family::ServerSent => Growth::ServerSent,
        Family::Fixed => Growth::Fixed { base_seconds: positive(fields, "base")? },
        Family::Exponential => {
            let base = positive(fields, "base");
            let factor = required_number(fields, "factor");
            if factor.is_some_and(|factor| factor <= 1.0) {
                fields.fault("factor", "must be above 1; a factor of 1 is the family `fixed`");
            }
            Growth::Exponential { base_seconds: base?, factor: factor? }
        }
        Family::Linear => {
            let base = positive(fields, "base");
            let step_seconds = fields.seconds("step").or(base);
            Growth::Linear { base_seconds: base?, step_seconds: step_seconds? }
        }
        Family::Polynomial => {
            let base = positive(fields, "base");
            let offset_seconds = fields.seconds("offset").unwrap_or(0.0);
            let power = required_number(fields, "power");
            if power.is_some_and(|power| power <= 0.0) {
                fields.fault("power", "must be above 0");
            }
            let start = f64::from(fields.count("start").unwrap_or(1));
            Growth::Polynomial { offset_seconds, base_seconds: base?, power: power?, start }
        }
        Family::List | Family::Custom => {
            if !fields.has("waits") {
                fields.fault("waits", "is missing");
            }
            let waits = fields.seconds_list("waits");
            if waits.as_ref().is_some_and(Vec::is_empty) {
                fields.fault("waits", "must hold at least one wait");
                return None;
            }
            let formula = match family {
                Family::Custom => Some(fields.required_text("formula")?),
                _ => None,
            };
            Growth::List { waits_seconds: waits?, formula }
        }
    })
}

fn positive(fields: &mut Fields<'_>, key: &'static str) -> Option<f64> {
    if !fields.has(key) {
        fields.fault(key, "is missing");
        return None;
    }
    let value = fields.seconds(key)?;
    if value <= 0.0 {
        fields.fault(key, "must be above 0; retries without a wait are the family `immediate`");
        return None;
    }
    Some(value)
}

fn required_number(fields: &mut Fields<'_>, key: &'static str) -> Option<f64> {
    if !fields.has(key) {
        fields.fault(key, "is missing");
    }
    fields.number(key)
}

/// The forms of the key `jitter`: a word, or a mapping with `kind`.
fn read_jitter(node: &Node, path: &str, faults: &Faults) -> Option<Jitter> {
    if let Some(word) = node.scalar() {
        return match word {
            "none" => Some(Jitter::NONE),
            "equal" => Some(Jitter::scaled(Spread::Equal, [0.5, 1.0])),
            "full" => Some(Jitter::scaled(Spread::Full, [0.0, 1.0])),
            "decorrelated" => Some(Jitter::scaled(Spread::Decorrelated, [1.0, 3.0])),
            _ => {
                let says = "must be none, equal, full, decorrelated, or a mapping with `kind`";
                faults.add(node.line, path, format!("{says}, got `{word}`"));
                None
            }
        };
    }
    let mut fields = Fields::open(node, path, faults)?;
    if !fields.has("kind") {
        fields.fault("kind", "is missing");
    }
    let spread = fields.one_of("kind", &Spread::WORDS);
    let scale = pair(&mut fields, "scale", true);
    let seconds = pair(&mut fields, "seconds", false);
    let seconds_per_retry = pair(&mut fields, "seconds_per_retry", false);
    let jitter = Jitter {
        spread: spread.unwrap_or(Spread::None),
        scale: scale.unwrap_or(match spread {
            Some(Spread::Equal) => [0.5, 1.0],
            Some(Spread::Full) => [0.0, 1.0],
            _ => [1.0, 1.0],
        }),
        seconds: seconds.unwrap_or([0.0, 0.0]),
        seconds_per_retry: seconds_per_retry.unwrap_or([0.0, 0.0]),
        lower_seconds: fields.seconds("lower").unwrap_or(0.0),
        floor_seconds: fields.seconds("floor").unwrap_or(0.0),
        grid_seconds: fields.seconds("grid").unwrap_or(0.0),
        first_retry: fields.count("first_retry").unwrap_or(1).max(1),
        none_at_cap: fields.flag("none_at_cap").unwrap_or(false),
        compounds: fields.flag("compounds").unwrap_or(false),
        drawn_once: fields.flag("drawn_once").unwrap_or(false),
    };
    match spread {
        Some(Spread::Proportional) if scale.is_none() => {
            fields
                .fault("scale", "is missing: the lowest and highest multiple, such as [0.8, 1.2]");
        }
        Some(Spread::Additive) if seconds.is_none() && seconds_per_retry.is_none() => {
            fields.fault("seconds", "is missing: the fewest and most seconds added");
        }
        _ => {}
    }
    fields.finish();
    spread.map(|_| jitter)
}

/// Two numbers, the lower first.
fn pair(fields: &mut Fields<'_>, key: &'static str, positive: bool) -> Option<[f64; 2]> {
    let numbers = fields.number_list(key)?;
    match numbers[..] {
        [low, high] if low <= high && (low >= 0.0 || !positive) => Some([low, high]),
        _ => {
            fields.fault(key, "must be two numbers, the lower first");
            None
        }
    }
}

fn read_case(node: &Node, path: &str, faults: &Faults) -> Option<Case> {
    let mut fields = Fields::open(node, path, faults)?;
    let line = fields.line();
    let waits_seconds = fields.seconds_list("waits");
    let ends = fields.flag("ends").unwrap_or(false);
    let mut ranges_seconds = Vec::new();
    let ranges_path = fields.path_of("ranges");
    for (index, node) in (0..).zip(fields.list("ranges").unwrap_or_default()) {
        let read = read_range(node, &format!("{ranges_path}[{index}]"), faults);
        ranges_seconds.push(read?);
    }
    if !fields.has("waits") && ranges_seconds.is_empty() {
        fields.fault("waits", "a case needs `waits` or `ranges`");
    }
    fields.finish();
    Some(Case { line, waits_seconds: waits_seconds.unwrap_or_default(), ends, ranges_seconds })
}

fn read_range(node: &Node, path: &str, faults: &Faults) -> Option<[f64; 2]> {
    let super::spanned::Value::Sequence(items) = &node.value else {
        faults.add(node.line, path, "must be two durations, the shorter first");
        return None;
    };
    let read: Vec<f64> = items
        .iter()
        .filter_map(|item| item.scalar().and_then(super::spanned::parse_seconds))
        .collect();
    match read[..] {
        [low, high] if low <= high && items.len() == 2 => Some([low, high]),
        _ => {
            faults.add(node.line, path, "must be two durations, the shorter first");
            None
        }
    }
}

fn run_case(case: &Case, policy: &Policy, path: &str, faults: &Faults) {
    let count = u32::try_from(case.waits_seconds.len()).unwrap_or(u32::MAX);
    let got = policy.waits(count.saturating_add(1));
    for (index, want) in case.waits_seconds.iter().enumerate() {
        match got.get(index) {
            Some(wait) if near(*wait, *want) => {}
            Some(wait) => {
                let says = format!("wait {} should be {want} s and is {wait} s", index + 1);
                faults.add(case.line, path, says);
            }
            None => {
                let says = format!("wait {} should be {want} s and there is none", index + 1);
                faults.add(case.line, path, says);
            }
        }
    }
    if case.ends && got.len() > case.waits_seconds.len() {
        let says = format!("should end after {} retries and goes on", case.waits_seconds.len());
        faults.add(case.line, path, says);
    }
    let mut previous = None;
    for (retry, want) in (1..).zip(&case.ranges_seconds) {
        let got = policy.range(retry, previous);
        if !got.is_some_and(|got| near(got[0], want[0]) && near(got[1], want[1])) {
            let says = format!("range {retry} should be {want:?} s and is {got:?} s");
            faults.add(case.line, path, says);
        }
        previous = policy.nominal_wait(retry);
    }
}

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() <= CASE_TOLERANCE.mul_add(want.abs(), 1e-6)
}
