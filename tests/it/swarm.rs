//! A swarm of drawn worlds with faults of the world outside, and what must hold in all of them: of
//! what is said (one incident for each storm, no page from faults of the data, nothing twice after a
//! restart), and of what is asked (a bounded rate of own questions).
//!
//! One seed draws everything: the kind of the case, its sampling, which polls fail, when the daemon
//! restarts. A failure names the command that repeats it, faults and all, and the one that gives its
//! samples to whatever else one would try on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use squall::clock::TokioClock;
use squall::incident::{Incident, State};
use squall::pipeline::{Reason, Trust};
use squall::sim::corpus::{CaseKind, LabelledCase, Sampling, draw_case};
use squall::sim::random::Draws;
use squall::telemetry::Metrics;

use crate::support::fleet::{BEGIN, Fleet, Question, SELECTORS, start};
use crate::support::memory_store::MemoryStore;
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

/// Worlds in which a whole daemon asks, each with a server that fails, is late, and answers in part.
const ASKED_SEEDS: u64 = 8;
/// Polls between two looks at the server's clock, as the daemon has it.
const CLOCK_POLLS: f64 = 100.0;

#[tokio::test(start_paused = true)]
async fn no_daemon_of_the_swarm_asks_more_than_it_may() {
    for seed in 0..ASKED_SEEDS {
        let mut draws = Draws::new(seed, 98);
        let case = draw_case(draws.pick(&CaseKind::ALL), draws.pick(&SAMPLINGS), seed);
        let poll = Duration::from_secs(draws.pick(&[5, 15, 30]));
        let clock = TokioClock::starting_at(BEGIN);
        let luck = Draws::new(seed, 97);
        let fleet = Fleet::moody(case.scenario.clone(), seed, clock, luck);
        let store = Arc::new(MemoryStore::default());
        // It runs to the middle, and again from there to the end.
        let half = Duration::from_secs_f64(case.scenario.duration_seconds / 2.0);
        for _ in 0..2 {
            let (stop, daemon) = start(&fleet, &store, clock, Metrics::new(), poll).await;
            tokio::time::sleep(half).await;
            stop.cancel();
            daemon.await.expect("no panic").expect("an end in order");
        }
        let faults = ill_manners(&fleet.questions(), fleet.looks_at_the_clock(), poll, half * 2);
        assert!(
            faults.is_empty(),
            "seed {seed}, polls every {poll:?}: {}\nagain: cargo test --locked --test it -- \
             swarm::no_daemon_of_the_swarm_asks_more_than_it_may\nits samples: squall simulate {}",
            faults.join("\n"),
            case.name()
        );
    }
}

/// What is wrong with the questions of a daemon that was started twice.
fn ill_manners(asked: &[Question], looks: usize, poll: Duration, whole: Duration) -> Vec<String> {
    let poll = poll.as_secs_f64();
    let mut faults = Vec::new();
    // However late the server is: one question at a time, and what was missed is not made up for.
    if let Some(two) = asked.iter().find(|it| it.beside > 0) {
        faults.push(format!("{two:?} was put before the last one was answered"));
    }
    for span in [poll, 60.0_f64.max(2.0 * poll), 600.0] {
        #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
        // A poll on either edge, and one more where the second daemon begins anew.
        let most = SELECTORS as f64 * ((span / poll).floor() + 2.0);
        for (index, first) in asked.iter().enumerate() {
            let within =
                asked[index..].iter().take_while(|it| it.at.seconds_since(first.at) < span);
            #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
            let within = within.count() as f64;
            if within > most {
                faults.push(format!("{within} questions in {span} s, {most} may be"));
                break;
            }
        }
    }
    // No answer may grow without bound however long the server was away.
    if let Some(long) = asked.iter().find(|it| it.window_seconds > 3600.0) {
        faults.push(format!("{long:?} reaches back over an hour"));
    }
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let looks = looks as f64;
    let most = 2.0 + whole.as_secs_f64() / poll / CLOCK_POLLS;
    if looks > most {
        faults.push(format!("{looks} looks at the clock, {most} may be"));
    }
    // A daemon that asks nothing is not polite but dead.
    let least = SELECTORS as f64 * whole.as_secs_f64() / poll / 4.0;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    if (asked.len() as f64) < least {
        faults.push(format!("{} questions, {least} at the least", asked.len()));
    }
    faults
}
