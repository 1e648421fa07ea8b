//! The record as text: JSON lines, CSV, and labelled cases.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::classify::{Class, JitterKind, ScheduleFamily};
use crate::incident::Incident;
use crate::wire::{IncidentJson, rfc3339};

/// One incident as a line of JSON, with its newline.
#[must_use]
pub fn json_line(incident: &Incident) -> String {
    // A wire type of strings, numbers and lists always serialises.
    let mut line = serde_json::to_string(&IncidentJson::from(incident)).unwrap_or_default();
    line.push('\n');
    line
}

/// The columns of [`csv_row`], with the newline.
#[must_use]
pub const fn csv_header() -> &'static str {
    "id,dependency,watch,source,state,classification,severity,started_at,detected_at,ended_at,\
     confidence,family,base_seconds,factor,cap_seconds,jitter,baseline_rate,peak_rate,\
     amplification,error_ratio,excess_requests,rule,feedback,feedback_class,summary\r\n"
}

/// One incident as a line of CSV (RFC 4180), with its newline.
#[must_use]
pub fn csv_row(incident: &Incident) -> String {
    let verdict = &incident.verdict;
    let schedule = verdict.schedule.as_ref();
    let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
    let maybe = |value: Option<f64>| value.map(number).unwrap_or_default();
    let feedback = incident.feedback.as_ref();
    let fields = [
        incident.id.0.clone(),
        incident.dependency.name(),
        incident.dependency.watch.clone(),
        incident.dependency.source.clone(),
        incident.state.as_str().to_owned(),
        verdict.class.as_str().to_owned(),
        verdict.severity.as_str().to_owned(),
        rfc3339(verdict.started_at),
        incident.detected_at.map(rfc3339).unwrap_or_default(),
        incident.ended_at.map(rfc3339).unwrap_or_default(),
        number(verdict.confidence),
        schedule.map(|s| s.family.as_str().to_owned()).unwrap_or_default(),
        maybe(schedule.map(|s| s.base_seconds)),
        maybe(schedule.map(|s| s.factor)),
        maybe(schedule.and_then(|s| s.cap_seconds)),
        schedule.map(|s| s.jitter.as_str().to_owned()).unwrap_or_default(),
        number(verdict.impact.baseline_rate),
        number(verdict.impact.peak_rate),
        number(verdict.impact.amplification),
        number(verdict.impact.error_ratio),
        number(verdict.impact.excess_requests),
        verdict.matches.first().map(|found| found.rule.clone()).unwrap_or_default(),
        feedback.map(|said| said.genuine.to_string()).unwrap_or_default(),
        feedback.and_then(|said| said.class).map(|c| c.as_str().to_owned()).unwrap_or_default(),
        verdict.summary.clone(),
    ];
    let mut line = String::new();
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        line.push_str(&quoted(field));
    }
    line.push_str("\r\n");
    line
}

/// Quotes a field where RFC 4180 asks for it, and defuses what a spreadsheet takes for a formula.
fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '@', '\t', '\r'])
        || (field.starts_with('-') && field.parse::<f64>().is_err());
    let field = if formula { format!("'{field}") } else { field.to_owned() };
    if field.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field
}

/// What people said, as labelled cases: the truth by the words of the feedback, and what the
/// record knows of the schedule where the feedback upholds it. Incidents without feedback are left
/// out. The list has the field names of a `labels.json`, so a scorer of cases reads it.
#[must_use]
pub fn labels_json(incidents: &[Incident]) -> String {
    let labels: Vec<Value> = incidents.iter().filter_map(label).collect();
    let mut text = String::from("[\n");
    for (index, label) in labels.iter().enumerate() {
        let comma = if index + 1 < labels.len() { "," } else { "" };
        writeln!(text, " {label}{comma}").ok();
    }
    text.push_str("]\n");
    text
}

