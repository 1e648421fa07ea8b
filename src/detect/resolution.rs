//! What this sampling can tell apart: the shortest wait between two waves that leaves a trough.
//!
//! "Clear" from a dependency that cannot be seen would be a lie. One target shows two waves apart
//! only when a whole scrape interval fits between them; many targets at different phases cut time
//! finer, as far as each carries enough requests to say anything.
//!
//! # Method
//!
//! The scrape phases of the targets divide the cycle into gaps `g_j`. A random instant falls into a
//! gap of expected length
//!
//! ```text
//! step = sum g_j^2 / cycle
//! ```
//!
//! (the waiting-time paradox: longer gaps catch more instants), and two waves need two steps. Where
//! one target's share of a wave drowns in its noise, `k` targets must be pooled before an edge is
//! seen, and the step grows `k` times:
//!
//! ```text
//! k = (3 / z)^2,   z = H w / sqrt(phi mu)      H a herd worth a page, w the mean share
//! ```
//!
//! `H` is what the dependency serves in ten seconds, so that it at least doubles the load for that
//! long. `mu` and `phi` are those of the errors where errors are counted, else of the requests.
//!
//! # Cost
//!
//! O(targets log targets), when the baseline is learned.

use crate::detect::baseline::{Baseline, count, median};
use crate::series::{Interval, Timestamp};

/// Seconds of normal traffic in a herd that is worth a page.
const HERD_SECONDS: f64 = 10.0;
/// Standard deviations at which an edge counts as seen.
const EDGE_SDS: f64 = 3.0;
/// Resolvable gap past which a dependency is blind: no schedule of interest waits longer.
pub const BLIND_SECONDS: f64 = 120.0;

/// How finely a dependency is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resolution {
    /// Targets that report.
    pub targets: usize,
    /// Median time between two scrapes of one target, seconds.
    pub scrape_seconds: f64,
    /// Mean time between two scrapes of any target, seconds.
    pub step_seconds: f64,
    /// Shortest wait between two waves that can be told apart, seconds.
    pub gap_seconds: f64,
}

impl Resolution {
    /// Measures the sampling of calm intervals.
    #[must_use]
    pub fn measure(intervals: &[Interval], baseline: &Baseline, with_errors: bool) -> Self {
        let mut lengths: Vec<f64> = intervals.iter().map(Interval::seconds).collect();
        let cycle = median(&mut lengths).unwrap_or(0.0).max(1e-3);
        let mut newest: Vec<Option<Timestamp>> = vec![None; baseline.shares.len()];
        for interval in intervals {
            if let Some(slot) = newest.get_mut(interval.target.0 as usize) {
                *slot = (*slot).max(Some(interval.to));
            }
        }
        let last = intervals.iter().map(|interval| interval.to).max().unwrap_or_default();
        let mut phases: Vec<f64> = newest
            .into_iter()
            .flatten()
            .filter(|at| last.seconds_since(*at) < 5.0 * cycle)
            .map(|at| at.seconds().rem_euclid(cycle))
            .collect();
        phases.sort_by(f64::total_cmp);
        let targets = phases.len().max(1);
        let step = cycle / count(targets);
        let weighted = phase_step(&phases, cycle);
        let share = 1.0 / count(targets);
        let herd = (baseline.rate * HERD_SECONDS).max(1.0) * share;
        let noise = if with_errors {
            baseline.error_dispersion
                * (baseline.error_ratio * baseline.rate * share * cycle).max(0.1)
        } else {
            baseline.dispersion * (baseline.rate * share * cycle).max(0.1)
        };
        // The counts of the wave itself scatter too.
        let edge = herd / (noise + herd).sqrt();
        let pooled = (EDGE_SDS / edge).powi(2).max(1.0);
        let gap = (2.0 * weighted * pooled).min(2.0 * cycle * pooled.sqrt());
        Self { targets, scrape_seconds: cycle, step_seconds: step, gap_seconds: gap }
    }

    /// Whether no schedule of interest can be told here.
    #[must_use]
    pub fn is_blind(&self) -> bool {
        self.gap_seconds > BLIND_SECONDS
    }

    /// What would show waits of `wanted_seconds`, in words; none where they are within reach.
    #[must_use]
    pub fn would_take(&self, wanted_seconds: f64) -> Option<String> {
        let scrape = (wanted_seconds / 2.0 * count(self.targets)).max(0.1);
        let replicas = (2.0 * self.scrape_seconds / wanted_seconds.max(1e-3)).ceil();
        if scrape >= self.scrape_seconds {
            return None;
        }
        Some(format!("scrapes every {scrape:.1} s, or {replicas:.0} targets at different phases"))
    }
}

/// Expected length of the gap between neighbouring phases that a random instant falls into: long
/// where they stand together, since long gaps catch more instants. `phases` ascend, in seconds.
pub(crate) fn phase_step(phases: &[f64], cycle: f64) -> f64 {
    let Some((first, last)) = phases.first().zip(phases.last()) else { return cycle };
    let inner: f64 = phases.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let around = first + cycle - last;
    around.mul_add(around, inner) / cycle.max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    fn sampled(targets: u32, scrape: f64, rate: f64) -> Resolution {
        let baseline = Baseline {
            rate,
            shares: vec![1.0 / f64::from(targets); targets as usize],
            dispersion: 1.5,
            error_ratio: 0.01,
            error_dispersion: 1.0,
            block_dispersions: Vec::new(),
            intervals: 100,
            span: [Timestamp::default(); 2],
        };
        let intervals: Vec<Interval> = (0..targets)
            .map(|target| {
                let from = f64::from(target) / f64::from(targets) * scrape;
                Interval {
                    target: TargetId(target),
                    from: Timestamp::from_seconds(from),
                    to: Timestamp::from_seconds(from + scrape),
                    requests: 1.0,
                    errors: 0.0,
                }
            })
            .collect();
        Resolution::measure(&intervals, &baseline, true)
    }

    #[test]
    fn twenty_even_phases_resolve_a_twentieth_of_the_cycle_twice() {
        let resolution = sampled(20, 15.0, 200.0);
        assert!((resolution.step_seconds - 0.75).abs() < 1e-6);
        assert!((resolution.gap_seconds - 1.5).abs() < 0.01, "{}", resolution.gap_seconds);
    }

    #[test]
    fn one_target_needs_two_scrapes() {
        assert!((sampled(1, 15.0, 50.0).gap_seconds - 30.0).abs() < 1e-6);
        assert!(sampled(1, 300.0, 50.0).is_blind());
    }

    #[test]
    fn little_traffic_resolves_less_than_its_phases() {
        assert!(sampled(20, 15.0, 0.5).gap_seconds > 2.0 * sampled(20, 15.0, 200.0).gap_seconds);
    }
}
