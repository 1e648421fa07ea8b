//! Real clients with the waits they come with, against a server that fails for a while, scraped by
//! a real Prometheus: each is caught, and named.
//!
//! Nothing here is simulated: the libraries are Debian's, and so is the Prometheus that writes.
//! These run in real time; every wait is on a condition and bounded.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::http::get;
use crate::support::process::{Program, free_port, squall, wait_for, wait_until};
use crate::support::replicas::{Replicas, WRITTEN};
use crate::support::servers::{prometheus_of, prometheus_with};

/// Time until a baseline is there: a minute of scrapes, on a busy machine.
const BASELINE_LIMIT: Duration = Duration::from_secs(180);
/// Longest wait for the name of a client, from the failure.
const NAME_LIMIT: Duration = Duration::from_secs(150);
/// Replicas of the server, scraped at their own phases.
const REPLICAS: usize = 4;
/// Clients of each library.
const CLIENTS: usize = 200;
/// How long the server fails: four waves of a schedule that doubles from one second.
const BLIP: Duration = Duration::from_secs(25);
/// The libraries, and the rule that each follows.
const LIBRARIES: [(&str, &str); 4] = [
    ("tenacity", "tenacity-wait-exponential"),
    ("backoff", "litl-backoff-expo-no-jitter"),
    ("urllib3", "urllib3-retry-backoff-1"),
    ("node-retry", "node-retry"),
];

/// The daemon over what the replicas count.
fn watch(folder: &Path, prometheus: u16, port: u16) -> Program {
    let config = folder.join("squall.yml");
    let text = format!(
        "prometheus:
  - {{name: main, url: http://127.0.0.1:{prometheus}}}
watch:
  - name: http
    requests: answers_total
    errors: answers_total{{code=\"503\"}}
    by: [dependency]
"
    );
    fs::write(&config, text).expect("a configuration");
    let mut command = squall();
    command
        .current_dir(folder)
        .args(["run", "--config.file=squall.yml"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Program::start("squall", folder, &mut command)
}

/// A list of the API; empty when there is no answer yet.
fn list(port: u16, path: &str, key: &str) -> Vec<Value> {
    let body = get(port, path).map(|answer| answer.body).unwrap_or_default();
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    answer["data"][key].as_array().cloned().unwrap_or_default()
}

fn wait_until_watched(port: u16, wanted: usize) {
    wait_until("everything has a baseline", BASELINE_LIMIT, || {
        let dependencies = list(port, "/api/v1/dependencies", "dependencies");
        dependencies.iter().filter(|it| it["state"] == "watched").count() == wanted
    });
}

/// Waits until the storm of a dependency is caught as one in step, and the clients that it may be
/// are what `named` wants.
fn expect_caught(port: u16, dependency: &str, named: impl Fn(&[&str]) -> bool) {
    let path = format!("/api/v1/incidents?dependency={dependency}");
    let mut last = Vec::new();
    let caught = wait_for(NAME_LIMIT, || {
        last = list(port, &path, "incidents");
        let [incident] = &last[..] else { return None };
        let is_caught = incident["classification"] == "backoff-without-jitter";
        let matches = incident["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rules: Vec<&str> = matches.iter().filter_map(|it| it["rule"].as_str()).collect();
        (is_caught && named(&rules)).then_some(())
    });
    let said: Vec<&Value> = last.iter().map(|it| &it["summary"]).collect();
    println!("{dependency}: {said:?}");
    assert!(caught.is_some(), "{dependency} is not told for what it is: {last:#?}");
}

/// The clients of a library, at work until they are dropped.
fn clients(folder: &Path, library: &str, replicas: &Replicas) -> Program {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut command;
    if library == "node-retry" {
        command = Command::new("node");
        // Where Debian's packages put their modules.
        command.env("NODE_PATH", "/usr/share/nodejs").arg(scripts.join("herd.cjs"));
    } else {
        // Debian's own, which sees Debian's packages, whatever else is on the path.
        command = Command::new("/usr/bin/python3");
        command.arg(scripts.join("herd.py")).arg(library);
    }
    command.arg(CLIENTS.to_string());
    command.args(replicas.ports.iter().map(u16::to_string));
    Program::start(library, folder, &mut command)
}

#[test]
fn real_clients_without_jitter_are_caught_and_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let replicas = Replicas::start(REPLICAS);
    let prometheus = prometheus_of(folder.path(), &replicas.discovery(), "1s");
    let _clients: Vec<Program> =
        LIBRARIES.iter().map(|(library, _)| clients(folder.path(), library, &replicas)).collect();
    let port = free_port();
    let mut daemon = watch(folder.path(), prometheus.port, port);
    wait_until_watched(port, LIBRARIES.len());
    for (library, _) in LIBRARIES {
        replicas.fail(library, BLIP);
    }
    for (library, rule) in LIBRARIES {
        expect_caught(port, library, |rules| rules.contains(&rule));
    }
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}

/// Shards of a Prometheus for each of its receivers, as one that has much to write.
const SHARDS: usize = 25;
/// How long the receivers fail: a dozen waves at the cap of 5 s.
const WRITE_FAILURE: Duration = Duration::from_secs(60);

/// A Prometheus that writes what it scrapes to every replica, in few and large requests: each shard
/// when it has a full one, so that they are not in step while all is well.
fn writing(replicas: &Replicas) -> String {
    let mut text = "remote_write:\n".to_owned();
    for port in &replicas.ports {
        text.push_str(&format!(
            "  - url: http://127.0.0.1:{port}/api/v1/write\n    name: r{port}\n    queue_config: \
             {{min_shards: {SHARDS}, max_shards: {SHARDS}, max_samples_per_send: 200, \
             batch_send_deadline: 60s, capacity: 2000}}\n"
        ));
    }
    text
}

#[test]
fn a_prometheus_that_writes_is_caught_and_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let replicas = Replicas::start(REPLICAS);
    let discovery = replicas.discovery();
    let prometheus = prometheus_with(folder.path(), &discovery, "1s", &writing(&replicas));
    let port = free_port();
    let mut daemon = watch(folder.path(), prometheus.port, port);
    wait_until_watched(port, 1);
    replicas.fail(WRITTEN, WRITE_FAILURE);
    // Its waits are nobody else's, once the cap has shown.
    expect_caught(port, WRITTEN, |rules| rules.first() == Some(&"prometheus-remote-write"));
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}
