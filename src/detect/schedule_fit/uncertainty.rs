//! What the fitted train says, and how sure it is: waves, spread, and profile-likelihood intervals.
//!
//! A curvature at the maximum would be wrong here: the likelihood is flat between two scrapes and
//! falls off a cliff where a wave crosses one. So each parameter is walked away from its best value
//! with the others free to follow, until the deviance has risen by what 95 % allows.

use super::search::Search;
use super::train::{Growth, Train};
use super::{FINAL_ITERATIONS, FittedWave, LockstepFit, WAVE_SIZE_MIN, waits_of};
use crate::series::Timestamp;

/// The 95 % point of chi-squared with one degree of freedom.
const CHI_SQUARED_95: f64 = 3.84;
/// Nine tenths of a normal wave lie within this many standard deviations.
const EXTENT_IN_SD: f64 = 3.3;
/// Part of a gap that the wave may fill and still leave a gap to see.
const GAP_FILLED_MAX: f64 = 0.85;
/// Halvings of the walk to the end of an interval.
const STEPS: usize = 5;

/// A parameter with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Base,
    Factor,
    Cap,
    Spread,
}

impl Search<'_> {
    /// The deviance of the last solved fit, without prices.
    pub(super) fn deviance(&self) -> f64 {
        (0..self.window.len())
            .map(|i| self.window.deviance(self.window.count[i], self.solver.mu[i]))
            .sum()
    }

    /// How many different heights the last fit holds.
    pub(super) fn distinct_heights(&self) -> usize {
        let mut distinct = 0;
        let mut last = None;
        for &height in &self.solver.heights {
            if height > 0.05 && last.is_none_or(|last: f64| (height - last).abs() >= 1e-3 * height)
            {
                distinct += 1;
                last = Some(height);
            }
        }
        distinct
    }

    /// Describes the best train: its waves, its spread, and the intervals of its parameters.
    pub(super) fn describe(&mut self, train: &Train, origin: Timestamp) -> LockstepFit {
        // Intervals are those of the likelihood: what is usual does not narrow them.
        let misfit = std::mem::replace(&mut self.misfit, 0.0);
        let best = self.cost(train, FINAL_ITERATIONS);
        let fit = self.deviance() / self.window.len().max(1) as f64;
        // A misfit widens every interval by the same factor.
        let limit = best + CHI_SQUARED_95 * fit.max(1.0);
        let heights = self.solver.heights.clone();
        let wave_columns = self.columns.waves;
        let total: f64 = heights.iter().sum();
        let in_waves: f64 = heights[..wave_columns.min(heights.len())].iter().sum();

        let (horizon, width) = (self.window.horizon, train.width);
        let mut waves = Vec::new();
        let (mut weighted, mut weight, mut resolved) = (0.0, 0.0, 0);
        let step = 1.5 * self.window.effective_step();
        let mut unit_spread = (0.0, 0.0);
        let unit = Train { spread: 1.0, ..*train };
        unit.waves(horizon, self.lists, |retry, _, wait, sd| {
            let height = heights.get(retry).copied().unwrap_or(0.0);
            if retry > 0 && height > WAVE_SIZE_MIN {
                unit_spread.0 += height * sd / wait;
                unit_spread.1 += height;
            }
        });
        train.waves(horizon, self.lists, |retry, start, wait, sd| {
            let height = heights.get(retry).copied().unwrap_or(0.0);
            let seen = height > WAVE_SIZE_MIN && start + 0.5 * width <= horizon;
            if seen {
                waves.push(FittedWave {
                    retry,
                    at: origin.plus_seconds(start + 0.5 * width),
                    size: height,
                    wait_seconds: wait,
                    sd_seconds: sd,
                });
            }
            if seen && retry > 0 {
                weighted += height * sd / wait;
                weight += height;
                let extent = width + EXTENT_IN_SD * sd;
                resolved += usize::from(wait > step && extent < GAP_FILLED_MAX * wait);
            }
        });
        let spread = if weight > 0.0 { weighted / weight } else { 0.0 };
        // From the spread of one wait to the spread of a wave against its gap.
        let scale = if unit_spread.1 > 0.0 { unit_spread.0 / unit_spread.1 } else { 1.0 };
        let next_wave_at = self.next_wave(train, origin);

        let spread_ends = self.profile(train, Parameter::Spread, limit);
        let factor_known = train.growth == Growth::Exponential && train.factor > 1.0;
        let fitted = LockstepFit {
            waits: waits_of(train),
            onset: origin.plus_seconds(train.onset),
            width_seconds: train.width,
            latency_seconds: train.latency,
            spread,
            spread_interval: [spread_ends[0] * scale, spread_ends[1] * scale],
            base_interval: self.profile(train, Parameter::Base, limit),
            factor_interval: if factor_known {
                self.profile(train, Parameter::Factor, limit)
            } else {
                [train.factor, train.factor]
            },
            cap_interval: train.cap.is_finite().then(|| self.profile(train, Parameter::Cap, limit)),
            waves,
            next_wave_at,
            wave_share: if total > 0.0 { in_waves / total } else { 0.0 },
            waves_resolved: resolved,
        };
        self.misfit = misfit;
        fitted
    }

    /// The first wave after the last interval.
    fn next_wave(&self, train: &Train, origin: Timestamp) -> Option<Timestamp> {
        let mut next = None;
        let (horizon, half) = (self.window.horizon, 0.5 * train.width);
        train.waves(horizon + 1000.0, self.lists, |_, start, _, _| {
            if next.is_none() && start + half > horizon {
                next = Some(origin.plus_seconds(start + half));
            }
        });
        next
    }

    /// The ends of one parameter's interval: where the profile deviance passes `limit`.
    fn profile(&mut self, train: &Train, parameter: Parameter, limit: f64) -> [f64; 2] {
        let value = |train: &Train| match parameter {
            Parameter::Base => train.base,
            Parameter::Factor => train.factor,
            Parameter::Cap => train.cap,
            Parameter::Spread => train.spread,
        };
        let mut ends = [value(train); 2];
        for (end, sign) in [(0, -1.0_f64), (1, 1.0)] {
            let mut last = *train;
            let mut step = 0.03_f64;
            for _ in 0..STEPS {
                let mut next = last;
                match parameter {
                    Parameter::Base => next.base *= (sign * step).exp(),
                    Parameter::Factor => next.factor = (next.factor * (sign * step).exp()).max(1.0),
                    Parameter::Cap => next.cap *= (sign * step).exp(),
                    Parameter::Spread => next.spread = (next.spread + sign * step).max(0.0),
                }
                if (value(&next) - value(&last)).abs() < 1e-12 {
                    break;
                }
                let (followed, cost) = self
                    .compensated(&last, &next, parameter)
                    .into_iter()
                    .map(|start| self.follow(start, parameter))
                    .min_by(|a, b| a.1.total_cmp(&b.1))
                    .unwrap_or((next, f64::INFINITY));
                if cost <= limit {
                    last = followed;
                    ends[end] = value(&followed);
                    step *= 2.0;
                } else {
                    // The end lies before this step: report the outer bound of what is known.
                    ends[end] = 0.5 * (value(&last) + value(&next));
                    step *= 0.35;
                }
            }
        }
        ends
    }

    /// Where the walk of the others starts: as they were, and with what the likelihood sees left in
    /// place: the first retry by the onset or the latency, or the last wave by the base.
    fn compensated(&self, last: &Train, next: &Train, moved: Parameter) -> Vec<Train> {
        let mut starts = vec![*next];
        match moved {
            Parameter::Base => {
                let by = next.base - last.base;
                starts.push(Train { onset: next.onset - by, ..*next });
                if next.latency > by {
                    starts.push(Train { latency: next.latency - by, ..*next });
                }
            }
            Parameter::Factor => starts.push(self.with_factor(*last, next.factor)),
            Parameter::Cap | Parameter::Spread => {}
        }
        starts
    }

    /// The other parameters follow, a few small steps each.
    fn follow(&mut self, train: Train, held: Parameter) -> (Train, f64) {
        let mut best = train;
        let mut cost = self.cost(&best, 8);
        let mut scale = 1.0_f64;
        for _ in 0..2 {
            for direction in 0..4 {
                for sign in [1.0, -1.0] {
                    let mut next = best;
                    let step = sign * scale;
                    match direction {
                        0 => {
                            next.onset += 0.2 * step * self.window.effective_step().clamp(0.1, 2.0)
                        }
                        1 if held != Parameter::Base => next.base *= (0.02 * step).exp(),
                        2 if held != Parameter::Factor && next.factor > 1.0 => {
                            next.factor *= (0.02 * step).exp();
                        }
                        3 => next.latency = (next.latency + 0.05 * step).max(0.0),
                        _ => continue,
                    }
                    let lower = self.cost(&next, 8);
                    if lower < cost {
                        (best, cost) = (next, lower);
                    }
                }
            }
            scale *= 0.5;
        }
        (best, cost)
    }
}
