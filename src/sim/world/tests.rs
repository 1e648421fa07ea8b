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
    let mut at_once = World::new(&scenario, 3);
    at_once.advance(300.0);
    assert_eq!(world.series(), at_once.series());
    assert!(world.truth() == at_once.truth());
    assert_eq!(world.series(), run(&scenario, 3).series);
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

/// A stream of `rate` calls a second behind a guard, on a dependency with this fault; 1 s scrapes of
/// one target.
fn guarded(rate: f64, fault: Fault, guard: Guard) -> Scenario {
    let mut scenario = Scenario::new("guarded", 300.0);
    let plan = DependencyPlan { faults: vec![fault], ..DependencyPlan::new("payments") };
    let to = scenario.dependency(plan);
    scenario.population(Population { guard, ..Population::stream("users", to, rate) });
    scenario.scrape = ScrapePlan { interval_seconds: 1.0, targets: 1, ..ScrapePlan::default() };
    scenario
}

#[test]
fn a_breaker_sends_one_probe_after_each_pause_and_closes_with_the_first_that_succeeds() {
    let breaker = Some(Breaker { failures: 3, open_seconds: 30.0 });
    let guard = Guard { breaker, ..Guard::default() };
    let truth = run(&guarded(50.0, Fault::outage(10.0, 60.0), guard), 1).truth;
    // Open some tenths of a second after 10 s; probes 30 s later, in the outage, and 60 s later.
    assert_eq!(attempts_between(&truth, 11, 40), 0);
    assert_eq!(attempts_between(&truth, 40, 41), 1);
    assert_eq!(attempts_between(&truth, 41, 70), 0);
    let after = attempts_between(&truth, 72, 102) as f64 / 30.0;
    assert!((after - 50.0).abs() < 5.0, "closed again, and not for another pause: {after}");
}

#[test]
fn a_bulkhead_bounds_what_is_in_flight() {
    let slow = Fault { kind: FaultKind::Slow { factor: 100.0 }, ..Fault::outage(10.0, 60.0) };
    let in_flight = |bulkhead| {
        let guard = Guard { bulkhead, ..Guard::default() };
        let truth = run(&guarded(50.0, slow.clone(), guard), 1).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        (line.iter().map(|(_, row)| row.in_flight).max(), truth.populations[0].held_back)
    };
    let (open, held_back) = in_flight(None);
    assert!(open > Some(60) && held_back == 0, "{open:?}");
    let (bounded, held_back) = in_flight(Some(5));
    assert!(bounded == Some(5) && held_back > 1_000, "{bounded:?} {held_back}");
}

#[test]
fn hedges_are_sent_to_the_slow_and_counted_everywhere() {
    let slow = Fault {
        kind: FaultKind::Slow { factor: 50.0 },
        share: 0.1,
        share_end: 0.1,
        ..Fault::outage(0.0, 300.0)
    };
    let guard = Guard { hedge_after_seconds: Some(0.2), ..Guard::default() };
    let run = run(&guarded(50.0, slow, guard), 1);
    let users = &run.truth.populations[0];
    let share = users.hedges as f64 / users.calls as f64;
    // The slow tenth, which takes 0.7 s and more instead of 14 ms and more.
    assert!((0.08..0.12).contains(&share), "{share}");
    assert_eq!(users.attempts(), attempts_between(&run.truth, 0, 1_000));
    let seen: f64 = run.series.iter().filter_map(|s| s.samples.last()).map(|s| s.value).sum();
    // The last scrape is up to a second before the end.
    assert!((seen - users.attempts() as f64).abs() < 120.0, "{seen} of {}", users.attempts());
}

#[test]
fn a_client_that_never_hears_back_counts_its_failure_when_the_kernel_gives_up() {
    let hole = Fault { kind: FaultKind::BlackHole, ..Fault::outage(10.0, 60.0) };
    let mut scenario = guarded(0.0, hole, Guard::default());
    scenario.population(Population::burst("herd", 0, 40, 20.0, 0.0, RetryPolicy::none()));
    let series = run(&scenario, 1).series;
    let failed = series.iter().find(|s| s.labels.get("code") == Some("504")).expect("timeouts");
    let first = failed.samples.first().expect("a sample");
    let at = first.at.seconds() - scenario.start_unix_seconds;
    // Sent at 20 s, given up 127 s later, seen by the next scrape.
    assert!((147.0..148.1).contains(&at), "{at}");
}

