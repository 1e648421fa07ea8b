//! Which rules are named, and which are told to be alike.

use super::*;
use crate::classify::{Class, Finding, Impact, Ripeness, Severity, Verdict};
use crate::detect::schedule_fit::Channel;
use crate::series::Timestamp;

fn fitted(family: ScheduleFamily, waits: &[f64], base: f64, factor: f64) -> Schedule {
    Schedule {
        family,
        base_seconds: base,
        factor,
        cap_seconds: None,
        attempt_latency_seconds: 0.02,
        waits_seconds: waits.to_vec(),
        jitter: JitterKind::None,
        jitter_fraction: 0.01,
        intervals: vec![
            ("base_seconds", [base * 0.99, base * 1.01]),
            ("factor", [factor * 0.99, factor * 1.01]),
        ],
    }
}

fn ids(matches: &[RuleMatch]) -> Vec<&str> {
    matches.iter().map(|found| found.rule.as_str()).collect()
}

#[test]
fn every_timed_rule_without_jitter_finds_itself_and_only_its_ties() {
    let rules = Rules::builtin();
    let mut sizes = Vec::new();
    let mut lost = Vec::new();
    for rule in rules.schedules() {
        if !rule.policy.is_timed() || !rule.policy.is_synchronised() {
            continue;
        }
        let waits: Vec<f64> = rule.policy.waits(8).into_iter().filter(|wait| *wait > 0.0).collect();
        let cap = rule.policy.cap_seconds;
        let mut schedule = fitted(ScheduleFamily::List, &waits, waits[0], 1.0);
        schedule.cap_seconds = cap;
        let matches = match_schedule(&schedule, &Seen::default(), &rules);
        let Some(own) = matches.iter().find(|found| found.rule == rule.id) else {
            lost.push(rule.id.clone());
            continue;
        };
        assert!(own.distance <= matches[0].distance + 1e-9, "{} is not among the first", rule.id);
        let ties = matches.iter().filter(|found| found.distance <= own.distance + TIE).count();
        sizes.push(matches.len().saturating_sub(ties));
    }
    assert!(lost.is_empty(), "not matched by their own waits: {lost:?}");
    sizes.sort_unstable();
    assert!(sizes[sizes.len() / 2] <= 2, "median surplus {}", sizes[sizes.len() / 2]);
}

#[test]
fn one_two_four_eight_is_a_tie_that_takes_in_the_kernel() {
    let waits = [1.0, 2.0, 4.0, 8.0];
    let schedule = fitted(ScheduleFamily::Exponential, &waits, 1.0, 2.0);
    let rules = Rules::builtin();
    let matches = match_schedule(&schedule, &Seen::default(), &rules);
    let found = ids(&matches);
    for wanted in ["hashicorp-go-retryablehttp", "node-retry", "linux-tcp-syn", "curl-retry"] {
        assert!(found.contains(&wanted), "{wanted} is missing in {found:?}");
    }
    // Gives up after three retries, or two.
    assert!(!found.contains(&"tanstack-query") && !found.contains(&"terraform-http-backend"));
    assert!(says(&matches).contains("cannot be told apart from"), "{}", says(&matches));
}

#[test]
fn the_cap_tells_apart_what_the_first_waits_do_not() {
    let waits = [1.0, 2.0, 4.0, 8.0, 10.0, 10.0];
    let mut schedule = fitted(ScheduleFamily::Capped, &waits, 1.0, 2.0);
    schedule.cap_seconds = Some(10.0);
    schedule.intervals.push(("cap_seconds", [9.9, 10.1]));
    let found = match_schedule(&schedule, &Seen::default(), &Rules::builtin());
    assert_eq!(ids(&found)[0], "kube-scheduler-backoffq");
    assert!(!ids(&found).contains(&"linux-tcp-syn"));
}

