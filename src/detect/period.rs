//! A true period: fixed delays, and exponential schedules once they reach their cap.
//!
//! Narrow waves put their power into many harmonics, so the largest single ordinate (Fisher's g)
//! misses trains of 32 s and 60 s entirely and names a harmonic of many others. Summing the
//! harmonics of each candidate finds them: with the background divided out the sum of `m`
//! ordinates is an Erlang variable of order `m`.
//!
//! # Method
//!
//! ```text
//! H_m(f) = Σ_{k=1..m} ratio(k·f),  m = 1, 2, 4, 8, 16
//! p_1    = min over f and m of P(Erlang(m) > H_m(f))
//! p      = 1 - (1 - p_1)^trials
//! ```
//!
//! This is the `Z²_m` search of X-ray astronomy, on counts of intervals instead of single photons.
//! `trials` is the number of independent ordinates in the band of each `m`, times a factor for the
//! denser grid they are searched on; the factor is measured (see the calibration test), and the
//! p-value is uniform under red and over-dispersed noise.
//!
//! The best candidate is then moved to its fundamental: to `f/q` when harmonics that are no
//! multiples of `q` hold power of their own, to `q·f` when only the multiples of `q` do. The
//! frequency is refined off the grid, and its 95 % interval is where the log-likelihood, which
//! `H_m` is, has fallen by 1.92. Last, the train is followed cycle by cycle: a period is one only
//! where at least three cycles carry it and no single one carries most.
//!
//! # Assumptions and what happens when they fail
//!
//! * The period is steady. One that drifts by more than `1/m` of a cycle over the window loses its
//!   high harmonics and is found by a smaller `m`.
//! * A train has at least three cycles in the window. Others are not searched for.
//!
//! # Cost
//!
//! Five sums a frequency, after one FFT; the refinement costs some hundred passes over the grid and
//! runs only where the p-value is small.
//!
//! # Example
//!
//! ```
//! use squall::detect::even::{Count, EvenResiduals};
//! use squall::detect::period::{find_period, PeriodSearch};
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
//!         requests: 50.0 + noise(second) + if second % 20 == 3 { 60.0 } else { 0.0 },
//!         errors: 0.0,
//!     })
//!     .collect();
//! let even = EvenResiduals::new(&intervals, Count::Requests).expect("240 intervals");
//! let period = find_period(&even, &PeriodSearch::default()).expect("a band to search");
//!
//! // Named by its fundamental, though most of the power stands in harmonics.
//! assert!((period.seconds - 20.0).abs() < 0.1, "{period:?}");
//! assert!(period.p_value < 1e-6 && period.cycles_present == 12);
//! // Periods that are the exporter's own are no evidence.
//! let flush = PeriodSearch { excluded_seconds: vec![20.0] };
//! assert!(find_period(&even, &flush).expect("a band").p_value > 0.01);
//! ```
//!
//! # References
//!
//! * R. A. Fisher. Tests of significance in harmonic analysis. *Proceedings of the Royal Society A*
//!   125(796), 54-59, 1929. <https://doi.org/10.1098/rspa.1929.0151>
//! * R. Buccheri et al. Search for pulsed gamma-ray emission from radio pulsars in the COS-B data.
//!   *Astronomy and Astrophysics* 128, 245-251, 1983.
//! * R. V. Baluev. Assessing the statistical significance of periodogram peaks. *Monthly Notices of
//!   the Royal Astronomical Society* 385(3), 1279-1285, 2008.
//!   <https://doi.org/10.1111/j.1365-2966.2008.12689.x>

#![expect(
    clippy::suboptimal_flops,
    reason = "a fused multiply-add is a library call on the default target"
)]

use std::f64::consts::TAU;

use crate::detect::NotEnough;
use crate::detect::even::{EvenResiduals, index};
use crate::detect::spectrum::{REPEATS_MIN, Spectrum};
use crate::series::Timestamp;

/// How many harmonics are summed: a smooth wave has one, a wave of a twentieth of the period
/// some sixteen.
const HARMONICS: [usize; 5] = [1, 2, 4, 8, 16];

/// Trials for each independent ordinate of each band: four times denser than independent, and the
/// sums of neighbouring frequencies are alike. Measured on white and red noise.
const TRIALS_PER_ORDINATE: f64 = 2.0;

/// Harmonics between those of the candidate must be this unlikely by chance to move it down.
const SUBHARMONIC_LEVEL: f64 = 1e-3;

/// Power between the candidate's harmonics under this share of theirs is leakage.
const LEAK_MAX: f64 = 0.1;

