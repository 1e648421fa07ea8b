//! Simulated samples through the whole pipeline, poll by poll, as a daemon would see them.

use std::sync::Arc;

use squall::classify::{Class, Severity};
use squall::incident::Incident;
use squall::pipeline::{Change, Config, Pipeline, Reason, Trust, Watch, WatchId};
use squall::rules::Rules;
use squall::series::{Role, Sample, Timestamp};
use squall::sim::SimulatedSeries;

/// The watch over the simulator's metric.
pub(crate) fn watch() -> Watch {
    Watch {
        source: "simulation".to_owned(),
        name: "http".to_owned(),
        by: vec!["dependency".to_owned()],
        client: Vec::new(),
        requests_hold_retries: true,
        has_errors: true,
        flush_seconds: Vec::new(),
    }
}

pub(crate) fn pipeline() -> Pipeline {
    Pipeline::new(Config::default(), vec![watch()], Arc::new(Rules::builtin()))
}

/// Whether it wakes a person.
pub(crate) fn pages(incident: &Incident) -> bool {
    match incident.verdict.class {
        Class::BackoffWithoutJitter | Class::RetryStormWithoutBackoff => true,
        Class::Inconclusive => incident.verdict.severity != Severity::Info,
        Class::PartialJitter | Class::JitteredBackoff => false,
    }
}

/// The samples in the order in which they arrived: a late one comes with its successor.
pub(crate) fn arrivals(series: &[SimulatedSeries]) -> Vec<(Timestamp, usize, Sample)> {
    let mut all = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let mut latest = Timestamp::default();
        for sample in &one.samples {
            latest = latest.max(sample.at);
            all.push((latest, index, *sample));
        }
    }
    all.sort_by_key(|(at, _, _)| *at);
    all
}

/// Gives one sample to the pipeline, as a request and, where its code is one, as an error.
pub(crate) fn give(pipeline: &mut Pipeline, one: &SimulatedSeries, sample: Sample) {
    pipeline.push(WatchId(0), Role::Requests, &one.labels, sample);
    if one.labels.get("code").is_some_and(|code| code.starts_with('5')) {
        pipeline.push(WatchId(0), Role::Errors, &one.labels, sample);
    }
}

/// All incidents that were kept, polling at the scrape interval.
pub(crate) fn replay(series: &[SimulatedSeries], poll_seconds: f64) -> Vec<Incident> {
    let mut pipeline = pipeline();
    let mut kept: Vec<Incident> = Vec::new();
    let arrivals = arrivals(series);
    let Some((first, _, _)) = arrivals.first().copied() else { return kept };
    let mut now = first.plus_seconds(poll_seconds);
    for (at, index, sample) in arrivals {
        while at > now {
            keep(&mut kept, pipeline.pass(now, &[Trust::Whole]));
            now = now.plus_seconds(poll_seconds);
        }
        give(&mut pipeline, &series[index], sample);
    }
    keep(&mut kept, pipeline.pass(now, &[Trust::Whole]));
    keep(&mut kept, pipeline.finish(now));
    kept
}

/// Takes changes into the list of incidents as a store does.
pub(crate) fn keep(kept: &mut Vec<Incident>, changes: Vec<Change>) {
    for Change { reason, incident } in changes {
        kept.retain(|known| known.id != incident.id);
        if reason != Reason::Withdrawn {
            kept.push(incident);
        }
    }
}
