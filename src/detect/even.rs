//! Residuals of scraped intervals on an even grid, for spectra and autocorrelation only.
//!
//! Spectra need an even grid, and a counter's scrapes are not one: targets are scraped at
//! different phases, scrapes are missed, and what an interval holds arrived somewhere in it. The
//! obvious ways out, interpolation or a zero for a gap, put structure into the data that nobody
//! sent. Here a gap stays a gap: it is given no weight, and adds neither power nor a product.
//!
//! # Method
//!
//! The rate per step is pooled from all targets, each divided by its share, and a running median
//! of it is the slow trend (a median follows a level shift or a ramp and ignores narrow waves).
//! The residual of an interval `I = (a, b]` of target `i` is then
//!
//! ```text
//! r_I = count_I - share_i · integral_a^b trend(t) dt
//! x_c = Σ_I r_I · |I ∩ c| / |I|            the grid, one value for each step c
//! ```
//!
//! Spreading a residual evenly over its own interval is no claim about where it arrived. It is
//! how the pair estimator of the autocovariance at irregular intervals looks on a grid: the
//! product of two intervals counts at each lag for as much as the two overlap when one is shifted
//! by that lag. The autocovariance by FFT is therefore the sum over all pairs of intervals, at
//! `O(N log N)`, and in frequency the spreading is the known factor `sinc²(f·|I|)`, which
//! `spectrum` divides out.
//!
//! # Assumptions and what happens when they fail
//!
//! * Shares are constant within the window. A target whose share drifts leaves a slow residual,
//!   which counts as red noise.
//! * Waves fill less than half of the trend's window. Wider ones are taken for trend and lose
//!   power; they are never made.
//!
//! # Cost
//!
//! `O(intervals · steps per interval + N log N)`.
//!
//! # Example
//!
//! ```
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! // Ten requests a second, and a wave of 90 more every tenth second.
//! let intervals: Vec<Interval> = (0..120)
//!     .map(|second: i32| Interval {
//!         target: TargetId(0),
//!         from: Timestamp::from_seconds(f64::from(second)),
//!         to: Timestamp::from_seconds(f64::from(second + 1)),
//!         requests: if second % 10 == 0 { 100.0 } else { 10.0 },
//!         errors: 0.0,
//!     })
//!     .collect();
//! let even = EvenResiduals::new(&intervals, Count::Requests).expect("120 intervals are enough");
//!
//! assert_eq!((even.step_seconds(), even.len()), (0.25, 480));
//! // The trend is 10 a second, so the waves alone are left: 90 spread over four steps, 22.5 each.
//! // Their mean over all steps, 2.25, is taken off everywhere.
//! assert!((even.values()[0] - 20.25).abs() < 1e-9);
//! assert!((even.values()[5] + 2.25).abs() < 1e-9);
//! let acf = even.autocovariance(60);
//! assert!(acf[40] > 5.0 * acf[20].abs(), "waves repeat at ten seconds and not at five");
//! ```
//!
//! # References
//!
//! * E. Parzen. On spectral analysis with missing observations and amplitude modulation. *Sankhya
//!   A* 25(4), 383-392, 1963.
//! * R. A. Edelson, J. H. Krolik. The discrete correlation function: a new method for analyzing
//!   unevenly sampled variability data. *Astrophysical Journal* 333, 646-659, 1988.
//!   <https://doi.org/10.1086/166773>

use realfft::RealFftPlanner;

use crate::detect::NotEnough;
use crate::series::{Interval, Timestamp};

/// Steps in one scrape interval: fine enough that rounding an instant to a step costs nothing.
const STEPS_PER_INTERVAL_MIN: usize = 4;

/// Targets whose phases still refine the grid; more only shrink the steps below any wave's width.
const STEPS_PER_INTERVAL_MAX: usize = 16;

/// Longest grid. A longer window gets coarser steps, since no retry wait needs more.
const STEPS_MAX: usize = 16_384;

/// Fewest intervals that a spectrum of is worth looking at.
pub const INTERVALS_MIN: usize = 24;

/// Width of the trend's running median as a share of the window: the longest period searched is
/// a third of the window, and the trend must not be quicker than that.
const TREND_SHARE: f64 = 1.0 / 3.0;

