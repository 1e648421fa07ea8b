//! Spectrum on a warped time axis: the quick look for one cohort's exponential train.
//!
//! A herd that failed at `t0` and waits `b, b·f, b·f², …` comes back at
//! `t0 + b (f^n - 1) / (f - 1)`. No lag repeats in that train, and a plain spectrum sees nothing.
//! But with `c = b / (f - 1)` its waves are evenly spaced in
//!
//! ```text
//! u = ln(1 + (t - t0) / c),   u_n = n · ln f
//! ```
//!
//! so on that axis one FFT looks for all factors at once, and a dozen values of `c` for all bases.
//! This is the screen before the schedule fit, which costs a thousand times more: it proposes
//! candidates, and proves nothing.
//!
//! # Method
//!
//! For each `c` and `t0` the residuals are summed in even bins of `u`, each divided by the noise
//! of the steps in it, and slow terms (a decay, as jittered retries leave it) are projected out.
//! The waves stand at multiples of `ln f` from `u = 0`, so the phase is known, and the score of a
//! factor is the real part of the transform at its frequency and two harmonics, in standard
//! deviations. It is not corrected for how many were tried: no p-value is given.
//!
//! # Assumptions and what happens when they fail
//!
//! * The bracket of `t0` holds the failure. One that is late by more than the first wait loses the
//!   early waves, and late waves alone do not tell the factor.
//! * A capped train is even in `u` only up to its cap.
//!
//! # Cost
//!
//! Some hundred passes over the steps after `t0`.
//!
//! # Example
//!
//! ```
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::detect::warped::warped_peaks;
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! // A failure at 30.5 s, and waves 2, 6, 14, 30 and 62 s later.
//! let waves = [30, 32, 36, 44, 60, 92];
//! let intervals: Vec<Interval> = (0..140)
//!     .map(|second: i32| Interval {
//!         target: TargetId(0),
//!         from: Timestamp::from_seconds(f64::from(second)),
//!         to: Timestamp::from_seconds(f64::from(second + 1)),
//!         requests: f64::from(50 + (second * 7919) % 13 + 300 * i32::from(waves.contains(&second))),
//!         errors: 0.0,
//!     })
//!     .collect();
//! let even = EvenResiduals::new(&intervals, Count::Requests).expect("140 intervals");
//! let bracket = [Timestamp::from_seconds(30.0), Timestamp::from_seconds(31.0)];
//! let peaks = warped_peaks(&even, bracket, 5);
//!
//! assert!(peaks[0].score > 5.0, "{peaks:?}");
//! let near = |p: &squall::detect::warped::WarpedPeak| {
//!     (p.base_seconds / 2.0 - 1.0).abs() < 0.2 && (p.factor / 2.0 - 1.0).abs() < 0.15
//! };
//! assert!(peaks.iter().any(near), "{peaks:?}");
//! ```
//!
//! # References
//!
//! * D. Sornette. Discrete scale invariance and complex dimensions. *Physics Reports* 297(5),
//!   239-270, 1998. <https://doi.org/10.1016/S0370-1573(97)00076-8>

use std::f64::consts::PI;

use realfft::RealFftPlanner;

use crate::detect::even::{EvenResiduals, index};
use crate::series::Timestamp;

/// Bins of the warped axis, and the padded length of its transform.
const BINS: usize = 256;
const PADDED: usize = 2048;

/// Factors looked for; nearer to one the waves are a plain period's.
const FACTOR_MIN: f64 = 1.3;
const FACTOR_MAX: f64 = 5.0;

/// Values of `c`, and their spacing: the phase of late waves moves by a twelfth of a turn.
const SCALE_SECONDS_MIN: f64 = 0.2;
const SCALE_SECONDS_MAX: f64 = 30.0;
const SCALE_SPACING: f64 = 1.12;

/// Instants tried within the bracket of the failure.
const STARTS: u32 = 3;

/// Slow terms that are projected out: half-cycles over the whole axis.
const SLOW_TERMS: usize = 3;

/// Harmonics in the score.
const HARMONICS: usize = 3;

/// A factor and a base whose waves would be even, with no claim of significance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarpedPeak {
    /// The first wait.
    pub base_seconds: f64,
    /// The growth of the waits.
    pub factor: f64,
    /// The instant of the failure that was tried.
    pub started_at: Timestamp,
    /// Standard deviations of the score under white noise, before any look elsewhere.
    pub score: f64,
}

/// The best `count` candidates, best first, no two of nearly the same schedule.
///
/// Empty when the residuals hold fewer than sixteen steps after the bracket.
#[must_use]
pub fn warped_peaks(
    even: &EvenResiduals,
    bracket: [Timestamp; 2],
    count: usize,
) -> Vec<WarpedPeak> {
    let mut planner = RealFftPlanner::<f64>::new();
    let forward = planner.plan_fft_forward(PADDED);
    let mut input = forward.make_input_vec();
    let mut output = forward.make_output_vec();
    let mut peaks: Vec<WarpedPeak> = Vec::new();
    let width = bracket[1].seconds_since(bracket[0]).max(0.0);
    for start in 0..STARTS {
        let started_at = bracket[0].plus_seconds(width * f64::from(start) / f64::from(STARTS - 1));
        let lead = started_at.seconds_since(even.start()) / even.step_seconds();
        let first = index(lead.max(0.0));
        if first + 16 > even.len() {
            continue;
        }
        let mut scale = SCALE_SECONDS_MIN.max(even.interval_seconds() / 4.0);
        while scale <= SCALE_SECONDS_MAX {
            let Some((bins, span)) = warp(even, lead, first, scale) else { break };
            input.fill(0.0);
            input[..BINS].copy_from_slice(&bins);
            let noise = bins.iter().map(|v| v * v).sum::<f64>();
            if noise <= 0.0 || forward.process(&mut input, &mut output).is_err() {
                break;
            }
            // One bin of the transform is this many cycles for each unit of `u`.
            let step = BINS as f64 / span / PADDED as f64;
            let low = index((1.0 / FACTOR_MAX.ln() / step).ceil());
            let high = index(1.0 / FACTOR_MIN.ln() / step);
            for bin in low..=high {
                let real: f64 =
                    (1..=HARMONICS).filter_map(|h| output.get(h * bin)).map(|value| value.re).sum();
                let score = real / (noise * HARMONICS as f64 / 2.0).sqrt();
                let factor = (1.0 / (bin as f64 * step)).exp();
                let base_seconds = scale * (factor - 1.0);
                keep(&mut peaks, WarpedPeak { base_seconds, factor, started_at, score }, count);
            }
            scale *= SCALE_SPACING;
        }
    }
    peaks
}

