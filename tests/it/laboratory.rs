//! The simulator as a sceptic uses it: the same bytes everywhere, text that Prometheus takes, and
//! built-in scenarios of which the whole pipeline says what their `expect` says.

use std::process::Command;

use squall::classify::Class;
use squall::incident::Incident;
use squall::rules::Rules;
use squall::sim::random::hash;
use squall::sim::scenario::Scenario;
use squall::sim::{Run, builtin, openmetrics, run};

use crate::support::process::squall;
use crate::support::replay::{pages, replay};

fn built_in(name: &str) -> Scenario {
    let text = builtin::find(name).expect("a built-in scenario");
    Scenario::parse(name, text, &Rules::builtin()).expect("a faultless scenario")
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_machine() {
    // Recorded on x86-64 Linux; aarch64 gives the same. Another machine, or a later version, must, too.
    for (name, recorded) in [
        ("herd-none", 0x7ddb_334f_8551_3236),
        ("case-l39-autoscaler", 0xc9ef_d0e5_46ad_a0bf),
        ("metastable", 0x686c_7426_5338_ea0c),
    ] {
        let text = openmetrics::write(&run(&built_in(name), 1).series);
        assert_eq!(hash(&text, 0), recorded, "{name} gives {:#x}", hash(&text, 0));
    }
}

#[test]
fn promtool_makes_blocks_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["herd-none", "counter-resets", "deploy", "layers"] {
        let file = folder.path().join("storm.om");
        let text = openmetrics::write(&run(&built_in(name), 1).series);
        std::fs::write(&file, text).expect("a file");
        let blocks = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&file, &folder.path().join(name)])
            .output()
            .expect("promtool, of the Debian package prometheus, is needed");
        let said = String::from_utf8_lossy(&blocks.stderr).into_owned();
        assert!(blocks.status.success(), "{name}: {said}");
        let made = std::fs::read_dir(folder.path().join(name)).expect("blocks").count();
        assert!(made > 0, "{name}: {said}");
    }
}

/// Checks the answer of the whole pipeline against the scenario's own `expect`, and gives it.
fn check(name: &str) -> Vec<Incident> {
    let scenario = built_in(name);
    let Run { series, .. } = run(&scenario, 1);
    let incidents = replay(&series, scenario.scrape.interval_seconds);
    let said: Vec<String> = incidents
        .iter()
        .map(|incident| {
            let at = incident.verdict.started_at.seconds() - scenario.start_unix_seconds;
            format!("{}@{at:.1}s", incident.verdict.class.as_str())
        })
        .collect();
    let expect = &scenario.expect;
    if said.is_empty() {
        assert!(expect.silence, "{name}: nothing said, expected {:?}", expect.accept);
    }
    for incident in &incidents {
        let class = incident.verdict.class.as_str();
        let quiet = expect.silence && class == "inconclusive" && !pages(incident);
        let right = expect.accept.iter().any(|accepted| accepted == class);
        assert!(right || quiet, "{name}: said {said:?}, expected {:?}", expect.accept);
        if let Some(onset) = expect.onset_seconds.filter(|_| pages(incident)) {
            let late = incident.verdict.started_at.seconds() - scenario.start_unix_seconds - onset;
            let allowed = (2.0 * scenario.scrape.interval_seconds).max(10.0);
            assert!(late.abs() <= allowed, "{name}: {said:?}, the onset is at {onset} s");
        }
    }
    let mut paged: Vec<_> =
        incidents.iter().filter(|it| pages(it)).map(|it| &it.dependency).collect();
    let pages = paged.len();
    paged.sort();
    paged.dedup();
    assert_eq!(paged.len(), pages, "{name}: one page for each dependency, {said:?}");
    incidents
}

/// Checks it, and that the class named first is said, and not only one that will do.
fn check_named(name: &str) {
    let incidents = check(name);
    let accept = built_in(name).expect.accept;
    let class = accept.first().expect("a class");
    let said: Vec<&str> = incidents.iter().map(|it| it.verdict.class.as_str()).collect();
    assert!(said.contains(&class.as_str()), "{name}: said {said:?}, and not {class}");
}

#[test]
fn the_four_ways_to_wait_are_told_apart() {
    for name in ["herd-none", "herd-equal", "herd-full", "herd-decorrelated"] {
        check(name);
    }
}

#[test]
fn fixed_delays_and_floods_are_told_apart() {
    for name in ["fixed-10s", "immediate-flood", "metastable", "proportional-10"] {
        check(name);
    }
}

