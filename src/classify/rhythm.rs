//! What repeats: the period, the comb of lags, the clock on the wall, and what the data make themselves.
//!
//! The schedule fit asks whether clients that failed together come back together. A continuing outage
//! has no common start, and a cron job has nothing to do with failures: for these the residuals are
//! listened to as a time series. Every answer here has a p-value that allows for red noise and for all
//! the periods and schedules that were tried.

use crate::classify::sentence::{number, percent, seconds};
use crate::classify::{Class, JitterKind, Observation, ObservationKind, Schedule, ScheduleFamily};
use crate::detect::comb::{Comb, CombBank, find_comb};
use crate::detect::even::{Count, EvenResiduals};
use crate::detect::period::{Period, find_period_in};
use crate::detect::spectrum::Spectrum;
use crate::detect::wall_clock::{Staircase, WallClock, shared_gaps, staircase, wall_clock};
use crate::detect::warped::{WarpedPeak, warped_peaks};
use crate::detect::{Evidence, Test};
use crate::series::{Interval, Timestamp};

/// p-value below which something repeats.
const REPEATS: f64 = 0.01;
/// p-value of a comb below which it names a schedule by itself.
const COMB_CERTAIN: f64 = 1e-4;
/// Teeth of such a comb.
const COMB_TEETH: usize = 4;
/// Share of the trouble, from its start, that no comb is read from.
const TRANSIENT_SHARE: f64 = 0.1;
/// p-value of a period below which load on the clock is told from a surge.
const SCHEDULED: f64 = 1e-3;
/// How near the screen in warped time comes to a schedule that it bears out.
const WARPED_NEAR: f64 = 0.15;

/// What is listened to.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Intervals of the trouble.
    pub during: &'a [Interval],
    /// Those of normal traffic before it, to compare.
    pub before: &'a [Interval],
    /// Between which instants the first failure lies.
    pub bracket: [Timestamp; 2],
    /// Periods that are the exporter's own, seconds: no evidence of anything.
    pub flush: &'a [f64],
}

/// What repeats in one stretch of counts.
#[derive(Debug, Clone, Default)]
pub struct Rhythm {
    period: Option<Period>,
    clock: Option<WallClock>,
    comb: Option<Comb>,
    warped: Option<WarpedPeak>,
    staircase: Option<Staircase>,
    gap_seconds: f64,
}

/// The comb of what goes on once the first failures and their decay have passed: the bank's law is
/// that of steady noise, and the first seconds of a herd are larger than everything after them.
fn steady_comb(told: &Told<'_>, count: Count, own: &[f64]) -> Option<Comb> {
    let until = told.during.iter().map(|interval| interval.to).max()?;
    let lasts = until.seconds_since(told.bracket[1]).max(0.0);
    let from = told.bracket[1].plus_seconds(TRANSIENT_SHARE * lasts);
    let steady: Vec<Interval> =
        told.during.iter().filter(|interval| interval.from >= from).copied().collect();
    let even = EvenResiduals::new(&steady, count).ok()?;
    let mut spectrum = Spectrum::new(&even).ok()?;
    spectrum.exclude(own);
    let bank = CombBank::new(&even, &spectrum).ok()?;
    Some(find_comb(&spectrum, &bank))
}

impl Rhythm {
    /// Listens to an incident.
    #[must_use]
    pub fn hear(told: &Told<'_>, count: Count) -> Self {
        let Told { during, before, bracket, flush } = *told;
        let staircase = staircase(before, Count::Requests);
        let gap_seconds =
            shared_gaps(during).iter().map(|[from, to]| to.seconds_since(*from)).sum();
        let silent = Self { staircase, gap_seconds, ..Self::default() };
        let Ok(even) = EvenResiduals::new(during, count) else { return silent };
        let Ok(mut spectrum) = Spectrum::new(&even) else { return silent };
        // What the exporter repeats by itself is no evidence of anything.
        let own = flush.iter().copied().chain(staircase.map(|found| found.flush_seconds));
        let own: Vec<f64> = own.collect();
        spectrum.exclude(&own);
        let period = find_period_in(&even, &spectrum);
        let healthy = EvenResiduals::new(before, count).ok();
        let clock = (period.p_value < REPEATS).then(|| wall_clock(&period, healthy.as_ref()));
        let comb = steady_comb(told, count, &own);
        let warped = warped_peaks(&even, bracket, 1).into_iter().next();
        Self { period: Some(period), clock, comb, warped, ..silent }
    }

    /// The comb, where it is certain enough to name a schedule by itself.
    #[must_use]
    pub fn certain_comb(&self) -> Option<&Comb> {
        let certain = |comb: &&Comb| comb.p_value < COMB_CERTAIN && comb.teeth.len() >= COMB_TEETH;
        // Load on the clock is a comb too.
        self.comb
            .as_ref()
            .filter(certain)
            .filter(|_| !self.clock.is_some_and(|clock| clock.is_scheduled()))
    }

