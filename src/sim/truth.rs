//! What really happened: second by second for each dependency, and wave by wave for each herd.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// One second of one dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Second {
    /// Attempts that arrived.
    pub attempts: u32,
    /// Of these, retries.
    pub retries: u32,
    /// Attempts that were answered well, counted when the client knew.
    pub served: u32,
    /// Attempts that failed, counted when the client knew.
    pub failed: u32,
    /// Attempts waiting for their answer at the end of the second.
    pub in_flight: i32,
}

/// The seconds of one dependency.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    first: usize,
    seconds: VecDeque<Second>,
    kept: usize,
}

impl Timeline {
    /// An empty one that forgets all but the last `kept` seconds.
    pub(super) fn new(kept: usize) -> Self {
        Self { first: 0, seconds: VecDeque::new(), kept }
    }

    /// The row of a second; none if it is forgotten already.
    pub(super) fn at(&mut self, second: usize) -> Option<&mut Second> {
        let index = second.checked_sub(self.first)?;
        while self.seconds.len() <= index {
            self.seconds.push_back(Second::default());
        }
        while self.seconds.len() > self.kept {
            self.seconds.pop_front();
            self.first += 1;
        }
        self.seconds.get_mut(second.checked_sub(self.first)?)
    }

    /// The seconds in order, each with its number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Second)> + '_ {
        let mut in_flight = 0;
        self.seconds.iter().enumerate().map(move |(index, row)| {
            in_flight += row.in_flight;
            (self.first + index, Second { in_flight, ..*row })
        })
    }

    /// The sum of something over the seconds `from..to`.
    pub fn sum(&self, from: usize, to: usize, of: impl Fn(&Second) -> u32) -> u64 {
        let inside = |second: &usize| (from..to).contains(second);
        self.iter().filter(|(second, _)| inside(second)).map(|(_, row)| u64::from(of(&row))).sum()
    }
}

/// Retries of one number of one herd: a wave, where they come together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RetryGroup {
    /// How many attempts.
    pub attempts: u64,
    sum: f64,
    squares: f64,
    /// The first, seconds.
    pub first_seconds: f64,
    /// The last, seconds.
    pub last_seconds: f64,
}

impl RetryGroup {
    pub(super) fn add(&mut self, at: f64) {
        if self.attempts == 0 {
            self.first_seconds = at;
        }
        self.attempts += 1;
        self.last_seconds = at.max(self.last_seconds);
        self.first_seconds = at.min(self.first_seconds);
        // About the first instant, so that no digits are lost far from zero.
        self.sum += at;
        self.squares += at * at;
    }

    /// Their mean instant, seconds.
    #[must_use]
    pub fn mean_seconds(&self) -> f64 {
        self.sum / (self.attempts.max(1)) as f64
    }

    /// Their standard deviation, seconds.
    #[must_use]
    pub fn sd_seconds(&self) -> f64 {
        let mean = self.mean_seconds();
        libm::sqrt((self.squares / (self.attempts.max(1)) as f64 - mean * mean).max(0.0))
    }
}

/// Retry numbers that are told apart; later ones count to the last group.
pub(super) const GROUPS_MAX: usize = 64;

/// Bursts that are told apart.
const COHORTS_MAX: usize = 64;

/// What one population did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PopulationTruth {
    /// Its name.
    pub name: String,
    /// The dependency it calls.
    pub dependency: String,
    /// Calls wanted.
    pub calls: u64,
    /// Calls that ended well.
    pub served: u64,
    /// Calls given up.
    pub given_up: u64,
    /// Attempts not sent, since a budget, breaker or bulkhead held them back.
    pub held_back: u64,
    /// Second attempts sent beside a first one that had not answered yet.
    pub hedges: u64,
    /// When the last call ended, seconds.
    pub last_end_seconds: f64,
    /// Attempts by the number of the retry, the first attempt at index 0.
    pub groups: Vec<RetryGroup>,
    /// The same for each burst apart, the clients that started together; of the first 64 bursts.
    pub cohorts: Vec<Vec<RetryGroup>>,
}

impl PopulationTruth {
    /// All attempts, hedges among them.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.groups.iter().map(|group| group.attempts).sum::<u64>() + self.hedges
    }

    /// Adds an attempt at `at` seconds, the retry of this number, to the cohort of a burst.
    pub(super) fn add_to_cohort(&mut self, round: usize, retry: usize, at: f64) {
        if round >= COHORTS_MAX {
            return;
        }
        if self.cohorts.len() <= round {
            self.cohorts.resize_with(round + 1, Vec::new);
        }
        let cohort = &mut self.cohorts[round];
        if cohort.len() <= retry {
            cohort.resize_with(retry + 1, RetryGroup::default);
        }
        cohort[retry].add(at);
    }

    /// Attempts per call wanted.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        self.attempts() as f64 / self.calls.max(1) as f64
    }
}

/// What happened in one simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Unix time of second zero.
    pub start_unix_seconds: f64,
    /// Each dependency by name.
    pub dependencies: Vec<(String, Timeline)>,
    /// Each population.
    pub populations: Vec<PopulationTruth>,
    /// Each fault: dependency, start and end in seconds.
    pub faults: Vec<(String, f64, f64)>,
}

