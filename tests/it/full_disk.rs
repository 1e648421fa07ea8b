//! The real daemon on a disk that is full: it goes on.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::http::get;
use crate::support::process::{Program, free_port, squall, wait_until};

/// Longest wait for one change.
const LIMIT: Duration = Duration::from_secs(60);

fn metric(port: u16, name: &str) -> Option<f64> {
    let metrics = get(port, "/metrics")?.body;
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
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
