//! The event loop: calls, attempts, answers, scrapes, in the order of their instants.
//!
//! The world knows no clock. `advance` brings it to an instant, so that the same world runs a day in
//! a second, or beside a real clock at any speed.

mod attempt;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::arrivals::{Arrivals, Stream};
use super::dependency::{Dependency, micros, seconds};
use super::random::{Draws, hash};
use super::scenario::{Calls, Population, Replicas, Scenario};
use super::scraper::Scraper;
use super::truth::{PopulationTruth, RetryGroup, Timeline, Truth};
use super::{Run, SimulatedSeries};
use crate::series::Labels;

/// Seconds of truth that a live world keeps: two days. A demo that runs for ever forgets what is
/// older.
pub(super) const TRUTH_SECONDS: usize = 172_800;

/// What happens at an instant; the number is a population, a call, a target or an entry of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The next call of a stream.
    Arrive,
    /// A burst, for the n-th time.
    Burst,
    /// A client sends an attempt.
    Attempt,
    /// A client learns how its attempt went.
    Done,
    /// A client gives up on an attempt that waits for an inner call.
    GiveUp,
    /// A client sends its second attempt beside the first.
    Hedge,
    /// A dependency has served its part and calls on.
    CallOn,
    /// A contended record is read.
    Read,
    /// A contended record is written.
    Write,
    /// A target is scraped, by the first or the second scraper.
    Scrape(u8),
    /// An exporter shows what it has gathered.
    Flush,
    /// A restart of the plan begins.
    Restart,
    /// A target goes away; the tag is the entry of the plan.
    Stop,
    /// A target is back; the tag is the entry of the plan.
    Start,
    /// The number of targets changes.
    Scale,
    /// The query layer shows the other scraper.
    Flip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    at: u64,
    order: u64,
    what: What,
    number: u32,
    /// The serial of the attempt, so that events of earlier attempts are told apart; else a count.
    tag: u32,
}

impl Ord for Event {
    /// The earliest is the greatest; at one instant, the one that was planned first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// No parent, no client.
const NONE: u32 = u32::MAX;

/// One call in progress.
#[derive(Debug, Clone, Copy)]
struct Call {
    population: u32,
    target: u32,
    client: u32,
    serial: u32,
    parent: u32,
    parent_serial: u32,
    /// The burst it belongs to, where it does.
    round: u32,
    retry: u32,
    code: u16,
    started: u64,
    attempted: u64,
    /// Of the attempt that is hedged, or the version of the record that was read.
    pending: u64,
    wait_seconds: f64,
    retry_after_seconds: f64,
}

/// What a population carries along.
#[derive(Debug)]
struct Fleet {
    plan: Population,
    job: usize,
    draws: Draws,
    arrivals: Option<Arrivals>,
    timeout: u64,
    /// Outcomes are settled when they are known, not in advance: needed by guards and inner calls.
    defers: bool,
    budget: f64,
    /// The breaker of each target.
    breakers: Vec<BreakerState>,
    in_flight: Vec<u32>,
}

/// One target's circuit breaker.
#[derive(Debug, Clone, Copy, Default)]
struct BreakerState {
    /// Failures in a row while it is closed.
    failures: u32,
    /// Until when it is open; none while it is closed.
    open_until: Option<u64>,
    /// The call whose outcome decides, once it was let through.
    probe: Option<u32>,
}

/// A simulation in progress.
#[derive(Debug)]
pub struct World {
    now: u64,
    planned: u64,
    serial: u32,
    events: BinaryHeap<Event>,
    calls: Vec<Call>,
    free: Vec<u32>,
    fleets: Vec<Fleet>,
    dependencies: Vec<Dependency>,
    scraper: Scraper,
    first_scrapes: Vec<u64>,
    truth: Truth,
}

impl World {
    /// The world of a scenario at its first instant, which remembers the truth of the last two days.
    #[must_use]
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        Self::remembering(scenario, seed, TRUTH_SECONDS)
    }

