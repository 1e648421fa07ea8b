//! The intervals of one incident, laid out for many fits.
//!
//! A search fits tens of thousands of trains to the same intervals, and a wave touches only the few
//! intervals around it. Sorting the intervals by target once, with a table from time to the first
//! interval that can hold it, makes the cost of one train proportional to the intervals its waves
//! touch instead of to all of them.
//!
//! What fails besides retries while the dependency is down (all other traffic, in an outage) is a level
//! under the waves, under those of every family alike; how much of it there can be is told by what
//! succeeds less than normally.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use super::pooled::{Row, pooled};
use super::{Channel, FitInput};
use crate::series::Interval;

/// Model error of a fitted mean, as a share of it: targets differ in their part of the herd and
/// waves in their shape by some percent, which a Poisson variance would call a misfit at 10,000
/// requests a wave.
const MODEL_ERROR: f64 = 0.08;
/// Background of the errors where normal traffic has none: a floor, since a mean of zero forbids
/// the first stray error for ever.
const ERROR_FLOOR_PER_SECOND_MIN: f64 = 0.02;
/// Intervals in one fit: targets of nearly one phase are put together until as many are left, and then
/// later ones are left out. At 1 s and 4 targets this is 150 s of storm.
const INTERVALS_MAX: usize = 600;
/// How much longer than the storm so far the window is.
const SILENCE: f64 = 1.6;
/// Cells of the table from time to interval.
const CELLS: usize = 256;
/// Seconds of normal traffic that the background level is worth against what the storm shows.
const PRIOR_SECONDS: f64 = 60.0;
/// Intervals within the failure from which it is asked whether all that came then failed.
const OUTAGE_INTERVALS_MIN: usize = 8;
/// One in so many of them, the quieter ones, says what fails besides retries.
const OUTAGE_QUIETER: usize = 3;
/// Intervals that begin so many spacings of the pooled scrapes before the end of a failure, or
/// later, say when it was.
const OUTAGE_END_STEPS: f64 = 2.5;
/// Share of the normal rate under which that is nothing.
const OUTAGE_PART_MIN: f64 = 0.2;
/// Most of the normal rate that fails besides retries: traffic drifts.
const FAILING_MAX: f64 = 1.15;
/// Seconds before the onset that are kept.
const LEAD_SECONDS: f64 = 15.0;

/// The intervals as columns, sorted by target and time; seconds count from the onset's lower bound.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    pub(super) count: Vec<f64>,
    pub(super) from: Vec<f64>,
    pub(super) to: Vec<f64>,
    pub(super) share: Vec<f64>,
    /// Whose interval it is: the target under which those of its phase are counted.
    pub(super) target: Vec<u32>,
    /// The target under which each one is counted.
    pub(super) group_of: BTreeMap<u32, u32>,
    /// Share times length: what a rate of one request a second puts into the interval.
    pub(super) exposure: Vec<f64>,
    /// End of the last interval.
    pub(super) horizon: f64,
    /// Latest instant the onset can have.
    pub(super) onset_max: f64,
    /// When the failures stopped, where the counts are failures and they did: nothing fails past it.
    pub(super) failing_until: f64,
    /// Background rate over all targets before the incident.
    pub(super) background: f64,
    /// Share times the part of the interval in which the dependency failed, where all that came then
    /// failed and not the retries alone; empty where that is not so.
    pub(super) outage: Vec<f64>,
    /// What fails then besides retries, at first sight and at most: requests per second.
    pub(super) failing: [f64; 2],
    /// Weight of that rate, in seconds.
    pub(super) prior_seconds: f64,
    /// Variance over mean of small counts.
    pub(super) dispersion: f64,
    /// Size of the negative binomial: its variance is `dispersion * (mu + mu^2 / size)`.
    pub(super) size: f64,
    /// The median length of an interval.
    pub(super) interval_seconds: f64,
    /// Mean and deviance of each interval under the background alone, and the sum of the latter.
    pub(super) background_mean: Vec<f64>,
    pub(super) background_deviance: Vec<f64>,
    pub(super) background_deviance_sum: f64,
    /// First interval and one past the last, for each target.
    targets: Vec<(u32, u32)>,
    /// For each target and cell, the first interval that ends after the cell begins.
    first: Vec<u32>,
    cell_start: f64,
    cells_per_second: f64,
}