fn label(incident: &Incident) -> Option<Value> {
    let feedback = incident.feedback.as_ref()?;
    let verdict = &incident.verdict;
    let truth: Option<Class> = feedback.genuine.then(|| feedback.class.unwrap_or(verdict.class));
    let classification = truth.map(Class::as_str);
    let started = verdict.started_at.seconds();
    let mut label = json!({
        "kind": "feedback",
        "id": incident.id.0,
        "file": format!("{}.om.gz", incident.id.0),
        "dependency": incident.dependency.name(),
        "onset": started,
        "t0": 0.0,
        "start": started,
        "classification": classification,
        "accept": [classification],
        "background": finite(verdict.impact.baseline_rate),
        "herd": finite(verdict.impact.herd_size),
        "retries": finite(verdict.impact.excess_requests),
        "peak_retry_rate": finite(verdict.impact.peak_rate - verdict.impact.baseline_rate),
        "waves": verdict.waves.iter()
            .map(|wave| finite(wave.expected_at.seconds_since(verdict.started_at)))
            .collect::<Vec<_>>(),
        "wave_sizes": verdict.waves.iter().map(|wave| finite(wave.requests)).collect::<Vec<_>>(),
        "note": feedback.note,
    });
    let upheld = truth == Some(verdict.class);
    if let (true, Some(schedule)) = (upheld, verdict.schedule.as_ref()) {
        label["policy"] = json!({
            "kind": match schedule.family {
                ScheduleFamily::Capped => "exponential",
                family => family.as_str(),
            },
            "base": finite(schedule.base_seconds),
            "factor": finite(schedule.factor),
            "cap": schedule.cap_seconds,
            "jitter": match schedule.jitter {
                JitterKind::Unknown => Value::Null,
                jitter => Value::from(jitter.as_str()),
            },
        });
        label["gaps"] = schedule.waits_seconds.iter().map(|wait| finite(*wait)).collect();
    }
    Some(label)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::Feedback;
    use crate::series::Timestamp;

    fn example() -> Incident {
        let text = include_str!("../../tests/golden/record/incident.json");
        serde_json::from_str::<IncidentJson>(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn a_row_has_a_field_for_each_column_and_quotes_what_it_must() {
        let mut incident = example();
        incident.verdict.summary = "a \"b\", c".to_owned();
        let row = csv_row(&incident);
        assert!(row.ends_with(",\"a \"\"b\"\", c\"\r\n"), "{row}");
        let columns = csv_header().split(',').count();
        assert_eq!(row.replace("\"a \"\"b\"\", c\"", "x").split(',').count(), columns);
    }

    #[test]
    fn a_field_cannot_become_a_formula() {
        assert_eq!(quoted("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(quoted("-1.5"), "-1.5");
        assert_eq!(quoted("-cmd"), "'-cmd");
    }

    #[test]
    fn a_line_of_json_is_one_line() {
        let mut incident = example();
        incident.verdict.summary = "two\nlines".to_owned();
        let line = json_line(&incident);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with("}\n"));
    }

    #[test]
    fn feedback_becomes_the_truth_of_a_case() {
        let said = |genuine, class| {
            let mut incident = example();
            incident.feedback = Some(Feedback {
                genuine,
                class,
                note: String::new(),
                at: Timestamp::from_millis(0),
            });
            incident
        };
        let labels = labels_json(&[
            example(),
            said(true, None),
            said(true, Some(Class::PartialJitter)),
            said(false, None),
        ]);
        let labels: Value = serde_json::from_str(&labels).unwrap();
        let labels = labels.as_array().unwrap();
        assert_eq!(labels.len(), 3);
        assert_eq!(labels[0]["classification"], "backoff-without-jitter");
        assert_eq!(labels[0]["policy"]["base"], 1.0);
        assert_eq!(labels[1]["accept"], json!(["partial-jitter"]));
        assert_eq!(labels[1]["policy"], Value::Null);
        assert_eq!(labels[2]["accept"], json!([null]));
    }
}
