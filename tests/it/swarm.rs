//! A swarm of drawn worlds with faults of the world outside, and what must hold in all of them.
//!
//! One seed draws everything: the kind of the case, its sampling, which polls fail, when the daemon
//! restarts. A failure names the command that repeats it, faults and all, and the one that gives its
//! samples to whatever else one would try on them.

use std::collections::BTreeSet;

use squall::incident::{Incident, State};
use squall::pipeline::{Reason, Trust};
use squall::sim::corpus::{CaseKind, LabelledCase, Sampling, draw_case};
use squall::sim::random::Draws;

use crate::support::replay::{arrivals, give, keep, pages, pipeline};

/// Worlds in all; each test takes a quarter, so that they run side by side.
const SEEDS: u64 = 200;

/// Samplings of the swarm: those at which a case takes a moment and not a minute.
const SAMPLINGS: [Sampling; 4] = [
    Sampling { interval_seconds: 5.0, targets: 2 },
    Sampling { interval_seconds: 15.0, targets: 1 },
    Sampling { interval_seconds: 15.0, targets: 6 },
    Sampling { interval_seconds: 30.0, targets: 10 },
];

/// Faults of the data, which have no storm in them whatever else is true: never a page.
const ARTEFACTS: [CaseKind; 6] = [
    CaseKind::Resets,
    CaseKind::ReplicaFlips,
    CaseKind::ClockJumps,
    CaseKind::Autoscaling,
    CaseKind::Staircase,
    CaseKind::Noise,
];

/// Runs a quarter of the worlds; `test` is the name of the test that does, for messages.
fn swarm(quarter: u64, test: &str) {
    for seed in (quarter * SEEDS / 4)..((quarter + 1) * SEEDS / 4) {
        let mut draws = Draws::new(seed, 99);
        let kind = draws.pick(&CaseKind::ALL);
        let sampling = draws.pick(&SAMPLINGS);
        let case = draw_case(kind, sampling, seed);
        let faults = one_world(&case, &mut draws);
        assert!(
            faults.is_empty(),
            "seed {seed}: {}\nagain: cargo test --locked --test it -- swarm::{test}\n\
             its samples: squall simulate {}",
            faults.join("\n"),
            case.name()
        );
    }
}

/// Runs one world with failing polls and restarts; returns what did not hold.
fn one_world(case: &LabelledCase, draws: &mut Draws) -> Vec<String> {
    let poll = case.sampling.interval_seconds;
    let (missing, partial) = (draws.between(0.0, 0.15), draws.between(0.0, 0.15));
    let restart_share = draws.between(0.0, 0.02);
    let mut faults = Vec::new();
    let mut kept: Vec<Incident> = Vec::new();
    let mut opened = BTreeSet::new();
    let mut running = pipeline();
    let arrivals = arrivals(&case.samples);
    let Some((first, _, _)) = arrivals.first().copied() else { return faults };
    let mut now = first.plus_seconds(poll);
    let mut next = 0;
    while next < arrivals.len() {
        let trust = match draws.uniform() {
            luck if luck < missing => Trust::Missing,
            luck if luck < missing + partial => Trust::Partial,
            _ => Trust::Whole,
        };
        // What a failed poll did not bring comes with the next one.
        if trust != Trust::Missing {
            while let Some((_, index, sample)) = arrivals.get(next).filter(|(at, _, _)| *at <= now)
            {
                give(&mut running, &case.samples[*index], *sample);
                next += 1;
            }
        }
        let changes = running.pass(now, &[trust]);
        for change in &changes {
            let id = change.incident.id.clone();
            let closes = matches!(change.reason, Reason::Opened | Reason::Resolved);
            if trust != Trust::Whole && closes {
                faults.push(format!("{:?} of {id} on a poll that failed", change.reason));
            }
            // What was withdrawn may come back; what stands may not be opened again.
            if change.reason == Reason::Withdrawn {
                opened.remove(&id);
            }
            if change.reason == Reason::Opened && !opened.insert(id.clone()) {
                faults.push(format!("{id} was opened twice"));
            }
            faults.extend(unsound(&change.incident));
        }
        keep(&mut kept, changes);
        if draws.chance(restart_share) {
            // What has ended may be seen once more in the history that is read again: its identity
            // is the same, and the record keeps one.
            opened.clear();
            let open = kept.iter().filter(|i| i.state != State::Resolved).cloned().collect();
            running = pipeline();
            running.take_up(open);
            // A restarted daemon reads its history again, as far back as it needs.
            for (_, index, sample) in &arrivals[..next] {
                give(&mut running, &case.samples[*index], *sample);
            }
        }
        now = now.plus_seconds(poll);
    }
    let paged = kept.iter().filter(|incident| pages(incident)).count();
    if ARTEFACTS.contains(&case.kind) && paged > 0 {
        faults.push(format!("{paged} pages from faults of the data"));
    }
    if paged > 1 {
        faults.push(format!("{paged} pages for one storm"));
    }
    faults
}

/// What is wrong with an incident in itself.
fn unsound(incident: &Incident) -> Vec<String> {
    let verdict = &incident.verdict;
    let checks = [
        ((0.0..=1.0).contains(&verdict.confidence), "a confidence outside 0 to 1"),
        (verdict.started_at <= incident.updated_at, "a start after its last look"),
        (verdict.waves.iter().all(|wave| wave.requests >= 0.0), "a wave of negative size"),
        (verdict.impact.amplification >= 1.0, "an amplification below 1"),
        ((0.0..=1.0).contains(&verdict.impact.error_ratio), "an error ratio outside 0 to 1"),
        (!verdict.summary.is_empty(), "no sentence"),
        (incident.ended_at.is_some() == (incident.state == State::Resolved), "an end that is none"),
    ];
    checks
        .into_iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, says)| format!("{}: {says}", incident.id))
        .collect()
}

#[test]
fn the_first_quarter_of_the_swarm_holds() {
    swarm(0, "the_first_quarter_of_the_swarm_holds");
}

#[test]
fn the_second_quarter_of_the_swarm_holds() {
    swarm(1, "the_second_quarter_of_the_swarm_holds");
}

#[test]
fn the_third_quarter_of_the_swarm_holds() {
    swarm(2, "the_third_quarter_of_the_swarm_holds");
}

#[test]
fn the_fourth_quarter_of_the_swarm_holds() {
    swarm(3, "the_fourth_quarter_of_the_swarm_holds");
}