impl Window {
    /// Lays out one channel of the input.
    pub(super) fn new(input: &FitInput<'_>, channel: Channel) -> Self {
        let origin = input.onset[0];
        let value = |interval: &Interval| match channel {
            Channel::Errors => interval.errors,
            Channel::Requests => interval.requests,
        };
        let mut kept: Vec<(u32, f64, f64, f64)> = input
            .intervals
            .iter()
            .filter(|interval| interval.to <= input.now)
            .map(|interval| {
                let from = interval.from.seconds_since(origin);
                (interval.target.0, from, interval.to.seconds_since(origin), value(interval))
            })
            .filter(|row| row.2 > -LEAD_SECONDS)
            .collect();
        // Silence after the last of it says little that the first minutes of silence have not said.
        let (rate, factor) = match channel {
            Channel::Errors => (input.error_floor_rate, input.error_dispersion.clamp(1.0, 50.0)),
            Channel::Requests => (input.background_rate, input.dispersion.clamp(1.0, 50.0)),
        };
        let above_noise = |(target, from, to, count): &(u32, f64, f64, f64)| {
            let index = usize::try_from(*target).unwrap_or(usize::MAX);
            let mu = rate * input.shares.get(index).copied().unwrap_or(0.0) * (to - from);
            *count > mu + 4.0 * (factor * mu).sqrt() + 2.0
        };
        let (last_from, last) = kept
            .iter()
            .filter(|row| above_noise(row))
            .fold((0.0, 0.0), |(from, to): (f64, f64), row| (from.max(row.1), to.max(row.2)));
        let failing_until = match channel {
            Channel::Errors => kept
                .iter()
                .filter(|row| row.1 >= last_from && !above_noise(row))
                .map(|row| row.1)
                .fold(f64::INFINITY, f64::min),
            Channel::Requests => f64::INFINITY,
        };
        let longest = kept.iter().map(|row| row.2 - row.1).fold(0.0, f64::max);
        kept.retain(|row| row.2 <= SILENCE * last + 2.0 * longest);
        let rows: Vec<Row> = kept
            .into_iter()
            .map(|(target, from, to, count)| {
                let index = usize::try_from(target).unwrap_or(usize::MAX);
                let share = input.shares.get(index).copied().unwrap_or(0.0);
                Row { target, from, to, count, share }
            })
            .filter(|row| row.share > 0.0 && row.to > row.from)
            .collect();
        let (mut rows, group_of) = pooled(rows, INTERVALS_MAX);
        if rows.len() > INTERVALS_MAX {
            rows.sort_by(|a, b| a.to.total_cmp(&b.to));
            rows.truncate(INTERVALS_MAX);
        }
        rows.sort_by(|a, b| a.target.cmp(&b.target).then(a.from.total_cmp(&b.from)));

        let (background, dispersion) = match channel {
            Channel::Errors => {
                let floor = input.error_floor_rate.max(ERROR_FLOOR_PER_SECOND_MIN);
                (floor, input.error_dispersion.clamp(1.0, 50.0))
            }
            Channel::Requests => {
                (input.background_rate.max(0.05), input.dispersion.clamp(1.0, 50.0))
            }
        };
        let mut window = Self {
            background,
            dispersion,
            size: dispersion / (MODEL_ERROR * MODEL_ERROR),
            failing_until,
            prior_seconds: PRIOR_SECONDS,
            onset_max: input.onset[1].seconds_since(origin).max(0.0),
            group_of,
            ..Self::default()
        };
        let mut last_target = None;
        for Row { target, from, to, count, share } in rows {
            let index = window.count.len() as u32;
            if last_target == Some(target) {
                if let Some(range) = window.targets.last_mut() {
                    range.1 = index + 1;
                }
            } else {
                window.targets.push((index, index + 1));
                last_target = Some(target);
            }
            window.count.push(count);
            window.from.push(from);
            window.to.push(to);
            window.share.push(share);
            window.target.push(target);
            window.exposure.push(share * (to - from));
        }
        window.finish();
        if channel == Channel::Errors {
            window.find_outage(input);
        }
        window.finish_background();
        window
    }

    /// Normal traffic that fails while the dependency does: a level under the waves. How much of it
    /// fails is told by what succeeds less than normally; the quieter intervals of the failure hold
    /// little else.
    fn find_outage(&mut self, input: &FitInput<'_>) {
        let (low, high) = (0.5 * self.onset_max, self.failing_until.min(self.horizon));
        let outage = self.exposure_within(low, high);
        let mut rates: Vec<(f64, f64)> = (0..self.len())
            .filter(|&i| self.from[i] >= low && self.to[i] <= high)
            .map(|i| (self.count[i] / outage[i], outage[i]))
            .filter(|(rate, _)| rate.is_finite())
            .collect();
        if rates.len() < OUTAGE_INTERVALS_MIN {
            return;
        }
        let normal = input.background_rate;
        let (mut served, mut wanted) = (0.0, 0.0);
        for interval in input.intervals {
            let [from, to] =
                [interval.from, interval.to].map(|at| at.seconds_since(input.onset[0]));
            let share = usize::try_from(interval.target.0)
                .ok()
                .and_then(|index| input.shares.get(index))
                .copied()
                .unwrap_or(0.0);
            if from >= low && to <= high {
                served += interval.requests - interval.errors;
                wanted += normal * share * (to - from);
            }
        }
        let unserved = normal * (1.0 - served / wanted);
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        rates.truncate(rates.len().div_ceil(OUTAGE_QUIETER));
        let (sum, weight) = rates
            .iter()
            .fold((0.0, 0.0), |(sum, weight), (rate, of)| (sum + rate * of, weight + of));
        let failing = (sum / weight - self.background).min(unserved);
        if failing > OUTAGE_PART_MIN * normal {
            self.outage = self.exposure_within(low, self.outage_end(high, failing));
            self.failing = [failing, FAILING_MAX * unserved];
        }
    }

