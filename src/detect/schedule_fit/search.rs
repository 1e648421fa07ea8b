//! Search for the train of waves that fits best: a coarse screen of the whole bank, then refinement.
//!
//! The likelihood of a train is a forest of narrow peaks (a base 6 % off moves the 31 s wave by
//! 1.9 s, several of its widths), so a local optimiser alone finds the nearest wrong one, and a grid
//! fine enough to hit every peak is too large. The screen therefore blurs each wave by as much as
//! the grid's own steps can be wrong, which no peak can slip through, and a pattern search sharpens
//! the best few of each group.

use super::FINAL_ITERATIONS;
use super::density::Density;
use super::heights::{Columns, Solver};
use super::polish::canonical;
use super::train::{Growth, Train};
use super::window::Window;

/// Factors that client libraries use; others cost `OFF_LIST`.
pub(super) const FACTORS: [f64; 10] = [1.0, 1.25, 1.3, 1.5, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0];
const SCREEN_FACTORS: [f64; 9] = [1.0, 1.3, 1.5, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0];
const POWERS: [f64; 3] = [1.0, 2.0, 4.0];
/// Caps of the grid, 2 s to 300 s: the round ones, and no two further apart than `CAP_STEP` bridges.
const CAPS: [f64; 34] = [
    2.0, 2.4, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 13.5, 15.0, 17.5, 20.0,
    22.5, 25.0, 28.0, 30.0, 32.0, 36.0, 40.0, 45.0, 50.0, 60.0, 64.0, 75.0, 90.0, 120.0, 150.0,
    180.0, 300.0,
];
/// How far a cap may be off its grid, as a share of it.
pub(super) const CAP_STEP: f64 = 0.03;
/// How much each of them costs in deviance: doubling and fixed delays are by far the most common.
const FACTOR_PRICES: [f64; 10] = [0.0, 4.0, 2.5, 1.5, 2.0, 0.0, 4.0, 2.5, 4.0, 5.0];
/// Drop from one wave to the next, in log, that costs nothing: to two thirds.
const GENTLE_DROP: f64 = 0.4;
/// Price of a drop by a further factor of e.
const HEIGHT_PRICE: f64 = 5.0;
/// Waits that people write into configurations.
pub(super) const ROUND: [f64; 24] = [
    0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 32.0, 60.0, 64.0, 120.0, 300.0,
];
/// What a first wait costs in deviance: of the 226 rules with a formula that squall comes with, 80
/// start from 1 s, 91 from one of the next and 45 from something else.
const USUAL_BASE: f64 = 1.0;
const USUAL_BASES: [f64; 6] = [0.1, 0.2, 0.5, 2.0, 5.0, 10.0];
const BASE_PRICES: [f64; 3] = [0.7, 1.2, 2.0];
const ODD_CAP: f64 = 2.0;
/// Price of a factor that no library is known to use, in deviance.
const OFF_LIST: f64 = 6.0;
/// Price of waits that follow no formula: few clients have them.
const LISTED: f64 = 3.0;
/// Price of each further parameter, in deviance: what one useless parameter gains about once in 20.
pub(super) const PARAMETER: f64 = 3.0;
pub(super) const BASE_MIN: f64 = 0.03;
/// Width that a failure may have whatever the base: early waves then merge, and later ones stand.
const WIDTH_UNRESOLVED: f64 = 1.05;
const BASE_MAX: f64 = 300.0;
/// Most spread of one wait over it: beyond that no wave stands apart from the next.
pub(super) const SPREAD_MAX: f64 = 0.4;
/// How far the onset may leave its bracket, seconds: the error of the scrapes' time stamps.
const ONSET_SLACK: f64 = 0.5;
/// Peaks kept in each group (growth, factor, cap).
const KEPT: usize = 3;
/// Waves above which a rough fit takes more iterations.
const DENSE: usize = 10;
/// Most that the prices are multiplied by.
const MISFIT_MAX: f64 = 20.0;
/// Trains that get a rough likelihood.
const SCREENED: usize = 300;
/// How many of them go on to each degree of sharpening, and to the likelihood itself.
const FIELD: [usize; 5] = [80, 40, 24, 14, 9];

