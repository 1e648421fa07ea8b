//! From a fitted schedule to the clients that would have made it, with honest ties.
//!
//! Many libraries share one schedule: fifteen double from one second. A single culprit would be a
//! guess, so the answer is the set of rules that the data cannot exclude, the nearest first. A rule
//! is excluded by its waits, its jitter, or by giving up before the last wave seen; it is never
//! excluded for what this sampling could not have shown.
//!
//! # Method
//!
//! With `r_n` the rule's planned waits (immediate ones and those shorter than the resolution left
//! out, as they melt into the first wave), `w_n` the fitted ones, `K` waves seen:
//!
//! ```text
//! distance = sqrt( (1/K) * sum_n ln((r_n + latency) / (w_n + latency))^2 )
//!          + jitter mismatch + 0.02 * other marks that speak against it
//! ```
//!
//! so 0.05 reads as "its waits are 5 % off". A rule fits when each of its waits lies in the envelope
//! that the 95 % intervals of base, factor and cap allow, widened by [`SLACK`].
//!
//! That is what a schedule alone can say. For a storm the counts themselves are asked as well: each rule
//! in step is fitted by its own waits (`detect::schedule_fit`), and one is a match when it loses less
//! than ten of deviance against the likeliest. Intervals of parameters miss what lies across
//! a ridge of the likelihood; a fit of the rule itself does not.
//!
//! Load that stays up with no waves in it is what clients make whose waits are all shorter than the
//! sampling can tell apart, if they do not give up before it ends: of those, none can be excluded.
//!
//! A fit that shows only a beat (fixed waits, several times) may be the tail of a capped schedule
//! whose short waits went by unseen: such rules are returned behind those with a fixed wait. A beat
//! of whole seconds may also be a server's `Retry-After`.
//!
//! # Assumptions, and what happens when they fail
//!
//! * The intervals hold the truth: with intervals that are too narrow the true rule is lost.
//! * One library makes the train. A mixed herd matches whichever part the fit followed.

use super::{JitterKind, RuleMatch, Schedule, ScheduleFamily, Wave};
use crate::detect::schedule_fit::KnownWaits;
use crate::rules::policy::{Family, Policy, Spread};
use crate::rules::schedule::ScheduleRule;
use crate::rules::{FOLLOWED_MAX, Rules};

/// Relative slack on each wait beyond its interval: clients measure from different instants (start
/// or end of an attempt), and timers fire late by some percent.
pub const SLACK: f64 = 0.04;

/// Share of the resolvable gap by which a wait may be off on top: a wave stands somewhere between
/// two scrapes, and the intervals of a fit do not know when it took one wave for another.
const BLUR: f64 = 0.5;

/// Share of a wait that this may come to at most: past it, 1 s and 1.25 s would be one schedule.
const BLUR_MAX: f64 = 0.12;

/// Relative slack where no interval is known and the waits were typed in by a person, who rounds.
pub const TYPED_SLACK: f64 = 0.06;

/// Largest difference of the waves' spread (deviation over gap) that is still the same jitter: the
/// spread at ±20 % and that of equal jitter are 0.09 apart.
pub const SPREAD_SLACK: f64 = 0.08;

/// What each mark against a rule adds: enough to rank behind, too little to exclude.
const MARK: f64 = 0.02;

/// Added to a rule whose tail alone fits: behind every rule that fits as a whole.
const TAIL_ONLY: f64 = 0.10;

/// Fewest waves of one beat before it may be the tail of a capped schedule.
const BEAT_WAVES_MIN: usize = 3;

/// Most matches returned: more than the clients in step that squall knows, so that of a single burst
/// nobody is left out for his place in a tie of all.
const MATCHES_MAX: usize = 160;

/// Clients past which those that hold a level are not told: anybody could have.
const UNSEEN_MAX: usize = 40;

/// Longest wait of those that hold a level, as a share of the gap that can be told: nearer than half as
/// much again, waves of a level are too low to stand out of it.
const UNSEEN_SHARE: f64 = 1.5;

/// The failure over the wave after it, under which nobody tried again at once, and about which all did
/// if the waves after it keep their height.
const NO_SECOND_TRY: f64 = 1.5;
const SECOND_TRY: std::ops::RangeInclusive<f64> = 1.8..=2.2;
const STEADY: f64 = 0.9;

/// Share of the largest wave under which the last waves have no substance.
const SUBSTANCE: f64 = 0.05;

/// Loss of a known schedule behind the likeliest one at which 95 % of true ones are as likely: the
/// distance of a tie.
const LOSS_95: f64 = 3.84;

