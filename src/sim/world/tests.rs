//! The world keeps count: what was sent arrived, and what was scraped was there.

use super::super::policy::{Jitter, RetryPolicy};
use super::super::run;
use super::super::scenario::{
    Breaker, Calls, DependencyPlan, Fault, FaultKind, Guard, Population, Scenario, ScrapePlan,
};
use super::super::truth::Truth;
use super::World;

/// 2,000 clients that fail together at 120 s, with a dependency that is down for `down` seconds.
fn herd(jitter: Jitter, down: f64) -> Scenario {
    let mut scenario = Scenario::new("herd", 300.0);
    let fault = Fault::outage(120.0, down);
    let plan = DependencyPlan { faults: vec![fault], ..DependencyPlan::new("payments") };
    let to = scenario.dependency(plan);
    let policy = RetryPolicy::exponential(1.0, 2.0, 32.0, 7, jitter);
    scenario.population(Population::burst("herd", to, 2_000, 120.0, 0.1, policy));
    scenario
}

fn attempts_between(truth: &Truth, from: usize, to: usize) -> u64 {
    truth.timeline("payments").map_or(0, |line| line.sum(from, to, |row| row.attempts))
}

#[test]
fn without_jitter_everybody_is_back_at_1_3_7_15_31() {
    let truth = run(&herd(Jitter::None, 30.5), 1).truth;
    for wave in [0, 1, 3, 7, 15, 31] {
        // The herd fails within 0.1 s, is told so within 0.02 s, five times: all in one second.
        assert_eq!(attempts_between(&truth, 120 + wave, 121 + wave), 2_000, "wave at {wave} s");
    }
    assert_eq!(attempts_between(&truth, 0, 300), 6 * 2_000);
    let waves = &truth.populations[0].groups;
    assert_eq!(waves[5].attempts, 2_000);
    assert!(waves[5].sd_seconds() < 0.1);
}

#[test]
fn full_jitter_spreads_the_third_wave_to_about_500_a_second() {
    let truth = run(&herd(Jitter::Full, 30.5), 1).truth;
    // 2,000 third retries over a wait of 4 s, and the stragglers of the second and first fourth ones.
    let mean = attempts_between(&truth, 123, 127) as f64 / 4.0;
    assert!(mean <= 550.0, "{mean}");
    let most = (123..127).map(|second| attempts_between(&truth, second, second + 1)).max();
    assert!(most.is_some_and(|most| most < 700), "{most:?}");
}

#[test]
fn the_same_seed_gives_the_same_world_and_another_seed_another() {
    let mut scenario = herd(Jitter::Equal, 20.0);
    scenario.population(Population::stream("others", 0, 50.0));
    scenario.scrape = ScrapePlan { missed: 0.1, late: 0.1, ..ScrapePlan::default() };
    let (first, second, other) = (run(&scenario, 7), run(&scenario, 7), run(&scenario, 8));
    assert_eq!(first.series, second.series);
    assert_eq!(first.truth, second.truth);
    assert_ne!(first.series, other.series);
}

#[test]
fn advancing_in_steps_changes_nothing() {
    let scenario = herd(Jitter::Full, 20.0);
    let mut world = World::new(&scenario, 3);
    for step in 1..=600 {
        world.advance(f64::from(step) * 0.5);
    }
    let run_at_once = run(&scenario, 3);
    assert_eq!(world.series(), run_at_once.series);
    assert_eq!(*world.truth(), run_at_once.truth);
}

#[test]
fn the_counters_hold_every_attempt_and_the_scrapes_see_them() {
    let mut scenario = herd(Jitter::None, 30.5);
    scenario.scrape.interval_seconds = 1.0;
    let run = run(&scenario, 2);
    let last: f64 = run.series.iter().filter_map(|s| s.samples.last()).map(|s| s.value).sum();
    assert!((last - 12_000.0).abs() < f64::EPSILON, "{last}");
    assert!(run.series.iter().all(|s| s.samples.windows(2).all(|w| w[0].at < w[1].at)));
}

/// 100 calls a second on a dependency that serves 150, with 1 s timeouts and a 40 s slowdown.
fn overload(policy: RetryPolicy, guard: Guard) -> Truth {
    let mut scenario = Scenario::new("overload", 900.0);
    let slow = Fault { kind: FaultKind::Slow { factor: 4.0 }, ..Fault::outage(100.0, 40.0) };
    let to = scenario.dependency(DependencyPlan {
        capacity: 150.0,
        queue_seconds: 4.0,
        faults: vec![slow],
        ..DependencyPlan::new("payments")
    });
    scenario.population(Population {
        retry: policy,
        timeout_seconds: 1.0,
        guard,
        ..Population::stream("users", to, 100.0)
    });
    run(&scenario, 4).truth
}

