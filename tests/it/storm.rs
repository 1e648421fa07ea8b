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
use squall::clock::{Clock, SystemClock};
use tempfile::TempDir;

use crate::support::http::{get, get_json, request};
use crate::support::process::{Program, free_port, squall, wait_until};
use crate::support::receiver::{Received, Receiver};
use crate::support::servers::{Server, alertmanager, prometheus_of};

/// Scrape targets of the fleet.
const TARGETS: usize = 8;
/// Seconds of quiet traffic before the first failure: enough for a baseline at 1 s scrapes, and
/// for three programs to start on a busy machine.
pub(crate) const QUIET_SECONDS: u32 = 75;
/// Longest wait for the page of a storm, from the start of everything.
pub(crate) const PAGE_LIMIT: Duration = Duration::from_secs(240);

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
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    // Held so that the targets live as long as the story.
    _fleet: Program,
    prometheus: Server,
    pub(crate) receiver: Receiver,
}

impl Stage {
    pub(crate) fn set(scenario: &str) -> Self {
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
    pub(crate) fn configure(&self, alertmanager: Option<u16>) {
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

    pub(crate) fn config(&self) -> std::path::PathBuf {
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
pub(crate) fn alert_of<'b>(body: &'b Value, dependency: &str) -> Option<&'b Value> {
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

#[test]
fn storms_on_a_real_prometheus_are_paged_by_name_and_look_alikes_are_not() {
    let stage = Stage::set(&scenario());
    let told = Receiver::start();
    let alerts = alertmanager(stage.folder.path(), &told.url(), "30s");
    stage.configure(Some(alerts.port));
    let port = free_port();
    let mut daemon = stage.run(port);

    // The herd: paged to the webhook with its schedule, soon after its fourth wave.
    let herd = "backoff-without-jitter";
    let page = stage
        .receiver
        .wait_for("the page of the herd", PAGE_LIMIT, |it| pages(it, "payments", herd));
    let received_at = SystemClock.now().seconds();
    let incidents = get_json(port, "/api/v1/incidents?dependency=payments");
    let incident = &incidents["data"]["incidents"][0];
    let started = seconds(&incident["started_at"]);
    let fourth_wave = started + 1.0 + 2.0 + 4.0 + 8.0;
    assert!(received_at <= fourth_wave + 10.0, "{} s late", received_at - fourth_wave);
    let schedule = &incident["schedule"];
    let near = |value: &Value, wanted: f64| {
        let value = value.as_f64().expect("a number");
        assert!((value / wanted - 1.0).abs() <= 0.1, "{value} is not {wanted}: {schedule}");
    };
    near(&schedule["base_seconds"], 1.0);
    near(&schedule["factor"], 2.0);
    assert!(page.idempotency_key.is_some() && page.signature.is_some(), "{page:?}");
    assert_eq!(page.body["version"], "4");

    // The same storm through a real Alertmanager, whose group waits 30 s.
    told.wait_for("Alertmanager's notification", PAGE_LIMIT, |it| pages(it, "payments", herd));

    // The flood has its own name.
    stage.receiver.wait_for("the page of the flood", PAGE_LIMIT, |it| {
        pages(it, "search", "retry-storm-without-backoff")
    });
    // What began is also told to be over.
    stage.receiver.wait_for("the end of the herd", PAGE_LIMIT, |it| {
        alert_of(&it.body, "payments").is_some_and(|alert| alert["status"] == "resolved")
    });

    // Nobody was paged for the others, and the storms were one incident each.
    for received in stage.receiver.received() {
        for quiet in ["inventory", "catalogue", "reports"] {
            assert!(alert_of(&received.body, quiet).is_none(), "{}", received.raw);
        }
    }
    for stormy in ["payments", "search"] {
        let list = get_json(port, &format!("/api/v1/incidents?dependency={stormy}"));
        let incidents = list["data"]["incidents"].as_array().expect("a list").clone();
        assert_eq!(incidents.len(), 1, "{stormy}: {incidents:#?}");
    }

    metrics_are_good(port);
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

/// The daemon's own metrics say what it did, and pass the check of Prometheus' own tool.
fn metrics_are_good(port: u16) {
    let metrics = get(port, "/metrics").expect("metrics").body;
    // After storms that were asked for, fitted, saved and told.
    for (name, least) in [
        ("squall_poll_duration_seconds_count{", 1.0),
        ("squall_fit_duration_seconds_count ", 1.0),
        ("squall_series{", 1.0),
        ("squall_outbox_notifications{", 0.0),
        ("squall_backlog_changes ", 0.0),
    ] {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(value.is_some_and(|value| value >= least), "{name}: {line:?}");
    }
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
fn a_kill_in_the_middle_of_a_storm_loses_no_page_and_makes_no_second_incident() {
    let stage = Stage::set(&scenario());
    stage.configure(None);
    // The page is decided, and cannot be delivered before the kill.
    stage.receiver.answer(503);
    let port = free_port();
    let mut daemon = stage.run(port);
    wait_until("the herd fires", PAGE_LIMIT, || {
        get(port, "/api/v1/incidents?dependency=payments&state=firing").is_some_and(|answer| {
            answer.json()["data"]["incidents"].as_array().is_some_and(|list| !list.is_empty())
        })
    });
    daemon.kill();
    assert!(stage.receiver.received().is_empty());
    stage.receiver.answer(200);
    let mut daemon = stage.run(port);
    let first = stage.receiver.wait_for("the page of the herd", PAGE_LIMIT, |it| {
        pages(it, "payments", "backoff-without-jitter")
    });
    stage.receiver.wait_for("the end of the herd", PAGE_LIMIT, |it| {
        alert_of(&it.body, "payments").is_some_and(|alert| alert["status"] == "resolved")
    });
    let list = get_json(port, "/api/v1/incidents?dependency=payments");
    assert_eq!(list["data"]["incidents"].as_array().map(Vec::len), Some(1), "{list:#}");
    // A second page, if any, is the first one again.
    for page in stage.receiver.received() {
        if pages(&page, "payments", "backoff-without-jitter") {
            assert_eq!(page.idempotency_key, first.idempotency_key, "{}", page.raw);
        }
    }
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

#[test]
fn a_reload_takes_a_good_configuration_and_refuses_a_bad_one() {
    let stage = Stage::set(&scenario());
    stage.configure(None);
    let port = free_port();
    let mut daemon = stage.run(port);
    wait_until("the daemon is ready", Duration::from_secs(60), || {
        get(port, "/-/ready").is_some_and(|answer| answer.status == 200)
    });
    let good = fs::read_to_string(stage.config()).expect("the configuration");
    fs::write(stage.config(), format!("{good}\nwach: []\n")).expect("a bad configuration");
    let refused = request("POST", port, "/-/reload", "").expect("an answer");
    assert_eq!(refused.status, 500);
    assert!(refused.body.contains("wach: unknown key, did you mean `watch`?"), "{}", refused.body);
    fs::write(stage.config(), &good).expect("a good configuration");
    assert_eq!(request("POST", port, "/-/reload", "").expect("an answer").status, 200);
    // The signal does the same as the request.
    fs::write(stage.config(), good.replace("name: http", "name: calls")).expect("another watch");
    daemon.signal("HUP");
    wait_until("the new watch is asked", Duration::from_secs(60), || {
        // Listening anew, it may refuse for a moment.
        get(port, "/api/v1/dependencies?watch=calls").is_some_and(|answer| {
            let list: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            list["data"]["dependencies"].as_array().is_some_and(|list| !list.is_empty())
        })
    });
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
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

#[test]
fn the_same_history_gives_the_same_incidents_from_a_file_twice() {
    let folder = TempDir::new().expect("a temporary folder");
    let scenario_file = folder.path().join("shop.yml");
    // Fewer targets and a shorter time: the fits are slow without optimisation.
    let short = scenario()
        .replace("duration: 1h", "duration: 150s")
        .replace(&format!("targets: {TARGETS}"), "targets: 3");
    fs::write(&scenario_file, short).expect("a scenario file");
    let dump = folder.path().join("shop.om");
    let simulated = squall()
        .arg("simulate")
        .arg(&scenario_file)
        .arg("--seed=7")
        .arg("--out")
        .arg(&dump)
        .status()
        .expect("squall can be run");
    assert!(simulated.success());
    let first = analyze(&dump);
    assert_eq!(first, analyze(&dump), "two runs over one file differ");
    let found: Value = serde_json::from_str(&first).expect("JSON");
    let of = |dependency: &str| -> Vec<&Value> {
        let incidents = found["incidents"].as_array().expect("a list").iter();
        incidents.filter(|it| it["dependency"] == dependency).collect()
    };
    assert_eq!(of("payments").len(), 1, "{first}");
    assert_eq!(of("payments")[0]["classification"], "backoff-without-jitter");
    assert_eq!(of("search")[0]["classification"], "retry-storm-without-backoff");
    for quiet in ["catalogue", "reports"] {
        assert!(of(quiet).is_empty(), "{first}");
    }
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
