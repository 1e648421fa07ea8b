//! Periodogram of the residuals over its own red noise.
//!
//! Traffic is not white: its slow swings put most of the power at low frequencies, and a test
//! against white noise finds a "period" in nearly every series that has any. So each ordinate is
//! divided by a background level fitted to this very periodogram, white noise plus a Lorentzian
//! (the spectrum of first-order autoregressive noise in continuous time), by the Whittle
//! likelihood of bins from which the highest ordinates were dropped. What is left is an
//! exponential variable of mean one where there is only noise.
//!
//! # Method
//!
//! ```text
//! P(f) = |Σ_c x_c exp(-2πi f c)|²                      one-sided, unnormalised
//! S(f) = sinc²(f·L) · (a + b / (1 + (f/f_c)²))         L the scrape interval
//! ratio(f) = P(f) / S(f)                               Exp(1) under the null
//! ```
//!
//! The factor `sinc²` is what spreading an interval's residual over the grid does to it (see
//! `even`). Frequencies where it is under 2 % carry no information and are left out: these are
//! the scrape frequency itself and its multiples. One scrape phase sees nothing above half the
//! scrape frequency; more phases see beyond it, which is why many replicas see short periods.
//! The transform is padded to four times its length, so no line falls between two ordinates.
//!
//! # Assumptions and what happens when they fail
//!
//! * The background is smooth. A background with an own hump (a queue that oscillates) is reported
//!   as the period that it is.
//! * Dispersion is constant over the window. Where it is not, the ordinates are still exponential,
//!   as each sums many intervals.
//!
//! # Cost
//!
//! One real FFT of four times the grid, and some thousand operations for the background.
//!
//! # Example
//!
//! ```
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::detect::spectrum::Spectrum;
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! // Uniform noise from a small generator; a modulus of the second alone would be periodic itself.
//! let noise = |second: i32| {
//!     let mut state = second.unsigned_abs().wrapping_add(1).wrapping_mul(2_654_435_761);
//!     state ^= state >> 15;
//!     state = state.wrapping_mul(2_246_822_519);
//!     state ^= state >> 13;
//!     f64::from(state % 13)
//! };
//! let intervals: Vec<Interval> = (0..240)
//!     .map(|second: i32| Interval {
//!         target: TargetId(0),
//!         from: Timestamp::from_seconds(f64::from(second)),
//!         to: Timestamp::from_seconds(f64::from(second + 1)),
//!         // A wave every eight seconds over a base that wobbles.
//!         requests: 50.0 + noise(second) + if second % 8 == 3 { 40.0 } else { 0.0 },
//!         errors: 0.0,
//!     })
//!     .collect();
//! let even = EvenResiduals::new(&intervals, Count::Requests).expect("240 intervals");
//! let spectrum = Spectrum::new(&even).expect("a band from 12.5 mHz to 500 mHz");
//!
//! // One scrape phase: half the scrape frequency is the end, and 3 cycles a window the beginning.
//! let (low, high) = spectrum.band_hertz();
//! // Both lie on ordinates, 1/1024 Hz apart.
//! assert!((low - 13.0 / 1024.0).abs() < 1e-12 && (high - 0.5).abs() < 1e-12, "{low} {high}");
//! assert!(spectrum.ratio_at(0.125) > 20.0, "{}", spectrum.ratio_at(0.125));
//! assert!(spectrum.ratio_at(0.10) < 6.0, "{}", spectrum.ratio_at(0.10));
//! ```
//!
//! # References
//!
//! * P. Whittle. Estimation and information in stationary time series. *Arkiv för Matematik* 2(5),
//!   423-434, 1953. <https://doi.org/10.1007/BF02590998>
//! * M. E. Mann, J. M. Lees. Robust estimation of background noise and signal detection in climatic
//!   time series. *Climatic Change* 33, 409-445, 1996. <https://doi.org/10.1007/BF00142586>

#![expect(
    clippy::suboptimal_flops,
    reason = "a fused multiply-add is a library call on the default target"
)]

use std::f64::consts::PI;

use realfft::RealFftPlanner;

use crate::detect::NotEnough;
use crate::detect::even::{EvenResiduals, index};

/// Ordinates for each independent one: at four, the loss between two of them is under 5 %.
pub(crate) const OVERSAMPLING: usize = 4;

/// Least number of times that a period must fit into the window.
pub const REPEATS_MIN: usize = 3;

/// Fewest independent ordinates that a background can be fitted to.
const ORDINATES_MIN: usize = 12;

