//! What people use today, on the same samples: rules over the pooled request rate alone.

mod lomb_scargle;

use augurs_seasons::{Detector as _, PeriodogramDetector};
use squall::sim::corpus::LabelledCase;

use lomb_scargle::lomb_scargle;

/// The rules, in the order of [`pages`].
pub(crate) const NAMES: [&str; 5] = [
    "z-score of `rate()[1m]` over 3",
    "autocorrelation over 0.5",
    "Fisher's g, p < 0.001",
    "Lomb-Scargle of all scrape intervals, p < 0.001",
    "`augurs` finds a season",
];

/// Standard deviations of the rate over a minute that page.
const Z_MIN: f64 = 3.0;
/// Autocorrelation at any lag past the first zero that pages.
const CORRELATION_MIN: f64 = 0.5;
/// Significance level of Fisher's test and of the Lomb-Scargle periodogram.
const LEVEL: f64 = 0.001;

/// Whether each rule pages.
pub(crate) fn pages(case: &LabelledCase) -> [bool; 5] {
    let rates = pooled(case);
    let interval = case.sampling.interval_seconds;
    [
        z_score(&rates, interval),
        correlates(&rates),
        fisher(&rates),
        lomb_scargle(case).is_some_and(|p| p < LEVEL),
        has_season(&rates),
    ]
}

/// Shorter series have no segments for its periodogram.
const SEASON_CELLS_MIN: usize = 24;

/// With the mean removed, which the detector wants and does not do; at its own settings.
fn has_season(rates: &[f64]) -> bool {
    let (mean, _) = moments(rates);
    let centred: Vec<f64> = rates.iter().map(|rate| rate - mean).collect();
    centred.len() >= SEASON_CELLS_MIN && !PeriodogramDetector::default().detect(&centred).is_empty()
}

/// Requests in each scrape interval, over all targets.
fn pooled(case: &LabelledCase) -> Vec<f64> {
    let step = case.sampling.interval_seconds;
    let start = case
        .samples
        .iter()
        .filter_map(|series| series.samples.first())
        .map(|sample| sample.at.seconds())
        .fold(f64::INFINITY, f64::min);
    let mut cells: Vec<f64> = Vec::new();
    for series in &case.samples {
        for pair in series.samples.windows(2) {
            let grown = (pair[1].value - pair[0].value).max(0.0);
            let cell = ((pair[1].at.seconds() - start) / step).max(0.0);
            let index = format!("{cell:.0}").parse().unwrap_or(0);
            if cells.len() <= index {
                cells.resize(index + 1, 0.0);
            }
            cells[index] += grown;
        }
    }
    cells
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / n)
}

/// The mean over a minute against the mean and deviation of the first quarter.
fn z_score(rates: &[f64], step: f64) -> bool {
    let minute = format!("{:.0}", (60.0 / step).max(1.0)).parse().unwrap_or(1);
    let means: Vec<f64> = rates.windows(minute).map(|window| moments(window).0).collect();
    let (mean, variance) = moments(&means[..means.len() / 4]);
    means.iter().any(|it| (it - mean) > Z_MIN * variance.sqrt().max(1e-9))
}

fn correlates(rates: &[f64]) -> bool {
    let (mean, variance) = moments(rates);
    if variance <= 0.0 {
        return false;
    }
    let at = |lag: usize| {
        let sum: f64 = rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum();
        sum / (variance * rates.len() as f64)
    };
    let mut below = false;
    (1..rates.len() / 3).any(|lag| {
        let correlation = at(lag);
        below |= correlation < 0.0;
        below && correlation > CORRELATION_MIN
    })
}

/// The largest ordinate of the periodogram over their sum (Fisher 1929), with its first term.
fn fisher(rates: &[f64]) -> bool {
    let (mean, _) = moments(rates);
    let n = rates.len();
    let powers: Vec<f64> = (1..n / 2)
        .map(|k| {
            let (mut re, mut im) = (0.0, 0.0);
            for (t, rate) in rates.iter().enumerate() {
                let angle = std::f64::consts::TAU * (k * t % n) as f64 / n as f64;
                re += (rate - mean) * angle.cos();
                im += (rate - mean) * angle.sin();
            }
            re.mul_add(re, im * im)
        })
        .collect();
    let total: f64 = powers.iter().sum();
    if total <= 0.0 {
        return false;
    }
    let g = powers.iter().copied().fold(0.0, f64::max) / total;
    let m = powers.len() as f64;
    m * ((m - 1.0) * (1.0 - g).max(1e-300).ln()).exp() < LEVEL
}
