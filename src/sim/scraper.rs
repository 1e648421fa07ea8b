//! The targets' counters and the scraper that reads them.
//!
//! A counter moves when a client knows the outcome of an attempt, which is later than the attempt
//! itself. Such moves wait on a wheel of one-millisecond buckets (the resolution of a sample's
//! time), so that a scrape sees exactly what a real one would.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::SimulatedSeries;
use super::dependency::{OK, micros, seconds};
use super::random::{Draws, hash};
use super::scenario::{Replicas, Restart, Scenario, ScrapePlan};
use crate::series::{Labels, Sample, Timestamp};

/// The metric that carries every attempt.
pub(super) const REQUESTS: &str = "http_client_requests_total";
/// The metric that carries the retries, where clients count them.
pub(super) const RETRIES: &str = "http_client_retries_total";
/// The metric that carries the calls wanted, where clients count them.
pub(super) const CALLS: &str = "http_client_calls_total";

/// Buckets of the wheel: half a minute of milliseconds, longer than nearly every attempt.
const WHEEL_MILLIS: u64 = 1 << 15;

/// Microseconds in a millisecond.
const MILLI: u64 = 1_000;

/// No series yet.
const NONE: u32 = u32::MAX;

/// One scrape target.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) job: usize,
    pub(super) instance: String,
    pub(super) active: bool,
    weight: f64,
    incarnation: u32,
    ordinal: usize,
}

/// The targets of one job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) targets: Vec<u32>,
    active: Vec<u32>,
    cumulative: Vec<f64>,
}

/// Everything that is watched.
#[derive(Debug)]
pub(super) struct Scraper {
    pub(super) plan: ScrapePlan,
    pub(super) jobs: Vec<Job>,
    pub(super) targets: Vec<Target>,
    dependencies: Vec<String>,
    codes: Vec<u16>,
    /// Whether a job calls a dependency: `[job * dependencies + dependency]`.
    called: Vec<bool>,
    first_code: Vec<u16>,
    counts: Vec<u64>,
    exposed: Vec<bool>,
    shown: Vec<(u64, bool)>,
    wheel: Vec<Vec<u32>>,
    /// Outcomes beyond the wheel: the millisecond and the counter.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    drained_millis: u64,
    series_of: Vec<u32>,
    pub(super) series: Vec<SimulatedSeries>,
    held: Vec<Option<Sample>>,
    start_millis: i64,
    elected: usize,
    draws: Draws,
}

