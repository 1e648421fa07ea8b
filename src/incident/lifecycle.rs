//! The life of an incident: a pure transition from what is believed and a finding to what is
//! believed next, and why.
//!
//! A verdict on raw counters wavers while waves come in. Acting on each one would page twice for
//! one storm, or resolve it in a trough. So a class fires only when a second look agrees, changes
//! only when several do, and an incident ends only when the longest wait of its schedule has passed
//! without anything.
//!
//! ```text
//!            Storm, clear twice or certain
//! pending ------------------------------------> firing ----> resolved
//!    |  nothing ever fired, and it was none        ^   quiet for the hold-off
//!    `--> gone (kept as an observation)            `-- revised in place, class and all
//! ```
//!
//! There is no transition out of resolved: what comes later is another incident, unless it comes
//! before the hold-off has passed, and then it never was resolved.

use crate::classify::{Class, Finding, Ripeness, Severity, Verdict};
use crate::incident::{DependencyKey, Incident, IncidentId, State};
use crate::series::Timestamp;

/// Looks that must agree before a clear class fires.
const LOOKS_TO_FIRE: u32 = 2;
/// Looks that must agree before a firing incident changes its class.
const LOOKS_TO_CHANGE: u32 = 2;
/// Looks that must agree before a paging incident becomes one that does not page: a page already
/// went out, and taking it back wants more than a trough.
const LOOKS_TO_RETRACT: u32 = 3;
/// Shortest quiet time before an incident ends.
const HOLD_SECONDS_MIN: f64 = 60.0;
/// Scrapes without anything before an incident ends.
const HOLD_SCRAPES: f64 = 4.0;
/// Share of the longest expected wait that is added to it, for latency and jitter.
const HOLD_WAIT_SHARE: f64 = 1.25;
/// Longest wait an incident is held open for: past it, a wave is a new story.
const HOLD_WAIT_SECONDS_MAX: f64 = 330.0;
/// Seconds between two revisions that differ in numbers only.
const REVISION_SECONDS: f64 = 60.0;

/// Why an incident changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is new and provisional.
    Opened,
    /// Its class became clear.
    Fired,
    /// What is believed of it changed.
    Revised,
    /// It is over.
    Resolved,
    /// It was provisional, and it was nothing.
    Withdrawn,
}

impl Reason {
    /// The fixed name used in JSON, the store and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Fired => "fired",
            Self::Revised => "revised",
            Self::Resolved => "resolved",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// One outage of one dependency, from the first failure to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The incident's identity, fixed when trouble is first seen.
    pub id: IncidentId,
    /// The end of the first interval that held failures; what the identity rests on.
    pub anchor: Timestamp,
    /// The end of the last interval that held trouble.
    pub active_until: Timestamp,
    /// What is believed, once retries are seen.
    pub incident: Option<Incident>,
    /// The class the last looks agreed on, and how many they were.
    streak: Option<(Class, u32)>,
    revised_at: Timestamp,
}

/// What the pass knows of an episode besides the finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context {
    /// The end of the last interval that held trouble.
    pub active_until: Timestamp,
    /// Median seconds between two scrapes of one target.
    pub scrape_seconds: f64,
}

impl Episode {
    /// Opens an episode anchored at the first interval with failures.
    #[must_use]
    pub fn open(id: IncidentId, anchor: Timestamp) -> Self {
        Self { id, anchor, active_until: anchor, incident: None, streak: None, revised_at: anchor }
    }

    /// Takes up an incident that was open when the daemon last stopped.
    #[must_use]
    pub fn take_up(incident: Incident) -> Self {
        Self {
            id: incident.id.clone(),
            anchor: incident.verdict.started_at,
            active_until: incident.updated_at,
            streak: Some((incident.verdict.class, LOOKS_TO_FIRE)),
            revised_at: incident.updated_at,
            incident: Some(incident),
        }
    }

    /// Whether an incident of an earlier run was not over yet when this trouble began.
    #[must_use]
    pub fn goes_on_from(&self, incident: &Incident, scrape_seconds: f64) -> bool {
        let hold_seconds = Self::take_up(incident.clone()).hold_seconds(scrape_seconds);
        self.anchor.seconds_since(incident.updated_at) <= hold_seconds
    }

    /// Goes on as an incident of an earlier run: one outage is one incident, whoever saw it first.
    pub fn go_on_as(&mut self, incident: Incident) {
        let known = Self::take_up(incident);
        let active_until = self.active_until.max(known.active_until);
        *self = Self { anchor: self.anchor, active_until, ..known };
    }

    /// Quiet seconds after which the episode is over.
    #[must_use]
    pub fn hold_seconds(&self, scrape_seconds: f64) -> f64 {
        let longest_wait = self
            .incident
            .as_ref()
            .and_then(|incident| incident.verdict.schedule.as_ref())
            .and_then(next_wait)
            .unwrap_or(0.0);
        (HOLD_SCRAPES * scrape_seconds)
            .max(HOLD_SECONDS_MIN)
            .max((HOLD_WAIT_SHARE * longest_wait).min(HOLD_WAIT_SECONDS_MAX))
    }