    /// What each of these says for and against a class and its schedule. Waves on a growing schedule have no period
    /// and no comb, so that neither was found is no evidence against them, and is left out. So is a
    /// screen in warped time that found another schedule: its score alone is as high on floods.
    #[must_use]
    pub fn evidence(&self, class: Class, schedule: Option<&Schedule>) -> Vec<Evidence> {
        let in_step = class == Class::BackoffWithoutJitter;
        let mut all = Vec::new();
        let repeats = |period: &Period| period.p_value < REPEATS && period.repeats_enough();
        if let Some(period) = self.period.as_ref().filter(|it| !in_step || repeats(it)) {
            let repeats = repeats(period);
            let what = if repeats {
                format!(
                    "load repeats every {} ({:.1} to {:.1} s), {} times, and noise does that with {}",
                    seconds(period.seconds),
                    period.interval_seconds[0],
                    period.interval_seconds[1],
                    period.cycles_present,
                    chance(period.p_value)
                )
            } else {
                format!(
                    "no period of three or more cycles stands out of the noise (best {}, {})",
                    seconds(period.seconds),
                    chance(period.p_value)
                )
            };
            all.push(evidence(
                Test::Periodogram,
                period.power,
                Some(period.p_value),
                repeats == in_step,
                what,
            ));
        }
        if let Some(clock) = &self.clock {
            let scheduled = clock.is_scheduled();
            let what = match (scheduled, clock.clock_period_seconds) {
                (true, Some(period)) => {
                    format!("it keeps the clock: every {}, as a schedule would", seconds(period))
                }
                (true, None) => "the same period was there before the failure".to_owned(),
                (false, _) => "it was not there before, and does not keep the clock".to_owned(),
            };
            all.push(evidence(
                Test::WallClock,
                clock.offset_seconds,
                clock.p_value_before.or(Some(clock.offset_p_value)),
                scheduled != in_step,
                what,
            ));
        }
        let stands = |comb: &Comb| comb.p_value < REPEATS;
        if let Some(comb) = self.comb.as_ref().filter(|comb| !in_step || stands(comb)) {
            let stands = stands(comb);
            let what = if stands {
                format!(
                    "failures are echoed at the waits of a schedule from {} times {:.2}{} ({} lags \
                     together, {})",
                    seconds(comb.base_seconds),
                    comb.factor,
                    comb.cap_seconds
                        .map_or_else(String::new, |cap| format!(" up to {}", seconds(cap))),
                    comb.teeth.len(),
                    chance(comb.p_value)
                )
            } else {
                format!(
                    "the autocorrelation holds the waits of no schedule ({})",
                    chance(comb.p_value)
                )
            };
            all.push(evidence(Test::LagComb, comb.z, Some(comb.p_value), stands == in_step, what));
        }
        let borne_out = |peak: &WarpedPeak| {
            let near = |a: f64, b: f64| (a / b).ln().abs() < WARPED_NEAR;
            schedule.is_some_and(|schedule| {
                near(peak.base_seconds, schedule.base_seconds) && near(peak.factor, schedule.factor)
            })
        };
        if let Some(peak) = self.warped.filter(borne_out) {
            all.push(evidence(
                Test::WarpedSpectrum,
                peak.score,
                None,
                in_step,
                format!(
                    "a screen of its own, for load that is even on the time axis of a schedule, \
                     finds the same: from {} times {:.2} ({:.1} standard deviations)",
                    seconds(peak.base_seconds),
                    peak.factor,
                    peak.score
                ),
            ));
        }
        if let Some(stairs) = &self.staircase {
            all.push(evidence(
                Test::DataQuality,
                stairs.flush_seconds,
                None,
                !in_step,
                format!(
                    "the counters are flushed every {} ({} of scrapes show nothing): waves closer \
                     than twice that cannot be seen",
                    seconds(stairs.flush_seconds),
                    percent(stairs.empty_share)
                ),
            ));
        }
        if self.gap_seconds > 0.0 {
            all.push(evidence(
                Test::DataQuality,
                self.gap_seconds,
                None,
                false,
                format!("no target was scraped for {} of it", seconds(self.gap_seconds)),
            ));
        }
        all
    }
}

