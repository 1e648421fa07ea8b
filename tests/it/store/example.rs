//! Incidents and notifications for the tests of the record and of the receivers.

use std::time::Duration;

use squall::classify::{Class, Severity};
use squall::incident::{Incident, IncidentId, State};
use squall::series::{Labels, Timestamp};
use squall::store::{Batch, Event, NewNotification, Reason, Saved, Standing};
use squall::wire::IncidentJson;

/// The start of the first example incident.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// A firing incident of dependency `d<n>`, which started `n` minutes after [`START`].
pub(crate) fn incident(n: u32) -> Incident {
    let text = include_str!("../../golden/record/incident.json");
    let mut incident: Incident =
        serde_json::from_str::<IncidentJson>(text).unwrap().try_into().unwrap();
    let start = START.plus(Duration::from_secs(60 * u64::from(n)));
    incident.id = IncidentId(format!("incident-{n:06}"));
    incident.dependency.labels = Labels::new([("dependency", format!("d{n}"))]);
    incident.verdict.started_at = start;
    incident.detected_at = Some(start.plus_seconds(16.0));
    incident.updated_at = start.plus_seconds(20.0);
    incident
}

/// The same, over.
pub(crate) fn resolved(n: u32) -> Incident {
    let mut incident = incident(n);
    incident.state = State::Resolved;
    incident.updated_at = incident.updated_at.plus_seconds(60.0);
    incident.ended_at = Some(incident.updated_at);
    incident
}

/// A batch of one incident.
pub(crate) fn batch(reason: Reason, incident: Incident) -> Batch {
    Batch { incidents: vec![Saved { reason, incident }], ..Batch::default() }
}

/// A notification about incident `n`.
pub(crate) fn notification(receiver: &str, n: u32, sequence: u64, event: Event) -> NewNotification {
    let about = if event.ends() { resolved(n) } else { incident(n) };
    NewNotification {
        key: format!("{receiver}/{n}/{sequence}"),
        receiver: receiver.to_owned(),
        incident: about.id.clone(),
        sequence,
        event,
        standing: Standing { class: Class::BackoffWithoutJitter, severity: Severity::Critical },
        cause_at: about.verdict.started_at,
        body: serde_json::to_string(&IncidentJson::from(&about)).unwrap(),
        created_at: about.updated_at,
        hold: Duration::ZERO,
    }
}
