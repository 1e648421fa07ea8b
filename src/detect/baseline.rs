//! What normal traffic of one dependency looks like: level, shares, dispersion, error ratio.
//!
//! A mean over the last hour would learn from the incident it is to judge, and a Poisson band pages
//! every night, because traffic is over-dispersed and its noise is correlated in time. So the level
//! is a trimmed rate over calm intervals, and the noise is measured twice: per interval, and per
//! block of time as long as the sums that are to be judged.
//!
//! # Method
//!
//! With `n_k` the count of interval `k` of target `i`, `s_k` its length in seconds:
//!
//! ```text
//! w_i  = share of target i       mu_k = rate * w_i * s_k
//! phi  = mean over k of (n_k - mu_k)^2 / mu_k              dispersion of one interval
//! phi_W = sum over blocks (sum_k n_k - mu_k)^2 / sum_k mu_k    dispersion of a sum over W seconds
//! ```
//!
//! Intervals further than [`OUTLIER_SDS`] from the level are left out and the level is taken again,
//! a few times. Squares are winsorised at the same limit so that one leftover burst cannot hide the
//! next one.
//!
//! # Assumptions, and what happens when they fail
//!
//! * The level holds over the window. A trend enters `phi_W` and makes the tests less sensitive,
//!   never more.
//! * At least [`INTERVALS_MIN`] intervals; fewer is [`NotEnough`], and the dependency is learning.
//!
//! # Cost
//!
//! O(intervals) for each round; run when the screen asks, not on every poll.

use crate::detect::NotEnough;
use crate::series::{Interval, Timestamp};

/// Fewest intervals a baseline is learned from: enough for a dispersion within some 40 %.
pub const INTERVALS_MIN: usize = 12;
/// Distance from the level, in standard deviations, past which an interval is not calm.
pub const OUTLIER_SDS: f64 = 5.0;
/// Pseudo-counts that pull the shares of rarely used targets towards equality.
const SHARE_PRIOR: f64 = 4.0;
/// Rounds of trimming; the level moves less than its own error after the second.
const ROUNDS: usize = 4;
/// Parts of the lesson in each of which batches come, where they are normal.
const BURST_PARTS: usize = 6;
/// In so many of them clumps of failures come, where those are normal: an outage is in one or two.
const CLUMP_PARTS: usize = 3;
/// Fewest blocks a block dispersion is measured on.
const BLOCKS_MIN: usize = 6;
/// Scrape cycles between two lessons.
const RELEARN_CYCLES: f64 = 20.0;
/// Shortest time between two lessons, seconds.
const RELEARN_SECONDS_MIN: f64 = 60.0;
/// And this part of the lesson: before, a newer one says hardly anything else.
const RELEARN_PART: f64 = 1.0 / 6.0;
/// Smallest error ratio assumed: below it, one stray error would look like an outage.
const ERROR_RATIO_MIN: f64 = 1e-4;

/// Normal traffic of one dependency.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// Requests per second over all targets.
    pub rate: f64,
    /// Share of each target, by its number; sums to 1.
    pub shares: Vec<f64>,
    /// Variance-to-mean ratio of the count of one interval; at least 1.
    pub dispersion: f64,
    /// Share of requests that fail in normal traffic.
    pub error_ratio: f64,
    /// Variance-to-mean ratio of the errors of one interval; at least 1.
    pub error_dispersion: f64,
    /// Dispersion of sums over blocks of time: length in seconds, ratio; lengths rising.
    pub block_dispersions: Vec<(f64, f64)>,
    /// How many intervals it was learned from.
    pub intervals: usize,
    /// First and last instant it was learned from.
    pub span: [Timestamp; 2],
}

