//! The formats against what real servers sent, and the decisions case by case.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::classify::{Class, Severity};
use crate::incident::{Incident, State};
use crate::store::Standing;

mod formats;
mod lanes;

/// The example incident of the record's tests, firing.
pub(super) fn incident() -> Incident {
    let text = include_str!("../../tests/golden/record/incident.json");
    serde_json::from_str::<IncidentJson>(text).unwrap().try_into().unwrap()
}

/// The example of another dependency.
pub(super) fn incident_of(dependency: &str) -> Incident {
    let mut made = incident();
    made.id = IncidentId(format!("id-{dependency}"));
    made.dependency.labels = crate::series::Labels::new([("dependency", dependency)]);
    made
}

/// The example, over a minute later.
pub(super) fn over(mut incident: Incident) -> Incident {
    incident.state = State::Resolved;
    incident.updated_at = incident.updated_at.plus_seconds(60.0);
    incident.ended_at = Some(incident.updated_at);
    incident
}

pub(super) fn told(event: Event, incident: &Incident) -> Told {
    Told { event, incident: IncidentJson::from(incident) }
}

pub(super) fn message(told: Vec<Told>, others: Vec<Told>) -> Message {
    Message {
        key: "00112233445566778899aabbccddeeff".to_owned(),
        group: IncidentId(told[0].incident.id.clone()),
        now: incident().updated_at,
        told,
        others,
    }
}

fn previous(event: Event, incident: &Incident) -> Previous {
    Previous {
        event,
        standing: Standing { class: incident.verdict.class, severity: incident.verdict.severity },
        at: incident.updated_at,
        sequence: 1,
    }
}

#[test]
fn each_turn_of_a_storm_is_told_once() {
    let now = incident().updated_at;
    let check = |previous: Option<Previous>, incident: &Incident, expected: Decision| {
        let decision = should_notify(previous.as_ref(), incident, &Route::default(), now);
        assert_eq!(decision, expected, "{:?} after {previous:?}", incident.state);
    };
    let firing = incident();
    let mut pending = incident();
    pending.state = State::Pending;
    let told = Some(previous(Event::Firing, &firing));
    let silent = Decision::Silent;
    check(None, &pending, silent(Silence::Pending));
    check(None, &firing, Decision::Notify(Event::Firing));
    check(told, &firing, silent(Silence::NothingNew));
    check(told, &pending, silent(Silence::NothingNew));
    check(told, &over(firing.clone()), Decision::Notify(Event::Resolved));
    let ended = Some(previous(Event::Resolved, &firing));
    check(ended, &over(firing.clone()), silent(Silence::NeverTold));
    // Seen late, by a replica that was paused: the end stands.
    check(ended, &firing, silent(Silence::EndTold));
    // It did not look like a page for a while, and does again.
    let withdrawn = Some(previous(Event::Withdrawn, &firing));
    check(withdrawn, &firing, Decision::Notify(Event::Firing));
    // Over before anybody could be told; and pending only, so there never was a page.
    check(None, &over(firing.clone()), Decision::Notify(Event::Firing));
    let mut never = over(firing);
    never.detected_at = None;
    check(None, &never, silent(Silence::NeverTold));
}

#[test]
fn a_changed_class_and_a_raised_severity_are_told_and_a_lower_one_is_not() {
    let check = |change: fn(&mut Incident), expected: Decision| {
        let mut now = incident();
        now.verdict.severity = Severity::Warning;
        let before = previous(Event::Firing, &now);
        change(&mut now);
        let at = now.updated_at;
        assert_eq!(should_notify(Some(&before), &now, &Route::default(), at), expected);
    };
    let told = Decision::Notify;
    check(|i| i.verdict.class = Class::RetryStormWithoutBackoff, told(Event::Changed));
    check(|i| i.verdict.severity = Severity::Critical, told(Event::Changed));
    check(|i| i.verdict.severity = Severity::Info, Decision::Silent(Silence::NothingNew));
    check(|i| i.verdict.class = Class::JitteredBackoff, told(Event::Withdrawn));
    check(|i| i.verdict.confidence = 0.1, Decision::Silent(Silence::NothingNew));
}

#[test]
fn a_page_is_repeated_after_its_time_and_not_before() {
    let firing = incident();
    let before = previous(Event::Firing, &firing);
    let at = |seconds| firing.updated_at.plus_seconds(seconds);
    let decide = |now| should_notify(Some(&before), &firing, &Route::default(), now);
    assert_eq!(decide(at(14_399.9)), Decision::Silent(Silence::NothingNew));
    assert_eq!(decide(at(14_400.0)), Decision::Notify(Event::Repeated));
}

#[test]
fn only_what_pages_is_told_unless_a_route_names_classes() {
    let check = |class, severity, route: &Route, expected: bool| {
        let mut made = incident();
        made.verdict.class = class;
        made.verdict.severity = severity;
        assert_eq!(route.wants(&made), expected, "{class:?} {severity:?} {route:?}");
    };
    let all = Route::default();
    check(Class::BackoffWithoutJitter, Severity::Info, &all, true);
    check(Class::RetryStormWithoutBackoff, Severity::Info, &all, true);
    check(Class::PartialJitter, Severity::Warning, &all, false);
    check(Class::JitteredBackoff, Severity::Info, &all, false);
    check(Class::Inconclusive, Severity::Info, &all, false);
    check(Class::Inconclusive, Severity::Warning, &all, true);
    let named = Route { classes: vec![Class::PartialJitter], ..Route::default() };
    check(Class::PartialJitter, Severity::Warning, &named, true);
    check(Class::BackoffWithoutJitter, Severity::Critical, &named, false);
    let worst = Route { severity_min: Severity::Critical, ..Route::default() };
    check(Class::BackoffWithoutJitter, Severity::Warning, &worst, false);
    let label = |value: &str| Route {
        labels: vec![("dependency".to_owned(), value.to_owned())],
        ..Route::default()
    };
    check(Class::BackoffWithoutJitter, Severity::Critical, &label("payments"), true);
    check(Class::BackoffWithoutJitter, Severity::Critical, &label("ledger"), false);
}

#[test]
fn a_receiver_that_wants_no_ends_gets_none() {
    let route = Route { send_resolved: false, ..Route::default() };
    let before = previous(Event::Firing, &incident());
    let ended = over(incident());
    assert_eq!(
        should_notify(Some(&before), &ended, &route, ended.updated_at),
        Decision::Silent(Silence::EndsNotWanted)
    );
}
