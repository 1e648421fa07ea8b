//! The Grafana dashboard: the shape that Grafana reads, and queries that Prometheus parses over
//! metrics that squall exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use squall::telemetry::Metrics;

/// Panels that every Grafana since 10 has built in.
const PANEL_TYPES: [&str; 5] = ["stat", "timeseries", "state-timeline", "bargauge", "row"];

fn dashboard() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/grafana-dashboard.json");
    serde_json::from_str(&fs::read_to_string(file).expect("the dashboard")).expect("JSON")
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().expect("panels")
}

/// Every query with the name of what asks it.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut found: Vec<(String, String)> = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().expect("annotations") {
        found.push((text(&annotation["name"]), text(&annotation["expr"])));
    }
    found
}

#[test]
fn the_dashboard_has_the_shape_that_grafana_reads() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    assert!(dashboard["uid"].as_str().unwrap().len() <= 40);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let known: BTreeSet<&str> = variables.iter().filter_map(|it| it["name"].as_str()).collect();
    let text = dashboard.to_string();
    for used in text.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
        assert!(known.contains(used), "${{{used}}} is no variable");
    }
    let mut ids = BTreeSet::new();
    let mut taken: Vec<[i64; 4]> = Vec::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: an id twice");
        assert!(PANEL_TYPES.contains(&panel["type"].as_str().unwrap()), "{title}");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_i64().unwrap());
        assert!(x >= 0 && w > 0 && x + w <= 24 && y >= 0 && h > 0, "{title}: not on the grid");
        for [left, top, wide, high] in &taken {
            let apart = x >= left + wide || *left >= x + w || y >= top + high || *top >= y + h;
            assert!(apart, "{title} lies over another panel");
        }
        taken.push([x, y, w, h]);
        if panel["type"] != "row" {
            assert!(panel["description"].as_str().is_some_and(|it| it.len() > 10), "{title}");
            let mut names = BTreeSet::new();
            for target in panel["targets"].as_array().expect("targets") {
                assert!(names.insert(target["refId"].as_str().unwrap()), "{title}: a refId twice");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            }
        }
    }
}

#[test]
fn every_query_parses_and_names_metrics_that_are_exported() {
    let metrics = Metrics::new();
    metrics.source_known("main");
    metrics.source_query("main", Duration::from_millis(30));
    metrics.source_up("main", true);
    metrics.tick(Duration::from_millis(5));
    metrics.poll("main", Duration::from_millis(40));
    metrics.fit(Duration::from_millis(7));
    metrics.incidents_active([("payments", "backoff-without-jitter")]);
    metrics.incidents_measured([("payments", "backoff-without-jitter", 4.0, Some(0.01))]);
    metrics.dependencies([(["payments", "http", "main"], "watched", Some(1.5))]);
    metrics.receiver_known("hook");
    metrics.outbox([]);
    metrics.invariant_violation("counts_are_finite");
    let exported = metrics.encode();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() >= 15, "only {} queries were found", queries.len());
    for (number, (title, query)) in queries.iter().enumerate() {
        for name in query.split(word).filter(|name| name.starts_with("squall_")) {
            let has =
                |line: &str| line.strip_prefix(name).is_some_and(|it| it.starts_with(['{', ' ']));
            assert!(exported.lines().any(has), "{title}: `{name}` is not in\n{exported}");
        }
        let plain = query.replace("$dependency", ".*");
        assert!(!plain.contains('$'), "{title}: {plain}");
        let quoted = serde_json::to_string(&plain).expect("a text");
        rules.push_str(&format!("  - record: query_{number}:one\n    expr: {quoted}\n"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rules.yml"), rules).expect("written");
    let output = Command::new("promtool")
        .args(["check", "rules", "rules.yml"])
        .current_dir(folder.path())
        .output()
        .expect("promtool, of the Debian package prometheus, is needed to read the queries");
    let out = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&out));
}
