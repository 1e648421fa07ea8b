//! Cases of every storm and look-alike: draw, replay, judge, one row each.

use serde::{Deserialize, Serialize};
use squall::incident::Incident;
use squall::sim::corpus::{CaseKind, LabelledCase, Sampling, WAVES, draw_case};
use squall::sim::policy::{CapOrder, Growth, Jitter, RetryPolicy};
use squall::sim::scenario::Calls;

use super::plain;
use super::replay;
use super::rows::core_and;

/// What decides a row.
pub(crate) const SOURCES: &[&str] =
    core_and!("tests/accuracy/cases.rs", "tests/accuracy/plain", "tests/accuracy/plain.rs");

/// Scrape intervals and numbers of targets, every one with every other.
pub(crate) const INTERVALS: [f64; 5] = [1.0, 5.0, 15.0, 30.0, 60.0];
pub(crate) const TARGETS: [usize; 4] = [1, 4, 20, 60];

/// Every kind at every sampling.
const CELLS: usize = CaseKind::ALL.len() * INTERVALS.len() * TARGETS.len();

/// Cases when the command line says nothing: five of each cell.
pub(crate) const DRAWS: u64 = 5 * CELLS as u64;

/// From one draw to the next through the cells: near the golden section of their number and without
/// a divisor in common with it, so that any first so many draws are spread evenly over all cells.
const STRIDE: usize = 479;
const _: () = assert!(gcd(STRIDE, CELLS) == 1, "every cell must be drawn");

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What became of one case.
#[derive(Serialize, Deserialize)]
pub(crate) struct Case {
    /// The name that draws it again.
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The class, or none where there is no storm.
    pub(crate) truth: Option<String>,
    /// How its waits are spread.
    pub(crate) jitter: String,
    pub(crate) interval_seconds: f64,
    pub(crate) targets: usize,
    /// What the storm adds, in seconds of normal traffic.
    pub(crate) strength: Option<Strength>,
    /// The class, or none for silence.
    pub(crate) said: Option<String>,
    pub(crate) right: bool,
    pub(crate) pages: bool,
    /// Whether an answer that pages is among the right ones.
    pub(crate) may_page: bool,
    pub(crate) confidence: Option<f64>,
    pub(crate) delay: Option<Delay>,
    /// Whether base and factor are within 10 %, where the schedule shows and has both.
    pub(crate) named: Option<bool>,
    /// How far base and factor are off, as shares of the true ones.
    pub(crate) errors: Option<[f64; 2]>,
    /// Which plain rules page, in the order of their names.
    pub(crate) plain: Vec<bool>,
}

/// How strong a storm is.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) enum Strength {
    /// Clients that failed together.
    Herd(f64),
    /// Retries where no herd failed together.
    Excess(f64),
}

/// From the first failure to the page.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) struct Delay {
    pub(crate) seconds: f64,
    pub(crate) scrapes: f64,
    /// True waves before the page; none where the schedule has none.
    pub(crate) waves: Option<usize>,
}

/// Which case this draw is of.
fn cell(seed: u64) -> (CaseKind, Sampling) {
    let cell = usize::try_from(seed).unwrap() % CELLS * STRIDE % CELLS;
    let kind = CaseKind::ALL[cell % CaseKind::ALL.len()];
    let sampling = cell / CaseKind::ALL.len();
    let interval_seconds = INTERVALS[sampling % INTERVALS.len()];
    (kind, Sampling { interval_seconds, targets: TARGETS[sampling / INTERVALS.len()] })
}

/// Draws the case of this seed, replays and judges it.
pub(crate) fn draw(seed: u64) -> Case {
    let (kind, sampling) = cell(seed);
    judge(&draw_case(kind, sampling, seed))
}