/// A step whose targets cover less than this share of the dependency is missing.
const COVERAGE_MIN: f64 = 0.1;

/// Which counts of the intervals are analysed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Count {
    /// Everything that arrived.
    Requests,
    /// What failed: in an outage nearly every retry, with little background under it.
    Errors,
}

impl Count {
    pub(crate) fn of(self, interval: &Interval) -> f64 {
        match self {
            Self::Requests => interval.requests,
            Self::Errors => interval.errors,
        }
    }
}

/// Why there is no residual to analyse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoResiduals {
    /// Fewer intervals than a spectrum takes.
    TooFew(NotEnough),
    /// Every interval holds what the trend says, to the last request: nothing varies.
    Constant,
}

/// One interval on the grid.
#[derive(Debug, Clone, Copy)]
struct Spread {
    from_steps: f64,
    to_steps: f64,
    residual: f64,
}

/// Residuals on an even grid, with a weight of zero where nothing was scraped.
#[derive(Debug, Clone)]
pub struct EvenResiduals {
    start: Timestamp,
    // Invariant: finite and positive.
    step_seconds: f64,
    interval_seconds: f64,
    phases: usize,
    // Invariant: both of the same length; a value is zero where the weight is.
    values: Vec<f64>,
    weights: Vec<f64>,
    expected_per_second: f64,
}

impl EvenResiduals {
    /// Puts the residuals of `intervals` on an even grid.
    ///
    /// # Errors
    ///
    /// [`NoResiduals`] when there are too few intervals or none of them varies.
    pub fn new(intervals: &[Interval], count: Count) -> Result<Self, NoResiduals> {
        let have = intervals.len();
        if have < INTERVALS_MIN {
            return Err(NoResiduals::TooFew(NotEnough { have, need: INTERVALS_MIN }));
        }
        let mut lengths: Vec<f64> = intervals.iter().map(Interval::seconds).collect();
        let interval_seconds = median(&mut lengths);
        let start = intervals.iter().map(|i| i.from).min().unwrap_or_default();
        let end = intervals.iter().map(|i| i.to).max().unwrap_or_default();
        let mut targets: Vec<u32> = intervals.iter().map(|i| i.target.0).collect();
        targets.sort_unstable();
        targets.dedup();
        let phases = distinct_phases(intervals, interval_seconds);
        let span_seconds = end.seconds_since(start);
        let steps_per_interval = phases.clamp(STEPS_PER_INTERVAL_MIN, STEPS_PER_INTERVAL_MAX);
        let step_seconds =
            (interval_seconds / steps_per_interval as f64).max(span_seconds / STEPS_MAX as f64);
        let cells = index(span_seconds / step_seconds - 1e-9) + 1;

        // A gap of many intervals is one interval to the counter: it says nothing about when.
        let longest = 2.5 * interval_seconds;
        let kept: Vec<&Interval> = intervals.iter().filter(|i| i.seconds() <= longest).collect();
        if kept.len() < INTERVALS_MIN {
            return Err(NoResiduals::TooFew(NotEnough { have: kept.len(), need: INTERVALS_MIN }));
        }

        let shares = shares(&kept, &targets, count);
        let share_of = |interval: &Interval| {
            targets.binary_search(&interval.target.0).map_or(0.0, |index| shares[index])
        };
        let mut sums = vec![0.0; cells];
        let mut weights = vec![0.0; cells];
        let steps = |at: Timestamp| at.seconds_since(start) / step_seconds;
        for interval in &kept {
            let (from, to) = (steps(interval.from), steps(interval.to));
            spread(&mut sums, from, to, count.of(interval));
            spread(&mut weights, from, to, share_of(interval) * (to - from));
        }
        let rates: Vec<f64> = sums
            .iter()
            .zip(&weights)
            .map(|(sum, weight)| if *weight >= COVERAGE_MIN { sum / weight } else { f64::NAN })
            .collect();
        let width = index(span_seconds * TREND_SHARE / step_seconds).max(3 * steps_per_interval);
        let trend = running_median(&rates, width);
        let mut integral = Vec::with_capacity(cells + 1);
        integral.push(0.0);
        for value in &trend {
            integral.push(integral[integral.len() - 1] + value);
        }

        let mut values = vec![0.0; cells];
        let mut spreads = Vec::with_capacity(kept.len());
        let mut total = 0.0;
        for interval in &kept {
            let (from_steps, to_steps) = (steps(interval.from), steps(interval.to));
            let share = share_of(interval);
            let expected = share * (at(&integral, to_steps) - at(&integral, from_steps));
            total += expected;
            spreads.push(Spread { from_steps, to_steps, residual: count.of(interval) - expected });
        }
        // What is left must have no mean, or the mean would stand at every lag.
        let mean = spreads.iter().map(|s| s.residual).sum::<f64>() / spreads.len() as f64;
        let scale = spreads.iter().map(|s| s.residual.abs()).fold(0.0, f64::max);
        if scale <= 1e-9 * (1.0 + total / spreads.len() as f64) {
            return Err(NoResiduals::Constant);
        }
        for item in &spreads {
            spread(&mut values, item.from_steps, item.to_steps, item.residual);
        }
        let mean_per_weight = mean * spreads.len() as f64 / weights.iter().sum::<f64>().max(1e-300);
        for (value, weight) in values.iter_mut().zip(&mut weights) {
            if *weight < COVERAGE_MIN {
                (*value, *weight) = (0.0, 0.0);
            } else {
                *value -= mean_per_weight * *weight;
            }
        }
        if values.iter().all(|v| v.abs() <= 1e-12 * (1.0 + scale)) {
            return Err(NoResiduals::Constant);
        }
        Ok(Self {
            start,
            step_seconds,
            interval_seconds,
            phases,
            values,
            weights,
            expected_per_second: total / span_seconds,
        })
    }

