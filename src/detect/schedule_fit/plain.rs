//! Which of the trains that fit is told: the one whose clients become fewer by a plain rule.
//!
//! Where the first waves merge in one scrape, trains of other waits fit by letting half of the
//! herd vanish from one retry to the next and nearly nobody after that. Heights may fall as they
//! like (heights.rs), since families are compared by what fits; but the name of a schedule should
//! not rest on such a fall. A fleet loses its clients by the same number or by the same share at each
//! retry, whether they gave up or were served:
//!
//! ```text
//! h_n = a * (1 - (1 - e) * (n - 1) / (m - 1))     or     h_n = a * e^((n - 1) / (m - 1)),     n = 1 ..= m
//! ```
//!
//! with `m` the last wave of more than a seventh of the highest, and the others as they were fitted.
//! The failure itself may be larger: those that never retry fail with it. Free heights cost more than
//! plain ones, by as much as four in deviance, so that a herd that recovers by steps keeps its name.

use super::FINAL_ITERATIONS;
use super::heights::Columns;
use super::polish::Held;
use super::search::{Scored, Search, alike, height_price, price};
use super::train::Train;

/// A wave of less than this part of the highest follows no rule: those that are left.
const HELD: f64 = 0.15;
/// What each parameter of the heights costs, in deviance (Akaike 1974).
const HEIGHT: f64 = 2.0;
/// Free heights that are charged for, at the most.
const FREE: f64 = 5.0;
/// Parameters of plain heights: the failure, the first retry and the last.
const PLAIN: f64 = 3.0;
/// Parts of the first retry's height that the last one may have, at the ends of the search.
const ENDS: [f64; 2] = [0.02, 1.0];
/// Steps of each one-dimensional search.
const STEPS: usize = 7;
/// Rounds of the fit of two heights.
const ROUNDS: usize = 6;
/// Iterations of the fits among which the trains are chosen that are polished.
const ITERATIONS: usize = 22;
/// Deviance that a plainer train may lose against the best one.
const LOST_MAX: f64 = 10.0;
/// What a polish is expected to gain at most.
const POLISH_GAIN: f64 = 4.0;
/// Trains that are polished.
const POLISHED: usize = 6;

