//! What can be told apart under a watch, what cannot, and what one would change.

use std::time::Duration;

use crate::detect::baseline::count;
use crate::rules::Rules;
use crate::rules::policy::seconds;
use crate::rules::preset::{CountedAt, Counts, Preset};

use super::examine::{Found, Origin};
use super::sampling::Seen;

/// Waits that are answered for one by one, seconds: those that client libraries use.
pub(super) const WAITS_SECONDS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// The wait that a change of the sampling is measured by: the commonest first wait.
const WANTED_SECONDS: f64 = 1.0;
/// Waits of a schedule that are looked at: enough for every cap.
const WAITS_LOOKED_AT: u32 = 10;
/// Share of uneven spacings from which something between the targets and the answer is to blame.
const UNEVEN_MAX: f64 = 0.05;

/// How many of the schedules without jitter show their waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// Those of which two waves in a row can be told apart, or all there are.
    pub(super) told: usize,
    /// Schedules without jitter that are known.
    pub(super) of: usize,
}

/// The known schedules whose waves a resolvable gap lets stand apart.
pub(super) fn told(gap_seconds: f64, rules: &Rules) -> Told {
    let in_step = rules
        .schedules()
        .iter()
        .filter(|rule| rule.policy.is_synchronised() && rule.policy.is_timed());
    let (mut told, mut of) = (0, 0);
    for rule in in_step {
        of += 1;
        let waits = rule.policy.waits(WAITS_LOOKED_AT);
        let apart = waits.iter().filter(|wait| **wait >= gap_seconds).count();
        told += usize::from(apart >= 2.min(waits.len()) && apart > 0);
    }
    Told { told, of }
}

/// A sentence on a watch's blindness, for the dependency that is seen worst.
pub(super) fn blindness(found: &Found, rules: &Rules) -> Option<String> {
    let worst =
        found.sampling.dependencies.iter().filter_map(Seen::tells_from).max_by(f64::total_cmp)?;
    let all = told(worst, rules);
    let blind: Vec<String> =
        WAITS_SECONDS.iter().filter(|wait| **wait < worst).map(|wait| seconds(*wait)).collect();
    let blind = match (blind.first(), blind.last()) {
        (Some(first), Some(last)) if blind.len() > 1 => {
            format!("blind to waits of {first} to {last}")
        }
        (Some(only), _) => format!("blind to waits of {only}"),
        _ => "no common wait is too short".to_owned(),
    };
    Some(format!(
        "tells waits from {} up, the waves of {} of {} known schedules; {blind}",
        seconds(rounded(worst)),
        all.told,
        all.of
    ))
}

/// Two significant digits: more would be a promise.
pub(super) fn rounded(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return value;
    }
    let scale = 10.0_f64.powf(value.log10().floor() - 1.0);
    (value / scale).round() * scale
}

/// What one would change so that more is seen, the most useful first.
pub(super) fn changes(found: &Found) -> Vec<String> {
    let mut all = Vec::new();
    if found.config.errors.is_none() {
        all.push(
            "Count failures as well: without `errors` a flood of retries cannot be told from a \
             surge, and never pages."
                .to_owned(),
        );
    }
    if let Some(says) = finer(found) {
        all.push(says);
    }
    if let Origin::Preset(preset) = &found.origin {
        all.extend(counted(preset));
    }
    if let Some(replicas) = &found.sampling.replicas {
        all.push(format!(
            "`{}` names {} replicas of the collector: each target is seen at as many phases, which \
             helps, and counted as often, so that rates read {} times too high.",
            replicas.label,
            replicas.values.len(),
            replicas.values.len(),
        ));
    }
    if found.sampling.uneven > UNEVEN_MAX {
        all.push(format!(
            "{:.0} % of the spacings between samples are no whole number of scrapes: a layer that \
             merges replicas stands between. Ask one Prometheus itself, or switch the \
             deduplication off.",
            100.0 * found.sampling.uneven
        ));
    }
    let flushes: Vec<String> =
        found.config.flush_intervals.iter().map(Duration::as_secs_f64).map(seconds).collect();
    if !flushes.is_empty() {
        all.push(format!(
            "The exporter refreshes its counters every {}: waves of that period are no evidence. \
             A shorter flush shows more.",
            flushes.join(" or ")
        ));
    }
    all
}

