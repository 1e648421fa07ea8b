//! Trains that no failure made: load on the wall clock, and what the exporter makes itself.
//!
//! A cron job, a batch that is flushed, a cache that expires: each is a perfect train of waves, and
//! none is a retry. A shape cannot tell them apart, history can: such a train was there before
//! anything failed, or stands on the full minute. A retry train was not and does not, save by
//! chance, and the chance is given.
//!
//! # Method
//!
//! *Before the failure*: the harmonic sum of `period`, at the frequencies that the found period's
//! interval allows, on residuals from before the failure. Only those few frequencies are tried, so
//! a train much weaker than a search could find is still seen.
//!
//! *On the clock*: whether the period's interval holds a divisor of the hour that schedulers use,
//! and how far the waves are from its full multiples in Unix time. Waves without a cause on the
//! clock are as near by chance with the probability `2 · offset / period`.
//!
//! *Staircase*: an exporter that flushes every `F` seconds leaves most scrape intervals empty and
//! the others with everything. Such a counter has no waves to find below `2 F`.
//!
//! # Assumptions and what happens when they fail
//!
//! * The window before the failure is healthy. A storm in it hides the next one of the same
//!   schedule, so the caller must leave out known incidents.
//!
//! # Example
//!
//! ```
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::detect::period::{PeriodSearch, find_period};
//! use squall::detect::wall_clock::wall_clock;
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! // A job of 80 requests at second 1 of every minute, for twenty minutes.
//! let interval = |second: i32| Interval {
//!     target: TargetId(0),
//!     from: Timestamp::from_seconds(f64::from(second)),
//!     to: Timestamp::from_seconds(f64::from(second + 1)),
//!     requests: f64::from(50 + (second * 7919) % 13 + if second % 60 == 1 { 80 } else { 0 }),
//!     errors: 0.0,
//! };
//! let before: Vec<Interval> = (0..600).map(interval).collect();
//! let during: Vec<Interval> = (600..1200).map(interval).collect();
//! let residuals = |i: &[Interval]| EvenResiduals::new(i, Count::Requests).expect("600 intervals");
//! let period = find_period(&residuals(&during), &PeriodSearch::default()).expect("a band");
//! let clock = wall_clock(&period, Some(&residuals(&before)));
//!
//! assert!(clock.p_value_before.is_some_and(|p| p < 1e-6));
//! assert_eq!(clock.clock_period_seconds, Some(60.0));
//! assert!(clock.offset_seconds < 2.0 && clock.is_scheduled(), "{clock:?}");
//! ```

use crate::detect::even::{Count, EvenResiduals, index, median};
use crate::detect::period::{Period, allow_for_background, erlang_tail_ln, look_elsewhere};
use crate::detect::spectrum::{REPEATS_MIN, Spectrum};
use crate::series::{Interval, Timestamp};

/// Periods that schedulers use, seconds.
const CLOCK_SECONDS: [f64; 14] =
    [5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0];

/// Below this p-value a train was there before the failure.
const BEFORE_LEVEL: f64 = 1e-3;

/// Below this chance of standing so near to the clock a train of a minute or more is on it.
const OFFSET_LEVEL: f64 = 0.1;

/// Shorter periods than this are those of retry caps too, and a phase alone does not clear them.
const CLOCK_PERIOD_MIN: f64 = 60.0;

/// A flushed counter has so many empty intervals at least, and so many requests on average that
/// empty ones would not come by chance.
const EMPTY_SHARE_MIN: f64 = 0.25;
const MEAN_COUNT_MIN: f64 = 5.0;

/// Flushes that a staircase must show.
const FLUSHES_MIN: usize = 5;

/// How a train relates to the wall clock and to the time before the failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WallClock {
    /// Probability of so clear a train before the failure by chance; none without such a window.
    pub p_value_before: Option<f64>,
    /// The scheduler's period that fits, if one does.
    pub clock_period_seconds: Option<f64>,
    /// Distance of the waves from the full multiples of the period in Unix time.
    pub offset_seconds: f64,
    /// Probability of so small an offset by chance.
    pub offset_p_value: f64,
}