    fn exposure_within(&self, low: f64, high: f64) -> Vec<f64> {
        (0..self.len())
            .map(|i| self.share[i] * (self.to[i].min(high) - self.from[i].max(low)).max(0.0))
            .collect()
    }

    /// The likeliest end of a failure that was over about `until`: intervals that begin close to it
    /// hold a few failures, or none.
    fn outage_end(&self, until: f64, failing: f64) -> f64 {
        if until >= self.horizon {
            return until;
        }
        let step = self.effective_step();
        let near: Vec<usize> =
            (0..self.len()).filter(|&i| self.from[i] >= until - OUTAGE_END_STEPS * step).collect();
        let lost = |end: f64| -> f64 {
            let mu = |i: usize| {
                let seconds = (self.to[i].min(end) - self.from[i]).max(0.0);
                self.background.mul_add(self.exposure[i], failing * self.share[i] * seconds)
            };
            near.iter().map(|&i| self.deviance(self.count[i], mu(i))).sum()
        };
        let ends = (-8..=40_i32).map(|eighth| until + 0.125 * f64::from(eighth) * step);
        ends.map(|end| (lost(end), end))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(until, |(_, end)| end)
    }

    /// What is expected of an interval without any retry, before anything is fitted.
    fn expected(&self, i: usize) -> f64 {
        self.mean(i, self.background, self.failing[0])
    }

    /// What is expected of an interval at these rates of stray counts and of what fails besides retries.
    #[inline]
    pub(super) fn mean(&self, i: usize, background: f64, failing: f64) -> f64 {
        let outage = self.outage.get(i).copied().unwrap_or(0.0);
        background.mul_add(self.exposure[i], failing * outage)
    }

    /// A number that is the same for the same intervals.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for column in [&self.count, &self.from, &self.to, &self.share] {
            hasher.write_usize(column.len());
            for value in column {
                hasher.write_u64(value.to_bits());
            }
        }
        hasher.write_u64(self.background.to_bits());
        hasher.write_u64(self.onset_max.to_bits());
        hasher.finish()
    }

    /// How many intervals there are.
    pub(super) fn len(&self) -> usize {
        self.count.len()
    }

    /// Deviance of one count against its mean, over the dispersion.
    #[inline]
    pub(super) fn deviance(&self, count: f64, mu: f64) -> f64 {
        let tail = (count + self.size) * ((mu + self.size) / (count + self.size)).ln();
        let head = if count > 0.0 { count * (count / mu).ln() } else { 0.0 };
        2.0 * (head + tail).max(0.0) / self.dispersion
    }

    /// Calls `visit(interval, share)` for every interval that overlaps `[low, high]`.
    #[inline]
    pub(super) fn visit_overlap(&self, low: f64, high: f64, mut visit: impl FnMut(usize)) {
        let cell = ((low - self.cell_start) * self.cells_per_second).max(0.0) as usize;
        if cell >= CELLS {
            return;
        }
        for (target, &(_, end)) in self.targets.iter().enumerate() {
            let mut index = self.first[target * CELLS + cell] as usize;
            while index < end as usize && self.from[index] < high {
                if self.to[index] > low {
                    visit(index);
                }
                index += 1;
            }
        }
    }

    /// The mean spacing of the pooled scrapes: what this sampling can tell apart at best.
    pub(super) fn effective_step(&self) -> f64 {
        self.interval_seconds / self.targets.len().max(1) as f64
    }

    fn finish(&mut self) {
        self.horizon = self.to.iter().copied().fold(0.0, f64::max);
        self.cell_start = self.from.iter().copied().fold(0.0, f64::min);
        self.cells_per_second = CELLS as f64 / (self.horizon - self.cell_start).max(1e-3);
        let mut lengths: Vec<f64> = self.from.iter().zip(&self.to).map(|(a, b)| b - a).collect();
        lengths.sort_by(f64::total_cmp);
        self.interval_seconds = lengths.get(lengths.len() / 2).copied().unwrap_or(1.0);
        self.first = Vec::with_capacity(self.targets.len() * CELLS);
        for &(start, end) in &self.targets {
            let mut index = start;
            for cell in 0..CELLS {
                let time = self.cell_start + cell as f64 / self.cells_per_second;
                while index < end && self.to[index as usize] <= time {
                    index += 1;
                }
                self.first.push(index);
            }
        }
    }

    fn finish_background(&mut self) {
        self.background_mean = (0..self.len()).map(|i| self.expected(i)).collect();
        self.background_deviance = (0..self.len())
            .map(|i| self.deviance(self.count[i], self.background_mean[i]))
            .collect();
        self.background_deviance_sum = self.background_deviance.iter().sum();
    }
}