/// A surge that turns out to be something else, by the hours before it: load on the clock, or a
/// counter that is flushed in batches.
#[must_use]
pub fn told_by_history(
    history: &[Interval],
    flush: &[f64],
    observation: Observation,
) -> Observation {
    if observation.kind != ObservationKind::OrganicSurge {
        return observation;
    }
    if let Some(stairs) = staircase(history, Count::Requests) {
        let says = format!(
            "counters are flushed every {}: what looks like a burst is the batch ({} of scrapes show \
             nothing)",
            seconds(stairs.flush_seconds),
            percent(stairs.empty_share)
        );
        return Observation { kind: ObservationKind::DataArtefact, says, ..observation };
    }
    let Ok(even) = EvenResiduals::new(history, Count::Requests) else { return observation };
    let Ok(mut spectrum) = Spectrum::new(&even) else { return observation };
    spectrum.exclude(flush);
    let period = find_period_in(&even, &spectrum);
    let earlier = period.first_wave_at < observation.from.plus_seconds(-2.0 * period.seconds);
    if period.p_value < SCHEDULED && period.repeats_enough() && earlier {
        let clock = wall_clock(&period, None);
        let says = format!(
            "load that comes every {} and came {} times, also on healthy days{}: {}",
            seconds(period.seconds),
            number(period.cycles_present as f64),
            if clock.is_scheduled() { ", on the clock" } else { "" },
            chance(period.p_value)
        );
        return Observation { kind: ObservationKind::ScheduledLoad, says, ..observation };
    }
    observation
}

/// The schedule that a comb shows.
pub(super) fn schedule_of(comb: &Comb) -> Schedule {
    let family = if (comb.factor - 1.0).abs() < 0.02 {
        ScheduleFamily::Fixed
    } else if comb.cap_seconds.is_some() {
        ScheduleFamily::Capped
    } else {
        ScheduleFamily::Exponential
    };
    let longest = comb.teeth.iter().map(|tooth| tooth.0).fold(comb.base_seconds, f64::max);
    let mut waits = Vec::new();
    let (mut wait, mut sum) = (comb.base_seconds, 0.0);
    while waits.len() < WAITS_MAX {
        let next = comb.cap_seconds.map_or(wait, |cap| wait.min(cap));
        sum += next;
        if sum > 1.01 * longest {
            break;
        }
        waits.push(next);
        wait *= comb.factor;
    }
    Schedule {
        family,
        base_seconds: comb.base_seconds,
        factor: comb.factor,
        cap_seconds: comb.cap_seconds,
        attempt_latency_seconds: comb.latency_seconds,
        waits_seconds: waits,
        jitter: JitterKind::Unknown,
        jitter_fraction: 0.0,
        intervals: Vec::new(),
    }
}

/// Waits of a comb that are named.
const WAITS_MAX: usize = 12;

fn evidence(
    test: Test,
    statistic: f64,
    p_value: Option<f64>,
    supports: bool,
    says: String,
) -> Evidence {
    Evidence { test, statistic, p_value, supports, says }
}

