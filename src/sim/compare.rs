//! The same scenario under several retry policies, side by side.
//!
//! ```
//! use squall::rules::Rules;
//! use squall::sim::{builtin, compare::compare, scenario::Scenario};
//!
//! let text = builtin::find("contention").ok_or("no such scenario")?;
//! let scenario = Scenario::parse("contention", text, &Rules::default()).map_err(|_| "faults")?;
//! let rows = compare(&scenario, &["none", "full"], 1).map_err(|_| "no such jitter")?;
//! // The published result: full jitter needs about half the calls.
//! assert!(rows[1].attempts as f64 / (rows[0].attempts as f64) < 0.6);
//! # Ok::<(), &str>(())
//! ```

use super::policy::{Growth, Jitter};
use super::run;
use super::scenario::Scenario;

/// The jitters that can be compared, with their names.
const JITTERS: [(&str, Jitter); 4] = [
    ("none", Jitter::None),
    ("equal", Jitter::Equal),
    ("full", Jitter::Full),
    ("decorrelated", Jitter::Decorrelated),
];

/// What one policy came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The name of the jitter.
    pub jitter: String,
    /// Attempts in all.
    pub attempts: u64,
    /// Attempts for each call wanted.
    pub amplification: f64,
    /// The highest attempts per second.
    pub peak_per_second: u32,
    /// Seconds until the last call of those who retry had ended.
    pub finished_seconds: f64,
    /// Seconds from the end of the first fault until failures were rare again.
    pub recovery_seconds: Option<f64>,
    /// Calls that never succeeded.
    pub lost: u64,
}

/// A jitter that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no jitter is called `{0}`; known: none, equal, full, decorrelated")]
pub struct UnknownJitter(pub String);

/// Runs the scenario once for each jitter, put into every policy that waits.
///
/// # Errors
///
/// When a name is none of `none`, `equal`, `full`, `decorrelated`.
pub fn compare(
    scenario: &Scenario,
    names: &[&str],
    seed: u64,
) -> Result<Vec<Comparison>, UnknownJitter> {
    let jitter_of = |name: &&str| {
        let known = JITTERS.iter().find(|(known, _)| known == name);
        known.copied().ok_or_else(|| UnknownJitter((*name).to_owned()))
    };
    let jitters: Vec<(&str, Jitter)> = names.iter().map(jitter_of).collect::<Result<_, _>>()?;
    Ok(jitters.into_iter().map(|(name, jitter)| under(scenario, name, jitter, seed)).collect())
}

fn under(scenario: &Scenario, name: &str, jitter: Jitter, seed: u64) -> Comparison {
    let mut scenario = scenario.clone();
    let waits = |growth: &Growth| !matches!(growth, Growth::Immediate | Growth::Library(_));
    for population in &mut scenario.clients {
        if population.retry.retries_max > 0 && waits(&population.retry.growth) {
            population.retry.jitter = jitter;
        }
    }
    let truth = run(&scenario, seed).truth;
    let retrying: Vec<_> = truth
        .populations
        .iter()
        .zip(&scenario.clients)
        .filter(|(_, plan)| plan.retry.retries_max > 0)
        .map(|(population, _)| population)
        .collect();
    let attempts: u64 = retrying.iter().map(|population| population.attempts()).sum();
    let calls: u64 = retrying.iter().map(|population| population.calls).sum();
    let dependency = retrying.first().map(|p| p.dependency.clone()).unwrap_or_default();
    Comparison {
        jitter: name.to_owned(),
        attempts,
        amplification: attempts as f64 / calls.max(1) as f64,
        peak_per_second: truth.peak(&dependency),
        finished_seconds: retrying.iter().map(|p| p.last_end_seconds).fold(0.0, f64::max),
        recovery_seconds: truth.recovery_seconds(&dependency),
        lost: truth.populations.iter().map(|population| population.given_up).sum(),
    }
}

/// The rows as a table for a terminal.
#[must_use]
pub fn table(rows: &[Comparison]) -> String {
    let mut text = format!(
        "{:<13}{:>10}{:>11}{:>9}{:>12}{:>12}{:>9}\n",
        "jitter", "attempts", "each call", "peak/s", "finished s", "recovery s", "lost"
    );
    for row in rows {
        let recovery = row.recovery_seconds.map_or("-".to_owned(), |s| format!("{s:.0}"));
        text.push_str(&format!(
            "{:<13}{:>10}{:>11.2}{:>9}{:>12.1}{:>12}{:>9}\n",
            row.jitter,
            row.attempts,
            row.amplification,
            row.peak_per_second,
            row.finished_seconds,
            recovery,
            row.lost
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;
    use crate::rules::Rules;

    /// Runs that are averaged: the published figures are means over a hundred.
    const RUNS: u64 = 10;

    #[test]
    fn the_published_comparison_of_jitters_is_reproduced() {
        let text = builtin::find("contention").expect("a built-in scenario");
        let scenario = Scenario::parse("contention", text, &Rules::default()).expect("no fault");
        let names = ["none", "equal", "full", "decorrelated"];
        let mut calls = [0.0; 4];
        let mut finished = [0.0; 4];
        for seed in 0..RUNS {
            let rows = compare(&scenario, &names, seed).expect("known jitters");
            for (index, row) in rows.iter().enumerate() {
                calls[index] += row.attempts as f64 / RUNS as f64;
                finished[index] += row.finished_seconds / RUNS as f64;
                assert_eq!(row.lost, 0, "every writer gets through");
            }
        }
        let [none, equal, full, decorrelated] = calls;
        // A re-implementation of the published model gave 1856, 812, 795 and 1003 calls; the
        // tolerance is for the spread of ten runs.
        assert!((0.3..0.6).contains(&(full / none)), "{calls:?}");
        assert!((0.85..1.25).contains(&(equal / full)), "{calls:?}");
        assert!((0.9..1.6).contains(&(decorrelated / full)), "{calls:?}");
        assert!(finished[2] < 0.6 * finished[0], "{finished:?}");
        assert!(finished[1] > finished[2], "{finished:?}");
    }

    #[test]
    fn an_unknown_jitter_is_refused() {
        let scenario = Scenario::new("x", 1.0);
        assert_eq!(compare(&scenario, &["some"], 1), Err(UnknownJitter("some".to_owned())));
    }
}
