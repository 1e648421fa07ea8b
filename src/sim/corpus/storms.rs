//! Cases with retries in them: herds, floods, and the well-behaved.

use crate::rules::Rules;
use crate::rules::policy::Policy;

use super::super::policy::{CapOrder, Growth, Jitter, RetryPolicy};
use super::super::scenario::{Calls, Fault, FaultKind, Guard, KnockDown, Population, Shed};
use super::{CaseKind, Draft, FLOOD, JITTERED, OPEN, PARTIAL, Sampling, WAVES, shows};

/// Draws a storm; false when the kind is none.
pub(super) fn draw(kind: CaseKind, draft: &mut Draft) -> bool {
    match kind {
        CaseKind::ExponentialNone | CaseKind::LazyErrors => {
            let policy = exponential(draft, Jitter::None);
            draft.scenario.scrape.lazy = kind == CaseKind::LazyErrors;
            herd(draft, policy, 1.0);
        }
        CaseKind::SlowRecovery => slow_recovery(draft),
        CaseKind::CappedNone => {
            let base = draft.draws.pick(&[0.25, 0.5, 1.0, 2.0]) * draft.draws.between(0.9, 1.1);
            let factor = draft.draws.pick(&[1.5, 1.6, 2.0, 2.0, 3.0]);
            let cap = draft.draws.pick(&[8.0, 15.0, 20.0, 30.0, 30.0, 60.0]);
            let policy = RetryPolicy::exponential(base, factor, cap, 16, Jitter::None);
            herd(draft, policy, 1.0);
        }
        CaseKind::FixedNone => {
            let delay = draft.draws.pick(&[2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0]);
            let delay = delay * draft.draws.pick(&[1.0, 1.0, 0.93, 1.07]);
            let retries = 5 + draft.draws.below(8) as u32;
            herd(draft, RetryPolicy::fixed(delay, retries), 1.0);
        }
        CaseKind::LinearNone => {
            let base = draft.draws.pick(&[1.0, 2.0, 3.0, 5.0, 10.0]);
            let growth = Growth::Linear { step_seconds: base };
            let cap = draft.draws.pick(&[f64::INFINITY, 30.0, 60.0]);
            let plain = RetryPolicy::exponential(base, 1.0, cap, 7, Jitter::None);
            herd(draft, RetryPolicy { growth, ..plain }, 1.0);
        }
        CaseKind::PolynomialNone => {
            let power = draft.draws.pick(&[2.0, 2.0, 3.0, 4.0]);
            let offset_seconds = draft.draws.pick(&[0.0, 0.0, 2.0, 15.0]);
            let growth = Growth::Polynomial { power, offset_seconds };
            let retries = if power > 2.5 { 5 } else { 7 };
            let plain = RetryPolicy::exponential(1.0, 1.0, 300.0, retries, Jitter::None);
            herd(draft, RetryPolicy { growth, ..plain }, 1.0);
        }
        CaseKind::ListNone => {
            let lists: [&[f64]; 5] = [
                &[1.0, 5.0, 10.0, 30.0, 60.0],
                &[5.0, 25.0, 120.0],
                &[0.5, 3.0, 10.0, 30.0],
                &[2.0, 2.0, 10.0, 10.0, 60.0],
                &[10.0, 20.0, 40.0, 40.0, 40.0],
            ];
            let list = draft.draws.pick(&lists).to_vec();
            let retries = list.len() as u32;
            let plain =
                RetryPolicy::exponential(list[0], 1.0, f64::INFINITY, retries, Jitter::None);
            herd(draft, RetryPolicy { growth: Growth::List(list), ..plain }, 1.0);
        }
        CaseKind::Proportional10 => {
            let policy = exponential(draft, Jitter::proportional(0.1));
            herd(draft, policy, 1.2);
        }
        CaseKind::Proportional20 => {
            let policy = exponential(draft, Jitter::proportional(0.2));
            herd(draft, policy, 1.6);
            allow(draft, &[Some(PARTIAL)]);
        }
        CaseKind::JitterThenCap => {
            let base = draft.draws.pick(&[0.5, 1.0, 2.0]);
            let cap = base * draft.draws.pick(&[4.0, 8.0]);
            let plain = RetryPolicy::exponential(base, 2.0, cap, 20, Jitter::proportional(0.5));
            herd(draft, RetryPolicy { cap_order: CapOrder::JitterThenCap, ..plain }, 1.3);
            allow(draft, &[Some(PARTIAL)]);
        }
        CaseKind::RetryAfter => retry_after(draft),
        CaseKind::Mixed => mixed(draft),
        CaseKind::SeveralClients => several_clients(draft),
        CaseKind::OutageComb => outage_comb(draft),
        CaseKind::Library => library(draft),
        CaseKind::Equal => {
            let policy = exponential(draft, Jitter::Equal);
            spread(draft, policy, PARTIAL);
        }
        CaseKind::Full => {
            let policy = exponential(draft, Jitter::Full);
            spread(draft, policy, JITTERED);
        }
        CaseKind::Decorrelated => {
            let policy = exponential(draft, Jitter::Decorrelated);
            spread(draft, policy, JITTERED);
        }
        CaseKind::Immediate => immediate(draft, RetryPolicy::immediate),
        CaseKind::ShortDelay => {
            let delay = draft.draws.between(0.1, 0.9);
            immediate(draft, |retries| RetryPolicy {
                jitter: Jitter::proportional(0.5),
                ..RetryPolicy::fixed(delay, retries)
            });
        }
        CaseKind::Metastable => metastable(draft),
        _ => return false,
    }
    true
}

