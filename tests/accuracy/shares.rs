//! Shares with their intervals, and the few other figures of a report.

use std::fmt::Write as _;

use statrs::distribution::{ContinuousCDF as _, Gamma};

/// The 95 % interval of a share (Wilson 1927).
pub(crate) fn wilson(hits: usize, of: usize) -> [f64; 2] {
    if of == 0 {
        return [0.0, 1.0];
    }
    let (n, z) = (of as f64, 1.96);
    let p = hits as f64 / n;
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let ends = [middle - half, middle + half].map(|it| it / (1.0 + z * z / n));
    [ends[0].max(0.0), ends[1].min(1.0)]
}

/// A share in cells of a table: how many of how many, percent, and the 95 % interval.
pub(crate) fn cells(hits: usize, of: usize) -> String {
    if of == 0 {
        return "0 of 0 | – | –".to_owned();
    }
    let [low, high] = wilson(hits, of).map(|it| 100.0 * it);
    let percent = 100.0 * hits as f64 / of as f64;
    format!("{hits} of {of} | {percent:.1} % | {low:.1} to {high:.1}")
}

/// The head of a table whose last three columns are those of [`cells`].
pub(crate) fn head(first: &[&str]) -> String {
    let mut text = String::from("|");
    for name in first {
        write!(text, " {name} |").unwrap();
    }
    text += " cases | share | 95 % |\n|";
    text += &" --- |".repeat(first.len());
    text + " ---: | ---: | ---: |\n"
}

/// How many of these hold, as cells.
pub(crate) fn cells_of<T>(all: &[T], holds: impl Fn(&T) -> bool) -> String {
    cells(all.iter().filter(|it| holds(it)).count(), all.len())
}

/// The middle one; not a number where there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The highest mean under which so few events come with a probability of at least 5 %: the upper end
/// of Garwood's one-sided 95 % interval of a Poisson mean (Garwood 1936, Biometrika 28, 437-442,
/// <https://doi.org/10.1093/biomet/28.3-4.437>).
pub(crate) fn garwood(events: usize) -> f64 {
    Gamma::new(events as f64 + 1.0, 1.0).unwrap().inverse_cdf(0.95)
}

/// The largest distance of these p-values from uniform ones, how likely one so large is by chance,
/// and the largest excess of small ones alone (Kolmogorov and Smirnov; the tail by the first terms of its series, with the correction
/// for few values of Stephens 1970, <https://doi.org/10.1111/j.2517-6161.1970.tb00821.x>).
pub(crate) fn kolmogorov(p_values: &mut [f64]) -> [f64; 3] {
    p_values.sort_by(f64::total_cmp);
    let n = p_values.len() as f64;
    let (mut lack, mut excess) = (0.0_f64, 0.0_f64);
    for (index, p) in p_values.iter().enumerate() {
        lack = lack.max(p - index as f64 / n);
        excess = excess.max((index + 1) as f64 / n - p);
    }
    let distance = lack.max(excess);
    let x = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance;
    let tail: f64 = (1..=100)
        .map(|k| {
            let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
            sign * (-2.0 * f64::from(k * k) * x * x).exp()
        })
        .sum();
    // The series does not converge near zero, where every distance is likely.
    [distance, if x < 0.3 { 1.0 } else { tail.clamp(0.0, 1.0) }, excess]
}
