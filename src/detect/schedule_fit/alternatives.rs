//! The innocent explanations, searched as finely as the accused.
//!
//! A lockstep train always beats a bad alternative. So the jittered families get their own exact
//! distributions of the n-th retry's instant and their own search, and the shapes without any retry
//! in them (a smooth decay in log time, a plateau with edges, a ramp, nothing) get enough freedom to
//! follow what such shapes do.

use super::heights::Columns;
use super::search::{PARAMETER, Scored, Search};
use super::train::{Growth, Train, push_box};
use super::window::Window;

/// Cells of the time grid on which distributions of instants are convolved.
const GRID: usize = 300;
/// Clients followed through a decorrelated schedule, whose waits depend on each other.
const CLIENTS: usize = 512;
/// A cap next to the base turns every jitter but full into a fixed delay: that is no jitter.
const CAP_OVER_BASE_MIN: f64 = 2.0;
/// Price of an end of the failure in the middle of a jittered wave, in deviance: at coarse sampling
/// such an end makes every herd look jittered.
const CUT_PRICE: f64 = 16.0;
/// Steps of the last fit: the columns of a jittered schedule overlap, and their heights part slowly.
const JITTERED_ITERATIONS: usize = 150;
/// Retries that are followed in a jittered schedule.
const RETRIES_MAX: usize = 14;
/// Changes of level that a plateau may have, its two edges included.
const LEVELS_MAX: usize = 5;

/// How the waits of a jittered family are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Draw {
    /// `U(low * wait, high * wait)`: proportional, equal and full jitter.
    Uniform { low: f64, high: f64 },
    /// `min(cap, U(base, 3 * previous))`.
    Decorrelated,
    /// Every process has its own phase in the first wait and keeps the schedule after that.
    Phase,
}

/// A fit without waves, or with waves that a schedule has spread.
#[derive(Debug, Clone)]
pub(super) struct AlternativeFit {
    pub(super) cost: f64,
    pub(super) deviance: f64,
    pub(super) parameters: usize,
    pub(super) train: Option<Train>,
}

