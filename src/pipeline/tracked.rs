//! One dependency between two polls: its observer, its history, its episode.

use std::collections::VecDeque;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::around::{self, Around};
use super::counters::Counters;
use super::{Change, Config, Schedules, Trust, Watch};
use crate::classify::decide::{Scene, decide};
use crate::classify::rhythm::{Rhythm, Told, told_by_history};
use crate::classify::{Class, Finding, Observation, ObservationKind, complete};
use crate::detect::baseline::{Baseline, INTERVALS_MIN};
use crate::detect::even::Count;
use crate::detect::flood;
use crate::detect::onset::{self, Alarm, Screen};
use crate::detect::resolution::Resolution;
use crate::detect::schedule_fit::{self, FitInput, FitReport};
use crate::incident::lifecycle::{Context, Episode};
use crate::incident::{Dependency, DependencyKey, Incident, IncidentId, State, Visibility};
use crate::rules::Rules;
use crate::series::observer::Observer;
use crate::series::table::SeriesEntry;
use crate::series::{Interval, Sample, Timestamp};

/// History kept, seconds: the baseline's and a long storm's.
const HISTORY_SECONDS: f64 = 7200.0;
/// Most intervals kept of one dependency.
const HISTORY_INTERVALS: usize = 40_000;
/// Scrape cycles next to now that a lesson leaves out: trouble there may not have alarmed yet.
const LESSON_GUARD_CYCLES: f64 = 3.0;
/// Scrape cycles a first lesson takes.
const LEARNING_CYCLES: f64 = 12.0;
/// Shortest first lesson, seconds: red noise shows its size over a minute, not over a few scrapes.
const LEARNING_SECONDS_MIN: f64 = 60.0;
/// Growth of the time between two looks at one episode.
const LOOK_GROWTH: f64 = 0.06;
/// The same once an incident fires by name: later looks refine what is known.
const LOOK_GROWTH_FIRING: f64 = 0.15;
/// The same where no errors are counted: only a long train can be told there, and no look is urgent.
const LOOK_GROWTH_REQUESTS: f64 = 0.3;
/// Scrape cycles between two looks at least, where no errors are counted.
const LOOK_CYCLES_REQUESTS: f64 = 6.0;
/// Excess in standard deviations under which requests alone are not worth a fit.
const FIT_EXCESS_SDS: f64 = 8.0;
/// Seconds a suspicion without any incident is held before the new level is taken as normal.
const SUSPICION_SECONDS_MAX: f64 = 900.0;
/// The same in scrape cycles: as many as a lesson of the new level takes, the guard included.
const SUSPICION_CYCLES_MAX: f64 = LEARNING_CYCLES + LESSON_GUARD_CYCLES + 4.0;
/// Quiet scrape cycles after which a suspicion is dropped.
const SUSPICION_QUIET_CYCLES: f64 = 4.0;
/// Intervals of trouble from which it is listened to as a series.
const HEARD_MIN: usize = 60;
/// Normal traffic it is compared to, seconds.
const HEARD_BEFORE_SECONDS: f64 = 1800.0;
/// How often the hours before are asked about a surge, seconds.
const HISTORY_ASKED_SECONDS: f64 = 600.0;
/// Most observations kept.
const OBSERVATIONS_MAX: usize = 20;
/// Most spans of past trouble that lessons leave out.
const EXCLUDED_MAX: usize = 64;
/// Scrape cycles before the first failure in which a rise would have come first.
const LEAD_CYCLES: f64 = 8.0;
/// Scrape cycles without a sample after which a dependency is stale.
const STALE_CYCLES: f64 = 5.0;

/// Trouble that the screen reported and no incident has claimed yet.
#[derive(Debug, Clone)]
struct Suspicion {
    alarm: Alarm,
    quiet_until: Timestamp,
    since: Timestamp,
    episode: Episode,
    next_look: Timestamp,
    // What ruled a storm out at the last look.
    ruled: Option<Observation>,
    // The last fit, which stands as long as no interval is added to what it was made of.
    fit: Option<FitReport>,
    // What repeats, and of how many intervals that was heard.
    rhythm: Option<(usize, Rhythm)>,
}

