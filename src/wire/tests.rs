//! The wire form holds everything an incident holds, in the contract's words.

use super::*;
use crate::classify::Class;

const INCIDENT: &str = include_str!("../../tests/golden/record/incident.json");

fn example() -> Incident {
    serde_json::from_str::<IncidentJson>(INCIDENT).unwrap().try_into().unwrap()
}

#[test]
fn an_incident_survives_the_way_out_and_back() {
    let mut incident = example();
    incident.feedback = Some(Feedback {
        genuine: false,
        class: Some(Class::JitteredBackoff),
        note: "a load test".to_owned(),
        at: Timestamp::from_millis(1_790_000_000_123),
    });
    let text = serde_json::to_string(&IncidentJson::from(&incident)).unwrap();
    let back: Incident = serde_json::from_str::<IncidentJson>(&text).unwrap().try_into().unwrap();
    assert_eq!(back, incident);
}

#[test]
fn the_text_has_the_names_and_order_of_the_contract() {
    let written = serde_json::to_value(IncidentJson::from(&example())).unwrap();
    let golden: serde_json::Value = serde_json::from_str(INCIDENT).unwrap();
    assert_eq!(written, golden);
    let text = serde_json::to_string(&IncidentJson::from(&example())).unwrap();
    assert!(text.starts_with(r#"{"id":"5f0c9e1b2a7d4c38","dependency":"payments","labels":"#));
}

#[test]
fn a_number_that_is_not_finite_is_null_and_reads_as_missing() {
    let mut incident = example();
    incident.verdict.impact.amplification = f64::INFINITY;
    let text = serde_json::to_string(&IncidentJson::from(&incident)).unwrap();
    assert!(text.contains(r#""amplification":null"#), "{text}");
    let back: Incident = serde_json::from_str::<IncidentJson>(&text).unwrap().try_into().unwrap();
    assert!(back.verdict.impact.amplification.is_nan());
}

#[test]
fn a_wave_that_does_not_say_what_it_counts_counts_requests() {
    let older = INCIDENT.replace(", \"counts\": \"failures\"", "");
    assert_ne!(older, INCIDENT);
    let wire: IncidentJson = serde_json::from_str(&older).unwrap();
    assert!(wire.waves.iter().all(|wave| wave.counts == "requests"));
    let wrong = INCIDENT.replace("\"failures\"", "\"sheep\"");
    let wire: IncidentJson = serde_json::from_str(&wrong).unwrap();
    let error = Incident::try_from(wire).unwrap_err();
    assert_eq!(error.to_string(), "`waves.counts` has the unknown value `sheep`");
}

#[test]
fn an_unknown_name_is_refused_with_its_field() {
    let text = INCIDENT.replace("\"firing\"", "\"burning\"");
    let wire: IncidentJson = serde_json::from_str(&text).unwrap();
    let error = Incident::try_from(wire).unwrap_err();
    assert_eq!(error.to_string(), "`state` has the unknown value `burning`");
}

#[test]
fn times_have_milliseconds_and_never_fail() {
    let check = |millis, expected: &str| {
        assert_eq!(rfc3339(Timestamp::from_millis(millis)), expected);
    };
    check(0, "1970-01-01T00:00:00.000Z");
    check(1_790_000_505_086, "2026-09-21T14:21:45.086Z");
    check(i64::MAX, "9999-12-30T22:00:00.999Z");
    assert_eq!(parse_rfc3339("2026-09-21T16:21:45.086+02:00").unwrap().millis(), 1_790_000_505_086);
    assert_eq!(parse_rfc3339("yesterday"), None);
}