/// What it would take to see the commonest first wait, where it is not seen.
fn finer(found: &Found) -> Option<String> {
    let worst = found
        .sampling
        .dependencies
        .iter()
        .filter(|seen| seen.tells_from().is_some_and(|gap| gap > WANTED_SECONDS))
        .max_by(|a, b| {
            let gap = |seen: &&Seen| seen.dependency.resolvable_gap_seconds;
            gap(a).total_cmp(&gap(b))
        })?;
    let dependency = &worst.dependency;
    let name = dependency.key.name();
    let (cycle, gap) = (dependency.scrape_interval_seconds, dependency.resolvable_gap_seconds);
    // Where the phases would do and the gap is still long, traffic is what lacks.
    if 2.0 * phase_step(&worst.phases_seconds, cycle) <= WANTED_SECONDS {
        return Some(format!(
            "`{name}` has too little traffic for its {} targets to show waits of {}: nothing but \
             larger storms will.",
            dependency.targets,
            seconds(WANTED_SECONDS)
        ));
    }
    // The gap goes with the interval, and goes down with the number of phases.
    let times = gap / WANTED_SECONDS;
    let targets = (count(dependency.targets) * times).ceil();
    Some(format!(
        "To tell waits of {} at `{name}`: scrape every {} instead of {}, or {targets} targets at \
         phases of their own instead of {}.",
        seconds(WANTED_SECONDS),
        seconds(rounded(cycle / times)),
        seconds(rounded(cycle)),
        dependency.targets,
    ))
}

/// Expected length of the gap between neighbouring phases that a random instant falls into: long
/// where they stand together, since long gaps catch more instants.
fn phase_step(phases: &[f64], cycle: f64) -> f64 {
    let Some((first, last)) = phases.first().zip(phases.last()) else { return cycle };
    let inner: f64 = phases.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let around = first + cycle - last;
    around.mul_add(around, inner) / cycle.max(1e-3)
}

/// What the counter of a preset hides, and what would show it.
fn counted(preset: &Preset) -> Vec<String> {
    let mut all = Vec::new();
    match preset.counts {
        Counts::Calls => all.push(format!(
            "One increment is a request wanted and not an attempt: retries below it are hidden. \
             Start counting attempts. {}",
            preset.counts_note
        )),
        Counts::Depends => all.push(format!(
            "Whether one increment is an attempt depends on how it is wired: see that the counter \
             stands inside of the retry. {}",
            preset.counts_note
        )),
        Counts::Connections => all.push(format!(
            "It counts connections: retries on one that is kept are hidden. {}",
            preset.counts_note
        )),
        Counts::Attempts => {}
    }
    if preset.counted_at == CountedAt::End && preset.counts != Counts::Connections {
        all.push(
            "It counts when an attempt ends: a hang is silence and then a burst. Short timeouts \
             keep it honest."
                .to_owned(),
        );
    }
    for text in &mut all {
        text.truncate(text.trim_end().len());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finer_sampling_tells_more_schedules() {
        let rules = Rules::builtin();
        let [fine, coarse, blind] = [0.01, 5.0, f64::INFINITY].map(|gap| told(gap, &rules));
        assert!(fine.told > coarse.told && coarse.told > blind.told, "{fine:?} {coarse:?}");
        assert_eq!((blind.told, fine.of), (0, blind.of));
        assert!(fine.told * 10 > fine.of * 9, "{fine:?}");
    }

    #[test]
    fn two_digits_are_kept() {
        assert!((rounded(1.5678) - 1.6).abs() < 1e-9 && (rounded(0.0123) - 0.012).abs() < 1e-9);
        assert!((rounded(30.02) - 30.0).abs() < 1e-9 && rounded(0.0).abs() < 1e-9);
    }
}