    /// Where the grid starts.
    #[must_use]
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// The length of a step.
    #[must_use]
    pub const fn step_seconds(&self) -> f64 {
        self.step_seconds
    }

    /// The median length of an interval.
    #[must_use]
    pub const fn interval_seconds(&self) -> f64 {
        self.interval_seconds
    }

    /// Scrape phases that are told apart, at least one.
    #[must_use]
    pub const fn phases(&self) -> usize {
        self.phases
    }

    /// The requests a second that the trend expects, over the window.
    #[must_use]
    pub const fn expected_per_second(&self) -> f64 {
        self.expected_per_second
    }

    /// The number of steps.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the grid has no step; never so for one that was built.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The window's length.
    #[must_use]
    pub fn span_seconds(&self) -> f64 {
        self.len() as f64 * self.step_seconds
    }

    /// Residual counts a step; zero where nothing was scraped.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The share of the dependency that was scraped in each step; zero is a gap.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Autocovariance at the lags `0..lags` (in steps), each over the pairs of steps that exist.
    ///
    /// Lags under one interval hold products of an interval with itself and say nothing. A lag
    /// without any pair of steps is zero.
    #[must_use]
    pub fn autocovariance(&self, lags: usize) -> Vec<f64> {
        let products = autocorrelate(&self.values, lags);
        let pairs = autocorrelate(&self.weights, lags);
        let floor = 1e-6 * self.len() as f64;
        products.iter().zip(&pairs).map(|(p, w)| if *w > floor { p / w } else { 0.0 }).collect()
    }
}

/// `Σ_c x_c · x_{c+lag}` for the lags `0..lags`, by FFT over the doubled length.
#[must_use]
pub fn autocorrelate(values: &[f64], lags: usize) -> Vec<f64> {
    let size = (values.len() + lags).max(2).next_power_of_two();
    let mut planner = RealFftPlanner::<f64>::new();
    let forward = planner.plan_fft_forward(size);
    let inverse = planner.plan_fft_inverse(size);
    let mut padded = vec![0.0; size];
    padded[..values.len()].copy_from_slice(values);
    let mut spectrum = forward.make_output_vec();
    let mut result = vec![0.0; size];
    let done = forward.process(&mut padded, &mut spectrum).is_ok() && {
        for bin in &mut spectrum {
            *bin = realfft::num_complex::Complex::new(bin.norm_sqr(), 0.0);
        }
        inverse.process(&mut spectrum, &mut result).is_ok()
    };
    debug_assert!(done, "buffers come from the plans themselves");
    result.truncate(lags);
    let scale = 1.0 / size as f64;
    result.iter_mut().for_each(|value| *value *= scale);
    result
}

