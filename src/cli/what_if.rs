//! What the advice would have changed, by the simulator, for the verdicts of every command.
//!
//! The core knows no simulator, and detection must never learn from one: only the sentence beside
//! the advice comes from it, after everything is decided.

use std::sync::Arc;
use std::thread;

use crate::classify::advice::{Effects, WhatIf, limit_rate};
use crate::classify::sentence::{number, percent, seconds};
use crate::classify::{Class, Verdict};
use crate::detect::schedule_fit::Channel;
use crate::pipeline;
use crate::pipeline::crew::Crew;
use crate::sim::counterfactual::{Herd, counterfactual};

/// Most threads: past that, reading the history is what takes the time.
const THREADS_MAX: usize = 8;
/// Share of its height from which a peak counts as no lower: the first wait is then too short.
const NO_LOWER: f64 = 0.8;
/// Retries left by a limit of three attempts.
const RETRIES_LIMITED: usize = 2;
/// Share of the requests that a budget leaves to retries.
const BUDGET: f64 = 0.1;
/// Amplification under which a budget would have changed nothing worth a sentence.
const AMPLIFICATION_MIN: f64 = 1.2;

/// What the pipelines of this program are told, besides their watches.
#[must_use]
pub(crate) fn pipeline_config() -> pipeline::Config {
    pipeline::Config {
        what_if: WhatIf::new(Arc::new(effects)),
        crew: Crew::new(Arc::new(on_every_processor)),
        ..pipeline::Config::default()
    }
}

/// Runs the work on as many threads as there are processors.
fn on_every_processor(work: &(dyn Fn() + Sync)) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..processors.min(THREADS_MAX) {
            scope.spawn(work);
        }
        work();
    });
}

/// What the advice would have changed in one incident.
fn effects(verdict: &Verdict) -> Effects {
    let in_waves = matches!(verdict.class, Class::BackoffWithoutJitter | Class::PartialJitter);
    let herd = in_waves.then(|| herd(verdict)).flatten();
    Effects {
        full_jitter: herd.as_ref().map(|herd| jittered(verdict, herd)).unwrap_or_default(),
        retry_budget: budgeted(verdict),
        attempt_limit: herd.as_ref().map(limited).unwrap_or_default(),
    }
}

/// The herd as it was fitted; none without two waves.
fn herd(verdict: &Verdict) -> Option<Herd> {
    let schedule = verdict.schedule.as_ref()?;
    // Who failed in a wave comes again in the next, and the first wave is the failure itself: where
    // the waves count failures, those of one make the retries after it.
    let counts_failures = verdict.waves.first()?.counts == Channel::Errors;
    let waves = verdict.waves.get(usize::from(!counts_failures)..)?;
    let (mut clients, mut waits_seconds) = (Vec::new(), Vec::new());
    let mut left = f64::INFINITY;
    for (wave, wait) in waves.iter().zip(&schedule.waits_seconds) {
        // Clients leave and never join.
        left = left.min(wave.requests.max(0.0));
        clients.push(left);
        waits_seconds.push(wait + schedule.attempt_latency_seconds.max(0.0));
    }
    let background_rate = verdict.impact.baseline_rate;
    (clients.len() > 1 && clients[0] >= 1.0).then_some(Herd {
        clients,
        waits_seconds,
        background_rate,
    })
}

fn jittered(verdict: &Verdict, herd: &Herd) -> String {
    let limit = limit_rate(&verdict.impact).max(1.0);
    let other = counterfactual(herd, limit);
    // A share and no rate: the herd is computed on a grid of its own, and one incident has one peak.
    let mut says = format!(
        "With full jitter the busiest second of the retries would have had {} of its requests.",
        percent(other.peak_with_full_jitter / other.peak_without_jitter.max(1.0))
    );
    if other.peak_with_full_jitter > NO_LOWER * other.peak_without_jitter {
        // The wave that jitter melts most, where the first wait is too short for it.
        let melted = (1..).zip(&other.waves).min_by(|(_, a), (_, b)| {
            let left = |wave: &[f64; 2]| wave[1] / wave[0].max(1.0);
            left(a).total_cmp(&left(b))
        });
        if let Some((wave, [in_step, spread])) = melted {
            says = format!(
                "The first wait of {} is too short to spread {} clients over, but retry {wave} would \
                 have had {} of the requests in its busiest second.",
                seconds(herd.waits_seconds[0]),
                number(herd.clients[0]),
                percent(spread / in_step.max(1.0))
            );
        }
    }
    if let Some(window) = other.window_seconds.filter(|window| *window >= 0.1) {
        says.push_str(&format!(
            " A first wait drawn from 0 to {} would have kept it under {}/s.",
            seconds(window),
            number(limit)
        ));
    }
    says
}