/// Mean of the highest of three neighbouring ordinates, of which four are one independent one.
const MEAN_OF_THREE: f64 = 1.5;

/// Above this p-value nobody looks at the period: it is left unrefined.
const REFINE_BELOW: f64 = 0.2;

/// Fall of the log-likelihood at the ends of a 95 % interval: half the 95 % quantile of a
/// chi-squared variable with one degree of freedom.
const LIKELIHOOD_DROP: f64 = 1.920_729;

/// A cycle carries the train when its own amplitude is at least this share of the mean one.
const CYCLE_SHARE_MIN: f64 = 0.1;

/// What a search leaves out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeriodSearch {
    /// Periods that are the exporter's or the scraper's own (flush intervals), with their
    /// harmonics and what a scrape folds them to.
    pub excluded_seconds: Vec<f64>,
}

/// The most likely period and how sure it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// The period.
    pub seconds: f64,
    /// Its 95 % interval.
    pub interval_seconds: [f64; 2],
    /// Probability of a train at least this clear, anywhere in the band, from noise alone.
    pub p_value: f64,
    /// Sum of the ordinates over their background.
    pub power: f64,
    /// Ordinates summed.
    pub harmonics: usize,
    /// Cycles that fit into the window.
    pub repeats: f64,
    /// Cycles that carry the train.
    pub cycles_present: usize,
    /// Share of the train's power that the strongest cycle carries.
    pub strongest_cycle_share: f64,
    /// The middle of the first wave.
    pub first_wave_at: Timestamp,
}

impl Period {
    /// Whether the train is one of at least three cycles, of which none carries most.
    #[must_use]
    pub fn repeats_enough(&self) -> bool {
        self.cycles_present >= REPEATS_MIN && self.strongest_cycle_share < 0.6
    }
}

/// Finds the most likely period of `even`, with its p-value.
///
/// # Errors
///
/// [`NotEnough`] when the window and the scrape phases leave no band to search.
pub fn find_period(even: &EvenResiduals, search: &PeriodSearch) -> Result<Period, NotEnough> {
    let mut spectrum = Spectrum::new(even)?;
    spectrum.exclude(&search.excluded_seconds);
    Ok(find_period_in(even, &spectrum))
}

/// The same on a spectrum that was already taken.
#[must_use]
pub fn find_period_in(even: &EvenResiduals, spectrum: &Spectrum) -> Period {
    let (first, last) = spectrum.bins();
    let step = spectrum.step_hertz();
    let span = even.span_seconds();
    let mut best = Candidate { tail_ln: 0.0, hertz: first as f64 * step, harmonics: 1, power: 0.0 };
    let mut trials = 0.0;
    let independent = spectrum.independent();
    for harmonics in HARMONICS {
        if first * harmonics > last {
            break;
        }
        trials += (last - first * harmonics + 1) as f64 * step * span;
        // The top harmonic moves by one ordinate at a time, the fundamental by a fraction of one.
        for top in first * harmonics..=last {
            let (mut power, mut order) = (0.0, 0);
            for harmonic in 1..=harmonics {
                let bin = (top * harmonic + harmonics / 2) / harmonics;
                if let Some(ratio) = spectrum.usable_ratio(bin) {
                    power += ratio;
                    order += 1;
                }
            }
            // A sum that lost half of its harmonics to exclusions is another sum's business.
            if order == 0 || order * 2 < harmonics {
                continue;
            }
            let tail_ln = erlang_tail_ln(order, allow_for_background(power, independent));
            if tail_ln < best.tail_ln {
                let hertz = top as f64 * step / harmonics as f64;
                best = Candidate { tail_ln, hertz, harmonics, power };
            }
        }
    }
    let p_value = look_elsewhere(best.tail_ln, trials * TRIALS_PER_ORDINATE);
    let mut hertz = best.hertz;
    let mut interval = [1.0 / hertz, 1.0 / hertz];
    if p_value < REFINE_BELOW {
        hertz = refine(even, spectrum, best.hertz, best.harmonics);
        let fundamental = fundamental(spectrum, hertz, best.harmonics);
        let harmonics = HARMONICS
            .into_iter()
            .rev()
            .find(|m| {
                fundamental * *m as f64 <= spectrum.band_hertz().1 && *m <= 2 * best.harmonics
            })
            .unwrap_or(1);
        hertz = refine(even, spectrum, fundamental, harmonics);
        interval = interval_of(even, spectrum, hertz, harmonics);
        best.harmonics = harmonics;
    }
    let cycles = cycles(even, spectrum, hertz, best.harmonics);
    Period {
        seconds: 1.0 / hertz,
        interval_seconds: interval,
        p_value,
        power: best.power,
        harmonics: best.harmonics,
        repeats: span * hertz,
        cycles_present: cycles.present,
        strongest_cycle_share: cycles.strongest_share,
        first_wave_at: even.start().plus_seconds(cycles.peak_seconds),
    }
}