fn judge(case: &LabelledCase) -> Case {
    let scrape = case.sampling.interval_seconds;
    let incidents = replay::replay(&case.samples, scrape);
    let truth = &case.truth;
    let silence = truth.accept.contains(&None);
    let accepts = |class: &str| truth.accept.contains(&Some(class));
    let paging: Vec<&Incident> = incidents.iter().filter(|it| replay::pages(it)).collect();
    let classes_right = incidents.iter().all(|it| {
        let class = it.verdict.class.as_str();
        accepts(class) || (silence && class == "inconclusive" && !replay::pages(it))
    });
    let starts_right = paging.iter().all(|it| {
        truth.onset.is_none_or(|onset| {
            it.verdict.started_at.seconds_since(onset).abs() <= (2.0 * scrape).max(10.0)
        })
    });
    let is_right =
        classes_right && starts_right && paging.len() <= 1 && (silence || !incidents.is_empty());
    let first = paging.first().copied().or(incidents.first());
    let delay = paging.first().zip(truth.onset).and_then(|(it, onset)| {
        let at = it.detected_at?;
        let seconds = at.seconds_since(onset);
        let before = truth.waves.iter().filter(|wave| **wave <= at).count();
        let waves = (!truth.waves.is_empty()).then_some(before);
        Some(Delay { seconds, scrapes: seconds / scrape, waves })
    });
    let named = paging
        .first()
        .filter(|_| is_right && truth.observable && truth.class == Some(WAVES))
        .zip(truth.policy.as_ref().and_then(base_and_factor))
        .map(|(it, true_ones)| errors(it, true_ones));
    Case {
        name: case.name(),
        kind: case.kind.as_str().to_owned(),
        truth: truth.class.map(str::to_owned),
        jitter: jitter(case),
        interval_seconds: scrape,
        targets: case.sampling.targets,
        strength: strength(case),
        said: first.map(|it| it.verdict.class.as_str().to_owned()),
        right: is_right,
        pages: !paging.is_empty(),
        may_page: ["backoff-without-jitter", "retry-storm-without-backoff", "inconclusive"]
            .into_iter()
            .any(accepts),
        confidence: first.map(|it| it.verdict.confidence),
        delay,
        named: named.map(|errors| errors.is_some_and(|both| both.iter().all(|it| it.abs() <= 0.1))),
        errors: named.flatten(),
        plain: plain::pages(case).to_vec(),
    }
}

/// The first wait and its growth, where the schedule has them.
fn base_and_factor(policy: &RetryPolicy) -> Option<[f64; 2]> {
    match policy.growth {
        Growth::Exponential { factor } => Some([policy.base_seconds, factor]),
        Growth::Fixed => Some([policy.base_seconds, 1.0]),
        _ => None,
    }
}

fn errors(incident: &Incident, [base, factor]: [f64; 2]) -> Option<[f64; 2]> {
    let schedule = incident.verdict.schedule.as_ref()?;
    Some([schedule.base_seconds / base - 1.0, schedule.factor / factor - 1.0])
}

fn jitter(case: &LabelledCase) -> String {
    let Some(policy) = &case.truth.policy else {
        let what = if case.truth.class.is_some() { "no schedule" } else { "no retries" };
        return what.to_owned();
    };
    let spread = match (&policy.growth, policy.jitter) {
        (Growth::Library(_), _) => "a library's own".to_owned(),
        (_, Jitter::None) => "none".to_owned(),
        (_, Jitter::Full) => "full".to_owned(),
        (_, Jitter::Equal) => "equal".to_owned(),
        (_, Jitter::Decorrelated) => "decorrelated".to_owned(),
        (_, Jitter::Scaled { high, .. }) => format!("proportional, {:.0} %", 100.0 * (high - 1.0)),
        (_, Jitter::Added { .. }) => "added".to_owned(),
    };
    let lost = policy.cap_order == CapOrder::JitterThenCap && policy.jitter != Jitter::None;
    if lost { format!("{spread}, lost at the cap") } else { spread }
}

fn strength(case: &LabelledCase) -> Option<Strength> {
    case.truth.class?;
    let normal = case.scenario.clients.iter().find_map(|population| match &population.calls {
        Calls::Stream { profile, .. } => profile.first().map(|(_, rate)| *rate),
        _ => None,
    })?;
    if case.truth.herd > 0 {
        return Some(Strength::Herd(case.truth.herd as f64 / normal));
    }
    let groups = case.happened.populations.iter().flat_map(|it| it.groups.iter().skip(1));
    let retries: u64 = groups.map(|group| group.attempts).sum();
    Some(Strength::Excess(retries as f64 / normal))
}