fn limited(herd: &Herd) -> String {
    let all: f64 = herd.clients.iter().sum();
    let kept: f64 = herd.clients.iter().take(RETRIES_LIMITED).sum();
    if kept >= all * NO_LOWER {
        return String::new();
    }
    format!(
        "A limit of three attempts would have sent about {} retries instead of {}.",
        number(kept),
        number(all)
    )
}

/// A budget caps the retries whatever they wait: at most a tenth on top of what is wanted.
fn budgeted(verdict: &Verdict) -> String {
    let impact = &verdict.impact;
    if impact.amplification < AMPLIFICATION_MIN || impact.peak_rate <= impact.baseline_rate {
        return String::new();
    }
    let wanted = impact.peak_rate / impact.amplification;
    let budgeted = ((1.0 + BUDGET) * wanted).min(impact.peak_rate);
    format!(
        "The peak of {}/s would have been {}/s at most.",
        number(impact.peak_rate),
        number(budgeted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Impact, JitterKind, Schedule, ScheduleFamily, Severity, Wave};
    use crate::series::Timestamp;

    fn verdict(base: f64) -> Verdict {
        let waits: Vec<f64> = [1.0, 2.0, 4.0, 8.0].map(|times| times * base).to_vec();
        let mut at = 0.0;
        let waves = [0.0].iter().chain(&waits).map(|wait| {
            at += wait;
            Wave {
                expected_at: Timestamp::from_seconds(at),
                requests: 2000.0,
                counts: Channel::Requests,
            }
        });
        Verdict {
            class: Class::BackoffWithoutJitter,
            severity: Severity::Critical,
            started_at: Timestamp::default(),
            confidence: 0.9,
            summary: String::new(),
            waves: waves.collect(),
            schedule: Some(Schedule {
                family: ScheduleFamily::Exponential,
                base_seconds: base,
                factor: 2.0,
                cap_seconds: None,
                attempt_latency_seconds: 0.0,
                waits_seconds: waits,
                jitter: JitterKind::None,
                jitter_fraction: 0.0,
                intervals: Vec::new(),
            }),
            next_wave_at: None,
            impact: Impact {
                baseline_rate: 400.0,
                peak_rate: 2000.0,
                amplification: 3.0,
                ..Impact::default()
            },
            evidence: Vec::new(),
            matches: Vec::new(),
            advice: Vec::new(),
        }
    }

    #[test]
    fn the_peak_falls_and_the_window_is_named() {
        let says = effects(&verdict(4.0)).full_jitter;
        let start = "With full jitter the busiest second of the retries would have had ";
        let share = says.strip_prefix(start).expect(&says).split(' ').next().unwrap();
        assert!(share.parse::<f64>().is_ok_and(|share| (20.0..60.0).contains(&share)), "{says}");
        // The herd is computed on a grid of its own: its rates are no second peak.
        assert!(!says.contains("2,400"), "{says}");
        // 2,000 clients at 200/s above the 400/s there are take ten seconds.
        assert!(says.contains("drawn from 0 to 1") && says.contains("under 600/s"), "{says}");
    }

    #[test]
    fn a_first_wait_that_is_too_short_is_said_to_be() {
        let says = effects(&verdict(0.5)).full_jitter;
        let wanted = "0.5 s is too short to spread 2,000 clients over, but retry 4 would have had ";
        assert!(says.contains(wanted), "{says}");
    }

    #[test]
    fn limits_and_budgets_are_told_in_numbers() {
        let effects = effects(&verdict(1.0));
        assert_eq!(
            effects.attempt_limit,
            "A limit of three attempts would have sent about 4,000 retries instead of 8,000."
        );
        assert_eq!(effects.retry_budget, "The peak of 2,000/s would have been 733/s at most.");
    }

    #[test]
    fn those_who_failed_make_the_next_retries() {
        let mut failures = verdict(1.0);
        for (wave, failed) in failures.waves.iter_mut().zip([2000.0, 1500.0, 1000.0, 500.0, 100.0])
        {
            (wave.requests, wave.counts) = (failed, Channel::Errors);
        }
        assert_eq!(
            effects(&failures).attempt_limit,
            "A limit of three attempts would have sent about 3,500 retries instead of 5,000."
        );
    }

    #[test]
    fn a_flood_has_no_herd_to_spread() {
        let flood = Verdict { class: Class::RetryStormWithoutBackoff, ..verdict(1.0) };
        let effects = effects(&flood);
        assert!(effects.full_jitter.is_empty() && !effects.retry_budget.is_empty());
    }
}
