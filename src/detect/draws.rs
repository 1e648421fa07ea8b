//! Seeded traffic for the calibration tests: red noise, over-dispersion, trains and outages.
//!
//! Small on purpose and apart from `sim`: a null distribution needs thousands of draws, not a
//! model of a fleet.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma, Normal, Poisson};

use crate::series::{Interval, TargetId, Timestamp};

/// Arrivals are drawn in bins of this many seconds.
const BIN_SECONDS: f64 = 0.1;

/// How a dependency is scraped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) scrape_seconds: f64,
    pub(crate) targets: u32,
    pub(crate) window_seconds: f64,
    /// Share of scrapes that fail.
    pub(crate) missed: f64,
}

impl Sampling {
    pub(crate) const fn new(scrape_seconds: f64, targets: u32, window_seconds: f64) -> Self {
        Self { scrape_seconds, targets, window_seconds, missed: 0.0 }
    }
}

/// Background traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    pub(crate) rate: f64,
    /// Variance-to-mean ratio of the counts of one second.
    pub(crate) dispersion: f64,
    /// Standard deviation of the logarithm of the rate, and how long it remembers.
    pub(crate) red: f64,
    pub(crate) memory_seconds: f64,
}

impl Noise {
    pub(crate) const fn white(rate: f64, dispersion: f64) -> Self {
        Self { rate, dispersion, red: 0.0, memory_seconds: 1.0 }
    }
}

/// One seeded draw: arrivals in fine bins, then cut into the intervals of the scrapes.
#[derive(Debug)]
pub(crate) struct Draw {
    random: ChaCha8Rng,
    bins: Vec<f64>,
}

impl Draw {
    pub(crate) fn new(seed: u64, window_seconds: f64) -> Self {
        let bins = super::even::index(window_seconds / BIN_SECONDS) + 1;
        Self { random: ChaCha8Rng::seed_from_u64(seed), bins: vec![0.0; bins] }
    }

    /// Adds over-dispersed counts around a red rate.
    pub(crate) fn noise(mut self, noise: Noise) -> Self {
        let keep = (-BIN_SECONDS / noise.memory_seconds).exp();
        let normal = Normal::new(0.0, 1.0).expect("a standard normal");
        let mut state: f64 = normal.sample(&mut self.random);
        let mut second = 1.0;
        for bin in 0..self.bins.len() {
            state = keep
                .mul_add(state, keep.mul_add(-keep, 1.0).sqrt() * normal.sample(&mut self.random));
            if bin % 10 == 0 && noise.dispersion > 1.0 {
                // A gamma rate for each second makes the counts negative binomial.
                let shape = noise.rate / (noise.dispersion - 1.0);
                second = Gamma::new(shape, 1.0 / shape)
                    .expect("positive shape and scale")
                    .sample(&mut self.random);
            }
            let mean = noise.rate * BIN_SECONDS * second * (noise.red * state).exp();
            self.bins[bin] += poisson(&mut self.random, mean);
        }
        self
    }

    /// Adds `count` events at `seconds`, spread by `sd` seconds.
    pub(crate) fn wave(mut self, seconds: f64, count: f64, sd: f64) -> Self {
        let normal = Normal::new(0.0, 1.0).expect("a standard normal");
        for _ in 0..super::even::index(count) {
            let at = sd.mul_add(normal.sample(&mut self.random), seconds);
            self.event(at);
        }
        self
    }

    /// Adds a step to another rate from `from` seconds on.
    pub(crate) fn flood(mut self, from: f64, rate: f64) -> Self {
        for bin in super::even::index(from / BIN_SECONDS)..self.bins.len() {
            self.bins[bin] += poisson(&mut self.random, rate * BIN_SECONDS);
        }
        self
    }

    /// Adds an outage between the instants: each of `rate` new clients a second tries at once and
    /// again after each wait that `wait` draws.
    pub(crate) fn outage(
        mut self,
        outage: [f64; 2],
        rate: f64,
        retries: usize,
        mut wait: impl FnMut(&mut dyn Rng, usize) -> f64,
    ) -> Self {
        let clients = poisson(&mut self.random, rate * (outage[1] - outage[0]));
        for _ in 0..super::even::index(clients) {
            let mut at = self.random.random_range(outage[0]..outage[1]);
            self.event(at);
            for retry in 0..retries {
                if at >= outage[1] {
                    break;
                }
                at += wait(&mut self.random, retry);
                self.event(at);
            }
        }
        self
    }

    fn event(&mut self, at: f64) {
        // What happened before the window is not in it.
        if at < 0.0 {
            return;
        }
        if let Some(bin) = self.bins.get_mut(super::even::index(at / BIN_SECONDS)) {
            *bin += 1.0;
        }
    }

    /// Cuts the arrivals into intervals; every count stands as requests and as errors.
    pub(crate) fn scrape(mut self, sampling: Sampling) -> Vec<Interval> {
        let targets = sampling.targets.max(1);
        let mut left = self.bins.clone();
        let mut intervals = Vec::new();
        for target in 0..targets {
            let share = 1.0 / f64::from(targets - target);
            let own: Vec<f64> = left
                .iter_mut()
                .map(|bin| {
                    let taken = binomial(&mut self.random, *bin, share);
                    *bin -= taken;
                    taken
                })
                .collect();
            let mut at = self.random.random_range(0.0..sampling.scrape_seconds);
            let mut sums = 0.0;
            let mut from = at;
            let mut bin = super::even::index(at / BIN_SECONDS);
            while at + sampling.scrape_seconds <= sampling.window_seconds {
                at += sampling.scrape_seconds;
                let end = super::even::index(at / BIN_SECONDS).min(own.len());
                sums += own[bin..end].iter().sum::<f64>();
                bin = end;
                if self.random.random::<f64>() < sampling.missed {
                    continue;
                }
                intervals.push(Interval {
                    target: TargetId(target),
                    from: Timestamp::from_seconds(from),
                    to: Timestamp::from_seconds(at),
                    requests: sums,
                    errors: sums,
                });
                (sums, from) = (0.0, at);
            }
        }
        intervals.sort_by_key(|interval| (interval.to, interval.target));
        intervals
    }
}

fn poisson(random: &mut ChaCha8Rng, mean: f64) -> f64 {
    Poisson::new(mean).map_or(0.0, |law| law.sample(random))
}

fn binomial(random: &mut ChaCha8Rng, count: f64, share: f64) -> f64 {
    if share >= 1.0 {
        return count;
    }
    (0..super::even::index(count)).filter(|_| random.random::<f64>() < share).count() as f64
}

/// Share of `p_values` at or under `level`, with the bound that only one run in ten thousand of a
/// calibrated test would pass.
pub(crate) fn rejects(p_values: &[f64], level: f64) -> (f64, f64) {
    let n = p_values.len() as f64;
    let share = p_values.iter().filter(|p| **p <= level).count() as f64 / n;
    (share, 3.7f64.mul_add((level * (1.0 - level) / n).sqrt(), level))
}
