//! History in a real Prometheus: `squall backtest` finds the storms that were planted in it, and
//! nothing else.
//!
//! The simulator makes the history a day at a time, `promtool` puts it into blocks, and Debian's
//! Prometheus serves them; `make test-servers` takes a VictoriaMetrics instead. `make
//! backtest-month` runs the same with the month of the promise.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use squall::series::Timestamp;
use squall::wire::{parse_rfc3339, rfc3339};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::process::{free_port, squall};
use crate::support::proxy::{Manner, Proxy};
use crate::support::servers::{backfill, history_over, succeed, victoriametrics};

/// The first instant of the history.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_035_200_000);
/// Samples that Prometheus reads for one query unless it is told otherwise.
const SAMPLES_MAX: u32 = 50_000_000;
/// Samples that a server reads for one query when it is strict: fewer than a window holds.
/// VictoriaMetrics counts the whole of every series, whatever the window, and is left as it is.
fn strict_samples() -> u32 {
    if victoriametrics().is_some() { SAMPLES_MAX } else { 5_000 }
}

/// Storms are planted this long after the beginning of a day at the least.
const QUIET_SECONDS: u32 = 7200;

/// How much history.
#[derive(Debug, Clone, Copy)]
struct Size {
    days: u32,
    day_seconds: u32,
    dependencies: u32,
    storms: u32,
    targets: u32,
}

