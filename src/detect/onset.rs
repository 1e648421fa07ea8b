//! Onset of trouble: a log-likelihood CUSUM on errors and on requests, and the bracket of t0.
//!
//! A fixed limit on one interval misses an outage spread thinly over many targets, or fires on
//! noise. A cumulative sum of log-likelihood ratios adds up small excesses of intervals of any
//! length and any target until together they are too large to be chance.
//!
//! # Method
//!
//! For interval `k` with count `x_k`, expectation `mu_0` in normal traffic and `mu_1` in the
//! smallest trouble worth a look, both scaled by the dispersion `phi`:
//!
//! ```text
//! S_k = max(0, S_{k-1} + (x_k ln(mu_1 / mu_0) - (mu_1 - mu_0)) / phi)      alarm when S_k > h
//! errors:   mu_0 = ratio * requests            mu_1 = 2 mu_0 + 0.05 max(requests, expected)
//! requests: mu_0 = expected                    mu_1 = 1.5 mu_0
//! ```
//!
//! This is Page's test \[Page 1954\] with the Poisson ratio \[Lucas 1985\]. The expectation of the
//! errors follows the requests that did arrive, so that a surge whose usual share fails is no
//! onset of failure.
//!
//! The first failure lies in the first interval of every target that holds more errors than its
//! floor allows. Targets are scraped at different phases, so these intervals overlap, and their
//! intersection narrows t0 to about the scrape interval over the number of targets.
//!
//! # References
//!
//! * \[Page 1954\] E. S. Page. Continuous inspection schemes. *Biometrika* 41(1/2), 100-115.
//!   <https://doi.org/10.1093/biomet/41.1-2.100>
//! * \[Lucas 1985\] J. M. Lucas. Counted data CUSUM's. *Technometrics* 27(2), 129-144.
//!   <https://doi.org/10.1080/00401706.1985.10488030>

use crate::detect::baseline::Baseline;
use crate::series::{Interval, Timestamp};

/// Alarm level of the error sum, in units of log-likelihood: one false alarm in some `e^12`
/// intervals of well-behaved errors.
const ERRORS_ALARM: f64 = 12.0;
/// Alarm level of the request sum; higher, because the noise of requests is correlated.
const REQUESTS_ALARM: f64 = 18.0;
/// Added share of failing requests that is worth a look.
const ERROR_SHARE_WORTH: f64 = 0.05;
/// Growth of the load that is worth a look.
const GROWTH_WORTH: f64 = 1.5;
/// Distance over the floor, in standard deviations, at which an interval holds failures.
const DIRTY_SDS: f64 = 3.3;
/// Errors above the floor that an interval must hold besides, so that one stray error is none.
const DIRTY_COUNT: f64 = 1.0;
/// Smallest expectation of errors: the log ratio stays finite.
const ERRORS_EXPECTED_MIN: f64 = 0.01;

/// What made the screen speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// More errors than the floor allows.
    Errors,
    /// More requests than the baseline allows, errors or none.
    Requests,
}

/// The running sums of one dependency: a few operations for each new interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Screen {
    errors: f64,
    requests: f64,
    /// End of the last interval at which the error sum was zero.
    errors_zero_at: Timestamp,
    requests_zero_at: Timestamp,
}

impl Screen {
    /// Takes the next interval, in order of `to`; the alarm when a sum is above its level.
    pub fn push(&mut self, interval: &Interval, baseline: &Baseline) -> Option<Alarm> {
        let expected = baseline.expected(interval);
        let floor = error_floor(interval, baseline);
        let worth = 2.0f64.mul_add(floor, ERROR_SHARE_WORTH * interval.requests.max(expected));
        self.errors = step(self.errors, interval.errors, floor, worth, baseline.error_dispersion);
        if self.errors <= 0.0 {
            self.errors_zero_at = interval.to;
        }
        let noise = baseline.sum_dispersion(f64::INFINITY);
        if expected > 0.0 {
            self.requests =
                step(self.requests, interval.requests, expected, expected * GROWTH_WORTH, noise);
        }
        if self.requests <= 0.0 {
            self.requests_zero_at = interval.to;
        }
        if self.errors > ERRORS_ALARM {
            Some(Alarm::Errors)
        } else if self.requests > REQUESTS_ALARM {
            Some(Alarm::Requests)
        } else {
            None
        }
    }

    /// Where the sum behind `alarm` last was zero: trouble began after it.
    #[must_use]
    pub const fn quiet_until(&self, alarm: Alarm) -> Timestamp {
        match alarm {
            Alarm::Errors => self.errors_zero_at,
            Alarm::Requests => self.requests_zero_at,
        }
    }