#[test]
fn no_retry_starts_after_the_time_budget() {
    let mut scenario = herd(Jitter::None, 200.0);
    scenario.clients[0].retry.time_budget_seconds = 10.0;
    let truth = run(&scenario, 1).truth;
    assert_eq!(attempts_between(&truth, 127, 129), 2_000);
    assert_eq!(attempts_between(&truth, 130, 1_000), 0);
    assert_eq!(truth.populations[0].given_up, 2_000);
}

#[test]
fn scrapes_later_than_their_timeout_are_lost() {
    let mut scenario = guarded(20.0, Fault::outage(1e6, 1.0), Guard::default());
    scenario.scrape =
        ScrapePlan { interval_seconds: 10.0, late: 0.5, targets: 1, ..scenario.scrape };
    let gaps = |scenario: &Scenario| -> Vec<f64> {
        let run = run(scenario, 1);
        let samples = &run.series[0].samples;
        let first = samples[0].at;
        samples.iter().map(|s| s.at.seconds_since(first).rem_euclid(10.0)).collect()
    };
    let patient = gaps(&scenario);
    assert!(patient.iter().any(|late| (1.0..9.0).contains(late)), "{patient:?}");
    scenario.scrape.timeout_seconds = 1.0;
    let strict = gaps(&scenario);
    assert!(strict.len() < patient.len() && strict.len() > patient.len() / 3);
    assert!(strict.iter().all(|late| !(1.1..9.0).contains(late)), "{strict:?}");
}

#[test]
fn recorded_calls_come_at_their_instants() {
    let mut scenario = guarded(0.0, Fault::outage(1e6, 1.0), Guard::default());
    scenario.clients[0].calls = Calls::Trace([0.5, 2.25, 2.25, 60.0, 1e6].into());
    let truth = run(&scenario, 1).truth;
    let at = [(0, 1), (1, 0), (2, 2), (3, 0), (60, 1)];
    for (second, calls) in at {
        assert_eq!(attempts_between(&truth, second, second + 1), calls, "{second}");
    }
    assert_eq!(truth.populations[0].calls, 4);
}

#[test]
fn the_cohorts_of_one_population_are_told_apart() {
    let mut scenario = herd(Jitter::None, 100.0);
    scenario.clients[0].calls = Calls::Burst {
        size: 100,
        at_seconds: 120.0,
        within_seconds: 0.1,
        every_seconds: 50.0,
        times: 3,
    };
    let truth = run(&scenario, 1).truth;
    let cohorts = &truth.populations[0].cohorts;
    assert_eq!(cohorts.len(), 3);
    for (cohort, start) in cohorts[..2].iter().zip([120.0, 170.0]) {
        assert_eq!(cohort[4].attempts, 100);
        // The fourth retry comes 15 s after the first attempt, and four refusals.
        assert!((cohort[4].mean_seconds() - start - 15.1).abs() < 0.1, "{cohort:?}");
    }
    assert_eq!(cohorts[2].len(), 1, "all is well from 220 s on");
}

#[test]
fn a_long_run_keeps_the_whole_truth_and_a_live_world_the_last_two_days() {
    let mut scenario = guarded(0.02, Fault::outage(1e7, 1.0), Guard::default());
    scenario.duration_seconds = 260_000.0;
    scenario.scrape.interval_seconds = 600.0;
    let whole = run(&scenario, 1).truth;
    assert_eq!(attempts_between(&whole, 0, usize::MAX), whole.populations[0].attempts());
    let mut live = World::new(&scenario, 1);
    live.advance(scenario.duration_seconds);
    let kept = live.truth().timeline("payments").map_or(0, |line| line.iter().count());
    assert!(kept <= super::TRUTH_SECONDS, "{kept}");
}