/// A train with its penalised deviance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scored {
    pub(super) train: Train,
    pub(super) cost: f64,
}

/// One search, with its work space.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) window: &'a Window,
    pub(super) lists: &'a [Vec<f64>],
    pub(super) solver: Solver,
    pub(super) columns: Columns,
    /// Columns added to every train: the smooth part of a mixed herd.
    pub(super) extra: Option<Columns>,
    /// Deviance per interval of the best train found: what the prices are multiplied by, so that a
    /// herd that no train fits to the noise still has its waits told by what is usual.
    pub(super) misfit: f64,
    pub(super) evaluations: usize,
    /// Trains weighed by their mass alone.
    pub(super) sieved: usize,
    /// When jittered retries stop failing, seconds from the origin.
    pub(super) until: f64,
    /// The best trains that the search went through.
    pub(super) found: Vec<Train>,
    /// Most spread that a wait may have.
    pub(super) spread_max: f64,
}

impl<'a> Search<'a> {
    pub(super) fn new(window: &'a Window, lists: &'a [Vec<f64>]) -> Self {
        Self {
            window,
            lists,
            solver: Solver::default(),
            columns: Columns::default(),
            extra: None,
            misfit: 1.0,
            evaluations: 0,
            sieved: 0,
            until: f64::INFINITY,
            spread_max: SPREAD_MAX,
            found: Vec::new(),
        }
    }

    /// Whether the parameters are within what a schedule can have.
    fn bounded(&self, train: &Train) -> bool {
        train.onset >= -ONSET_SLACK
            && train.onset <= self.window.onset_max + ONSET_SLACK
            && train.base >= BASE_MIN
            && train.base <= BASE_MAX
            && (1.0..=5.0).contains(&train.factor)
            && (0.0..=self.spread_max).contains(&train.spread)
            && (0.0..=0.5).contains(&train.drain)
            && train.latency >= 0.0
            && train.latency <= train.base.min(2.0)
            && train.cap > train.base * 1.02
            && train.width >= 1e-3
            && train.width <= self.width_max(train)
    }

    /// A third of the longest gap seen: beyond that a train of plain levels would pass for waves.
    pub(super) fn width_max(&self, train: &Train) -> f64 {
        let mut longest = train.base;
        if train.growth != Growth::Exponential || train.factor > 1.0 {
            train.waves(self.window.horizon, self.lists, |_, _, wait, _| {
                longest = longest.max(wait)
            });
        }
        (longest / 3.0).min((train.base / 3.0).max(WIDTH_UNRESOLVED))
    }

    /// Penalised deviance of a train, infinite outside the bounds.
    pub(super) fn cost(&mut self, train: &Train, iterations: usize) -> f64 {
        if !self.bounded(train) {
            return f64::INFINITY;
        }
        self.evaluations += 1;
        train.columns(self.window, self.lists, &mut self.columns);
        if let Some(extra) = &self.extra {
            self.columns.append(extra);
        }
        let waves = self.columns.waves;
        let deviance = self.solver.solve(self.window, &self.columns, iterations);
        deviance + self.misfit * price(train) + height_price(&self.solver.heights[..waves])
    }

