//! The populations of a scenario file and their retry policies.

use super::super::super::policy::{CapOrder, Growth, Jitter, RetryPolicy};
use super::super::{Breaker, Calls, Guard, Population};
use super::trace::{self, Trace};
use super::{
    Context, EVERY_SECONDS_MIN, SIZE_MAX, at_least, points, reference, required_seconds, seconds,
    share, within,
};
use crate::rules::Rules;
use crate::rules::spanned::{Faults, Fields, Node};

/// Shortest timeout and shortest pause, seconds: a client must not go round within an instant.
const ROUND_SECONDS_MIN: f64 = 0.001;

pub(super) fn population(
    node: &Node,
    path: &str,
    context: &Context<'_>,
    faults: &Faults,
) -> Option<Population> {
    let mut fields = Fields::open(node, path, faults)?;
    let name = fields.required_text("name").unwrap_or_default();
    if context.clients.iter().filter(|known| **known == name).count() > 1 {
        fields.fault("name", "another population has the same name");
    }
    if !fields.has("calls") {
        fields.fault("calls", "is missing");
    }
    let to = reference(&mut fields, "calls", &context.dependencies).unwrap_or(0);
    let mut population = Population::stream(&name, to, 0.0);
    if let Some(job) = fields.text("job") {
        population.job = job;
    }
    population.calls = calls(&mut fields, context, faults);
    if let Some(node) = fields.node("retry") {
        let path = fields.path_of("retry");
        population.retry = retry(node, &path, context.rules, faults).unwrap_or(population.retry);
    }
    population.timeout_seconds = at_least(&mut fields, "timeout", ROUND_SECONDS_MIN, f64::INFINITY);
    population.guard = guard(&mut fields, faults);
    fields.finish();
    Some(population)
}

/// The keys that say when calls come, and with which ways of calling each goes.
const TIMES: [(&str, &[&str]); 10] = [
    ("dispersion", &["rate", "rates", "trace"]),
    ("correlation", &["rate", "rates", "trace"]),
    ("daily", &["rate", "rates", "trace"]),
    ("at", &["size"]),
    ("within", &["size"]),
    ("every", &["size"]),
    ("times", &["size"]),
    ("pause", &["size"]),
    ("until", &["pause"]),
    ("spread", &["pause"]),
];

/// When its calls come: `rate`, `rates` or `trace`, `size` with `at` or with `pause`, or `inner`.
fn calls(fields: &mut Fields<'_>, context: &Context<'_>, faults: &Faults) -> Calls {
    let size = fields.count("size");
    if size.is_some_and(|size| size > SIZE_MAX) {
        fields.fault("size", format!("must be at most {SIZE_MAX}"));
    }
    let size = size.map(|size| size.min(SIZE_MAX) as usize);
    let inner = fields.flag("inner").unwrap_or(false);
    let (has_rate, has_rates) = (fields.has("rate"), fields.has("rates"));
    let recorded = fields.text("trace");
    let ways = [size.is_some(), has_rate, has_rates, recorded.is_some(), inner];
    if ways.iter().filter(|way| **way).count() != 1 {
        fields.fault("calls", "needs one of `rate`, `rates`, `trace`, `size` or `inner: true`");
    }
    for (key, with) in TIMES {
        if fields.has(key) && !with.iter().any(|way| fields.has(way)) {
            fields.fault(key, format!("means nothing without {}", one_of(with)));
        }
    }
    if fields.has("pause") {
        for key in ["every", "times"] {
            if fields.has(key) {
                fields.fault(key, "means nothing with `pause`");
            }
        }
    }
    let rate = within(fields, "rate", 0.0, 1e7, 0.0);
    let mut profile = if has_rates { points(fields, "rates", faults) } else { vec![(0.0, rate)] };
    let dispersion = within(fields, "dispersion", 1.0, 1_000.0, 1.0);
    let correlation_seconds = seconds(fields, "correlation", 30.0);
    let daily = share(fields, "daily", 0.0);
    let at_seconds = seconds(fields, "at", 0.0);
    let within_seconds = seconds(fields, "within", 0.0);
    if let Some(file) = recorded {
        let text = (context.open)(&file).map_err(|error| format!("cannot be read: {error}"));
        match text.and_then(|text| trace::parse(&text)) {
            Ok(Trace::Instants(instants)) => return Calls::Trace(instants),
            Ok(Trace::Rates(rates)) => profile = rates,
            Err(says) => fields.fault("trace", format!("`{file}`: {says}")),
        }
    }
    if inner {
        return Calls::Inner;
    }
    let Some(size) = size else {
        return Calls::Stream { profile, dispersion, correlation_seconds, daily };
    };
    if fields.has("pause") {
        return Calls::Loop {
            size,
            from_seconds: at_seconds,
            until_seconds: seconds(fields, "until", f64::INFINITY),
            within_seconds,
            pause_seconds: at_least(fields, "pause", ROUND_SECONDS_MIN, 1.0),
            pause_spread: share(fields, "spread", 0.0),
        };
    }
    let every_seconds = at_least(fields, "every", EVERY_SECONDS_MIN, f64::INFINITY);
    let times = fields.count("times").unwrap_or(u32::MAX);
    Calls::Burst { size, at_seconds, within_seconds, every_seconds, times }
}

