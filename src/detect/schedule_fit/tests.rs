//! Fits of trains whose truth is known, drawn by the small generator below.

use super::*;
use crate::series::TargetId;

/// A stream of uniform numbers, the same on every machine.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }
}

/// What a herd does in the generator.
#[derive(Debug, Clone, Copy)]
enum Jitter {
    None,
    Full,
}

struct Scene {
    intervals: Vec<Interval>,
    shares: Vec<f64>,
    onset: f64,
    scrape: f64,
}

/// 1,500 clients fail within 0.3 s at 100 s and retry after 1, 2, 4, 8, 16 s; each retry succeeds
/// for one in ten.
fn scene(seed: u64, jitter: Jitter, scrape: f64, targets: usize) -> Scene {
    scene_of(seed, jitter, scrape, targets, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
}

/// The same with waits of one's own.
fn scene_of(seed: u64, jitter: Jitter, scrape: f64, targets: usize, waits: &[f64]) -> Scene {
    let mut draws = Draws(seed);
    let onset = 100.0;
    let mut failures: Vec<(f64, usize)> = Vec::new();
    for _ in 0..1500 {
        let target = (draws.uniform() * targets as f64) as usize;
        let mut at = onset + 0.3 * draws.uniform();
        failures.push((at, target));
        for &wait in waits {
            at += match jitter {
                Jitter::None => wait,
                Jitter::Full => wait * draws.uniform(),
            };
            if draws.uniform() < 0.1 {
                break;
            }
            failures.push((at, target));
        }
    }
    let mut intervals = Vec::new();
    for target in 0..targets {
        let phase = scrape * draws.uniform();
        let mut from = phase;
        while from < 180.0 {
            let to = from + scrape;
            let inside = |at: f64, of: usize| of == target && at > from && at <= to;
            let errors = failures.iter().filter(|&&(at, of)| inside(at, of)).count() as f64;
            intervals.push(Interval {
                target: TargetId(target as u32),
                from: Timestamp::from_seconds(from),
                to: Timestamp::from_seconds(to),
                requests: errors + 10.0 * scrape,
                errors,
            });
            from = to;
        }
    }
    Scene { intervals, shares: vec![1.0 / targets as f64; targets], onset, scrape }
}

fn report(scene: &Scene, until: f64) -> FitReport {
    report_with(scene, until, &[])
}

fn report_with(scene: &Scene, until: f64, lists: &[Vec<f64>]) -> FitReport {
    fit(&input_of(scene, until, lists)).expect("enough intervals")
}

fn input_of<'a>(scene: &'a Scene, until: f64, lists: &'a [Vec<f64>]) -> FitInput<'a> {
    let low = scene
        .intervals
        .iter()
        .map(|interval| interval.from.seconds())
        .filter(|from| *from <= scene.onset)
        .fold(0.0, f64::max);
    FitInput {
        intervals: &scene.intervals,
        shares: &scene.shares,
        background_rate: 10.0 * scene.shares.len() as f64,
        error_floor_rate: 0.0,
        dispersion: 1.0,
        error_dispersion: 1.0,
        onset: [
            Timestamp::from_seconds(low),
            Timestamp::from_seconds(low + scene.scrape / scene.shares.len() as f64),
        ],
        now: Timestamp::from_seconds(until),
        lists,
    }
}

/// The same scene in an outage of so many seconds, in which all other traffic fails as well.
fn in_outage(mut scene: Scene, seconds: f64) -> Scene {
    for interval in &mut scene.intervals {
        let from = interval.from.seconds().max(scene.onset);
        let to = interval.to.seconds().min(scene.onset + seconds);
        interval.errors += (10.0 * (to - from).max(0.0)).round();
    }
    scene
}

#[test]
fn traffic_that_fails_beside_the_herd_does_not_hide_its_schedule() {
    let scene = in_outage(scene(7, Jitter::None, 5.0, 4), 60.0);
    let found = report(&scene, 178.0);
    assert!(found.winner().is_lockstep(), "{:?}", found.families);
    assert!(found.goodness < 2.0, "{}", found.goodness);
    let Waits::Exponential { base_seconds, factor, .. } = found.told.waits else {
        panic!("{:?}", found.told.waits);
    };
    assert!((base_seconds - 1.0).abs() < 0.1, "base {base_seconds}");
    assert!((factor - 2.0).abs() < 0.1, "factor {factor}");
}

#[test]
fn waits_of_known_clients_are_held_against_the_counts() {
    let known = [
        vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        vec![1.0, 1.5, 2.25, 3.4, 5.1, 7.6, 11.4, 17.1],
        vec![2.0, 4.0, 8.0, 16.0, 32.0],
        vec![5.0; 12],
    ];
    for outage in [0.0, 60.0] {
        let scene = in_outage(scene(7, Jitter::None, 5.0, 4), outage);
        let input = input_of(&scene, 178.0, &[]);
        let mut found = fit(&input).expect("enough intervals");
        assert!(found.known.is_empty());
        found.ask_known(&input, &known);
        let first = found.known.first().expect("one of them is the truth");
        assert_eq!(first.waits_seconds, known[0], "{:?}", found.known);
        assert!(first.loss < 4.0, "{:?}", found.known);
        assert!(found.known[1..].iter().all(|other| other.loss > first.loss + 10.0));
        // Asked again, it keeps its answer.
        let answer = found.known.clone();
        found.ask_known(&input, &[]);
        assert_eq!(found.known, answer);
    }
}

#[test]
fn clients_that_go_on_are_less_likely_than_those_that_give_up_where_nobody_came_any_more() {
    let known = [vec![2.0; 3], vec![2.0; 20]];
    let scene = in_outage(scene_of(7, Jitter::None, 5.0, 10, &known[0]), 40.0);
    let input = input_of(&scene, 160.0, &[]);
    let mut found = fit(&input).expect("enough intervals");
    found.ask_known(&input, &known);
    assert_eq!(found.known[0].waits_seconds, known[0], "{:?}", found.known);
}

#[test]
fn waits_that_follow_no_formula_are_told_by_their_list() {
    let lists = [vec![2.0, 3.0, 5.0, 7.0, 11.0, 13.0], vec![3.0, 1.0, 9.0, 2.0, 14.0, 6.0]];
    for (number, waits) in lists.iter().enumerate() {
        let found = report_with(&scene_of(11, Jitter::None, 1.0, 4, waits), 170.0, &lists);
        assert_eq!(found.lockstep.waits, Waits::List(number), "{:?}", found.families);
        let seen: Vec<f64> = found.lockstep.waves[1..].iter().map(|w| w.wait_seconds).collect();
        assert_eq!(seen[..], waits[..seen.len()], "{:?}", found.lockstep.waves);
        assert!(seen.len() >= 5 && found.gain > 100.0, "{} {seen:?}", found.gain);
    }
}

#[test]
fn an_exponential_train_is_named_at_five_seconds() {
    let found = report(&scene(7, Jitter::None, 5.0, 4), 170.0);
    assert!(found.winner().is_lockstep(), "{:?}", found.families);
    assert!(found.gain > 100.0, "gain {}", found.gain);
    let Waits::Exponential { base_seconds, factor, .. } = found.lockstep.waits else {
        panic!("{:?}", found.lockstep.waits);
    };
    assert!((base_seconds - 1.0).abs() < 0.1, "base {base_seconds}");
    assert!((factor - 2.0).abs() < 0.1, "factor {factor}");
    assert!(found.lockstep.spread < 0.08, "spread {}", found.lockstep.spread);
}

#[test]
fn full_jitter_is_not_called_lockstep() {
    for seed in 0..3 {
        let found = report(&scene(seed, Jitter::Full, 5.0, 4), 160.0);
        assert!(found.gain < 20.0, "seed {seed}: gain {} {:?}", found.gain, found.families);
    }
}

#[test]
fn too_few_intervals_are_not_enough() {
    let scene = scene(1, Jitter::None, 60.0, 1);
    let input = FitInput {
        intervals: &scene.intervals,
        shares: &scene.shares,
        background_rate: 10.0,
        error_floor_rate: 0.0,
        dispersion: 1.0,
        error_dispersion: 1.0,
        onset: [Timestamp::from_seconds(99.0), Timestamp::from_seconds(101.0)],
        now: Timestamp::from_seconds(130.0),
        lists: &[],
    };
    assert_eq!(fit(&input).map(|_| ()), Err(NotEnough { have: 1, need: INTERVALS_MIN }));
}

#[test]
fn requests_that_come_evenly_speak_against_waves_of_failures() {
    let herd = scene(7, Jitter::None, 1.0, 4);
    let agreed = report(&herd, 140.0).agreement.expect("failures were fitted");
    assert!(agreed > 100.0, "a herd's requests come in its waves: {agreed}");
    // A dependency that fails every other two seconds, under requests that are simply many.
    let flapping = Scene {
        intervals: herd
            .intervals
            .iter()
            .map(|interval| {
                let since = interval.to.seconds() - 100.0;
                let up = if (0.0..30.0).contains(&since) { 40.0 } else { 10.0 };
                let fails = up > 10.0 && since % 4.0 < 2.0;
                let errors = if fails { 30.0 } else { 0.0 };
                Interval { requests: up, errors, ..*interval }
            })
            .collect(),
        ..scene(7, Jitter::None, 1.0, 4)
    };
    let found = report(&flapping, 140.0);
    let disagreed = found.agreement.expect("failures were fitted");
    assert!(disagreed < -20.0, "{disagreed} {:?}", found.lockstep.waits);
}

#[test]
fn the_same_intervals_are_fitted_once() {
    let herd = scene(7, Jitter::None, 5.0, 4);
    let first = report(&herd, 170.0);
    let marked = FitReport { evaluations: usize::MAX, ..first };
    let input = |until: f64| FitInput {
        intervals: &herd.intervals,
        shares: &herd.shares,
        background_rate: 40.0,
        error_floor_rate: 0.0,
        dispersion: 1.0,
        error_dispersion: 1.0,
        onset: [marked.lockstep.onset, Timestamp::from_seconds(101.0)],
        now: Timestamp::from_seconds(until),
        lists: &[],
    };
    let again = refit(&input(170.0), None).expect("enough intervals");
    let kept = FitReport { evaluations: usize::MAX, ..again };
    let second = refit(&input(170.0), Some(kept.clone())).expect("enough intervals");
    assert_eq!(second.evaluations, usize::MAX, "the same intervals are not fitted again");
    let earlier = refit(&input(130.0), Some(kept)).expect("enough intervals");
    assert_ne!(earlier.evaluations, usize::MAX, "other intervals are fitted anew");
}

/// Traffic that has doubled is a level, whatever trains are laid over it, and be the counts large.
#[test]
fn a_level_is_fitted_as_well_as_by_any_train() {
    let mut draws = Draws(5);
    let (scrape, rate) = (60.0, 20.0);
    let intervals: Vec<Interval> = (-5..14)
        .map(|number| {
            let from = scrape * f64::from(number);
            let mean: f64 = scrape * if number < 0 { rate } else { 2.0 * rate };
            // Irwin and Hall: twelve uniform numbers have a variance of one.
            let normal = (0..12).map(|_| draws.uniform()).sum::<f64>() - 6.0;
            Interval {
                target: TargetId(0),
                from: Timestamp::from_seconds(1e6 + from),
                to: Timestamp::from_seconds(1e6 + from + scrape),
                requests: (mean + normal * (3.0 * mean).sqrt()).round(),
                errors: 0.0,
            }
        })
        .collect();
    let report = fit(&FitInput {
        intervals: &intervals,
        shares: &[1.0],
        background_rate: rate,
        error_floor_rate: 0.0,
        dispersion: 3.0,
        error_dispersion: 1.0,
        onset: [Timestamp::from_seconds(1e6), Timestamp::from_seconds(1e6 + scrape)],
        now: Timestamp::from_seconds(2e6),
        lists: &[],
    })
    .unwrap();
    let deviance = |family| report.family(family).unwrap().deviance;
    let level = deviance(Family::Level);
    assert!(level < 1.5 * intervals.len() as f64, "{level}");
    assert!(level < deviance(Family::Flat) + 1.0, "{:#?}", report.families);
    assert!(report.gain < 12.0, "{:#?}", report.families);
}

/// Half of the traffic is of callers whose clients do nothing wrong: the herd is told by where the
/// failures are.
#[test]
fn a_herd_of_some_targets_only_is_named_as_well() {
    let herd = scene(11, Jitter::None, 1.0, 4);
    let mut intervals = herd.intervals.clone();
    // As many other targets, as busy as those and with none of the failures.
    intervals.extend(herd.intervals.iter().map(|one| Interval {
        target: TargetId(one.target.0 + 4),
        requests: one.requests - one.errors,
        errors: 0.0,
        ..*one
    }));
    let found = fit(&FitInput {
        intervals: &intervals,
        shares: &[0.125; 8],
        background_rate: 80.0,
        error_floor_rate: 0.0,
        dispersion: 1.0,
        error_dispersion: 1.0,
        onset: [Timestamp::from_seconds(herd.onset), Timestamp::from_seconds(herd.onset + 0.5)],
        now: Timestamp::from_seconds(125.0),
        lists: &[],
    })
    .expect("enough intervals");
    let Waits::Exponential { base_seconds, factor, .. } = found.lockstep.waits else {
        panic!("{:?}", found.lockstep.waits)
    };
    assert!((base_seconds - 1.0).abs() < 0.05 && (factor - 2.0).abs() < 0.05, "{found:#?}");
    assert!(found.goodness < 1.5, "{}", found.goodness);
}

#[test]
fn the_plainest_heights_name_the_schedule() {
    // Scrapes of 30 s merge the first waves; trains of 1 s fit if half of the herd vanishes at once.
    for seed in [1, 2, 4] {
        let waits: Vec<f64> = (0..7).map(|n| 0.5 * f64::powi(2.0, n)).collect();
        let found = report(&scene_of(seed, Jitter::None, 30.0, 20, &waits), 178.0);
        let Waits::Exponential { base_seconds, factor, .. } = found.told.waits else {
            panic!("{:?}", found.told.waits);
        };
        assert!((base_seconds / 0.5 - 1.0).abs() < 0.1, "seed {seed}: {:?}", found.told.waits);
        assert!((factor / 2.0 - 1.0).abs() < 0.1, "seed {seed}: {:?}", found.told.waits);
        assert!(found.lockstep.waves_resolved >= 2, "seed {seed}: {:?}", found.lockstep);
    }
}
