//! The comb of lags that a continuing outage leaves in the autocorrelation.
//!
//! While an outage lasts, clients keep failing and have no common start, so there are no waves to
//! see and nothing to fit a train to. But whoever failed in this second comes back after one base
//! wait, after two more, and so on: each chance excess of failures is echoed at the instants of
//! the schedule. The autocorrelation has a tooth at every wait and every sum of successive waits
//! (for doubling from 1 s: at 2^a - 2^b). Each tooth alone is lost in the noise of a few hundred
//! scrapes; together they are not. Taking the highest single lag finds a tooth in nearly any
//! noise, and shows nothing of the schedule.
//!
//! # Method
//!
//! ```text
//! A(l)  = Σ_f (ratio(f) - 1) cos(2πfl)          autocovariance with the red noise divided out
//! c(l)  = mean of A near l - mean of A at control lags beside it
//! T_s   = Σ_l w_l c(l)                          over the teeth l of schedule s
//! z_s   = T_s / sd(T_s),   z = max over the bank
//! ```
//!
//! The control lags of a tooth lie to both sides of it and within no other tooth: an
//! autocorrelation that is smooth there, as jittered retries and slow traffic leave it, cancels.
//! A tooth is weighted by the chance that clients make that many retries. The bank goes over base,
//! factor, cap and attempt latency; its largest `z` over draws of white noise, through the same
//! spectrum band and the same sums, is Gumbel distributed, and the p-value is read from that law:
//! it has the look elsewhere in it. Where the observed autocorrelation is rougher than white noise
//! makes it, `z` is scaled down by as much.
//!
//! # Assumptions and what happens when they fail
//!
//! * Whoever fails, fails again within the window. Where only part of the attempts fail, errors
//!   are the better counts: they have little under them that is no echo.
//! * The window starts after the first rise of the outage. The step itself is no echo, and one
//!   within the window takes about a quarter off `z`; some ten seconds later it is gone.
//! * Teeth under one scrape interval cannot be seen, and a schedule with fewer than four teeth
//!   between that and a third of the window is not in the bank.
//! * A fixed delay has a comb of one spacing, as any periodic load has. This test does not tell a
//!   cron job from a client; `wall_clock` does.
//!
//! # Cost
//!
//! One test is one FFT and some 100,000 multiplications. A bank costs several hundred times that,
//! most of it for the draws, and serves every window of the same shape: keep it.
//!
//! # Example
//!
//! ```
//! use squall::detect::comb::{CombBank, find_comb};
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::detect::spectrum::Spectrum;
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! // Bursts at pseudo-random seconds, each echoed 2, 6, 14 and 30 s later.
//! let mut counts = vec![40.0_f64; 600];
//! let mut state = 12_345_u64;
//! for second in 0..600 {
//!     state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
//!     let burst = (state >> 60) as f64;
//!     for echo in [0, 2, 6, 14, 30] {
//!         if let Some(count) = counts.get_mut(second + echo) {
//!             *count += burst;
//!         }
//!     }
//! }
//! let intervals: Vec<Interval> = (0..).zip(&counts)
//!     .map(|(second, count): (i32, &f64)| Interval {
//!         target: TargetId(0),
//!         from: Timestamp::from_seconds(f64::from(second)),
//!         to: Timestamp::from_seconds(f64::from(second + 1)),
//!         requests: *count,
//!         errors: *count,
//!     })
//!     .collect();
//! let even = EvenResiduals::new(&intervals, Count::Errors).expect("600 intervals");
//! let spectrum = Spectrum::new(&even).expect("a band");
//! let bank = CombBank::new(&even, &spectrum).expect("lags from one second to 130");
//! let comb = find_comb(&spectrum, &bank);
//!
//! assert!(comb.p_value < 0.001, "{comb:?}");
//! assert!((comb.base_seconds - 2.0).abs() < 0.2 && (comb.factor - 2.0).abs() < 0.01, "{comb:?}");
//! ```
//!
//! # References
//!
//! * M. S. Bartlett. On the theoretical specification and sampling properties of autocorrelated
//!   time-series. *Supplement to the Journal of the Royal Statistical Society* 8(1), 27-41, 1946.
//!   <https://doi.org/10.2307/2983611>
//! * E. J. Gumbel. *Statistics of Extremes*. Columbia University Press, 1958.
//!   <https://doi.org/10.7312/gumb92958>

#![expect(
    clippy::suboptimal_flops,
    reason = "a fused multiply-add is a library call on the default target"
)]

