//! Heights of the waves, by maximum likelihood under the rule that waves only shrink.
//!
//! Free heights fit a surge nearly as well as a storm; clients that gave up or succeeded do not
//! come back, so a train's heights fall. The cohort form of that rule (`c_m >= 0` clients make
//! exactly `m` retries) is the same set of means, but its columns overlap and the EM steps crawl.
//! Here the heights themselves are the unknowns: an EM step splits each count over the waves that
//! can have caused it, and the constrained M-step is an isotonic regression of those parts
//! (pool adjacent violators), which is the exact maximum. Ten steps do what the cohorts need
//! hundreds for.
//!
//! ```text
//! mu_i = background * x_i + sum_j c_j * v_ij
//! w_i           = s / (s + mu_i)                            (1 for a Poisson count)
//! numerator_j   = c_j * sum_i v_ij * w_i * y_i / mu_i
//! denominator_j = sum_i v_ij * w_i
//! c = isotonic(numerator / denominator, weights denominator)
//! ```
//!
//! Counts are negative binomial with size `s` (window.rs), so a wave of thousands is not held to a
//! Poisson error that no real fleet keeps. The step with `(y + s) / (mu + s)` in the denominator has
//! the same fixed point and crawls where counts are far over `s`: it was what made a plain level
//! look worse than a train.

use super::window::Window;

/// Longest leap of the accelerated steps.
const STRIDE_MAX: f64 = 8.0;
/// Share of a count that the waves have at the start, where the background explains it all: a
/// height that starts from nothing never grows.
const EXCESS_MIN: f64 = 0.05;

/// The parts of the mean, sparse: column after column of (interval, value).
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    starts: Vec<usize>,
    index: Vec<u32>,
    value: Vec<f64>,
    /// The first `waves` columns may only shrink; the others are free.
    pub(super) waves: usize,
}

impl Columns {
    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.starts.push(0);
        self.index.clear();
        self.value.clear();
        self.waves = 0;
    }

    /// Adds to the column under construction.
    pub(super) fn push(&mut self, interval: usize, value: f64) {
        if value > 1e-9 {
            self.index.push(interval as u32);
            self.value.push(value);
        }
    }

    /// Ends the column under construction; it may be empty.
    pub(super) fn end_column(&mut self) {
        self.starts.push(self.index.len());
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Adds the columns of `other` after these; they are free.
    pub(super) fn append(&mut self, other: &Self) {
        for column in 0..other.len() {
            for (i, value) in other.column(column) {
                self.push(i, value);
            }
            self.end_column();
        }
    }

    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let range = self.starts[column]..self.starts[column + 1];
        self.index[range.clone()].iter().map(|&i| i as usize).zip(self.value[range].iter().copied())
    }
}

/// Work space of the solver and its last answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Solver {
    /// Fitted mean of each interval.
    pub(super) mu: Vec<f64>,
    /// Fitted height of each column.
    pub(super) heights: Vec<f64>,
    /// Fitted background rate.
    pub(super) background: f64,
    /// Fitted rate of what fails besides retries while the dependency does.
    pub(super) failing: f64,
    /// How each interval draws on the heights: weighed count over mean, and weight.
    draw: Vec<[f64; 2]>,
    numerator: Vec<f64>,
    denominator: Vec<f64>,
    touched: Vec<u32>,
    stamp: Vec<u32>,
    generation: u32,
    pools: Vec<(f64, f64, usize)>,
    mass: Vec<f64>,
    before: Vec<f64>,
    between: Vec<f64>,
}

impl Solver {
    /// Fits all columns and the background; returns the deviance over the dispersion.
    pub(super) fn solve(&mut self, window: &Window, columns: &Columns, iterations: usize) -> f64 {
        let intervals = window.len();
        self.background = window.background;
        self.failing = window.failing[0];
        self.start(window, columns);
        self.draw.resize(intervals, [0.0; 2]);
        for iteration in 0..iterations {
            self.remember(iteration);
            self.means(window, columns);
            let size = window.size;
            let draws = self.draw.iter_mut().zip(&self.mu).zip(&window.count);
            for ((draw, &mu), &count) in draws {
                // One division for both: it is what an iteration costs.
                let ratio = size / ((size + mu) * mu);
                *draw = [ratio * count, ratio * mu];
            }
            let [pull, push] = drawn(&window.exposure, &self.draw);
            let numerator = window.background.mul_add(window.prior_seconds, self.background * pull);
            let denominator = window.prior_seconds + push;
            self.background = (numerator / denominator).max(1e-6);
            self.update_failing(window);
            self.update(columns);
            self.leap(iteration, iterations, columns);
        }
        self.means(window, columns);
        (0..intervals).map(|i| window.deviance(window.count[i], self.mu[i])).sum()
    }