#[test]
fn remote_write_is_named_though_its_short_waits_are_unseen() {
    let rules = Rules::builtin();
    // At one second the waits below a second melt into the first wave.
    let schedule = fitted(ScheduleFamily::Capped, &[0.96, 1.92, 3.84, 5.0, 5.0], 0.96, 2.0);
    let seen = Seen { resolvable_gap_seconds: 1.0, ..Seen::default() };
    let found = match_schedule(&schedule, &seen, &rules);
    assert!(ids(&found).contains(&"prometheus-remote-write"), "{found:?}");
    // Only the beat at its cap is left.
    let beat = fitted(ScheduleFamily::Fixed, &[5.0; 6], 5.0, 1.0);
    let found = match_schedule(&beat, &seen, &rules);
    let found = ids(&found);
    assert!(found.contains(&"prometheus-remote-write") && found.contains(&"rabbitmq-java"));
    assert!(found.contains(&"server-retry-after"));
    let place = |id: &str| found.iter().position(|other| *other == id);
    assert!(place("rabbitmq-java") < place("prometheus-remote-write"));
}

#[test]
fn jitter_excludes_the_rules_without_and_the_other_way_round() {
    let rules = Rules::builtin();
    let mut schedule = fitted(ScheduleFamily::Exponential, &[0.5, 0.75, 1.125, 1.69], 0.5, 1.5);
    schedule.intervals[0] = ("base_seconds", [0.45, 0.55]);
    let found = match_schedule(&schedule, &Seen::default(), &rules);
    assert!(!ids(&found).contains(&"cenkalti-backoff"), "{found:?}");
    schedule.jitter = JitterKind::Proportional;
    schedule.jitter_fraction = 0.39;
    let found = match_schedule(&schedule, &Seen::default(), &rules);
    assert!(ids(&found).contains(&"cenkalti-backoff"), "{found:?}");
    assert!(!ids(&found).contains(&"resilience4j-exponential"), "{found:?}");
}

#[test]
fn an_attempt_limit_that_was_seen_ranks_its_rule_first() {
    let schedule = fitted(ScheduleFamily::Exponential, &[1.0, 2.0, 4.0], 1.0, 2.0);
    let seen = Seen { gave_up_after: Some(3), ..Seen::default() };
    let found = match_schedule(&schedule, &seen, &Rules::builtin());
    let place = |id: &str| ids(&found).iter().position(|other| *other == id);
    assert!(place("tanstack-query") < place("temporal-activity-retry"), "{found:?}");
    assert!(place("backon") < place("curl-retry"), "{found:?}");
}

#[test]
fn typed_waits_find_their_library() {
    let rules = Rules::builtin();
    for (waits, wanted) in [
        (vec![0.3, 0.6, 1.2], "aws-sdk-ruby-legacy"),
        (vec![0.0, 0.5, 0.5, 1.0, 1.5, 2.5], "fluent-logger-golang"),
        (vec![10.0, 60.0], "npm-cli-fetch"),
        (vec![0.1, 0.5, 1.5], "gaxios"),
        (vec![0.05, 0.06, 0.08, 0.15, 0.28, 0.58], "elasticsearch-bulkprocessor"),
    ] {
        let found = match_waits(&waits, &rules);
        assert_eq!(found.first().map(|f| f.rule.as_str()), Some(wanted), "{waits:?}");
    }
    assert!(match_waits(&[0.123, 7.7, 0.4], &rules).is_empty());
    assert!(match_waits(&[], &rules).is_empty());
}

#[test]
fn a_users_rule_is_found_like_any_other() {
    let own = "id: checkout\nname: Checkout\npolicy: {family: list, waits: [250ms, 700ms, 3s]}\n";
    let rules = Rules::builtin().with_files([("own.yaml", own)]).unwrap();
    assert_eq!(ids(&match_waits(&[0.25, 0.7, 3.0], &rules)), ["checkout"]);
}

