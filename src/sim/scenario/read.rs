//! Scenario files: YAML, checked like configuration, every fault at once.
//!
//! ```yaml
//! about: Two thousand clients fail together and come back on 1, 2, 4, 8 s without jitter.
//! duration: 5m
//! dependencies:
//! - name: payments
//!   faults: [{at: 120s, for: 30500ms}]
//! clients:
//! - {name: others, calls: payments, rate: 20}
//! - name: herd
//!   calls: payments
//!   size: 2000
//!   at: 120s
//!   within: 100ms
//!   retry: {schedule: exponential, base: 1s, factor: 2, cap: 32s, retries: 7}
//! ```
//!
//! # Keys
//!
//! Instants count from the start; a share is between 0 and 1. What is not given is off.
//!
//! | key | what |
//! | --- | --- |
//! | `about`, `duration`, `start` | a sentence; how long; the Unix time of the first instant |
//! | `expect` | what is right to say of it: `accept` (classes), `silence`, `onset`, `why`, `source` |
//!
//! A dependency:
//!
//! | key | what |
//! | --- | --- |
//! | `name`, `latency`, `refusal`, `errors`, `code` | its label; mean time to serve and to refuse; share that fails on a good day; the code of failures |
//! | `capacity`, `replicas`, `queue`, `changes` | requests per second of all replicas together; servers, each with its queue; longest wait in it; the capacity from an instant on, `[[5m, 300]]` |
//! | `knock_down` | `above` (per second), `burst`, `for`: overload takes it down |
//! | `shed` | `above`, `burst`, `code`, `retry_after`: what is turned away |
//! | `faults` | each `at`, `for`, `every`, `share` (to `share_end`), `hits` (populations), `how`: `refuse` (with `retry_after`), `black-hole`, `slow` (`times`) or `hold` |
//! | `contention` | `trip`, `spread`: clients contend for one record |
//! | `calls` | the population, `inner: true`, by which it calls the next dependency for each request |
//!
//! A population:
//!
//! | key | what |
//! | --- | --- |
//! | `name`, `calls`, `job` | its name; the dependency; the label of its targets |
//! | `rate` or `rates` | a stream of calls per second, or `[[0s, 50], [5m, 250]]` with straight lines between; with `dispersion` (variance over mean), `correlation` (of its red noise), `daily` (depth of the daily wave) |
//! | `trace` | a file beside the scenario, one line a call with its instant in seconds, or `instant,rate` lines as for `rates` |
//! | `size` | so many clients at once: `at`, `within`, `every`, `times`; or with `pause`, each in a loop: `at`, `within`, `until`, `spread` |
//! | `inner: true` | called by a dependency |
//! | `timeout` | when an attempt is given up |
//! | `budget`, `breaker`, `bulkhead`, `hedge`, `retries_end` | retries as a share of calls; `failures`, `open` of a breaker for each target; attempts in flight for each target; when a second attempt is sent beside the first; when retries are switched off |
//! | `retry` | the policy |
//!
//! A policy: `schedule` is `immediate`, `fixed` (`base`), `exponential` (`base`, `factor`), `linear`
//! (`base`, `step`), `polynomial` (`base`, `power`, `offset`) or `list` (`waits`), each with a `cap`;
//! or `rule` names a client library of `rules/schedules`. `jitter` is `none`, `full`, `equal`,
//! `decorrelated` or as `20%`; or `jitter_range` in multiples of the wait, `[0.8, 1.2]`; or
//! `jitter_added`, `[0s, 3s]`, which grows with the number of the retry by `jitter_grows`.
//! `jitter_before_cap` clamps the jittered wait. `retries`, `give_up_after` (since the first attempt)
//! and `honours_retry_after` go with all of them.
//!
//! The `scrape`: `interval`, `timeout`, `targets`, `scale` (their number over time), `uneven` (how
//! unlike they are), `missed`, `late`, `wobble`, `holes` (`at`, `for`), `restarts` (`at`, `stagger`,
//! `share`, `down`, `renamed`, `every`), `lazy` (series appear with their first request), `flush`
//! (of the exporter), `duplicated`, `out_of_order`, `clock_jumps` (`at`, `by_seconds`), `twin` (a
//! second scraper, told apart by a label), `flips` (two scrapers behind a layer that shows one),
//! `retry_counters` (clients count their retries and calls, too).

