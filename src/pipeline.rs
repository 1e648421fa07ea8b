//! One synchronous pass from samples to incidents on one `now`, used by every command.
//!
//! `run`, `backtest`, `analyze`, `demo` and the tests drive this same pass; only the source and the
//! clock differ. Nothing here waits, reads a clock, or fails on data.
//!
//! ```text
//! push: sample -> observer of its dependency
//! pass: close intervals -> screen -> (only where it speaks) fits -> decision -> lifecycle
//! ```
//!
//! # Cost
//!
//! A pass touches each new interval once: two cumulative sums. The fits run only for dependencies
//! in which the screen found something, and less often the longer the trouble lasts.

pub mod around;
mod counters;
pub mod crew;
mod lanes;
pub mod replay;
pub mod stopwatch;
mod tracked;

use std::sync::Arc;
use std::time::Duration;

use crate::classify::advice::WhatIf;
pub use crate::incident::lifecycle::Reason;
use crate::incident::{Dependency, DependencyKey, Incident};
use crate::rules::Rules;
use crate::series::observer::MEMORY;
use crate::series::table::{DependencyId, LabelBuffer, SeriesEntry, SeriesTable};
use crate::series::{Labels, Role, Sample, TargetId, Timestamp};

use around::Around;
use crew::Crew;
use stopwatch::Stopwatch;
use tracked::Tracked;

/// One watch in its running form: which labels make a dependency, and which name the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// The configured name of the source.
    pub source: String,
    /// The name of the watch.
    pub name: String,
    /// One dependency for each distinct value of these labels.
    pub by: Vec<String>,
    /// Labels that name the caller.
    pub client: Vec<String>,
    /// Whether the requests hold the retries, as attempts do: a counter of calls hides them.
    pub requests_hold_retries: bool,
    /// Whether an error selector is given; without one a flood cannot be told from a surge.
    pub has_errors: bool,
    /// Periods, in seconds, that are the exporter's own and no evidence (flush intervals).
    pub flush_seconds: Vec<f64>,
}

/// The number of a watch, its index in the list the pipeline was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub usize);

/// How complete the answers of one watch were on this poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Everything asked for was answered.
    Whole,
    /// Answered with warnings: samples are used, nothing opens or closes.
    Partial,
    /// Not answered: nothing opens or closes.
    Missing,
}

/// One change of one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Why.
    pub reason: Reason,
    /// The incident as it is now; as it was, when it was withdrawn.
    pub incident: Incident,
}

/// What the pass can be told besides its watches.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How much history a baseline is learned from, seconds.
    pub baseline_seconds: f64,
    /// How late a sample may become visible; newer intervals are left for the next pass.
    pub visibility_seconds: f64,
    /// Resolved incidents kept in memory, for each dependency.
    pub resolved_kept: usize,
    /// What computes the effects of the advice, by a simulator that this module may not know.
    pub what_if: WhatIf,
    /// What times the fits.
    pub fits: Stopwatch,
    /// Who goes through history side by side.
    pub crew: Crew,
}

/// An hour: long enough for the dispersion of long sums, short enough to follow the day.
const BASELINE_SECONDS: f64 = 3600.0;
/// The last storms of a dependency are what people ask for; older ones are in the store.
const RESOLVED_KEPT: usize = 50;

impl Default for Config {
    fn default() -> Self {
        Self {
            baseline_seconds: BASELINE_SECONDS,
            visibility_seconds: 0.0,
            resolved_kept: RESOLVED_KEPT,
            what_if: WhatIf::default(),
            fits: Stopwatch::default(),
            crew: Crew::default(),
        }
    }
}

/// The waits that every fit is told of.
#[derive(Debug)]
struct Schedules {
    // Those that follow no formula.
    lists: Vec<Vec<f64>>,
    // Those of every known client in step.
    known: Vec<Vec<f64>>,
}

/// Everything squall knows between two polls.
#[derive(Debug)]
pub struct Pipeline {
    config: Config,
    rules: Arc<Rules>,
    schedules: Arc<Schedules>,
    watches: Vec<Watch>,
    tables: Vec<SeriesTable>,
    // By watch, then by the number its table gave the dependency.
    tracked: Vec<Vec<Tracked>>,
    // Open incidents of an earlier run whose dependency has not been seen yet.
    waiting: Vec<Incident>,
    buffer: LabelBuffer,
    round_ended_at: Option<Timestamp>,
}

/// How often series that are gone are looked for, and for how many such rounds one is kept: longer
/// than an observer remembers it.
const ROUND: Duration = Duration::from_secs(MEMORY.as_secs() / 4);
const IDLE_ROUNDS_MAX: u64 = 6;

