//! How much load an outage brings: excess, amplification, goodput, and the trigger against what
//! outlives it.
//!
//! A storm without backoff has no shape in time to fit. What marks it is volume: more attempts than
//! the clients want, while attempts fail. So the numbers here are sums over the time since the
//! onset, judged against the dispersion of sums of that length in calm traffic, not against that
//! of single intervals: the noise of traffic is red, and a Poisson band on a sum of an hour would
//! call every evening a flood.
//!
//! # Method
//!
//! ```text
//! excess        X = sum_k n_k - mu_k              sd(X)^2 = phi_W sum_k mu_k
//! amplification A = sum n_k / sum mu_k            over the bins in which trouble is active
//! goodput       g = (requests - errors) / s
//! ```
//!
//! A bin is one scrape cycle; counts of an interval are divided over the bins it overlaps. The
//! trigger has ended when goodput, once lost, is back above half of the baseline while the load
//! still exceeds it: what remains of the load then is its own cause \[Bronson 2021\].
//!
//! # Assumptions, and what happens when they fail
//!
//! * The wanted load stays at its baseline. If it grows by itself, successes grow with it; `surge`
//!   in [`Load`] tells that apart.
//!
//! # References
//!
//! * \[Bronson 2021\] N. Bronson, A. Aghayev, A. Charapko, T. Zhu. Metastable failures in
//!   distributed systems. *HotOS '21*, 221-227. <https://doi.org/10.1145/3458336.3465286>

use statrs::distribution::{DiscreteCDF as _, NegativeBinomial, Poisson};

use crate::detect::baseline::{Baseline, median};
use crate::detect::onset::{error_floor, holds_failures};
use crate::series::{Interval, Timestamp};

/// Most bins of one measurement; a longer storm gets wider bins.
const BINS_MAX: usize = 2_000;
/// Load over the baseline at which a bin is active although nothing fails in it.
const ACTIVE_GROWTH: f64 = 1.5;
/// Chance of an interval of calm traffic below which its load counts as growth: one false alarm in
/// a hundred hold-offs of a minute over sixty targets at one second would keep an incident open
/// that is over. Normal quantiles are no such bound on counts of one or two.
const GROWTH_CHANCE: f64 = 1e-6;
/// Distance in standard deviations within which nothing is that rare, so that it is not computed.
const GROWTH_SDS_MIN: f64 = 4.0;
/// Goodput, as a share of the baseline, under which it counts as lost and over which as back.
const GOODPUT_HALF: f64 = 0.5;

/// One scrape cycle of the pooled load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Its start.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Requests per second over all targets.
    pub rate: f64,
    /// Failed requests per second over all targets.
    pub error_rate: f64,
    /// Share of the targets' time that was observed, 0 to 1.
    pub coverage: f64,
}

/// Load since the onset.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Requests since the onset.
    pub requests: f64,
    /// Requests the baseline expects in the same intervals.
    pub expected: f64,
    /// Requests above the baseline.
    pub excess: f64,
    /// Standard deviation of the excess in calm traffic.
    pub excess_sd: f64,
    /// Failed requests since the onset.
    pub errors: f64,
    /// Failures that normal traffic would have brought.
    pub error_floor: f64,
    /// Attempts per request wanted while trouble was active; at least 1.
    pub amplification: f64,
    /// Share of requests that failed while trouble was active.
    pub error_ratio: f64,
    /// Requests per second in the highest bin.
    pub peak_rate: f64,
    /// Seconds in which trouble was active.
    pub active_seconds: f64,
    /// End of the last bin in which it was.
    pub active_until: Timestamp,
    /// Successes while active over the baseline's: above 1, the clients want more than usual.
    pub goodput_ratio: f64,
    /// When the first cause ended, where goodput came back under load that did not go.
    pub trigger_ended_at: Option<Timestamp>,
    /// The pooled load, bin by bin, from the onset on.
    pub bins: Vec<Bin>,
}

impl Load {
    /// The excess over its standard deviation.
    #[must_use]
    pub fn excess_sds(&self) -> f64 {
        if self.excess_sd > 0.0 { self.excess / self.excess_sd } else { 0.0 }
    }

    /// Failures above the floor.
    #[must_use]
    pub fn failures(&self) -> f64 {
        (self.errors - self.error_floor).max(0.0)
    }
}