/// Loss behind the likeliest known schedule past which a client did not make this storm.
const TIED_LOSS: f64 = 10.0;

/// Seconds that a level lasts at least.
const LEVEL_SECONDS: f64 = 25.0;

/// Two matches this near are a tie.
pub(crate) const TIE: f64 = 0.01;

/// What is known besides the fitted waits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// Waves that were certain; 0 for as many as the fit has waits.
    pub waves: usize,
    /// Waits shorter than this melt into the wave before, seconds.
    pub resolvable_gap_seconds: f64,
    /// Whether a burst came at once after the failure, where that could be seen.
    pub immediate_first_retry: Option<bool>,
    /// Retries after which the waves ended though the failure went on: an attempt limit.
    pub gave_up_after: Option<usize>,
    /// Attempts for each request wanted, where load stayed up with no waves in it.
    pub level: Option<f64>,
}

/// Whether the clients tried again at once, by the first waves: then the failure is twice as high as the
/// wave after it. None where the sampling keeps the two in one, and where it is higher for another reason:
/// those that never retry fail with it.
#[must_use]
pub fn tried_at_once(waves: &[Wave], resolvable_gap_seconds: f64) -> Option<bool> {
    let [failure, first, rest @ ..] = waves else { return None };
    let apart = first.expected_at.seconds_since(failure.expected_at);
    if apart < resolvable_gap_seconds || first.requests < 1.0 {
        return None;
    }
    let ratio = failure.requests / first.requests;
    let steady = rest.first().is_some_and(|next| next.requests > STEADY * first.requests);
    if ratio < NO_SECOND_TRY {
        Some(false)
    } else if steady && SECOND_TRY.contains(&ratio) {
        Some(true)
    } else {
        None
    }
}

/// The schedule without the waits behind its last wave of substance: a fit may go on with waves of
/// next to nobody while failures last, and a client that gave up is not excluded by those.
#[must_use]
pub fn of_substance(schedule: &Schedule, waves: &[Wave]) -> Schedule {
    let mut schedule = schedule.clone();
    // The first wave is the failure itself.
    let retries = waves.get(1..).unwrap_or_default();
    if retries.len() == schedule.waits_seconds.len() {
        let largest = retries.iter().map(|wave| wave.requests).fold(0.0, f64::max);
        let last = retries.iter().rposition(|wave| wave.requests >= SUBSTANCE * largest);
        schedule.waits_seconds.truncate(last.map_or(1, |last| last + 1));
    }
    schedule
}

/// The rules that fit `schedule`, the nearest first. Equal distances are ties: see [`says`].
#[must_use]
pub fn match_schedule(schedule: &Schedule, seen: &Seen, rules: &Rules) -> Vec<RuleMatch> {
    let fit = Fit { gap: seen.resolvable_gap_seconds, ..Fit::of(schedule) };
    let mut matches: Vec<RuleMatch> = rules
        .schedules()
        .iter()
        .filter_map(|rule| {
            let distance = distance(rule, schedule, &fit, seen)?;
            Some(RuleMatch { rule: rule.id.clone(), name: rule.name.clone(), distance })
        })
        .collect();
    rank(&mut matches, rules);
    matches
}

/// The rules of a storm: those in step by how well their own waits explain the counts, where that was
/// asked (`known`), and the others by the schedule that is told.
#[must_use]
pub fn match_storm(
    schedule: Option<&Schedule>,
    known: &[KnownWaits],
    seen: &Seen,
    rules: &Rules,
) -> Vec<RuleMatch> {
    let mut matches =
        schedule.map_or_else(Vec::new, |schedule| match_schedule(schedule, seen, rules));
    if let Some(best) = known.first() {
        let fitted = |rule: &ScheduleRule| rule.policy.is_synchronised() && rule.policy.is_timed();
        matches.retain(|found| !rules.schedule(&found.rule).is_some_and(|rule| fitted(rule)));
        for rule in rules.schedules().iter().filter(|rule| fitted(rule)) {
            let waits = rule.policy.timed_waits(FOLLOWED_MAX);
            let Some(found) = known.iter().find(|known| known.waits_seconds == waits) else {
                continue;
            };
            let behind = found.loss - best.loss;
            if behind <= TIED_LOSS {
                let at_once = rule.policy.first_retry_is_immediate();
                let off = seen.immediate_first_retry.is_some_and(|seen| seen != at_once);
                let mark = if off { MARK } else { 0.0 };
                matches.push(named(rule, TIE * behind / LOSS_95 + mark));
            }
        }
    }
    matches.extend(of_level(&matches, seen, rules));
    rank(&mut matches, rules);
    matches
}