/// Share of failures under which a second counts as healthy again.
const HEALTHY_FAILURE_SHARE: f64 = 0.05;

impl Truth {
    /// The seconds of this dependency.
    #[must_use]
    pub fn timeline(&self, dependency: &str) -> Option<&Timeline> {
        self.dependencies.iter().find(|(name, _)| name == dependency).map(|(_, line)| line)
    }

    /// The population of this name.
    #[must_use]
    pub fn population(&self, name: &str) -> Option<&PopulationTruth> {
        self.populations.iter().find(|population| population.name == name)
    }

    /// Seconds from the end of the first fault to the last second in which more than 5 % failed.
    #[must_use]
    pub fn recovery_seconds(&self, dependency: &str) -> Option<f64> {
        let (_, _, ended) = self.faults.iter().find(|(name, _, _)| name == dependency)?;
        let line = self.timeline(dependency)?;
        let unhealthy = |row: &Second| {
            f64::from(row.failed) > HEALTHY_FAILURE_SHARE * f64::from(row.failed + row.served)
        };
        let last = line.iter().filter(|(_, row)| unhealthy(row)).map(|(at, _)| at + 1).last()?;
        Some((last as f64 - ended).max(0.0))
    }

    /// The highest attempts per second once the first fault had ended: what a dependency meets that
    /// has just come back.
    #[must_use]
    pub fn peak_after(&self, dependency: &str) -> Option<u32> {
        let (_, _, ended) = self.faults.iter().find(|(name, _, _)| name == dependency)?;
        let after = self.timeline(dependency)?.iter().filter(|(at, _)| *at as f64 >= *ended);
        after.map(|(_, row)| row.attempts).max()
    }

    /// The highest attempts per second.
    #[must_use]
    pub fn peak(&self, dependency: &str) -> u32 {
        self.timeline(dependency)
            .map_or(0, |line| line.iter().map(|(_, row)| row.attempts).max().unwrap_or(0))
    }

    /// As JSON: totals, the waves of each population and of each of its cohorts, and the seconds.
    /// `goodput` is the share of attempts that were answered well.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let dependencies: Vec<Value> =
            self.dependencies.iter().map(|(name, line)| self.dependency_json(name, line)).collect();
        let populations: Vec<Value> = self
            .populations
            .iter()
            .map(|p| {
                let cohorts: Vec<Value> = p.cohorts.iter().map(|groups| waves(groups)).collect();
                json!({
                    "name": p.name,
                    "dependency": p.dependency,
                    "calls": p.calls,
                    "attempts": p.attempts(),
                    "served": p.served,
                    "given_up": p.given_up,
                    "held_back": p.held_back,
                    "hedges": p.hedges,
                    "amplification": millis(p.amplification()),
                    "last_end_seconds": millis(p.last_end_seconds),
                    "retries": waves(&p.groups),
                    "cohorts": cohorts,
                })
            })
            .collect();
        let faults: Vec<Value> = self
            .faults
            .iter()
            .map(|(name, from, to)| {
                json!({"dependency": name, "from_seconds": millis(*from), "to_seconds": millis(*to)})
            })
            .collect();
        json!({
            "scenario": self.scenario,
            "seed": self.seed,
            "start": self.start_unix_seconds,
            "faults": faults,
            "populations": populations,
            "dependencies": dependencies,
        })
    }

    fn dependency_json(&self, name: &str, line: &Timeline) -> Value {
        let seconds: Vec<Value> = line
            .iter()
            .map(|(at, row)| {
                json!([at, row.attempts, row.retries, row.served, row.failed, row.in_flight])
            })
            .collect();
        let attempts = line.sum(0, usize::MAX, |row| row.attempts);
        let served = line.sum(0, usize::MAX, |row| row.served);
        json!({
            "name": name,
            "attempts": attempts,
            "retries": line.sum(0, usize::MAX, |row| row.retries),
            "served": served,
            "goodput": millis(served as f64 / attempts.max(1) as f64),
            "failed": line.sum(0, usize::MAX, |row| row.failed),
            "peak_per_second": self.peak(name),
            "peak_after_per_second": self.peak_after(name),
            "recovery_seconds": self.recovery_seconds(name).map(millis),
            "columns": ["second", "attempts", "retries", "served", "failed", "in_flight"],
            "seconds": seconds,
        })
    }
}

/// The waves of a herd: its attempts by the number of the retry.
fn waves(groups: &[RetryGroup]) -> Value {
    (0..)
        .zip(groups)
        .filter(|(_, group)| group.attempts > 0)
        .map(|(retry, group): (u32, _)| {
            json!({
                "retry": retry,
                "attempts": group.attempts,
                "mean_seconds": millis(group.mean_seconds()),
                "sd_seconds": millis(group.sd_seconds()),
                "first_seconds": millis(group.first_seconds),
                "last_seconds": millis(group.last_seconds),
            })
        })
        .collect()
}

/// Rounded to the millisecond: what is printed never depends on the last digit.
fn millis(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