    /// Starts again from nothing, after an incident.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// One step of a CUSUM, held below a ceiling so that the end of trouble is seen soon.
fn step(sum: f64, count: f64, normal: f64, worth: f64, dispersion: f64) -> f64 {
    let normal = normal.max(ERRORS_EXPECTED_MIN);
    let worth = worth.max(normal * 1.01);
    let ratio = count.mul_add((worth / normal).ln(), -(worth - normal)) / dispersion;
    (sum + ratio).clamp(0.0, 10.0 * REQUESTS_ALARM)
}

/// Errors that normal traffic would bring in this interval.
#[must_use]
pub fn error_floor(interval: &Interval, baseline: &Baseline) -> f64 {
    baseline.error_ratio * interval.requests
}

/// Whether an interval holds more errors than its floor allows.
#[must_use]
pub fn holds_failures(interval: &Interval, baseline: &Baseline) -> bool {
    // What the baseline traffic would fail, not what the failing retries themselves add.
    let floor = baseline.error_ratio
        * interval.requests.min(2.0f64.mul_add(baseline.expected(interval), 1.0));
    interval.errors
        > DIRTY_SDS.mul_add((baseline.error_dispersion * floor).sqrt(), floor) + DIRTY_COUNT
}

/// Brackets the first failure after `quiet_until`: the intersection of the first intervals, one a
/// target, that hold failures. None while no interval does.
#[must_use]
pub fn bracket(
    intervals: &[Interval],
    baseline: &Baseline,
    quiet_until: Timestamp,
) -> Option<[Timestamp; 2]> {
    let mut first: Vec<Option<Interval>> = vec![None; baseline.shares.len().max(1)];
    for interval in intervals.iter().filter(|interval| interval.to > quiet_until) {
        let slot = interval.target.0 as usize;
        if slot >= first.len() {
            first.resize(slot + 1, None);
        }
        if first[slot].is_none() && holds_failures(interval, baseline) {
            first[slot] = Some(*interval);
        }
    }
    let firsts: Vec<Interval> = first.into_iter().flatten().collect();
    let high = firsts.iter().map(|interval| interval.to).min()?;
    let low = firsts
        .iter()
        .map(|interval| interval.from)
        .filter(|from| *from < high)
        .max()
        .unwrap_or(high);
    Some([low, high])
}

/// Brackets the first surplus of requests after `quiet_until`, where no errors are counted.
#[must_use]
pub fn bracket_requests(
    intervals: &[Interval],
    baseline: &Baseline,
    quiet_until: Timestamp,
) -> Option<[Timestamp; 2]> {
    let surplus = |interval: &Interval| {
        let expected = baseline.expected(interval);
        interval.requests > 4.0f64.mul_add((baseline.dispersion * expected).sqrt(), expected) + 2.0
    };
    let mut high: Option<Interval> = None;
    for interval in intervals.iter().filter(|interval| interval.to > quiet_until) {
        if surplus(interval) && high.is_none_or(|earlier| interval.to < earlier.to) {
            high = Some(*interval);
        }
    }
    high.map(|interval| [interval.from, interval.to])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    fn baseline() -> Baseline {
        Baseline {
            rate: 40.0,
            shares: vec![0.25; 4],
            dispersion: 1.5,
            error_ratio: 0.01,
            error_dispersion: 1.0,
            block_dispersions: vec![(15.0, 2.0), (30.0, 2.5)],
            intervals: 100,
            span: [Timestamp::default(); 2],
        }
    }

    fn interval(target: u32, from: f64, to: f64, requests: f64, errors: f64) -> Interval {
        Interval {
            target: TargetId(target),
            from: Timestamp::from_seconds(from),
            to: Timestamp::from_seconds(to),
            requests,
            errors,
        }
    }

    #[test]
    fn four_phases_bracket_the_first_failure_within_a_quarter_of_the_scrape() {
        // Failures at 100.0; scrapes of the targets end at 90, 94, 98, 101 and 15 s later.
        let intervals = [
            interval(0, 90.0, 105.0, 160.0, 40.0),
            interval(1, 94.0, 109.0, 160.0, 40.0),
            interval(2, 98.0, 113.0, 160.0, 40.0),
            interval(3, 86.0, 101.0, 160.0, 30.0),
            interval(3, 101.0, 116.0, 160.0, 30.0),
        ];
        let [low, high] = bracket(&intervals, &baseline(), Timestamp::from_seconds(80.0)).unwrap();
        assert_eq!((low.seconds(), high.seconds()), (98.0, 101.0));
    }

    #[test]
    fn usual_errors_of_a_surge_do_not_alarm() {
        let mut screen = Screen::default();
        for cycle in 0..40u32 {
            let from = f64::from(cycle) * 15.0;
            let alarm = screen.push(&interval(0, from, from + 15.0, 600.0, 6.0), &baseline());
            assert_ne!(alarm, Some(Alarm::Errors));
        }
    }

    #[test]
    fn an_outage_alarms_on_its_first_interval() {
        let mut screen = Screen::default();
        assert_eq!(screen.push(&interval(0, 0.0, 15.0, 150.0, 1.0), &baseline()), None);
        let alarm = screen.push(&interval(0, 15.0, 30.0, 150.0, 80.0), &baseline());
        assert_eq!(alarm, Some(Alarm::Errors));
        assert_eq!(screen.quiet_until(Alarm::Errors), Timestamp::from_seconds(15.0));
    }

    #[test]
    fn calm_traffic_never_alarms() {
        let mut screen = Screen::default();
        for cycle in 0..10_000u32 {
            let from = f64::from(cycle) * 15.0;
            let wobble = f64::from(cycle * 7919 % 41) - 20.0;
            let interval = interval(0, from, from + 15.0, 150.0 + wobble, f64::from(cycle % 4));
            assert_eq!(screen.push(&interval, &baseline()), None);
        }
    }
}
