//! From incidents to notifications: asks the pure decision for each receiver, and names the answer.
//!
//! The name (the key) is made of the receiver, the incident and a running number. Two replicas that
//! decide the same thing give it the same name, and the outbox keeps it once; so does a replica that
//! was paused and comes back with an old view.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::decide::{Decision, Previous, Route, should_notify};
use super::{Kind, Receiver};
use crate::incident::{Incident, IncidentId, State};
use crate::series::Timestamp;
use crate::store::{Event, NewNotification, Outbox, Standing};
use crate::wire::IncidentJson;

/// How long a first page waits for others from the same cause. Storms from one cause mostly fire
/// on one poll and need no wait at all; this catches the second source's poll, and is short against
/// the time in which a person reacts.
pub const GROUP_WAIT: Duration = Duration::from_secs(2);

/// Decisions for one incident and receiver on one pass: told and ended at once are two.
const DECISIONS_MAX: usize = 3;

/// Decides what is told to whom, and remembers what was.
#[derive(Debug)]
pub struct Planner {
    receivers: Vec<(String, Kind, Route)>,
    told: HashMap<(usize, IncidentId), Previous>,
    // Incidents whose last words were read from the outbox.
    known: HashSet<IncidentId>,
}

impl Planner {
    /// A planner for these receivers.
    #[must_use]
    pub fn new(receivers: &[Receiver]) -> Self {
        Self {
            receivers: receivers
                .iter()
                .map(|r| (r.name.clone(), r.settings.kind(), r.route.clone()))
                .collect(),
            told: HashMap::new(),
            known: HashSet::new(),
        }
    }

    /// What is to be told of these incidents. Pass those that changed and, for repetition, those
    /// that still fire; keep the answer in the same batch as the incidents.
    ///
    /// Where the outbox cannot be asked what was told before, the decision is made without: the
    /// worst of it is a notification under a name that is already kept, which is dropped.
    pub async fn plan(
        &mut self,
        outbox: &dyn Outbox,
        incidents: &[Incident],
        now: Timestamp,
    ) -> Vec<NewNotification> {
        self.learn(outbox, incidents, now).await;
        let mut planned = Vec::new();
        for incident in incidents {
            for receiver in 0..self.receivers.len() {
                self.decide(receiver, incident, now, &mut planned);
            }
            if incident.state == State::Resolved {
                self.forget(&incident.id);
            }
        }
        planned
    }

    /// Forgets what it remembers, so that the outbox is asked again: after another replica had the
    /// dependency, or after a batch was lost.
    pub fn forget(&mut self, incident: &IncidentId) {
        self.known.remove(incident);
        self.told.retain(|(_, known), _| known != incident);
    }

    /// Reads the last words about what is new here, and about whatever somebody would be told of
    /// now: another replica may have told it, and a number given on an old view would name, and so
    /// drop, something else.
    async fn learn(&mut self, outbox: &dyn Outbox, incidents: &[Incident], now: Timestamp) {
        let unknown: Vec<IncidentId> = incidents
            .iter()
            .filter(|incident| !self.known.contains(&incident.id) || self.would_tell(incident, now))
            .map(|incident| incident.id.clone())
            .collect();
        if unknown.is_empty() {
            return;
        }
        let Ok(last) = outbox.last_sent(&unknown).await else { return };
        for last in last {
            let place = self.receivers.iter().position(|(name, ..)| *name == last.receiver);
            let Some(place) = place else { continue };
            let previous = Previous {
                event: last.event,
                standing: last.standing,
                at: last.created_at,
                sequence: last.sequence,
            };
            let told = self.told.entry((place, last.incident)).or_insert(previous);
            // What is remembered may be newer: its batch may still wait for the storage.
            if told.sequence < previous.sequence {
                *told = previous;
            }
        }
        self.known.extend(unknown);
    }

    /// Whether any receiver would be told something, from what is remembered.
    fn would_tell(&self, incident: &Incident, now: Timestamp) -> bool {
        self.receivers.iter().enumerate().any(|(receiver, (_, _, route))| {
            let previous = self.told.get(&(receiver, incident.id.clone()));
            matches!(should_notify(previous, incident, route, now), Decision::Notify(_))
        })
    }

    fn decide(
        &mut self,
        receiver: usize,
        incident: &Incident,
        now: Timestamp,
        planned: &mut Vec<NewNotification>,
    ) {
        let (name, kind, route) = &self.receivers[receiver];
        let place = (receiver, incident.id.clone());
        for _ in 0..DECISIONS_MAX {
            let previous = self.told.get(&place);
            let Decision::Notify(event) = should_notify(previous, incident, route, now) else {
                return;
            };
            let sequence = previous.map_or(0, |previous| previous.sequence) + 1;
            let standing =
                Standing { class: incident.verdict.class, severity: incident.verdict.severity };
            // Alertmanager groups by itself, and by rules that its owner chose.
            let hold = if event == Event::Firing && *kind != Kind::Alertmanager {
                GROUP_WAIT
            } else {
                Duration::ZERO
            };
            planned.push(notification(name, incident, event, sequence, now, hold));
            let previous = Previous { event, standing, at: now, sequence };
            self.told.insert(place.clone(), previous);
        }
    }
}

fn notification(
    receiver: &str,
    incident: &Incident,
    event: Event,
    sequence: u64,
    now: Timestamp,
    hold: Duration,
) -> NewNotification {
    // A wire type of strings, numbers and lists always serialises.
    let body = serde_json::to_string(&IncidentJson::from(incident)).unwrap_or_default();
    NewNotification {
        key: key(receiver, &incident.id, sequence),
        receiver: receiver.to_owned(),
        incident: incident.id.clone(),
        sequence,
        event,
        standing: Standing { class: incident.verdict.class, severity: incident.verdict.severity },
        cause_at: incident.verdict.started_at,
        body,
        created_at: now,
        hold,
    }
}

/// A test notification, which looks like `incident` and says that it is a test.
#[must_use]
pub fn test_notification(receiver: &str, incident: &Incident, now: Timestamp) -> NewNotification {
    let mut test = notification(receiver, incident, Event::Test, 1, now, Duration::ZERO);
    test.incident = IncidentId(format!("test-{}", now.millis()));
    test.key = key(receiver, &test.incident, 1);
    test
}

/// The name of a notification: 128 bits of a hash, in hexadecimal digits.
fn key(receiver: &str, incident: &IncidentId, sequence: u64) -> String {
    let hash = Sha256::digest(format!("{receiver}\u{0}{incident}\u{0}{sequence}"));
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