impl Scraper {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let plan = scenario.scrape.clone();
        let mut draws = Draws::new(seed, hash("scraper", 0));
        let mut jobs: Vec<Job> = Vec::new();
        for population in &scenario.clients {
            if !jobs.iter().any(|job| job.name == population.job) {
                let name = population.job.clone();
                jobs.push(Job { name, targets: vec![], active: vec![], cumulative: vec![] });
            }
        }
        let most = plan.scale.iter().map(|(_, n)| *n).fold(plan.targets, usize::max).max(1);
        let first = plan.scale.first().filter(|(at, _)| *at <= 0.0).map_or(plan.targets, |s| s.1);
        let mut targets = Vec::new();
        for (number, job) in jobs.iter_mut().enumerate() {
            for ordinal in 0..most {
                job.targets.push(targets.len() as u32);
                targets.push(Target {
                    job: number,
                    instance: instance(number, ordinal, 0),
                    active: ordinal < first,
                    weight: 1.0 + plan.weight_spread * (2.0 * draws.uniform() - 1.0),
                    incarnation: 0,
                    ordinal,
                });
            }
        }
        let mut codes = vec![OK, super::dependency::TIMED_OUT, super::dependency::CONFLICT];
        for dependency in &scenario.dependencies {
            codes.push(dependency.error_code);
            codes.extend(dependency.shed.map(|shed| shed.code));
        }
        codes.sort_unstable();
        codes.dedup();
        let dependencies: Vec<String> =
            scenario.dependencies.iter().map(|d| d.name.clone()).collect();
        let mut called = vec![false; jobs.len() * dependencies.len()];
        for population in &scenario.clients {
            if let Some(job) = jobs.iter().position(|job| job.name == population.job) {
                called[job * dependencies.len() + population.to] = true;
            }
        }
        let counters = targets.len() * dependencies.len() * (codes.len() + EXTRA);
        let scrapers = if matches!(plan.replicas, Replicas::Labelled) { 2 } else { 1 };
        let mut scraper = Self {
            first_code: scenario.dependencies.iter().map(|d| d.error_code).collect(),
            counts: vec![0; counters],
            exposed: vec![false; counters],
            shown: vec![(0, false); if plan.flush_seconds > 0.0 { counters } else { 0 }],
            wheel: vec![Vec::new(); WHEEL_MILLIS as usize],
            far: BinaryHeap::new(),
            drained_millis: 0,
            series_of: vec![NONE; counters * scrapers],
            series: Vec::new(),
            held: Vec::new(),
            start_millis: Timestamp::from_seconds(scenario.start_unix_seconds).millis(),
            elected: 0,
            plan,
            jobs,
            targets,
            dependencies,
            codes,
            called,
            draws,
        };
        for target in 0..scraper.targets.len() {
            scraper.begin(target);
        }
        for job in 0..scraper.jobs.len() {
            scraper.reweigh(job);
        }
        scraper
    }

    pub(super) fn job_of(&self, name: &str) -> usize {
        self.jobs.iter().position(|job| job.name == name).unwrap_or(0)
    }

    /// A target for one call of anybody, by the targets' weights.
    pub(super) fn any_target(&self, job: usize, draws: &mut Draws) -> u32 {
        let job = &self.jobs[job];
        let Some(total) = job.cumulative.last() else { return job.targets[0] };
        let at = draws.uniform() * total;
        let index = job.cumulative.partition_point(|sum| *sum <= at);
        job.active[index.min(job.active.len() - 1)]
    }

    /// The target of a client that stays with one while it is there.
    pub(super) fn home_target(&self, job: usize, client: usize) -> u32 {
        let job = &self.jobs[job];
        if job.active.is_empty() { job.targets[0] } else { job.active[client % job.active.len()] }
    }

    pub(super) fn is_active(&self, target: u32) -> bool {
        self.targets[target as usize].active
    }

    fn slots(&self) -> usize {
        self.codes.len() + EXTRA
    }

    fn counter(&self, target: u32, dependency: usize, slot: usize) -> u32 {
        ((target as usize * self.dependencies.len() + dependency) * self.slots() + slot) as u32
    }

    /// Counts an attempt whose outcome is known at `done`; `now` is the present.
    pub(super) fn count(&mut self, target: u32, dependency: usize, code: u16, now: u64, done: u64) {
        let slot = self.codes.iter().position(|known| *known == code).unwrap_or(0);
        let counter = self.counter(target, dependency, slot);
        // Rounded up: an outcome within a millisecond is seen by the scrape at its end.
        let millis = done.div_ceil(MILLI);
        if millis >= self.drained_millis + WHEEL_MILLIS {
            self.drain(now);
            if millis >= self.drained_millis + WHEEL_MILLIS {
                self.far.push(Reverse((millis, counter)));
                return;
            }
        }
        self.wheel[(millis.max(self.drained_millis) % WHEEL_MILLIS) as usize].push(counter);
    }

    /// Counts a retry or a call, for clients that count them, at once.
    pub(super) fn count_extra(&mut self, target: u32, dependency: usize, retry: bool) {
        if self.plan.retry_counters {
            let slot = self.codes.len() + usize::from(!retry);
            let counter = self.counter(target, dependency, slot) as usize;
            self.counts[counter] += 1;
            self.exposed[counter] = true;
        }
    }

    /// Takes in every outcome known by `now`.
    pub(super) fn drain(&mut self, now: u64) {
        let until = now / MILLI;
        while self.drained_millis <= until {
            let bucket = (self.drained_millis % WHEEL_MILLIS) as usize;
            for index in 0..self.wheel[bucket].len() {
                let counter = self.wheel[bucket][index] as usize;
                self.counts[counter] += 1;
                self.exposed[counter] = true;
            }
            self.wheel[bucket].clear();
            self.drained_millis += 1;
        }
        while let Some(Reverse((millis, counter))) = self.far.peek().copied()
            && millis <= until
        {
            self.far.pop();
            self.counts[counter as usize] += 1;
            self.exposed[counter as usize] = true;
        }
    }

    /// The first scrape of each target by each scraper, `(target, scraper, instant)`.
    pub(super) fn first_scrapes(&self, seed: u64) -> Vec<(u32, usize, u64)> {
        let scrapers = if self.plan.replicas == Replicas::One { 1 } else { 2 };
        let mut all = Vec::new();
        for (number, target) in (0..).zip(&self.targets) {
            for scraper in 0..scrapers {
                let name = format!("{}/{}/{scraper}", self.jobs[target.job].name, target.instance);
                let share = (hash(&name, seed) >> 11) as f64 / 9_007_199_254_740_992.0;
                all.push((number, scraper, micros(share * self.plan.interval_seconds)));
            }
        }
        all
    }

    /// When scrape number `k` of a target with this first scrape happens.
    pub(super) fn scrape_at(&mut self, first: u64, k: u32) -> u64 {
        let mut at = seconds(first) + f64::from(k) * self.plan.interval_seconds;
        at += self.plan.wobble_seconds * self.draws.normal();
        if self.draws.chance(self.plan.late) {
            at += self.draws.uniform() * 0.5 * self.plan.interval_seconds;
        }
        micros(at.max(0.0))
    }

    /// Shows what the exporter has gathered since the last flush.
    pub(super) fn flush(&mut self, target: u32, now: u64) {
        self.drain(now);
        let range = self.range(target as usize);
        for counter in range {
            self.shown[counter] = (self.counts[counter], self.exposed[counter]);
        }
    }

    fn range(&self, target: usize) -> std::ops::Range<usize> {
        let each = self.dependencies.len() * self.slots();
        target * each..(target + 1) * each
    }

    /// Reads one target; `late_seconds` after the scrape was due, which its timeout may not allow.
    pub(super) fn scrape(&mut self, target: u32, scraper: usize, now: u64, late_seconds: f64) {
        self.drain(now);
        let at = seconds(now);
        let timed_out = late_seconds > self.plan.timeout_seconds;
        let missed = self.draws.chance(self.plan.missed) || timed_out;
        let hole = self.plan.holes.iter().any(|(from, length)| at >= *from && at < from + length);
        if missed || hole || !self.targets[target as usize].active {
            return;
        }
        let flipping = matches!(self.plan.replicas, Replicas::Flipping { .. });
        if flipping && scraper != self.elected {
            return;
        }
        let jumped: f64 =
            self.plan.clock_jumps.iter().filter(|(when, _)| *when <= at).map(|(_, by)| by).sum();
        let millis = self.start_millis + (now / MILLI) as i64;
        let stamp = Timestamp::from_millis(millis).plus_seconds(jumped);
        let replica = if flipping { 0 } else { scraper };
        for counter in self.range(target as usize) {
            let (value, exposed) = if self.shown.is_empty() {
                (self.counts[counter], self.exposed[counter])
            } else {
                self.shown[counter]
            };
            if exposed {
                let series = self.series_for(target as usize, counter, replica);
                self.store(series, Sample { at: stamp, value: value as f64 });
            }
        }
    }

    fn store(&mut self, series: usize, sample: Sample) {
        let duplicated = self.draws.chance(self.plan.duplicated);
        let late = self.draws.chance(self.plan.out_of_order);
        let held = self.held[series].take();
        if late && held.is_none() {
            self.held[series] = Some(sample);
            return;
        }
        let samples = &mut self.series[series].samples;
        samples.push(sample);
        if duplicated {
            samples.push(sample);
        }
        samples.extend(held);
    }

    fn series_for(&mut self, target: usize, counter: usize, replica: usize) -> usize {
        let slot = replica * self.counts.len() + counter;
        if self.series_of[slot] == NONE {
            self.series_of[slot] = self.series.len() as u32;
            let labels = self.labels(target, counter, replica);
            self.series.push(SimulatedSeries { labels, samples: Vec::new() });
            self.held.push(None);
        }
        self.series_of[slot] as usize
    }

    fn labels(&self, target: usize, counter: usize, replica: usize) -> Labels {
        let within = counter - self.range(target).start;
        let (dependency, slot) = (within / self.slots(), within % self.slots());
        let target = &self.targets[target];
        let code = self.codes.get(slot).map(ToString::to_string).unwrap_or_default();
        let name = match slot.checked_sub(self.codes.len()) {
            None => REQUESTS,
            Some(0) => RETRIES,
            Some(_) => CALLS,
        };
        let twin = match (self.plan.replicas, replica) {
            (Replicas::Labelled, 0) => "a",
            (Replicas::Labelled, _) => "b",
            _ => "",
        };
        Labels::new([
            ("__name__", name),
            ("job", self.jobs[target.job].name.as_str()),
            ("instance", target.instance.as_str()),
            ("dependency", self.dependencies[dependency].as_str()),
            ("code", code.as_str()),
            ("replica", twin),
        ])
    }

    /// What a target shows right now: labels and value, in the order of the counters.
    pub(super) fn exposition(&self, target: usize) -> Vec<(Labels, u64)> {
        self.range(target)
            .filter(|counter| self.exposed[*counter])
            .map(|counter| (self.labels(target, counter, 0), self.counts[counter]))
            .collect()
    }

    /// The counters of a process that has just started.
    fn begin(&mut self, target: usize) {
        for counter in self.range(target) {
            self.counts[counter] = 0;
            self.exposed[counter] = false;
        }
        if self.plan.lazy {
            return;
        }
        let job = self.targets[target].job;
        for dependency in 0..self.dependencies.len() {
            if !self.called[job * self.dependencies.len() + dependency] {
                continue;
            }
            for code in [OK, self.first_code[dependency]] {
                let slot = self.codes.iter().position(|known| *known == code).unwrap_or(0);
                let counter = self.counter(target as u32, dependency, slot);
                self.exposed[counter as usize] = true;
            }
        }
    }

    fn reweigh(&mut self, job: usize) {
        let (mut active, mut cumulative, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for target in &self.jobs[job].targets {
            let state = &self.targets[*target as usize];
            if state.active {
                sum += state.weight;
                active.push(*target);
                cumulative.push(sum);
            }
        }
        self.jobs[job].active = active;
        self.jobs[job].cumulative = cumulative;
    }

    /// Takes a target away.
    pub(super) fn stop(&mut self, target: u32, now: u64) {
        self.drain(now);
        let job = self.targets[target as usize].job;
        self.targets[target as usize].active = false;
        self.reweigh(job);
    }

    /// Starts a target anew, under a new name where asked.
    pub(super) fn start(&mut self, target: u32, renamed: bool, now: u64) {
        self.drain(now);
        let index = target as usize;
        if renamed {
            let state = &mut self.targets[index];
            state.incarnation += 1;
            state.instance = instance(state.job, state.ordinal, state.incarnation);
            for counter in self.range(index) {
                for replica in 0..self.series_of.len() / self.counts.len() {
                    self.series_of[replica * self.counts.len() + counter] = NONE;
                }
            }
        }
        self.begin(index);
        self.targets[index].active = true;
        self.reweigh(self.targets[index].job);
    }

    /// Brings the number of targets of every job to `wanted`; new ones begin at zero.
    pub(super) fn scale(&mut self, wanted: usize, now: u64) {
        for target in 0..self.targets.len() {
            let (active, inside) =
                (self.targets[target].active, self.targets[target].ordinal < wanted);
            if active && !inside {
                self.stop(target as u32, now);
            } else if !active && inside {
                self.start(target as u32, true, now);
            }
        }
    }

    /// The targets a restart takes, in its order.
    pub(super) fn restarted(&mut self, restart: &Restart) -> Vec<u32> {
        let mut chosen = Vec::new();
        for target in 0..self.targets.len() {
            if restart.share >= 1.0 || self.draws.chance(restart.share) {
                chosen.push(target as u32);
            }
        }
        chosen
    }

    /// Shows the other twin from now on. Its newest sample is older than the one just shown, and
    /// is stamped with its own time: the counter seems to fall a little, which is no reset.
    pub(super) fn flip(&mut self) {
        self.elected = 1 - self.elected;
        for index in 0..self.series.len() {
            let samples = &mut self.series[index].samples;
            if let [.., before, last] = samples[..] {
                let stamp = last.at.plus_seconds(0.075);
                if self.draws.chance(0.5) {
                    samples.push(Sample { at: stamp, value: before.value });
                }
            }
        }
    }
}

/// Slots beside the codes: retries and calls.
const EXTRA: usize = 2;

fn instance(job: usize, ordinal: usize, incarnation: u32) -> String {
    let (high, low) = (ordinal / 250, ordinal % 250 + 1);
    format!("10.{}.{}.{low}:9100", job * 50 + high, incarnation % 250)
}

#[cfg(test)]
mod tests;
