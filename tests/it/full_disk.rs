//! The real daemon on a disk that is full: it goes on detecting, says so, and catches up.
//!
//! A limit on the size of its files stands for the full disk, since a file system of its own would
//! need the rights to mount it. From inside it looks the same, for whoever runs the tests: no write
//! of the database or of the log gets through.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::storm::{PAGE_LIMIT, QUIET_SECONDS};
use crate::support::http::{get, get_json};
use crate::support::process::{Program, free_port, squall, wait_until};

/// Longest wait for one change.
const LIMIT: Duration = Duration::from_secs(60);

fn scenario() -> String {
    format!(
        "about: A flood.
duration: 1h
dependencies:
- name: search
  faults: [{{at: {QUIET_SECONDS}s, for: 1h}}]
clients:
- {{name: users, calls: search, rate: 60, retry: {{schedule: immediate, retries: 3}}}}
scrape: {{interval: 1s, targets: 4}}
"
    )
}

/// Lets a process write no file beyond so many bytes; `unlimited` lifts it.
fn limit_files(process: &Program, bytes: &str) {
    let limited = Command::new("prlimit")
        .args(["--pid", &process.id().to_string(), &format!("--fsize={bytes}:unlimited")])
        .status()
        .expect("prlimit can be run");
    assert!(limited.success(), "the limit cannot be set");
}

fn metric(port: u16, name: &str) -> Option<f64> {
    let metrics = get(port, "/metrics")?.body;
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// The firing incidents that the API lists.
fn firing(port: u16) -> Vec<Value> {
    let list = get_json(port, "/api/v1/incidents?state=firing");
    list["data"]["incidents"].as_array().expect("a list").clone()
}

#[test]
fn a_full_disk_stops_no_detection_is_said_and_is_caught_up_with() {
    let folder = TempDir::new().expect("a temporary folder");
    fs::write(folder.path().join("flood.yml"), scenario()).expect("a scenario");
    let fleet_port = free_port();
    let mut command = squall();
    command
        .current_dir(folder.path())
        .args(["simulate", "flood.yml", "--seed=7"])
        .arg(format!("--serve=127.0.0.1:{fleet_port}"));
    let _fleet = Program::start("fleet", folder.path(), &mut command);
    wait_until("the fleet is served", LIMIT, || get(fleet_port, "/targets").is_some());
    let config = format!(
        "prometheus: [{{name: main, url: 'http://127.0.0.1:{fleet_port}', poll_interval: 1s}}]\n\
         watch: [{{preset: http-client-requests}}]\n"
    );
    fs::write(folder.path().join("squall.yml"), config).expect("a configuration");
    let port = free_port();
    // Without the signal a write beyond the limit fails, as on a full disk, and kills nobody.
    let mut command = Command::new("sh");
    command
        .current_dir(folder.path())
        .args(["-c", "trap '' XFSZ; exec \"$0\" run \"$@\""])
        .arg(squall().get_program())
        .args(["--config.file=squall.yml", "--storage.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder.path(), &mut command);
    let ready = || get(port, "/-/ready").map(|answer| (answer.status, answer.body));
    let in_order = Some((200, "squall is ready.\n".to_owned()));
    wait_until("the daemon is ready", LIMIT, || ready() == in_order);

    limit_files(&daemon, "1");
    // Before there is anything to lose.
    wait_until("it is said", LIMIT, || {
        ready()
            .is_some_and(|(status, says)| status == 200 && says.contains("storage takes no writes"))
    });
    assert_eq!(metric(port, "squall_storage_up"), Some(0.0));
    assert_eq!(metric(port, "squall_backlog_changes"), Some(0.0));
    wait_until("the flood fires and cannot be kept", PAGE_LIMIT, || {
        metric(port, "squall_backlog_changes").is_some_and(|changes| changes > 0.0)
    });
    assert_eq!(metric(port, "squall_storage_up"), Some(0.0));
    // Whoever looks sees it all the same.
    let live = firing(port);
    assert_eq!(live.len(), 1, "{live:#?}");
    assert_eq!(live[0]["classification"], "retry-storm-without-backoff");
    let page = get(port, "/").expect("the page").body;
    assert!(page.contains("search"), "{page}");
    assert!(!daemon.has_ended(), "{}", daemon.output());

    limit_files(&daemon, "unlimited");
    wait_until("the record has caught up", LIMIT, || {
        metric(port, "squall_backlog_changes") == Some(0.0) && ready() == in_order
    });
    assert_eq!(metric(port, "squall_storage_up"), Some(1.0));
    let kept = firing(port);
    assert_eq!(kept.len(), 1, "{kept:#?}");
    for key in ["id", "started_at", "detected_at"] {
        assert_eq!(kept[0][key], live[0][key], "{key}");
    }
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let folder = TempDir::new().expect("a temporary folder");
    let config = "prometheus: [{name: main, url: 'http://127.0.0.1:9', poll_interval: 1s}]\n\
                  watch: [{preset: http-client-requests}]\n";
    fs::write(folder.path().join("squall.yml"), config).expect("a configuration");
    let port = free_port();
    // Each line of the log fails as on a full disk, the first one at the start.
    let mut command = Command::new("sh");
    command
        .current_dir(folder.path())
        .args(["-c", "exec \"$0\" run \"$@\" 2> /dev/full"])
        .arg(squall().get_program())
        .args(["--config.file=squall.yml", "--storage.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder.path(), &mut command);
    wait_until("it is served", LIMIT, || {
        assert!(!daemon.has_ended(), "the daemon has ended");
        get(port, "/-/healthy").is_some_and(|answer| answer.status == 200)
    });
    // A poll that failed is said in the log as well.
    wait_until("polls are made", LIMIT, || {
        metric(port, "squall_source_queries_total{source=\"main\"}").is_some_and(|it| it >= 4.0)
    });
    assert_eq!(daemon.terminate(), Some(0));
}