    /// The best few trains of the whole bank and of `seeds`, refined, best first.
    pub(super) fn best_trains(&mut self, seeds: &[Train]) -> Vec<Scored> {
        let mut candidates = self.sieve();
        candidates.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        candidates.truncate(SCREENED);
        let mut screened: Vec<Scored> = Vec::with_capacity(2 * candidates.len());
        for candidate in &candidates {
            let step = self.step(&candidate.train);
            for width in [0.2, 0.9] {
                let train = Train { width, ..candidate.train };
                let cost = self.blurred_cost(&train, step, 1.0);
                screened.push(Scored { train, cost });
            }
        }
        // Sharpen by degrees, the best of each degree going on: a blurred peak is wide enough to
        // walk on, and the blur must go before peaks can be compared.
        let mut field = distinct(screened, FIELD[0]);
        for (part, keep) in [1.0, 0.4, 0.15, 0.05].into_iter().zip(FIELD.into_iter().skip(1)) {
            for scored in &mut field {
                let step = self.step(&scored.train);
                *scored = self
                    .walk(scored.train, 1, |search, next| search.blurred_cost(next, step, part));
            }
            field = distinct(field, keep);
        }
        let refined: Vec<Scored> = field
            .iter()
            .map(|scored| scored.train)
            .chain(seeds.iter().copied())
            .map(|train| self.refine(train, 3, 13))
            .collect();
        let refined = distinct(refined, FIELD[3]);
        self.found = refined.iter().map(|scored| scored.train).collect();
        let refined = distinct(refined, 3);
        let mut best: Vec<Scored> = Vec::new();
        for scored in refined {
            let sharp = self.refine(scored.train, 4, 13);
            let sharp = self.refine(canonical(sharp.train), 1, 13);
            best.push(sharp);
        }
        best.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        if let Some(first) = best.first() {
            self.cost(&first.train, 13);
            self.misfit = (self.deviance() / self.window.len() as f64).clamp(1.0, MISFIT_MAX);
            for scored in &mut best {
                scored.cost = self.cost(&scored.train, 13);
            }
        }
        for scored in best.iter_mut().take(2) {
            *scored = self.simplify(*scored);
        }
        best.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        if let Some(first) = best.first_mut() {
            *first = self.settle(*first);
        }
        // Heights that part slowly flatter a rough fit: the patient one decides.
        for scored in &mut best {
            scored.cost = self.cost(&scored.train, FINAL_ITERATIONS);
        }
        best.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        best
    }

    /// The relative step of the base's grid: a quarter of the last gap at the last wave.
    pub(super) fn step(&self, train: &Train) -> f64 {
        let horizon = self.window.horizon;
        let (mut last, mut uncapped, mut gap) = (0.0, train.base, train.base);
        train.waves(horizon, self.lists, |_, start, wait, _| {
            last = start - train.onset;
            gap = wait;
            if wait < train.cap {
                uncapped = last;
            }
        });
        (0.35 * gap / uncapped.max(1e-3)).clamp(0.004, 0.12)
    }

    /// The best trains of each group by the mass at their instants; `cost` is their score.
    pub(super) fn sieve(&mut self) -> Vec<Scored> {
        let density = Density::new(self.window);
        let horizon = self.window.horizon;
        let mut kept = Vec::new();
        let base_min = (0.3 * self.window.effective_step()).clamp(0.1, 1.0);
        for spread in [0.0, 0.08, 0.15] {
            let mut group = |search: &mut Self, growth: Growth, factor: f64, cap: f64| {
                let mut top: [Option<Scored>; KEPT] = [None; KEPT];
                let mut base = base_min;
                let fixed = growth == Growth::Exponential && factor <= 1.0;
                if fixed {
                    base = base.max(0.3);
                }
                while base < horizon.min(BASE_MAX).min(cap / 1.02) {
                    let train = Train {
                        growth,
                        onset: 0.0,
                        width: 0.2,
                        base,
                        factor,
                        cap,
                        latency: if factor > 1.0 { 0.1 } else { 0.0 },
                        spread,
                        drain: 0.0,
                    };
                    let step = search.step(&train) * if spread > 0.0 { 2.0 } else { 1.0 };
                    search.sieve_onsets(&density, train, step, &mut top);
                    if matches!(growth, Growth::List(_)) {
                        break;
                    }
                    base *= 1.0 + step;
                }
                kept.extend(top.into_iter().flatten());
            };
            for factor in SCREEN_FACTORS {
                group(self, Growth::Exponential, factor, f64::INFINITY);
                for cap in CAPS {
                    // A cap is seen once two waits have been that long.
                    if factor > 1.0 && 2.0 * cap < horizon {
                        group(self, Growth::Exponential, factor, cap);
                    }
                }
            }
            for power in POWERS {
                group(self, Growth::Power, power, f64::INFINITY);
            }
            for list in 0..self.lists.len() {
                group(self, Growth::List(list), 1.0, f64::INFINITY);
            }
        }
        kept
    }