    /// The same, with a memory of this many seconds.
    pub(super) fn remembering(scenario: &Scenario, seed: u64, truth_seconds: usize) -> Self {
        let scraper = Scraper::new(scenario, seed);
        let targets = scraper.targets.len();
        let fleets: Vec<Fleet> = scenario
            .clients
            .iter()
            .map(|plan| Fleet {
                job: scraper.job_of(&plan.job),
                draws: Draws::new(seed, hash(&plan.name, 1)),
                arrivals: arrivals_of(plan, seed),
                timeout: micros(plan.timeout_seconds),
                defers: plan.guard.breaker.is_some()
                    || plan.guard.bulkhead.is_some()
                    || plan.calls == Calls::Inner,
                budget: BUDGET_BURST,
                breakers: vec![BreakerState::default(); targets],
                in_flight: vec![0; targets],
                plan: plan.clone(),
            })
            .collect();
        let dependencies = scenario
            .dependencies
            .iter()
            .map(|plan| Dependency::new(plan, Draws::new(seed, hash(&plan.name, 2))))
            .collect();
        let mut world = Self {
            now: 0,
            planned: 0,
            serial: 0,
            events: BinaryHeap::new(),
            calls: Vec::new(),
            free: Vec::new(),
            fleets,
            dependencies,
            first_scrapes: Vec::new(),
            scraper,
            truth: truth_of(scenario, seed, truth_seconds),
        };
        world.plan_start(scenario, seed);
        world
    }

    fn plan_start(&mut self, scenario: &Scenario, seed: u64) {
        for number in 0..self.fleets.len() {
            match self.fleets[number].plan.calls {
                Calls::Stream { .. } | Calls::Trace(_) => self.plan_arrival(number, 0),
                Calls::Burst { at_seconds, .. } => {
                    self.plan(micros(at_seconds), What::Burst, number as u32, 0);
                }
                Calls::Loop { size, from_seconds, within_seconds, .. } => {
                    for client in 0..size {
                        let within = self.fleets[number].draws.uniform() * within_seconds;
                        let call = self.new_call(number, client as u32, NONE, 0);
                        self.plan_attempt(micros(from_seconds + within), call);
                    }
                }
                Calls::Inner => {}
            }
        }
        for (target, scraper, first) in self.scraper.first_scrapes(seed) {
            self.first_scrapes.push(first);
            self.plan(first, What::Scrape(scraper as u8), target, 0);
        }
        if self.scraper.plan.flush_seconds > 0.0 {
            let every = self.scraper.plan.flush_seconds;
            for target in 0..self.scraper.targets.len() {
                let share = self.fleets.first_mut().map_or(0.0, |fleet| fleet.draws.uniform());
                self.plan(micros(share * every), What::Flush, target as u32, 0);
            }
        }
        for (index, restart) in (0..).zip(&scenario.scrape.restarts) {
            self.plan(micros(restart.at_seconds), What::Restart, index, 0);
        }
        for (index, (at, _)) in (0..).zip(&scenario.scrape.scale) {
            self.plan(micros(*at), What::Scale, index, 0);
        }
        if let Replicas::Flipping { every_seconds } = scenario.scrape.replicas {
            self.plan(micros(every_seconds), What::Flip, 0, 0);
        }
    }

    /// The present, seconds from the start.
    #[must_use]
    pub fn now_seconds(&self) -> f64 {
        seconds(self.now)
    }

    /// Brings the world to this instant, seconds from the start; never back.
    pub fn advance(&mut self, to_seconds: f64) {
        let to = micros(to_seconds);
        while let Some(event) = self.events.peek() {
            if event.at > to {
                break;
            }
            let Some(event) = self.events.pop() else { break };
            self.now = event.at;
            self.happen(event);
        }
        self.now = to.max(self.now);
        self.scraper.drain(self.now);
    }

