//! When calls come: drawn, as from a great many independent users, or as recorded.
//!
//! Real traffic is not Poisson: its rate wanders, and its ups and downs last. The rate is a profile
//! over time, times a daily wave, times a log-normal factor that follows a first-order
//! autoregression from second to second (red noise).
//!
//! ```text
//! rate_k = profile(k) * (1 + d * sin(2 pi k / day)) * exp(s * z_k - s^2 / 2)
//! z_k = r * z_{k-1} + sqrt(1 - r^2) * N(0, 1)          r = exp(-1 / correlation)
//! s^2 = ln(1 + (dispersion - 1) / rate)                so that the counts per second have
//!                                                      variance / mean = dispersion
//! ```
//!
//! Within a second arrivals are Poisson: a gap that passes the end of the second is drawn again
//! from there, which is exact, since an exponential has no memory.

use std::sync::Arc;

use super::random::Draws;

/// Where the next call comes from.
#[derive(Debug, Clone)]
pub(super) enum Arrivals {
    /// Drawn.
    Stream(Box<Stream>),
    /// Recorded: the instants, and which is next.
    Trace(Arc<[f64]>, usize),
}

impl Arrivals {
    /// The next arrival after `now`, seconds.
    pub(super) fn next_after(&mut self, now: f64) -> Option<f64> {
        match self {
            Self::Stream(stream) => stream.next_after(now),
            Self::Trace(instants, next) => {
                let at = instants.get(*next).copied();
                *next += 1;
                at
            }
        }
    }
}

/// Seconds in which the rate is held.
const STEP_SECONDS: f64 = 1.0;

/// Seconds in a day.
const DAY_SECONDS: f64 = 86_400.0;

/// A stream in progress.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    profile: Vec<(f64, f64)>,
    dispersion: f64,
    memory: f64,
    daily: f64,
    level: f64,
    step_ends_at: f64,
    rate: f64,
    draws: Draws,
}

impl Stream {
    pub(super) fn new(
        profile: &[(f64, f64)],
        dispersion: f64,
        correlation_seconds: f64,
        daily: f64,
        mut draws: Draws,
    ) -> Self {
        let level = draws.normal();
        Self {
            profile: profile.to_vec(),
            dispersion,
            memory: if correlation_seconds > 0.0 {
                libm::exp(-STEP_SECONDS / correlation_seconds)
            } else {
                0.0
            },
            daily,
            level,
            step_ends_at: 0.0,
            rate: 0.0,
            draws,
        }
    }

    /// The next arrival after `now`, seconds.
    pub(super) fn next_after(&mut self, now: f64) -> Option<f64> {
        let mut at = now;
        loop {
            if at >= self.step_ends_at {
                self.next_step()?;
                continue;
            }
            if self.rate <= 0.0 {
                at = self.step_ends_at;
                continue;
            }
            let arrival = at + self.draws.exponential(1.0 / self.rate);
            if arrival < self.step_ends_at {
                return Some(arrival);
            }
            at = self.step_ends_at;
        }
    }

    /// None once the profile has ended at zero: nothing comes any more.
    fn next_step(&mut self) -> Option<()> {
        let from = self.step_ends_at;
        let (last_at, last_rate) = self.profile.last().copied()?;
        if last_rate <= 0.0 && from > last_at {
            return None;
        }
        self.step_ends_at = from + STEP_SECONDS;
        let mut rate = interpolate(&self.profile, from + 0.5 * STEP_SECONDS);
        if self.daily > 0.0 {
            rate *= 1.0 + self.daily * libm::sin(std::f64::consts::TAU * from / DAY_SECONDS);
        }
        if self.dispersion > 1.0 && rate > 0.0 {
            let fresh = libm::sqrt(1.0 - self.memory * self.memory);
            self.level = self.memory * self.level + fresh * self.draws.normal();
            let variance = libm::log(1.0 + (self.dispersion - 1.0) / (rate * STEP_SECONDS));
            rate *= libm::exp(libm::sqrt(variance) * self.level - 0.5 * variance);
        }
        self.rate = rate.max(0.0);
        Some(())
    }
}

/// The value of a piecewise straight line, level outside its points.
pub(super) fn interpolate(points: &[(f64, f64)], at: f64) -> f64 {
    let next = points.partition_point(|(x, _)| *x <= at);
    match (next.checked_sub(1).map(|i| points[i]), points.get(next)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (at - x0) / (x1 - x0),
        (Some((_, y)), None) => y,
        (None, Some((_, y))) => *y,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(dispersion: f64, correlation: f64, seconds: usize) -> Vec<f64> {
        let mut stream =
            Stream::new(&[(0.0, 80.0)], dispersion, correlation, 0.0, Draws::new(11, 2));
        let mut counts = vec![0.0; seconds];
        let mut at = 0.0;
        while let Some(next) = stream.next_after(at) {
            if next >= seconds as f64 {
                break;
            }
            counts[next as usize] += 1.0;
            at = next;
        }
        counts
    }

    #[test]
    fn counts_have_the_mean_and_dispersion_asked_for() {
        for dispersion in [1.0, 3.0, 10.0] {
            let counts = counts(dispersion, 2.0, 8_000);
            let n = counts.len() as f64;
            let mean = counts.iter().sum::<f64>() / n;
            let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / n;
            // 8,000 seconds with a memory of 2 s: some 2,000 free draws, so about 5 % each.
            assert!((mean / 80.0 - 1.0).abs() < 0.05, "mean {mean}");
            assert!((variance / mean / dispersion - 1.0).abs() < 0.2, "{dispersion}: {variance}");
        }
    }

    #[test]
    fn ups_and_downs_last_as_long_as_asked() {
        let correlation_at = |counts: &[f64], lag: usize| {
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let covariance = |lag: usize| {
                counts.iter().zip(&counts[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
            };
            covariance(lag) / covariance(0)
        };
        let slow = counts(20.0, 30.0, 4_000);
        assert!(correlation_at(&slow, 5) > 0.5);
        assert!(correlation_at(&counts(1.0, 30.0, 4_000), 5).abs() < 0.1);
    }
}
