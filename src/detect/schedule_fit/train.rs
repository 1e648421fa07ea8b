//! The instants of a train of waves, and how wide each wave is.
//!
//! Wave 0 is the failure itself, wave `n` the n-th retry: `t0 + sum_{j<=n} (wait_j + latency)`. Every
//! wave repeats the width of the failure, since a client that failed 0.3 s after another stays
//! 0.3 s behind it. Jitter adds to that: each wait has a standard deviation of `spread * wait`, and
//! the waits of one client are independent, so variances add from wave to wave.

use super::heights::Columns;
use super::search::CAP_STEP;
use super::window::Window;

/// Waves that are followed; a train of more has long been named.
pub(super) const WAVES_MAX: usize = 48;

/// How the waits grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Growth {
    /// `min(cap, base * factor^(n-1))`; a factor of 1 is a fixed delay.
    Exponential,
    /// `min(cap, base * n^factor)`.
    Power,
    /// The n-th wait of one of the lists given.
    List(usize),
}

/// All parameters of a train; seconds from the window's origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Train {
    pub(super) growth: Growth,
    pub(super) onset: f64,
    pub(super) width: f64,
    pub(super) base: f64,
    /// The factor, or the power.
    pub(super) factor: f64,
    /// Infinite where there is none.
    pub(super) cap: f64,
    pub(super) latency: f64,
    /// Standard deviation of one wait over that wait.
    pub(super) spread: f64,
    /// Part of the failure's width, from its start, whose clients have succeeded per wave: a server
    /// at its limit serves the first of each wave, so what fails again is its tail.
    pub(super) drain: f64,
}

impl Train {
    /// The n-th wait, counted from 1; none after the end of a list.
    pub(super) fn wait(&self, retry: usize, lists: &[Vec<f64>]) -> Option<f64> {
        let number = retry as f64;
        match self.growth {
            Growth::Exponential => Some((self.base * self.factor.powf(number - 1.0)).min(self.cap)),
            Growth::Power => Some((self.base * number.powf(self.factor)).min(self.cap)),
            Growth::List(list) => lists.get(list).and_then(|waits| waits.get(retry - 1)).copied(),
        }
    }

    /// Calls `visit(wave, start, wait, sd)` for each wave that begins by `horizon`.
    pub(super) fn waves(
        &self,
        horizon: f64,
        lists: &[Vec<f64>],
        mut visit: impl FnMut(usize, f64, f64, f64),
    ) {
        let (mut start, mut variance) = (self.onset, 0.0);
        visit(0, start, 0.0, 0.0);
        let mut geometric = self.base;
        for retry in 1..WAVES_MAX {
            let wait = if self.growth == Growth::Exponential {
                let wait = geometric.min(self.cap);
                geometric *= self.factor;
                wait
            } else if let Some(wait) = self.wait(retry, lists) {
                wait
            } else {
                break;
            };
            start += wait + self.latency;
            variance += (self.spread * wait) * (self.spread * wait);
            let sd = variance.sqrt();
            if start - 2.0 * sd > horizon {
                break;
            }
            visit(retry, start, wait, sd);
        }
    }

    /// Builds the columns of the waves.
    pub(super) fn columns(&self, window: &Window, lists: &[Vec<f64>], columns: &mut Columns) {
        columns.clear();
        let width = self.width;
        self.waves(window.horizon, lists, |wave, start, _, sd| {
            let served = width * (self.drain * wave as f64).min(0.9);
            push_wave(window, start + served, width - served, sd, columns);
        });
        columns.waves = columns.len();
    }

    /// Builds the columns of the train's envelope: every wave spread evenly to half-way to its
    /// neighbours, which keeps the heights and takes the gaps away.
    pub(super) fn envelope_columns(
        &self,
        window: &Window,
        lists: &[Vec<f64>],
        columns: &mut Columns,
    ) {
        columns.clear();
        let mut starts = Vec::with_capacity(WAVES_MAX);
        self.waves(window.horizon, lists, |_, start, wait, _| starts.push((start, wait)));
        let mut low = self.onset;
        for (wave, &(start, wait)) in starts.iter().enumerate() {
            let next = starts.get(wave + 1).map_or(start + wait.max(self.base), |next| next.0);
            let high = 0.5 * (start + next + self.width);
            if high - low > 1e-3 {
                push_box(window, low, high, columns);
                low = high;
            }
        }
        columns.waves = columns.len();
    }

    /// Builds the columns of the screen: each wave a box wide enough for the steps of its grid.
    ///
    /// The blur is the relative step of the base, the part of it that is left, and the slack of the
    /// onset in seconds.
    pub(super) fn screen_columns(
        &self,
        window: &Window,
        lists: &[Vec<f64>],
        [step, part, slack]: [f64; 3],
        columns: &mut Columns,
    ) {
        columns.clear();
        let (width, onset) = (self.width, self.onset);
        let mut uncapped = 0.0;
        self.waves(window.horizon, lists, |_, start, wait, sd| {
            // Only waits that are not capped move with the base, and the others with the cap.
            if wait < self.cap {
                uncapped = start - onset;
            }
            let capped = (CAP_STEP * (start - onset - uncapped)).min(0.25 * wait);
            let half = (part * (0.5 * step * uncapped + capped) + slack).max(1.7 * sd);
            push_box(window, start - half, start + width + half, columns);
        });
        columns.waves = columns.len();
    }
}

/// A wave spread evenly over `[low, high]`.
pub(super) fn push_box(window: &Window, low: f64, high: f64, columns: &mut Columns) {
    let scale = 1.0 / (high - low).max(1e-6);
    window.visit_overlap(low, high, |i| {
        let part = (window.to[i].min(high) - window.from[i].max(low)) * scale;
        columns.push(i, window.share[i] * part);
    });
    columns.end_column();
}

/// A wave of the failure's width, blurred by a normal of standard deviation `sd`.
pub(super) fn push_wave(window: &Window, start: f64, width: f64, sd: f64, columns: &mut Columns) {
    if sd < 0.1 * width || sd < 2e-3 {
        push_box(window, start, start + width.max(1e-3), columns);
        return;
    }
    let reach = 3.3 * sd;
    let end = start + width;
    window.visit_overlap(start - reach, end + reach, |i| {
        let part =
            blurred_cdf(window.to[i], start, end, sd) - blurred_cdf(window.from[i], start, end, sd);
        columns.push(i, window.share[i] * part);
    });
    columns.end_column();
}

/// Distribution of `U(low, high) + N(0, sd)` at `x`.
fn blurred_cdf(x: f64, low: f64, high: f64, sd: f64) -> f64 {
    let width = high - low;
    if width < 0.2 * sd {
        return normal_cdf((x - 0.5 * (low + high)) / sd);
    }
    let integral = |u: f64| {
        if u < -5.0 {
            0.0
        } else if u > 5.0 {
            u
        } else {
            // 0.39894228 = 1 / sqrt(2 pi)
            u * normal_cdf(u) + 0.398_942_28 * (-0.5 * u * u).exp()
        }
    };
    (integral((x - low) / sd) - integral((x - high) / sd)) * sd / width
}

/// The standard normal distribution to 1e-7 (Abramowitz and Stegun 1964, 26.2.17).
fn normal_cdf(x: f64) -> f64 {
    if x < -6.0 {
        return 0.0;
    }
    if x > 6.0 {
        return 1.0;
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly = t
        * (0.319_381_53
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = 0.398_942_28 * (-0.5 * x * x).exp() * poly;
    if x > 0.0 { 1.0 - tail } else { tail }
}