struct Candidate {
    tail_ln: f64,
    hertz: f64,
    harmonics: usize,
    power: f64,
}

/// `1 - (1 - p)^trials` from `ln p`, without cancellation.
pub(crate) fn look_elsewhere(tail_ln: f64, trials: f64) -> f64 {
    let single = tail_ln.exp().min(1.0);
    if single >= 1.0 { 1.0 } else { -(trials * (-single).ln_1p()).exp_m1() }
}

/// A sum of ratios as it would be were the background known: the level is itself an estimate from
/// about as many `ordinates` as the band has, which turns the exponential tail `exp(-x)` into
/// `(1 + x/ordinates)^-ordinates`.
pub(crate) fn allow_for_background(power: f64, ordinates: f64) -> f64 {
    ordinates * (power / ordinates).ln_1p()
}

/// `ln P(X > x)` for an Erlang variable of `order` and rate one.
pub(crate) fn erlang_tail_ln(order: usize, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..order {
        term *= x / k as f64;
        sum += term;
    }
    sum.ln() - x
}

/// The transform at any frequency: real and imaginary part.
fn transform(values: &[f64], cycles_per_step: f64) -> (f64, f64) {
    // A rotation by a fixed angle, renewed now and then against drift.
    let (sin_step, cos_step) = (TAU * cycles_per_step).sin_cos();
    let (mut real, mut imaginary) = (0.0, 0.0);
    for (block, chunk) in values.chunks(256).enumerate() {
        let (mut sin, mut cos) = (TAU * (cycles_per_step * (block * 256) as f64).fract()).sin_cos();
        for value in chunk {
            real += value * cos;
            imaginary -= value * sin;
            (sin, cos) = (sin * cos_step + cos * sin_step, cos * cos_step - sin * sin_step);
        }
    }
    (real, imaginary)
}

/// `H_m` off the grid.
fn power_at(even: &EvenResiduals, spectrum: &Spectrum, hertz: f64, harmonics: usize) -> f64 {
    (1..=harmonics).map(|k| k as f64 * hertz).map(|f| ordinate(even, spectrum, f)).sum()
}

fn ordinate(even: &EvenResiduals, spectrum: &Spectrum, hertz: f64) -> f64 {
    let bin = index((hertz / spectrum.step_hertz()).round());
    if spectrum.usable_ratio(bin).is_none() {
        return 0.0;
    }
    let (real, imaginary) = transform(even.values(), hertz * even.step_seconds());
    let response = crate::detect::spectrum::sinc_squared(hertz * even.interval_seconds());
    (real * real + imaginary * imaginary) / response / spectrum.background().level(hertz)
}

/// Climbs `H_m` from `hertz` to its nearest maximum, by golden sections of one ordinate's width.
fn refine(even: &EvenResiduals, spectrum: &Spectrum, hertz: f64, harmonics: usize) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let width = spectrum.step_hertz() / harmonics as f64;
    let (mut low, mut high) = (hertz - width, hertz + width);
    let at = |f: f64| power_at(even, spectrum, f, harmonics);
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_left, mut at_right) = (at(left), at(right));
    for _ in 0..16 {
        if at_left > at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - GOLDEN * (high - low);
            at_left = at(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + GOLDEN * (high - low);
            at_right = at(right);
        }
    }
    f64::midpoint(low, high)
}

/// Where `H_m` has fallen by [`LIKELIHOOD_DROP`] to both sides, from its curvature.
fn interval_of(
    even: &EvenResiduals,
    spectrum: &Spectrum,
    hertz: f64,
    harmonics: usize,
) -> [f64; 2] {
    let reach = 0.15 / even.span_seconds() / harmonics as f64;
    let at = |f: f64| power_at(even, spectrum, f, harmonics);
    let curvature =
        (2.0 * at(hertz) - at(hertz - reach) - at(hertz + reach)).max(1e-9) / (reach * reach);
    let half = (2.0 * LIKELIHOOD_DROP / curvature).sqrt().min(0.5 / even.span_seconds());
    [1.0 / (hertz + half), 1.0 / (hertz - half).max(1e-12)]
}

