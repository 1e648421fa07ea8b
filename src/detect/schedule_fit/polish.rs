//! Out of the local optimum: moves that change a train's shape, and a simplex for its valleys.
//!
//! Latency trades against base, base against factor, onset against base, a wide failure against
//! jitter: the likelihood's valleys run across the axes and a search along them stops half-way. And
//! some neighbours differ by a whole wave. So the best trains are tried with another factor and
//! the last wave held, with a wave more or less, as a fixed delay, and with each optional parameter
//! removed; a Nelder-Mead simplex finishes.

use super::alternatives::{AlternativeFit, smooth_columns};
use super::heights::Columns;
use super::search::{BASE_MIN, FACTORS, ROUND, Scored, Search, moved_along};
use super::train::{Growth, Train};

/// Steps of the simplex and iterations of each of its fits.
const POLISH_STEPS: usize = 60;
const POLISH_ITERATIONS: usize = 22;
/// Usual schedules with the same waves that are polished.
const SEATED: usize = 4;
/// Factors below this are a fixed delay: over ten waits it grows by a third, which a cap hides.
const FACTOR_MIN: f64 = 1.03;

/// What a polish leaves alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    Factor,
    Waits,
}

/// A train with no growth to speak of is a fixed delay, whose latency is part of its wait.
pub(super) fn canonical(train: Train) -> Train {
    if train.growth == Growth::Exponential && train.factor < FACTOR_MIN {
        let base = train.base.min(train.cap) + train.latency;
        return Train { base, factor: 1.0, cap: f64::INFINITY, latency: 0.0, ..train };
    }
    train
}

