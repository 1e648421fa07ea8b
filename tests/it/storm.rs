//! The whole way, against Debian's real Prometheus and Alertmanager: a simulated fleet exposed as
//! real scrape targets, the daemon beside it, a webhook receiver and an Alertmanager told by it.
//!
//! These run in real time, since nothing here can be told what time it is. Every wait is on a
//! condition and bounded.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::http::{get, get_json};
use crate::support::process::{Program, free_port, squall, wait_until};
use crate::support::receiver::{Received, Receiver};
use crate::support::servers::{Server, prometheus_of};

/// Scrape targets of the fleet.
const TARGETS: usize = 8;
/// Seconds of quiet traffic before the first failure: enough for a baseline at 1 s scrapes, and
/// for three programs to start on a busy machine.
const QUIET_SECONDS: u32 = 75;
/// Longest wait for the page of a storm, from the start of everything.
const PAGE_LIMIT: Duration = Duration::from_secs(240);

/// Five dependencies: two with a storm, three that look like one and must page nobody.
fn scenario() -> String {
    format!(
        "about: A shop on a real Prometheus.
duration: 1h
dependencies:
- name: payments
  faults: [{{at: {QUIET_SECONDS}s, for: 45s}}]
- name: search
  faults: [{{at: {flood}s, for: 90s}}]
- name: inventory
  faults: [{{at: {QUIET_SECONDS}s, for: 400ms}}]
- name: catalogue
- name: reports
clients:
- {{name: payments users, calls: payments, rate: 20}}
- name: herd
  calls: payments
  size: 1500
  at: {QUIET_SECONDS}s
  within: 100ms
  retry: {{schedule: exponential, base: 1s, factor: 2, cap: 32s, jitter: none, retries: 6}}
- name: search users
  calls: search
  rate: 60
  retry: {{schedule: immediate, retries: 3}}
- {{name: inventory users, calls: inventory, rate: 30}}
- name: spread
  calls: inventory
  size: 800
  at: {QUIET_SECONDS}s
  within: 300ms
  retry: {{schedule: exponential, base: 1s, factor: 2, cap: 32s, jitter: full, retries: 6}}
- name: customers
  calls: catalogue
  rates: [[0s, 40], [{QUIET_SECONDS}s, 40], [{surge}s, 160], [{ebb}s, 160], [{end}s, 40]]
- {{name: reports users, calls: reports, rate: 20}}
- name: cron
  calls: reports
  size: 300
  at: 0s
  within: 2s
  every: 60s

scrape: {{interval: 1s, targets: {TARGETS}}}
",
        flood = QUIET_SECONDS + 10,
        surge = QUIET_SECONDS + 20,
        ebb = QUIET_SECONDS + 80,
        end = QUIET_SECONDS + 110,
    )
}

/// Everything that a story needs, in a folder of its own.
struct Stage {
    folder: TempDir,
    // Held so that the targets live as long as the story.
    _fleet: Program,
    prometheus: Server,
    receiver: Receiver,
}

impl Stage {
    fn set(scenario: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("shop.yml");
        fs::write(&file, scenario).expect("a scenario file");
        let port = free_port();
        let mut command = squall();
        command.arg("simulate").arg(&file).arg(format!("--serve=127.0.0.1:{port}")).arg("--seed=7");
        let fleet = Program::start("fleet", folder.path(), &mut command);
        wait_until("the fleet is served", Duration::from_secs(60), || {
            get(port, "/targets").is_some_and(|answer| answer.status == 200)
        });
        let targets = get_json(port, "/targets");
        assert_eq!(targets.as_array().map(Vec::len), Some(TARGETS), "{targets}");
        let discovery = format!("http://127.0.0.1:{port}/targets");
        let prometheus = prometheus_of(folder.path(), &discovery, "1s");
        Self { folder, _fleet: fleet, prometheus, receiver: Receiver::start() }
    }

    /// Writes the configuration of the daemon.
    fn configure(&self, alertmanager: Option<u16>) {
        let mut text = format!(
            "prometheus:
  - {{name: main, url: http://127.0.0.1:{}}}
watch:
  - name: http
    requests: http_client_requests_total
    errors: http_client_requests_total{{code=~\"5..\"}}
    by: [dependency]
notify:
  - webhook: {{url: {}, secret: topsecret}}
",
            self.prometheus.port,
            self.receiver.url()
        );
        if let Some(port) = alertmanager {
            text.push_str(&format!("  - alertmanager: {{url: http://127.0.0.1:{port}}}\n"));
        }
        fs::write(self.config(), text).expect("a configuration");
    }

    fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("squall.yml")
    }

    fn run(&self, port: u16) -> Program {
        let mut command: Command = squall();
        command
            .arg("run")
            .arg(format!("--config.file={}", self.config().display()))
            .arg(format!("--storage.path={}", self.folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Program::start("squall", self.folder.path(), &mut command)
    }
}

/// The alert of a notification that is about `dependency`.
fn alert_of<'b>(body: &'b Value, dependency: &str) -> Option<&'b Value> {
    body["alerts"].as_array()?.iter().find(|alert| alert["labels"]["dependency"] == dependency)
}

/// Whether a notification pages for this class of this dependency.
fn pages(received: &Received, dependency: &str, class: &str) -> bool {
    alert_of(&received.body, dependency).is_some_and(|alert| {
        alert["status"] == "firing" && alert["labels"]["classification"] == class
    })
}

fn seconds(value: &Value) -> f64 {
    let text = value.as_str().expect("an instant as text");
    squall::wire::parse_rfc3339(text).expect("an instant").seconds()
}

/// The daemon's own metrics pass the check of Prometheus' own tool.
fn metrics_are_good(port: u16) {
    let metrics = get(port, "/metrics").expect("metrics").body;
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("metrics");
    fs::write(&file, metrics).expect("a file");
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).expect("the file"))
        .output()
        .expect("promtool can be run");
    let says = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{says}");
}

#[test]
fn a_prometheus_that_goes_away_and_comes_back_opens_and_ends_nothing() {
    let mut stage = Stage::set(&scenario());
    stage.configure(None);
    let port = free_port();
    let mut daemon = stage.run(port);
    wait_until("the daemon is ready", Duration::from_secs(60), || {
        get(port, "/-/ready").is_some_and(|answer| answer.status == 200)
    });
    stage.prometheus.program.kill();
    let up = |wanted: &str| {
        let line = format!("squall_source_up{{source=\"main\"}} {wanted}");
        get(port, "/metrics").is_some_and(|answer| answer.body.contains(&line))
    };
    wait_until("squall says that it cannot see", Duration::from_secs(60), || up("0"));
    assert!(!daemon.has_ended(), "{}", daemon.output());
    stage.prometheus = stage.prometheus.again(stage.folder.path());
    wait_until("squall sees again", Duration::from_secs(60), || up("1"));
    let list = get_json(port, "/api/v1/incidents?state=resolved");
    assert_eq!(list["data"]["incidents"], Value::Array(Vec::new()), "{list:#}");
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

fn analyze(file: &Path) -> String {
    let output = squall()
        .args(["analyze", "--format=json", "--by=dependency"])
        .arg("--requests=http_client_requests_total")
        .arg("--errors=http_client_requests_total{code=~\"5..\"}")
        .arg(file)
        .output()
        .expect("squall can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}