/// Keys as one reads them, "`a`, `b` or `c`".
fn one_of(keys: &[&str]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Immediate,
    Fixed,
    Exponential,
    Linear,
    Polynomial,
    List,
}

/// The keys of the waits, and with which schedules each goes.
const WAITS: [(&str, &[Kind]); 12] = {
    const WAITING: &[Kind] =
        &[Kind::Fixed, Kind::Exponential, Kind::Linear, Kind::Polynomial, Kind::List];
    [
        ("base", &[Kind::Fixed, Kind::Exponential, Kind::Linear, Kind::Polynomial]),
        ("factor", &[Kind::Exponential]),
        ("step", &[Kind::Linear]),
        ("power", &[Kind::Polynomial]),
        ("offset", &[Kind::Polynomial]),
        ("waits", &[Kind::List]),
        ("cap", WAITING),
        ("jitter", WAITING),
        ("jitter_range", WAITING),
        ("jitter_added", WAITING),
        ("jitter_grows", WAITING),
        ("jitter_before_cap", WAITING),
    ]
};

fn retry(node: &Node, path: &str, rules: &Rules, faults: &Faults) -> Option<RetryPolicy> {
    let mut fields = Fields::open(node, path, faults)?;
    let library = fields.text("rule");
    let kind = fields.one_of(
        "schedule",
        &[
            ("immediate", Kind::Immediate),
            ("fixed", Kind::Fixed),
            ("exponential", Kind::Exponential),
            ("linear", Kind::Linear),
            ("polynomial", Kind::Polynomial),
            ("list", Kind::List),
        ],
    );
    if library.is_some() == kind.is_some() {
        fields.fault("schedule", "give either a `schedule` or a `rule`");
    }
    let named = if library.is_some() { None } else { kind };
    if library.is_some() || kind.is_some() {
        for (key, with) in WAITS {
            if fields.has(key) && !named.is_some_and(|kind| with.contains(&kind)) {
                let says = match named {
                    Some(_) => "means nothing with this schedule",
                    None => "is part of the rule",
                };
                fields.fault(key, says);
            }
        }
    }
    let waits = fields.seconds_list("waits").unwrap_or_default();
    let base = match kind {
        Some(Kind::Fixed | Kind::Exponential | Kind::Linear) => {
            required_seconds(&mut fields, "base")
        }
        _ => seconds(&mut fields, "base", 1.0),
    };
    let factor = within(&mut fields, "factor", 1.0, 100.0, 2.0);
    let step_seconds = seconds(&mut fields, "step", base);
    let power = within(&mut fields, "power", 0.0, 10.0, 2.0);
    let offset_seconds = seconds(&mut fields, "offset", 0.0);
    let mut policy = RetryPolicy::exponential(
        base,
        factor,
        seconds(&mut fields, "cap", f64::INFINITY),
        u32::MAX,
        jitter(&mut fields),
    );
    match kind {
        Some(Kind::Immediate) => policy.growth = Growth::Immediate,
        Some(Kind::Fixed) => policy.growth = Growth::Fixed,
        Some(Kind::Linear) => policy.growth = Growth::Linear { step_seconds },
        Some(Kind::Polynomial) => policy.growth = Growth::Polynomial { power, offset_seconds },
        Some(Kind::List) => {
            if waits.is_empty() {
                fields.fault("waits", "a list needs its waits");
            }
            policy.base_seconds = waits.first().copied().unwrap_or(0.0);
            policy.growth = Growth::List(waits);
        }
        Some(Kind::Exponential) | None => {}
    }
    if let Some(id) = library {
        match rules.policy(&id) {
            Some(known) => policy = RetryPolicy::library(known),
            None => fields.fault("rule", format!("no schedule is called `{id}`")),
        }
    }
    if fields.flag("jitter_before_cap") == Some(true) {
        policy.cap_order = CapOrder::JitterThenCap;
    }
    if let Some(retries) = fields.count("retries") {
        policy.retries_max = retries;
    }
    policy.time_budget_seconds = seconds(&mut fields, "give_up_after", f64::INFINITY);
    policy.honours_retry_after = fields.flag("honours_retry_after").unwrap_or(false);
    fields.finish();
    Some(policy)
}