    /// A rough fit with the background held: only the intervals that a wave touches are visited.
    pub(super) fn screen(&mut self, window: &Window, columns: &Columns, iterations: usize) -> f64 {
        let intervals = window.len();
        self.background = window.background;
        self.failing = window.failing[0];
        self.stamp.resize(intervals, 0);
        self.mu.resize(intervals, 0.0);
        self.draw.resize(intervals, [0.0; 2]);
        self.generation = self.generation.wrapping_add(1);
        self.touched.clear();
        for &index in &columns.index {
            let i = index as usize;
            if self.stamp[i] != self.generation {
                self.stamp[i] = self.generation;
                self.touched.push(index);
            }
        }
        self.start(window, columns);
        for iteration in 0..iterations {
            self.remember(iteration);
            self.touched_means(window, columns);
            for &index in &self.touched {
                let i = index as usize;
                let mu = self.mu[i];
                let ratio = window.size / ((window.size + mu) * mu);
                self.draw[i] = [ratio * window.count[i], ratio * mu];
            }
            self.update(columns);
            self.leap(iteration, iterations, columns);
        }
        self.touched_means(window, columns);
        let mut deviance = window.background_deviance_sum;
        for &index in &self.touched {
            let i = index as usize;
            deviance += window.deviance(window.count[i], self.mu[i]);
            deviance -= window.background_deviance[i];
        }
        deviance
    }

    /// The step of the background, for the normal traffic that fails.
    fn update_failing(&mut self, window: &Window) {
        let [top, bottom] = drawn(&window.outage, &self.draw);
        if bottom > 0.0 {
            self.failing = (self.failing * top / bottom).clamp(1e-6, window.failing[1]);
        }
    }

    fn remember(&mut self, iteration: usize) {
        match iteration % 3 {
            0 => self.before.clone_from(&self.heights),
            1 => self.between.clone_from(&self.heights),
            _ => {}
        }
    }

    /// After two plain steps, one along the direction they point to (Varadhan and Roland 2008,
    /// scheme S3, <https://doi.org/10.1111/j.1467-9469.2007.00585.x>); the plain step that follows
    /// repairs what it overshoots, so no likelihood is computed to accept it.
    fn leap(&mut self, iteration: usize, iterations: usize, columns: &Columns) {
        if iteration % 3 != 1 || iteration + 1 == iterations {
            return;
        }
        let (mut first, mut second) = (0.0, 0.0);
        for ((&h0, &h1), &h2) in self.before.iter().zip(&self.between).zip(&self.heights) {
            let r = h1 - h0;
            let v = (h2 - h1) - r;
            first += r * r;
            second += v * v;
        }
        if second <= 1e-12 * first {
            return;
        }
        let stride = (first / second).sqrt().clamp(1.0, STRIDE_MAX);
        for ((&h0, &h1), h2) in self.before.iter().zip(&self.between).zip(&mut self.heights) {
            let r = h1 - h0;
            let v = (*h2 - h1) - r;
            let next = h0 + 2.0 * stride * r + stride * stride * v;
            *h2 = next.max(0.2 * *h2);
        }
        self.shrink_only(columns.waves);
    }