#[test]
fn waves_of_nobody_behind_the_last_do_not_exclude_a_client_that_gave_up() {
    // Two retries, and a fit that went on for as long as the failures did.
    let schedule = fitted(ScheduleFamily::Exponential, &[1.0, 2.0, 4.0, 8.0], 1.0, 2.0);
    let wave = |requests: f64| Wave {
        expected_at: Timestamp::default(),
        requests,
        counts: Channel::Requests,
    };
    let waves = [2000.0, 1990.0, 1980.0, 12.0, 3.0].map(wave);
    let rules = Rules::builtin();
    let own =
        "id: two\nname: Two\npolicy: {family: exponential, base: 1s, factor: 2, attempts: 3}\n";
    let rules = rules.with_files([("own.yaml", own)]).unwrap();
    let found = match_schedule(&schedule, &Seen::default(), &rules);
    assert!(!ids(&found).contains(&"two"));
    let told = of_substance(&schedule, &waves);
    assert_eq!(told.waits_seconds, [1.0, 2.0]);
    let found = match_schedule(&told, &Seen::default(), &rules);
    assert!(ids(&found).contains(&"two"), "{found:?}");
    // A herd that shrinks as it is served keeps its waves.
    let served = [2000.0, 1500.0, 900.0, 400.0, 150.0].map(wave);
    assert_eq!(of_substance(&schedule, &served), schedule);
}

#[test]
fn a_wait_is_known_no_better_than_the_sampling_lets_it() {
    // 1, 2, 4, 8, 16 s at 15 s scrapes of 20 targets, fitted from its second wave on, with intervals
    // that are far too sure.
    let mut schedule = fitted(ScheduleFamily::Capped, &[2.0, 4.0, 8.0, 15.0], 2.0, 2.0);
    schedule.cap_seconds = Some(15.0);
    schedule.intervals = vec![
        ("base_seconds", [1.9995, 2.0005]),
        ("factor", [1.9995, 2.0005]),
        ("cap_seconds", [14.997, 15.003]),
    ];
    let rules = Rules::builtin();
    let sharp = match_schedule(&schedule, &Seen::default(), &rules);
    assert!(!ids(&sharp).contains(&"curl-retry"), "{sharp:?}");
    let seen = Seen { resolvable_gap_seconds: 1.8, ..Seen::default() };
    let found = match_schedule(&schedule, &seen, &rules);
    assert!(ids(&found).contains(&"curl-retry"), "{found:?}");
    // What is off by more than the sampling explains stays out.
    assert!(!ids(&found).contains(&"kube-scheduler-backoffq"), "{found:?}");
}

#[test]
fn a_storm_is_named_by_what_its_clients_lose() {
    let rules = Rules::builtin();
    let waits = |id: &str| rules.policy(id).expect("a rule").timed_waits(FOLLOWED_MAX);
    let known = |id: &str, loss: f64| KnownWaits { waits_seconds: waits(id), loss };
    let losses = [
        known("kube-scheduler-backoffq", 1.0),
        known("undici-retry", 8.0),
        known("wget-waitretry", 30.0),
    ];
    let found = match_storm(None, &losses, &Seen::default(), &rules);
    let names: Vec<&str> = found.iter().map(|found| found.rule.as_str()).collect();
    assert_eq!(names, ["kube-scheduler-backoffq", "undici-retry"]);
    // Behind by more than chance, so no tie.
    assert!(found[0].distance.abs() < 1e-12 && found[1].distance > TIE);
    // Waits that were told say nothing against what the counts say.
    let told = fitted(ScheduleFamily::List, &[1.0, 2.0, 3.0], 1.0, 1.0);
    let again = match_storm(Some(&told), &losses, &Seen::default(), &rules);
    assert!(again.iter().all(|found| found.rule != "wget-waitretry"), "{again:?}");
}

#[test]
fn clients_are_told_from_a_common_start_and_not_from_echoes() {
    let named = |class: Class, schedule: bool, waves: bool| {
        let told = fitted(ScheduleFamily::Exponential, &[1.0, 2.0, 4.0], 1.0, 2.0);
        let wave =
            Wave { expected_at: Timestamp::default(), requests: 100.0, counts: Channel::Errors };
        let verdict = Verdict {
            class,
            severity: Severity::Critical,
            started_at: Timestamp::default(),
            confidence: 0.9,
            summary: String::new(),
            schedule: schedule.then_some(told),
            waves: waves.then_some(wave).into_iter().collect(),
            next_wave_at: None,
            impact: Impact::default(),
            evidence: Vec::new(),
            matches: Vec::new(),
            advice: Vec::new(),
        };
        Finding::Storm { verdict: Box::new(verdict), ripeness: Ripeness::Clear }.may_be_named()
    };
    assert!(named(Class::BackoffWithoutJitter, true, true));
    assert!(named(Class::Inconclusive, false, false));
    // A schedule without waves was heard in the autocorrelation.
    assert!(!named(Class::BackoffWithoutJitter, true, false));
    assert!(!named(Class::RetryStormWithoutBackoff, false, false));
    assert!(!named(Class::JitteredBackoff, false, false));
    assert!(!Finding::Undecided.may_be_named());
}

