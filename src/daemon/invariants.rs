//! What must hold of every incident before it is told: a result that breaks it is dropped, counted
//! and logged, since a page with nonsense in it is worse than none.

use crate::incident::{Incident, State};

/// The name of the first invariant that an incident breaks.
pub(crate) fn broken(incident: &Incident) -> Option<&'static str> {
    let impact = &incident.verdict.impact;
    let figures = [
        impact.baseline_rate,
        impact.peak_rate,
        impact.amplification,
        impact.error_ratio,
        impact.excess_requests,
        impact.herd_size,
        impact.outlived_trigger_seconds,
    ];
    let waves = incident.verdict.waves.iter().map(|wave| wave.requests);
    let waits = incident.verdict.schedule.iter().flat_map(|it| it.waits_seconds.iter().copied());
    if !figures.into_iter().chain(waves).chain(waits).all(|it| it.is_finite() && it >= 0.0) {
        return Some("counts_are_finite");
    }
    if !(0.0..=1.0).contains(&incident.verdict.confidence) {
        return Some("confidence_is_a_probability");
    }
    let started = incident.verdict.started_at;
    if incident.ended_at.is_some_and(|ended| ended < started) {
        return Some("ends_after_its_start");
    }
    if (incident.state == State::Resolved) != incident.ended_at.is_some() {
        return Some("resolved_means_ended");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::IncidentJson;

    fn incident() -> Incident {
        let text = include_str!("../../tests/golden/record/incident.json");
        let wire: IncidentJson = serde_json::from_str(text).expect("an incident");
        Incident::try_from(wire).expect("an incident")
    }

    #[test]
    fn a_sound_incident_breaks_nothing_and_nonsense_is_named() {
        assert_eq!(broken(&incident()), None);
        let with = |change: &dyn Fn(&mut Incident)| {
            let mut changed = incident();
            change(&mut changed);
            broken(&changed)
        };
        assert_eq!(with(&|it| it.verdict.impact.peak_rate = f64::NAN), Some("counts_are_finite"));
        assert_eq!(with(&|it| it.verdict.confidence = 1.5), Some("confidence_is_a_probability"));
        assert_eq!(
            with(&|it| it.ended_at = Some(it.verdict.started_at.plus_seconds(-1.0))),
            Some("ends_after_its_start")
        );
        assert_eq!(
            with(&|it| {
                it.state = State::Resolved;
                it.ended_at = None;
            }),
            Some("resolved_means_ended")
        );
    }
}