/// Moves a candidate to its fundamental.
fn fundamental(spectrum: &Spectrum, hertz: f64, harmonics: usize) -> f64 {
    let (low, high) = spectrum.band_hertz();
    let ratio = |f: f64| {
        // The line may fall beside the ordinate by a little when it is a high harmonic.
        let step = spectrum.step_hertz();
        spectrum.ratio_at(f).max(spectrum.ratio_at(f - step)).max(spectrum.ratio_at(f + step))
    };
    // Down: the longest period whose own harmonics hold power of their own. A strong line leaks a
    // little into its neighbours, so the power has to be of its own order too.
    for divisor in (2_u32..=6).rev() {
        let lower = hertz / f64::from(divisor);
        if lower < low {
            continue;
        }
        let (mut own, mut own_n, mut shared, mut shared_n) = (0.0, 0_usize, 0.0, 0.0);
        for k in 1..=8 * divisor {
            let f = f64::from(k) * lower;
            if f > high || own_n == 16 {
                break;
            }
            if k % divisor == 0 {
                shared += ratio(f);
                shared_n += 1.0;
            } else {
                own += ratio(f) / MEAN_OF_THREE;
                own_n += 1;
            }
        }
        let unlikely = erlang_tail_ln(own_n.max(1), own) < SUBHARMONIC_LEVEL.ln();
        if unlikely && own * shared_n > LEAK_MAX * shared * own_n as f64 {
            return lower;
        }
    }
    // Up: only multiples of `q` hold power.
    for multiple in [5_u32, 3, 2] {
        let higher = hertz * f64::from(multiple);
        if harmonics < multiple as usize || higher > high {
            continue;
        }
        let (mut inside, mut inside_n, mut outside, mut outside_n) = (0.0, 0, 0.0, 0_usize);
        for k in (1..=harmonics).filter(|k| *k as f64 * hertz <= high) {
            let value = spectrum.ratio_at(k as f64 * hertz);
            if k % multiple as usize == 0 {
                inside += value;
                inside_n += 1;
            } else {
                outside += value;
                outside_n += 1;
            }
        }
        let quiet = outside_n == 0 || erlang_tail_ln(outside_n, outside) > (0.05_f64).ln();
        if inside_n > 0 && quiet && inside > 3.0 * f64::from(inside_n) {
            return higher;
        }
    }
    hertz
}

struct Cycles {
    present: usize,
    strongest_share: f64,
    peak_seconds: f64,
}

/// Follows the train cycle by cycle: projects each on the mean wave that the harmonics describe.
fn cycles(even: &EvenResiduals, spectrum: &Spectrum, hertz: f64, harmonics: usize) -> Cycles {
    const PHASES: usize = 64;
    let (_, high) = spectrum.band_hertz();
    let values = even.values();
    let mut wave = [0.0; PHASES];
    for k in (1..=harmonics).filter(|k| *k as f64 * hertz <= high) {
        let (real, imaginary) = transform(values, k as f64 * hertz * even.step_seconds());
        for (phase, value) in wave.iter_mut().enumerate() {
            let angle = TAU * k as f64 * phase as f64 / PHASES as f64;
            *value += real * angle.cos() - imaginary * angle.sin();
        }
    }
    let count = index((even.span_seconds() * hertz).ceil()).max(1);
    // Cycles are cut between waves, so that each wave falls into one of them.
    let peak = peak_phase(&wave) as f64 / PHASES as f64;
    let mut amplitudes = vec![0.0; count + 1];
    for (cell, value) in values.iter().enumerate() {
        let turns = (cell as f64 + 0.5) * even.step_seconds() * hertz;
        let cycle = index(turns - peak + 0.5).min(count);
        amplitudes[cycle] += value * wave[index(turns.fract() * PHASES as f64) % PHASES];
    }
    let total: f64 = amplitudes.iter().map(|a| a.max(0.0)).sum();
    let mean = total / count as f64;
    let strongest = amplitudes.iter().copied().fold(0.0, f64::max);
    Cycles {
        present: amplitudes.iter().filter(|a| **a > CYCLE_SHARE_MIN * mean).count(),
        strongest_share: if total > 0.0 { strongest / total } else { 1.0 },
        peak_seconds: peak / hertz,
    }
}