impl Search<'_> {
    /// The best jittered schedule of one kind.
    pub(super) fn best_jittered(&mut self, draw: Draw, iterations: usize) -> AlternativeFit {
        let horizon = self.window.horizon;
        let mut tops: Vec<Scored> = Vec::new();
        let factors: &[f64] = if draw == Draw::Decorrelated { &[3.0] } else { &[1.5, 2.0, 3.0] };
        let caps = [4.0, 12.0, 36.0];
        let steps = if self.window.onset_max > 8.0 { 2_u8 } else { 1 };
        for &factor in factors {
            for cap in caps
                .into_iter()
                .filter(|cap| 2.0 * cap < horizon && factor > 1.0)
                .chain([f64::INFINITY])
            {
                let mut base = 0.15;
                let mut group: Option<Scored> = None;
                while base < (0.8 * horizon).min(cap / 1.05) {
                    for step in 0..steps {
                        let onset =
                            self.window.onset_max * (f64::from(step) + 0.5) / f64::from(steps);
                        let train = Train {
                            growth: Growth::Exponential,
                            onset,
                            width: 0.3,
                            base,
                            factor,
                            cap,
                            latency: 0.0,
                            spread: 0.0,
                            drain: 0.0,
                        };
                        let cost = self.jittered_cost(&train, draw, 4);
                        if group.is_none_or(|best| cost < best.cost) {
                            group = Some(Scored { train, cost });
                        }
                    }
                    base *= 1.7;
                }
                tops.extend(group);
            }
        }
        tops.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        tops.truncate(2);
        let mut best: Option<Scored> = None;
        for top in tops {
            let refined = self.refine_jittered(top.train, draw, iterations);
            if best.is_none_or(|best| refined.cost < best.cost) {
                best = Some(refined);
            }
        }
        let parameters = 4;
        match best {
            Some(best) => {
                let cost = self.jittered_cost(&best.train, draw, JITTERED_ITERATIONS);
                let open =
                    AlternativeFit { cost, deviance: cost, parameters, train: Some(best.train) };
                self.cut_short(open, draw, iterations)
            }
            None => AlternativeFit {
                cost: f64::INFINITY,
                deviance: f64::INFINITY,
                parameters,
                train: None,
            },
        }
    }

    /// The same schedule cut short by the dependency's return, where that explains far more.
    fn cut_short(&mut self, open: AlternativeFit, draw: Draw, iterations: usize) -> AlternativeFit {
        let Some(train) = open.train.filter(|_| self.window.failing_until.is_finite()) else {
            return open;
        };
        self.until = self.window.failing_until;
        let refined = self.refine_jittered(train, draw, iterations);
        let cost = self.jittered_cost(&refined.train, draw, JITTERED_ITERATIONS) + CUT_PRICE;
        self.until = f64::INFINITY;
        if cost >= open.cost {
            return open;
        }
        AlternativeFit { cost, deviance: cost, train: Some(refined.train), ..open }
    }

    fn refine_jittered(&mut self, train: Train, draw: Draw, iterations: usize) -> Scored {
        let mut best = Scored { train, cost: self.jittered_cost(&train, draw, iterations) };
        let mut steps =
            [0.3 * self.window.effective_step().clamp(0.1, 3.0), 0.2, 0.15, 0.2, 0.5, 0.1];
        for _ in 0..4 {
            for (direction, step) in steps.iter_mut().enumerate() {
                let mut improved = false;
                for sign in [1.0, -1.0] {
                    let mut next = best.train;
                    let moved = *step * sign;
                    match direction {
                        0 => next.onset += moved,
                        1 => next.base *= moved.exp(),
                        2 if next.factor > 1.0 => next.factor *= moved.exp(),
                        3 if next.cap.is_finite() => next.cap *= moved.exp(),
                        4 => next.width *= moved.exp(),
                        5 => next.latency = (next.latency + moved).max(0.0),
                        _ => continue,
                    }
                    if next == best.train {
                        continue;
                    }
                    let cost = self.jittered_cost(&next, draw, iterations);
                    if cost < best.cost - 1e-6 {
                        best = Scored { train: next, cost };
                        improved = true;
                        break;
                    }
                }
                *step *= if improved { 1.2 } else { 0.5 };
            }
        }
        best
    }

    fn jittered_cost(&mut self, train: &Train, draw: Draw, iterations: usize) -> f64 {
        let bounded = train.onset >= -0.5
            && train.onset <= self.window.onset_max + 0.5
            && train.base >= 0.05
            && (1.0..=5.0).contains(&train.factor)
            && train.cap > CAP_OVER_BASE_MIN * train.base
            && train.width <= (0.5 * train.base).max(0.6)
            && train.latency <= 2.0;
        if !bounded {
            return f64::INFINITY;
        }
        self.evaluations += 1;
        jittered_columns(self.window, train, draw, self.until, &mut self.columns);
        self.solver.solve(self.window, &self.columns, iterations)
    }

    /// A decay without schedule: a first burst and hats evenly spaced in `log(1 + (t - t0) / unit)`.
    pub(super) fn best_smooth(&mut self, iterations: usize) -> AlternativeFit {
        let mut best = AlternativeFit {
            cost: f64::INFINITY,
            deviance: f64::INFINITY,
            parameters: 0,
            train: None,
        };
        for (onset, unit) in smooth_grid(self.window) {
            smooth_columns(self.window, onset, unit, &mut self.columns);
            self.evaluations += 1;
            let deviance = self.solver.solve(self.window, &self.columns, iterations);
            let parameters = self.solver.heights.iter().filter(|&&height| height > 0.1).count() + 2;
            let cost = deviance;
            if cost < best.cost {
                let train = Train {
                    growth: Growth::Exponential,
                    onset,
                    width: 0.5,
                    base: unit,
                    factor: 1.0,
                    cap: f64::INFINITY,
                    latency: 0.0,
                    spread: 0.0,
                    drain: 0.0,
                };
                best = AlternativeFit { cost, deviance, parameters, train: Some(train) };
            }
        }
        best
    }

    /// The same train without its gaps: what the waves' heights explain and their instants do not.
    pub(super) fn envelope_of(&mut self, train: &Train, iterations: usize) -> AlternativeFit {
        let mut best = AlternativeFit {
            cost: f64::INFINITY,
            deviance: f64::INFINITY,
            parameters: 0,
            train: None,
        };
        // The onset is free again: without gaps another instant may suit better.
        for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let shifted = Train { onset: part * self.window.onset_max, ..*train };
            for train in [*train, shifted] {
                train.envelope_columns(self.window, self.lists, &mut self.columns);
                self.evaluations += 1;
                let deviance = self.solver.solve(self.window, &self.columns, iterations);
                let parameters = 3 + self.distinct_heights();
                let cost = deviance + 2.0 * parameters as f64;
                if cost < best.cost {
                    best = AlternativeFit { cost, deviance, parameters, train: Some(train) };
                }
            }
        }
        best
    }

    /// Levels with edges: an outage, a flood, a surge that was switched on.
    pub(super) fn best_level(&mut self, iterations: usize) -> AlternativeFit {
        let (onset_max, horizon) = (self.window.onset_max, self.window.horizon);
        let mut edges = vec![0.5 * onset_max, horizon];
        let mut best = self.level_cost(&edges, iterations);
        while edges.len() < LEVELS_MAX + 1 {
            let mut next: Option<(f64, f64)> = None;
            for step in 0..36 {
                // Even in the logarithm: early edges matter more.
                let edge =
                    0.25 * (horizon / 60.0) * ((f64::from(step) / 35.0) * 240.0f64.ln()).exp();
                if edge >= horizon {
                    break;
                }
                let mut tried = edges.clone();
                tried.push(edge);
                tried.sort_by(f64::total_cmp);
                let cost = self.level_cost(&tried, 5);
                if next.is_none_or(|(lowest, _)| cost < lowest) {
                    next = Some((cost, edge));
                }
            }
            let Some((_, edge)) = next else { break };
            let mut tried = edges.clone();
            tried.push(edge);
            tried.sort_by(f64::total_cmp);
            // Sharpen the edges in turn.
            let mut cost = self.level_cost(&tried, iterations);
            for scale in [0.15, 0.05, 0.02] {
                for index in 0..tried.len() - 1 {
                    for sign in [1.0, -1.0] {
                        let mut moved = tried.clone();
                        moved[index] += sign * scale * (moved[index] + 1.0);
                        if moved.windows(2).any(|pair| pair[0] >= pair[1]) || moved[0] < -0.5 {
                            continue;
                        }
                        let lower = self.level_cost(&moved, iterations);
                        if lower < cost {
                            (tried, cost) = (moved, lower);
                        }
                    }
                }
            }
            if cost > best - 2.0 * PARAMETER {
                break;
            }
            (edges, best) = (tried, cost);
        }
        AlternativeFit {
            cost: best,
            deviance: best,
            parameters: 2 * (edges.len() - 1),
            train: None,
        }
    }

    fn level_cost(&mut self, edges: &[f64], iterations: usize) -> f64 {
        self.columns.clear();
        for pair in edges.windows(2) {
            push_box(self.window, pair[0], pair[1], &mut self.columns);
        }
        self.evaluations += 1;
        self.solver.solve(self.window, &self.columns, iterations)
    }

    /// A rise or fall in a straight line from the onset.
    pub(super) fn best_ramp(&mut self, iterations: usize) -> AlternativeFit {
        let horizon = self.window.horizon;
        let onset = 0.5 * self.window.onset_max;
        self.columns.clear();
        for falling in [false, true] {
            let shape = |t: f64| {
                let u = ((t - onset) / (horizon - onset).max(1e-3)).clamp(0.0, 1.0);
                if falling { 1.0 - (1.0 - u) * (1.0 - u) } else { u * u }
            };
            push_cdf(self.window, onset, horizon, shape, &mut self.columns);
        }
        let deviance = self.solver.solve(self.window, &self.columns, iterations);
        AlternativeFit { cost: deviance, deviance, parameters: 2, train: None }
    }

    /// Nothing but the background.
    pub(super) fn flat(&mut self, iterations: usize) -> AlternativeFit {
        self.columns.clear();
        let deviance = self.solver.solve(self.window, &self.columns, iterations);
        AlternativeFit { cost: deviance, deviance, parameters: 0, train: None }
    }
}

