//! The rule files against the rest of squall: every selector of a preset is one that a watch takes,
//! and rules of the user's own join without putting the daemon at risk.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use squall::rules::Rules;
use squall::series::selector::Selector;
use tempfile::TempDir;

use crate::support::http::{get, request};
use crate::support::process::{Program, free_port, squall, wait_until};

#[test]
fn every_selector_of_every_preset_is_a_plain_counter_selector() {
    let mut faults = Vec::new();
    for preset in Rules::builtin().presets() {
        let selectors = [Some(&preset.requests), preset.errors.as_ref(), preset.calls.as_ref()];
        let selectors = selectors.into_iter().flatten().chain([&preset.probe]);
        for text in selectors.chain(&preset.retries).chain(&preset.breakers) {
            match text.parse::<Selector>() {
                Ok(selector) if selector.name().is_some() => {}
                Ok(_) => faults.push(format!("{}: `{text}` names no metric", preset.id)),
                Err(fault) => faults.push(format!("{}: `{text}`: {fault}", preset.id)),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The ids of the schedules that a daemon knows.
fn known(port: u16) -> Vec<String> {
    let answer = get(port, "/api/v1/schedules").map(|answer| answer.body).unwrap_or_default();
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    let all = answer["data"]["schedules"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|it| it["id"].as_str()).map(str::to_owned).collect()
}

#[test]
fn a_bad_rule_never_stops_the_daemon_and_the_old_rules_stay() {
    let folder = TempDir::new().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a writable folder");
    };
    write(
        "squall.yml",
        "rules:\n  - {id: inline-client, name: Ours, policy: {family: fixed, base: 3s}}\n",
    );
    write("own.yaml", "id: own-client\nname: Ours\npolicy: {family: fixed, base: 250ms}\n");
    let port = free_port();
    let mut command = squall();
    command
        .current_dir(folder.path())
        .args(["run", "--rules.path=own.yaml"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder.path(), &mut command);
    wait_until("the daemon knows its rules", Duration::from_secs(60), || {
        known(port).iter().any(|id| id == "own-client")
    });
    let before = known(port);
    assert!(before.iter().any(|id| id == "inline-client"), "{before:?}");

    // Two faults in one file and one in the other: all of them are told, and nothing changes.
    write("own.yaml", "id: own-client\nname: Ours\npolicy: {family: fixed, base: soon}\nodd: 1\n");
    let refused = request("POST", port, "/-/reload", "").expect("an answer");
    assert_eq!(refused.status, 500);
    for wanted in ["own.yaml: line 3: policy.base", "own.yaml: line 4: odd"] {
        assert!(refused.body.contains(wanted), "no `{wanted}` in {}", refused.body);
    }
    assert_eq!(known(port), before);
    assert!(daemon.output().contains("the old one stays"), "{}", daemon.output());
    let metrics = get(port, "/metrics").expect("metrics").body;
    assert!(metrics.contains("squall_config_last_reload_successful 0"), "{metrics}");
    assert!(!daemon.has_ended());

    // A good rule again: it takes the place of the old one, and a new one joins.
    write(
        "own.yaml",
        "- {id: own-client, name: Ours, policy: {family: fixed, base: 500ms}}\n\
         - {id: other-client, name: Theirs, policy: {family: fixed, base: 1s}}\n",
    );
    let taken = request("POST", port, "/-/reload", "").expect("an answer");
    assert_eq!(taken.status, 200, "{}", taken.body);
    let after = known(port);
    assert_eq!(after.len(), before.len() + 1);
    assert!(after.iter().any(|id| id == "other-client"), "{after:?}");
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn every_fault_of_a_rule_file_is_told_at_once_with_its_line() {
    let faulty = "tests/config/bad-own-rules/faulty.yaml";
    let check = squall().args(["check", faulty]).output().expect("squall runs");
    let says = String::from_utf8_lossy(&check.stderr);
    assert_eq!(check.status.code(), Some(2), "{says}");
    for wanted in [":3: [0].requests: must be a plain counter", ":7: [1].policy.cap: must not"] {
        assert!(says.contains(&format!("{faulty}{wanted}")), "no `{wanted}` in {says}");
    }
    // A rule of the user's matches beside those that come with squall, from its five lines.
    let folder = TempDir::new().expect("a temporary folder");
    let own = folder.path().join("own.yaml");
    fs::write(
        &own,
        "id: own\nname: Ours\npolicy:\n  {family: exponential, base: 70ms,\n  factor: 7}\n",
    )
    .expect("a writable folder");
    let matched = squall()
        .args(["rules", "match", "--waits=0.07,0.49,3.43"])
        .arg(format!("--rules.path={}", own.display()))
        .output()
        .expect("squall runs");
    let says = String::from_utf8_lossy(&matched.stdout);
    assert!(says.contains("waits like Ours"), "{says}");
}
