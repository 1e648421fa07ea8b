//! Where in time the counts stand, deconvolved from intervals of many phases: the first sieve.
//!
//! The bank of schedules holds a hundred thousand trains and a likelihood costs microseconds. What a
//! train needs above all is mass at its instants and little elsewhere, and that can be read off a
//! density: Richardson-Lucy iterations on the overlapping intervals put the mass where all
//! targets agree, prefix sums give the mass in any wave with two look-ups, and the score is the
//! information of that mass against a smooth envelope,
//!
//! ```text
//! N * [ C ln(C / v) + (1 - C) ln((1 - C) / (1 - v)) ]
//! ```
//!
//! with `C` the share of the mass in the waves and `v` what the envelope has there. A train that
//! covers everything gets nothing, and neither does one whose waves stand in empty places.

use super::search::CAP_STEP;
use super::train::Train;
use super::window::Window;

/// Cells of the density.
const CELLS: usize = 1024;
/// Iterations of the deconvolution: more sharpen noise.
const ITERATIONS: usize = 60;
/// Width of the envelope's kernel on the logarithmic axis: half a factor of two each way.
const ENVELOPE_WIDTH: f64 = 0.8;

/// Mass of the excess over time, as prefix sums.
#[derive(Debug, Clone)]
pub(super) struct Density {
    mass: Vec<f64>,
    envelope: Vec<f64>,
    cells_per_second: f64,
    /// Counts above the background.
    excess: f64,
    /// Half of what the pooled scrapes blur an instant by.
    blur: f64,
}

impl Density {
    pub(super) fn new(window: &Window) -> Self {
        let cells_per_second = CELLS as f64 / window.horizon.max(1e-3);
        let ranges: Vec<(usize, usize)> = (0..window.len())
            .map(|i| {
                let low = (window.from[i] * cells_per_second).round().max(0.0) as usize;
                let high = (window.to[i] * cells_per_second).round().max(0.0) as usize;
                (low.min(CELLS), high.clamp(low.min(CELLS), CELLS))
            })
            .collect();
        let total: f64 = window.count.iter().sum();
        let mut cells = vec![(total / CELLS as f64).max(1e-6); CELLS];
        let mut prefix = vec![0.0; CELLS + 1];
        let (mut pull, mut weight) = (vec![0.0; CELLS + 1], vec![0.0; CELLS + 1]);
        for (i, &(low, high)) in ranges.iter().enumerate() {
            if low < high {
                weight[low] += window.share[i];
                weight[high] -= window.share[i];
            }
        }
        for cell in 0..CELLS {
            weight[cell + 1] += weight[cell];
        }
        for _ in 0..ITERATIONS {
            for cell in 0..CELLS {
                prefix[cell + 1] = prefix[cell] + cells[cell];
            }
            pull.fill(0.0);
            for (i, &(low, high)) in ranges.iter().enumerate() {
                if low < high {
                    let mu =
                        window.share[i] * (prefix[high] - prefix[low]) + window.background_mean[i];
                    let part = window.share[i] * window.count[i] / mu.max(1e-9);
                    pull[low] += part;
                    pull[high] -= part;
                }
            }
            for cell in 0..CELLS {
                pull[cell + 1] += pull[cell];
                cells[cell] *= if weight[cell] > 1e-6 { pull[cell] / weight[cell] } else { 0.0 };
            }
        }
        let mut mass = vec![0.0; CELLS + 1];
        for cell in 0..CELLS {
            mass[cell + 1] = mass[cell] + cells[cell];
        }
        let excess = mass[CELLS];
        Self {
            envelope: envelope(&mass),
            mass,
            cells_per_second,
            excess,
            blur: 0.5 * window.effective_step() + 0.5 / cells_per_second,
        }
    }

    /// Information in the train's waves: higher is better, zero is nothing.
    pub(super) fn score(&self, train: &Train, lists: &[Vec<f64>], step: f64, slack: f64) -> f64 {
        let horizon = CELLS as f64 / self.cells_per_second;
        let (mut captured, mut expected) = (0.0, 0.0);
        let mut covered = 0;
        let onset = train.onset;
        let mut uncapped = 0.0;
        train.waves(horizon, lists, |wave, start, wait, sd| {
            // Only waits that are not capped move with the base.
            if wait < train.cap {
                uncapped = start - onset;
            }
            let capped = (CAP_STEP * (start - onset - uncapped)).min(0.25 * wait);
            let half = (0.5 * step * uncapped
                + capped
                + slack
                + 0.05 * wave as f64 * train.latency.min(1.0))
            .max(1.5 * sd)
                + self.blur;
            let low = (((start - half) * self.cells_per_second).max(0.0) as usize).max(covered);
            let high = ((start + train.width + half) * self.cells_per_second) as usize + 1;
            let high = high.min(CELLS);
            if low < high {
                captured += self.mass[high] - self.mass[low];
                expected += self.envelope[high] - self.envelope[low];
                covered = high;
            }
        });
        let share = (captured / self.excess.max(1e-9)).clamp(1e-6, 1.0 - 1e-6);
        let chance = (expected / self.excess.max(1e-9)).clamp(1e-6, 1.0 - 1e-6);
        if share <= chance {
            return 0.0;
        }
        self.excess
            * (share * (share / chance).ln()
                + (1.0 - share) * ((1.0 - share) / (1.0 - chance)).ln())
    }
}

/// The mass smoothed over factors of time: what a decay without schedule would look like.
fn envelope(mass: &[f64]) -> Vec<f64> {
    let mut smooth = vec![0.0; CELLS + 1];
    for cell in 0..CELLS {
        let centre = cell as f64 + 0.5;
        let half = (0.5 * ENVELOPE_WIDTH).exp();
        let low = (centre / half - 6.0).max(0.0) as usize;
        let high = ((centre * half + 6.0) as usize).min(CELLS);
        smooth[cell + 1] = (mass[high] - mass[low]) / (high - low).max(1) as f64;
    }
    let total: f64 = smooth.iter().sum();
    let scale = mass[CELLS] / total.max(1e-9);
    let mut sum = 0.0;
    for value in &mut smooth {
        sum += *value * scale;
        *value = sum;
    }
    smooth
}