/// Those whose waits are too short to be seen, and not among `matches` yet, where load stayed up
/// with no waves in it. The shorter the waits, the more level the load. Too many are none.
fn of_level(matches: &[RuleMatch], seen: &Seen, rules: &Rules) -> Vec<RuleMatch> {
    let Some(amplification) = seen.level else { return Vec::new() };
    let unseen = |share_max: f64| -> Vec<RuleMatch> {
        rules
            .schedules()
            .iter()
            .filter(|rule| matches.iter().all(|found| found.rule != rule.id))
            .filter_map(|rule| {
                let longest = level_waits(&rule.policy, amplification)?;
                let share = longest / seen.resolvable_gap_seconds;
                (share <= share_max).then(|| named(rule, MARK * share))
            })
            .collect()
    };
    let few = |found: &Vec<RuleMatch>| found.len() <= UNSEEN_MAX;
    [UNSEEN_SHARE, 1.0].map(unseen).into_iter().find(few).unwrap_or_default()
}

/// The longest wait of clients that could hold a level: each goes on for as long as a level takes to
/// be one, or tries as often as requests were multiplied.
fn level_waits(policy: &Policy, amplification: f64) -> Option<f64> {
    if policy.family() == Family::ServerSent {
        return None;
    }
    let waits = policy.waits(FOLLOWED_MAX);
    let lasting = policy.retries_max().is_none_or(|most| {
        f64::from(most) + 1.0 >= amplification || waits.iter().sum::<f64>() >= LEVEL_SECONDS
    });
    lasting.then(|| waits.iter().copied().fold(0.0, f64::max))
}

/// The rules whose planned waits are `waits_seconds`, as a person types them; a leading 0 is an
/// immediate first retry.
///
/// ```
/// use squall::classify::matching::match_waits;
/// use squall::rules::Rules;
///
/// let matches = match_waits(&[0.0, 1.6, 3.2], &Rules::builtin());
/// assert_eq!(matches[0].rule, "azure-core-python");
/// ```
#[must_use]
pub fn match_waits(waits_seconds: &[f64], rules: &Rules) -> Vec<RuleMatch> {
    let leading = waits_seconds.iter().take_while(|wait| **wait <= 0.0).count();
    let timed = &waits_seconds[leading..];
    let schedule = Schedule {
        family: ScheduleFamily::List,
        base_seconds: timed.first().copied().unwrap_or(0.0),
        factor: 1.0,
        cap_seconds: None,
        attempt_latency_seconds: 0.0,
        waits_seconds: timed.to_vec(),
        jitter: JitterKind::Unknown,
        jitter_fraction: 0.0,
        intervals: Vec::new(),
    };
    let seen = Seen { waves: waits_seconds.len(), ..Seen::default() };
    let fit = Fit { slack: TYPED_SLACK, ..Fit::of(&schedule) };
    let mut matches: Vec<RuleMatch> = rules
        .schedules()
        .iter()
        .filter_map(|rule| {
            let at_once = rule.policy.waits(leading_max(&rule.policy));
            let at_once = at_once.iter().take_while(|wait| **wait <= 0.0).count();
            if timed.is_empty() {
                let never = rule.policy.family() == Family::Immediate;
                let distance = if never { 0.0 } else { MARK };
                return (at_once >= leading && leading > 0)
                    .then(|| named(rule, distance + spread_of(rule, leading)));
            }
            if at_once != leading {
                return None;
            }
            // Typed waits say nothing of the jitter: less of it is nearer.
            let distance = distance(rule, &schedule, &fit, &seen)?;
            Some(named(rule, distance + spread_of(rule, timed.len())))
        })
        .collect();
    rank(&mut matches, rules);
    matches
}

fn named(rule: &ScheduleRule, distance: f64) -> RuleMatch {
    RuleMatch { rule: rule.id.clone(), name: rule.name.clone(), distance }
}

fn spread_of(rule: &ScheduleRule, waves: usize) -> f64 {
    rule.policy.jitter_fraction(u32::try_from(waves).unwrap_or(u32::MAX))
}

fn leading_max(policy: &Policy) -> u32 {
    policy.immediate_retries.saturating_add(8)
}

