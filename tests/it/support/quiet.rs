//! Days on which nothing happens, drawn count by count: what must not page.
//!
//! Not event by event as the simulator does it: ten thousand days are to pass in minutes. The rate
//! has the shape of a day and red noise on two time scales, counts are over-dispersed, a few requests
//! fail by themselves at a ratio that is red as well; scrapes are missed, sometimes all for minutes,
//! and counters begin again at zero.

#![expect(
    clippy::suboptimal_flops,
    reason = "a fused multiply-add is a library call on the default target"
)]

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Gamma, Poisson, StandardNormal};

use squall::series::{Labels, Sample, Timestamp};
use squall::sim::SimulatedSeries;

/// Seconds between two scrapes of one target.
pub(crate) const INTERVAL_SECONDS: f64 = 15.0;
/// Targets.
pub(crate) const TARGETS: usize = 4;
/// Scrapes of an hour before the day, from which the first baseline is learned.
const BEFORE: u32 = 240;
/// Scrapes of a day.
const DAY: u32 = 5760;
const START_SECONDS: f64 = 1_790_000_000.0;

/// A stationary process with this memory: the logarithm of a red factor.
struct Red {
    state: f64,
    keep: f64,
    sd: f64,
}

impl Red {
    fn new(random: &mut ChaCha8Rng, memory_seconds: f64, sd: f64) -> Self {
        let state: f64 = StandardNormal.sample(random);
        Self { state, keep: (-INTERVAL_SECONDS / memory_seconds).exp(), sd }
    }

    /// The factor of the next interval; its mean is one.
    fn next(&mut self, random: &mut ChaCha8Rng) -> f64 {
        let fresh: f64 = StandardNormal.sample(random);
        self.state = self.keep * self.state + (1.0 - self.keep * self.keep).sqrt() * fresh;
        (self.sd * self.state - 0.5 * self.sd * self.sd).exp()
    }
}

/// One target as the scraper sees it.
struct Target {
    phase: f64,
    weight: f64,
    // What was served and what failed since it started.
    counts: [f64; 2],
    series: [SimulatedSeries; 2],
}

/// What a day is like.
#[derive(Debug)]
pub(crate) struct Law {
    /// Requests per second on average, the depth of the day's shape, and when it is highest.
    rate: f64,
    depth: f64,
    peak: f64,
    /// Variance-to-mean ratio of the counts of one target.
    dispersion: f64,
    /// Memory in seconds, and standard deviation of the logarithm: of the rate, twice, and of the
    /// ratio of errors.
    fast: [f64; 2],
    slow: [f64; 2],
    failing: [f64; 2],
    error_ratio: f64,
    /// Variance-to-mean ratio of the failures of one target in one interval.
    clumps: f64,
    /// Share of scrapes that fail, and restarts of a target, a scrape.
    missed: f64,
    restarts: f64,
    /// Whether the series of a code comes with its first answer.
    lazy: bool,
}

impl Law {
    fn draw(random: &mut ChaCha8Rng) -> Self {
        Self {
            rate: log_between(random, 5.0, 200.0),
            depth: random.random_range(0.2..0.9),
            peak: random.random_range(0.0..86_400.0),
            dispersion: [1.5, 3.0, 6.0, 12.0][random.random_range(0..4)],
            fast: [log_between(random, 20.0, 200.0), random.random_range(0.02..0.15)],
            slow: [log_between(random, 600.0, 7200.0), random.random_range(0.05..0.25)],
            failing: [log_between(random, 60.0, 1800.0), random.random_range(0.2..0.8)],
            error_ratio: log_between(random, 1e-4, 5e-3),
            clumps: [1.0, 1.0, 2.0, 6.0, 12.0][random.random_range(0..5)],
            missed: [0.0, 0.002, 0.02][random.random_range(0..3)],
            restarts: random.random_range(0.0..2.0) / f64::from(DAY),
            lazy: random.random::<f64>() < 0.25,
        }
    }

    /// What the day of this seed is like.
    pub(crate) fn of(seed: u64) -> Self {
        Self::draw(&mut ChaCha8Rng::seed_from_u64(seed))
    }
}

/// The samples of the day of this seed.
pub(crate) fn day(seed: u64) -> Vec<SimulatedSeries> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let law = Law::draw(random);
    let [mut fast, mut slow, mut failing] =
        [law.fast, law.slow, law.failing].map(|[memory, sd]| Red::new(random, memory, sd));
    let mut targets: Vec<Target> = (0..TARGETS).map(|number| target(random, number)).collect();
    let weights: f64 = targets.iter().map(|it| it.weight).sum();
    let mut hole_ends = 0.0;
    for scrape in 0..BEFORE + DAY {
        let second = INTERVAL_SECONDS * (f64::from(scrape) - f64::from(BEFORE));
        let cycle = (std::f64::consts::TAU * (second - law.peak) / 86_400.0).cos();
        let mean = law.rate * (1.0 + law.depth * cycle) * fast.next(random) * slow.next(random);
        let failed = law.error_ratio * failing.next(random);
        // About one hole a day in all series, of up to ten minutes.
        if random.random::<f64>() < 1.0 / f64::from(DAY) {
            hole_ends = second + random.random_range(30.0..600.0);
        }
        for target in &mut targets {
            let mean = mean * INTERVAL_SECONDS * target.weight / weights;
            let all = count(random, mean, law.dispersion);
            // Each request fails by itself, or they fail in clumps that no target shares.
            let bad = count(random, all * failed, law.clumps).min(all);
            let grown = [all - bad, bad];
            let restarted = random.random::<f64>() < law.restarts;
            let since = if restarted { random.random::<f64>() } else { 1.0 };
            if restarted {
                target.counts = [0.0, 0.0];
            }
            for (count, grown) in target.counts.iter_mut().zip(grown) {
                *count += (since * grown).round();
            }
            if second < hole_ends || random.random::<f64>() < law.missed {
                continue;
            }
            let late = random.random_range(0.0..0.02);
            let at = Timestamp::from_seconds(START_SECONDS + second + target.phase + late);
            for (series, value) in target.series.iter_mut().zip(target.counts) {
                // A client library makes the series of a code with its first answer.
                if value > 0.0 || !law.lazy || !series.samples.is_empty() {
                    series.samples.push(Sample { at, value });
                }
            }
        }
    }
    targets.into_iter().flat_map(|target| target.series).collect()
}

fn target(random: &mut ChaCha8Rng, number: usize) -> Target {
    let normal: f64 = StandardNormal.sample(random);
    let series = ["200", "503"].map(|code| SimulatedSeries {
        labels: Labels::new([
            ("__name__", "http_client_requests_total".to_owned()),
            ("dependency", "payments".to_owned()),
            ("pod", format!("shop-{number}")),
            ("code", code.to_owned()),
        ]),
        samples: Vec::new(),
    });
    Target {
        phase: random.random_range(0.0..INTERVAL_SECONDS),
        weight: (0.2 * normal).exp(),
        counts: [0.0, 0.0],
        series,
    }
}

/// A negative binomial count with this mean and ratio of variance to mean.
fn count(random: &mut ChaCha8Rng, mean: f64, dispersion: f64) -> f64 {
    let spread = dispersion - 1.0;
    let mean = if spread > 0.0 {
        Gamma::new(mean / spread, spread).map_or(0.0, |law| law.sample(random))
    } else {
        mean
    };
    Poisson::new(mean).map_or(0.0, |law| law.sample(random))
}

fn log_between(random: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    low * (random.random::<f64>() * (high / low).ln()).exp()
}