/// An exponential policy of any common kind; most with round numbers, some without.
fn exponential(draft: &mut Draft, jitter: Jitter) -> RetryPolicy {
    let draws = &mut draft.draws;
    let round = draws.pick(&[0.2, 0.5, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 5.0]);
    let base = if draws.chance(0.5) { round } else { draws.log_between(0.2, 5.0) };
    let factor = draws.pick(&[1.3, 1.5, 1.6, 2.0, 2.0, 2.0, 2.0, 2.5, 3.0, 5.0]);
    let cap = draws.pick(&[10.0, 20.0, 30.0, 32.0, 60.0, 120.0]);
    let retries = 5 + draws.below(4) as u32;
    RetryPolicy::exponential(base, factor, cap, retries, jitter)
}

/// Draws the herd and the dependency that each wave knocks down again; returns the herd's size.
fn knock_down(draft: &mut Draft, policy: &RetryPolicy, name: &str, at: f64) -> usize {
    let size = (draft.background * draft.draws.log_between(4.0, 40.0)).max(60.0) as usize;
    let width = draft.draws.pick(&[0.1, 0.4, 0.4, 1.0]);
    let through = draft.draws.between(0.03, 0.25);
    let rate = draft.background * draft.draws.between(2.0, 4.0) + 20.0;
    let plan = draft.plan();
    plan.knock_down = Some(KnockDown { rate, burst: size as f64 * through, down_seconds: width });
    plan.faults.push(Fault::outage(at, width));
    draft.scenario.population(Population::burst(
        name,
        draft.to,
        size,
        at,
        width * 0.9,
        policy.clone(),
    ));
    size
}

fn herd(draft: &mut Draft, policy: RetryPolicy, spread: f64) {
    let at = draft.onset;
    let size = knock_down(draft, &policy, "herd", at);
    label_herd(draft, policy, size, spread);
}

/// Labels a herd whose waves come on this policy.
fn label_herd(draft: &mut Draft, policy: RetryPolicy, size: usize, spread: f64) {
    let instants = policy.nominal_instants(policy.retries_max.min(24));
    let waits: Vec<f64> = (0..instants.len() as u32).map(|n| policy.nominal_seconds(n)).collect();
    let observable = shows(&waits, draft.sampling, spread);
    draft.storm(WAVES, if observable { &[] } else { &[Some(OPEN)] });
    // A single target at a coarse interval shows a load that stays up, whatever made it.
    if !observable && draft.sampling.targets <= 2 {
        allow(draft, &[Some(FLOOD)]);
    }
    let latency = draft.plan().refusal_seconds;
    draft.truth.waves = (1..)
        .zip(&instants)
        .map(|(n, at): (u32, &f64)| draft.stamp(draft.onset + at + f64::from(n) * latency))
        .collect();
    draft.truth.material = size as f64 >= 4.0 * draft.background;
    if size as f64 <= 8.0 * draft.background {
        allow(draft, &[Some(OPEN), None]);
    }
    draft.truth.observable = observable;
    draft.truth.herd = size;
    draft.watch_until(draft.onset + instants.last().copied().unwrap_or(0.0).min(900.0));
    draft.truth.policy = Some(policy);
}