/// Measures the load from `onset` to the last of `intervals`, which are sorted by `to`.
#[must_use]
pub fn measure(intervals: &[Interval], baseline: &Baseline, onset: Timestamp) -> Load {
    let since: Vec<&Interval> = intervals.iter().filter(|interval| interval.to > onset).collect();
    let bins = pooled_bins(&since, baseline, onset);
    let mut load = Load {
        requests: since.iter().map(|interval| interval.requests).sum(),
        expected: since.iter().map(|interval| baseline.expected(interval)).sum(),
        excess: 0.0,
        excess_sd: 0.0,
        errors: since.iter().map(|interval| interval.errors).sum(),
        error_floor: 0.0,
        amplification: 1.0,
        error_ratio: 0.0,
        peak_rate: bins
            .iter()
            .filter(|bin| bin.coverage > 0.2)
            .map(|bin| bin.rate)
            .fold(0.0, f64::max),
        active_seconds: 0.0,
        active_until: onset,
        goodput_ratio: 0.0,
        trigger_ended_at: None,
        bins,
    };
    let (mut active_requests, mut active_expected, mut active_errors) = (0.0, 0.0, 0.0);
    for interval in &since {
        let expected = baseline.expected(interval);
        let floor = error_floor(interval, baseline)
            .min((baseline.error_ratio * 2.0).mul_add(expected, 1.0));
        load.error_floor += floor;
        let fails = holds_failures(interval, baseline);
        let grows = interval.requests > ACTIVE_GROWTH * expected
            && chance_of(interval.requests, expected, baseline.dispersion) < GROWTH_CHANCE;
        if fails || grows {
            load.active_until = load.active_until.max(interval.to);
            active_requests += interval.requests;
            active_expected += expected;
            active_errors += interval.errors;
        }
    }
    let window = load.active_until.seconds_since(onset).max(0.0);
    load.active_seconds = window;
    load.excess = since
        .iter()
        .filter(|interval| interval.from < load.active_until)
        .map(|interval| interval.requests - baseline.expected(interval))
        .sum();
    let judged: f64 = since
        .iter()
        .filter(|interval| interval.from < load.active_until)
        .map(|interval| baseline.expected(interval))
        .sum();
    load.excess_sd = (baseline.sum_dispersion(window) * judged.max(1.0)).sqrt();
    if active_expected > 0.0 {
        load.amplification = (active_requests / active_expected).max(1.0);
        load.goodput_ratio = (active_requests - active_errors) / active_expected;
    }
    if active_requests > 0.0 {
        load.error_ratio = active_errors / active_requests;
    }
    load.trigger_ended_at = trigger_end(&load.bins, baseline);
    load
}

/// The chance of `count` or more requests in an interval of calm traffic: negative binomial with
/// the variance `dispersion * mean`, Poisson where that is no more than the mean. 1 for what
/// anybody can see is not rare.
fn chance_of(count: f64, mean: f64, dispersion: f64) -> f64 {
    let mean = mean.max(f64::MIN_POSITIVE);
    if count <= GROWTH_SDS_MIN.mul_add((dispersion * mean).sqrt(), mean) || count < 1.0 {
        return 1.0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, over 0")]
    let below = count.ceil() as u64 - 1;
    let poisson = || Poisson::new(mean).map_or(1.0, |law| law.sf(below));
    if dispersion > 1.0 {
        NegativeBinomial::new(mean / (dispersion - 1.0), dispersion.recip())
            .map_or_else(|_| poisson(), |law| law.sf(below))
    } else {
        poisson()
    }
}

/// Pools all targets into bins of one scrape cycle.
fn pooled_bins(since: &[&Interval], baseline: &Baseline, onset: Timestamp) -> Vec<Bin> {
    let mut lengths: Vec<f64> = since.iter().map(|interval| interval.seconds()).collect();
    let (Some(cycle), Some(last)) = (median(&mut lengths), since.last()) else {
        return Vec::new();
    };
    let total = last.to.seconds_since(onset).max(cycle);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive quotient, bounded by the next line"
    )]
    let wanted = (total / cycle).ceil() as usize;
    let bins = wanted.clamp(1, BINS_MAX);
    let width = total / super::baseline::count(bins);
    let mut sums = vec![(0.0, 0.0, 0.0); bins];
    for interval in since {
        let share = baseline.share(interval);
        let start = interval.from.seconds_since(onset).max(0.0);
        let end = interval.to.seconds_since(onset);
        let seconds = interval.seconds();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "offsets after the onset are not negative"
        )]
        let (first, final_bin) =
            ((start / width) as usize, ((end / width).ceil() as usize).min(bins));
        for (bin, sum) in sums.iter_mut().enumerate().take(final_bin).skip(first) {
            let from = super::baseline::count(bin) * width;
            let overlap = (end.min(from + width) - start.max(from)).max(0.0);
            let part = overlap / seconds;
            sum.0 += interval.requests * part;
            sum.1 += interval.errors * part;
            sum.2 += share * overlap;
        }
    }
    sums.iter()
        .enumerate()
        .filter(|(_, (_, _, weight))| *weight > 0.0)
        .map(|(bin, (requests, errors, weight))| Bin {
            from: onset.plus_seconds(super::baseline::count(bin) * width),
            to: onset.plus_seconds(super::baseline::count(bin + 1) * width),
            rate: requests / weight,
            error_rate: errors / weight,
            coverage: weight / width,
        })
        .collect()
}