impl WallClock {
    /// Whether the train was there before the failure, or stands on the full minute.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        self.p_value_before.is_some_and(|p| p < BEFORE_LEVEL)
            || self.clock_period_seconds.is_some_and(|seconds| {
                seconds >= CLOCK_PERIOD_MIN && self.offset_p_value < OFFSET_LEVEL
            })
    }
}

/// Relates a period to the wall clock and to `before`, residuals from before the failure.
#[must_use]
pub fn wall_clock(period: &Period, before: Option<&EvenResiduals>) -> WallClock {
    let [low, high] = period.interval_seconds;
    // The interval is that of the estimate; half a percent more allows for drifting clocks.
    let fits = |seconds: f64| (low * 0.995..=high * 1.005).contains(&seconds);
    let clock = CLOCK_SECONDS.into_iter().find(|seconds| fits(*seconds));
    let seconds = clock.unwrap_or(period.seconds);
    let phase = period.first_wave_at.seconds().rem_euclid(seconds);
    let offset = phase.min(seconds - phase);
    WallClock {
        p_value_before: before.and_then(|even| train_before(period, even)),
        clock_period_seconds: clock,
        offset_seconds: offset,
        offset_p_value: (2.0 * offset / seconds).min(1.0),
    }
}

/// P-value of a train of this period in other residuals.
fn train_before(period: &Period, even: &EvenResiduals) -> Option<f64> {
    let spectrum = Spectrum::new(even).ok()?;
    let (low, high) = spectrum.band_hertz();
    let [shortest, longest] = period.interval_seconds;
    // The top harmonic of two that stand next to each other differs by one ordinate: those between
    // would count the same power twice.
    let apart = spectrum.step_hertz() / period.harmonics.max(1) as f64;
    let width = 1.0 / shortest - 1.0 / longest;
    let more = (width / apart).round();
    let (mut best, mut tried) = (0.0_f64, 0_u32);
    for place in 0..=index(more) {
        let part = if more > 0.0 { place as f64 / more } else { 0.5 };
        let hertz = 1.0 / longest + part * width;
        if hertz < low {
            continue;
        }
        let (mut power, mut order) = (0.0, 0);
        for harmonic in 1..=period.harmonics {
            let f = hertz * harmonic as f64;
            let ratio = spectrum.ratio_at(f);
            if f <= high && ratio > 0.0 {
                power += ratio;
                order += 1;
            }
        }
        if order > 0 {
            let power = allow_for_background(power, spectrum.independent());
            best = best.min(erlang_tail_ln(order, power));
            tried += 1;
        }
    }
    (tried > 0).then(|| look_elsewhere(best, f64::from(tried)))
}

/// A counter that is flushed in batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Staircase {
    /// The mean time between two flushes.
    pub flush_seconds: f64,
    /// Share of the scrape intervals that were empty.
    pub empty_share: f64,
}

/// Recognises a flushed counter from healthy intervals, in time order for each target.
///
/// The targets flush at their own phases, so each is looked at alone and the median is given; none
/// when less than half of them are staircases.
#[must_use]
pub fn staircase(intervals: &[Interval], count: Count) -> Option<Staircase> {
    let mut targets: Vec<u32> = intervals.iter().map(|i| i.target.0).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut found: Vec<Staircase> = Vec::new();
    for target in &targets {
        let own: Vec<&Interval> = intervals.iter().filter(|i| i.target.0 == *target).collect();
        found.extend(staircase_of(&own, count));
    }
    if found.is_empty() || found.len() * 2 < targets.len() {
        return None;
    }
    Some(Staircase {
        flush_seconds: median(&mut found.iter().map(|s| s.flush_seconds).collect::<Vec<_>>()),
        empty_share: median(&mut found.iter().map(|s| s.empty_share).collect::<Vec<_>>()),
    })
}