impl Pipeline {
    /// A pipeline that has seen nothing.
    #[must_use]
    pub fn new(config: Config, watches: Vec<Watch>, rules: Arc<Rules>) -> Self {
        let tables =
            watches.iter().map(|watch| SeriesTable::new(&watch.by, &watch.client)).collect();
        let tracked = watches.iter().map(|_| Vec::new()).collect();
        Self {
            config,
            schedules: Arc::new(Schedules { lists: rules.lists(), known: rules.waits_in_step() }),
            rules,
            watches,
            tables,
            tracked,
            waiting: Vec::new(),
            buffer: LabelBuffer::default(),
            round_ended_at: None,
        }
    }

    /// Forgets series that no answer held for some while, where every poll interns what it holds:
    /// pods come and go, and their numbers are needed again. Called after each poll.
    pub fn end_round(&mut self, now: Timestamp) {
        let last = *self.round_ended_at.get_or_insert(now);
        if now.seconds_since(last) >= ROUND.as_secs_f64() {
            self.round_ended_at = Some(now);
            for table in &mut self.tables {
                table.end_round(IDLE_ROUNDS_MAX);
            }
        }
    }

    /// The number of a label set in a role of a watch; decoders ask once a series and answer.
    pub fn intern(&mut self, watch: WatchId, role: Role, labels: &mut LabelBuffer) -> SeriesEntry {
        let entry = self.tables[watch.0].intern(role, labels);
        self.track(watch, entry);
        entry
    }

    /// Takes one sample of an interned series. Ascending in time per series; any order of series.
    pub fn push_entry(&mut self, watch: WatchId, entry: SeriesEntry, sample: Sample) {
        self.tracked[watch.0][entry.dependency.0 as usize].push(entry, sample);
    }

    /// Takes one sample by its labels.
    pub fn push(&mut self, watch: WatchId, role: Role, labels: &Labels, sample: Sample) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        for (name, value) in labels.iter() {
            buffer.push(name, value);
        }
        let entry = self.intern(watch, role, &mut buffer);
        self.buffer = buffer;
        self.push_entry(watch, entry, sample);
    }

    fn track(&mut self, watch: WatchId, entry: SeriesEntry) {
        let tracked = &mut self.tracked[watch.0];
        while tracked.len() <= entry.dependency.0 as usize {
            let number =
                DependencyId(u32::try_from(tracked.len()).expect("fewer dependencies than series"));
            let key = DependencyKey {
                source: self.watches[watch.0].source.clone(),
                watch: self.watches[watch.0].name.clone(),
                labels: self.tables[watch.0].dependency_labels(number).clone(),
            };
            let mut new = Tracked::new(key, &self.watches[watch.0], Arc::clone(&self.schedules));
            if let Some(at) = self.waiting.iter().position(|open| same(&open.dependency, new.key()))
            {
                new.take_up(self.waiting.remove(at));
            }
            tracked.push(new);
        }
    }

    /// One poll: closes the intervals seen by `now` and says what changed. `trust` holds one entry
    /// for each watch.
    pub fn pass(&mut self, now: Timestamp, trust: &[Trust]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (watch, tracked) in self.tracked.iter_mut().enumerate() {
            let trust = trust.get(watch).copied().unwrap_or(Trust::Missing);
            for dependency in tracked {
                dependency.pass(now, trust, &self.config, &self.rules, &mut changes);
            }
        }
        changes
    }

    /// Ends the replay of a finite input: storms still open are decided on all that was seen, and
    /// stay open.
    pub fn finish(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for dependency in self.tracked.iter_mut().flatten() {
            dependency.finish(now, &self.config, &self.rules, &mut changes);
        }
        changes
    }

    /// Open incidents and the last resolved ones, in the order of watches and dependencies.
    pub fn incidents(&self) -> impl Iterator<Item = &Incident> {
        self.tracked.iter().flatten().flat_map(Tracked::incidents)
    }

    /// What is kept around an incident, cut out of the history that is still there.
    #[must_use]
    pub fn around(&self, incident: &Incident) -> Option<Around> {
        for (watch, tracked) in self.tracked.iter().enumerate() {
            let at = tracked.iter().position(|it| same(it.key(), &incident.dependency));
            if let Some(at) = at {
                let mut around = tracked[at].around(incident)?;
                around.model.clients = clients(&self.watches[watch], &self.tables[watch], at);
                return Some(around);
            }
        }
        None
    }

    /// What is watched, and how well it can be seen.
    #[must_use]
    pub fn dependencies(&self, now: Timestamp) -> Vec<Dependency> {
        self.tracked.iter().flatten().map(|tracked| tracked.describe(now)).collect()
    }

    /// Takes up incidents that were open when the daemon last stopped.
    pub fn take_up(&mut self, open: Vec<Incident>) {
        for incident in open {
            let found = self
                .tracked
                .iter_mut()
                .flatten()
                .find(|tracked| same(tracked.key(), &incident.dependency));
            match found {
                Some(tracked) => tracked.take_up(incident),
                None => self.waiting.push(incident),
            }
        }
    }

    /// The raw series known by number.
    #[must_use]
    pub fn series(&self) -> usize {
        self.tables.iter().map(SeriesTable::len).sum()
    }

    /// The watches, in the order of their numbers.
    #[must_use]
    pub fn watches(&self) -> &[Watch] {
        &self.watches
    }
}