/// `jitter: none`, `full`, `equal`, `decorrelated` or `20%`; or `jitter_range` in multiples of the
/// wait; or `jitter_added` in seconds.
fn jitter(fields: &mut Fields<'_>) -> Jitter {
    let grows = fields.flag("jitter_grows").unwrap_or(false);
    let mut read = Jitter::None;
    let keys = ["jitter", "jitter_range", "jitter_added"];
    if keys.into_iter().filter(|key| fields.has(key)).count() > 1 {
        fields.fault("jitter", "give one of `jitter`, `jitter_range` and `jitter_added`");
    }
    if fields.has("jitter_grows") && !fields.has("jitter_added") {
        fields.fault("jitter_grows", "means nothing without `jitter_added`");
    }
    if let Some(range) = fields.number_list("jitter_range") {
        match range[..] {
            [low, high] if 0.0 <= low && low <= high => read = Jitter::Scaled { low, high },
            _ => fields.fault("jitter_range", "must be two multiples that rise, [0.8, 1.2]"),
        }
    }
    if let Some(added) = fields.seconds_list("jitter_added") {
        match added[..] {
            [low_seconds, high_seconds] if low_seconds <= high_seconds => {
                read = Jitter::Added { low_seconds, high_seconds, grows };
            }
            _ => fields.fault("jitter_added", "must be two durations that rise, [0s, 3s]"),
        }
    }
    match fields.text("jitter").as_deref() {
        None => {}
        Some("none") => read = Jitter::None,
        Some("full") => read = Jitter::Full,
        Some("equal") => read = Jitter::Equal,
        Some("decorrelated") => read = Jitter::Decorrelated,
        Some(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
            match percent {
                Some(percent) if (0.0..=100.0).contains(&percent) => {
                    read = Jitter::proportional(percent / 100.0);
                }
                _ => fields.fault(
                    "jitter",
                    format!("must be none, full, equal, decorrelated or as 20%, got `{text}`"),
                ),
            }
        }
    }
    read
}

fn guard(fields: &mut Fields<'_>, faults: &Faults) -> Guard {
    let breaker = fields.node("breaker").and_then(|node| {
        let mut inner = Fields::open(node, &fields.path_of("breaker"), faults)?;
        let failures = inner.count("failures").unwrap_or(5);
        if failures == 0 {
            inner.fault("failures", "must be at least 1");
        }
        let breaker = Breaker {
            failures: failures.max(1),
            open_seconds: required_seconds(&mut inner, "open"),
        };
        inner.finish();
        Some(breaker)
    });
    let budget_share = fields.has("budget").then(|| share(fields, "budget", 0.1));
    Guard {
        budget_share,
        breaker,
        bulkhead: fields.count("bulkhead"),
        hedge_after_seconds: fields.seconds("hedge"),
        retries_end_seconds: fields.seconds("retries_end"),
    }
}