/// Adds `amount` to the steps in proportion to their part of `(from, to]`, in steps.
fn spread(cells: &mut [f64], from: f64, to: f64, amount: f64) {
    let density = amount / (to - from);
    let last = cells.len() - 1;
    let (first, end) = (index(from).min(last), index(to).min(last));
    for (cell, value) in cells.iter_mut().enumerate().take(end + 1).skip(first) {
        let overlap = to.min((cell + 1) as f64) - from.max(cell as f64);
        if overlap > 0.0 {
            *value += density * overlap;
        }
    }
}

/// The running integral at a real position.
fn at(integral: &[f64], position: f64) -> f64 {
    let cell = index(position).min(integral.len() - 2);
    let part = (position - cell as f64).clamp(0.0, 1.0);
    part.mul_add(integral[cell + 1] - integral[cell], integral[cell])
}

/// Each target's share of the counts for each second it was covered, normalised to a sum of one.
fn shares(kept: &[&Interval], targets: &[u32], count: Count) -> Vec<f64> {
    let mut counts = vec![0.0; targets.len()];
    let mut seconds = vec![0.0; targets.len()];
    for interval in kept {
        if let Ok(index) = targets.binary_search(&interval.target.0) {
            counts[index] += count.of(interval);
            seconds[index] += interval.seconds();
        }
    }
    let mean = counts.iter().sum::<f64>() / seconds.iter().sum::<f64>().max(1e-9);
    // One interval's worth of the mean keeps a target that was hardly seen from a share of zero.
    let length = seconds.iter().sum::<f64>() / kept.len() as f64;
    let mut rates: Vec<f64> =
        counts.iter().zip(&seconds).map(|(c, s)| (c + mean * length) / (s + length)).collect();
    let total: f64 = rates.iter().sum();
    let equal = 1.0 / targets.len() as f64;
    rates.iter_mut().for_each(|rate| *rate = if total > 0.0 { *rate / total } else { equal });
    rates
}

/// Phases of the scrapes that lie more than a twentieth of the interval apart.
fn distinct_phases(intervals: &[Interval], interval_seconds: f64) -> usize {
    let mut phases: Vec<f64> = Vec::new();
    let mut seen: Vec<u32> = Vec::new();
    for interval in intervals.iter().rev() {
        if !seen.contains(&interval.target.0) {
            seen.push(interval.target.0);
            phases.push((interval.to.seconds() / interval_seconds).fract());
        }
    }
    phases.sort_by(f64::total_cmp);
    phases.dedup_by(|later, earlier| (*later - *earlier).abs() < 0.05);
    phases.len().max(1)
}

/// Median of the present values in a window of `width` steps around each, gaps skipped; a gap's
/// own trend is that of its nearest neighbours.
///
/// The median is taken at a fortieth of the width and joined by lines: between two such points a
/// median over so many steps hardly moves.
fn running_median(values: &[f64], width: usize) -> Vec<f64> {
    let half = (width / 2).max(1);
    let stride = (width / 40).max(1);
    let knots: Vec<usize> = (0..values.len()).step_by(stride).chain([values.len() - 1]).collect();
    let mut buffer = Vec::with_capacity(width + 1);
    let mut previous = 0.0;
    let medians: Vec<f64> = knots
        .iter()
        .map(|&knot| {
            // Towards the ends the window shrinks to half, so that a ramp stays nearly a ramp and a
            // wave at the very end is still a wave.
            let edge = knot.min(values.len() - 1 - knot);
            let reach = half.min(edge.max(half / 2));
            let range = knot.saturating_sub(reach)..(knot + reach + 1).min(values.len());
            buffer.clear();
            buffer.extend(values[range].iter().copied().filter(|v| !v.is_nan()));
            if !buffer.is_empty() {
                previous = median(&mut buffer);
            }
            previous
        })
        .collect();
    let mut trend = vec![0.0; values.len()];
    for (pair, level) in knots.windows(2).zip(medians.windows(2)) {
        let length = (pair[1] - pair[0]).max(1) as f64;
        for (offset, value) in trend[pair[0]..=pair[1]].iter_mut().enumerate() {
            *value = (offset as f64 / length).mul_add(level[1] - level[0], level[0]);
        }
    }
    trend
}