use std::f64::consts::PI;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use crate::detect::NotEnough;
use crate::detect::even::{EvenResiduals, index, median};
use crate::detect::spectrum::{Spectrum, periodogram_with};

/// Longest lag: a sum of waits beyond two minutes needs an outage longer than most.
const LAG_SECONDS_MAX: f64 = 130.0;

/// Longest lag as a share of the window: beyond it too few pairs are left.
const LAG_SHARE_MAX: f64 = 1.0 / 3.0;

/// Fewest teeth that make a comb.
const TEETH_MIN: usize = 4;

/// Bases searched, and their spacing: a tooth is widened by nearly half of it.
const BASE_SECONDS_MIN: f64 = 0.4;
const BASE_SECONDS_MAX: f64 = 16.0;
const BASE_SPACING: f64 = 0.04;

/// Half the width of a tooth as a share of its lag, for bases beside the grid.
const TOOTH_SHARE: f64 = 0.015;

/// Control lags reach so far beside a tooth, as a share of its lag and in scrape intervals.
const CONTROL_SHARE: f64 = 0.12;
const CONTROL_INTERVALS: f64 = 2.0;

/// Factors and caps that the client libraries use.
const FACTORS: [f64; 6] = [1.0, 1.5, 1.6, 2.0, 2.5, 3.0];
const CAPS_SECONDS: [f64; 4] = [8.0, 15.0, 30.0, f64::INFINITY];

/// Time from an attempt to its failure.
const LATENCIES_SECONDS: [f64; 2] = [0.02, 0.2];

/// Retries followed, and the share of clients that make so many: most stop after three to seven.
const RETRY_SHARES: [f64; 10] = [1.0, 1.0, 0.95, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2];

/// Draws of white noise that the law of the maximum is fitted to: its location and scale are then
/// known to about 5 %.
const DRAWS: u64 = 300;

/// Any seed does; it is fixed so that two runs agree.
const SEED: u64 = 0x5eed_c0b5;

/// Euler's constant, the mean of the standard Gumbel law.
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

/// One schedule of the bank.
#[derive(Debug, Clone)]
struct Entry {
    base_seconds: f64,
    factor: f64,
    cap_seconds: f64,
    latency_seconds: f64,
    teeth: Vec<f64>,
    controls: usize,
    // Lag in steps and what A there adds to the sum, teeth positive, controls negative.
    terms: Vec<(u32, f32)>,
    // Invariant: positive.
    sd: f64,
}

/// Schedules and the law of their largest `z` under noise, for windows of one shape.
#[derive(Debug, Clone)]
pub struct CombBank {
    entries: Vec<Entry>,
    step_seconds: f64,
    size: usize,
    bins: (usize, usize),
    lags: usize,
    first_lag: usize,
    noise_sd: f64,
    location: f64,
    scale: f64,
}

/// The comb that stands out most and how sure it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Comb {
    /// The first wait.
    pub base_seconds: f64,
    /// The growth of the waits; 1 for a fixed delay.
    pub factor: f64,
    /// The longest wait, none where the schedule has no cap within the window.
    pub cap_seconds: Option<f64>,
    /// Time from an attempt to its failure.
    pub latency_seconds: f64,
    /// Standard deviations over the control lags.
    pub z: f64,
    /// Probability of so high a `z` anywhere in the bank from noise alone.
    pub p_value: f64,
    /// The teeth, seconds, and how far each stands out, in standard deviations.
    pub teeth: Vec<(f64, f64)>,
    /// Control steps used.
    pub controls: usize,
}

impl CombBank {
    /// Builds the bank for windows shaped as `even`.
    ///
    /// # Errors
    ///
    /// [`NotEnough`] when no schedule has four teeth between the scrape interval and a third of the
    /// window: `need` is the window in scrape intervals that it would take.
    pub fn new(even: &EvenResiduals, spectrum: &Spectrum) -> Result<Self, NotEnough> {
        let step = even.step_seconds();
        let interval = even.interval_seconds();
        let longest = LAG_SECONDS_MAX.min(even.span_seconds() * LAG_SHARE_MAX);
        let lags = index(longest / step) + 1;
        let first_lag = index((interval / step).ceil());
        let mut bank = Self {
            entries: Vec::new(),
            step_seconds: step,
            size: 2 * (spectrum.ratios().len() - 1),
            bins: spectrum.bins(),
            lags,
            first_lag,
            noise_sd: 1.0,
            location: 0.0,
            scale: 1.0,
        };
        let resolution = 0.5 / spectrum.band_hertz().1;
        let mut base = BASE_SECONDS_MIN.max(interval);
        while base <= BASE_SECONDS_MAX.min(longest) {
            for factor in FACTORS {
                for cap in CAPS_SECONDS {
                    let capped = factor > 1.0 && cap > base && cap < longest / 2.0;
                    if !capped && cap.is_finite() {
                        continue;
                    }
                    for latency in LATENCIES_SECONDS {
                        bank.entries.extend(bank.entry([base, factor, cap, latency], resolution));
                    }
                }
            }
            base *= 1.0 + BASE_SPACING;
        }
        if bank.entries.is_empty() {
            let have = index(even.span_seconds() / interval);
            return Err(NotEnough { have, need: 4 * INTERVALS_FOR_FOUR_TEETH });
        }
        bank.calibrate(even.len(), spectrum);
        Ok(bank)
    }

