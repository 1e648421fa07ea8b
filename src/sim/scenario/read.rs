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

use super::{
    Contention, DependencyPlan, Expect, Fault, FaultKind, KnockDown, Replicas, Restart, Scenario,
    ScrapePlan, Shed,
};
use crate::rules::Rules;
use crate::rules::spanned::{Fault as Mistake, Faults, Fields, Node, Value, parse, parse_seconds};

mod clients;

/// Longest scenario, seconds: a month. Longer ones are a slip of a unit.
const DURATION_SECONDS_MAX: f64 = 31.0 * 86_400.0;

/// Most targets: each has its own counters and series.
const TARGETS_MAX: u32 = 10_000;

/// Most clients of one population: each that waits takes about a hundred bytes.
const SIZE_MAX: u32 = 10_000_000;

impl Scenario {
    /// Reads a scenario; `name` is that of its file, without the ending.
    ///
    /// # Errors
    ///
    /// Every fault of the text, by line.
    pub fn parse(name: &str, text: &str, rules: &Rules) -> Result<Self, Vec<Mistake>> {
        let node = parse(text).map_err(|fault| vec![fault])?;
        let faults = Faults::default();
        let scenario = read(name, &node, rules, &faults);
        match scenario {
            Some(scenario) if faults.is_empty() => Ok(scenario),
            _ => Err(faults.into_sorted()),
        }
    }
}

/// The names that may be referred to before they are defined.
struct Names {
    dependencies: Vec<String>,
    clients: Vec<String>,
}