/// The residuals in even bins of `u`, in units of their noise; and the length of the axis.
fn warp(even: &EvenResiduals, lead: f64, first: usize, scale: f64) -> Option<([f64; BINS], f64)> {
    let step = even.step_seconds();
    let at = |cell: usize| (((cell as f64 - lead) * step).max(0.0) / scale).ln_1p();
    let span = at(even.len());
    // Three waves of the smallest factor must fit.
    if span < 3.0 * FACTOR_MIN.ln() {
        return None;
    }
    let per_unit = BINS as f64 / span;
    let mut sums = [0.0; BINS];
    let mut cells = [0.0; BINS];
    let mut from = at(first) * per_unit;
    for (cell, (value, weight)) in
        (first..).zip(even.values()[first..].iter().zip(&even.weights()[first..]))
    {
        let to = at(cell + 1) * per_unit;
        let length = (to - from).max(1e-9);
        for bin in index(from)..=index(to).min(BINS - 1) {
            let part = (to.min((bin + 1) as f64) - from.max(bin as f64)).max(0.0) / length;
            sums[bin] += value * part;
            cells[bin] += weight * part;
        }
        from = to;
    }
    for (sum, cells) in sums.iter_mut().zip(&cells) {
        *sum = if *cells > 1e-9 { *sum / cells.sqrt() } else { 0.0 };
    }
    // The cosines of the axis are orthogonal over the bins.
    for term in 0..=SLOW_TERMS {
        let shape = |bin: usize| (PI * term as f64 * (bin as f64 + 0.5) / BINS as f64).cos();
        let norm: f64 = (0..BINS).map(|bin| shape(bin).powi(2)).sum();
        let part = sums.iter().enumerate().map(|(bin, v)| v * shape(bin)).sum::<f64>() / norm;
        for (bin, value) in sums.iter_mut().enumerate() {
            *value -= part * shape(bin);
        }
    }
    Some((sums, span))
}

/// Keeps the best `count`, and of schedules within a tenth of each other the better one.
fn keep(peaks: &mut Vec<WarpedPeak>, new: WarpedPeak, count: usize) {
    if peaks.len() == count && peaks.last().is_some_and(|last| last.score >= new.score) {
        return;
    }
    let alike = |old: &WarpedPeak| {
        (old.base_seconds / new.base_seconds - 1.0).abs() < 0.1
            && (old.factor / new.factor - 1.0).abs() < 0.1
    };
    if peaks.iter().any(|old| alike(old) && old.score >= new.score) {
        return;
    }
    peaks.retain(|old| !alike(old));
    let place = peaks.partition_point(|old| old.score >= new.score);
    peaks.insert(place, new);
    peaks.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling};
    use crate::detect::even::Count;

    fn peaks(seed: u64, base: f64, factor: f64, clients: f64) -> Vec<WarpedPeak> {
        let sampling = Sampling::new(1.0, 4, 180.0);
        let mut draw = Draw::new(seed, 180.0).noise(Noise::white(30.0, 1.5));
        let (mut at, mut wait, mut size) = (30.0, base, clients);
        while at < 180.0 {
            draw = draw.wave(at, size, 0.15);
            (at, wait, size) = (at + wait, wait * factor, size * 0.9);
        }
        let even = EvenResiduals::new(&draw.scrape(sampling), Count::Requests).unwrap();
        let bracket = [Timestamp::from_seconds(29.7), Timestamp::from_seconds(30.3)];
        warped_peaks(&even, bracket, 8)
    }

    #[test]
    fn the_true_schedule_is_among_the_candidates() {
        for (base, factor) in [(1.0, 2.0), (2.0, 2.0), (3.0, 1.5), (1.0, 3.0), (5.0, 2.0)] {
            let hits = (0..20)
                .filter(|seed| {
                    peaks(*seed, base, factor, 400.0).iter().any(|p| {
                        (p.base_seconds / base - 1.0).abs() < 0.25
                            && (p.factor / factor - 1.0).abs() < 0.15
                    })
                })
                .count();
            assert!(hits >= 16, "{base} {factor}: {hits} of 20");
        }
    }

    #[test]
    fn noise_scores_lower_than_a_train() {
        let noise = (0..20).map(|seed| peaks(seed, 1.0, 2.0, 0.0)[0].score).fold(0.0, f64::max);
        let train =
            (0..20).map(|seed| peaks(seed, 1.0, 2.0, 400.0)[0].score).fold(f64::MAX, f64::min);
        assert!(train > noise, "{train} {noise}");
    }
}