impl Baseline {
    /// Learns from calm intervals; `targets` is one more than the highest target number.
    ///
    /// # Errors
    ///
    /// [`NotEnough`] under [`INTERVALS_MIN`] intervals.
    pub fn learn(intervals: &[Interval], targets: usize) -> Result<Self, NotEnough> {
        if intervals.len() < INTERVALS_MIN {
            return Err(NotEnough { have: intervals.len(), need: INTERVALS_MIN });
        }
        let span = [
            intervals.iter().map(|interval| interval.from).min().unwrap_or_default(),
            intervals.iter().map(|interval| interval.to).max().unwrap_or_default(),
        ];
        let rows: Vec<Row> = intervals.iter().map(|interval| Row::new(interval, span[1])).collect();
        let rows = rows.as_slice();
        let mut calm: Vec<bool> = vec![true; rows.len()];
        let mut rates = vec![0.0; targets];
        let mut dispersion: f64 = 1.0;
        for round in 0..ROUNDS {
            rates = if round == 0 {
                median_rates(rows, targets)
            } else {
                mean_rates(rows, &calm, targets)
            };
            dispersion = dispersion_of(
                rows,
                &calm,
                &rates,
                if round == 0 { Round::First } else { Round::Later },
            );
            let before = std::mem::take(&mut calm);
            calm.extend(rows.iter().map(|row| {
                let expected = rates[row.target] * row.seconds;
                let limit = OUTLIER_SDS * (dispersion * expected.max(1.0)).sqrt();
                (row.requests - expected).abs() <= limit
            }));
            // A series that is mostly bursts has no calm part: take it as it is.
            if is_bursty(rows, &calm) {
                calm.fill(true);
            }
            // The same intervals give the same level.
            if round > 0 && calm == before {
                break;
            }
        }
        let rate: f64 = rates.iter().sum();
        let shares = if rate > 0.0 {
            rates.iter().map(|r| r / rate).collect()
        } else {
            equal_shares(rows, targets)
        };
        let (error_ratio, error_dispersion) = error_level(rows, &calm);
        let mut baseline = Self {
            rate,
            shares,
            dispersion,
            error_ratio,
            error_dispersion,
            block_dispersions: Vec::new(),
            intervals: intervals.len(),
            span,
        };
        baseline.block_dispersions = block_dispersions(rows, &baseline);
        Ok(baseline)
    }

    /// Seconds until another lesson says something new, where a scrape cycle takes `cycle` of them.
    #[must_use]
    pub fn lasts_seconds(&self, cycle: f64) -> f64 {
        let part = RELEARN_PART * self.span[1].seconds_since(self.span[0]);
        (RELEARN_CYCLES * cycle).max(RELEARN_SECONDS_MIN).max(part)
    }

    /// Requests expected in an interval.
    #[must_use]
    pub fn expected(&self, interval: &Interval) -> f64 {
        self.expected_of(interval.target.0 as usize, interval.seconds())
    }

    fn expected_of(&self, target: usize, seconds: f64) -> f64 {
        self.rate * self.share_of(target) * seconds
    }

    /// The share of an interval's target; that of an unknown target is the mean one.
    #[must_use]
    pub fn share(&self, interval: &Interval) -> f64 {
        self.share_of(interval.target.0 as usize)
    }

    fn share_of(&self, target: usize) -> f64 {
        let known = self.shares.get(target).copied().unwrap_or(0.0);
        if known > 0.0 { known } else { 1.0 / count(self.shares.len().max(1)) }
    }

    /// Variance-to-mean ratio of a sum of requests over `seconds`, by the nearest longer block
    /// measured, else the longest.
    #[must_use]
    pub fn sum_dispersion(&self, seconds: f64) -> f64 {
        self.block_dispersions
            .iter()
            .find(|(length, _)| *length >= seconds)
            .or(self.block_dispersions.last())
            .map_or(self.dispersion, |(_, ratio)| ratio.max(self.dispersion))
    }
}

/// One interval, with what every round asks of it.
#[derive(Debug, Clone, Copy)]
struct Row {
    target: usize,
    seconds: f64,
    /// Seconds from its end to the end of the lesson.
    age: f64,
    requests: f64,
    errors: f64,
}

impl Row {
    fn new(interval: &Interval, end: Timestamp) -> Self {
        Self {
            target: interval.target.0 as usize,
            seconds: interval.seconds(),
            age: end.seconds_since(interval.to),
            requests: interval.requests,
            errors: interval.errors,
        }
    }
}

/// Whether outliers have been trimmed yet.
#[derive(Clone, Copy)]
enum Round {
    First,
    Later,
}

/// Whether what was trimmed is most of the intervals; or most of the requests, and all along:
/// clients that send in batches are normal traffic, however long the pauses between them, and a
/// burst that is none stands in one place.
fn is_bursty(rows: &[Row], calm: &[bool]) -> bool {
    let (mut intervals, mut kept, mut all) = (0, 0.0, 0.0);
    for (row, flag) in rows.iter().zip(calm) {
        all += row.requests;
        if *flag {
            intervals += 1;
            kept += row.requests;
        }
    }
    let trimmed = rows.iter().zip(calm).filter(|(_, flag)| !**flag).map(|(row, _)| row);
    intervals * 2 < rows.len() || kept * 2.0 < all && parts_hit(rows, trimmed) == BURST_PARTS
}