    fn start(&mut self, window: &Window, columns: &Columns) {
        let count = columns.len();
        self.heights.clear();
        self.numerator.resize(count, 0.0);
        self.denominator.resize(count, 0.0);
        // One plain step from equal heights: each count split over the columns that hold it.
        self.mass.clear();
        self.mass.resize(window.len(), 0.0);
        for (&index, &value) in columns.index.iter().zip(&columns.value) {
            self.mass[index as usize] += value;
        }
        for column in 0..count {
            let (mut top, mut bottom) = (0.0, 0.0);
            for (i, value) in columns.column(column) {
                let count = window.count[i];
                let excess = count - window.background_mean[i];
                top += value * excess.max(EXCESS_MIN * count) / self.mass[i];
                bottom += value;
            }
            self.heights.push(if bottom > 0.0 { (top / bottom).max(1e-3) } else { 1e-3 });
        }
        self.shrink_only(columns.waves);
    }

    fn means(&mut self, window: &Window, columns: &Columns) {
        self.mu.clear();
        self.mu.extend(window.exposure.iter().map(|exposure| exposure * self.background));
        for (mu, outage) in self.mu.iter_mut().zip(&window.outage) {
            *mu += self.failing * outage;
        }
        self.add_columns(columns);
    }

    fn touched_means(&mut self, window: &Window, columns: &Columns) {
        for &index in &self.touched {
            self.mu[index as usize] = window.background_mean[index as usize];
        }
        self.add_columns(columns);
    }

    fn add_columns(&mut self, columns: &Columns) {
        for column in 0..columns.len() {
            let height = self.heights[column];
            for (i, value) in columns.column(column) {
                self.mu[i] += height * value;
            }
        }
    }

    fn update(&mut self, columns: &Columns) {
        for column in 0..columns.len() {
            let (mut top, mut bottom) = (0.0, 0.0);
            for (i, value) in columns.column(column) {
                let [pull, push] = self.draw[i];
                top += value * pull;
                bottom += value * push;
            }
            self.numerator[column] = self.heights[column] * top;
            self.denominator[column] = bottom;
            self.heights[column] =
                if bottom > 0.0 { self.heights[column] * top / bottom } else { 0.0 };
        }
        let waves = columns.waves.min(columns.len());
        self.pools.clear();
        for wave in 0..waves {
            let mut pool = (self.numerator[wave], self.denominator[wave], 1);
            while let Some(&(top, bottom, length)) = self.pools.last() {
                if top * pool.1 >= pool.0 * bottom {
                    break;
                }
                pool = (pool.0 + top, pool.1 + bottom, pool.2 + length);
                self.pools.pop();
            }
            self.pools.push(pool);
        }
        self.spread_pools();
    }

    /// Makes the starting heights of the waves fall.
    fn shrink_only(&mut self, waves: usize) {
        self.pools.clear();
        for wave in 0..waves.min(self.heights.len()) {
            let mut pool = (self.heights[wave], 1.0, 1);
            while let Some(&(top, bottom, length)) = self.pools.last() {
                if top * pool.1 >= pool.0 * bottom {
                    break;
                }
                pool = (pool.0 + top, pool.1 + bottom, pool.2 + length);
                self.pools.pop();
            }
            self.pools.push(pool);
        }
        self.spread_pools();
    }

    fn spread_pools(&mut self) {
        let mut wave = 0;
        for &(top, bottom, length) in &self.pools {
            let height = if bottom > 0.0 { top / bottom } else { 0.0 };
            for _ in 0..length {
                self.heights[wave] = height;
                wave += 1;
            }
        }
    }
}

/// The sum of the draws, each times its weight. Four sums side by side, since one addition waits for the
/// other.
fn drawn(weights: &[f64], draws: &[[f64; 2]]) -> [f64; 2] {
    let mut sums = [[0.0; 2]; 4];
    let mut add = |weights: &[f64], draws: &[[f64; 2]]| {
        for ((sum, weight), [pull, push]) in sums.iter_mut().zip(weights).zip(draws) {
            sum[0] += weight * pull;
            sum[1] += weight * push;
        }
    };
    let (fours, last) = weights.as_chunks::<4>();
    let (drawn, _) = draws.as_chunks::<4>();
    for (weights, draws) in fours.iter().zip(drawn) {
        add(weights, draws);
    }
    add(last, draws.get(4 * fours.len()..).unwrap_or_default());
    let sum = |part: usize| sums.iter().map(|sum| sum[part]).sum();
    [sum(0), sum(1)]
}