fn staircase_of(own: &[&Interval], count: Count) -> Option<Staircase> {
    let total: f64 = own.iter().map(|i| count.of(i)).sum();
    let empty = own.iter().filter(|i| count.of(i) < 0.5).count();
    let full: Vec<Timestamp> = own.iter().filter(|i| count.of(i) >= 0.5).map(|i| i.to).collect();
    let empty_share = empty as f64 / own.len().max(1) as f64;
    if full.len() < FLUSHES_MIN
        || empty_share < EMPTY_SHARE_MIN
        || total < MEAN_COUNT_MIN * own.len() as f64
    {
        return None;
    }
    let mut lengths: Vec<f64> = own.iter().map(|i| i.seconds()).collect();
    let scrape = median(&mut lengths);
    let span = full[full.len() - 1].seconds_since(full[0]);
    let flush_seconds = span / (full.len() - 1) as f64;
    // A scrape sees a flush up to one interval late, so gaps differ from the mean by one at most.
    let steady = full
        .windows(2)
        .filter(|pair| (pair[1].seconds_since(pair[0]) - flush_seconds).abs() <= 1.05 * scrape)
        .count();
    (steady * 10 >= (full.len() - 1) * 9).then_some(Staircase { flush_seconds, empty_share })
}

/// Stretches in which nearly every target has no scrape: the scraper's fault, not the load's.
///
/// `intervals` in any order; a gap of one target is an interval of more than 2.5 times the median.
#[must_use]
pub fn shared_gaps(intervals: &[Interval]) -> Vec<[Timestamp; 2]> {
    let mut targets: Vec<u32> = intervals.iter().map(|i| i.target.0).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut lengths: Vec<f64> = intervals.iter().map(Interval::seconds).collect();
    let longest = 2.5 * median(&mut lengths);
    let mut edges: Vec<(Timestamp, i32)> = intervals
        .iter()
        .filter(|i| i.seconds() > longest)
        .flat_map(|i| [(i.from, 1), (i.to, -1)])
        .collect();
    edges.sort_unstable();
    let needed = i32::try_from(targets.len() - targets.len() / 10).unwrap_or(i32::MAX).max(1);
    let (mut open, mut gaps, mut since) = (0, Vec::new(), None);
    for (at, change) in edges {
        open += change;
        match since {
            None if open >= needed => since = Some(at),
            Some(from) if open < needed => {
                gaps.push([from, at]);
                since = None;
            }
            _ => {}
        }
    }
    gaps
}

