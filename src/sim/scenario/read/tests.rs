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
            "line 9: clients[0].calls: needs one of `rate`, `rates`, `size` or `inner: true`",
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