/// Spreading that leaves less than this share of the power leaves nothing to see.
const RESPONSE_MIN: f64 = 0.02;

/// Highest frequency for one, two and more scrape phases, in scrape frequencies.
const BAND_ONE_PHASE: f64 = 0.5;
const BAND_TWO_PHASES: f64 = 0.6;
const BAND_FEW_PHASES: f64 = 0.85;
/// From so many phases on the second lobe of `sinc²` is sampled without folding.
const PHASES_MANY: usize = 6;
const BAND_MANY_PHASES: f64 = 1.85;

/// Share of the highest ordinates that the background leaves out: a train of period a third of
/// the window has a harmonic at every third ordinate.
const TRIM_SHARE: f64 = 0.35;

/// Ordinates that the model itself is worth where bins disagree with it.
const HUMP_PRIOR: f64 = 8.0;

/// Multiplicative steps of the background fit; more change its level by under 1 %.
const FIT_STEPS: usize = 30;

/// Logarithmic bins of the background fit.
const BINS: usize = 20;

/// Fewest ordinates in a bin.
const BIN_ORDINATES_MIN: usize = 4;

/// The fitted background, before the factor `sinc²`.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// The flat part: counting noise, scaled by the dispersion.
    pub white: f64,
    /// The red part at frequency zero.
    pub red: f64,
    /// The part of the red noise that uneven scrape phases fold to around the scrape frequency.
    pub folded: f64,
    /// Where the red part has fallen by half, hertz.
    pub corner_hertz: f64,
    /// The scrape frequency, hertz.
    pub scrape_hertz: f64,
    // Whether phases are few enough that all of the red noise is folded.
    one_phase: bool,
    // Where the bins lie over the model: logarithm of the frequency, and a factor of at least one.
    humps: Vec<(f64, f64)>,
}

impl Background {
    /// The level at `hertz`.
    #[must_use]
    pub fn level(&self, hertz: f64) -> f64 {
        let [red, folded] = self.shapes(hertz);
        (self.white + self.red * red + self.folded * folded) * self.hump(hertz)
    }

    /// The factor of the humps, on lines between the bins.
    fn hump(&self, hertz: f64) -> f64 {
        let at = hertz.max(f64::MIN_POSITIVE).ln();
        let after = self.humps.partition_point(|(position, _)| *position < at);
        match (after.checked_sub(1).and_then(|b| self.humps.get(b)), self.humps.get(after)) {
            (Some((left, low)), Some((right, high))) => {
                low + (high - low) * (at - left) / (right - left).max(1e-12)
            }
            (Some((_, factor)), None) | (None, Some((_, factor))) => *factor,
            (None, None) => 1.0,
        }
    }

    /// Lifts the model where its neighbourhood of bins lies over it. Where it lies under it nothing
    /// is done: a level that is too high loses a little power, one too low finds what is not there.
    fn lift(&mut self, bins: &[Bin]) {
        let over: Vec<f64> = bins.iter().map(|b| b.level / self.level(b.hertz)).collect();
        let humps = bins.iter().enumerate().map(|(middle, bin)| {
            let near = middle.saturating_sub(1)..(middle + 2).min(bins.len());
            let (mut sum, mut weight) = (HUMP_PRIOR, HUMP_PRIOR);
            for index in near {
                sum += bins[index].ordinates * over[index];
                weight += bins[index].ordinates;
            }
            (bin.hertz.ln(), (sum / weight).max(1.0))
        });
        self.humps = humps.collect();
    }

    /// The shapes of the red and of the folded part. A slow rate is averaged over an interval
    /// before it is spread, so its power has the factor `sinc²` twice; what is folded has not.
    fn shapes(&self, hertz: f64) -> [f64; 2] {
        let direct = lorentzian(hertz, self.corner_hertz);
        let first = lorentzian(hertz - self.scrape_hertz, self.corner_hertz);
        if self.one_phase {
            return [direct + first, 0.0];
        }
        let second = lorentzian(hertz - 2.0 * self.scrape_hertz, self.corner_hertz);
        [direct * sinc_squared(hertz / self.scrape_hertz), first + second]
    }
}

/// The periodogram of the residuals over its background.
#[derive(Debug, Clone)]
pub struct Spectrum {
    // One value for each `frequency_step`; NaN never: outside the band it is zero.
    ratio: Vec<f64>,
    // Whether an ordinate carries information.
    usable: Vec<bool>,
    step_hertz: f64,
    first: usize,
    last: usize,
    background: Background,
    interval_seconds: f64,
    span_seconds: f64,
    phases: usize,
}

