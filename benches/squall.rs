//! One group for each promise of speed, each beside the plain reference it is compared with.
//!
//! Figures are ratios within one run: machines differ, and so does their load.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use squall::detect::comb::{CombBank, find_comb};
use squall::detect::even::{Count, EvenResiduals, autocorrelate};
use squall::detect::period::{PeriodSearch, find_period};
use squall::detect::spectrum::Spectrum;
use squall::detect::warped::warped_peaks;
use squall::series::{Interval, TargetId, Timestamp};
use squall::sim;
use squall::sim::policy::{Jitter, RetryPolicy};
use squall::sim::scenario::{DependencyPlan, Fault, Population, Scenario};

/// Seeded counts of one target at one second.
fn intervals(seconds: u32) -> Vec<Interval> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    (0..seconds)
        .map(|second| Interval {
            target: TargetId(0),
            from: Timestamp::from_seconds(f64::from(second)),
            to: Timestamp::from_seconds(f64::from(second + 1)),
            requests: f64::from(random.random_range(30..70_u32)),
            errors: f64::from(random.random_range(0..20_u32)),
        })
        .collect()
}

/// The autocorrelation as it is defined, the reference.
fn autocorrelate_naive(values: &[f64], lags: usize) -> Vec<f64> {
    (0..lags).map(|lag| values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum()).collect()
}

fn autocorrelation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("autocorrelation");
    for length in [240_usize, 960, 4096] {
        let values: Vec<f64> = (0_u32..).take(length).map(|k| f64::from(k * k % 17)).collect();
        group.bench_with_input(BenchmarkId::new("fft", length), &values, |b, values| {
            b.iter(|| autocorrelate(black_box(values), length / 3));
        });
        group.bench_with_input(BenchmarkId::new("naive", length), &values, |b, values| {
            b.iter(|| autocorrelate_naive(black_box(values), length / 3));
        });
    }
}

fn periods(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("period");
    for seconds in [240, 960] {
        let intervals = intervals(seconds);
        group.bench_with_input(BenchmarkId::new("residuals", seconds), &intervals, |b, i| {
            b.iter(|| EvenResiduals::new(black_box(i), Count::Requests).is_ok());
        });
        let even = EvenResiduals::new(&intervals, Count::Requests).expect("enough intervals");
        group.bench_with_input(BenchmarkId::new("spectrum", seconds), &even, |b, even| {
            b.iter(|| Spectrum::new(black_box(even)).is_ok());
        });
        group.bench_with_input(BenchmarkId::new("find", seconds), &even, |b, even| {
            b.iter(|| find_period(black_box(even), &PeriodSearch::default()).is_ok());
        });
        let bracket = [Timestamp::from_seconds(60.0), Timestamp::from_seconds(61.0)];
        group.bench_with_input(BenchmarkId::new("warped", seconds), &even, |b, even| {
            b.iter(|| warped_peaks(black_box(even), bracket, 8).len());
        });
    }
}

fn comb(criterion: &mut Criterion) {
    let even = EvenResiduals::new(&intervals(300), Count::Errors).expect("enough intervals");
    let spectrum = Spectrum::new(&even).expect("a band");
    let bank = CombBank::new(&even, &spectrum).expect("lags");
    let mut group = criterion.benchmark_group("comb");
    group.sample_size(10);
    group.bench_function("bank", |b| b.iter(|| CombBank::new(black_box(&even), &spectrum).is_ok()));
    group.bench_function("test", |b| b.iter(|| find_comb(black_box(&spectrum), &bank).z));
}

/// A hundred thousand clients that fail together, and other traffic, for ten simulated minutes:
/// promised in under two seconds on one core.
fn fleet(clients: usize) -> Scenario {
    let mut scenario = Scenario::new("fleet", 600.0);
    let faults = vec![Fault::outage(120.0, 40.0)];
    let to = scenario.dependency(DependencyPlan { faults, ..DependencyPlan::new("payments") });
    scenario.population(Population::stream("others", to, clients as f64 / 20.0));
    let policy = RetryPolicy::exponential(1.0, 2.0, 32.0, 7, Jitter::Full);
    scenario.population(Population::burst("herd", to, clients, 120.0, 1.0, policy));
    scenario
}

/// The reference is a tenth of the clients: the time must grow with the attempts and no faster.
fn simulation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulation");
    group.sample_size(10);
    for clients in [10_000_usize, 100_000] {
        let scenario = fleet(clients);
        group.bench_function(BenchmarkId::new("ten minutes", clients), |b| {
            b.iter(|| sim::run(black_box(&scenario), 1).series.len());
        });
    }
}

criterion_group!(benches, autocorrelation, periods, comb, simulation);
criterion_main!(benches);