    fn sieve_onsets(
        &mut self,
        density: &Density,
        train: Train,
        step: f64,
        top: &mut [Option<Scored>; KEPT],
    ) {
        let bracket = self.window.onset_max;
        let wanted = (bracket / (0.4 * train.base).max(0.15)).ceil().clamp(1.0, 12.0);
        let slack = 0.5 * bracket / wanted;
        for index in 0..wanted as usize {
            let train = Train { onset: slack * (2.0 * index as f64 + 1.0), ..train };
            let score = density.score(&train, self.lists, step, slack);
            self.sieved += 1;
            if score <= 0.0 {
                continue;
            }
            let scored = Scored { train, cost: score };
            // One place for each peak, not for each of its neighbours on the grid.
            let near = top.iter().position(|kept| {
                kept.is_some_and(|kept| (kept.train.base / train.base).ln().abs() < 0.1)
            });
            let place = near.unwrap_or_else(|| {
                let lowest = |a: &usize, b: &usize| {
                    let value = |i: usize| top[i].map_or(-1.0, |kept| kept.cost);
                    value(*a).total_cmp(&value(*b))
                };
                (0..KEPT).min_by(|a, b| lowest(a, b)).unwrap_or(0)
            });
            if top[place].is_none_or(|kept| kept.cost < score) {
                top[place] = Some(scored);
            }
        }
    }

    /// A rough deviance of the train with each wave widened by `part` of what the grid's step can be
    /// wrong.
    fn blurred_cost(&mut self, train: &Train, step: f64, part: f64) -> f64 {
        if !self.bounded(train) {
            return f64::INFINITY;
        }
        self.evaluations += 1;
        let slack = 0.05 * part.sqrt();
        train.screen_columns(self.window, self.lists, [step, part, slack], &mut self.columns);
        // Waves that share intervals take longer to part.
        let iterations = if self.columns.len() > DENSE { 13 } else { 7 };
        let deviance = self.solver.screen(self.window, &self.columns, iterations);
        deviance + price(train) + height_price(&self.solver.heights)
    }

    /// Pattern search from `train` on the likelihood itself.
    pub(super) fn refine(&mut self, train: Train, rounds: usize, iterations: usize) -> Scored {
        self.walk(train, rounds, |search, next| search.cost(next, iterations))
    }

    /// Pattern search from `train`: each direction with its own step, grown on success.
    pub(super) fn walk(
        &mut self,
        train: Train,
        rounds: usize,
        mut cost_of: impl FnMut(&mut Self, &Train) -> f64,
    ) -> Scored {
        let mut best = Scored { train, cost: cost_of(self, &train) };
        let resolution = self.window.effective_step().clamp(0.05, 2.0);
        let step = 0.4 * self.step(&train);
        let capped = (self.window.horizon - 4.0 * train.base).max(train.cap.min(1e6));
        let cap_step = (0.25 * train.cap.min(1e6) / capped).clamp(0.002, 0.05);
        let mut steps = [
            0.3 * resolution,
            step,
            1.2 * step,
            cap_step,
            0.5,
            0.03,
            0.05,
            step,
            0.05,
            0.05,
            0.2 * resolution,
        ];
        for _ in 0..rounds {
            for (direction, step) in steps.iter_mut().enumerate() {
                let mut improved = false;
                for sign in [1.0, -1.0] {
                    let mut moved = *step * sign;
                    let mut tries = 0;
                    while let Some(next) = moved_along(&best.train, direction, moved) {
                        let cost = cost_of(self, &next);
                        if cost >= best.cost - 1e-6 {
                            break;
                        }
                        best = Scored { train: next, cost };
                        improved = true;
                        moved *= 1.5;
                        tries += 1;
                        if tries > 6 {
                            break;
                        }
                    }
                    if improved {
                        break;
                    }
                }
                *step *= if improved { 0.9 } else { 0.45 };
            }
        }
        best
    }
}