#[test]
fn a_level_is_held_by_those_whose_waits_cannot_be_seen() {
    let rules = Rules::builtin();
    let seen = Seen { resolvable_gap_seconds: 1.2, level: Some(40.0), ..Seen::default() };
    let found = match_storm(None, &[], &seen, &rules);
    let has = |id: &str| found.iter().any(|found| found.rule == id);
    // Retries at once, every quarter of a second, and every second, for ever.
    assert!(has("laravel-queue") && has("caddy-reverse-proxy") && has("flink-restart-fixed"));
    // Two seconds would be seen, and three attempts are over at once.
    assert!(!has("curl-retry") && !has("spring-boot-rabbit-template"), "{found:?}");
    // Those that wait least hold it most evenly.
    assert!(rules.policy(&found[0].rule).expect("a rule").is_synchronised());
    assert!(found[0].distance < 1e-12, "{found:?}");
    // Half as much again as the gap is too close to stand out of a level, while those are few.
    let finer = match_storm(None, &[], &Seen { resolvable_gap_seconds: 0.74, ..seen }, &rules);
    assert!(finer.iter().any(|found| found.rule == "flink-restart-fixed"), "{finer:?}");
    assert!(finer.iter().all(|found| found.rule != "curl-retry"), "{finer:?}");
    // Where nothing can be seen, anybody could have done it: that names nobody.
    let blind = Seen { resolvable_gap_seconds: 90.0, ..seen };
    assert_eq!(match_storm(None, &[], &blind, &rules), Vec::new());
    // Waves are no level.
    let none = match_storm(None, &[], &Seen { level: None, ..seen }, &rules);
    assert_eq!(none, Vec::new());
}

#[test]
fn a_failure_twice_as_high_as_the_wave_after_it_says_that_clients_tried_at_once() {
    let at = |second: f64, requests: f64| Wave {
        expected_at: Timestamp::from_seconds(second),
        requests,
        counts: Channel::Errors,
    };
    let waves = |failure: f64| [at(0.0, failure), at(1.0, 500.0), at(3.0, 495.0)];
    assert_eq!(tried_at_once(&waves(1010.0), 0.4), Some(true));
    assert_eq!(tried_at_once(&waves(510.0), 0.4), Some(false));
    // Others failed too, or both waves are in one interval.
    assert_eq!(tried_at_once(&waves(1500.0), 0.4), None);
    assert_eq!(tried_at_once(&waves(1010.0), 4.0), None);
    // Of two that wait alike the one that tries at once is told.
    let rules = Rules::builtin();
    let own = "- {id: at-once, name: A, policy: {family: exponential, base: 1s, factor: 2, \
               immediate_retries: 1}}\n- {id: later, name: B, policy: {family: exponential, base: 1s, \
               factor: 2}}\n";
    let rules = rules.with_files([("own.yaml", own)]).unwrap();
    let known = ["at-once", "later"].map(|id| KnownWaits {
        waits_seconds: rules.policy(id).expect("a rule").timed_waits(FOLLOWED_MAX),
        loss: 0.0,
    });
    let place = |at_once: bool, id: &str| {
        let seen = Seen { immediate_first_retry: Some(at_once), ..Seen::default() };
        let found = match_storm(None, &known, &seen, &rules);
        found.iter().find(|found| found.rule == id).expect("a match").distance
    };
    assert!(place(true, "at-once") < TIE && place(true, "later") > TIE);
    assert!(place(false, "later") < TIE && place(false, "at-once") > TIE);
}
