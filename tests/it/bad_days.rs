//! A Prometheus on its bad days: the daemon stays up, says what it cannot see, opens and ends
//! nothing, asks no more than its budget allows, and recovers.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::http::{get, get_json};
use crate::support::process::{Program, free_port, squall, wait_until};
use crate::support::proxy::{Manner, Proxy};

/// What a server answers on a bad day, and how squall calls it.
const BAD_DAYS: &[(&str, Manner)] = &[
    ("503", Manner::Say("503 Service Unavailable\r\nContent-Type: text/plain", "starting")),
    (
        "timed out in the queue",
        Manner::Say(
            "400 Bad Request\r\nContent-Type: application/json",
            r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": context deadline exceeded"}"#,
        ),
    ),
    ("429", Manner::Say("429 Too Many Requests\r\nRetry-After: 1", "slow down")),
    ("HTML", Manner::Say("200 OK\r\nContent-Type: text/html", "<html>log in first</html>")),
    ("truncated", Manner::Truncate),
    (
        "warnings",
        Manner::Say(
            "200 OK\r\nContent-Type: application/json",
            r#"{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":["a store is away"]}"#,
        ),
    ),
    ("slow", Manner::Hang),
];

/// A healthy answer without any series: no fault, and nothing to see.
const EMPTY: Manner = Manner::Say(
    "200 OK\r\nContent-Type: application/json",
    r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
);

/// Requests of one poll to a server in order: two selectors, and now and then its clock.
const ASKED_MAX: usize = 3;
/// Requests of one poll to a server that fails, on the average of several: the budget is a poll
/// interval of 1 s, in which full jitter from 200 ms on has room for four or five.
const RETRIED_MAX: usize = 9;
/// Polls over which requests are counted.
const POLLS: usize = 6;

/// Longest wait for one change.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_daemon_stays_up_says_what_it_cannot_see_and_recovers() {
    let folder = TempDir::new().expect("a temporary folder");
    let fleet_port = free_port();
    let mut command = squall();
    command.args(["simulate", "noise", "--seed=7"]).arg(format!("--serve=127.0.0.1:{fleet_port}"));
    let _fleet = Program::start("fleet", folder.path(), &mut command);
    wait_until("the fleet is served", LIMIT, || get(fleet_port, "/targets").is_some());
    let proxy = Proxy::before(fleet_port);
    let config = folder.path().join("squall.yml");
    fs::write(
        &config,
        format!(
            "prometheus: [{{name: main, url: 'http://127.0.0.1:{}', poll_interval: 1s, timeout: 1s}}]\n\
             watch:\n  - name: http\n    requests: http_client_requests_total\n    \
             errors: http_client_requests_total{{code=~\"5..\"}}\n    by: [dependency]\n",
            proxy.port
        ),
    )
    .expect("a configuration");
    let port = free_port();
    let mut command = squall();
    command
        .arg("run")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder.path(), &mut command);
    let up = |wanted: &str| {
        let line = format!("squall_source_up{{source=\"main\"}} {wanted}");
        get(port, "/metrics").is_some_and(|answer| answer.body.contains(&line))
    };
    wait_until("squall sees", LIMIT, || up("1"));
    let of_one_poll = |name: &str| {
        let (asked, done) = (proxy.asked(), polls(port));
        wait_until(&format!("some polls are done ({name})"), LIMIT, || polls(port) >= done + POLLS);
        // Those of the polls under way at either end count as well.
        (proxy.asked() - asked) / (polls(port) - done + 1)
    };
    let asked = of_one_poll("in order");
    assert!((1..=ASKED_MAX).contains(&asked), "{asked} requests a poll to a server in order");
    for (name, manner) in BAD_DAYS {
        proxy.turn(*manner);
        wait_until(&format!("squall says that it cannot see ({name})"), LIMIT, || up("0"));
        assert!(!daemon.has_ended(), "{name}: {}", daemon.output());
        let asked = of_one_poll(name);
        assert!(asked <= RETRIED_MAX, "{asked} requests a poll to a server that says {name}");
        assert_eq!(get(port, "/-/healthy").map(|answer| answer.status), Some(200), "{name}");
        proxy.turn(Manner::Pass);
        wait_until(&format!("squall sees again ({name})"), LIMIT, || up("1"));
    }
    proxy.turn(EMPTY);
    let asked = queries(port);
    wait_until("empty answers are taken", LIMIT, || queries(port) >= asked + 6.0);
    assert!(up("1"), "an empty answer is no fault");
    let list = get_json(port, "/api/v1/incidents");
    assert_eq!(list["data"]["incidents"], Value::Array(Vec::new()), "{list:#}");
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

/// Questions that the daemon has asked its source so far.
fn queries(port: u16) -> f64 {
    metric(port, "squall_source_queries_total{source=\"main\"} ")
}

/// Polls that the daemon has done so far.
fn polls(port: u16) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a counter of some hundreds"
    )]
    let polls = metric(port, "squall_poll_duration_seconds_count{source=\"main\"} ") as usize;
    polls
}

fn metric(port: u16, line: &str) -> f64 {
    let metrics = get(port, "/metrics").map(|answer| answer.body).unwrap_or_default();
    let value = metrics.lines().find_map(|it| it.strip_prefix(line));
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}