#[test]
fn look_alikes_page_nobody() {
    let rules = Rules::builtin();
    let silent: Vec<&str> = builtin::BUILTIN
        .iter()
        .filter(|(name, text)| {
            let scenario = Scenario::parse(name, text, &rules).expect("a faultless scenario");
            scenario.expect.accept.is_empty()
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(silent.len() >= 34, "{silent:?}");
    for name in silent {
        check(name);
    }
}

#[test]
fn real_cases_with_waves_are_named() {
    for name in ["case-s12-retry-after-5s", "case-s14-added-jitter", "syn-retransmission"] {
        check(name);
    }
}

#[test]
fn real_cases_of_floods_are_named() {
    for name in ["case-f02-hot-loader", "case-f20-instant-retries", "case-f22-sync-loop"] {
        check_named(name);
    }
}

#[test]
fn real_cases_of_floods_of_many_clients_are_named() {
    for name in ["case-f21-poll-until-answered", "case-f30-devices"] {
        check_named(name);
    }
}

#[test]
fn a_flood_of_three_layers_is_named_in_each() {
    check_named("layers");
}

#[test]
fn a_schedule_whose_waits_grow_to_minutes_is_named() {
    check_named("case-s07-jobs-n4");
}

#[test]
fn what_policies_leave_of_a_flood_is_told_as_expected() {
    for name in ["contention", "deadlines", "mixed-libraries", "outage-comb", "retry-budget"] {
        check(name);
    }
}

#[test]
fn real_cases_at_the_edge_of_what_shows_are_told_as_expected() {
    for name in ["case-f01-cascade", "case-f24-conflicts", "case-l25-two-hours"] {
        check(name);
    }
    for name in ["case-l27-one-wide-hump", "case-s11-tabs-3s", "case-s24-contention-factor-2"] {
        check(name);
    }
    check("case-s25-federation-factor-5");
}

#[test]
fn a_fleet_of_sixty_replicas_scraped_each_second_is_told_as_one_of_four() {
    // Ten seconds of these were all that a fit had room for, most of them from before the failure.
    let text = "about: many replicas
duration: 150s
dependencies:
- {name: payments, faults: [{at: 100s, for: 20s}]}
clients:
- {name: others, calls: payments, rate: 100}
- name: herd
  calls: payments
  size: 1000
  at: 100s
  within: 400ms
  retry: {schedule: exponential, base: 1s, factor: 2}
scrape: {interval: 1s, targets: 60}
";
    let scenario = Scenario::parse("replicas", text, &Rules::builtin()).expect("a good scenario");
    let incidents = replay(&run(&scenario, 1).series, 1.0);
    let [incident] = &incidents[..] else { panic!("one incident, not {incidents:?}") };
    assert_eq!(incident.verdict.class, Class::BackoffWithoutJitter, "{}", incident.verdict.summary);
    let schedule = incident.verdict.schedule.as_ref().expect("a schedule");
    let told = [schedule.base_seconds, schedule.factor];
    assert!((told[0] - 1.0).abs() < 0.1 && (told[1] - 2.0).abs() < 0.1, "{told:?}");
}

#[test]
fn samples_that_no_counter_has_are_left_out_aloud() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("odd.om");
    let mut text = "# TYPE http_client_requests counter\n".to_owned();
    for (second, value) in ["1", "2", "NaN", "3", "+Inf", "-4", "5"].into_iter().enumerate() {
        let at = 1_790_000_000 + second;
        text.push_str(&format!("http_client_requests_total{{dependency=\"a\"}} {value} {at}\n"));
    }
    text.push_str("# EOF\n");
    std::fs::write(&file, text).expect("a file");
    let mut analyze = squall();
    analyze.args(["analyze", "--format=json", "--by=dependency"]);
    let told = analyze
        .args(["--requests=http_client_requests_total", &file.display().to_string()])
        .output()
        .expect("squall can be run");
    let says = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{says}");
    assert!(says.contains("3 samples of 1 series are NaN, infinite or negative"), "{says}");
}

#[test]
fn a_burst_too_short_for_any_shape_is_not_called_jittered() {
    // Waits of 50, 150 and 350 ms between scrapes of a second, and an outage that goes on.
    let text = "about: three retries within half a second
duration: 240s
dependencies:
- {name: payments, faults: [{at: 150s, for: 30.55s}]}
clients:
- {name: others, calls: payments, rate: 50}
- {name: herd, calls: payments, size: 2000, at: 150s, within: 100ms, retry: {rule: retry-axios}}
scrape: {interval: 1s, targets: 4}
";
    let scenario = Scenario::parse("burst", text, &Rules::builtin()).expect("a good scenario");
    let incidents = replay(&run(&scenario, 176).series, 1.0);
    let [incident] = &incidents[..] else { panic!("one incident, not {incidents:?}") };
    let verdict = &incident.verdict;
    assert_eq!(verdict.class, Class::Inconclusive, "{}", verdict.summary);
    // Whoever could have made it is told, and this client is among them.
    let matches = &verdict.matches;
    assert!(matches.iter().any(|it| it.rule == "retry-axios"), "{matches:?}");
}