/// One dependency.
#[derive(Debug)]
pub(super) struct Tracked {
    key: DependencyKey,
    name: String,
    with_errors: bool,
    schedules: Arc<Schedules>,
    // Periods that are the exporter's own, seconds.
    flush_seconds: Vec<f64>,
    counters: Counters,
    observer: Observer,
    history: VecDeque<Interval>,
    targets: usize,
    screen: Screen,
    baseline: Option<Baseline>,
    resolution: Option<Resolution>,
    learned_at: Timestamp,
    /// Since when traffic is at the level that is normal now: nothing older teaches.
    normal_since: Timestamp,
    /// Until when growth was looked at and taken as normal.
    settled_until: Timestamp,
    ask_history_at: Timestamp,
    excluded: VecDeque<[Timestamp; 2]>,
    suspicion: Option<Suspicion>,
    taken_up: Option<Incident>,
    resolved: VecDeque<Incident>,
    observations: VecDeque<Observation>,
    seen_until: Option<Timestamp>,
}

impl Tracked {
    pub(super) fn new(key: DependencyKey, watch: &Watch, schedules: Arc<Schedules>) -> Self {
        Self {
            name: key.name(),
            key,
            with_errors: watch.has_errors,
            schedules,
            flush_seconds: watch.flush_seconds.clone(),
            counters: Counters::new(watch.requests_hold_retries),
            observer: Observer::default(),
            history: VecDeque::new(),
            targets: 0,
            screen: Screen::default(),
            baseline: None,
            resolution: None,
            learned_at: Timestamp::default(),
            normal_since: Timestamp::default(),
            settled_until: Timestamp::default(),
            ask_history_at: Timestamp::default(),
            excluded: VecDeque::new(),
            suspicion: None,
            taken_up: None,
            resolved: VecDeque::new(),
            observations: VecDeque::new(),
            seen_until: None,
        }
    }

    pub(super) const fn key(&self) -> &DependencyKey {
        &self.key
    }

    pub(super) fn push(&mut self, entry: SeriesEntry, sample: Sample) {
        self.observer.push(entry.role, entry.target, entry.series, sample);
    }

    /// Takes up an incident of an earlier run. Trouble that was found meanwhile under another
    /// identity goes on under this one.
    pub(super) fn take_up(&mut self, incident: Incident) {
        let scrape_seconds = self.resolution.map_or(0.0, |resolution| resolution.scrape_seconds);
        match &mut self.suspicion {
            Some(suspicion) if suspicion.episode.goes_on_from(&incident, scrape_seconds) => {
                suspicion.episode.go_on_as(incident);
            }
            _ => self.taken_up = Some(incident),
        }
    }

    pub(super) fn incidents(&self) -> impl Iterator<Item = &Incident> {
        let open = self.suspicion.as_ref().and_then(|s| s.episode.incident.as_ref());
        self.resolved.iter().chain(self.taken_up.iter()).chain(open)
    }

    /// What is kept around one of its incidents; none before normal traffic is known.
    pub(super) fn around(&self, incident: &Incident) -> Option<Around> {
        let (baseline, resolution) = (self.baseline.as_ref()?, self.resolution.as_ref()?);
        around::cut(incident, self.history.iter(), baseline, resolution)
    }

    /// One poll of this dependency.
    pub(super) fn pass(
        &mut self,
        now: Timestamp,
        trust: Trust,
        config: &Config,
        rules: &Rules,
        changes: &mut Vec<Change>,
    ) {
        if trust == Trust::Missing {
            return;
        }
        let watermark = now.plus_seconds(-config.visibility_seconds);
        let closed = self.observer.close(watermark);
        let mut alarm = None;
        for interval in closed.requests {
            self.targets = self.targets.max(interval.target.0 as usize + 1);
            self.seen_until = self.seen_until.max(Some(interval.to));
            if let Some(baseline) = &self.baseline {
                alarm = self.screen.push(&interval, baseline).or(alarm);
            }
            self.history.push_back(interval);
        }
        self.counters.take(closed.retries, closed.calls);
        self.forget();
        if trust == Trust::Partial {
            return;
        }
        self.learn(config);
        if let Some(alarm) = alarm {
            self.suspect(alarm, now);
        }
        self.look(now, config, rules, changes);
        self.expire_taken_up(now, changes);
    }