fn read(name: &str, node: &Node, rules: &Rules, faults: &Faults) -> Option<Scenario> {
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
    let dependencies = fields.list("dependencies").unwrap_or_default();
    let clients = fields.list("clients").unwrap_or_default();
    if dependencies.is_empty() {
        fields.fault("dependencies", "at least one is needed");
    }
    if clients.is_empty() {
        fields.fault("clients", "at least one population is needed");
    }
    let names = Names { dependencies: names_of(dependencies), clients: names_of(clients) };
    for (index, node) in dependencies.iter().enumerate() {
        let path = format!("dependencies[{index}]");
        scenario.dependencies.extend(dependency(node, &path, &names, faults));
    }
    for (index, node) in clients.iter().enumerate() {
        let path = format!("clients[{index}]");
        scenario.clients.extend(clients::population(node, &path, &names, rules, faults));
    }
    if let Some(node) = fields.node("scrape") {
        scenario.scrape = scrape(node, faults).unwrap_or_default();
    }
    if let Some(node) = fields.node("expect") {
        scenario.expect = expect(node, faults).unwrap_or_default();
    }
    fields.finish();
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

fn code(fields: &mut Fields<'_>, key: &'static str, default: u16) -> u16 {
    let code = within(fields, key, 400.0, 599.0, f64::from(default));
    if code.fract() > 0.0 {
        fields.fault(key, "must be a whole number");
    }
    code as u16
}

fn dependency(node: &Node, path: &str, names: &Names, faults: &Faults) -> Option<DependencyPlan> {
    let mut fields = Fields::open(node, path, faults)?;
    let mut plan = DependencyPlan::new(&fields.required_text("name").unwrap_or_default());
    if names.dependencies.iter().filter(|name| **name == plan.name).count() > 1 {
        fields.fault("name", "another dependency has the same name");
    }
    plan.latency_seconds = seconds(&mut fields, "latency", plan.latency_seconds);
    plan.refusal_seconds = seconds(&mut fields, "refusal", plan.latency_seconds);
    plan.error_share = share(&mut fields, "errors", 0.0);
    plan.error_code = code(&mut fields, "code", plan.error_code);
    plan.capacity = within(&mut fields, "capacity", 1e-6, f64::INFINITY, f64::INFINITY);
    plan.replicas = within(&mut fields, "replicas", 1.0, 10_000.0, 1.0) as usize;
    plan.queue_seconds = seconds(&mut fields, "queue", plan.queue_seconds);
    plan.capacity_changes = points(&mut fields, "changes", faults);
    if let Some(node) = fields.node("knock_down") {
        let mut inner = Fields::open(node, &fields.path_of("knock_down"), faults)?;
        plan.knock_down = Some(KnockDown {
            rate: within(&mut inner, "above", 0.0, f64::INFINITY, 0.0),
            burst: within(&mut inner, "burst", 1.0, f64::INFINITY, 1.0),
            down_seconds: required_seconds(&mut inner, "for"),
        });
        inner.finish();
    }
    if let Some(node) = fields.node("shed") {
        let mut inner = Fields::open(node, &fields.path_of("shed"), faults)?;
        plan.shed = Some(Shed {
            rate: within(&mut inner, "above", 0.0, f64::INFINITY, 0.0),
            burst: within(&mut inner, "burst", 1.0, f64::INFINITY, 1.0),
            code: code(&mut inner, "code", 429),
            retry_after_seconds: inner.seconds("retry_after"),
        });
        inner.finish();
    }
    plan.faults = each(&mut fields, "faults", |node, path| fault(node, path, names, faults));
    if let Some(node) = fields.node("contention") {
        let mut inner = Fields::open(node, &fields.path_of("contention"), faults)?;
        plan.contention = Some(Contention {
            trip_mean_seconds: required_seconds(&mut inner, "trip"),
            trip_sd_seconds: seconds(&mut inner, "spread", 0.0),
        });
        inner.finish();
    }
    plan.calls = reference(&mut fields, "calls", &names.clients);
    fields.finish();
    Some(plan)
}

/// What a fault does, before its numbers are known.
#[derive(Clone, Copy)]
enum How {
    Refuse,
    BlackHole,
    Slow,
    Hold,
}

fn fault(node: &Node, path: &str, names: &Names, faults: &Faults) -> Option<Fault> {
    let mut fields = Fields::open(node, path, faults)?;
    let from = required_seconds(&mut fields, "at");
    let length = required_seconds(&mut fields, "for");
    let words = [
        ("refuse", How::Refuse),
        ("black-hole", How::BlackHole),
        ("slow", How::Slow),
        ("hold", How::Hold),
    ];
    let how = fields.one_of("how", &words).unwrap_or(How::Refuse);
    let retry_after_seconds = fields.seconds("retry_after");
    let times = within(&mut fields, "times", 1.0, 1e6, 2.0);
    let kind = match how {
        How::Refuse => FaultKind::Refuse { retry_after_seconds },
        How::BlackHole => FaultKind::BlackHole,
        How::Slow => FaultKind::Slow { factor: times },
        How::Hold => FaultKind::Hold,
    };
    let start = share(&mut fields, "share", 1.0);
    let hits = fields.text_list("hits").unwrap_or_default();
    let mut indices = Vec::new();
    for name in hits {
        match names.clients.iter().position(|known| *known == name) {
            Some(index) => indices.push(index),
            None => fields.fault("hits", format!("no population is called `{name}`")),
        }
    }
    let read = Fault {
        kind,
        from_seconds: from,
        for_seconds: length,
        every_seconds: seconds(&mut fields, "every", f64::INFINITY),
        share: start,
        share_end: share(&mut fields, "share_end", start),
        hits: indices,
    };
    if read.every_seconds <= 0.0 {
        fields.fault("every", "must be above 0");
    }
    fields.finish();
    Some(read)
}

fn scrape(node: &Node, faults: &Faults) -> Option<ScrapePlan> {
    let mut fields = Fields::open(node, "scrape", faults)?;
    let usual = ScrapePlan::default();
    let replicas = match fields.seconds("flips") {
        Some(every_seconds) if every_seconds > 0.0 => Replicas::Flipping { every_seconds },
        Some(_) => {
            fields.fault("flips", "must be above 0");
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
        wobble_seconds: seconds(&mut fields, "wobble", usual.wobble_seconds),
        lazy: fields.flag("lazy").unwrap_or(false),
        restarts: each(&mut fields, "restarts", |node, path| restart(node, path, faults)),
        flush_seconds: seconds(&mut fields, "flush", 0.0),
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
        every_seconds: seconds(&mut fields, "every", f64::INFINITY),
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