use std::io;

use super::{Expect, Replicas, Restart, Scenario, ScrapePlan};
use crate::rules::Rules;
use crate::rules::spanned::{Fault as Mistake, Faults, Fields, Node, Value, parse, parse_seconds};

mod clients;
mod dependencies;
mod trace;
mod whole;

/// Longest scenario, seconds: a month. Longer ones are a slip of a unit.
const DURATION_SECONDS_MAX: f64 = 31.0 * 86_400.0;

/// Most targets: each has its own counters and series.
const TARGETS_MAX: u32 = 10_000;

/// Shortest time from one repetition to the next, seconds: nothing may repeat within an instant.
const EVERY_SECONDS_MIN: f64 = 0.001;

/// Most clients of one population: each that waits takes about a hundred bytes.
const SIZE_MAX: u32 = 10_000_000;

impl Scenario {
    /// Reads a scenario that names no other file; `name` is that of its file, without the ending.
    ///
    /// # Errors
    ///
    /// Every fault of the text, by line.
    pub fn parse(name: &str, text: &str, rules: &Rules) -> Result<Self, Vec<Mistake>> {
        let nowhere = |_: &str| Err(io::Error::other("no other file can be read from here"));
        Self::parse_with(name, text, rules, &nowhere)
    }

    /// The same, with the files that it names, which `open` reads as text.
    ///
    /// # Errors
    ///
    /// Every fault of the text and of what it names, by line.
    pub fn parse_with(
        name: &str,
        text: &str,
        rules: &Rules,
        open: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<Self, Vec<Mistake>> {
        let node = parse(text).map_err(|fault| vec![fault])?;
        let faults = Faults::default();
        let scenario = read(name, &node, rules, open, &faults);
        match scenario {
            Some(scenario) if faults.is_empty() => Ok(scenario),
            _ => Err(faults.into_sorted()),
        }
    }
}

/// What a part of a scenario may refer to.
struct Context<'a> {
    /// Names, also of what is defined further down.
    dependencies: Vec<String>,
    clients: Vec<String>,
    rules: &'a Rules,
    open: &'a dyn Fn(&str) -> io::Result<String>,
}

fn read(
    name: &str,
    node: &Node,
    rules: &Rules,
    open: &dyn Fn(&str) -> io::Result<String>,
    faults: &Faults,
) -> Option<Scenario> {
    let mut fields = Fields::open(node, "", faults)?;
    let mut scenario = Scenario::new(name, 0.0);
    scenario.about = fields.required_text("about").unwrap_or_default();
    match fields.seconds("duration") {
        Some(seconds) if seconds > 0.0 && seconds <= DURATION_SECONDS_MAX => {
            scenario.duration_seconds = seconds;
        }
        Some(_) => fields.fault("duration", "must be above 0 and at most 31 days"),
        None => {
            if !fields.has("duration") {
                fields.fault("duration", "is missing");
            }
        }
    }
    if let Some(start) = fields.number("start") {
        scenario.start_unix_seconds = start;
    }
    let dependency_nodes = fields.list("dependencies").unwrap_or_default();
    let client_nodes = fields.list("clients").unwrap_or_default();
    if dependency_nodes.is_empty() {
        fields.fault("dependencies", "at least one is needed");
    }
    if client_nodes.is_empty() {
        fields.fault("clients", "at least one population is needed");
    }
    let context = Context {
        dependencies: names_of(dependency_nodes),
        clients: names_of(client_nodes),
        rules,
        open,
    };
    for (index, node) in dependency_nodes.iter().enumerate() {
        let path = format!("dependencies[{index}]");
        scenario.dependencies.extend(dependencies::dependency(node, &path, &context, faults));
    }
    for (index, node) in client_nodes.iter().enumerate() {
        let path = format!("clients[{index}]");
        scenario.clients.extend(clients::population(node, &path, &context, faults));
    }
    if let Some(node) = fields.node("scrape") {
        scenario.scrape = scrape(node, faults).unwrap_or_default();
    }
    if let Some(node) = fields.node("expect") {
        scenario.expect = expect(node, faults).unwrap_or_default();
    }
    fields.finish();
    if faults.is_empty() {
        whole::check(&scenario, dependency_nodes, client_nodes, faults);
    }
    Some(scenario)
}

