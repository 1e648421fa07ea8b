//! Who came: the requests above normal, by the labels of the caller that the watch names.
//!
//! A schedule names a library, and a library is used by many; the labels name the service that has
//! to be changed. What is counted is what came above each caller's own share of normal traffic, so
//! that the largest caller is not to blame for being large.

use std::collections::BTreeMap;

use crate::incident::Incident;
use crate::wire::around::SeriesJson;

/// What one caller sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Caller {
    /// The values of its labels.
    pub(super) name: String,
    /// Requests above its share of normal traffic, from the first failure on.
    pub(super) excess: f64,
    /// Its part of all that came above normal.
    pub(super) share: f64,
}

/// The callers, those who sent most above normal first; empty where the watch names no callers, or
/// nothing above normal is left in the record.
pub(super) fn callers(incident: &Incident, series: &SeriesJson) -> Vec<Caller> {
    let (Some(rows), Some(model)) = (&series.increments, &series.model) else { return Vec::new() };
    if model.clients.is_empty() {
        return Vec::new();
    }
    let since = incident.verdict.started_at.seconds_since(rows.since.0);
    let until = incident.ended_at.map_or(f64::INFINITY, |ended| ended.seconds_since(rows.since.0));
    let mut excess: BTreeMap<&str, f64> = BTreeMap::new();
    for (row, target) in rows.target.iter().enumerate() {
        let (from, to) = (rows.from_seconds[row], rows.to_seconds[row]);
        if to <= since || from >= until {
            continue;
        }
        let target = *target as usize;
        let Some(client) = model.clients.get(target) else { continue };
        let share = model.shares.get(target).map_or(0.0, |share| share.0);
        let normal = model.baseline_rate.0 * share * (to - from);
        *excess.entry(client).or_default() += rows.requests[row] - normal;
    }
    excess.retain(|_, above| *above > 0.0);
    let all: f64 = excess.values().sum();
    let mut callers: Vec<Caller> = excess
        .into_iter()
        .map(|(name, above)| Caller { name: name.to_owned(), excess: above, share: above / all })
        .collect();
    callers.sort_by(|a, b| b.excess.total_cmp(&a.excess));
    callers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::storm;

    fn named(clients: &[&str]) -> (Incident, SeriesJson) {
        let (incident, mut series) = storm();
        let model = series.model.as_mut().unwrap();
        model.clients = clients.iter().map(|it| (*it).to_owned()).collect();
        (Incident::try_from(incident).unwrap(), series)
    }

    #[test]
    fn who_came_above_normal_is_named_and_not_who_is_large() {
        // The till has nearly all of the traffic, the kiosk the herd.
        let (incident, mut series) = named(&["till", "kiosk"]);
        let model = series.model.as_mut().unwrap();
        (model.shares[0].0, model.shares[1].0) = (0.9, 0.1);
        let rows = series.increments.as_mut().unwrap();
        for (row, target) in rows.target.iter().enumerate() {
            let herd = rows.errors[row];
            rows.requests[row] = if *target == 0 { 45.0 } else { 5.0 + herd };
        }
        let found = callers(&incident, &series);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "kiosk");
        assert!((found[0].share - 1.0).abs() < 1e-9 && found[0].excess > 1000.0, "{found:?}");
    }

    #[test]
    fn callers_of_one_name_are_one_and_those_of_none_are_not_made_up() {
        let (incident, series) = named(&["till", "till"]);
        let found = callers(&incident, &series);
        assert_eq!(found.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["till"]);
        let (incident, series) = named(&[]);
        assert_eq!(callers(&incident, &series), []);
    }
}