    /// Ends the simulation.
    #[must_use]
    pub fn finish(self) -> Run {
        Run { series: self.scraper.series, truth: self.truth }
    }

    /// Everything collected so far.
    #[must_use]
    pub fn series(&self) -> &[SimulatedSeries] {
        &self.scraper.series
    }

    /// Drops samples older than this many seconds.
    pub fn forget(&mut self, older_than_seconds: f64) {
        let Some(newest) =
            self.scraper.series.iter().filter_map(|s| s.samples.last()).map(|s| s.at).max()
        else {
            return;
        };
        let oldest = newest.plus_seconds(-older_than_seconds);
        for series in &mut self.scraper.series {
            let dropped = series.samples.partition_point(|sample| sample.at < oldest);
            series.samples.drain(..dropped);
        }
    }

    /// The targets that are up: number, job and instance.
    #[must_use]
    pub fn targets(&self) -> Vec<(usize, &str, &str)> {
        let name = |job: usize| self.scraper.jobs[job].name.as_str();
        (0..)
            .zip(&self.scraper.targets)
            .filter(|(_, target)| target.active)
            .map(|(number, target)| (number, name(target.job), target.instance.as_str()))
            .collect()
    }

    /// What a target shows at this instant.
    #[must_use]
    pub fn exposition(&self, target: usize) -> Vec<(Labels, u64)> {
        if target < self.scraper.targets.len() {
            self.scraper.exposition(target)
        } else {
            Vec::new()
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    fn plan(&mut self, at: u64, what: What, number: u32, tag: u32) {
        self.planned += 1;
        self.events.push(Event { at, order: self.planned, what, number, tag });
    }

    fn plan_attempt(&mut self, at: u64, call: u32) {
        let serial = self.calls[call as usize].serial;
        self.plan(at, What::Attempt, call, serial);
    }

    fn plan_arrival(&mut self, number: usize, after: u64) {
        let next = self.fleets[number].arrivals.as_mut().and_then(|a| a.next_after(seconds(after)));
        if let Some(at) = next {
            self.plan(micros(at).max(after), What::Arrive, number as u32, 0);
        }
    }

    fn happen(&mut self, event: Event) {
        let number = event.number as usize;
        match event.what {
            What::Arrive => {
                let call = self.new_call(number, NONE, NONE, 0);
                self.attempt(call);
                self.plan_arrival(number, event.at);
            }
            What::Burst => self.burst(number, event.tag),
            What::Attempt if self.is_current(event) => self.attempt(event.number),
            What::Done if self.is_current(event) => self.settle_deferred(event.number),
            What::GiveUp if self.is_current(event) => self.give_up(event.number),
            What::Hedge if self.is_current(event) => self.hedge(event.number),
            What::CallOn if self.is_current(event) => self.call_on(event.number),
            What::Read if self.is_current(event) => self.read(event.number),
            What::Write if self.is_current(event) => self.write(event.number),
            What::Attempt
            | What::Done
            | What::GiveUp
            | What::Hedge
            | What::CallOn
            | What::Read
            | What::Write => {}
            What::Scrape(scraper) => self.scrape(event, scraper),
            What::Flush => {
                self.scraper.flush(event.number, event.at);
                let next = event.at + micros(self.scraper.plan.flush_seconds);
                self.plan(next, What::Flush, event.number, 0);
            }
            What::Restart => self.restart(number),
            What::Stop => self.scraper.stop(event.number, event.at),
            What::Start => {
                let renamed =
                    self.scraper.plan.restarts.get(event.tag as usize).is_some_and(|r| r.renamed);
                self.scraper.start(event.number, renamed, event.at);
            }
            What::Scale => {
                let (_, wanted) = self.scraper.plan.scale[number];
                self.scraper.scale(wanted, event.at);
            }
            What::Flip => {
                self.scraper.flip();
                if let Replicas::Flipping { every_seconds } = self.scraper.plan.replicas {
                    self.plan(event.at + micros(every_seconds), What::Flip, 0, 0);
                }
            }
        }
    }

    fn is_current(&self, event: Event) -> bool {
        self.calls[event.number as usize].serial == event.tag
    }

    fn burst(&mut self, number: usize, round: u32) {
        let Calls::Burst { size, within_seconds, every_seconds, times, .. } =
            self.fleets[number].plan.calls
        else {
            return;
        };
        for client in 0..size {
            let within = self.fleets[number].draws.uniform() * within_seconds;
            let call = self.new_call(number, client as u32, NONE, 0);
            self.calls[call as usize].round = round;
            self.plan_attempt(self.now + micros(within), call);
        }
        if every_seconds.is_finite() && round + 1 < times {
            self.plan(self.now + micros(every_seconds), What::Burst, number as u32, round + 1);
        }
    }

    fn scrape(&mut self, event: Event, scraper: u8) {
        let scrapers = if self.scraper.plan.replicas == Replicas::One { 1 } else { 2 };
        let first = self.first_scrapes[event.number as usize * scrapers + usize::from(scraper)];
        let due = seconds(first) + f64::from(event.tag) * self.scraper.plan.interval_seconds;
        let late = seconds(event.at) - due;
        self.scraper.scrape(event.number, usize::from(scraper), event.at, late);
        let k = event.tag + 1;
        let next = self.scraper.scrape_at(first, k).max(event.at + 1);
        self.plan(next, event.what, event.number, k);
    }

    fn restart(&mut self, index: usize) {
        let restart = self.scraper.plan.restarts[index].clone();
        let mut at = self.now;
        for target in self.scraper.restarted(&restart) {
            self.plan(at, What::Stop, target, index as u32);
            self.plan(at + micros(restart.down_seconds), What::Start, target, index as u32);
            at += micros(restart.stagger_seconds);
        }
        if restart.every_seconds.is_finite() {
            self.plan(self.now + micros(restart.every_seconds), What::Restart, index as u32, 0);
        }
    }
}

/// Retries a budget allows at once, before calls have paid for any: as the common libraries do.
const BUDGET_BURST: f64 = 10.0;

fn arrivals_of(plan: &Population, seed: u64) -> Option<Arrivals> {
    match &plan.calls {
        Calls::Stream { profile, dispersion, correlation_seconds, daily } => {
            let draws = Draws::new(seed, hash(&plan.name, 3));
            let stream = Stream::new(profile, *dispersion, *correlation_seconds, *daily, draws);
            Some(Arrivals::Stream(Box::new(stream)))
        }
        Calls::Trace(instants) => Some(Arrivals::Trace(Arc::clone(instants), 0)),
        Calls::Burst { .. } | Calls::Loop { .. } | Calls::Inner => None,
    }
}

fn truth_of(scenario: &Scenario, seed: u64, kept_seconds: usize) -> Truth {
    let dependency =
        |index: usize| scenario.dependencies.get(index).map(|d| d.name.clone()).unwrap_or_default();
    let mut faults = Vec::new();
    for plan in &scenario.dependencies {
        for fault in &plan.faults {
            let (from, end) = (fault.from_seconds, fault.from_seconds + fault.for_seconds);
            faults.push((plan.name.clone(), from, end));
        }
    }
    Truth {
        scenario: scenario.name.clone(),
        seed,
        start_unix_seconds: scenario.start_unix_seconds,
        dependencies: scenario
            .dependencies
            .iter()
            .map(|plan| (plan.name.clone(), Timeline::new(kept_seconds)))
            .collect(),
        populations: scenario
            .clients
            .iter()
            .map(|plan| PopulationTruth {
                name: plan.name.clone(),
                dependency: dependency(plan.to),
                groups: vec![RetryGroup::default(); super::truth::GROUPS_MAX],
                ..PopulationTruth::default()
            })
            .collect(),
        faults,
    }
}

#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