impl Spectrum {
    /// Takes the periodogram of `even` and divides it by its background.
    ///
    /// # Errors
    ///
    /// [`NotEnough`] when fewer than twelve independent ordinates lie between three repeats a
    /// window and what the scrape phases can see.
    pub fn new(even: &EvenResiduals) -> Result<Self, NotEnough> {
        let power = periodogram(even.values());
        let step_hertz = 1.0 / ((2 * (power.len() - 1)) as f64 * even.step_seconds());
        let span = even.span_seconds();
        let length = even.interval_seconds();
        let phases = even.phases();
        let reach = match phases {
            1 => BAND_ONE_PHASE,
            2 => BAND_TWO_PHASES,
            n if n < PHASES_MANY => BAND_FEW_PHASES,
            _ => BAND_MANY_PHASES,
        } / length;
        let first = index((REPEATS_MIN as f64 / span / step_hertz).ceil());
        let last = index((reach / step_hertz).floor() + 1e-9).min(power.len() - 1);
        let have = index(last.saturating_sub(first) as f64 * step_hertz * span);
        if have < ORDINATES_MIN {
            return Err(NotEnough { have, need: ORDINATES_MIN });
        }
        let mut usable = vec![false; power.len()];
        let mut ratio = vec![0.0; power.len()];
        for bin in 1..=last {
            let response = sinc_squared(bin as f64 * step_hertz * length);
            if response >= RESPONSE_MIN {
                usable[bin] = true;
                ratio[bin] = power[bin] / response;
            }
        }
        let background = fit_background(&ratio, &usable, step_hertz, span, length, phases);
        for (bin, value) in ratio.iter_mut().enumerate() {
            *value /= background.level(bin as f64 * step_hertz);
        }
        Ok(Self {
            ratio,
            usable,
            step_hertz,
            first,
            last,
            background,
            interval_seconds: length,
            span_seconds: span,
            phases,
        })
    }

    /// Leaves out the frequencies of `periods_seconds`, their multiples, and with one scrape phase
    /// what they are folded to.
    pub fn exclude(&mut self, periods_seconds: &[f64]) {
        let top = self.last as f64 * self.step_hertz;
        let scrape = 1.0 / self.interval_seconds;
        // A line is as wide as one independent ordinate to each side.
        let width = 1.0 / self.span_seconds;
        for period in periods_seconds.iter().filter(|p| p.is_finite() && **p > 0.0) {
            for multiple in 1..=64_u32 {
                let hertz = f64::from(multiple) / period;
                let folded = (hertz - (hertz / scrape).round() * scrape).abs();
                if hertz <= top + width {
                    self.leave_out(hertz, width);
                }
                if self.phases == 1 {
                    self.leave_out(folded, width);
                }
            }
        }
    }

    fn leave_out(&mut self, hertz: f64, width: f64) {
        let low = index(((hertz - width) / self.step_hertz).ceil().max(0.0));
        let high = index((hertz + width) / self.step_hertz).min(self.usable.len() - 1);
        for bin in low..=high.max(low).min(self.usable.len() - 1) {
            self.usable[bin] = false;
        }
    }

    /// Lowest and highest frequency searched.
    #[must_use]
    pub fn band_hertz(&self) -> (f64, f64) {
        (self.first as f64 * self.step_hertz, self.last as f64 * self.step_hertz)
    }

    /// The fitted background.
    #[must_use]
    pub const fn background(&self) -> &Background {
        &self.background
    }

    /// The window's length.
    #[must_use]
    pub const fn span_seconds(&self) -> f64 {
        self.span_seconds
    }

    /// Independent ordinates in the band.
    #[must_use]
    pub fn independent(&self) -> f64 {
        (self.last - self.first + 1) as f64 * self.step_hertz * self.span_seconds
    }

    /// Distance of two ordinates, a quarter of an independent one or less.
    #[must_use]
    pub const fn step_hertz(&self) -> f64 {
        self.step_hertz
    }

    /// Power over background at the ordinate nearest to `hertz`; zero outside the band.
    #[must_use]
    pub fn ratio_at(&self, hertz: f64) -> f64 {
        let bin = index((hertz / self.step_hertz).round());
        self.usable_ratio(bin).unwrap_or(0.0)
    }

    /// All ordinates, power over background; zero where there is no information.
    #[must_use]
    pub fn ratios(&self) -> &[f64] {
        &self.ratio
    }

    /// Index of the first and the last ordinate of the band.
    pub(crate) const fn bins(&self) -> (usize, usize) {
        (self.first, self.last)
    }

