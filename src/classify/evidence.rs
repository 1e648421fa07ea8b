//! What a verdict shows for itself: each statistic with its figure and a sentence, and the schedule
//! as the incident names it.

use super::decide::{AMPLIFICATION_MIN, EXCESS_SDS, Reading, SPREAD_HERD, Scene, smeared_requests};
use crate::classify::sentence::{number, percent, seconds};
use crate::classify::{Class, JitterKind, Schedule, ScheduleFamily};
use crate::detect::schedule_fit::{Family, FitReport, Smear, Waits};
use crate::detect::{Evidence, Test};

/// What speaks for and against the reading.
pub(super) fn evidence(scene: &Scene<'_>, reading: &Reading) -> Vec<Evidence> {
    let load = scene.load;
    let mut all = Vec::new();
    if scene.with_errors {
        all.push(Evidence {
            test: Test::ErrorOnset,
            statistic: load.failures(),
            p_value: None,
            supports: scene.failing(),
            says: format!(
                "{} requests failed since the onset, {} more than normal traffic would ({} of all \
                 while trouble was active)",
                number(load.errors),
                number(load.failures()),
                percent(load.error_ratio)
            ),
        });
    }
    all.push(Evidence {
        test: Test::LevelShift,
        statistic: load.excess_sds(),
        p_value: None,
        supports: load.excess_sds() >= EXCESS_SDS,
        says: format!(
            "{} requests above normal over {}, {:.1} standard deviations",
            number(load.excess),
            seconds(load.active_seconds),
            load.excess_sds()
        ),
    });
    all.push(Evidence {
        test: Test::Amplification,
        statistic: load.amplification,
        p_value: None,
        supports: load.amplification >= AMPLIFICATION_MIN,
        says: format!("{:.2} attempts for each request wanted", load.amplification),
    });
    if let Some(fit) = scene.fit {
        let channel = fit.channel.as_str();
        let wins = fit.winner().is_lockstep();
        all.push(Evidence {
            test: Test::ScheduleFit,
            statistic: fit.gain,
            p_value: None,
            supports: wins == (reading.class == Class::BackoffWithoutJitter),
            says: format!(
                "waves in step explain the {channel} of {} intervals {} the best other account \
                 ({}; deviance per interval {:.2}, score margin {:.0})",
                fit.intervals,
                if wins { "better than" } else { "no better than" },
                fit.families
                    .iter()
                    .find(|other| !other.family.is_lockstep())
                    .map_or("none", |other| other.family.as_str()),
                fit.goodness,
                fit.gain
            ),
        });
        all.push(Evidence {
            test: Test::Jitter,
            statistic: fit.told.spread,
            p_value: None,
            supports: (fit.told.spread < SPREAD_HERD)
                == (reading.class == Class::BackoffWithoutJitter),
            says: format!(
                "the waves spread over {} of the gap between them (95 %: {} to {})",
                percent(fit.told.spread),
                percent(fit.told.spread_interval[0]),
                percent(fit.told.spread_interval[1])
            ),
        });
    }
    if let Some(gain) = scene.fit.and_then(|fit| fit.agreement) {
        all.push(Evidence {
            test: Test::ScheduleFit,
            statistic: gain,
            p_value: None,
            supports: (gain > 0.0) == (reading.class == Class::BackoffWithoutJitter),
            says: format!(
                "held against all requests, the waves of the failures explain them {} the same \
                 load without gaps (deviance {:+.0})",
                if gain > 0.0 { "better than" } else { "no better than" },
                gain
            ),
        });
    }
    if let Some(Smear { gain, spread }) = scene.fit.and_then(smeared_requests) {
        all.push(Evidence {
            test: Test::Jitter,
            statistic: spread,
            p_value: None,
            supports: reading.class != Class::BackoffWithoutJitter,
            says: format!(
                "all requests come in wider waves than the failures, {} of each wait (deviance \
                 {gain:+.0}): the jitter is there, and only the middle of each wave fails",
                percent(spread)
            ),
        });
    }
    if let Some(end) = load.trigger_ended_at {
        all.push(Evidence {
            test: Test::OutlivedTrigger,
            statistic: load.active_until.seconds_since(end),
            p_value: None,
            supports: reading.class == Class::RetryStormWithoutBackoff,
            says: format!(
                "goodput came back, and the load stayed up for {} after it",
                seconds(load.active_until.seconds_since(end))
            ),
        });
    }
    all.push(Evidence {
        test: Test::Resolution,
        statistic: scene.resolution.gap_seconds,
        p_value: None,
        supports: reading.class != Class::Inconclusive,
        says: format!(
            "{} targets at {} scrapes tell waves apart that are {} or more from each other",
            scene.resolution.targets,
            seconds(scene.resolution.scrape_seconds),
            seconds(scene.resolution.gap_seconds)
        ),
    });
    let schedule = reading.schedule.clone().or_else(|| scene.fit.map(schedule_of));
    let rhythm = scene.rhythm.map(|rhythm| rhythm.evidence(reading.class, schedule.as_ref()));
    all.extend(rhythm.into_iter().flatten());
    all
}

/// The schedule of the best train.
pub(super) fn schedule_of(fit: &FitReport) -> Schedule {
    let lockstep = &fit.told;
    let (family, base, factor, cap) = match lockstep.waits {
        Waits::Exponential { base_seconds, factor, cap_seconds } => {
            let family = if (factor - 1.0).abs() < 0.02 {
                ScheduleFamily::Fixed
            } else if cap_seconds.is_some() {
                ScheduleFamily::Capped
            } else {
                ScheduleFamily::Exponential
            };
            (family, base_seconds, factor, cap_seconds)
        }
        Waits::Polynomial { base_seconds, power } => {
            (ScheduleFamily::Polynomial, base_seconds, power, None)
        }
        Waits::List(_) => (
            ScheduleFamily::List,
            lockstep.waves.iter().find(|wave| wave.retry == 1).map_or(0.0, |w| w.wait_seconds),
            1.0,
            None,
        ),
    };
    let mut intervals = vec![
        ("base_seconds", lockstep.base_interval),
        ("factor", lockstep.factor_interval),
        ("jitter_fraction", lockstep.spread_interval),
    ];
    if let Some(interval) = lockstep.cap_interval {
        intervals.push(("cap_seconds", interval));
    }
    let smear = smeared_requests(fit);
    let spread = smear.map_or(lockstep.spread, |smear| smear.spread);
    let jitter = match fit.winner() {
        Family::Equal => JitterKind::Equal,
        // Whose waves are that wide and are waves all the same keep a part of each wait fixed.
        _ if smear.is_some() => JitterKind::Equal,
        _ if spread < 0.03 => JitterKind::None,
        _ => JitterKind::Proportional,
    };
    Schedule {
        family,
        base_seconds: base,
        factor,
        cap_seconds: cap,
        attempt_latency_seconds: lockstep.latency_seconds,
        waits_seconds: lockstep
            .waves
            .iter()
            .filter(|wave| wave.retry > 0)
            .map(|wave| wave.wait_seconds)
            .collect(),
        jitter,
        jitter_fraction: spread,
        intervals,
    }
}