/// In how many parts of the lesson some of these rows are.
fn parts_hit<'a>(rows: &[Row], some: impl Iterator<Item = &'a Row>) -> usize {
    let longest = rows.iter().map(|row| row.age).fold(0.0, f64::max);
    let mut hit = [false; BURST_PARTS];
    for row in some {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of the longest age, which is not negative"
        )]
        let part = (row.age / longest.max(1e-9) * count(BURST_PARTS)) as usize;
        hit[part.min(BURST_PARTS - 1)] = true;
    }
    hit.into_iter().filter(|hit| *hit).count()
}

/// Per-target medians of the rate: a start that one burst cannot move.
fn median_rates(rows: &[Row], targets: usize) -> Vec<f64> {
    let mut by_target: Vec<Vec<f64>> = vec![Vec::new(); targets];
    for row in rows {
        by_target[row.target].push(row.requests / row.seconds);
    }
    by_target.iter_mut().map(|rates| median(rates).unwrap_or(0.0)).collect()
}

/// Per-target mean rates over calm intervals, the shares pulled a little towards equality.
fn mean_rates(rows: &[Row], calm: &[bool], targets: usize) -> Vec<f64> {
    let mut counts = vec![0.0; targets];
    let mut lengths = vec![0.0; targets];
    for (row, _) in rows.iter().zip(calm).filter(|(_, flag)| **flag) {
        counts[row.target] += row.requests;
        lengths[row.target] += row.seconds;
    }
    let seen: Vec<usize> = (0..targets).filter(|target| lengths[*target] > 0.0).collect();
    let total_count: f64 = counts.iter().sum();
    let total_length: f64 = lengths.iter().sum();
    let mut rates = vec![0.0; targets];
    if total_length <= 0.0 {
        return rates;
    }
    let mean_rate = total_count / total_length;
    let prior_length = if mean_rate > 0.0 { SHARE_PRIOR / mean_rate } else { 0.0 };
    for target in seen {
        rates[target] = (counts[target] + SHARE_PRIOR.min(prior_length * mean_rate))
            / (lengths[target] + prior_length);
    }
    rates
}

/// Winsorised variance-to-mean ratio of single intervals; at least 1.
fn dispersion_of(rows: &[Row], calm: &[bool], rates: &[f64], round: Round) -> f64 {
    let mut squares: Vec<f64> = Vec::with_capacity(rows.len());
    for (row, _) in rows.iter().zip(calm).filter(|(_, flag)| **flag) {
        let expected = rates[row.target] * row.seconds;
        if expected > 0.0 {
            squares.push((row.requests - expected).powi(2) / expected.max(0.2));
        }
    }
    if squares.is_empty() {
        return 1.0;
    }
    let last = squares.len() - 1;
    if let Round::First = round {
        // Nothing is trimmed yet: take a quantile that bursts in a fifth of the intervals cannot
        // move. 1.074 is the 0.7 quantile of a chi-square with one degree of freedom.
        return (ranked(&mut squares, last * 7 / 10) / 1.074).max(1.0);
    }
    // Winsorise the top hundredth; of a chi-square that hides under 4 % of the mean.
    let limit = ranked(&mut squares, last - last / 100);
    let sum: f64 = squares.iter().map(|square| square.min(limit)).sum();
    (sum / count(squares.len())).max(1.0)
}

fn equal_shares(rows: &[Row], targets: usize) -> Vec<f64> {
    let mut seen = vec![0.0; targets];
    for row in rows {
        seen[row.target] = 1.0;
    }
    let total: f64 = seen.iter().sum();
    seen.iter().map(|flag| flag / total.max(1.0)).collect()
}

