//! The dependencies of a scenario file and their faults.

use super::super::{Contention, DependencyPlan, Fault, FaultKind, KnockDown, Shed};
use super::{Context, at_least, each, points, reference, required_seconds, seconds, share, within};
use crate::rules::spanned::{Faults, Fields, Node};

/// Shortest answer, seconds: a client that retries at once must not do so without end in one instant.
const ANSWER_SECONDS_MIN: f64 = 0.0001;

fn code(fields: &mut Fields<'_>, key: &'static str, default: u16) -> u16 {
    let code = within(fields, key, 400.0, 599.0, f64::from(default));
    if code.fract() > 0.0 {
        fields.fault(key, "must be a whole number");
    }
    code as u16
}

pub(super) fn dependency(
    node: &Node,
    path: &str,
    context: &Context<'_>,
    faults: &Faults,
) -> Option<DependencyPlan> {
    let mut fields = Fields::open(node, path, faults)?;
    let mut plan = DependencyPlan::new(&fields.required_text("name").unwrap_or_default());
    if context.dependencies.iter().filter(|name| **name == plan.name).count() > 1 {
        fields.fault("name", "another dependency has the same name");
    }
    plan.latency_seconds =
        at_least(&mut fields, "latency", ANSWER_SECONDS_MIN, plan.latency_seconds);
    plan.refusal_seconds =
        at_least(&mut fields, "refusal", ANSWER_SECONDS_MIN, plan.latency_seconds);
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
    plan.faults = each(&mut fields, "faults", |node, path| fault(node, path, context, faults));
    if let Some(node) = fields.node("contention") {
        let mut inner = Fields::open(node, &fields.path_of("contention"), faults)?;
        plan.contention = Some(Contention {
            trip_mean_seconds: required_seconds(&mut inner, "trip"),
            trip_sd_seconds: seconds(&mut inner, "spread", 0.0),
        });
        inner.finish();
    }
    plan.calls = reference(&mut fields, "calls", &context.clients);
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

fn fault(node: &Node, path: &str, context: &Context<'_>, faults: &Faults) -> Option<Fault> {
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
        match context.clients.iter().position(|known| *known == name) {
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
