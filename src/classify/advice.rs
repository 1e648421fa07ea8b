//! What a reader can do about an incident: the cure of its class, and the setting of its library.
//!
//! The two diseases want opposite cures. Waves on a schedule want jitter, and nothing else breaks
//! them up: a longer back-off only makes them rarer. A flood wants fewer retries: jitter would only
//! smooth it. The advice is established practice, kept short enough to act on at night; where the
//! client was recognised its own setting comes first, since that is what the reader will change.
//!
//! # Method
//!
//! To keep the peak of `m` synchronised clients at `h` per second, spread them over a window of
//! `w >= m / h` seconds. That window is said here from the fitted herd; what the whole incident
//! would have looked like takes a simulation, which the caller runs and passes in as `effects`.
//!
//! # References
//!
//! * Beyer et al., *Site Reliability Engineering*, chapters 21 and 22: retry budgets, attempts
//!   limited to three, throttling in the client, cascading failures.
//! * Huang et al., Metastable failures in the wild, OSDI 2022: load that outlives its trigger.

use std::fmt;
use std::sync::Arc;

use super::matching::{Seen, TIE, match_storm};
use super::sentence::{number, seconds};
use super::{Advice, Class, Impact, JitterKind, RuleMatch, Schedule, Verdict};
use crate::detect::schedule_fit::KnownWaits;
use crate::rules::Rules;
use crate::rules::policy::{Family, Policy, Spread};

/// Matches whose remedy is quoted: beyond the second the set is no longer a hint.
const REMEDIES_MAX: usize = 2;

/// Share of the usual rate that a recovering service is given on top: a common retry budget is 10 %
/// of the requests, and a service that was sized for its traffic has little more.
const HEADROOM: f64 = 0.5;

/// What the advice would have changed here, in words with numbers, from a simulation of the fitted
/// incident. Empty texts where none was run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// With full jitter and all else as it was.
    pub full_jitter: String,
    /// With a retry budget of a tenth.
    pub retry_budget: String,
    /// With three attempts at most.
    pub attempt_limit: String,
}

/// Computes the effects for a verdict. The core knows no simulator: whoever builds a pipeline
/// passes one in, and without it the advice stands alone.
#[derive(Clone, Default)]
pub struct WhatIf(Option<Arc<Computed>>);

/// The computation itself.
type Computed = dyn Fn(&Verdict) -> Effects + Send + Sync;

impl WhatIf {
    /// Effects by `compute`, which is called for every verdict that is given.
    #[must_use]
    pub fn new(compute: Arc<Computed>) -> Self {
        Self(Some(compute))
    }

    /// The effects for one verdict; empty where nothing computes them.
    #[must_use]
    pub fn effects(&self, verdict: &Verdict) -> Effects {
        self.0.as_ref().map(|compute| compute(verdict)).unwrap_or_default()
    }
}

impl fmt::Debug for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WhatIf").field(&self.0.is_some()).finish()
    }
}