fn names_of(nodes: &[Node]) -> Vec<String> {
    let name = |node: &Node| match &node.value {
        Value::Mapping(entries) => entries
            .iter()
            .find(|entry| entry.key == "name")
            .and_then(|entry| entry.node.scalar().map(ToOwned::to_owned)),
        _ => None,
    };
    nodes.iter().map(|node| name(node).unwrap_or_default()).collect()
}

/// The index of a name that `key` refers to.
fn reference(fields: &mut Fields<'_>, key: &'static str, names: &[String]) -> Option<usize> {
    let wanted = fields.text(key)?;
    let found = names.iter().position(|name| *name == wanted);
    if found.is_none() {
        fields.fault(key, format!("no such name: `{wanted}`; known: {}", names.join(", ")));
    }
    found
}

/// A number in a range, or the default where it is not given.
fn within(fields: &mut Fields<'_>, key: &'static str, low: f64, high: f64, default: f64) -> f64 {
    match fields.number(key) {
        Some(value) if value >= low && value <= high => value,
        Some(_) => {
            let says = if high.is_finite() {
                format!("must be between {low} and {high}")
            } else {
                format!("must be at least {low}")
            };
            fields.fault(key, says);
            default
        }
        None => default,
    }
}

fn share(fields: &mut Fields<'_>, key: &'static str, default: f64) -> f64 {
    within(fields, key, 0.0, 1.0, default)
}

fn seconds(fields: &mut Fields<'_>, key: &'static str, default: f64) -> f64 {
    fields.seconds(key).unwrap_or(default)
}

/// Seconds that must not be fewer than `low`.
fn at_least(fields: &mut Fields<'_>, key: &'static str, low: f64, default: f64) -> f64 {
    let given = seconds(fields, key, default);
    if given < low {
        fields.fault(key, format!("must be at least {}ms", low * 1000.0));
    }
    given.max(low)
}

fn required_seconds(fields: &mut Fields<'_>, key: &'static str) -> f64 {
    if !fields.has(key) {
        fields.fault(key, "is missing");
    }
    seconds(fields, key, 0.0)
}

fn each<T>(
    fields: &mut Fields<'_>,
    key: &'static str,
    read: impl Fn(&Node, &str) -> Option<T>,
) -> Vec<T> {
    let path = fields.path_of(key);
    let nodes = fields.list(key).unwrap_or_default();
    let read_one = |(index, node): (usize, &Node)| read(node, &format!("{path}[{index}]"));
    nodes.iter().enumerate().filter_map(read_one).collect()
}

/// Pairs of an instant and a value: `[[0s, 50], [300s, 250]]`.
fn points(fields: &mut Fields<'_>, key: &'static str, faults: &Faults) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = each(fields, key, |node, path| {
        let pair = match &node.value {
            Value::Sequence(items) if items.len() == 2 => Some((&items[0], &items[1])),
            _ => None,
        };
        let read = pair.and_then(|(at, value)| {
            let value: f64 = value.scalar()?.parse().ok()?;
            Some((parse_seconds(at.scalar()?)?, value)).filter(|(_, value)| *value >= 0.0)
        });
        if read.is_none() {
            faults.add(node.line, path, "must be a pair of a duration and a number, [90s, 50]");
        }
        read
    });
    if points.windows(2).any(|pair| pair[1].0 <= pair[0].0) {
        fields.fault(key, "the instants must rise");
    }
    points
}