/// A few hours, or as much as the environment says.
fn size() -> Size {
    let number = |name: &str, usual| {
        let text = squall::config::environment(name);
        text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    Size {
        days: number("SQUALL_TEST_BACKTEST_DAYS", 1),
        day_seconds: number("SQUALL_TEST_BACKTEST_DAY_SECONDS", 5 * 3600),
        dependencies: number("SQUALL_TEST_BACKTEST_DEPENDENCIES", 8),
        storms: number("SQUALL_TEST_BACKTEST_STORMS", 4),
        targets: number("SQUALL_TEST_BACKTEST_TARGETS", 4),
    }
}

/// One storm that is put into the history.
#[derive(Debug, Clone, Copy)]
struct Planted {
    day: u32,
    second: u32,
    dependency: u32,
    class: &'static str,
}

impl Planted {
    fn at(&self) -> Timestamp {
        day(self.day).plus_seconds(f64::from(self.second))
    }
}

/// Where a day begins: days are as far apart as they are on the calendar, however short.
fn day(number: u32) -> Timestamp {
    BEGIN.plus(Duration::from_secs(86_400 * u64::from(number)))
}

/// Storms spread over days, hours and dependencies.
fn planted(size: Size) -> Vec<Planted> {
    (0..size.storms)
        .map(|n| Planted {
            day: n * size.days / size.storms,
            second: QUIET_SECONDS + (n * 2633) % (size.day_seconds - QUIET_SECONDS - 1200),
            dependency: (n * 7 + 1) % size.dependencies,
            class: if n % 2 == 0 {
                "backoff-without-jitter"
            } else {
                "retry-storm-without-backoff"
            },
        })
        .collect()
}

/// The scenario of one day.
fn scenario(size: Size, number: u32, storms: &[Planted]) -> String {
    let mut text = format!(
        "about: A day of history.\nduration: {}s\nstart: {}\nscrape: {{interval: 15s, targets: {}}}\n",
        size.day_seconds,
        day(number).millis() / 1000,
        size.targets,
    );
    let (mut dependencies, mut clients) = (String::new(), String::new());
    for dependency in 0..size.dependencies {
        let mine: Vec<&Planted> = storms
            .iter()
            .filter(|storm| storm.day == number && storm.dependency == dependency)
            .collect();
        let mut faults = Vec::new();
        let mut retry = "";
        let mut rate = 3 + dependency % 5;
        for storm in mine {
            let at = storm.second;
            if storm.class == "backoff-without-jitter" {
                faults.push(format!("{{at: {at}s, for: 63500ms}}"));
                writeln!(
                    clients,
                    "- name: herd {dependency} {at}\n  calls: d{dependency}\n  size: 2000\n  \
                     at: {at}s\n  within: 100ms\n  retry: {{schedule: exponential, base: 1s, \
                     factor: 2, cap: 32s, jitter: none, retries: 7}}"
                )
                .unwrap();
            } else {
                faults.push(format!("{{at: {at}s, for: 240s}}"));
                rate = 60;
                retry = "\n  retry: {schedule: immediate, retries: 4}";
            }
        }
        writeln!(dependencies, "- name: d{dependency}\n  faults: [{}]", faults.join(", ")).unwrap();
        writeln!(
            clients,
            "- name: users {dependency}\n  calls: d{dependency}\n  rate: {rate}{retry}"
        )
        .unwrap();
    }
    write!(text, "dependencies:\n{dependencies}clients:\n{clients}").unwrap();
    text
}

/// Puts the history where a server finds it.
fn plant(folder: &Path, size: Size, storms: &[Planted]) {
    let (file, text) = (folder.join("day.yml"), folder.join("day.om"));
    for number in 0..size.days {
        fs::write(&file, scenario(size, number, storms)).unwrap();
        let mut simulate = squall();
        simulate.arg("simulate").arg(&file).arg("--out").arg(&text);
        succeed("simulate", simulate.arg(format!("--seed={number}")));
        backfill(folder, &text);
    }
}

/// `squall backtest` over the server at `port`.
fn backtest(folder: &Path, port: u16, size: Size, more: &[&str]) -> Output {
    let config = folder.join("squall.yml");
    fs::write(
        &config,
        format!(
            "prometheus:
  - {{name: main, url: http://127.0.0.1:{port}}}
watch:
  - name: http
    requests: http_client_requests_total
    errors: http_client_requests_total{{code=~\"5..\"}}
    by: [dependency]
storage: {{path: {}}}
",
            folder.join("data").display()
        ),
    )
    .unwrap();
    let end = day(size.days - 1).plus_seconds(f64::from(size.day_seconds));
    let mut command = squall();
    command
        .arg("backtest")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--from={}", rfc3339(BEGIN)))
        .arg(format!("--to={}", rfc3339(end)))
        .args(more);
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{error}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Every planted storm is one incident, of its class, at its instant; and there is no other.
fn expect_the_planted(report: &Value, storms: &[Planted]) {
    let incidents = report["incidents"].as_array().unwrap();
    let text = |incident: &Value| {
        ["dependency", "started_at", "classification", "severity", "summary"]
            .map(|key| incident[key].as_str().unwrap().to_owned())
            .join(" | ")
    };
    let mut left: Vec<&Value> = incidents.iter().collect();
    let mut faults = Vec::new();
    for storm in storms {
        let name = format!("d{}", storm.dependency);
        let is_it = |incident: &&Value| {
            let started = parse_rfc3339(incident["started_at"].as_str().unwrap()).unwrap();
            incident["dependency"] == name.as_str()
                && started.seconds_since(storm.at()).abs() <= 15.0
        };
        match left.iter().position(is_it) {
            None => faults.push(format!("missed: {storm:?} at {}", rfc3339(storm.at()))),
            Some(index) => {
                let found = left.swap_remove(index);
                // A storm of open kind is right too, as long as it pages.
                let is_open =
                    found["classification"] == "inconclusive" && found["severity"] != "info";
                if found["classification"] != storm.class && !is_open {
                    faults.push(format!("{storm:?}: {}", text(found)));
                }
            }
        }
    }
    faults.extend(left.into_iter().map(|extra| format!("not planted: {}", text(extra))));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_backtest_finds_what_was_planted_and_nothing_else_whatever_the_limits() {
    let size = size();
    println!("{size:?}");
    let folder = TempDir::new().unwrap();
    let storms = planted(size);
    plant(folder.path(), size, &storms);
    let server = history_over(folder.path(), SAMPLES_MAX);
    let begun = Instant::now();
    let first = stdout(&backtest(folder.path(), server.port, size, &["--format=json"]));
    println!("the whole of it took {:.1?}", begun.elapsed());
    let report: Value = serde_json::from_str(&first).unwrap();
    expect_the_planted(&report, &storms);
    assert_eq!(report["warnings"], serde_json::json!([]));
    let dependencies = report["dependencies"].as_array().unwrap();
    assert_eq!(dependencies.len(), usize::try_from(size.dependencies).unwrap());

    // The same bytes again, from a server that refuses what a whole window takes: of the first day,
    // since small questions take long.
    let day = Size { days: 1, ..size };
    let first = match size.days {
        1 => first,
        _ => stdout(&backtest(folder.path(), server.port, day, &["--format=json"])),
    };
    drop(server);
    let strict = history_over(folder.path(), strict_samples());
    let second = stdout(&backtest(folder.path(), strict.port, day, &["--format=json"]));
    assert!(first == second, "two runs differ");
    let table = stdout(&backtest(folder.path(), strict.port, day, &[]));
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let planted = storms.iter().filter(|storm| storm.day == 0).count();
    let paged = format!("{planted} of {planted} would have paged.");
    assert!(table.contains(&paged), "{table}");
}

/// A few hours with one storm, for what is not about finding.
const SMALL: Size = Size { days: 1, day_seconds: 3 * 3600, dependencies: 2, storms: 1, targets: 2 };

#[test]
fn what_a_backtest_found_is_history_and_told_to_nobody() {
    use squall::store::{IncidentQuery, Outbox as _, Reason, SqlStore, Store as _};
    let folder = TempDir::new().unwrap();
    let storms = planted(SMALL);
    plant(folder.path(), SMALL, &storms);
    let server = history_over(folder.path(), SAMPLES_MAX);
    for _ in 0..2 {
        stdout(&backtest(folder.path(), server.port, SMALL, &["--record"]));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqlStore::sqlite(&folder.path().join("data")).await.unwrap();
        let page = store.incidents(&IncidentQuery::default()).await.unwrap();
        assert_eq!(page.incidents.len(), 1, "{:?}", page.incidents);
        let revisions = store.revisions(&page.incidents[0].id).await.unwrap();
        let reasons: Vec<Reason> = revisions.iter().map(|it| it.reason).collect();
        assert_eq!(reasons, [Reason::Replayed]);
        assert!(store.lanes().await.unwrap().is_empty());
    });
}

#[test]
fn a_backtest_of_a_server_that_is_not_there_says_so_and_ends() {
    let folder = TempDir::new().unwrap();
    // Nobody listens on a port that was free just now.
    let output = backtest(folder.path(), free_port(), SMALL, &["--format=json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("squall: asking source `main` at http://127.0.0.1:"), "{said}");
    assert!(lines[1].starts_with("squall: cannot reach source `main`: "), "{said}");
    assert!(lines[1].ends_with("; trying again for up to 10 s"), "{said}");
    assert!(lines[2].contains("the history cannot be read on: cannot reach source"), "{said}");
}

#[test]
fn a_backtest_of_a_server_that_refuses_says_where_it_stopped() {
    let folder = TempDir::new().unwrap();
    plant(folder.path(), SMALL, &[]);
    let server = history_over(folder.path(), SAMPLES_MAX);
    let proxy = Proxy::before(server.port);
    proxy.turn(Manner::Say("403 Forbidden", "no"));
    let output = backtest(folder.path(), proxy.port, SMALL, &["--format=json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let at = rfc3339(BEGIN);
    assert!(said.contains(&format!("`--from={at}` goes on from there")), "{said}");
    assert!(said.contains("403"), "{said}");
    // What was found so far is written all the same.
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["incidents"], serde_json::json!([]));
}
