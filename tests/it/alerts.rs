//! The alerting rules, by the tool that Prometheus itself judges them with.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use squall::telemetry::Metrics;

const RULES: &str = "squall.rules.yml";
const TESTS: &str = "squall.rules.test.yml";

/// Fails, and never skips, where promtool is missing: a rule that nobody checked is no rule.
fn promtool(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("promtool, of the Debian package prometheus, is needed to test the alerting rules")
}

fn expect_success(output: &Output) {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    // A rule file that cannot be read is told with success by some releases.
    assert!(out.contains("SUCCESS"), "{out}\n{err}");
}

#[test]
fn the_alerting_rules_pass_promtool_and_its_lints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/alerts");
    expect_success(&promtool(&folder, &["check", "rules", "--lint=all", "--lint-fatal", RULES]));
}

#[test]
fn the_alerting_rules_fire_and_hold_their_peace_as_their_own_tests_say() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/alerts");
    let version = promtool(&source, &["--version"]);
    let version = [version.stdout, version.stderr].concat();
    let version = String::from_utf8_lossy(&version).into_owned();
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(source.join(RULES), folder.path().join(RULES)).expect("copied");
    let mut tests = fs::read_to_string(source.join(TESTS)).expect("the rules' tests");
    if !version.contains("version 2.") {
        // Releases from 3 on compare floats to the last digit unless told otherwise, and those
        // before do not know the key.
        tests.insert_str(0, "fuzzy_compare: true\n");
    }
    fs::write(folder.path().join(TESTS), tests).expect("written");
    expect_success(&promtool(folder.path(), &["test", "rules", TESTS]));
}

#[test]
fn a_rule_that_is_wrong_fails_the_check() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/alerts");
    let folder = tempfile::tempdir().expect("a folder");
    let broken = fs::read_to_string(source.join(RULES))
        .expect("the rules")
        .replace("squall_source_up == 0", "squall_source_up == ");
    fs::write(folder.path().join(RULES), broken).expect("written");
    assert!(!promtool(folder.path(), &["check", "rules", RULES]).status.success());
}

#[test]
fn every_metric_of_squalls_own_that_the_rules_name_is_exported_under_that_name() {
    let metrics = Metrics::new();
    metrics.source_known("main");
    metrics.source_query("main", Duration::from_millis(30));
    metrics.source_up("main", true);
    metrics.tick(Duration::from_millis(5));
    metrics.poll("main", Duration::from_millis(40));
    metrics.fit(Duration::from_millis(7));
    metrics.incidents_active([("payments", "backoff-without-jitter")]);
    metrics.receiver_known("hook");
    metrics.outbox([]);
    metrics.invariant_violation("counts_are_finite");
    let exported = metrics.encode();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/alerts").join(RULES);
    let rules = fs::read_to_string(file).expect("the rules");
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let mut named = 0;
    for name in rules.split(word).filter(|name| name.starts_with("squall_")) {
        named += 1;
        let has =
            |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(exported.lines().any(has), "`{name}` is not in\n{exported}");
    }
    assert!(named >= 10, "only {named} names were found in the rules");
    for label in ["outcome=\"dead\"", "classification=\"backoff-without-jitter\""] {
        assert!(rules.contains(label) && exported.contains(label), "{label}");
    }
}