    /// Schedules in the bank.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the bank has no schedule; never so for one that was built.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether windows shaped as `even` can use this bank.
    #[must_use]
    pub fn serves(&self, spectrum: &Spectrum, even: &EvenResiduals) -> bool {
        self.size == 2 * (spectrum.ratios().len() - 1)
            && self.bins.1 == spectrum.bins().1
            && self.bins.0.abs_diff(spectrum.bins().0) <= 1
            && (self.step_seconds - even.step_seconds()).abs() < 1e-3 * self.step_seconds
    }

    fn entry(&self, policy: [f64; 4], resolution: f64) -> Option<Entry> {
        let [base, factor, cap, latency] = policy;
        let longest = (self.lags - 1) as f64 * self.step_seconds;
        let mut instants = vec![0.0];
        let mut wait = base;
        for _ in RETRY_SHARES {
            instants.push(instants[instants.len() - 1] + wait.min(cap) + latency);
            wait *= factor;
        }
        // Every retry is an echo of each earlier attempt of the same client.
        let mut teeth: Vec<(f64, f64)> = Vec::new();
        for (later, share) in (1..instants.len()).zip(RETRY_SHARES) {
            for earlier in 0..later {
                let lag = instants[later] - instants[earlier];
                if lag < self.first_lag as f64 * self.step_seconds || lag > longest {
                    continue;
                }
                match teeth.iter_mut().find(|(l, _)| (*l - lag).abs() < 0.5 * resolution) {
                    Some((_, weight)) => *weight += share,
                    None => teeth.push((lag, share)),
                }
            }
        }
        teeth.sort_by(|a, b| a.0.total_cmp(&b.0));
        let half = |lag: f64| (0.5 * resolution).max(TOOTH_SHARE * lag);
        // Steps that lie within any tooth are controls of none.
        let mut taken = vec![false; self.lags];
        for (lag, _) in &teeth {
            let reach = half(*lag) + 0.5 * resolution;
            taken[self.steps(lag - reach, lag + reach)].fill(true);
        }
        let mut terms = vec![0.0_f64; self.lags];
        let mut kept = Vec::new();
        let mut controls = 0;
        for (lag, weight) in &teeth {
            let reach = half(*lag)
                + resolution
                + (CONTROL_INTERVALS * resolution * 2.0).max(CONTROL_SHARE * lag);
            let steps = self.steps(lag - reach, lag + reach);
            let beside: Vec<usize> = steps.clone().filter(|s| !taken[*s]).collect();
            let tooth: Vec<usize> = steps
                .filter(|s| (*s as f64 * self.step_seconds - lag).abs() <= half(*lag))
                .collect();
            let middle = beside.partition_point(|s| (*s as f64 * self.step_seconds) < *lag);
            let (left, right) = beside.split_at(middle);
            if tooth.is_empty() || left.is_empty() || right.is_empty() {
                continue;
            }
            for step in &tooth {
                terms[*step] += weight / tooth.len() as f64;
            }
            // Both sides weigh the same, so that a slope cancels too.
            for side in [left, right] {
                for step in side {
                    terms[*step] -= 0.5 * weight / side.len() as f64;
                }
            }
            controls += beside.len();
            kept.push(*lag);
        }
        if kept.len() < TEETH_MIN {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "weights of a sum need seven digits")]
        let terms = (0_u32..)
            .zip(&terms)
            .filter(|(_, weight)| weight.abs() > 0.0)
            .map(|(lag, weight)| (lag, *weight as f32))
            .collect();
        Some(Entry {
            base_seconds: base,
            factor,
            cap_seconds: cap,
            latency_seconds: latency,
            teeth: kept,
            controls,
            terms,
            sd: 1.0,
        })
    }

    /// The steps whose lags lie between, within the lags of the bank.
    fn steps(&self, low: f64, high: f64) -> std::ops::RangeInclusive<usize> {
        let first = index((low / self.step_seconds).ceil().max(0.0)).max(self.first_lag);
        first..=index(high / self.step_seconds).min(self.lags - 1)
    }

    /// Fits the law of the largest `z` to draws of white noise.
    fn calibrate(&mut self, steps: usize, spectrum: &Spectrum) {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut planner = RealFftPlanner::<f64>::new();
        let mut sums =
            vec![Vec::with_capacity(usize::try_from(DRAWS).unwrap_or(0)); self.entries.len()];
        let mut noise_sds = Vec::new();
        for _ in 0..DRAWS {
            let values: Vec<f64> = (0..steps).map(|_| StandardNormal.sample(&mut random)).collect();
            let power = periodogram_with(&mut planner, &values);
            let acf = self.autocovariance(&mut planner, spectrum, |bin| power[bin] / steps as f64);
            noise_sds.push(roughness(&acf[self.first_lag..]));
            for (entry, sums) in self.entries.iter().zip(&mut sums) {
                sums.push(entry.sum(&acf));
            }
        }
        self.noise_sd = median(&mut noise_sds);
        for (entry, sums) in self.entries.iter_mut().zip(&sums) {
            let square = sums.iter().map(|s| s * s).sum::<f64>() / sums.len() as f64;
            entry.sd = square.sqrt().max(f64::MIN_POSITIVE);
        }
        let maxima: Vec<f64> = (0..sums[0].len())
            .map(|draw| {
                let z = self.entries.iter().zip(&sums).map(|(e, sums)| sums[draw] / e.sd);
                z.fold(f64::NEG_INFINITY, f64::max)
            })
            .collect();
        let mean = maxima.iter().sum::<f64>() / maxima.len() as f64;
        let variance =
            maxima.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / (maxima.len() - 1) as f64;
        // Moments of the Gumbel law: variance π²/6 · scale², mean location + γ · scale.
        self.scale = variance.sqrt() * 6.0_f64.sqrt() / PI;
        self.location = mean - EULER_GAMMA * self.scale;
    }

    /// `A(l)` for all lags of the bank, from ratios in the band.
    fn autocovariance(
        &self,
        planner: &mut RealFftPlanner<f64>,
        spectrum: &Spectrum,
        ratio: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let (first, last) = spectrum.bins();
        let inverse = planner.plan_fft_inverse(self.size);
        let mut bins = inverse.make_input_vec();
        for (bin, value) in bins.iter_mut().enumerate().take(last + 1).skip(first) {
            if spectrum.usable_ratio(bin).is_some() {
                *value = Complex::new(ratio(bin) - 1.0, 0.0);
            }
        }
        let mut acf = inverse.make_output_vec();
        let done = inverse.process(&mut bins, &mut acf).is_ok();
        debug_assert!(done, "buffers come from the plan itself");
        acf.truncate(self.lags);
        acf
    }
}

