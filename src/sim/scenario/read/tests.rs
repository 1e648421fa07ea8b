//! Scenario files: what is read, and every fault of what is not.

use super::super::super::policy::{Jitter, RetryPolicy};
use super::super::{Calls, Scenario};
use crate::rules::Rules;

fn faults_of(text: &str) -> Vec<String> {
    match Scenario::parse("case", text, &Rules::builtin()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_scenario_of_the_header_reads_as_it_says() {
    let header = include_str!("../read.rs");
    let text: String = header
        .lines()
        .skip_while(|line| !line.contains("```yaml"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .map(|line| format!("{}\n", line.strip_prefix("//! ").unwrap_or_default()))
        .collect();
    let scenario = Scenario::parse("herd", &text, &Rules::default()).expect("no fault");
    assert_eq!(scenario.duration_seconds.to_bits(), 300.0_f64.to_bits());
    let herd = &scenario.clients[1];
    assert_eq!(herd.retry, RetryPolicy::exponential(1.0, 2.0, 32.0, 7, Jitter::None));
    assert!(matches!(herd.calls, Calls::Burst { size: 2_000, .. }));
    assert_eq!(scenario.dependencies[0].faults.len(), 1);
}

#[test]
fn every_fault_is_told_at_once_with_its_line_and_path() {
    let text = "about: x\n\
                duration: 5 parsecs\n\
                dependencies:\n\
                - name: payments\n  \
                  capacity: -3\n  \
                  faults: [{at: 1s, for: 2s, hits: [nobody]}]\n\
                clients:\n\
                - name: herd\n  \
                  calls: payment\n  \
                  size: 10\n  \
                  rate: 3\n  \
                  retry: {schedule: exponential, jiter: full}\n";
    assert_eq!(
        faults_of(text),
        [
            "line 2: duration: must be a duration such as 200ms, 1.5s or 1m30s, got `5 parsecs`",
            "line 5: dependencies[0].capacity: must be at least 0.000001",
            "line 6: dependencies[0].faults[0].hits: no population is called `nobody`",
            "line 9: clients[0].calls: no such name: `payment`; known: payments",
            "line 9: clients[0].calls: needs one of `rate`, `rates`, `trace`, `size` or `inner: true`",
            "line 12: clients[0].retry.base: is missing",
            "line 12: clients[0].retry.jiter: unknown key, did you mean `jitter`?",
        ]
    );
}

#[test]
fn a_client_library_is_named_by_its_rule() {
    let text = "about: x\nduration: 10s\ndependencies: [{name: d}]\n\
                clients: [{name: c, calls: d, rate: 1, retry: {rule: aws-sdk-go-v1}}]\n";
    let scenario = Scenario::parse("x", text, &Rules::builtin()).expect("no fault");
    let rule = Rules::builtin().policy("aws-sdk-go-v1").cloned().expect("a known rule");
    assert_eq!(scenario.clients[0].retry, RetryPolicy::library(&rule));
    assert!(!faults_of(&text.replace("aws-sdk-go-v1", "no-such")).is_empty());
}

#[test]
fn keys_that_mean_nothing_where_they_stand_are_told() {
    let of_client = |client: &str| {
        faults_of(&format!(
            "about: x\nduration: 10s\ndependencies: [{{name: d}}]\nclients: [{{name: c, calls: d, {client}}}]\n"
        ))
    };
    for (client, says) in [
        ("rate: 1, at: 120s", "at: means nothing without `size`"),
        ("rate: 1, spread: 0.1", "spread: means nothing without `pause`"),
        ("size: 1, daily: 0.5", "daily: means nothing without `rate`, `rates` or `trace`"),
        ("size: 1, pause: 1s, every: 1s", "every: means nothing with `pause`"),
        ("size: 1, pause: 0s", "pause: must be at least 1ms"),
        ("size: 1, every: 0s", "every: must be at least 1ms"),
        ("rate: 1, timeout: 0s", "timeout: must be at least 1ms"),
        (
            "rate: 1, retry: {schedule: fixed, base: 1s, factor: 2}",
            "retry.factor: means nothing with this schedule",
        ),
        (
            "rate: 1, retry: {rule: aws-sdk-go-v1, jitter: full}",
            "retry.jitter: is part of the rule",
        ),
        (
            "rate: 1, retry: {schedule: fixed, base: 1s, jitter: full, jitter_range: [0, 1]}",
            "retry.jitter: give one of `jitter`, `jitter_range` and `jitter_added`",
        ),
    ] {
        assert_eq!(of_client(client), [format!("line 4: clients[0].{says}")], "{client}");
    }
    assert!(of_client("rate: 1").is_empty());
}

#[test]
fn nothing_may_go_on_for_ever_within_one_instant() {
    let with = |more: &str| {
        faults_of(&format!(
            "about: x\nduration: 10s\nclients: [{{name: c, calls: d, rate: 1}}]\n{more}\n"
        ))
    };
    for (more, says) in [
        (
            "dependencies: [{name: d, latency: 0s}]",
            "line 4: dependencies[0].latency: must be at least 0.1ms",
        ),
        (
            "dependencies: [{name: d, refusal: 0s}]",
            "line 4: dependencies[0].refusal: must be at least 0.1ms",
        ),
        (
            "dependencies: [{name: d}]\nscrape: {restarts: [{at: 1s, every: 0s}]}",
            "line 5: scrape.restarts[0].every: must be at least 1ms",
        ),
        (
            "dependencies: [{name: d}]\nscrape: {flips: 0s}",
            "line 5: scrape.flips: must be at least 1ms",
        ),
        (
            "dependencies: [{name: d}]\nscrape: {interval: 5s, timeout: 6s}",
            "line 5: scrape.timeout: must not be longer than the interval",
        ),
    ] {
        assert_eq!(with(more), [says], "{more}");
    }
    let circle = "about: x\nduration: 10s\n\
                  dependencies:\n- {name: a, calls: ab}\n- {name: b, calls: ba}\n- {name: c, calls: users}\n\
                  clients:\n- {name: ab, calls: b, inner: true}\n- {name: ba, calls: a, inner: true}\n\
                  - {name: users, calls: a, rate: 1, hedge: 1s}\n- {name: lost, calls: a, inner: true}\n";
    assert_eq!(
        faults_of(circle),
        [
            "line 4: dependencies[0].calls: the calls go in a circle and never end",
            "line 5: dependencies[1].calls: the calls go in a circle and never end",
            "line 6: dependencies[2].calls: `users` must be `inner: true`",
            "line 6: dependencies[2].calls: the calls go in a circle and never end",
            "line 10: clients[2].hedge: `a` calls on or is contended and cannot be hedged",
            "line 11: clients[3].inner: no dependency `calls` it",
        ]
    );
}

#[test]
fn a_trace_is_read_from_the_file_it_names() {
    let text = "about: x\nduration: 10s\ndependencies: [{name: d}]\n\
                clients:\n- {name: c, calls: d, trace: calls.csv}\n";
    let read = |content: &'static str| {
        Scenario::parse_with("x", text, &Rules::default(), &move |file| {
            assert_eq!(file, "calls.csv");
            Ok(content.to_owned())
        })
    };
    let instants = read("0.5\n7\n").expect("no fault");
    assert_eq!(instants.clients[0].calls, Calls::Trace([0.5, 7.0].into()));
    let rates = read("0,5\n7,10\n").expect("no fault");
    let Calls::Stream { profile, .. } = &rates.clients[0].calls else { panic!("{rates:?}") };
    assert_eq!(*profile, [(0.0, 5.0), (7.0, 10.0)]);
    let faults: Vec<String> =
        read("x").expect_err("a fault").iter().map(ToString::to_string).collect();
    let says = "line 5: clients[0].trace: `calls.csv`: line 1 must be an instant in seconds, or an \
                instant and a rate, got `x`";
    assert_eq!(faults, [says]);
    let nowhere = "line 5: clients[0].trace: `calls.csv`: cannot be read: no other file can be read \
                   from here";
    assert_eq!(faults_of(text), [nowhere]);
}
