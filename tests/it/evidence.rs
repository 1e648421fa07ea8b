//! Every statistic is heard: taking one away fails a test that names it.

use squall::classify::Class;
use squall::detect::Test;
use squall::incident::Incident;
use squall::rules::Rules;
use squall::sim::corpus::{CaseKind, Sampling, draw_case};
use squall::sim::scenario::Scenario;
use squall::sim::{builtin, run};

use crate::support::replay::{pages, replay};

/// The incidents of a built-in scenario, without the scrapes of some seconds.
fn incidents(name: &str, hole: Option<[f64; 2]>) -> Vec<Incident> {
    let text = builtin::find(name).expect("a built-in scenario");
    let scenario = Scenario::parse(name, text, &Rules::builtin()).expect("a faultless scenario");
    let mut series = run(&scenario, 1).series;
    if let Some([from, to]) = hole {
        for one in &mut series {
            one.samples.retain(|sample| {
                let at = sample.at.seconds() - scenario.start_unix_seconds;
                !(from..to).contains(&at)
            });
        }
    }
    replay(&series, scenario.scrape.interval_seconds)
}

/// What one statistic says in some incident of a scenario.
fn says(name: &str, hole: Option<[f64; 2]>, test: Test) -> bool {
    let found = incidents(name, hole);
    found
        .iter()
        .flat_map(|incident| &incident.verdict.evidence)
        .find(|evidence| evidence.test == test)
        .unwrap_or_else(|| panic!("`{}` says nothing about {name}", test.as_str()))
        .supports
}

#[test]
fn every_statistic_speaks_where_it_has_something_to_say() {
    // Who says what where; a herd that ends with its trigger outlives nothing to speak of.
    for (test, name, hole, supports) in [
        (Test::ErrorOnset, "herd-none", None, true),
        (Test::LevelShift, "herd-none", None, true),
        (Test::Amplification, "herd-none", None, true),
        (Test::ScheduleFit, "herd-none", None, true),
        (Test::Jitter, "herd-none", None, true),
        (Test::Resolution, "herd-none", None, true),
        (Test::WarpedSpectrum, "herd-none", None, true),
        (Test::Periodogram, "fixed-10s", None, true),
        (Test::LagComb, "fixed-10s", None, true),
        (Test::WallClock, "fixed-10s", None, true),
        (Test::OutlivedTrigger, "herd-none", None, false),
        (Test::DataQuality, "fixed-10s", Some([200.0, 215.0]), false),
    ] {
        assert_eq!(says(name, hole, test), supports, "{} on {name}", test.as_str());
    }
    assert_eq!(Test::ALL.len(), 12, "a statistic was added: say here where it speaks");
}

/// A dependency at its limit fails the middle of each wave: with equal jitter its failures come in
/// waves as narrow as a herd's, and only all requests say how wide they really are.
#[test]
fn jitter_is_measured_on_all_requests_where_only_the_middle_of_each_wave_fails() {
    let fine = Sampling { interval_seconds: 1.0, targets: 4 };
    for seed in [201, 202] {
        let case = draw_case(CaseKind::Equal, fine, seed);
        let found = replay(&case.samples, fine.interval_seconds);
        assert_eq!(found.len(), 1, "seed {seed}: {found:#?}");
        let verdict = &found[0].verdict;
        assert_eq!(verdict.class, Class::PartialJitter, "seed {seed}: {}", verdict.summary);
        assert!(!pages(&found[0]), "seed {seed}");
        let jitter = verdict.evidence.iter().filter(|evidence| evidence.test == Test::Jitter);
        assert!(jitter.clone().any(|it| it.says.contains("wider waves")), "{jitter:#?}");
    }
}