/// The first of two bins with goodput back above half, after it was lost, under load still high.
fn trigger_end(bins: &[Bin], baseline: &Baseline) -> Option<Timestamp> {
    let half = GOODPUT_HALF * baseline.rate;
    let lost = bins.iter().position(|bin| bin.rate - bin.error_rate < half)?;
    bins[lost..]
        .windows(2)
        .find(|pair| {
            pair.iter().all(|bin| {
                bin.rate - bin.error_rate > half && bin.rate > ACTIVE_GROWTH * baseline.rate
            })
        })
        .map(|pair| pair[0].from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    fn baseline() -> Baseline {
        Baseline {
            rate: 40.0,
            shares: vec![1.0],
            dispersion: 1.5,
            error_ratio: 0.01,
            error_dispersion: 1.0,
            block_dispersions: vec![(15.0, 2.0), (60.0, 4.0)],
            intervals: 100,
            span: [Timestamp::default(); 2],
        }
    }

    fn cycle(number: i64, requests: f64, errors: f64) -> Interval {
        Interval {
            target: TargetId(0),
            from: Timestamp::from_millis(number * 15_000),
            to: Timestamp::from_millis((number + 1) * 15_000),
            requests,
            errors,
        }
    }

    #[test]
    fn an_outage_without_retries_has_no_excess() {
        let intervals: Vec<Interval> = (0..4).map(|n| cycle(n, 600.0, 590.0)).collect();
        let load = measure(&intervals, &baseline(), Timestamp::default());
        assert!(load.excess_sds().abs() < 1e-9);
        assert!((load.amplification - 1.0).abs() < 1e-9);
        assert!(load.error_ratio > 0.9);
    }

    #[test]
    fn threefold_attempts_show_as_amplification_three() {
        let intervals: Vec<Interval> = (0..4).map(|n| cycle(n, 1800.0, 1790.0)).collect();
        let load = measure(&intervals, &baseline(), Timestamp::default());
        // 4 x 1200 over sqrt(4 x 2400) = 4800 / 97.98.
        assert!((load.excess_sds() - 48.99).abs() < 0.01, "{}", load.excess_sds());
        assert!((load.amplification - 3.0).abs() < 1e-9);
    }

    #[test]
    fn an_interval_of_calm_traffic_keeps_nothing_open() {
        // P(N >= 7) = 2.6e-4 for a mean of 1.25: 4 standard deviations, and twice an hour a target.
        assert!(chance_of(7.0, 1.25, 1.0) > GROWTH_CHANCE);
        assert!(chance_of(13.0, 1.25, 1.0) < GROWTH_CHANCE);
        // What is over-dispersed is less rare, and what is many is normal.
        assert!(chance_of(13.0, 1.25, 2.0) > 10.0 * chance_of(13.0, 1.25, 1.0));
        assert!(chance_of(700.0, 600.0, 1.0) < 1e-4);
        let at = chance_of(800.0, 600.0, 1.5);
        assert!((1e-12..1e-9).contains(&at), "{at:e}");
    }

    #[test]
    fn load_that_stays_when_goodput_is_back_has_outlived_its_trigger() {
        let mut intervals: Vec<Interval> = (0..4).map(|n| cycle(n, 1800.0, 1790.0)).collect();
        intervals.extend((4..8).map(|n| cycle(n, 1800.0, 1300.0)));
        let load = measure(&intervals, &baseline(), Timestamp::default());
        assert_eq!(load.trigger_ended_at, Some(Timestamp::from_millis(60_000)));
    }
}