/// A doubling schedule from one scrape interval has its fourth tooth at six of them.
const INTERVALS_FOR_FOUR_TEETH: usize = 6;

impl Entry {
    fn sum(&self, acf: &[f64]) -> f64 {
        self.terms.iter().map(|(lag, weight)| acf[*lag as usize] * f64::from(*weight)).sum()
    }
}

/// Finds the comb of the bank that stands out most.
#[must_use]
pub fn find_comb(spectrum: &Spectrum, bank: &CombBank) -> Comb {
    let mut planner = RealFftPlanner::<f64>::new();
    let acf = bank
        .autocovariance(&mut planner, spectrum, |bin| spectrum.usable_ratio(bin).unwrap_or(1.0));
    let rough = (roughness(&acf[bank.first_lag..]) / bank.noise_sd).max(1.0);
    let mut best = (f64::NEG_INFINITY, &bank.entries[0]);
    for entry in &bank.entries {
        let z = entry.sum(&acf) / entry.sd / rough;
        if z > best.0 {
            best = (z, entry);
        }
    }
    let (z, entry) = best;
    let teeth = entry
        .teeth
        .iter()
        .map(|lag| {
            let near = bank.steps(lag - 0.5 * bank.step_seconds, lag + 0.5 * bank.step_seconds);
            let value = near.map(|s| acf[s]).fold(f64::NEG_INFINITY, f64::max);
            (*lag, value / bank.noise_sd / rough)
        })
        .collect();
    let tail = (-(z - bank.location) / bank.scale).exp();
    Comb {
        base_seconds: entry.base_seconds,
        factor: entry.factor,
        cap_seconds: entry.cap_seconds.is_finite().then_some(entry.cap_seconds),
        latency_seconds: entry.latency_seconds,
        z,
        p_value: -(-tail).exp_m1(),
        teeth,
        controls: entry.controls,
    }
}

