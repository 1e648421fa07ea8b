//! The Lomb-Scargle periodogram of the raw scrape intervals of all targets, taken as one series that
//! is unevenly spaced.
//!
//! # Method
//!
//! Each interval is a value at its middle: its rate less the mean rate of its target. The sums over
//! sines and cosines come from two FFTs, after the times were rounded to a sixteenth of the shortest
//! period, in the manner of Press and Rybicki; the phase is off by a fifth of a radian at the most.
//! The largest ordinate is judged by Baluev's bound for the whole band.
//!
//! # References
//!
//! * N. R. Lomb. Least-squares frequency analysis of unequally spaced data. *Astrophysics and Space
//!   Science* 39, 447-462, 1976. <https://doi.org/10.1007/BF00648343>
//! * J. D. Scargle. Studies in astronomical time series analysis. II. *The Astrophysical Journal*
//!   263, 835-853, 1982. <https://doi.org/10.1086/160554>
//! * W. H. Press, G. B. Rybicki. Fast algorithm for spectral analysis of unevenly sampled data. *The
//!   Astrophysical Journal* 338, 277-280, 1989. <https://doi.org/10.1086/167197>
//! * R. V. Baluev. Assessing the statistical significance of periodogram peaks. *Monthly Notices of
//!   the Royal Astronomical Society* 385(3), 1279-1285, 2008.
//!   <https://doi.org/10.1111/j.1365-2966.2008.12689.x>

use std::collections::BTreeMap;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use squall::sim::corpus::LabelledCase;

/// Steps of the grid in the shortest period.
const STEPS: f64 = 16.0;

/// Ordinates in the width of a peak, by zeros after the data.
const OVERSAMPLING: f64 = 4.0;

/// The probability of so high a peak anywhere in the band by chance; none with too few intervals.
pub(super) fn lomb_scargle(case: &LabelledCase) -> Option<f64> {
    let points = rates(case);
    let (from, to) = (points.first()?.0, points.last()?.0);
    let span = to - from;
    if points.len() < 24 || span <= 0.0 {
        return None;
    }
    // Several targets at their own phases show what is faster than a scrape of one can follow, up
    // to where an interval holds a whole period.
    let several = if case.sampling.targets > 1 { 1.0 } else { 0.5 };
    let highest = several / case.sampling.interval_seconds;
    let step = 1.0 / (highest * STEPS);
    let size = whole(OVERSAMPLING * span / step).next_power_of_two();
    let (mut values, mut ones) = (vec![0.0; size], vec![0.0; size]);
    let mut variance = 0.0;
    for (at, value) in &points {
        let index = whole((at - from) / step);
        values[index] += value;
        ones[index] += 1.0;
        variance += value * value;
    }
    let n = points.len() as f64;
    variance /= n - 1.0;
    if variance <= 0.0 {
        return None;
    }
    let (values, ones) = (transform(values), transform(ones));
    // Ordinate `k` stands at the frequency `k / (size * step)`; three cycles are the fewest.
    let first = whole(3.0 * size as f64 * step / span).max(1);
    let last = whole(highest * size as f64 * step).min(ones.len() / 2);
    let peak = (first..last).map(|k| power(values[k], ones[2 * k], n) / (2.0 * variance));
    let z = peak.fold(0.0, f64::max);
    let mean = points.iter().map(|(at, _)| at).sum::<f64>() / n;
    let spread = points.iter().map(|(at, _)| (at - mean) * (at - mean)).sum::<f64>() / n;
    let width = highest * (4.0 * std::f64::consts::PI * spread).sqrt();
    let several = width * (-z).exp() * z.sqrt();
    Some(1.0 - (1.0 - (-z).exp()) * (-several).exp())
}

/// The power at one frequency from the transform of the values there and of ones at its double.
fn power(values: Complex<f64>, doubled: Complex<f64>, n: f64) -> f64 {
    // The FFT turns the other way: sines change their sign, and the product of both does not.
    let (c, s) = (values.re, values.im);
    let length = doubled.norm().max(1e-12);
    let (cos, sin) = (0.5 * doubled.re / length, 0.5 * doubled.im / length);
    let (cwt, swt) = ((0.5 + cos).max(0.0).sqrt(), (0.5 - cos).max(0.0).sqrt().copysign(sin));
    let below = 0.5 * n + cos * doubled.re + sin * doubled.im;
    let (even, odd) = (cwt * c + swt * s, cwt * s - swt * c);
    even * even / below.max(1e-9) + odd * odd / (n - below).max(1e-9)
}

fn transform(mut values: Vec<f64>) -> Vec<Complex<f64>> {
    let forward = RealFftPlanner::<f64>::new().plan_fft_forward(values.len());
    let mut output = forward.make_output_vec();
    forward.process(&mut values, &mut output).unwrap();
    output
}

/// Middle and rate of every interval of every target, less the mean of the target, in time order.
fn rates(case: &LabelledCase) -> Vec<(f64, f64)> {
    // Requests of one target are the sum of its series of all codes.
    let mut targets: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    for series in &case.samples {
        let others = series.labels.iter().filter(|(name, _)| *name != "code");
        let target = others.map(|(_, value)| value).collect::<Vec<_>>().join("\0");
        let intervals = targets.entry(target).or_default();
        let mut last = None::<squall::series::Sample>;
        for sample in &series.samples {
            if let Some(before) = last.filter(|before| before.at < sample.at) {
                // A counter that fell has begun anew.
                let fell = sample.value < before.value;
                let grown = if fell { sample.value } else { sample.value - before.value };
                let middle = i64::midpoint(before.at.millis(), sample.at.millis());
                *intervals.entry(middle).or_default() += grown / sample.at.seconds_since(before.at);
            }
            last = Some(*sample);
        }
    }
    let mut points = Vec::new();
    for intervals in targets.values() {
        let mean = intervals.values().sum::<f64>() / intervals.len().max(1) as f64;
        points.extend(intervals.iter().map(|(at, rate)| (*at as f64 / 1000.0, rate - mean)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The whole number below a position; zero for one below zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to int casts saturate, and no position here is below zero"
)]
fn whole(position: f64) -> usize {
    position as usize
}