/// Whether a window can hold a train of this period often enough to be looked for in it.
#[must_use]
pub fn can_hold(even: &EvenResiduals, period_seconds: f64) -> bool {
    even.span_seconds() >= REPEATS_MIN as f64 * period_seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling, rejects};
    use crate::detect::period::{PeriodSearch, find_period};
    use crate::series::TargetId;

    fn residuals(draw: Draw, sampling: Sampling) -> EvenResiduals {
        EvenResiduals::new(&draw.scrape(sampling), Count::Requests).unwrap()
    }

    #[test]
    fn a_train_that_began_with_the_failure_was_not_there_before() {
        let sampling = Sampling::new(1.0, 4, 240.0);
        let noise = Noise { rate: 60.0, dispersion: 2.0, red: 0.2, memory_seconds: 10.0 };
        let mut scheduled = 0;
        for seed in 0..60 {
            let mut storm = Draw::new(seed, 240.0).noise(noise);
            for wave in 0..12_i32 {
                storm = storm.wave(f64::from(wave).mul_add(20.0, 7.3), 120.0, 0.2);
            }
            let period =
                find_period(&residuals(storm, sampling), &PeriodSearch::default()).unwrap();
            let before = residuals(Draw::new(seed + 1000, 240.0).noise(noise), sampling);
            scheduled += i32::from(wall_clock(&period, Some(&before)).is_scheduled());
        }
        assert!(scheduled <= 1, "{scheduled} of 60");
    }

    #[test]
    fn p_values_are_uniform_where_nothing_was_there_before_and_nothing_is_on_the_clock() {
        let sampling = Sampling::new(1.0, 2, 240.0);
        let noises = [
            Noise::white(60.0, 3.0),
            Noise { rate: 60.0, dispersion: 2.0, red: 0.3, memory_seconds: 10.0 },
        ];
        for noise in noises {
            let (mut before, mut offsets) = (Vec::new(), Vec::new());
            for seed in 0..150_u32 {
                // Any period at any phase: what the clock says of it is chance.
                let seconds = f64::from(seed * 37 % 150).mul_add(0.1, 11.03);
                let first = seconds * f64::from(seed * 61 % 150) / 150.0;
                let period = Period {
                    seconds,
                    interval_seconds: [0.998 * seconds, 1.002 * seconds],
                    p_value: 1e-9,
                    power: 200.0,
                    harmonics: 4,
                    repeats: 240.0 / seconds,
                    cycles_present: 10,
                    strongest_cycle_share: 0.2,
                    first_wave_at: Timestamp::from_seconds(1_790_000_000.0 + first),
                };
                let draw = Draw::new(u64::from(seed), 240.0).noise(noise);
                let clock = wall_clock(&period, Some(&residuals(draw, sampling)));
                before.push(clock.p_value_before.unwrap());
                offsets.push(clock.offset_p_value);
            }
            for p in [&before, &offsets] {
                for level in [0.01, 0.05, 0.25] {
                    let (share, bound) = rejects(p, level);
                    assert!(share <= bound, "{noise:?}: {share} at {level}, bound {bound}");
                }
                // Not merely conservative: small p-values do occur.
                assert!(rejects(p, 0.5).0 > 0.2, "{noise:?}: {:?}", rejects(p, 0.5));
            }
        }
    }

    #[test]
    fn a_flushed_counter_is_a_staircase_and_a_smooth_one_is_not() {
        let interval = |k: i32, requests: f64| Interval {
            target: TargetId(0),
            from: Timestamp::from_seconds(f64::from(k) * 5.0),
            to: Timestamp::from_seconds(f64::from(k + 1) * 5.0),
            requests,
            errors: 0.0,
        };
        let flushed: Vec<Interval> =
            (0..60).map(|k| interval(k, if k % 3 == 0 { 90.0 } else { 0.0 })).collect();
        let found = staircase(&flushed, Count::Requests).unwrap();
        assert!((found.flush_seconds - 15.0).abs() < 1e-9, "{found:?}");
        let smooth =
            Draw::new(1, 300.0).noise(Noise::white(20.0, 2.0)).scrape(Sampling::new(5.0, 1, 300.0));
        assert_eq!(staircase(&smooth, Count::Requests), None);
    }

    #[test]
    fn a_gap_of_all_targets_is_shared_and_one_of_a_single_target_is_not() {
        let mut intervals = Vec::new();
        for target in 0..4_u32 {
            let phase = f64::from(target);
            for k in 0..40_u32 {
                let from = 15.0f64.mul_add(f64::from(k), phase);
                let mut to = from + 15.0;
                if (10..14).contains(&k) || (target == 0 && (20..24).contains(&k)) {
                    continue;
                }
                if k == 9 || (target == 0 && k == 19) {
                    to += 60.0;
                }
                intervals.push(Interval {
                    target: TargetId(target),
                    from: Timestamp::from_seconds(from),
                    to: Timestamp::from_seconds(to),
                    requests: 1.0,
                    errors: 0.0,
                });
            }
        }
        let gaps = shared_gaps(&intervals);
        assert_eq!(gaps.len(), 1);
        assert_eq!(gaps[0], [138.0, 210.0].map(Timestamp::from_seconds));
    }
}