impl Search<'_> {
    /// The best train over a decay, and the decay's columns.
    pub(super) fn mixed_train(
        &mut self,
        trains: &[Scored],
        seeds: &[Train],
        smooth: &AlternativeFit,
    ) -> (Scored, Option<Columns>) {
        let (onset, unit) = smooth.train.map_or((0.0, 1.0), |train| (train.onset, train.base));
        let mut decay = Columns::default();
        smooth_columns(self.window, onset, unit, &mut decay);
        self.extra = Some(decay);
        let mut best: Option<Scored> = None;
        for train in trains.iter().take(3).map(|scored| scored.train).chain(seeds.iter().copied()) {
            let refined = self.refine(train, 3, 14);
            if best.is_none_or(|best| refined.cost < best.cost) {
                best = Some(refined);
            }
        }
        let best = best.map(|best| self.settle(best));
        let extra = self.extra.take();
        (best.unwrap_or(trains[0]), extra)
    }

    /// The last polish of the winner: as it is, as each usual schedule with the same waves, and with
    /// each round number near its waits.
    pub(super) fn settle(&mut self, start: Scored) -> Scored {
        let mut best = self.polish(start, Held::Nothing);
        if best.train.growth != Growth::Exponential {
            return best;
        }
        for seated in self.reseated(&best.train, POLISH_ITERATIONS).into_iter().take(SEATED) {
            best = self.better_of(best, seated.train);
        }
        // Round numbers, where they fit as well.
        for round in ROUND {
            if best.train.cap.is_finite() && (round / best.train.cap).ln().abs() < 0.12 {
                best = self.better_of(best, Train { cap: round, ..best.train });
            }
        }
        for round in ROUND {
            if (round / best.train.base).ln().abs() < 0.12 {
                let latency = (best.train.latency + best.train.base - round).max(0.0);
                let latency = if best.train.factor > 1.0 { latency } else { 0.0 };
                best = self.better_of(best, Train { base: round, latency, ..best.train });
            }
        }
        best
    }

    /// `best`, or `train` polished with its waits' parameters held, whichever is cheaper.
    fn better_of(&mut self, best: Scored, train: Train) -> Scored {
        let cost = self.cost(&train, POLISH_ITERATIONS);
        let other = self.polish(Scored { train, cost }, Held::Waits);
        let free = if train.factor > 1.0 && train.factor.to_bits() != best.train.factor.to_bits() {
            self.polish(other, Held::Factor)
        } else {
            other
        };
        [best, other, free].into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap_or(best)
    }

    /// Tries what a local search cannot reach: factors from the list with the last wave held, a
    /// wave more or less at the start, and no spread, no latency, no cap.
    pub(super) fn simplify(&mut self, start: Scored) -> Scored {
        let mut best = start;
        let mut tries: Vec<Train> = Vec::new();
        if start.train.growth == Growth::Exponential {
            let train = start.train;
            for factor in FACTORS {
                if factor > 1.0 && (factor / train.factor).ln().abs() < 0.4 {
                    tries.push(self.with_factor(train, factor));
                }
            }
            tries.push(Train { base: train.base / train.factor.max(1.2), ..train });
            tries.push(Train { base: train.base * train.factor.max(1.2), ..train });
            tries.push(Train { base: 0.5 * train.base, ..train });
            if train.cap.is_finite() && train.base * train.factor > 0.6 * train.cap {
                let fixed = canonical(Train { base: train.cap, factor: 1.0, ..train });
                let cost = self.cost(&fixed, POLISH_ITERATIONS);
                let polished = self.polish(Scored { train: fixed, cost }, Held::Factor);
                if polished.cost < best.cost {
                    best = polished;
                }
            }
        }
        for train in tries {
            let refined = self.refine_fixed_factor(train, 2, 10);
            if refined.cost < best.cost {
                best = refined;
            }
        }
        best = self.refine(canonical(best.train), 1, 10);
        for change in 0..5 {
            let mut train = best.train;
            match change {
                0 if train.spread > 0.0 => train.spread = 0.0,
                1 if train.latency > 0.0 => train.latency = 0.0,
                2 if train.cap.is_finite() => train.cap = f64::INFINITY,
                // A wide failure and jitter blur alike; let the other one try.
                3 if train.width > 0.5 => {
                    train.width = 0.3;
                    train.spread = train.spread.max(0.1);
                }
                4 if train.spread < 0.05 => train.spread = 0.12,
                _ => continue,
            }
            let refined = self.refine_fixed_factor(train, 2, 10);
            if refined.cost < best.cost {
                best = refined;
            }
        }
        best
    }

    /// The train with another factor and the last wave left where it is.
    pub(super) fn with_factor(&self, train: Train, factor: f64) -> Train {
        let reach = |train: &Train| {
            let mut last = (0, 0.0);
            train.waves(self.window.horizon, self.lists, |wave, start, _, _| {
                last = (wave, start - train.onset);
            });
            last
        };
        let (waves, wanted) = reach(&train);
        let mut next = Train { factor, ..train };
        for _ in 0..6 {
            let mut got = 0.0;
            next.waves(f64::MAX, self.lists, |wave, start, _, _| {
                if wave == waves {
                    got = start - next.onset;
                }
            });
            if got > 0.0 {
                next.base = (next.base * wanted / got).min(next.cap / 1.03).max(BASE_MIN);
            }
        }
        next
    }

    fn refine_fixed_factor(&mut self, train: Train, rounds: usize, iterations: usize) -> Scored {
        let factor = train.factor;
        let mut scored = self.refine(train, rounds, iterations);
        if (scored.train.factor - factor).abs() > 1e-9 {
            scored.train.factor = factor;
            scored.cost = self.cost(&scored.train, iterations);
        }
        scored
    }

    /// Nelder and Mead's simplex over onset, base, factor, cap, latency, width and spread
    /// (1965, <https://doi.org/10.1093/comjnl/7.4.308>).
    pub(super) fn polish(&mut self, start: Scored, held: Held) -> Scored {
        let resolution = self.window.effective_step().clamp(0.05, 2.0);
        let step = 0.15 * self.step(&start.train);
        let mut scales = vec![(0, 0.2 * resolution), (4, 0.3), (6, 0.05)];
        if held != Held::Waits {
            scales.push((1, step));
        }
        if held == Held::Nothing && start.train.factor > 1.0 {
            scales.push((2, step));
        }
        if held != Held::Waits && start.train.cap.is_finite() {
            scales.push((3, 0.01));
        }
        if start.train.spread > 0.0 {
            scales.push((5, 0.02));
        }
        let at = |point: &[f64]| {
            let mut train = start.train;
            for (&(direction, scale), &value) in scales.iter().zip(point) {
                if let Some(next) = moved_along(&train, direction, scale * value) {
                    train = next;
                }
            }
            train
        };
        let dimensions = scales.len();
        let mut corners: Vec<(Vec<f64>, f64)> = vec![(vec![0.0; dimensions], start.cost)];
        for axis in 0..dimensions {
            let mut point = vec![0.0; dimensions];
            point[axis] = 1.0;
            let cost = self.cost(&at(&point), POLISH_ITERATIONS);
            corners.push((point, cost));
        }
        for _ in 0..POLISH_STEPS {
            corners.sort_by(|a, b| a.1.total_cmp(&b.1));
            if corners[dimensions].1 - corners[0].1 < 0.05 {
                break;
            }
            let centre: Vec<f64> = (0..dimensions)
                .map(|axis| {
                    let sum: f64 = corners[..dimensions].iter().map(|corner| corner.0[axis]).sum();
                    sum / dimensions as f64
                })
                .collect();
            let worst = corners[dimensions].clone();
            let along = |reach: f64| -> Vec<f64> {
                centre.iter().zip(&worst.0).map(|(c, w)| c + reach * (c - w)).collect()
            };
            let reflected = along(1.0);
            let cost = self.cost(&at(&reflected), POLISH_ITERATIONS);
            let next = if cost < corners[0].1 {
                let expanded = along(2.0);
                let further = self.cost(&at(&expanded), POLISH_ITERATIONS);
                if further < cost { (expanded, further) } else { (reflected, cost) }
            } else if cost < corners[dimensions - 1].1 {
                (reflected, cost)
            } else {
                let contracted = along(if cost < worst.1 { 0.5 } else { -0.5 });
                let nearer = self.cost(&at(&contracted), POLISH_ITERATIONS);
                (contracted, nearer)
            };
            if next.1 < worst.1 {
                corners[dimensions] = next;
            } else {
                let best = corners[0].0.clone();
                for corner in corners.iter_mut().skip(1) {
                    for (value, low) in corner.0.iter_mut().zip(&best) {
                        *value = 0.5 * (*value + low);
                    }
                    corner.1 = self.cost(&at(&corner.0), POLISH_ITERATIONS);
                }
            }
        }
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        Scored { train: at(&corners[0].0), cost: corners[0].1 }
    }
}