/// Scaled median of the absolute values: `1.4826 = 1 / Phi^-1(3/4)` makes it a standard deviation
/// of normal noise, and teeth, being few, hardly move it.
fn roughness(values: &[f64]) -> f64 {
    let mut absolute: Vec<f64> = values.iter().map(|v| v.abs()).collect();
    1.4826 * median(&mut absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling, rejects};
    use crate::detect::even::Count;
    use rand::RngExt;

    fn comb_of(draw: Draw, sampling: Sampling, bank: &mut Option<CombBank>) -> Comb {
        let even = EvenResiduals::new(&draw.scrape(sampling), Count::Errors).unwrap();
        let spectrum = Spectrum::new(&even).unwrap();
        if bank.as_ref().is_none_or(|b| !b.serves(&spectrum, &even)) {
            *bank = Some(CombBank::new(&even, &spectrum).unwrap());
        }
        find_comb(&spectrum, bank.as_ref().unwrap())
    }

    const WINDOW: f64 = 300.0;

    /// P-values of `draws` windows of 300 s at 1 s, one target.
    fn p_values(draws: u64, make: impl Fn(u64) -> Draw) -> Vec<f64> {
        let sampling = Sampling::new(1.0, 1, WINDOW);
        let mut bank = None;
        (0..draws).map(|seed| comb_of(make(seed), sampling, &mut bank).p_value).collect()
    }

    #[test]
    fn p_values_are_uniform_under_red_and_over_dispersed_noise() {
        let noises = [
            Noise::white(100.0, 1.0),
            Noise::white(100.0, 6.0),
            Noise { rate: 100.0, dispersion: 1.5, red: 0.3, memory_seconds: 5.0 },
            Noise { rate: 100.0, dispersion: 1.5, red: 0.3, memory_seconds: 30.0 },
        ];
        for noise in noises {
            let p = p_values(150, |seed| Draw::new(seed, WINDOW).noise(noise));
            for level in [0.01, 0.05, 0.1, 0.25] {
                let (share, bound) = rejects(&p, level);
                assert!(share <= bound, "{noise:?}: {share} at {level}, bound {bound}");
            }
            // Not merely conservative: small p-values do occur.
            assert!(rejects(&p, 0.5).0 > 0.2, "{noise:?}: {:?}", rejects(&p, 0.5));
        }
    }

    #[test]
    fn an_outage_with_full_jitter_has_no_comb() {
        let p = p_values(100, |seed| {
            Draw::new(seed, WINDOW).outage([-70.0, WINDOW], 50.0, 6, |random, retry| {
                random.random::<f64>() * 2f64.powi(i32::try_from(retry).unwrap())
            })
        });
        for level in [0.01, 0.05, 0.2] {
            let (share, bound) = rejects(&p, level);
            assert!(share <= bound, "{share} at {level}, bound {bound}");
        }
    }

    #[test]
    fn an_outage_without_jitter_shows_its_schedule() {
        let sampling = Sampling::new(1.0, 4, 600.0);
        let mut bank = None;
        let combs: Vec<Comb> = (0..25)
            .map(|seed| {
                let draw = Draw::new(seed, 600.0).outage([-70.0, 600.0], 50.0, 6, |_, retry| {
                    2f64.powi(i32::try_from(retry).unwrap()) + 0.02
                });
                comb_of(draw, sampling, &mut bank)
            })
            .collect();
        let found: Vec<&Comb> = combs.iter().filter(|c| c.p_value < 0.01).collect();
        assert!(found.len() >= 20, "{} of 25", found.len());
        let named = found
            .iter()
            .filter(|c| (c.base_seconds - 1.0).abs() < 0.1 && (c.factor - 2.0).abs() < 0.01)
            .count();
        assert!(named * 10 >= found.len() * 7, "{named} of {}", found.len());
    }

    #[test]
    fn a_window_without_room_for_four_teeth_has_no_bank() {
        let sampling = Sampling::new(15.0, 1, 450.0);
        let draw = Draw::new(1, 450.0).noise(Noise::white(20.0, 1.0));
        let even = EvenResiduals::new(&draw.scrape(sampling), Count::Requests).unwrap();
        let without = Spectrum::new(&even).map(|spectrum| CombBank::new(&even, &spectrum).err());
        assert!(without.is_err() || without.is_ok_and(|e| e.is_some()));
    }
}