fn allow(draft: &mut Draft, also: &[Option<&'static str>]) {
    for answer in also {
        if !draft.truth.accept.contains(answer) {
            draft.truth.accept.push(*answer);
        }
    }
}

/// The herd of a policy that spreads its waits: no waves, or smeared ones.
fn spread(draft: &mut Draft, policy: RetryPolicy, class: &'static str) {
    let at = draft.onset;
    let size = knock_down(draft, &policy, "herd", at);
    let fuzzy = if class == PARTIAL { 2.0 } else { 4.0 };
    label_herd(draft, policy, size, fuzzy);
    let seen = draft.truth.observable && draft.sampling.interval_seconds <= 5.0;
    draft.storm(class, &[]);
    draft.truth.observable = seen;
    draft.truth.waves.clear();
    draft.truth.material = size as f64 >= 4.0 * draft.background;
    // The neighbours in spread are right as long as the sampling cannot tell them apart, and a
    // decay that is over soon may be let pass.
    let neighbours: &[Option<&'static str>] = match (class == PARTIAL, seen) {
        (true, true) => &[],
        (true, false) => &[Some(OPEN), Some(JITTERED), None],
        (false, true) => &[Some(OPEN)],
        (false, false) => &[Some(OPEN), Some(PARTIAL), None],
    };
    allow(draft, neighbours);
}

/// Spread of a wave over its gap below which a herd stays a herd, and below which waves still show.
const SPREAD_OF_WAVES: f64 = 0.16;
const SPREAD_OF_PARTIAL: f64 = 0.4;

/// Longest first waits of a library that is drawn, seconds: later waves fall outside the case.
const LIBRARY_SECONDS_MAX: f64 = 400.0;

/// A herd of one of the known client libraries.
fn library(draft: &mut Draft) {
    let rules = Rules::builtin();
    let mut policies: Vec<&Policy> = rules.schedules().iter().map(|rule| &rule.policy).collect();
    policies.retain(|policy| {
        let waits = policy.waits(5);
        policy.is_timed() && waits.len() >= 3 && waits.iter().sum::<f64>() < LIBRARY_SECONDS_MAX
    });
    let known = draft.draws.pick(&policies);
    let fraction = known.jitter_fraction(6);
    let mut policy = RetryPolicy::library(known);
    policy.retries_max = policy.retries_max.min(16);
    if fraction < SPREAD_OF_WAVES {
        herd(draft, policy, 1.0 + 3.0 * fraction);
        // Near the border of the classes either side is right.
        if fraction > 0.75 * SPREAD_OF_WAVES {
            allow(draft, &[Some(PARTIAL)]);
        }
        // Waits below a second are a flood at any usual sampling.
        if known.waits(3).iter().all(|wait| *wait < 1.0) {
            allow(draft, &[Some(FLOOD), Some(OPEN)]);
        }
        return;
    }
    let class = if fraction < SPREAD_OF_PARTIAL { PARTIAL } else { JITTERED };
    spread(draft, policy, class);
    allow(draft, &[Some(PARTIAL), Some(JITTERED), Some(OPEN)]);
}

fn slow_recovery(draft: &mut Draft) {
    let policy = exponential(draft, Jitter::None);
    let at = draft.onset;
    let size = (draft.background * draft.draws.log_between(6.0, 40.0)).max(80.0) as usize;
    let long = draft.draws.between(15.0, 90.0);
    let fault = Fault { share: 1.0, share_end: 0.3, ..Fault::outage(at, long) };
    let herd = Population::burst("herd", draft.to, size, at, 0.3, policy.clone());
    let herd = draft.scenario.population(herd);
    draft.plan().faults = vec![Fault { hits: vec![herd], ..fault }, Fault::outage(at, 0.4)];
    label_herd(draft, policy, size, 1.0);
}

fn retry_after(draft: &mut Draft) {
    let wait = draft.draws.pick(&[2.0, 5.0, 10.0, 30.0]);
    let at = draft.onset;
    let size = (draft.background * draft.draws.log_between(8.0, 40.0)).max(80.0) as usize;
    let burst = size as f64 * draft.draws.between(0.05, 0.15);
    let (rate, code) = (draft.background * 2.0 + burst / wait, 503);
    draft.plan().shed = Some(Shed { rate, burst, code, retry_after_seconds: Some(wait) });
    draft.plan().error_code = 503;
    draft.plan().faults.push(Fault {
        kind: FaultKind::Refuse { retry_after_seconds: Some(wait) },
        ..Fault::outage(at, 0.4)
    });
    let policy = RetryPolicy {
        honours_retry_after: true,
        jitter: Jitter::Full,
        ..RetryPolicy::exponential(1.0, 2.0, 30.0, 12, Jitter::Full)
    };
    draft.scenario.population(Population::burst("herd", draft.to, size, at, 0.3, policy));
    label_herd(draft, RetryPolicy::fixed(wait, 12), size, 1.0);
}

fn mixed(draft: &mut Draft) {
    let policy = exponential(draft, Jitter::None);
    let at = draft.onset;
    let size = knock_down(draft, &policy, "herd", at);
    let others = (size as f64 * draft.draws.between(0.2, 0.7)) as usize;
    let jittered = exponential(draft, Jitter::Full);
    let second = Population::burst("jittered", draft.to, others, at, 0.3, jittered);
    draft.scenario.population(second);
    label_herd(draft, policy, size, 1.2);
    allow(draft, &[Some(PARTIAL)]);
    if !draft.truth.observable {
        allow(draft, &[Some(JITTERED)]);
    }
}

fn several_clients(draft: &mut Draft) {
    let policy = exponential(draft, Jitter::None);
    let at = draft.onset;
    let size = knock_down(draft, &policy, "herd", at);
    let second = exponential(draft, Jitter::None);
    let smaller = (size as f64 * draft.draws.between(0.3, 0.8)) as usize;
    let mut population = Population::burst("batch", draft.to, smaller, at, 0.3, second);
    population.job = "batch".to_owned();
    draft.scenario.population(population);
    label_herd(draft, policy, size, 1.0);
}

/// A continuing outage: streams of clients fail one by one and come back on their schedule.
fn outage_comb(draft: &mut Draft) {
    let at = draft.onset;
    let long = draft.draws.between(60.0, 300.0);
    draft.plan().faults.push(Fault::outage(at, long));
    let base = draft.draws.pick(&[1.0, 1.0, 2.0, 5.0]);
    let policy = RetryPolicy::exponential(base, 2.0, 60.0, 6, Jitter::None);
    draft.others().retry = policy.clone();
    let fine = draft.sampling.interval_seconds <= 1.0;
    draft.storm(WAVES, &[Some(FLOOD)]);
    if !fine {
        allow(draft, &[Some(OPEN)]);
    }
    draft.truth.observable = fine;
    draft.truth.policy = Some(policy);
    draft.watch_until(at + long + 64.0);
}

/// A flood while the dependency is down.
fn immediate(draft: &mut Draft, policy: impl FnOnce(u32) -> RetryPolicy) {
    let at = draft.onset;
    let Sampling { interval_seconds, targets } = draft.sampling;
    let long = draft.draws.between(40.0, 120.0).max(3.0 * interval_seconds);
    draft.plan().faults.push(Fault::outage(at, long));
    let retries = 2 + draft.draws.below(4) as u32;
    draft.others().retry = policy(retries);
    let fine = interval_seconds <= 1.0 || targets >= 20 && interval_seconds <= 15.0;
    draft.storm(FLOOD, if fine { &[] } else { &[Some(OPEN)] });
    draft.truth.observable = fine;
    draft.watch_until(at + long);
}

/// A short trigger, and a load that holds itself up until somebody switches the retries off.
fn metastable(draft: &mut Draft) {
    let at = draft.onset;
    let Sampling { interval_seconds, targets } = draft.sampling;
    let trigger = draft.draws.between(8.0, 25.0);
    let lasts = draft.draws.between(120.0, 300.0).max(5.0 * interval_seconds);
    let background = draft.background;
    let headroom = draft.draws.between(1.3, 1.8);
    let retries = 3 + draft.draws.below(3) as u32;
    let plan = draft.plan();
    plan.capacity = background * headroom;
    plan.queue_seconds = 6.0;
    plan.faults.push(Fault { kind: FaultKind::Slow { factor: 5.0 }, ..Fault::outage(at, trigger) });
    // The traffic is calm enough that it does not tip over by itself before the trigger.
    draft.traffic(1.0);
    let delay = draft.draws.pick(&[0.0, 0.05, 0.2]);
    let others = draft.others();
    others.timeout_seconds = 1.0;
    others.retry = RetryPolicy::fixed(delay, retries);
    others.guard = Guard { retries_end_seconds: Some(at + trigger + lasts), ..Guard::default() };
    if let Calls::Stream { correlation_seconds, .. } = &mut others.calls {
        *correlation_seconds = 2.0;
    }
    let fine = interval_seconds <= 1.0 || targets >= 20 && interval_seconds <= 15.0;
    draft.storm(FLOOD, if fine { &[] } else { &[Some(OPEN)] });
    draft.truth.observable = fine;
    draft.watch_until(at + trigger + lasts + 60.0);
}