/// Nearest first; in a tie those without jitter, then by id, so that the order never depends on
/// anything else.
fn rank(matches: &mut Vec<RuleMatch>, rules: &Rules) {
    let in_step =
        |found: &RuleMatch| rules.policy(&found.rule).is_some_and(Policy::is_synchronised);
    matches.sort_by(|a, b| {
        a.distance
            .total_cmp(&b.distance)
            .then_with(|| in_step(b).cmp(&in_step(a)))
            .then_with(|| a.rule.cmp(&b.rule))
    });
    matches.truncate(MATCHES_MAX);
}

/// The sentence about the matches: the nearest, and what it cannot be told apart from.
#[must_use]
pub fn says(matches: &[RuleMatch]) -> String {
    let Some(best) = matches.first() else {
        return "no known client waits like this".to_owned();
    };
    let ties: Vec<&str> = matches[1..]
        .iter()
        .filter(|other| other.distance - best.distance <= TIE)
        .map(|other| other.name.as_str())
        .collect();
    match ties[..] {
        [] => format!("waits like {}", best.name),
        [one] => format!("waits like {}, which cannot be told apart from {one}", best.name),
        [first, second] => {
            format!(
                "waits like {}, which cannot be told apart from {first} and {second}",
                best.name
            )
        }
        [first, second, ref more @ ..] => format!(
            "waits like {}, which cannot be told apart from {first}, {second} and {} more",
            best.name,
            more.len()
        ),
    }
}

/// The fitted waits and how far each may be off.
struct Fit {
    waits: Vec<f64>,
    envelope: Vec<[f64; 2]>,
    slack: f64,
    gap: f64,
    latency: f64,
    is_beat: bool,
    spread: Option<[f64; 2]>,
}

impl Fit {
    fn of(schedule: &Schedule) -> Self {
        let interval = |name: &str| {
            schedule.intervals.iter().find(|(known, _)| *known == name).map(|(_, bounds)| *bounds)
        };
        let base = interval("base_seconds");
        let factor = interval("factor");
        let cap = interval("cap_seconds");
        let waits: Vec<f64> =
            schedule.waits_seconds.iter().copied().filter(|wait| *wait > 0.0).collect();
        let envelope = (0..)
            .zip(&waits)
            .map(|(index, wait): (i32, &f64)| {
                let at_cap = schedule.cap_seconds.is_some_and(|cap| *wait >= 0.99 * cap);
                let mut around = [*wait, *wait];
                for (side, bound) in around.iter_mut().enumerate() {
                    // Each parameter at its own end moves this wait by its own ratio.
                    let base = base.map_or(1.0, |ends| ends[side] / schedule.base_seconds);
                    let growth =
                        factor.map_or(1.0, |ends| (ends[side] / schedule.factor).powi(index));
                    let ratio = match cap {
                        Some(ends) if at_cap => {
                            ends[side] / schedule.cap_seconds.unwrap_or(ends[side])
                        }
                        _ => base * growth,
                    };
                    if ratio.is_finite() && ratio > 0.0 {
                        *bound *= ratio;
                    }
                }
                [around[0].min(*wait), around[1].max(*wait)]
            })
            .collect();
        let longest = waits.iter().copied().fold(0.0, f64::max);
        let shortest = waits.iter().copied().fold(f64::INFINITY, f64::min);
        let spread = match (interval("jitter_fraction"), schedule.jitter) {
            (Some(ends), _) => Some(ends),
            (None, JitterKind::Unknown) => None,
            (None, _) => Some([schedule.jitter_fraction; 2]),
        };
        Self {
            is_beat: schedule.family == ScheduleFamily::Fixed
                || (waits.len() >= BEAT_WAVES_MIN && longest <= shortest * (1.0 + SLACK)),
            waits,
            envelope,
            slack: SLACK,
            gap: 0.0,
            latency: schedule.attempt_latency_seconds.max(0.0),
            spread,
        }
    }