    /// Takes one finding; the reason when the incident changed.
    pub fn step(
        &mut self,
        key: &DependencyKey,
        finding: Finding,
        context: Context,
        now: Timestamp,
    ) -> Option<Reason> {
        self.active_until = self.active_until.max(context.active_until);
        match finding {
            Finding::Undecided => None,
            Finding::Ruled(_) => self.withdraw(),
            Finding::Storm { verdict, ripeness } => {
                self.streak = Some(match self.streak {
                    Some((class, looks)) if class == verdict.class => (class, looks + 1),
                    _ => (verdict.class, 1),
                });
                self.take(key, *verdict, ripeness, now)
            }
        }
    }

    /// The class that fires, if one does.
    #[must_use]
    pub fn fires(&self) -> Option<Class> {
        let firing = self.incident.as_ref().filter(|incident| incident.state == State::Firing);
        firing.map(|incident| incident.verdict.class)
    }

    /// Whether the hold-off has passed with nothing in it.
    #[must_use]
    pub fn is_over(&self, context: Context, now: Timestamp) -> bool {
        now.seconds_since(self.active_until.max(context.active_until))
            > self.hold_seconds(context.scrape_seconds)
    }

    /// Ends the episode. An incident that never fired ends with its last verdict, fired and
    /// resolved at once, since retries were there.
    pub fn close(&mut self, now: Timestamp) -> Option<Reason> {
        let incident = self.incident.as_mut()?;
        if incident.state == State::Resolved {
            return None;
        }
        incident.state = State::Resolved;
        incident.detected_at = incident.detected_at.or(Some(now));
        incident.ended_at = Some(self.active_until);
        incident.updated_at = now;
        incident.verdict.next_wave_at = None;
        Some(Reason::Resolved)
    }

    /// A provisional incident that was none goes; one that fired stays as it was believed.
    fn withdraw(&mut self) -> Option<Reason> {
        if self.incident.as_ref().is_some_and(|incident| incident.state == State::Pending) {
            self.streak = None;
            self.incident = None;
            return Some(Reason::Withdrawn);
        }
        None
    }

    fn take(
        &mut self,
        key: &DependencyKey,
        verdict: Verdict,
        ripeness: Ripeness,
        now: Timestamp,
    ) -> Option<Reason> {
        let looks = self.streak.map_or(0, |(_, looks)| looks);
        let fires = match ripeness {
            Ripeness::Early => false,
            Ripeness::Clear => looks >= LOOKS_TO_FIRE,
            Ripeness::Certain => true,
        };
        let Some(incident) = self.incident.as_mut() else {
            self.incident = Some(Incident {
                id: self.id.clone(),
                dependency: key.clone(),
                state: if fires { State::Firing } else { State::Pending },
                verdict,
                detected_at: fires.then_some(now),
                updated_at: now,
                ended_at: None,
                feedback: None,
            });
            self.revised_at = now;
            return Some(if fires { Reason::Fired } else { Reason::Opened });
        };
        incident.updated_at = now;
        match incident.state {
            State::Resolved => None,
            State::Pending => {
                incident.verdict = verdict;
                if !fires {
                    return None;
                }
                incident.state = State::Firing;
                incident.detected_at = Some(now);
                self.revised_at = now;
                Some(Reason::Fired)
            }
            State::Firing => {
                let old = &incident.verdict;
                let retracts =
                    old.class.pages(old.severity) && !verdict.class.pages(verdict.severity);
                let needed = if retracts { LOOKS_TO_RETRACT } else { LOOKS_TO_CHANGE };
                let same_class = old.class == verdict.class;
                // An early look changes numbers, never the class of what has fired; and not to be
                // able to tell any more is no evidence against what could be told.
                let opens = verdict.class == Class::Inconclusive;
                if !same_class && (opens || ripeness == Ripeness::Early || looks < needed) {
                    return None;
                }
                let worth = !same_class
                    || raises(old.severity, verdict.severity)
                    || schedule_moved(old, &verdict)
                    || now.seconds_since(self.revised_at) >= REVISION_SECONDS;
                let mut next = verdict;
                // Severity does not sink while it burns; the page already said it.
                if same_class {
                    next.severity = next.severity.max(old.severity);
                }
                incident.verdict = next;
                worth.then(|| {
                    self.revised_at = now;
                    Reason::Revised
                })
            }
        }
    }
}

fn raises(old: Severity, new: Severity) -> bool {
    new > old
}