/// Error ratio and the dispersion of the errors around it, over calm intervals without bursts; where
/// those come now and then all along, failures in clumps are normal, and so is their dispersion.
fn error_level(rows: &[Row], calm: &[bool]) -> (f64, f64) {
    let chosen: Vec<Row> =
        rows.iter().zip(calm).filter(|(_, flag)| **flag).map(|(row, _)| *row).collect();
    let requests: f64 = chosen.iter().map(|row| row.requests).sum();
    if requests <= 0.0 {
        return (ERROR_RATIO_MIN, 1.0);
    }
    let mut ratio = chosen.iter().map(|row| row.errors).sum::<f64>() / requests;
    let mut dispersion: f64 = 1.0;
    for _ in 0..ROUNDS {
        let before = (ratio, dispersion);
        let level = ratio.max(ERROR_RATIO_MIN);
        let (mut errors, mut base, mut squares, mut used) = (0.0, 0.0, 0.0, 0usize);
        for row in &chosen {
            let expected = level * row.requests;
            let distance = row.errors - expected;
            if distance.abs() > OUTLIER_SDS * (dispersion * expected.max(1.0)).sqrt() {
                continue;
            }
            errors += row.errors;
            base += row.requests;
            if expected > 0.0 {
                squares += distance.powi(2) / expected.max(0.2);
                used += 1;
            }
        }
        if base > 0.0 {
            ratio = errors / base;
        }
        dispersion = if used > 0 { (squares / count(used)).max(1.0) } else { 1.0 };
        let level = ratio.max(ERROR_RATIO_MIN);
        let clumps = chosen.iter().filter(|row| {
            let expected = level * row.requests;
            row.errors - expected > OUTLIER_SDS * (dispersion * expected.max(1.0)).sqrt()
        });
        if parts_hit(&chosen, clumps) >= CLUMP_PARTS {
            return clumped_level(&chosen);
        }
        if (ratio, dispersion) == before {
            break;
        }
    }
    (ratio.max(ERROR_RATIO_MIN), dispersion)
}

/// Error ratio and dispersion with nothing left out.
fn clumped_level(rows: &[Row]) -> (f64, f64) {
    let (errors, requests) = rows
        .iter()
        .fold((0.0, 0.0), |(errors, requests), row| (errors + row.errors, requests + row.requests));
    let ratio = (errors / requests).max(ERROR_RATIO_MIN);
    let (squares, expected) = rows.iter().fold((0.0, 0.0), |(squares, sum), row| {
        let expected = ratio * row.requests;
        let distance = row.errors - expected;
        (distance.mul_add(distance, squares), sum + expected)
    });
    (ratio, (squares / expected).max(1.0))
}

/// Dispersions of sums over blocks of doubling length, from one scrape cycle up.
fn block_dispersions(rows: &[Row], baseline: &Baseline) -> Vec<(f64, f64)> {
    let mut lengths: Vec<f64> = rows.iter().map(|row| row.seconds).collect();
    let Some(cycle) = median(&mut lengths) else { return Vec::new() };
    let total = baseline.span[1].seconds_since(baseline.span[0]);
    // The blocks count back from the end, so that each longer one is two shorter ones.
    let mut sums: Vec<[f64; 2]> = Vec::new();
    for row in rows {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the age of an interval inside the window is not negative"
        )]
        let block = (row.age / cycle) as usize;
        if block >= sums.len() {
            sums.resize(block + 1, [0.0; 2]);
        }
        let expected = baseline.expected_of(row.target, row.seconds);
        sums[block][0] += row.requests - expected;
        sums[block][1] += expected;
    }
    let mut found = Vec::new();
    let mut length = cycle;
    while total / length >= count(BLOCKS_MIN) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive quotient of the window by the block"
        )]
        let whole = (total / length) as usize;
        let mut squares: Vec<f64> = sums
            .iter()
            .take(whole)
            .filter(|[_, expected]| *expected > 0.0)
            .map(|[residual, expected]| residual * residual / expected)
            .collect();
        if squares.len() >= BLOCKS_MIN {
            let rank = squares.len() - 1 - squares.len() / 20;
            let limit = ranked(&mut squares, rank);
            let sum: f64 = squares.iter().map(|square| square.min(limit)).sum();
            found.push((length, (sum / count(squares.len())).max(1.0)));
        }
        length *= 2.0;
        sums = sums
            .chunks(2)
            .map(|pair| pair.iter().fold([0.0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]))
            .collect();
    }
    found
}