/// A probability in words.
fn chance(p_value: f64) -> String {
    if p_value < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p_value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    /// Uniform noise from a small generator.
    fn noise(second: i32) -> f64 {
        let mut state = second.unsigned_abs().wrapping_add(1).wrapping_mul(2_654_435_761);
        state ^= state >> 15;
        state = state.wrapping_mul(2_246_822_519);
        state ^= state >> 13;
        f64::from(state % 13)
    }

    fn counted(seconds: std::ops::Range<i32>, count: impl Fn(i32) -> f64) -> Vec<Interval> {
        seconds
            .map(|second| Interval {
                target: TargetId(0),
                from: Timestamp::from_seconds(f64::from(second)),
                to: Timestamp::from_seconds(f64::from(second + 1)),
                requests: count(second),
                errors: count(second),
            })
            .collect()
    }

    fn hear(during: &[Interval], before: &[Interval]) -> Rhythm {
        let start = Timestamp::from_seconds(600.0);
        Rhythm::hear(&Told { during, before, bracket: [start, start], flush: &[] }, Count::Errors)
    }

    fn says(rhythm: &Rhythm, test: Test) -> Option<Evidence> {
        rhythm
            .evidence(Class::BackoffWithoutJitter, Some(&doubling()))
            .into_iter()
            .find(|evidence| evidence.test == test)
    }

    fn supports(rhythm: &Rhythm, test: Test) -> bool {
        says(rhythm, test).unwrap_or_else(|| panic!("{test:?} says nothing")).supports
    }

    /// 1, 2, 4, 8 s and so on.
    fn doubling() -> Schedule {
        Schedule {
            family: ScheduleFamily::Exponential,
            base_seconds: 1.0,
            factor: 2.0,
            cap_seconds: None,
            attempt_latency_seconds: 0.0,
            waits_seconds: vec![1.0, 2.0, 4.0, 8.0],
            jitter: JitterKind::None,
            jitter_fraction: 0.0,
            intervals: Vec::new(),
        }
    }

    /// Bursts at pseudo-random seconds, each echoed at the sums of the waits 2, 4, 8 and 16 s.
    fn echoes() -> Vec<Interval> {
        let mut counts = vec![40.0_f64; 1240];
        let mut state = 12_345_u64;
        for second in 0..1200 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let burst = (state >> 60) as f64;
            for echo in [0, 2, 6, 14, 30] {
                counts[second + echo] += burst;
            }
        }
        counted(640..1800, |second| counts[(second - 600).unsigned_abs() as usize])
    }

    #[test]
    fn the_lag_comb_names_the_schedule_of_a_continuing_outage() {
        let rhythm = hear(&echoes(), &counted(0..600, |second| 50.0 + noise(second)));
        let comb = says(&rhythm, Test::LagComb).expect("a comb");
        assert!(comb.supports && comb.p_value.is_some_and(|p| p < 1e-3), "{comb:?}");
        let schedule = schedule_of(rhythm.certain_comb().expect("a comb"));
        assert!((schedule.base_seconds - 2.0).abs() < 0.2, "{schedule:?}");
        assert!((schedule.factor - 2.0).abs() < 0.1, "{schedule:?}");
        assert!(schedule.waits_seconds.len() >= 3, "{schedule:?}");
    }

    #[test]
    fn noise_has_neither_comb_nor_period() {
        let quiet = |range| counted(range, |second| 50.0 + noise(second));
        let rhythm = hear(&quiet(600..1240), &quiet(0..600));
        assert!(rhythm.certain_comb().is_none());
        assert_eq!(says(&rhythm, Test::LagComb), None);
        assert_eq!(says(&rhythm, Test::Periodogram), None);
        let all = rhythm.evidence(Class::RetryStormWithoutBackoff, None);
        let none = |test| all.iter().any(|evidence| evidence.test == test && evidence.supports);
        assert!(none(Test::LagComb) && none(Test::Periodogram), "{all:?}");
    }

    #[test]
    fn the_periodogram_hears_a_fixed_delay_and_the_wall_clock_a_job() {
        let train = |every: i32, at: i32| {
            move |second: i32| 50.0 + noise(second) + if second % every == at { 80.0 } else { 0.0 }
        };
        let quiet = counted(0..600, |second| 50.0 + noise(second));
        let delay = hear(&counted(600..1240, train(17, 3)), &quiet);
        assert!(supports(&delay, Test::Periodogram));
        assert!(supports(&delay, Test::WallClock));
        // The same every minute on the minute, and before the failure as well.
        let job = hear(&counted(600..1240, train(60, 1)), &counted(0..600, train(60, 1)));
        assert!(!supports(&job, Test::WallClock));
    }

    #[test]
    fn flushed_counters_and_gaps_are_told_by_the_data_quality() {
        let flushed = |second: i32| if second % 10 == 0 { 500.0 } else { 0.0 };
        let mut during = counted(600..1240, flushed);
        during.retain(|interval| !(900.0..930.0).contains(&interval.from.seconds()));
        during.push(Interval {
            from: Timestamp::from_seconds(900.0),
            to: Timestamp::from_seconds(930.0),
            ..during[0]
        });
        let rhythm = hear(&during, &counted(0..600, flushed));
        let all = rhythm.evidence(Class::Inconclusive, None);
        let quality: Vec<&Evidence> =
            all.iter().filter(|evidence| evidence.test == Test::DataQuality).collect();
        assert_eq!(quality.len(), 2, "{all:?}");
        assert!(quality[0].says.contains("flushed every 10"), "{quality:?}");
        assert!(quality[1].says.contains("30"), "{quality:?}");
    }

    #[test]
    fn warped_time_is_even_for_a_herd() {
        let wave = |second: i32| {
            let since = second - 600;
            50.0 + noise(second)
                + if [0, 1, 3, 7, 15, 31, 63].contains(&since) { 900.0 } else { 0.0 }
        };
        let rhythm = hear(&counted(600..700, wave), &counted(0..600, |s| 50.0 + noise(s)));
        assert!(supports(&rhythm, Test::WarpedSpectrum));
    }

    #[test]
    fn a_surge_every_minute_is_scheduled_load() {
        let at = Timestamp::from_seconds(1200.0);
        let surge = || Observation {
            kind: ObservationKind::OrganicSurge,
            from: at,
            to: at.plus_seconds(2.0),
            says: "a surge".to_owned(),
        };
        let cron = |second: i32| 50.0 + noise(second) + if second % 60 < 2 { 90.0 } else { 0.0 };
        let told = told_by_history(&counted(0..1210, cron), &[], surge());
        assert_eq!(told.kind, ObservationKind::ScheduledLoad, "{told:?}");
        let alone = told_by_history(&counted(0..1210, |s| 50.0 + noise(s)), &[], surge());
        assert_eq!(alone, surge());
    }
}