fn scrape(node: &Node, faults: &Faults) -> Option<ScrapePlan> {
    let mut fields = Fields::open(node, "scrape", faults)?;
    let usual = ScrapePlan::default();
    let replicas = match fields.seconds("flips") {
        Some(every_seconds) if every_seconds >= EVERY_SECONDS_MIN => {
            Replicas::Flipping { every_seconds }
        }
        Some(_) => {
            fields.fault("flips", "must be at least 1ms");
            Replicas::One
        }
        None if fields.flag("twin") == Some(true) => Replicas::Labelled,
        None => Replicas::One,
    };
    // Known whatever the branch above.
    let _ = fields.has("twin");
    let plan = ScrapePlan {
        interval_seconds: seconds(&mut fields, "interval", usual.interval_seconds),
        targets: within(&mut fields, "targets", 1.0, f64::from(TARGETS_MAX), 4.0) as usize,
        scale: points(&mut fields, "scale", faults)
            .into_iter()
            .map(|(at, targets)| (at, (targets as usize).clamp(1, TARGETS_MAX as usize)))
            .collect(),
        missed: share(&mut fields, "missed", 0.0),
        holes: each(&mut fields, "holes", |node, path| {
            let mut fields = Fields::open(node, path, faults)?;
            let hole = (required_seconds(&mut fields, "at"), required_seconds(&mut fields, "for"));
            fields.finish();
            Some(hole)
        }),
        late: share(&mut fields, "late", 0.0),
        timeout_seconds: seconds(&mut fields, "timeout", usual.timeout_seconds),
        wobble_seconds: seconds(&mut fields, "wobble", usual.wobble_seconds),
        lazy: fields.flag("lazy").unwrap_or(false),
        restarts: each(&mut fields, "restarts", |node, path| restart(node, path, faults)),
        flush_seconds: if fields.has("flush") {
            at_least(&mut fields, "flush", EVERY_SECONDS_MIN, 1.0)
        } else {
            0.0
        },
        duplicated: share(&mut fields, "duplicated", 0.0),
        out_of_order: share(&mut fields, "out_of_order", 0.0),
        clock_jumps: each(&mut fields, "clock_jumps", |node, path| {
            let mut fields = Fields::open(node, path, faults)?;
            let at = required_seconds(&mut fields, "at");
            let by = within(&mut fields, "by_seconds", -86_400.0, 86_400.0, 0.0);
            fields.finish();
            Some((at, by))
        }),
        replicas,
        retry_counters: fields.flag("retry_counters").unwrap_or(false),
        weight_spread: share(&mut fields, "uneven", usual.weight_spread),
    };
    if plan.interval_seconds < 0.1 {
        fields.fault("interval", "must be at least 100ms");
    }
    if fields.has("timeout") && plan.timeout_seconds > plan.interval_seconds {
        fields.fault("timeout", "must not be longer than the interval");
    }
    fields.finish();
    Some(plan)
}

fn restart(node: &Node, path: &str, faults: &Faults) -> Option<Restart> {
    let mut fields = Fields::open(node, path, faults)?;
    let read = Restart {
        at_seconds: required_seconds(&mut fields, "at"),
        stagger_seconds: seconds(&mut fields, "stagger", 0.0),
        share: share(&mut fields, "share", 1.0),
        down_seconds: seconds(&mut fields, "down", 0.0),
        renamed: fields.flag("renamed").unwrap_or(false),
        every_seconds: at_least(&mut fields, "every", EVERY_SECONDS_MIN, f64::INFINITY),
    };
    fields.finish();
    Some(read)
}

/// The classes that an `expect` may name.
const CLASSES: [&str; 5] = [
    "backoff-without-jitter",
    "retry-storm-without-backoff",
    "partial-jitter",
    "jittered-backoff",
    "inconclusive",
];

fn expect(node: &Node, faults: &Faults) -> Option<Expect> {
    let mut fields = Fields::open(node, "expect", faults)?;
    let accept = fields.text_list("accept").unwrap_or_default();
    for class in accept.iter().filter(|class| !CLASSES.contains(&class.as_str())) {
        fields.fault("accept", format!("no class is called `{class}`"));
    }
    let read = Expect {
        silence: fields.flag("silence").unwrap_or(false),
        onset_seconds: fields.seconds("onset"),
        why: fields.text("why").unwrap_or_default(),
        source: fields.text("source"),
        accept,
    };
    if read.accept.is_empty() && !read.silence {
        fields.fault("accept", "name the right classes, or say `silence: true`");
    }
    fields.finish();
    Some(read)
}

#[cfg(test)]
mod tests;