    /// Root mean square of the log ratios; none when a wait lies outside of what the data allow.
    fn compare(&self, rule: &[f64]) -> Option<f64> {
        if rule.len() < self.waits.len() || self.waits.is_empty() {
            return None;
        }
        let mut sum = 0.0;
        for ((rule, fitted), [low, high]) in rule.iter().zip(&self.waits).zip(&self.envelope) {
            let blur = (BLUR * self.gap).clamp(0.0, BLUR_MAX * fitted);
            let low = low * (1.0 - self.slack) - blur;
            let high = high * (1.0 + self.slack) + blur;
            // A client that counts from the start of its attempt waits a latency less.
            if *rule > high + self.latency || *rule < low - 1e-4 {
                return None;
            }
            sum += ((rule + self.latency) / (fitted + self.latency)).ln().powi(2);
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of waves")]
        Some((sum / self.waits.len() as f64).sqrt())
    }
}

/// The distance of a rule, none when the data exclude it.
fn distance(rule: &ScheduleRule, schedule: &Schedule, fit: &Fit, seen: &Seen) -> Option<f64> {
    let policy = &rule.policy;
    if policy.family() == Family::ServerSent {
        return retry_after(schedule, fit);
    }
    let waves = seen.waves.max(fit.waits.len());
    let retries = policy.retries_max().map_or(usize::MAX, |most| most as usize);
    // Immediate retries make one wave at the failure itself, if any.
    if retries.saturating_sub(policy.immediate_retries as usize) < fit.waits.len() {
        return None;
    }
    let count = u32::try_from(waves).unwrap_or(u32::MAX).saturating_add(64);
    let planned = policy.waits(count);
    let timed: Vec<f64> = planned.iter().copied().skip_while(|wait| *wait <= 0.0).collect();
    let (waits_distance, tail_only) = align(&timed, fit, seen)?;
    let mut distance = waits_distance;
    if tail_only {
        distance += TAIL_ONLY;
    }
    if let Some([low, high]) = fit.spread {
        let spread = spread_of(rule, waves.max(1));
        let off = (low - spread).max(spread - high).max(0.0);
        if off > SPREAD_SLACK {
            return None;
        }
        distance += off / 2.0;
        distance += if same_kind(schedule.jitter, policy.jitter.spread) { 0.0 } else { MARK };
    }
    if seen.immediate_first_retry.is_some_and(|seen| seen != policy.first_retry_is_immediate()) {
        distance += MARK;
    }
    if let Some(gave_up) = seen.gave_up_after {
        distance += match policy.retries_max() {
            Some(most) if (most as usize).abs_diff(gave_up) <= 1 => 0.0,
            Some(_) => 2.0 * MARK,
            None => 4.0 * MARK,
        };
    }
    Some(distance)
}

/// Tries the rule's waits against the fit with its unresolved leading waits left out one by one;
/// for a beat also with its whole ramp left out.
fn align(timed: &[f64], fit: &Fit, seen: &Seen) -> Option<(f64, bool)> {
    let mut best = fit.compare(timed);
    let mut melted = 0.0;
    for (skip, wait) in timed.iter().enumerate() {
        melted += wait;
        if melted > seen.resolvable_gap_seconds {
            break;
        }
        let rest = fit.compare(&timed[skip + 1..]);
        best = match (best, rest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    if let Some(best) = best {
        return Some((best, false));
    }
    if !fit.is_beat || fit.waits.len() < BEAT_WAVES_MIN {
        return None;
    }
    // The last wait listed is the one that repeats; the ramp before it must be a small part.
    let tail = *timed.last()?;
    let ramp = timed.iter().take_while(|wait| **wait < tail * (1.0 - SLACK)).count();
    let repeats = timed.len().saturating_sub(ramp);
    if repeats < fit.waits.len() {
        return None;
    }
    fit.compare(&vec![tail; fit.waits.len()]).map(|distance| (distance, true))
}

/// A beat of whole seconds may be what a server told everyone.
fn retry_after(schedule: &Schedule, fit: &Fit) -> Option<f64> {
    if !fit.is_beat || fit.waits.len() < 2 {
        return None;
    }
    let wait = fit.waits[0];
    let whole = wait.round();
    let [low, high] = fit.envelope[0];
    let fits = whole >= 1.0 && (low * (1.0 - SLACK)..=high * (1.0 + SLACK)).contains(&whole);
    let in_step = schedule.jitter_fraction <= SPREAD_SLACK;
    (fits && in_step).then(|| (whole / wait).ln().abs() + MARK)
}

fn same_kind(fitted: JitterKind, rule: Spread) -> bool {
    match fitted {
        JitterKind::Unknown => true,
        JitterKind::None => rule == Spread::None,
        JitterKind::Proportional => {
            matches!(rule, Spread::Proportional | Spread::Additive | Spread::Other)
        }
        JitterKind::Equal => matches!(rule, Spread::Equal | Spread::Proportional | Spread::Other),
        JitterKind::Full => matches!(rule, Spread::Full | Spread::Decorrelated | Spread::Other),
        JitterKind::Decorrelated => matches!(rule, Spread::Decorrelated | Spread::Full),
    }
}

#[cfg(test)]
mod tests;