/// Onsets and units of the smooth decay that are tried.
fn smooth_grid(window: &Window) -> Vec<(f64, f64)> {
    let steps = if window.onset_max > 2.0 * window.effective_step() { 6 } else { 3 };
    let mut grid = Vec::new();
    for step in 0..=steps {
        for unit in [0.3, 1.0, 3.0] {
            grid.push((window.onset_max * f64::from(step) / f64::from(steps), unit));
        }
    }
    grid
}

/// One burst at the onset, then one hat for each factor of two in time.
pub(super) fn smooth_columns(window: &Window, onset: f64, unit: f64, columns: &mut Columns) {
    columns.clear();
    push_box(window, onset, onset + 0.4, columns);
    let top = ((window.horizon - onset).max(unit) / unit).ln_1p();
    let hats = (top / std::f64::consts::LN_2).ceil().clamp(2.0, 9.0);
    let pitch = top / hats;
    for hat in 0..=hats as usize {
        let centre = hat as f64 * pitch;
        let warped = |t: f64| {
            let u = ((t - onset).max(0.0) / unit).ln_1p();
            // Integral of a hat of half-width `pitch` over the warped axis.
            let v = ((u - centre) / pitch).clamp(-1.0, 1.0);
            if v < 0.0 { 0.5 * (1.0 + v) * (1.0 + v) } else { 1.0 - 0.5 * (1.0 - v) * (1.0 - v) }
        };
        let low = onset + unit * (centre - pitch).max(0.0).exp_m1();
        let high = onset + unit * (centre + pitch).exp_m1();
        push_cdf(window, low, high, warped, columns);
    }
}

fn push_cdf(window: &Window, low: f64, high: f64, cdf: impl Fn(f64) -> f64, columns: &mut Columns) {
    window.visit_overlap(low, high, |i| {
        columns.push(i, window.share[i] * (cdf(window.to[i]) - cdf(window.from[i])));
    });
    columns.end_column();
}

