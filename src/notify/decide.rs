//! Whether a receiver is told of an incident now: one pure function, and the reason for its answer.

use std::time::Duration;

use crate::classify::{Class, Severity};
use crate::incident::{Incident, State};
use crate::series::Timestamp;
use crate::store::{Event, Standing};

/// How often a page that still fires is repeated; Alertmanager's default.
pub const REPEAT_DEFAULT: Duration = Duration::from_secs(4 * 3600);

/// How long after its end a storm that nobody was told of is still told: after a restart or an
/// outage of storage, the page for what ended meanwhile is late and not yet useless.
const LATE_MAX: Duration = Duration::from_secs(900);

/// Which incidents a receiver is told of.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Labels that the dependency must have, with these values; none lets all pass.
    pub labels: Vec<(String, String)>,
    /// The classes to tell; empty means those that page.
    pub classes: Vec<Class>,
    /// The lowest severity to tell.
    pub severity_min: Severity,
    /// Whether the end is told too.
    pub send_resolved: bool,
    /// How often it is repeated while it fires.
    pub repeat_after: Duration,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            classes: Vec::new(),
            severity_min: Severity::Info,
            send_resolved: true,
            repeat_after: REPEAT_DEFAULT,
        }
    }
}

impl Route {
    /// Whether the receiver wants to hear of this incident while it fires.
    #[must_use]
    pub fn wants(&self, incident: &Incident) -> bool {
        self.silence(incident).is_none()
    }

    fn silence(&self, incident: &Incident) -> Option<Silence> {
        let labels = &incident.dependency.labels;
        let verdict = &incident.verdict;
        let matches = self.labels.iter().all(|(name, value)| {
            labels.get(name) == Some(value.as_str())
                || (name == "dependency"
                    && labels.get(name).is_none()
                    && incident.dependency.name() == *value)
        });
        if !matches || verdict.severity < self.severity_min {
            return Some(Silence::Routed);
        }
        let class = if self.classes.is_empty() {
            verdict.class.pages(verdict.severity)
        } else {
            self.classes.contains(&verdict.class)
        };
        (!class).then_some(Silence::ClassDoesNotPage)
    }
}

/// The last word to a receiver about an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Previous {
    /// What was told.
    pub event: Event,
    /// The class and severity that were told.
    pub standing: Standing,
    /// When.
    pub at: Timestamp,
    /// Its number, from 1.
    pub sequence: u64,
}

/// What to do, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Tell this.
    Notify(Event),
    /// Tell nothing.
    Silent(Silence),
}

/// Why nothing is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Silence {
    /// The class is not clear yet.
    Pending,
    /// The route leaves it to others.
    Routed,
    /// Its class wakes nobody.
    ClassDoesNotPage,
    /// The last word still holds.
    NothingNew,
    /// It is over, and the receiver does not want to hear of ends.
    EndsNotWanted,
    /// It is over, and the receiver was never told that it began.
    NeverTold,
    /// Its end was told already, and nothing comes back from there: this view of it is old, that
    /// of a replica which was paused or whose clock is behind.
    EndTold,
}

/// Decides what a receiver is told of `incident` at `now`, after `previous`.
#[must_use]
pub fn should_notify(
    previous: Option<&Previous>,
    incident: &Incident,
    route: &Route,
    now: Timestamp,
) -> Decision {
    let told = previous.filter(|previous| !previous.event.ends());
    let end = |event| {
        if route.send_resolved {
            Decision::Notify(event)
        } else {
            Decision::Silent(Silence::EndsNotWanted)
        }
    };
    match (incident.state, told) {
        (State::Pending, None) => Decision::Silent(Silence::Pending),
        (State::Pending, Some(_)) => Decision::Silent(Silence::NothingNew),
        (State::Firing, None) if previous.is_some_and(|last| last.event == Event::Resolved) => {
            Decision::Silent(Silence::EndTold)
        }
        (State::Firing, None) => match route.silence(incident) {
            Some(silence) => Decision::Silent(silence),
            None => Decision::Notify(Event::Firing),
        },
        (State::Firing, Some(told)) => {
            if !route.wants(incident) {
                return end(Event::Withdrawn);
            }
            let verdict = &incident.verdict;
            let changed =
                told.standing.class != verdict.class || told.standing.severity < verdict.severity;
            if changed {
                Decision::Notify(Event::Changed)
            } else if now >= told.at.plus(route.repeat_after) {
                Decision::Notify(Event::Repeated)
            } else {
                Decision::Silent(Silence::NothingNew)
            }
        }
        (State::Resolved, Some(_)) => end(Event::Resolved),
        (State::Resolved, None) => {
            // It fired and ended before anybody could be told.
            let ended = incident.ended_at.unwrap_or(incident.updated_at);
            let fresh = incident.detected_at.is_some() && now <= ended.plus(LATE_MAX);
            match route.silence(incident) {
                None if fresh && previous.is_none() => Decision::Notify(Event::Firing),
                _ => Decision::Silent(Silence::NeverTold),
            }
        }
    }
}
