//! Coloured noise: whether the p-values that squall shows are what they say.
//!
//! Counts of an autoregressive process of order one whose marginal law is negative binomial: each
//! count keeps a random part of the one before (a beta share, binomially thinned) and gains a fresh
//! part, so that mean, dispersion and autocorrelation `rho^k` are exact. Cf. E. McKenzie,
//! Autoregressive moving-average processes with negative-binomial and geometric marginal
//! distributions, *Advances in Applied Probability* 18, 679-705, 1986,
//! <https://doi.org/10.2307/1427183>.

use std::cell::RefCell;
use std::fmt::Write as _;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Binomial, Distribution as _, Gamma, Poisson};
use serde::{Deserialize, Serialize};
use squall::detect::comb::{CombBank, find_comb};
use squall::detect::even::{Count, EvenResiduals};
use squall::detect::period::{PeriodSearch, find_period, find_period_in};
use squall::detect::spectrum::Spectrum;
use squall::detect::wall_clock::wall_clock;
use squall::series::{Interval, TargetId, Timestamp};

use super::rows::core_and;
use super::shares::{cells_of, kolmogorov};

/// What decides a row.
pub(crate) const SOURCES: &[&str] = core_and!("tests/accuracy/noise.rs");

/// Windows when the command line says nothing: a thousand of each cell.
pub(crate) const DRAWS: u64 = 24_000;

const RHOS: [f64; 4] = [0.0, 0.3, 0.6, 0.9];
const DISPERSIONS: [f64; 3] = [1.0, 3.0, 10.0];
/// Seconds between scrapes and targets.
const SHAPES: [(f64, u32); 2] = [(1.0, 1), (15.0, 4)];
/// Scrapes of each target in a window.
const SCRAPES: u32 = 300;
/// Requests in a scrape interval of a target, on average.
const MEAN: f64 = 60.0;

/// The statistics, in the order of the p-values of a row.
const NAMES: [&str; 4] = [
    "periodogram",
    "lag comb",
    "wall clock: a train of this period before",
    "wall clock: waves so near the full minute",
];

/// What one window of noise gave.
#[derive(Serialize, Deserialize)]
pub(crate) struct Window {
    rho: f64,
    dispersion: f64,
    interval_seconds: f64,
    /// None where the statistic has too little to go by.
    p_values: [Option<f64>; 4],
}

thread_local! {
    // The law of the comb's maximum is costly, and the same for windows of one shape.
    static BANKS: RefCell<Vec<CombBank>> = const { RefCell::new(Vec::new()) };
}

/// Draws the window of this seed.
pub(crate) fn draw(seed: u64) -> Window {
    let cell = usize::try_from(seed).unwrap();
    let rho = RHOS[cell % 4];
    let dispersion = DISPERSIONS[cell / 4 % 3];
    let shape = SHAPES[cell / 12 % 2];
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let noise = window(random, rho, dispersion, shape, None);
    // Before a storm there is other noise; what the wall clock is asked about is the storm's train.
    let period = random.random_range(5.0..20.0) * shape.0;
    let storm = window(random, rho, dispersion, shape, Some(period));
    let p_values = of_noise(&noise, &storm);
    Window { rho, dispersion, interval_seconds: shape.0, p_values }
}

fn of_noise(noise: &[Interval], storm: &[Interval]) -> [Option<f64>; 4] {
    let mut p_values = [None; 4];
    let Ok(even) = EvenResiduals::new(noise, Count::Requests) else { return p_values };
    let Ok(spectrum) = Spectrum::new(&even) else { return p_values };
    p_values[0] = Some(find_period_in(&even, &spectrum).p_value);
    p_values[1] = BANKS.with_borrow_mut(|banks| {
        if !banks.iter().any(|bank| bank.serves(&spectrum, &even)) {
            banks.push(CombBank::new(&even, &spectrum).ok()?);
        }
        let bank = banks.iter().find(|bank| bank.serves(&spectrum, &even))?;
        Some(find_comb(&spectrum, bank).p_value)
    });
    let during = EvenResiduals::new(storm, Count::Requests).ok();
    let train = during.and_then(|even| find_period(&even, &PeriodSearch::default()).ok());
    if let Some(train) = train.filter(|it| it.p_value < 0.01 && it.repeats_enough()) {
        let clock = wall_clock(&train, Some(&even));
        p_values[2] = clock.p_value_before;
        p_values[3] = Some(clock.offset_p_value);
    }
    p_values
}

