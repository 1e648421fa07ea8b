//! The rules that come with squall, and what is said of those that do not.

use super::*;
use std::collections::HashSet;

/// Fewest schedules and presets promised.
const SCHEDULES_MIN: usize = 230;
const PRESETS_MIN: usize = 55;

#[test]
fn every_rule_is_whole_and_its_cases_hold() {
    let mut faults = Vec::new();
    for (file, text) in embedded_files() {
        match parse_file(text) {
            Err(found) => faults.extend(found.iter().map(|fault| format!("{file}: {fault}"))),
            Ok(rules) => {
                for rule in rules {
                    let folder = match &rule {
                        Rule::Schedule(_) => "schedules",
                        Rule::Preset(_) => "presets",
                    };
                    if file != format!("{folder}/{}.yaml", rule.id()) {
                        faults.push(format!("{file}: holds the rule `{}`", rule.id()));
                    }
                    faults.extend(wants(&rule).into_iter().map(|want| format!("{file}: {want}")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// What a rule that comes with squall must have beyond what a user's may leave out.
fn wants(rule: &Rule) -> Vec<&'static str> {
    let mut wants = Vec::new();
    match rule {
        Rule::Schedule(rule) => {
            for (text, want) in [
                (&rule.ecosystem, "no ecosystem"),
                (&rule.version, "no version"),
                (&rule.reference, "no reference"),
                (&rule.remedy, "no remedy"),
            ] {
                if text.is_empty() {
                    wants.push(want);
                }
            }
            if rule.cases.is_empty() && rule.policy.family() != policy::Family::ServerSent {
                wants.push("no cases");
            }
            if !rule.policy.is_synchronised()
                && rule.cases.iter().all(|case| case.ranges_seconds.is_empty())
            {
                wants.push("jittered, and no case checks a range");
            }
        }
        Rule::Preset(preset) => {
            for (text, want) in [
                (&preset.version, "no version"),
                (&preset.reference, "no reference"),
                (&preset.counts_note, "no counts_note"),
            ] {
                if text.is_empty() {
                    wants.push(want);
                }
            }
            if preset.pitfalls.is_empty() {
                wants.push("no pitfalls");
            }
            if preset.by.is_empty() {
                wants.push("no label names the dependency");
            }
        }
    }
    wants
}

#[test]
fn there_are_as_many_as_promised_and_no_two_share_an_id() {
    let rules = Rules::builtin();
    assert!(rules.schedules().len() >= SCHEDULES_MIN, "{} schedules", rules.schedules().len());
    assert!(rules.presets().len() >= PRESETS_MIN, "{} presets", rules.presets().len());
    let ids: HashSet<&str> = rules.schedules().iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids.len(), rules.schedules().len());
}

#[test]
fn every_draw_lies_in_its_range_and_is_finite() {
    for rule in Rules::builtin().schedules() {
        let mut previous = None;
        for retry in 1..=12 {
            let Some([low, high]) = rule.policy.range(retry, previous) else { break };
            assert!(low <= high && low >= 0.0 && high.is_finite(), "{} retry {retry}", rule.id);
            let middle = rule.policy.draw(retry, previous, 0.5).expect("as the range");
            assert!((low..=high).contains(&middle), "{} retry {retry}: {middle}", rule.id);
            previous = Some(middle);
        }
    }
}

#[test]
fn all_faults_of_a_file_are_told_at_once_with_their_lines() {
    let text = "\
id: Bad Id
nam: x
policy:
  family: exponential
  base: fast
  factor: 1
  attempts: 0
  jitter: lots
cases:
- waits: [1, two]
";
    let got: Vec<String> =
        parse_file(text).unwrap_err().iter().map(|fault| fault.to_string()).collect();
    assert_eq!(
        got,
        [
            "line 1: id: must be at most 64 lower-case letters, digits and hyphens, got `Bad Id`",
            "line 1: name: is missing",
            "line 2: nam: unknown key, did you mean `name`?",
            "line 5: policy.base: must be a duration such as 200ms, 1.5s or 1m30s, got `fast`",
            "line 6: policy.factor: must be above 1; a factor of 1 is the family `fixed`",
            "line 7: policy.attempts: counts the first attempt, so it is at least 1",
            "line 8: policy.jitter: must be none, equal, full, decorrelated, or a mapping with \
             `kind`, got `lots`",
            "line 10: cases[0].waits[1]: must be a duration such as 200ms, 1.5s or 1m30s, got \
             `two`",
        ]
    );
}

#[test]
fn a_case_that_does_not_hold_is_a_fault() {
    let text = "id: a\nname: A\npolicy: {family: fixed, base: 1s, attempts: 3}\n\
                cases:\n- waits: [1s, 2s]\n- waits: [1s]\n  ends: true\n";
    let got: Vec<String> =
        parse_file(text).unwrap_err().iter().map(|fault| fault.to_string()).collect();
    assert_eq!(
        got,
        [
            "line 5: cases[0]: wait 2 should be 2 s and is 1 s",
            "line 6: cases[1]: should end after 1 retries and goes on",
        ]
    );
}

#[test]
fn a_users_rule_joins_and_replaces_and_a_bad_one_changes_nothing() {
    let known = Rules::builtin();
    let own = "id: node-retry\nname: Ours\npolicy: {family: fixed, base: 250ms}\n";
    let with = known.with_files([("own.yaml", own)]).expect("a good file");
    assert_eq!(with.schedules().len(), known.schedules().len());
    assert_eq!(with.schedule("node-retry").expect("it").name, "Ours");
    let bad = known.with_files([("own.yaml", own), ("bad.yaml", "id: x\n")]).unwrap_err();
    assert_eq!(bad[0].to_string(), "bad.yaml: line 1: name: is missing");
    let twice = known.with_files([("a.yaml", own), ("b.yaml", own)]).unwrap_err();
    assert_eq!(twice[0].to_string(), "b.yaml: line 1: id: `node-retry` is given twice");
    // Twice in one file, and told together with what else is wrong there.
    let list = "- {id: x, name: X, policy: {family: fixed, base: 1s}}\n\
                - {id: x, name: X, policy: {family: fixed, base: 1s}, odd: 1}\n";
    let faults = parse_file(list).unwrap_err();
    let told: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(told, ["[1].odd", "[1].id"]);
}

#[test]
fn a_preset_with_a_rate_is_refused() {
    let text = "id: x\nname: X\nrequests: rate(http_requests_total[5m])\nby: [job, a-b]\n";
    let got: Vec<String> =
        parse_file(text).unwrap_err().iter().map(|fault| fault.to_string()).collect();
    assert_eq!(
        got,
        [
            "line 3: requests: must be a plain counter selector, never rate(...) or a sum: \
             `rate(http_requests_total[5m])`",
            "line 4: by: `a-b` is not a label name",
        ]
    );
}

#[test]
fn lists_are_those_in_step_without_a_formula() {
    let lists = Rules::builtin().lists();
    assert!(lists.contains(&vec![60.0, 120.0]), "{lists:?}");
    assert!(lists.iter().flatten().all(|wait| *wait > 0.0), "{lists:?}");
    let jittered = vec![30.0, 30.0, 30.0, 30.0, 30.0, 60.0];
    assert!(lists.iter().all(|list| !list.starts_with(&jittered)), "{lists:?}");
}