/// The best `keep` that are not next to a better one.
fn distinct(mut field: Vec<Scored>, keep: usize) -> Vec<Scored> {
    field.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let mut kept: Vec<Scored> = Vec::with_capacity(keep);
    for scored in field {
        if kept.len() < keep && !kept.iter().any(|other| alike(&other.train, &scored.train)) {
            kept.push(scored);
        }
    }
    kept
}

/// Whether two trains start the search in the same place.
pub(super) fn alike(a: &Train, b: &Train) -> bool {
    let near =
        |x: f64, y: f64, within: f64| x.to_bits() == y.to_bits() || (x / y).ln().abs() < within;
    a.growth == b.growth
        && near(a.base, b.base, 0.05)
        && near(a.factor, b.factor, 0.05)
        && near(a.cap, b.cap, 0.05)
}

/// The train one step along a direction; none where the direction does not apply.
pub(super) fn moved_along(train: &Train, direction: usize, step: f64) -> Option<Train> {
    let mut next = *train;
    let listed = matches!(train.growth, Growth::List(_));
    match direction {
        0 => next.onset += step,
        1 if !listed => next.base *= step.exp(),
        2 if train.growth == Growth::Exponential && train.factor > 1.0 => {
            next.factor *= step.exp();
        }
        3 if train.cap.is_finite() => next.cap *= step.exp(),
        4 => next.width *= step.exp(),
        5 => next.spread = (train.spread + step).max(0.0),
        6 if listed || train.factor > 1.0 => next.latency = (train.latency + step).max(0.0),
        8 => next.drain = (train.drain + step).max(0.0),
        // Latency against base, and onset against base, with the first retry left in place.
        9 if !listed && train.factor > 1.0 => {
            next.latency = (train.latency + step).max(0.0);
            next.base -= next.latency - train.latency;
        }
        10 if !listed => {
            next.onset += step;
            next.base -= step;
        }
        // A longer base with a smaller factor keeps the later waves in place.
        7 if train.growth == Growth::Exponential && train.factor > 1.0 => {
            next.base *= step.exp();
            next.factor *= (-0.5 * step).exp();
        }
        _ => return None,
    }
    (next != *train).then_some(next)
}

/// What a train's parameters cost against its deviance: the less common, the more.
pub(super) fn price(train: &Train) -> f64 {
    let shape = match train.growth {
        Growth::Exponential => FACTORS
            .iter()
            .zip(FACTOR_PRICES)
            .find(|(factor, _)| (*factor - train.factor).abs() < 1e-9)
            .map_or(OFF_LIST, |(_, price)| price),
        Growth::Power => OFF_LIST,
        Growth::List(_) => LISTED,
    };
    let cap = if train.cap.is_finite() { PARAMETER } else { 0.0 };
    let spread = if train.spread > 0.0 { PARAMETER } else { 0.0 };
    let drain = if train.drain > 0.0 { 1.0 } else { 0.0 };
    let is = |seconds: f64, usual: f64| (usual / seconds - 1.0).abs() < 0.004;
    let is_of = |seconds: f64, usual: &[f64]| usual.iter().any(|usual| is(seconds, *usual));
    let base = match train.base {
        base if is(base, USUAL_BASE) => 0.0,
        base if is_of(base, &USUAL_BASES) => BASE_PRICES[0],
        base if is_of(base, &ROUND) => BASE_PRICES[1],
        _ => BASE_PRICES[2],
    };
    let odd = if train.cap.is_finite() && !is_of(train.cap, &ROUND) { ODD_CAP } else { 0.0 };
    shape + cap + base + odd + spread + drain + 4.0 * train.latency
}

/// What implausible heights cost: a herd loses its clients by and by, and a train that needs a first
/// wave several times the second has merged waves that it should have kept apart.
pub(super) fn height_price(heights: &[f64]) -> f64 {
    let Some(&first) = heights.first() else { return 0.0 };
    heights
        .windows(2)
        .take_while(|pair| pair[1] > 0.05 * first)
        .map(|pair| {
            let drop = ((pair[0] / pair[1]).ln() - GENTLE_DROP).max(0.0);
            HEIGHT_PRICE * drop * drop
        })
        .sum()
}