    /// The ratio at one ordinate, none where it carries no information.
    pub(crate) fn usable_ratio(&self, bin: usize) -> Option<f64> {
        self.usable.get(bin).copied().unwrap_or(false).then(|| self.ratio[bin])
    }
}

/// One-sided power of `values`, padded to at least four times their length.
pub(crate) fn periodogram(values: &[f64]) -> Vec<f64> {
    periodogram_with(&mut RealFftPlanner::new(), values)
}

/// The same with plans that are kept.
pub(crate) fn periodogram_with(planner: &mut RealFftPlanner<f64>, values: &[f64]) -> Vec<f64> {
    let size = padded_length(values.len());
    let forward = planner.plan_fft_forward(size);
    let mut padded = vec![0.0; size];
    padded[..values.len()].copy_from_slice(values);
    let mut spectrum = forward.make_output_vec();
    let done = forward.process(&mut padded, &mut spectrum).is_ok();
    debug_assert!(done, "buffers come from the plan itself");
    spectrum.iter().map(realfft::num_complex::Complex::norm_sqr).collect()
}

/// The transform's length for a grid of `steps`.
pub(crate) const fn padded_length(steps: usize) -> usize {
    (OVERSAMPLING * steps).next_power_of_two()
}

/// `(sin πx / πx)²`.
pub(crate) fn sinc_squared(x: f64) -> f64 {
    let angle = PI * x;
    if angle.abs() < 1e-9 { 1.0 } else { (angle.sin() / angle).powi(2) }
}

fn lorentzian(hertz: f64, corner: f64) -> f64 {
    1.0 / (1.0 + (hertz / corner).powi(2))
}

/// One bin of the fit: how many ordinates, where, and their robust mean.
struct Bin {
    ordinates: f64,
    hertz: f64,
    level: f64,
}

fn fit_background(
    power: &[f64],
    usable: &[bool],
    step_hertz: f64,
    span: f64,
    length: f64,
    phases: usize,
) -> Background {
    // Only the independent ordinates; from two cycles a window, since the trend took the rest.
    let stride = 1.0 / (span * step_hertz);
    let independent: Vec<(f64, f64)> = (2..)
        .map(|k: u32| index((f64::from(k) * stride).round()))
        .take_while(|bin| *bin < usable.len())
        .filter(|bin| usable[*bin])
        .map(|bin| (bin as f64 * step_hertz, power[bin]))
        .collect();
    let bins = bins_of(&independent);
    let mean = bins.iter().map(|b| b.level * b.ordinates).sum::<f64>()
        / bins.iter().map(|b| b.ordinates).sum::<f64>().max(1.0);
    let floor = (mean * 1e-6).max(f64::MIN_POSITIVE);
    let model = |corner_hertz: f64| Background {
        white: mean.max(floor),
        red: 0.0,
        folded: 0.0,
        corner_hertz,
        scrape_hertz: 1.0 / length,
        one_phase: phases == 1,
        humps: Vec::new(),
    };
    let mut best = (f64::INFINITY, model(1.0));
    // Corners from half a cycle a window, which no window resolves, to half the scrape frequency.
    let (low, high) = (0.5 / span, 0.35 / length);
    let corners = 10_i32;
    for step in 0..corners {
        let mut trial = model(low * (high / low).powf(f64::from(step) / f64::from(corners - 1)));
        let shapes: Vec<[f64; 2]> = bins.iter().map(|b| trial.shapes(b.hertz)).collect();
        let mut parts = [trial.white, trial.white, trial.white];
        for _ in 0..FIT_STEPS {
            let (mut up, mut down) = ([0.0; 3], [floor.recip() * 1e-12; 3]);
            for (bin, [red, folded]) in bins.iter().zip(&shapes) {
                let level = (parts[0] + parts[1] * red + parts[2] * folded).max(floor);
                let (a, b) = (bin.ordinates * bin.level / (level * level), bin.ordinates / level);
                for (part, shape) in [1.0, *red, *folded].into_iter().enumerate() {
                    up[part] += a * shape;
                    down[part] += b * shape;
                }
            }
            // Multiplicative steps keep all parts positive and never lower the likelihood.
            for part in 0..3 {
                parts[part] *= (up[part] / down[part]).sqrt();
            }
            parts[0] = parts[0].max(floor);
        }
        (trial.white, trial.red, trial.folded) = (parts[0], parts[1], parts[2]);
        let cost: f64 = bins
            .iter()
            .map(|bin| {
                let level = trial.level(bin.hertz).max(floor);
                bin.ordinates * (level.ln() + bin.level / level)
            })
            .sum();
        if cost < best.0 {
            best = (cost, trial);
        }
    }
    best.1.lift(&bins);
    best.1
}