fn peak_phase(wave: &[f64]) -> usize {
    wave.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(phase, _)| phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::draws::{Draw, Noise, Sampling, rejects};
    use crate::detect::even::Count;

    fn period_of(draw: Draw, sampling: Sampling) -> Period {
        let even = EvenResiduals::new(&draw.scrape(sampling), Count::Requests).unwrap();
        find_period(&even, &PeriodSearch::default()).unwrap()
    }

    fn p_of(draw: Draw, sampling: Sampling) -> f64 {
        period_of(draw, sampling).p_value
    }

    #[test]
    fn p_values_are_uniform_under_red_and_over_dispersed_noise() {
        let noises = [
            Noise::white(20.0, 1.0),
            Noise::white(60.0, 6.0),
            Noise { rate: 100.0, dispersion: 1.5, red: 0.3, memory_seconds: 1.5 },
            Noise { rate: 100.0, dispersion: 1.5, red: 0.5, memory_seconds: 20.0 },
        ];
        for sampling in [Sampling::new(1.0, 1, 120.0), Sampling::new(5.0, 4, 600.0)] {
            for noise in noises {
                let p: Vec<f64> = (0..200)
                    .map(|seed| {
                        p_of(Draw::new(seed, sampling.window_seconds).noise(noise), sampling)
                    })
                    .collect();
                for level in [0.01, 0.05, 0.1] {
                    let (share, bound) = rejects(&p, level);
                    assert!(share <= bound, "{sampling:?} {noise:?}: {share} at {level}");
                }
                assert!(rejects(&p, 0.5).0 > 0.1, "{sampling:?} {noise:?}: too conservative");
            }
        }
    }

    #[test]
    fn missed_scrapes_and_a_flood_are_no_period() {
        let sampling = Sampling { missed: 0.05, ..Sampling::new(5.0, 4, 600.0) };
        let p: Vec<f64> = (0..150)
            .map(|seed| {
                let draw = Draw::new(seed, 600.0).noise(Noise::white(30.0, 2.0));
                p_of(draw.flood(200.0, 120.0), sampling)
            })
            .collect();
        let (share, bound) = rejects(&p, 0.01);
        assert!(share <= bound, "{share} of 150, bound {bound}");
    }

    /// Trains of waves as wide as 0.2 s, each 3 % smaller than the one before.
    fn train(seed: u64, sampling: Sampling, period: f64, clients: f64) -> Draw {
        let mut draw = Draw::new(seed, sampling.window_seconds).noise(Noise::white(20.0, 1.5));
        let (mut at, mut size) = (0.3 * period, clients);
        while at < sampling.window_seconds {
            draw = draw.wave(at, size, 0.2);
            (at, size) = (at + period, size * 0.97);
        }
        draw
    }

    #[test]
    fn trains_are_found_and_named_by_their_fundamental() {
        // (scrape, targets, window, period, clients a wave)
        let cases = [
            (1.0, 1, 120.0, 10.0, 30.0),
            (1.0, 1, 120.0, 32.0, 60.0),
            (1.0, 4, 200.0, 60.0, 100.0),
            (5.0, 4, 300.0, 20.0, 100.0),
            (15.0, 20, 600.0, 30.0, 300.0),
            (15.0, 20, 600.0, 20.0, 300.0),
            (15.0, 4, 900.0, 60.0, 300.0),
        ];
        for (scrape, targets, window, seconds, clients) in cases {
            let sampling = Sampling::new(scrape, targets, window);
            let periods: Vec<Period> = (0..20)
                .map(|seed| period_of(train(seed, sampling, seconds, clients), sampling))
                .collect();
            let found = periods.iter().filter(|p| p.p_value < 0.01 && p.repeats_enough()).count();
            let named = periods.iter().filter(|p| (p.seconds / seconds - 1.0).abs() < 0.05).count();
            assert!(found >= 18 && named >= 18, "{sampling:?} {seconds}: {found}, {named} of 20");
        }
    }

    #[test]
    fn the_interval_holds_the_true_period_nine_times_in_ten() {
        let sampling = Sampling::new(1.0, 4, 240.0);
        let inside = (0..60)
            .filter(|seed| {
                let period = period_of(train(*seed, sampling, 16.0, 60.0), sampling);
                let [low, high] = period.interval_seconds;
                (low..=high).contains(&16.0)
            })
            .count();
        assert!((50..=60).contains(&inside), "{inside} of 60");
    }

    #[test]
    fn two_bursts_are_no_train() {
        let sampling = Sampling::new(1.0, 4, 240.0);
        for seed in 0..40 {
            let draw = Draw::new(seed, 240.0).noise(Noise::white(20.0, 1.5));
            let period = period_of(draw.wave(60.0, 500.0, 0.2).wave(107.0, 500.0, 0.2), sampling);
            assert!(period.p_value > 0.01 || !period.repeats_enough(), "{seed}: {period:?}");
        }
    }
}