/// The value of a rank from 0, with the others moved to either side of it: a normal is learned every
/// few minutes for every dependency, and sorting was most of that.
fn ranked(values: &mut [f64], rank: usize) -> f64 {
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// The median, with the values reordered; none of an empty slice.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let upper = ranked(values, middle);
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = values[..middle].iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, upper))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Gamma, Poisson};

    use super::*;
    use crate::series::TargetId;

    /// Intervals of `targets` targets at `rate` requests a second each, dispersion `phi`.
    fn traffic(targets: u32, rate: f64, phi: f64, cycles: i64, seed: u64) -> Vec<Interval> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut intervals = Vec::new();
        for cycle in 0..cycles {
            for target in 0..targets {
                let mean = rate * 15.0;
                let level = if phi > 1.0 {
                    Gamma::new(mean / (phi - 1.0), phi - 1.0).unwrap().sample(&mut rng)
                } else {
                    mean
                };
                let requests = Poisson::new(level.max(1e-9)).unwrap().sample(&mut rng);
                let from = cycle * 15_000 + i64::from(target) * 700;
                intervals.push(Interval {
                    target: TargetId(target),
                    from: Timestamp::from_millis(from),
                    to: Timestamp::from_millis(from + 15_000),
                    requests,
                    errors: (requests * 0.01).round(),
                });
            }
        }
        intervals
    }

    #[test]
    fn level_shares_and_dispersion_are_recovered() {
        let baseline = Baseline::learn(&traffic(4, 10.0, 3.0, 120, 7), 4).unwrap();
        assert!((baseline.rate / 40.0 - 1.0).abs() < 0.03, "rate {}", baseline.rate);
        assert!(baseline.shares.iter().all(|share| (share - 0.25).abs() < 0.02));
        assert!((baseline.dispersion / 3.0 - 1.0).abs() < 0.25, "phi {}", baseline.dispersion);
        assert!((baseline.error_ratio - 0.01).abs() < 0.003);
    }

    #[test]
    fn bursts_do_not_lift_the_level() {
        let mut intervals = traffic(4, 10.0, 1.0, 60, 8);
        for interval in intervals.iter_mut().skip(80).take(12) {
            interval.requests += 4000.0;
        }
        let baseline = Baseline::learn(&intervals, 4).unwrap();
        assert!((baseline.rate / 40.0 - 1.0).abs() < 0.05, "rate {}", baseline.rate);
    }

    #[test]
    fn failures_in_clumps_are_normal_where_they_come_now_and_then() {
        // Twelve failures in one interval in thirty, and no two of a kind.
        let mut intervals = traffic(4, 10.0, 1.0, 240, 9);
        for (number, interval) in intervals.iter_mut().enumerate() {
            interval.errors = if number % 30 == 7 { 12.0 } else { 0.0 };
        }
        let baseline = Baseline::learn(&intervals, 4).unwrap();
        assert!(baseline.error_dispersion > 8.0, "{}", baseline.error_dispersion);
        // An outage stands in one place, and is not learned from.
        for (number, interval) in intervals.iter_mut().enumerate() {
            interval.errors = if (400..420).contains(&number) { 100.0 } else { 0.0 };
        }
        let baseline = Baseline::learn(&intervals, 4).unwrap();
        assert!(baseline.error_dispersion < 1.5, "{}", baseline.error_dispersion);
    }

    #[test]
    fn batches_are_the_level_where_they_come_all_along() {
        let mut intervals = traffic(4, 0.1, 1.0, 60, 11);
        for (number, interval) in intervals.iter_mut().enumerate() {
            if number % 5 == 0 {
                interval.requests += 100.0;
            }
        }
        let baseline = Baseline::learn(&intervals, 4).unwrap();
        let seconds: f64 = intervals.iter().map(Interval::seconds).sum();
        let rate = intervals.iter().map(|it| it.requests).sum::<f64>() / seconds * 4.0;
        assert!((baseline.rate / rate - 1.0).abs() < 0.1, "{} for {rate}", baseline.rate);
        assert!(baseline.dispersion > 20.0, "phi {}", baseline.dispersion);
    }

    #[test]
    fn few_intervals_are_not_enough() {
        let intervals = traffic(1, 10.0, 1.0, 5, 9);
        assert_eq!(Baseline::learn(&intervals, 1), Err(NotEnough { have: 5, need: INTERVALS_MIN }));
    }

    #[test]
    fn a_silent_dependency_has_a_baseline_of_zero() {
        let mut intervals = traffic(2, 10.0, 1.0, 20, 10);
        for interval in &mut intervals {
            interval.requests = 0.0;
            interval.errors = 0.0;
        }
        let baseline = Baseline::learn(&intervals, 2).unwrap();
        assert!(baseline.rate.abs() < 0.2, "rate {}", baseline.rate);
        assert!((baseline.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