    /// The last look of a replay, at everything that was seen.
    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        config: &Config,
        rules: &Rules,
        changes: &mut Vec<Change>,
    ) {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.next_look = now;
        }
        self.pass(now, Trust::Whole, config, rules, changes);
    }

    /// How well this dependency is seen.
    pub(super) fn describe(&self, now: Timestamp) -> Dependency {
        let scrape = self.resolution.map_or(0.0, |resolution| resolution.scrape_seconds);
        let stale = self.seen_until.is_none_or(|seen| {
            scrape > 0.0 && now.seconds_since(seen) > STALE_CYCLES.mul_add(scrape.max(1.0), 60.0)
        });
        let state = match &self.resolution {
            None if stale && self.seen_until.is_some() => Visibility::Stale,
            None => Visibility::Learning,
            Some(_) if stale => Visibility::Stale,
            Some(resolution) if resolution.is_blind() => Visibility::Blind,
            Some(_) => Visibility::Watched,
        };
        Dependency {
            key: self.key.clone(),
            state,
            targets: self.resolution.map_or(self.targets, |resolution| resolution.targets),
            scrape_interval_seconds: scrape,
            effective_step_seconds: self.resolution.map_or(0.0, |r| r.step_seconds),
            resolvable_gap_seconds: self.resolution.map_or(0.0, |r| r.gap_seconds),
            baseline_rate: self.baseline.as_ref().map_or(0.0, |baseline| baseline.rate),
            dispersion: self.baseline.as_ref().map_or(1.0, |baseline| baseline.dispersion),
            last_sample_at: self.seen_until,
            observations: self.observations.iter().cloned().collect(),
        }
    }

    /// Drops history past its bounds.
    fn forget(&mut self) {
        let Some(seen) = self.seen_until else { return };
        let oldest = seen.plus_seconds(-HISTORY_SECONDS);
        self.counters.forget(oldest);
        while self.history.front().is_some_and(|interval| interval.to < oldest)
            || self.history.len() > HISTORY_INTERVALS
        {
            self.history.pop_front();
        }
    }

    /// Learns normal traffic again, when it is time and nothing is wrong.
    fn learn(&mut self, config: &Config) {
        let Some(seen) = self.seen_until else { return };
        if self.suspicion.is_some() {
            return;
        }
        let cycle = self.resolution.map(|resolution| resolution.scrape_seconds);
        let due = match (&self.baseline, cycle) {
            (Some(known), Some(cycle)) => {
                seen.seconds_since(self.learned_at) >= known.lasts_seconds(cycle)
            }
            _ => self.history.len() >= INTERVALS_MIN,
        };
        if !due {
            return;
        }
        let guard = cycle.map_or(0.0, |cycle| LESSON_GUARD_CYCLES * cycle);
        let from = seen.plus_seconds(-config.baseline_seconds).max(self.normal_since);
        let lesson = self.calm(from, seen.plus_seconds(-guard));
        let Ok(baseline) = Baseline::learn(&lesson, self.targets) else { return };
        let resolution = Resolution::measure(&lesson, &baseline, self.with_errors);
        let span = baseline.span[1].seconds_since(baseline.span[0]);
        if span < (LEARNING_CYCLES * resolution.scrape_seconds).max(LEARNING_SECONDS_MIN) {
            return;
        }
        self.baseline = Some(baseline);
        self.resolution = Some(resolution);
        self.learned_at = seen;
    }

    /// Intervals of a span without those of past trouble.
    fn calm(&self, from: Timestamp, to: Timestamp) -> Vec<Interval> {
        self.history
            .iter()
            .filter(|interval| interval.to > from && interval.to <= to)
            .filter(|interval| {
                !self
                    .excluded
                    .iter()
                    .any(|[start, end]| interval.to > *start && interval.from < *end)
            })
            .copied()
            .collect()
    }

    /// Opens a suspicion, or turns one about requests into one about errors.
    fn suspect(&mut self, alarm: Alarm, now: Timestamp) {
        // What was trouble before has its own incident: this one begins after it.
        let after = self.excluded.back().map_or_else(Timestamp::default, |span| span[1]);
        let quiet_until = self.screen.quiet_until(alarm).max(after).max(self.settled_until);
        let newer = match &self.suspicion {
            None => true,
            Some(known) => {
                known.alarm == Alarm::Requests
                    && alarm == Alarm::Errors
                    && known.episode.incident.is_none()
            }
        };
        if !newer {
            return;
        }
        let Some(anchor) = self.anchor(alarm, quiet_until) else { return };
        let episode = match self.taken_up.take() {
            Some(incident) => Episode::take_up(incident),
            None => Episode::open(self.identity(anchor), anchor),
        };
        self.suspicion = Some(Suspicion {
            alarm,
            quiet_until,
            since: now,
            episode,
            next_look: now,
            ruled: None,
            fit: None,
            rhythm: None,
        });
    }

    /// The end of the first interval with trouble.
    fn anchor(&self, alarm: Alarm, quiet_until: Timestamp) -> Option<Timestamp> {
        self.bracket(alarm, quiet_until).map(|bracket| bracket[1])
    }

    fn bracket(&self, alarm: Alarm, quiet_until: Timestamp) -> Option<[Timestamp; 2]> {
        let baseline = self.baseline.as_ref()?;
        let recent: Vec<Interval> = self.since(quiet_until);
        match alarm {
            Alarm::Errors => onset::bracket(&recent, baseline, quiet_until),
            Alarm::Requests => onset::bracket_requests(&recent, baseline, quiet_until),
        }
    }

    /// Intervals that end after an instant, sorted by their end.
    fn since(&self, from: Timestamp) -> Vec<Interval> {
        let mut kept: Vec<Interval> =
            self.history.iter().filter(|interval| interval.to > from).copied().collect();
        kept.sort_by_key(|interval| (interval.to, interval.target));
        kept
    }

    /// The same storm has the same identity on every replica and every replay: it rests on the
    /// dependency and on the scrape that first saw the failure, both the data's own.
    fn identity(&self, anchor: Timestamp) -> IncidentId {
        let mut hash = Sha256::new();
        hash.update(self.key.watch.as_bytes());
        hash.update([0xFF]);
        for (name, value) in self.key.labels.iter() {
            hash.update(name.as_bytes());
            hash.update([0xFF]);
            hash.update(value.as_bytes());
            hash.update([0xFF]);
        }
        hash.update(anchor.millis().to_be_bytes());
        let digest = hash.finalize();
        IncidentId(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Looks at the suspicion, if it is time to.
    fn look(&mut self, now: Timestamp, config: &Config, rules: &Rules, changes: &mut Vec<Change>) {
        let Some(mut suspicion) = self.suspicion.take() else { return };
        let (Some(baseline), Some(resolution), Some(seen)) =
            (&self.baseline, &self.resolution, self.seen_until)
        else {
            return;
        };
        let Some(bracket) = self.bracket(suspicion.alarm, suspicion.quiet_until) else {
            self.screen.reset();
            return;
        };
        let cycle = resolution.scrape_seconds;
        let lead_from = bracket[0].plus_seconds(-LEAD_CYCLES * cycle);
        let intervals = self.since(lead_from);
        let load = flood::measure(&intervals, baseline, bracket[0]);
        let context = Context { active_until: load.active_until, scrape_seconds: cycle };
        if now >= suspicion.next_look {
            let elapsed = now.seconds_since(bracket[0]).max(0.0);
            let fires = suspicion.episode.fires();
            let named = fires.is_some_and(|class| class != Class::Inconclusive);
            let wait = match suspicion.alarm {
                Alarm::Errors if named => LOOK_GROWTH_FIRING * elapsed,
                Alarm::Errors => LOOK_GROWTH * elapsed,
                Alarm::Requests => {
                    (LOOK_GROWTH_REQUESTS * elapsed).max(LOOK_CYCLES_REQUESTS * cycle)
                }
            };
            // Without failures a watch that counts them has nothing to fit, and one that counts
            // none only what stands far above its noise.
            let worth_a_fit = match suspicion.alarm {
                Alarm::Errors => true,
                Alarm::Requests => !self.with_errors && load.excess_sds() >= FIT_EXCESS_SDS,
            };
            suspicion.next_look = now.plus_seconds(wait);
            let input = FitInput {
                intervals: &intervals,
                shares: &baseline.shares,
                background_rate: baseline.rate,
                error_floor_rate: baseline.rate * baseline.error_ratio,
                dispersion: baseline.dispersion,
                error_dispersion: baseline.error_dispersion,
                onset: bracket,
                now: seen,
                lists: &self.schedules.lists,
            };
            let last = suspicion.fit.take();
            let fitted = || config.fits.time(|| schedule_fit::refit(&input, last).ok());
            let mut fit = worth_a_fit.then(fitted).flatten();
            let last = suspicion.rhythm.take();
            suspicion.rhythm = self.heard(suspicion.alarm, bracket, load.active_until, last);
            let finding = decide(&Scene {
                dependency: &self.name,
                with_errors: self.with_errors,
                baseline,
                resolution,
                onset: bracket,
                load: &load,
                lead_sds: lead_sds(&intervals, baseline, bracket[0]),
                fit: fit.as_ref(),
                rhythm: suspicion.rhythm.as_ref().map(|(_, rhythm)| rhythm),
                seen_until: seen,
                fires,
            });
            if let (Some(fit), true) = (&mut fit, finding.may_be_named()) {
                config.fits.time(|| fit.ask_known(&input, &self.schedules.known));
            }
            suspicion.fit = fit;
            let finding =
                self.counters.corroborated(finding, &intervals, [bracket[0], context.active_until]);
            let known = suspicion.fit.as_ref().map_or(&[][..], |fit| &fit.known);
            let finding = complete(finding, &self.name, resolution, rules, known, &config.what_if);
            suspicion.ruled = match &finding {
                Finding::Ruled(observation) => Some(observation.clone()),
                _ => None,
            };
            let before = suspicion.episode.incident.clone();
            if let Some(reason) = suspicion.episode.step(&self.key, finding, context, now) {
                let incident = suspicion.episode.incident.clone().or(before);
                changes.extend(incident.map(|incident| Change { reason, incident }));
            }
        }
        self.settle(suspicion, context, bracket, seen, now, changes);
    }

    /// What repeats in the trouble, heard again each time that it holds half as much again.
    fn heard(
        &self,
        alarm: Alarm,
        bracket: [Timestamp; 2],
        until: Timestamp,
        last: Option<(usize, Rhythm)>,
    ) -> Option<(usize, Rhythm)> {
        let during: Vec<Interval> = self
            .since(bracket[1])
            .into_iter()
            .filter(|interval| interval.from >= bracket[1] && interval.to <= until)
            .collect();
        let needed = last.as_ref().map_or(HEARD_MIN, |(heard, _)| heard + heard / 2);
        if during.len() < needed {
            return last;
        }
        let count = match alarm {
            Alarm::Errors => Count::Errors,
            Alarm::Requests => Count::Requests,
        };
        let before = self.calm(bracket[0].plus_seconds(-HEARD_BEFORE_SECONDS), bracket[0]);
        let told = Told { during: &during, before: &before, bracket, flush: &self.flush_seconds };
        Some((during.len(), Rhythm::hear(&told, count)))
    }

    /// Ends the suspicion when it is over, or keeps it.
    fn settle(
        &mut self,
        mut suspicion: Suspicion,
        context: Context,
        bracket: [Timestamp; 2],
        seen: Timestamp,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let quiet = seen.seconds_since(context.active_until);
        if suspicion.episode.incident.is_some() {
            // A hole in the data must not end a storm: what counts is what was seen.
            if !suspicion.episode.is_over(context, seen) {
                self.suspicion = Some(suspicion);
                return;
            }
            if let Some(reason) = suspicion.episode.close(now) {
                changes.extend(
                    suspicion.episode.incident.clone().map(|incident| Change { reason, incident }),
                );
            }
            self.resolved.extend(suspicion.episode.incident.take());
            while self.resolved.len() > super::RESOLVED_KEPT {
                self.resolved.pop_front();
            }
        } else {
            let quiet_enough = quiet > (SUSPICION_QUIET_CYCLES * context.scrape_seconds).max(20.0);
            let longest = SUSPICION_SECONDS_MAX.max(SUSPICION_CYCLES_MAX * context.scrape_seconds);
            let too_long = now.seconds_since(suspicion.since) > longest;
            if !(quiet_enough || too_long) {
                self.suspicion = Some(suspicion);
                return;
            }
            if let Some(observation) = suspicion.ruled.take() {
                self.observe(observation, now);
            }
            if too_long && suspicion.alarm == Alarm::Requests {
                // Traffic has grown, and nothing fails: the new level is the normal one from here on,
                // and what was before is no part of it.
                self.normal_since = bracket[0];
                self.learned_at = Timestamp::default();
                self.settled_until = context.active_until.plus_seconds(context.scrape_seconds);
                self.screen.reset();
                return;
            }
        }
        self.excluded
            .push_back([bracket[0], context.active_until.plus_seconds(context.scrape_seconds)]);
        while self.excluded.len() > EXCLUDED_MAX {
            self.excluded.pop_front();
        }
        self.screen.reset();
    }

    fn observe(&mut self, observation: Observation, now: Timestamp) {
        // Surges at night and at noon are one kind each; the newest stand for them.
        if observation.kind == ObservationKind::OrganicSurge && observation.to <= observation.from {
            return;
        }
        // History is asked now and then: what it says of one burst holds for the next.
        let observation = if now >= self.ask_history_at {
            self.ask_history_at = now.plus_seconds(HISTORY_ASKED_SECONDS);
            let history: Vec<Interval> = self.history.iter().copied().collect();
            told_by_history(&history, &self.flush_seconds, observation)
        } else {
            observation
        };
        self.observations.push_back(observation);
        while self.observations.len() > OBSERVATIONS_MAX {
            self.observations.pop_front();
        }
    }

    /// Ends an incident of an earlier run that was over before this one saw anything.
    fn expire_taken_up(&mut self, now: Timestamp, changes: &mut Vec<Change>) {
        let (Some(seen), Some(resolution)) = (self.seen_until, self.resolution) else { return };
        let Some(incident) = self.taken_up.take() else { return };
        let mut episode = Episode::take_up(incident);
        let context = Context {
            active_until: episode.active_until,
            scrape_seconds: resolution.scrape_seconds,
        };
        if !episode.is_over(context, seen) {
            self.taken_up = episode.incident.filter(|incident| incident.state != State::Resolved);
            return;
        }
        if let Some(reason) = episode.close(now) {
            changes.extend(episode.incident.clone().map(|incident| Change { reason, incident }));
        }
        self.resolved.extend(episode.incident);
    }
}

/// Excess in the cycles before the first failure, in standard deviations.
fn lead_sds(intervals: &[Interval], baseline: &Baseline, onset: Timestamp) -> f64 {
    let (mut excess, mut expected) = (0.0, 0.0);
    let (mut from, mut to) = (onset, Timestamp::default());
    for interval in intervals.iter().filter(|interval| interval.to <= onset) {
        let mean = baseline.expected(interval);
        excess += interval.requests - mean;
        expected += mean;
        from = from.min(interval.from);
        to = to.max(interval.to);
    }
    let dispersion = baseline.sum_dispersion(to.seconds_since(from).max(0.0));
    excess / (dispersion * f64::max(expected, 1.0)).sqrt()
}
