//! The exposition: what is there from the start, what leaves, what each name means.

use super::*;

/// Everything counted once.
fn exposition() -> String {
    let metrics = Metrics::new();
    metrics.source_known("main");
    metrics.source_query("main", Duration::from_millis(30));
    metrics.source_query_error("main", "timeout");
    metrics.source_up("main", true);
    metrics.tick(Duration::from_millis(5));
    metrics.poll("main", Duration::from_millis(40));
    metrics.fit(Duration::from_millis(7));
    metrics.series("main", 7);
    metrics.incident("partial-jitter");
    metrics.incidents_active([("payments", "partial-jitter")]);
    metrics.feedback("partial-jitter", 3, 1);
    metrics.receiver_known("hook");
    metrics.notification("hook", "sent");
    metrics.invariant_violation("counts_are_finite");
    metrics.outbox([("hook", 2, 1)]);
    metrics.storage(Some("full"), 3);
    metrics.config_reload(true, 1_790_000_000);
    metrics.encode()
}

#[test]
fn closed_sets_of_label_values_start_at_zero() {
    let text = exposition();
    for line in [
        "squall_source_query_errors_total{source=\"main\",reason=\"decode\"} 0",
        "squall_source_query_errors_total{source=\"main\",reason=\"timeout\"} 1",
        "squall_incidents_total{class=\"inconclusive\"} 0",
        "squall_notifications_total{receiver=\"hook\",outcome=\"dead\"} 0",
        "squall_incident_feedback{class=\"partial-jitter\",verdict=\"right\"} 3",
        "squall_incident_feedback{class=\"inconclusive\",verdict=\"wrong\"} 0",
        "squall_source_query_duration_seconds_count{source=\"main\"} 1",
        "squall_poll_duration_seconds_count{source=\"main\"} 1",
        "squall_fit_duration_seconds_bucket{le=\"0.025\"} 1",
        "squall_series{source=\"main\"} 7",
        "squall_outbox_notifications{receiver=\"hook\",state=\"dead\"} 1.0",
        "squall_backlog_changes 3",
        "squall_storage_up 0",
        "squall_storage_errors_total{reason=\"full\"} 1",
        "squall_config_last_reload_success_timestamp_seconds 1790000000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_is_measured_leaves_with_its_incident_and_its_dependency() {
    let metrics = Metrics::new();
    metrics.incidents_measured([
        ("payments", "backoff-without-jitter", 4.5, Some(0.01)),
        ("search", "retry-storm-without-backoff", 3.0, None),
    ]);
    metrics.dependencies([
        (["payments", "http", "main"], "watched", Some(1.5)),
        (["search", "http", "main"], "learning", None),
    ]);
    let text = metrics.encode();
    for line in [
        "squall_incident_amplification{dependency=\"search\",classification=\"retry-storm-without-backoff\"} 3.0",
        "squall_incident_spread{dependency=\"payments\",classification=\"backoff-without-jitter\"} 0.01",
        "squall_dependency_resolution_seconds{dependency=\"payments\",watch=\"http\",source=\"main\"} 1.5",
        "squall_dependencies{state=\"learning\"} 1.0",
        "squall_dependencies{state=\"blind\"} 0.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("squall_incident_spread{").count(), 1);
    metrics.incidents_measured([]);
    metrics.dependencies([]);
    let text = metrics.encode();
    assert!(!text.contains("squall_incident_amplification{"), "{text}");
    assert!(!text.contains("squall_dependency_resolution_seconds{"), "{text}");
}

#[test]
fn an_incident_is_active_until_it_ends_or_changes_its_class() {
    let metrics = Metrics::new();
    metrics.incidents_active([("payments", "inconclusive"), ("search", "partial-jitter")]);
    metrics.incidents_active([("payments", "backoff-without-jitter")]);
    let text = metrics.encode();
    let active: Vec<&str> =
        text.lines().filter(|line| line.starts_with("squall_incident_active{")).collect();
    let wanted = "squall_incident_active{dependency=\"payments\",\
                  classification=\"backoff-without-jitter\"} 1";
    assert_eq!(active, [wanted]);
}

#[test]
fn every_sample_has_a_declared_family_and_the_name_of_its_kind() {
    let text = exposition();
    let mut kinds = std::collections::HashMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            kinds.insert(name.to_owned(), kind.to_owned());
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_count", "_sum"]
            .into_iter()
            .find_map(|end| name.strip_suffix(end).filter(|f| kinds.contains_key(*f)));
        assert!(kinds.contains_key(family.unwrap_or(name)), "{line}");
        assert!(name.starts_with("squall_"), "{line}");
    }
    assert!(text.ends_with('\n') && !text.contains("# EOF"));
}

#[test]
fn the_lane_of_a_configured_receiver_is_there_when_nothing_waits() {
    let metrics = Metrics::new();
    metrics.receiver_known("hook");
    metrics.outbox([("hook", 2, 0), ("gone", 0, 1)]);
    metrics.outbox([]);
    let text = metrics.encode();
    let lanes: Vec<&str> =
        text.lines().filter(|line| line.starts_with("squall_outbox_notifications{")).collect();
    assert_eq!(lanes.len(), 2, "{text}");
    assert!(
        lanes.contains(&"squall_outbox_notifications{receiver=\"hook\",state=\"pending\"} 0.0")
    );
}
