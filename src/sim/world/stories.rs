//! The stories that the built-in scenarios tell, each claim as a test of the very file.

use super::super::scenario::{Guard, Scenario};
use super::super::truth::Truth;
use super::super::{builtin, run};
use crate::rules::Rules;

fn scenario(name: &str) -> Scenario {
    let text = builtin::find(name).expect("a built-in scenario");
    Scenario::parse(name, text, &Rules::builtin()).expect("no fault")
}

/// Attempts and good answers per second of a dependency in the seconds `from..to`.
fn rates(truth: &Truth, dependency: &str, from: usize, to: usize) -> (f64, f64) {
    let line = truth.timeline(dependency).cloned().unwrap_or_default();
    let seconds = (to - from) as f64;
    let per_second = |count: u64| count as f64 / seconds;
    (
        per_second(line.sum(from, to, |row| row.attempts)),
        per_second(line.sum(from, to, |row| row.served)),
    )
}

#[test]
fn herd_none_returns_whole_at_1_3_7_15_31_s_and_the_jittered_ones_in_pieces() {
    let busiest = |name: &str, from: usize, to: usize| {
        let truth = run(&scenario(name), 1).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        let inside = line.iter().filter(|(at, _)| (120 + from..120 + to).contains(at));
        inside.map(|(_, row)| f64::from(row.attempts)).fold(0.0, f64::max)
    };
    // The other traffic is 20/s, give or take three times its root.
    for wave in [1, 3, 7, 15, 31] {
        let spike = busiest("herd-none", wave, wave + 1);
        assert!((2_000.0..2_040.0).contains(&spike), "{spike} at {wave} s");
        let quiet = busiest("herd-none", wave + 1, wave + 2);
        assert!(wave == 1 || quiet < 60.0, "{quiet} after {wave} s");
    }
    // With full jitter the third retry is spread over 4 s, 500/s, with some stragglers of the
    // second and some that are early for the fourth.
    let truth = run(&scenario("herd-full"), 1).truth;
    let (third, _) = rates(&truth, "payments", 123, 127);
    assert!((480.0..560.0).contains(&third), "{third}");
    for (name, most) in
        [("herd-full", 700.0), ("herd-equal", 1_100.0), ("herd-decorrelated", 650.0)]
    {
        let third = busiest(name, 3, 7);
        assert!(third < most, "{name}: {third} in the third window");
        let fifth = busiest(name, 15, 31);
        assert!(fifth < 350.0, "{name}: {fifth} in the fifth window");
    }
}

#[test]
fn the_busiest_seconds_are_those_of_the_documentation() {
    let header = include_str!("../compare.rs");
    for jitter in ["none", "equal", "full", "decorrelated"] {
        let truth = run(&scenario(&format!("herd-{jitter}")), 1).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        let mut row = format!("//! {jitter:<12}");
        for window in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 31), (31, 63)] {
            let inside =
                line.iter().filter(|(at, _)| (120 + window.0..120 + window.1).contains(at));
            let most = inside.map(|(_, row)| row.attempts).max().unwrap_or(0);
            row.push_str(&format!("{most:>10}"));
        }
        assert!(header.contains(&row), "the row is\n{row}");
    }
}

#[test]
fn metastable_outlives_its_trigger_by_minutes_and_ends_with_the_retries() {
    let story = scenario("metastable");
    let truth = run(&story, 1).truth;
    let (before, served) = rates(&truth, "payments", 100, 240);
    assert!(served > 0.97 * before, "{served} of {before}");
    // The cause ends at 280 s. Four times the load goes on, and nothing of it is served in time.
    let (load, served) = rates(&truth, "payments", 300, 600);
    assert!(load > 3.5 * before && served < 0.02 * before, "{load} {served}");
    // Retries are switched off at 600 s; the queue drains and all is well.
    let (load, served) = rates(&truth, "payments", 630, 900);
    assert!(load < 1.1 * before && served > 0.97 * load, "{load} {served}");
    // They are the cause: left on, they hold the flood up to the end.
    let mut left_on = story;
    left_on.clients[0].guard = Guard::default();
    let (_, served) = rates(&run(&left_on, 1).truth, "payments", 630, 900);
    assert!(served < 0.02 * before, "{served}");
}

#[test]
fn a_retry_budget_or_a_breaker_ends_the_same_flood_with_its_cause() {
    let mut flood = scenario("metastable");
    flood.clients[0].guard = Guard::default();
    for name in ["retry-budget", "circuit-breaker"] {
        let story = scenario(name);
        let truth = run(&story, 1).truth;
        let (load, served) = rates(&truth, "payments", 310, 600);
        assert!((90.0..110.0).contains(&load) && served > 0.97 * load, "{name}: {load} {served}");
        let recovery = truth.recovery_seconds("payments");
        assert!(recovery.is_some_and(|seconds| seconds < 30.0), "{name}: {recovery:?}");
        let amplification = truth.populations[0].amplification();
        assert!(amplification < 1.06, "{name}: {amplification}");
        // The same world and the same clients but for their guard.
        let mut unguarded = story;
        unguarded.clients[0].guard = Guard::default();
        assert_eq!(unguarded.dependencies, flood.dependencies, "{name}");
        assert_eq!(unguarded.clients, flood.clients, "{name}");
    }
}

#[test]
fn deadlines_backoff_bounds_the_load_and_multiplies_the_work_in_flight() {
    // Five attempts with 2 s timeouts into a black hole: each call is in flight for 10 s, not 2.
    let story = |retries| {
        let mut story = scenario("deadlines");
        story.clients[0].retry.retries_max = retries;
        let truth = run(&story, 1).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        let in_flight = line.iter().map(|(_, row)| row.in_flight).max().unwrap_or(0);
        (f64::from(in_flight), rates(&truth, "payments", 300, 420).0)
    };
    let ((patient, patient_load), (plain, plain_load)) = (story(4), story(0));
    let written = scenario("deadlines").clients[0].retry.retries_max;
    assert_eq!(written, 4);
    assert!((4.0..6.0).contains(&(patient / plain)), "in flight {patient} against {plain}");
    assert!((4.5..5.5).contains(&(patient_load / plain_load)), "{patient_load} {plain_load}");
}

#[test]
fn layers_that_each_try_three_times_make_twenty_seven_of_one() {
    let truth = run(&scenario("layers"), 1).truth;
    for (name, times) in [("a", 3.0), ("b", 9.0), ("c", 27.0)] {
        let (before, _) = rates(&truth, name, 0, 240);
        let (load, _) = rates(&truth, name, 245, 355);
        // Ten calls a second for 110 s: three per cent of luck in either, and its attempts are one
        // call's, so the ratio is as sure as the calls are.
        assert!((load / before / times - 1.0).abs() < 0.12, "{name}: {load} / {before}");
    }
    let users = truth.population("users").expect("users");
    let under_way = users.calls - users.served - users.given_up;
    assert!(under_way < 10, "{under_way} at the end");
}