#[test]
fn a_flood_of_retries_outlives_the_slowdown_and_a_budget_or_a_breaker_ends_it() {
    let served_late = |truth: &Truth| {
        truth.timeline("payments").map_or(0, |line| line.sum(600, 700, |row| row.served))
    };
    // Goodput is gone minutes after the cause: all work is for clients that have given up.
    let flood = overload(RetryPolicy::immediate(3), Guard::default());
    assert!(served_late(&flood) < 1_000, "{}", served_late(&flood));
    let budget = Guard { budget_share: Some(0.05), ..Guard::default() };
    let held = overload(RetryPolicy::immediate(3), budget);
    assert!(served_late(&held) > 9_000, "{}", served_late(&held));
    assert!(held.recovery_seconds("payments").is_some_and(|seconds| seconds < 60.0));
    let breaker = Breaker { failures: 5, open_seconds: 10.0 };
    let guarded =
        overload(RetryPolicy::immediate(3), Guard { breaker: Some(breaker), ..Guard::default() });
    assert!(served_late(&guarded) > 9_000, "{}", served_late(&guarded));
}

#[test]
fn backoff_keeps_the_load_and_multiplies_the_work_in_flight() {
    // Five attempts with 2 s timeouts against a black hole: each call is in flight 10 s, not 2.
    let story = |retries| {
        let mut scenario = Scenario::new("in flight", 400.0);
        let hole = Fault { kind: FaultKind::BlackHole, ..Fault::outage(100.0, 200.0) };
        let to = scenario
            .dependency(DependencyPlan { faults: vec![hole], ..DependencyPlan::new("payments") });
        scenario.population(Population {
            retry: RetryPolicy::exponential(1.0, 2.0, 8.0, retries, Jitter::Full),
            timeout_seconds: 2.0,
            ..Population::stream("users", to, 50.0)
        });
        let truth = run(&scenario, 5).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        let most = line.iter().map(|(_, row)| row.in_flight).max().unwrap_or(0);
        (most, line.sum(200, 300, |row| row.attempts))
    };
    let ((patient, patient_load), (plain, plain_load)) = (story(4), story(0));
    let ratio = f64::from(patient) / f64::from(plain);
    assert!((4.0..6.5).contains(&ratio), "in flight {patient} against {plain}");
    assert!((4.5..5.5).contains(&(patient_load as f64 / plain_load as f64)), "{patient_load}");
}

#[test]
fn layers_that_each_retry_multiply() {
    let mut scenario = Scenario::new("layers", 200.0);
    let c = scenario.dependency(DependencyPlan {
        faults: vec![Fault::outage(50.0, 100.0)],
        ..DependencyPlan::new("c")
    });
    let b = scenario.dependency(DependencyPlan::new("b"));
    let a = scenario.dependency(DependencyPlan::new("a"));
    let inner = |name: &str, to| Population {
        calls: Calls::Inner,
        retry: RetryPolicy::immediate(2),
        job: name.to_owned(),
        ..Population::stream(name, to, 0.0)
    };
    let b_calls_c = scenario.population(inner("b", c));
    let a_calls_b = scenario.population(inner("a", b));
    scenario.dependencies[b].calls = Some(b_calls_c);
    scenario.dependencies[a].calls = Some(a_calls_b);
    scenario.population(Population {
        retry: RetryPolicy::immediate(2),
        ..Population::stream("users", a, 10.0)
    });
    let truth = run(&scenario, 6).truth;
    let load = |name: &str, from, to| {
        truth.timeline(name).map_or(0, |line| line.sum(from, to, |row| row.attempts)) as f64
    };
    // Three attempts at each of three layers: 27 at the bottom for one wanted.
    let amplification = load("c", 60, 140) / load("c", 0, 40) / 2.0;
    assert!((23.0..31.0).contains(&amplification), "{amplification}");
    assert_eq!(truth.population("users").map(|p| p.calls == p.served + p.given_up), Some(true));
}

#[test]
fn retry_after_brings_everybody_back_together() {
    let mut scenario = herd(Jitter::Full, 20.0);
    scenario.dependencies[0].faults[0].kind = FaultKind::Refuse { retry_after_seconds: Some(5.0) };
    scenario.clients[0].retry.honours_retry_after = true;
    let truth = run(&scenario, 9).truth;
    for wave in [5, 10, 15, 20] {
        assert_eq!(attempts_between(&truth, 120 + wave, 121 + wave), 2_000, "{wave}");
    }
}