/// The median, in place; zero of nothing.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let (below, value, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let value = *value;
    if below.len() < middle || values.len() % 2 == 1 {
        return value;
    }
    let lower = values[..middle].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    f64::midpoint(lower, value)
}

/// The cell of a position: its integer part, zero below zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to int casts saturate, and a position below zero belongs to the first cell"
)]
pub(crate) fn index(position: f64) -> usize {
    position as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling};
    use crate::series::TargetId;

    #[test]
    fn the_fft_autocovariance_is_the_sum_over_pairs_of_intervals() {
        let sampling = Sampling { missed: 0.1, ..Sampling::new(5.0, 3, 300.0) };
        let intervals = Draw::new(7, 300.0).noise(Noise::white(9.0, 2.0)).scrape(sampling);
        let even = EvenResiduals::new(&intervals, Count::Requests).unwrap();
        let fast = autocorrelate(even.values(), 60);
        for (lag, fast) in fast.iter().enumerate() {
            let naive: f64 =
                even.values().iter().zip(&even.values()[lag..]).map(|(a, b)| a * b).sum();
            let scale = even.values().iter().map(|v| v * v).sum::<f64>();
            assert!((fast - naive).abs() < 1e-12 * scale, "{lag}: {fast} {naive}");
        }
    }

    #[test]
    fn a_gap_has_no_weight_and_no_residual() {
        let mut intervals =
            Draw::new(3, 300.0).noise(Noise::white(50.0, 1.0)).scrape(Sampling::new(1.0, 1, 300.0));
        intervals.retain(|i| i.to.seconds() < 100.0 || i.from.seconds() > 140.0);
        let even = EvenResiduals::new(&intervals, Count::Requests).unwrap();
        let cell = index((120.0 - even.start().seconds()) / even.step_seconds());
        assert!(even.weights()[cell] < f64::MIN_POSITIVE);
        assert!(even.values()[cell].abs() < f64::MIN_POSITIVE);
        // Over the pairs that exist the variance is that of the counts, gap or none.
        let variance = even.autocovariance(1)[0] * 16.0;
        assert!((variance - 50.0).abs() < 15.0, "{variance}");
    }

    #[test]
    fn constant_and_few_intervals_are_their_own_outcomes() {
        let interval = |second: u32| Interval {
            target: TargetId(0),
            from: Timestamp::from_seconds(f64::from(second)),
            to: Timestamp::from_seconds(f64::from(second + 1)),
            requests: 25.0,
            errors: 0.0,
        };
        let many: Vec<Interval> = (0..100).map(interval).collect();
        assert_eq!(EvenResiduals::new(&many, Count::Requests).err(), Some(NoResiduals::Constant));
        assert_eq!(EvenResiduals::new(&many, Count::Errors).err(), Some(NoResiduals::Constant));
        assert_eq!(
            EvenResiduals::new(&many[..10], Count::Requests).err(),
            Some(NoResiduals::TooFew(NotEnough { have: 10, need: INTERVALS_MIN }))
        );
    }

    #[test]
    fn a_level_shift_is_trend_and_leaves_no_slow_residual() {
        let intervals = Draw::new(5, 400.0)
            .noise(Noise::white(20.0, 1.0))
            .flood(150.0, 200.0)
            .scrape(Sampling::new(1.0, 4, 400.0));
        let even = EvenResiduals::new(&intervals, Count::Requests).unwrap();
        // Lags of 10 to 20 s: noise only, though the level is eleven times higher after the shift.
        let acf = even.autocovariance(81);
        let mean = acf[40..].iter().sum::<f64>() / 41.0;
        assert!(mean.abs() < 0.1 * acf[0], "{mean} of {}", acf[0]);
    }
}