/// Logarithmic bins, each with the mean of its lower ordinates, scaled to the mean of them all.
fn bins_of(independent: &[(f64, f64)]) -> Vec<Bin> {
    let mut bins = Vec::with_capacity(BINS);
    let (Some(first), Some(end)) = (independent.first(), independent.last()) else {
        return bins;
    };
    let growth = (end.0 / first.0).powf(1.0 / BINS as f64).max(1.0 + 1e-9);
    let mut rest = independent;
    while !rest.is_empty() {
        let edge = rest[0].0 * growth;
        let within = rest.iter().take_while(|(hertz, _)| *hertz <= edge).count();
        let mut size = within.max(BIN_ORDINATES_MIN).min(rest.len());
        if rest.len() - size < BIN_ORDINATES_MIN {
            size = rest.len();
        }
        let (bin, after) = rest.split_at(size);
        rest = after;
        let mut values: Vec<f64> = bin.iter().map(|(_, power)| *power).collect();
        values.sort_by(f64::total_cmp);
        let keep = size - index(TRIM_SHARE * size as f64);
        let sum: f64 = values[..keep].iter().sum();
        bins.push(Bin {
            ordinates: keep as f64,
            hertz: (bin.iter().map(|(hertz, _)| hertz.ln()).sum::<f64>() / size as f64).exp(),
            level: sum / keep as f64 / lowest_of_exponentials(keep, size),
        });
    }
    bins
}

/// Expected mean of the lowest `keep` of `size` exponential variables of mean one: the `i`-th
/// smallest has the expectation `Σ_{j<i} 1/(size - j)`.
fn lowest_of_exponentials(keep: usize, size: usize) -> f64 {
    let mut expectation = 0.0;
    let mut sum = 0.0;
    for rank in 0..keep {
        expectation += 1.0 / (size - rank) as f64;
        sum += expectation;
    }
    sum / keep as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling};
    use crate::detect::even::Count;
    use std::f64::consts::TAU;

    #[test]
    fn the_fast_periodogram_is_the_naive_sum() {
        let values: Vec<f64> = (0..150).map(|k| f64::from((k * k * 31) % 17) - 8.0).collect();
        let fast = periodogram(&values);
        let size = padded_length(values.len());
        let total: f64 = values.iter().map(|v| v * v).sum::<f64>() * 150.0;
        for bin in [0, 1, 7, 100, 255, 511, 512] {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for (cell, value) in values.iter().enumerate() {
                let angle = TAU * (bin * cell) as f64 / size as f64;
                real += value * angle.cos();
                imaginary -= value * angle.sin();
            }
            let naive = real * real + imaginary * imaginary;
            assert!((fast[bin] - naive).abs() < 1e-12 * total, "{bin}: {} {naive}", fast[bin]);
        }
    }

    #[test]
    fn noise_of_any_colour_has_a_mean_ratio_of_one() {
        let noises = [
            Noise::white(50.0, 1.0),
            Noise { rate: 100.0, dispersion: 3.0, red: 0.4, memory_seconds: 10.0 },
        ];
        for noise in noises {
            for sampling in [Sampling::new(1.0, 1, 300.0), Sampling::new(15.0, 20, 900.0)] {
                let (mut sum, mut count) = (0.0, 0.0);
                for seed in 0..30 {
                    let intervals =
                        Draw::new(seed, sampling.window_seconds).noise(noise).scrape(sampling);
                    let even = EvenResiduals::new(&intervals, Count::Requests).unwrap();
                    let spectrum = Spectrum::new(&even).unwrap();
                    let (first, last) = spectrum.bins();
                    for ratio in (first..=last).filter_map(|bin| spectrum.usable_ratio(bin)) {
                        sum += ratio;
                        count += 1.0;
                    }
                }
                let mean = sum / count;
                assert!((mean - 1.0).abs() < 0.12, "{noise:?} {sampling:?}: {mean}");
            }
        }
    }

    #[test]
    fn the_lowest_of_exponentials_have_their_known_means() {
        // One of one has the mean itself; the lower of two has half of it.
        assert!((lowest_of_exponentials(1, 1) - 1.0).abs() < 1e-12);
        assert!((lowest_of_exponentials(1, 2) - 0.5).abs() < 1e-12);
        assert!((lowest_of_exponentials(2, 2) - 1.0).abs() < 1e-12);
    }
}