/// The columns of a jittered schedule: for each retry the distribution of its instant.
///
/// Nothing falls past `until`: where the dependency came back, who retries after that succeeds.
pub(super) fn jittered_columns(
    window: &Window,
    train: &Train,
    draw: Draw,
    until: f64,
    columns: &mut Columns,
) {
    columns.clear();
    push_box(window, train.onset, train.onset + train.width, columns);
    let pitch = (window.horizon - train.onset).max(0.1) / (GRID - 1) as f64;
    let push = |cdf: &[f64], columns: &mut Columns| {
        let at = |t: f64| {
            let x = (t - train.onset) / pitch;
            if x <= 0.0 {
                return 0.0;
            }
            let cell = x as usize;
            if cell + 1 >= GRID {
                return cdf[GRID - 1];
            }
            cdf[cell] + (cdf[cell + 1] - cdf[cell]) * (x - cell as f64)
        };
        push_cdf(window, train.onset, window.horizon.min(until), |t| at(t.min(until)), columns);
    };
    match draw {
        Draw::Uniform { low, high } => {
            let mut cdf = failure_cdf(train.width, pitch);
            for retry in 1..=RETRIES_MAX {
                let Some(wait) = train.wait(retry, &[]) else { break };
                cdf =
                    convolved(&cdf, low * wait + train.latency, high * wait + train.latency, pitch);
                if cdf[GRID - 1] < 1e-4 {
                    break;
                }
                push(&cdf, columns);
            }
        }
        Draw::Phase => {
            let mut cdf = failure_cdf(train.width, pitch);
            for retry in 1..=RETRIES_MAX {
                let Some(wait) = train.wait(retry, &[]) else { break };
                let low = if retry == 1 { 0.0 } else { wait - 1e-6 };
                cdf = convolved(&cdf, low + train.latency, wait + train.latency, pitch);
                if cdf[GRID - 1] < 1e-4 {
                    break;
                }
                push(&cdf, columns);
            }
        }
        Draw::Decorrelated => {
            let mut clients: Vec<(f64, f64)> = (0..CLIENTS)
                .map(|client| (train.width * (client as f64 + 0.5) / CLIENTS as f64, train.base))
                .collect();
            for retry in 1..=RETRIES_MAX {
                let mut cdf = vec![0.0; GRID];
                for (client, (time, previous)) in clients.iter_mut().enumerate() {
                    // Weyl sequences with a ratio per retry: even coverage without a generator.
                    let u = ((client as f64 + 1.0) * WEYL[(retry - 1) % WEYL.len()]
                        + 0.37 * retry as f64)
                        .fract();
                    let wait = train.base + u * (3.0 * *previous - train.base).max(0.0);
                    *previous = wait.min(train.cap);
                    *time += *previous + train.latency;
                    let cell = (*time / pitch).ceil() as usize;
                    if cell < GRID {
                        cdf[cell] += 1.0 / CLIENTS as f64;
                    }
                }
                let mut sum = 0.0;
                for value in &mut cdf {
                    sum += *value;
                    *value = sum;
                }
                if sum < 1e-4 {
                    break;
                }
                push(&cdf, columns);
            }
        }
    }
    columns.waves = columns.len();
}

/// Fractional parts of square roots of primes: their multiples fill the unit interval evenly.
const WEYL: [f64; 8] = [
    0.414_213_562,
    0.732_050_808,
    0.236_067_977,
    0.645_751_311,
    0.316_624_790,
    0.605_551_275,
    0.123_105_626,
    0.358_898_944,
];

/// Distribution of the failure itself on the grid.
fn failure_cdf(width: f64, pitch: f64) -> Vec<f64> {
    (0..GRID).map(|cell| (cell as f64 * pitch / width.max(1e-6)).min(1.0)).collect()
}

/// `cdf` after a further wait that is uniform on `[low, high]`.
fn convolved(cdf: &[f64], low: f64, high: f64, pitch: f64) -> Vec<f64> {
    // The integral of the distribution, exact for a function that is linear between grid points.
    let mut integral = Vec::with_capacity(GRID);
    let mut sum = 0.0;
    integral.push(0.0);
    for pair in cdf.windows(2) {
        sum += 0.5 * (pair[0] + pair[1]) * pitch;
        integral.push(sum);
    }
    let at = |t: f64| {
        let x = t / pitch;
        if x <= 0.0 {
            return 0.0;
        }
        let cell = (x as usize).min(GRID - 2);
        let part = x - cell as f64;
        integral[cell] + (integral[cell + 1] - integral[cell]) * part
    };
    let width = (high - low).max(1e-3 * pitch);
    (0..GRID)
        .map(|cell| {
            let t = cell as f64 * pitch;
            ((at(t - low) - at(t - low - width)) / width).clamp(0.0, 1.0)
        })
        .collect()
}