/// Whether the named schedule changed by more than the contract's 10 %.
fn schedule_moved(old: &Verdict, new: &Verdict) -> bool {
    match (&old.schedule, &new.schedule) {
        (None, None) => false,
        (Some(a), Some(b)) => {
            a.family != b.family
                || (a.base_seconds - b.base_seconds).abs() > 0.1 * a.base_seconds
                || (a.factor - b.factor).abs() > 0.1 * a.factor
        }
        _ => true,
    }
}

/// The wait before the wave after the last one seen.
fn next_wait(schedule: &crate::classify::Schedule) -> Option<f64> {
    let last = schedule.waits_seconds.last().copied()?;
    let next = last * schedule.factor.max(1.0);
    Some(schedule.cap_seconds.map_or(next, |cap| next.min(cap)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Impact;
    use crate::series::Labels;

    fn key() -> DependencyKey {
        DependencyKey {
            source: "main".into(),
            watch: "http".into(),
            labels: Labels::new([("dependency", "payments")]),
        }
    }

    fn storm(class: Class, ripeness: Ripeness) -> Finding {
        Finding::Storm {
            verdict: Box::new(Verdict {
                class,
                severity: Severity::Warning,
                started_at: at(0),
                confidence: 0.5,
                summary: String::new(),
                schedule: None,
                waves: Vec::new(),
                next_wave_at: None,
                impact: Impact::default(),
                evidence: Vec::new(),
                matches: Vec::new(),
                advice: Vec::new(),
            }),
            ripeness,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn episode() -> Episode {
        Episode::open(IncidentId("x".into()), at(0))
    }

    fn context(active: i64) -> Context {
        Context { active_until: at(active), scrape_seconds: 15.0 }
    }

    #[test]
    fn a_clear_class_fires_on_the_second_look_and_a_certain_one_at_once() {
        let mut episode_a = episode();
        let clear = || storm(Class::BackoffWithoutJitter, Ripeness::Clear);
        assert_eq!(episode_a.step(&key(), clear(), context(15), at(15)), Some(Reason::Opened));
        assert_eq!(episode_a.step(&key(), clear(), context(30), at(30)), Some(Reason::Fired));
        let mut episode_b = episode();
        let certain = storm(Class::BackoffWithoutJitter, Ripeness::Certain);
        assert_eq!(episode_b.step(&key(), certain, context(15), at(15)), Some(Reason::Fired));
        assert_eq!(episode_b.incident.unwrap().detected_at, Some(at(15)));
    }

    #[test]
    fn one_odd_look_does_not_change_the_class_of_a_firing_incident() {
        let mut episode = episode();
        let fired = storm(Class::BackoffWithoutJitter, Ripeness::Certain);
        episode.step(&key(), fired, context(15), at(15));
        let odd = storm(Class::JitteredBackoff, Ripeness::Clear);
        assert_eq!(episode.step(&key(), odd.clone(), context(30), at(30)), None);
        assert_eq!(episode.step(&key(), odd.clone(), context(45), at(45)), None);
        assert_eq!(
            episode.step(&key(), odd, context(60), at(60)),
            Some(Reason::Revised),
            "three looks agree"
        );
        assert_eq!(episode.incident.unwrap().verdict.class, Class::JitteredBackoff);
    }

    #[test]
    fn an_open_kind_never_takes_the_place_of_a_name() {
        let mut episode = episode();
        let fired = storm(Class::BackoffWithoutJitter, Ripeness::Certain);
        episode.step(&key(), fired, context(15), at(15));
        for look in 2..8 {
            let open = storm(Class::Inconclusive, Ripeness::Clear);
            assert_eq!(episode.step(&key(), open, context(15 * look), at(15 * look)), None);
        }
        assert_eq!(episode.fires(), Some(Class::BackoffWithoutJitter));
    }

    #[test]
    fn it_ends_only_after_the_hold_off_and_never_comes_back() {
        let mut episode = episode();
        let fired = storm(Class::RetryStormWithoutBackoff, Ripeness::Certain);
        episode.step(&key(), fired.clone(), context(15), at(15));
        assert!(!episode.is_over(context(15), at(70)));
        assert!(episode.is_over(context(15), at(80)));
        assert_eq!(episode.close(at(80)), Some(Reason::Resolved));
        assert_eq!(episode.close(at(90)), None);
        assert_eq!(episode.step(&key(), fired, context(90), at(90)), None);
        assert_eq!(episode.incident.unwrap().state, State::Resolved);
    }

    #[test]
    fn a_provisional_incident_that_was_none_is_withdrawn() {
        use crate::classify::{Observation, ObservationKind};
        let mut episode = episode();
        let early = storm(Class::Inconclusive, Ripeness::Early);
        assert_eq!(episode.step(&key(), early, context(15), at(15)), Some(Reason::Opened));
        let ruled = Finding::Ruled(Observation {
            kind: ObservationKind::OutageWithoutRetries,
            from: at(0),
            to: at(30),
            says: String::new(),
        });
        assert_eq!(episode.step(&key(), ruled, context(15), at(30)), Some(Reason::Withdrawn));
    }
}