/// Who calls a dependency, by the number of its targets.
fn clients(watch: &Watch, table: &SeriesTable, dependency: usize) -> Vec<String> {
    let Ok(number) = u32::try_from(dependency).map(DependencyId) else { return Vec::new() };
    if watch.client.is_empty() {
        return Vec::new();
    }
    let targets = (0..table.target_count(number)).filter_map(|it| u32::try_from(it).ok());
    targets
        .map(|target| {
            let labels = table.client_labels(number, TargetId(target));
            let values: Vec<&str> = labels.iter().map(|(_, value)| value).collect();
            values.join(" / ")
        })
        .collect()
}

/// The same dependency, whatever the source is called now.
fn same(a: &DependencyKey, b: &DependencyKey) -> bool {
    a.watch == b.watch && a.labels == b.labels
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn labels(pod: &str) -> LabelBuffer {
        let mut buffer = LabelBuffer::default();
        buffer.push("dependency", "payments");
        buffer.push("pod", pod);
        buffer
    }

    fn watch(has_errors: bool) -> Watch {
        Watch {
            source: "main".to_owned(),
            name: "http".to_owned(),
            by: vec!["dependency".to_owned()],
            client: Vec::new(),
            requests_hold_retries: true,
            has_errors,
            flush_seconds: Vec::new(),
        }
    }

    #[test]
    fn pods_that_are_gone_are_forgotten_and_others_are_not() {
        let rules = Arc::new(Rules::builtin());
        let mut pipeline = Pipeline::new(Config::default(), vec![watch(true)], rules);
        pipeline.intern(WatchId(0), Role::Requests, &mut labels("gone"));
        let stays = pipeline.intern(WatchId(0), Role::Requests, &mut labels("stays"));
        let poll = ROUND.as_secs_f64() / 3.0;
        for number in 0..40 {
            assert_eq!(
                pipeline.intern(WatchId(0), Role::Requests, &mut labels("stays")).series,
                stays.series
            );
            pipeline.end_round(Timestamp::from_seconds(poll * f64::from(number)));
        }
        assert_eq!(pipeline.series(), 1);
    }

    #[test]
    fn traffic_that_has_grown_is_normal_after_a_while_and_no_trouble_for_ever() {
        let fits = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&fits);
        let config = Config {
            fits: Stopwatch::new(Arc::new(move |work| {
                work();
                counted.fetch_add(1, Ordering::Relaxed);
            })),
            ..Config::default()
        };
        let rules = Arc::new(Rules::builtin());
        let mut pipeline = Pipeline::new(config, vec![watch(false)], rules);
        let entry = pipeline.intern(WatchId(0), Role::Requests, &mut labels("a"));
        let (scrape, hours) = (60, 12);
        let mut count = 0.0;
        let mut fits_by_the_sixth_hour = 0;
        for number in 0..hours * 3600 / scrape {
            let at = Timestamp::from_millis(number * scrape * 1000);
            // 0.1 a second at first, and 13 from the second hour on.
            let rate = if number * scrape < 7200 { 0.1 } else { 13.0 };
            let wobble = f64::from(u8::try_from(number % 5).unwrap()) - 2.0;
            count += (0.03f64.mul_add(wobble, 1.0) * rate * 60.0).round();
            pipeline.push_entry(WatchId(0), entry, Sample { at, value: count });
            let changes = pipeline.pass(at, &[Trust::Whole]);
            assert!(changes.is_empty(), "{changes:?}");
            if number * scrape == 6 * 3600 {
                fits_by_the_sixth_hour = fits.load(Ordering::Relaxed);
            }
        }
        assert!(fits_by_the_sixth_hour > 0);
        assert_eq!(fits.load(Ordering::Relaxed), fits_by_the_sixth_hour);
        let seen = pipeline.dependencies(Timestamp::from_millis(hours * 3_600_000));
        assert!((seen[0].baseline_rate - 13.0).abs() < 0.5, "{seen:?}");
    }
}