impl PartialEq for WhatIf {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

/// The advice for an incident of `class`, most useful first.
///
/// ```
/// use squall::classify::{Class, Impact, advice};
/// use squall::rules::Rules;
///
/// let effects = advice::Effects::default();
/// let given = advice::advise(
///     Class::RetryStormWithoutBackoff, None, &Impact::default(), &[], &effects, &Rules::builtin());
/// assert_eq!(given[0].title, "Stop the retries");
/// ```
#[must_use]
pub fn advise(
    class: Class,
    schedule: Option<&Schedule>,
    impact: &Impact,
    matches: &[RuleMatch],
    effects: &Effects,
    rules: &Rules,
) -> Vec<Advice> {
    let mut all = match class {
        Class::BackoffWithoutJitter => without_jitter(schedule, impact, effects),
        Class::RetryStormWithoutBackoff => storm(impact, effects),
        Class::PartialJitter => partial(schedule, effects),
        Class::JitteredBackoff => Vec::new(),
        Class::Inconclusive => open_kind(effects),
    };
    let at = all.len().min(1);
    all.splice(at..at, remedies(class, matches, rules));
    all
}

/// The matches of a schedule and the advice that follows, in one step.
#[must_use]
pub fn match_and_advise(
    class: Class,
    schedule: Option<&Schedule>,
    known: &[KnownWaits],
    seen: &Seen,
    impact: &Impact,
    effects: &Effects,
    rules: &Rules,
) -> (Vec<RuleMatch>, Vec<Advice>) {
    let matches = match_storm(schedule, known, seen, rules);
    let advice = advise(class, schedule, impact, &matches, effects, rules);
    (matches, advice)
}

fn advice(title: &str, text: impl Into<String>, effect: &str) -> Advice {
    Advice { title: title.to_owned(), text: text.into(), effect: effect.to_owned() }
}

fn without_jitter(schedule: Option<&Schedule>, impact: &Impact, effects: &Effects) -> Vec<Advice> {
    let mut text = "Draw every wait from 0 to the planned one (full jitter). A longer back-off \
                    without jitter makes the waves rarer and no smaller."
        .to_owned();
    // Where the effect was computed it says this better.
    if effects.full_jitter.is_empty()
        && let Some(window) = window_seconds(impact)
    {
        text.push_str(&format!(
            " {} clients came back together: to stay near {}/s they need a window of {}.",
            number(impact.herd_size),
            number(limit_rate(impact)),
            seconds(window)
        ));
        let waits = schedule.map_or(&[][..], |schedule| &schedule.waits_seconds);
        let longest = waits.iter().copied().fold(0.0, f64::max);
        if longest > 0.0 && longest < window {
            text.push_str(&format!(
                " The longest wait seen is {}: let the waits grow longer as well.",
                seconds(longest)
            ));
        }
    }
    vec![
        advice("Add full jitter", text, &effects.full_jitter),
        advice(
            "Limit the attempts",
            "Three to five attempts, within the time the caller still waits for an answer.",
            &effects.attempt_limit,
        ),
        advice(
            "Spread what the server says",
            "Where the server sends Retry-After, send each client another value; the same one \
             for all makes the next wave.",
            "",
        ),
    ]
}

fn storm(impact: &Impact, effects: &Effects) -> Vec<Advice> {
    let mut stop = "The retries are the load now: switch them off or shed them (answer 429 or 503 \
                    at once, at the proxy) until the dependency has recovered, then let clients \
                    back in steps."
        .to_owned();
    if impact.outlived_trigger_seconds > 0.0 {
        stop.push_str(&format!(
            " The load has outlived its cause by {}: it will not end by itself.",
            seconds(impact.outlived_trigger_seconds.round())
        ));
    }
    vec![
        advice("Stop the retries", stop, ""),
        advice(
            "Give retries a budget",
            "Let each client retry at most 10 % of its requests (5 to 20 % is usual), so that a \
             full failure costs a tenth more and not several times the load.",
            &effects.retry_budget,
        ),
        advice(
            "Limit the attempts, at one layer",
            "At most three attempts, and retry in one layer only: three layers of three attempts \
             are 27. Wait between them, with full jitter.",
            &effects.attempt_limit,
        ),
        advice(
            "Open a circuit breaker",
            "Stop calling a dependency that fails, and probe it with single requests. Never retry \
             one that says it is full (429, 503, RESOURCE_EXHAUSTED) without its leave.",
            "",
        ),
        advice(
            "Set the timeout before the retry",
            "A timeout longer than the caller waits leaves dead work in the queue: bound it, pass \
             the deadline on, and drop what has expired. Retry only what is idempotent.",
            "",
        ),
    ]
}

fn partial(schedule: Option<&Schedule>, effects: &Effects) -> Vec<Advice> {
    let text = match schedule.map(|schedule| schedule.jitter) {
        Some(JitterKind::Equal) => {
            "Half of each wait is the same for all clients (equal jitter). Draw the whole wait."
        }
        _ => {
            "The jitter is narrower than the gap between the waves. Draw the whole wait, from 0; \
             look also at the first wait and at the cap, where many libraries drop their jitter."
        }
    };
    vec![advice("Widen the jitter", text, &effects.full_jitter)]
}

fn open_kind(effects: &Effects) -> Vec<Advice> {
    vec![
        advice(
            "Look at it more closely",
            "This sampling cannot tell waves from a flood: scrape more often, scrape more \
             replicas, or count attempts when they start.",
            "",
        ),
        advice(
            "Give retries a budget, and jitter",
            "Both cures are safe while the kind is open: at most 10 % of the requests may be \
             retries, each after a wait drawn from 0 to the planned one.",
            &effects.retry_budget,
        ),
    ]
}

/// Clients that wait alike up to which the nearest have their own settings told.
const TIES_MAX: usize = 3;

/// The recognised clients' own settings.
fn remedies(class: Class, matches: &[RuleMatch], rules: &Rules) -> Vec<Advice> {
    if class == Class::JitteredBackoff {
        return Vec::new();
    }
    // Of many clients that wait alike none is the one.
    let nearest = matches.first().map_or(0.0, |found| found.distance);
    let ties = matches.iter().filter(|found| found.distance - nearest <= TIE).count();
    // What cannot be ruled out for want of a schedule waits like nothing that was seen.
    let unseen = matches!(class, Class::RetryStormWithoutBackoff | Class::Inconclusive);
    if ties > TIES_MAX && unseen {
        return Vec::new();
    }
    if ties > TIES_MAX {
        return vec![advice(
            "Set it in the library that the callers use",
            format!(
                "{ties} known clients wait like this; each has its own setting for it among the \
                 matches."
            ),
            "",
        )];
    }
    matches
        .iter()
        .take(REMEDIES_MAX)
        .filter_map(|found| rules.schedule(&found.rule))
        .filter(|rule| !rule.remedy.is_empty())
        .map(|rule| advice(&format!("If it is {}", rule.name), rule.remedy.clone(), ""))
        .collect()
}

/// Requests per second that a recovering dependency should see at most.
#[must_use]
pub fn limit_rate(impact: &Impact) -> f64 {
    impact.baseline_rate * (1.0 + HEADROOM)
}

/// The window that keeps the herd within the headroom over the baseline.
fn window_seconds(impact: &Impact) -> Option<f64> {
    let headroom = limit_rate(impact) - impact.baseline_rate;
    let window = (impact.herd_size / headroom).ceil();
    (headroom > 0.0 && window.is_finite() && window >= 1.0).then_some(window)
}

/// Where in its schedule a known policy loses its jitter, for the sentence of a verdict: the first
/// wait, or the cap. Empty where it does not.
#[must_use]
pub fn where_jitter_is_missing(policy: &Policy) -> &'static str {
    if policy.jitter.spread == Spread::None || policy.family() == Family::ServerSent {
        return "";
    }
    let width = |retry: u32| {
        policy.range(retry, None).map(|[low, high]| if high > 0.0 { 1.0 - low / high } else { 0.0 })
    };
    let first = policy.immediate_retries + 1;
    let narrow = |retry: u32| width(retry).is_some_and(|width| width < 0.01);
    // Far enough for every cap to be reached, and no rule gives a law beyond it.
    const AT_CAP: u32 = 60;
    if narrow(first) {
        "the first wait has none"
    } else if policy.cap_seconds.is_some() && policy.attempts_max.is_none() && narrow(AT_CAP) {
        "at the cap it is gone"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(class: Class, matches: &[RuleMatch], impact: &Impact) -> Vec<Advice> {
        advise(class, None, impact, matches, &Effects::default(), &Rules::builtin())
    }

    #[test]
    fn each_class_gets_its_own_cure_and_never_the_other() {
        let impact = Impact::default();
        let waves = given(Class::BackoffWithoutJitter, &[], &impact);
        assert!(waves.iter().all(|advice| !advice.title.contains("Stop the retries")));
        assert_eq!(waves[0].title, "Add full jitter");
        let flood = given(Class::RetryStormWithoutBackoff, &[], &impact);
        assert_eq!(flood[0].title, "Stop the retries");
        assert!(given(Class::JitteredBackoff, &[], &impact).is_empty());
        assert!(!given(Class::Inconclusive, &[], &impact).is_empty());
    }

    #[test]
    fn the_library_that_was_recognised_has_its_own_setting_told() {
        let matches = ["node-retry", "p-retry", "backon"].map(|id| RuleMatch {
            rule: id.to_owned(),
            name: id.to_owned(),
            distance: 0.0,
        });
        let given = given(Class::BackoffWithoutJitter, &matches, &Impact::default());
        assert!(given[1].text.contains("randomize: true"), "{given:?}");
        let told = given.iter().filter(|advice| advice.title.starts_with("If it is")).count();
        assert_eq!(told, REMEDIES_MAX);

        let many: Vec<RuleMatch> = (0..16).map(|_| matches[0].clone()).collect();
        let given = self::given(Class::BackoffWithoutJitter, &many, &Impact::default());
        assert!(given.iter().all(|advice| !advice.title.starts_with("If it is")), "{given:?}");
        assert!(given.iter().any(|advice| advice.text.contains("16 known clients")), "{given:?}");
        // Where no schedule is told nobody waits like anything.
        for class in [Class::Inconclusive, Class::RetryStormWithoutBackoff] {
            let open = self::given(class, &many, &Impact::default());
            assert!(open.iter().all(|advice| !advice.text.contains("known clients")), "{open:?}");
        }
    }

    #[test]
    fn the_window_keeps_the_herd_within_the_headroom() {
        let impact = Impact { baseline_rate: 200.0, herd_size: 2000.0, ..Impact::default() };
        // 2,000 clients at 100/s of headroom.
        assert_eq!(window_seconds(&impact), Some(20.0));
        assert_eq!(window_seconds(&Impact::default()), None);
        let text = &given(Class::BackoffWithoutJitter, &[], &impact)[0].text;
        assert!(text.contains("2,000 clients") && text.contains("a window of 20 s"), "{text}");
    }

    #[test]
    fn effects_of_a_simulation_are_passed_on() {
        let effects = Effects { full_jitter: "peak 310/s".to_owned(), ..Effects::default() };
        let rules = Rules::builtin();
        let given =
            advise(Class::BackoffWithoutJitter, None, &Impact::default(), &[], &effects, &rules);
        assert_eq!(given[0].effect, "peak 310/s");
    }

    #[test]
    fn the_place_without_jitter_is_named() {
        let rules = Rules::builtin();
        let says = |id: &str| where_jitter_is_missing(rules.policy(id).unwrap());
        assert_eq!(says("grpc-go-connection"), "the first wait has none");
        assert_eq!(says("stripe-node"), "the first wait has none");
        assert_eq!(says("datadog-agent-forwarder"), "at the cap it is gone");
        assert_eq!(says("grpc-java-connection"), "");
        assert_eq!(says("node-retry"), "");
    }
}