impl Search<'_> {
    /// The train to tell: `best`, or one that fits nearly as well and is plainer.
    pub(super) fn plainest(&mut self, best: Train) -> Train {
        let fits = self.cost(&best, FINAL_ITERATIONS);
        let mut told = (self.told(&best), best);
        let mut trains = std::mem::take(&mut self.found);
        trains.extend(self.reseated(&best, ITERATIONS).iter().map(|scored| scored.train));
        let mut candidates: Vec<(f64, Scored)> = Vec::new();
        for train in trains {
            let cost = self.cost(&train, ITERATIONS);
            if cost < fits + LOST_MAX + POLISH_GAIN {
                candidates.push((self.told(&train), Scored { train, cost }));
            }
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut seen: Vec<Train> = Vec::new();
        for (cost, scored) in candidates {
            if cost > told.0 + POLISH_GAIN || seen.len() == POLISHED {
                break;
            }
            if seen.iter().any(|other| alike(other, &scored.train)) {
                continue;
            }
            seen.push(scored.train);
            let train = self.polish(scored, Held::Waits).train;
            let fits_too = self.cost(&train, FINAL_ITERATIONS) < fits + LOST_MAX;
            let plain = self.told(&train);
            if fits_too && plain < told.0 {
                told = (plain, train);
            }
        }
        told.1
    }

    /// Cost of a train whose heights are free or plain, whichever is less; its cost with free ones
    /// has just been computed.
    fn told(&mut self, train: &Train) -> f64 {
        let fall = height_price(&self.solver.heights);
        let free =
            self.deviance() + fall + HEIGHT * self.misfit * held(&self.solver.heights).min(FREE);
        let plain = self.plain_deviance();
        self.misfit * price(train) + free.min(plain)
    }

    /// Deviance with plain heights, of the train whose columns and free heights are at hand.
    fn plain_deviance(&self) -> f64 {
        let heights = &self.solver.heights;
        let highest = heights.iter().copied().fold(0.0, f64::max);
        let Some(last) = heights.iter().rposition(|height| *height > HELD * highest) else {
            return f64::INFINITY;
        };
        if last < 2 {
            return f64::INFINITY;
        }
        let mut lowest = f64::INFINITY;
        for geometric in [false, true] {
            let at = |end: f64| {
                let shape: Vec<f64> = (0..last)
                    .map(|n| {
                        let part = n as f64 / (last - 1) as f64;
                        if geometric { end.powf(part) } else { 1.0 - (1.0 - end) * part }
                    })
                    .collect();
                self.shaped_deviance(&self.columns, &shape)
            };
            // Golden section in the logarithm of the end.
            let [mut low, mut high] = ENDS.map(f64::ln);
            let golden = 0.618_034;
            let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
            let (mut at_a, mut at_b) = (at(a.exp()), at(b.exp()));
            for _ in 0..STEPS {
                if at_a < at_b {
                    (high, b, at_b) = (b, a, at_a);
                    a = high - golden * (high - low);
                    at_a = at(a.exp());
                } else {
                    (low, a, at_a) = (a, b, at_b);
                    b = low + golden * (high - low);
                    at_b = at(b.exp());
                }
            }
            lowest = lowest.min(at_a).min(at_b).min(at(1.0));
        }
        lowest + HEIGHT * self.misfit * PLAIN
    }

    fn shaped_deviance(&self, columns: &Columns, shape: &[f64]) -> f64 {
        let (window, solver) = (self.window, &self.solver);
        let mut failure = vec![0.0; window.len()];
        let mut retries = vec![0.0; window.len()];
        let mut rest = vec![0.0; window.len()];
        for (i, value) in columns.column(0) {
            failure[i] += value;
        }
        for (wave, part) in shape.iter().enumerate() {
            for (i, value) in columns.column(wave + 1) {
                retries[i] += part * value;
            }
        }
        for wave in shape.len() + 1..columns.len().min(solver.heights.len()) {
            for (i, value) in columns.column(wave) {
                rest[i] += solver.heights[wave] * value;
            }
        }
        let mut first = solver.heights[0];
        let mut second = solver.heights[1].min(first);
        let mean = |i: usize, first: f64, second: f64| {
            window.mean(i, solver.background, solver.failing)
                + rest[i]
                + first * failure[i]
                + second * retries[i]
        };
        for _ in 0..ROUNDS {
            let mut sums = [0.0; 4];
            for i in 0..window.len() {
                if failure[i] + retries[i] <= 0.0 {
                    continue;
                }
                let mu = mean(i, first, second);
                let weight = window.size / (window.size + mu);
                let pull = weight * window.count[i] / mu;
                sums[0] += failure[i] * pull;
                sums[1] += failure[i] * weight;
                sums[2] += retries[i] * pull;
                sums[3] += retries[i] * weight;
            }
            if sums[1] > 0.0 {
                first *= sums[0] / sums[1];
            }
            if sums[3] > 0.0 {
                second *= sums[2] / sums[3];
            }
            if second > first {
                let both = (first * sums[1] + second * sums[3]) / (sums[1] + sums[3]);
                (first, second) = (both, both);
            }
        }
        let deviance: f64 = (0..window.len())
            .map(|i| window.deviance(window.count[i], mean(i, first, second).max(1e-9)))
            .sum();
        deviance + height_price(&[first, second])
    }
}

/// How many waves hold anything.
fn held(heights: &[f64]) -> f64 {
    let highest = heights.iter().copied().fold(0.0, f64::max);
    heights.iter().filter(|height| **height > HELD * highest).count() as f64
}