/// A window of counts; with a period, also a train of waves from a random instant on.
fn window(
    random: &mut ChaCha8Rng,
    rho: f64,
    dispersion: f64,
    (interval, targets): (f64, u32),
    period: Option<f64>,
) -> Vec<Interval> {
    let first = random.random_range(0.0..1.0);
    let start = 1_790_000_000.0 + random.random_range(0.0..3600.0);
    let mut intervals = Vec::new();
    for target in 0..targets {
        // Fixed phases, so that the windows of a shape are alike.
        let phase = interval * f64::from(target) / f64::from(targets);
        let mut count = fresh(random, MEAN, dispersion);
        for scrape in 0..SCRAPES {
            let from = interval * f64::from(scrape) + phase;
            // Half as much again as an interval holds, in each wave.
            let waves = period.map_or(0.0, |period| {
                let until = |at: f64| (at / period - first).floor();
                until(from + interval) - until(from)
            });
            let requests = count + (waves * 1.5 * MEAN).round();
            intervals.push(Interval {
                target: TargetId(target),
                from: Timestamp::from_seconds(start + from),
                to: Timestamp::from_seconds(start + from + interval),
                requests,
                errors: requests,
            });
            count = kept(random, count, rho, dispersion)
                + fresh(random, (1.0 - rho) * MEAN, dispersion);
        }
    }
    intervals.sort_by_key(|interval| (interval.to, interval.target));
    intervals
}

/// The part of a count that stays.
fn kept(random: &mut ChaCha8Rng, count: f64, rho: f64, dispersion: f64) -> f64 {
    if rho <= 0.0 {
        return 0.0;
    }
    let size = MEAN / (dispersion - 1.0);
    let share = if dispersion > 1.0 {
        Beta::new(rho * size, (1.0 - rho) * size).unwrap().sample(random)
    } else {
        rho
    };
    let of = format!("{count:.0}").parse().unwrap();
    Binomial::new(of, share).unwrap().sample(random) as f64
}

/// A negative binomial count with this mean and ratio of variance to mean.
fn fresh(random: &mut ChaCha8Rng, mean: f64, dispersion: f64) -> f64 {
    let spread = dispersion - 1.0;
    let mean =
        if spread > 0.0 { Gamma::new(mean / spread, spread).unwrap().sample(random) } else { mean };
    Poisson::new(mean).map_or(0.0, |law| law.sample(random))
}

/// The section of the report.
pub(crate) fn report(windows: &[(u64, &Window)], version: &str) -> String {
    let mut text = String::new();
    let (Some((first, _)), Some((last, _))) = (windows.first(), windows.last()) else {
        return text;
    };
    let count = windows.len();
    write!(
        text,
        "## P-values on coloured noise\n\n\
         {count} windows of {SCRAPES} scrapes, seeds {first} to {last}, sources `{version}`; `make \
         accuracy-noise DRAWS={count}`. Negative binomial counts of an autoregressive process of \
         order one, {MEAN} requests an interval on average, at 1 s of one target and at 15 s of four. \
         A p-value under a level should come in at most that share of windows. KS is the largest \
         distance from uniform, `excess` that of too many small ones alone, and p how likely the \
         first is by chance.\n\n"
    )
    .unwrap();
    for (index, name) in NAMES.into_iter().enumerate() {
        write!(
            text,
            "### {name}\n\n| rho | dispersion | scrape | p < 0.01 | share | 95 % | < 0.05 | < 0.25 | \
             < 0.5 | KS | excess | p |\n|{}\n",
            " ---: |".repeat(12)
        )
        .unwrap();
        let mut line = |what: &str, of: &dyn Fn(&Window) -> bool| {
            let chosen = windows.iter().filter(|(_, it)| of(it));
            let mut p: Vec<f64> = chosen.filter_map(|(_, it)| it.p_values[index]).collect();
            if p.is_empty() {
                return;
            }
            let [distance, chance, excess] = kolmogorov(&mut p);
            let below = |level: f64| p.iter().filter(|p| **p < level).count() as f64;
            let [a, b, c] = [0.05, 0.25, 0.5].map(|level| below(level) / p.len() as f64);
            writeln!(
                text,
                "| {what} | {} | {a:.3} | {b:.3} | {c:.3} | {distance:.3} | {excess:.3} | {chance:.3} |",
                cells_of(&p, |p| *p < 0.01)
            )
            .unwrap();
        };
        for (interval, _) in SHAPES {
            for dispersion in DISPERSIONS {
                for rho in RHOS {
                    line(&format!("{rho} | {dispersion} | {interval} s"), &|it| {
                        let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
                        same(it.rho, rho)
                            && same(it.dispersion, dispersion)
                            && same(it.interval_seconds, interval)
                    });
                }
            }
        }
        line("all | all | all", &|_| true);
        text += "\n";
    }
    text
}
