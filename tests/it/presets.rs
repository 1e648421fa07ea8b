//! Ten telemetry conventions, exposed in their exact names and labels and scraped by a real
//! Prometheus: a configuration of three lines watches each, with the errors and the callers right.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use squall::config::{self, Config};
use squall::rules::Rules;
use squall::series::observer::Observer;
use squall::series::table::{LabelBuffer, SeriesTable};
use squall::series::{Role, Sample, Timestamp};
use squall::source::prometheus::{self, Prometheus};
use squall::source::{SampleSink, Source, Window};
use squall::telemetry::Metrics;
use tempfile::TempDir;

use crate::support::conventions::{CALLERS, CONVENTIONS, Convention, RATES};
use crate::support::http::{get, get_json};
use crate::support::process::{Program, free_port, squall, wait_until};
use crate::support::servers::prometheus_of;
use crate::support::targets::Targets;

/// Time until a baseline is there: a minute of scrapes, on a busy machine.
const BASELINE_LIMIT: Duration = Duration::from_secs(180);
/// Seconds of samples that are counted.
const COUNTED_SECONDS: f64 = 40.0;

/// What a user writes for one convention.
fn three_lines(preset: &str, port: u16) -> String {
    format!("prometheus:\n  - url: http://127.0.0.1:{port}\nwatch: [{{preset: {preset}}}]\n")
}

/// What one dependency's counters say.
#[derive(Debug, Default)]
struct Counted {
    requests: f64,
    errors: f64,
    seconds: f64,
    callers: Vec<String>,
}

/// Takes series into the observer of their dependency.
struct Sink<'a> {
    table: &'a mut SeriesTable,
    observers: &'a mut BTreeMap<u32, Observer>,
    role: Role,
    entry: Option<squall::series::table::SeriesEntry>,
}

impl SampleSink for Sink<'_> {
    fn series(&mut self, labels: &mut LabelBuffer) -> bool {
        self.entry = Some(self.table.intern(self.role, labels));
        true
    }

    fn sample(&mut self, sample: Sample) {
        if let Some(entry) = self.entry {
            let observer = self.observers.entry(entry.dependency.0).or_default();
            observer.push(entry.role, entry.target, entry.series, sample);
        }
    }
}

/// Reads a watch as the daemon does, by the parts the daemon is made of.
async fn counted(
    server: &Prometheus,
    config: &Config,
    convention: &Convention,
) -> BTreeMap<String, Counted> {
    let watch = &config.watch[0];
    let mut table = SeriesTable::new(&watch.by, &watch.client);
    let mut observers = BTreeMap::new();
    let until = server.now().await.expect("the server's clock");
    let window = Window { after: until.plus_seconds(-COUNTED_SECONDS), until };
    for (role, selector) in watch.selectors() {
        let mut sink = Sink { table: &mut table, observers: &mut observers, role, entry: None };
        server.samples(&selector, window, &mut sink).await.expect("an answer");
    }
    let mut all = BTreeMap::new();
    for (number, mut observer) in observers {
        let number = squall::series::table::DependencyId(number);
        let name: Vec<String> =
            table.dependency_labels(number).iter().map(|(_, value)| value.to_owned()).collect();
        let mut sum = Counted::default();
        let mut spans: BTreeMap<u32, [Timestamp; 2]> = BTreeMap::new();
        for interval in observer.close(until).requests {
            sum.requests += interval.requests;
            sum.errors += interval.errors;
            let span = spans.entry(interval.target.0).or_insert([interval.from, interval.to]);
            *span = [span[0].min(interval.from), span[1].max(interval.to)];
            if let Some(label) = convention.caller {
                let labels = table.target_labels(number, interval.target);
                sum.callers.push(labels.get(label).unwrap_or_default().to_owned());
            }
        }
        sum.seconds = spans.values().map(|span| span[1].seconds_since(span[0])).sum();
        sum.callers.sort();
        sum.callers.dedup();
        all.insert(name.join("/"), sum);
    }
    all
}

#[test]
fn ten_conventions_are_watched_from_three_lines_with_errors_and_callers_right() {
    let folder = TempDir::new().expect("a temporary folder");
    let targets = CONVENTIONS.iter().flat_map(|it| it.targets(&[])).collect();
    let targets = Targets::start(targets);
    let server = prometheus_of(folder.path(), &targets.discovery(), "1s");
    let rules = Rules::builtin();

    // One daemon over all of them; each also stands alone in a configuration of three lines.
    let mut text = format!("prometheus:\n  - url: http://127.0.0.1:{}\nwatch:\n", server.port);
    for convention in &CONVENTIONS {
        text.push_str(&format!("  - preset: {}\n", convention.preset));
    }
    fs::write(folder.path().join("squall.yml"), text).expect("a configuration");
    let port = free_port();
    let mut command = squall();
    command
        .current_dir(folder.path())
        .arg("run")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder.path(), &mut command);
    let wanted = 2 * CONVENTIONS.len();
    wait_until("every dependency is watched", BASELINE_LIMIT, || {
        let Some(answer) = get(port, "/api/v1/dependencies?limit=1000") else { return false };
        let answer: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let all = answer["data"]["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|it| it["state"] == "watched").count() == wanted
    });
    let seen = get_json(port, "/api/v1/dependencies?limit=1000");
    let seen = seen["data"]["dependencies"].as_array().expect("dependencies").clone();
    assert_eq!(seen.len(), wanted, "{seen:#?}");
    for convention in &CONVENTIONS {
        for name in convention.dependencies {
            let is_it = |it: &&Value| it["watch"] == convention.preset && it["name"] == name;
            let found = seen.iter().find(is_it).unwrap_or_else(|| panic!("no {name}: {seen:#?}"));
            assert_eq!(found["targets"], CALLERS.len(), "{found:#}");
            let rate = found["baseline_rate"].as_f64().expect("a rate");
            let expected = RATES.iter().sum::<f64>() * 3.0;
            // Whole numbers of requests at whole seconds, and scrapes that are late by some ms.
            assert!((rate / expected - 1.0).abs() < 0.05, "{rate} for {expected}: {found:#}");
        }
    }
    let incidents = get_json(port, "/api/v1/incidents");
    assert_eq!(incidents["data"]["incidents"], serde_json::json!([]), "steady traffic is no storm");

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let url = format!("http://127.0.0.1:{}", server.port);
    let asked = Prometheus::new(prometheus::Config::new("main", url), Metrics::new())
        .expect("a good configuration");
    for convention in &CONVENTIONS {
        let text = three_lines(convention.preset, server.port);
        assert_eq!(text.lines().count(), 3);
        let config = config::read(&text, folder.path(), &rules).expect("a good configuration");
        let found = runtime.block_on(counted(&asked, &config, convention));
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let mut expected = convention.dependencies;
        expected.sort_unstable();
        assert_eq!(names, expected, "{}", convention.preset);
        for (name, sum) in &found {
            let about = format!("{} {name}: {sum:?}", convention.preset);
            let rate = |count: f64| count / sum.seconds;
            let [_, bad] = RATES;
            assert!((rate(sum.requests) / RATES.iter().sum::<f64>() - 1.0).abs() < 0.05, "{about}");
            assert!((rate(sum.errors) / bad - 1.0).abs() < 0.10, "{about}");
            if convention.caller.is_some() {
                assert_eq!(sum.callers, CALLERS, "{about}");
            }
        }
    }
    assert_eq!(daemon.terminate(), Some(0));
}

/// A herd that comes back on 1, 2, 4, 8 s, in the names of the Kubernetes client.
const HERD: &str = "
about: A herd of controllers.
duration: 170s
dependencies:
- name: apiserver
  faults: [{at: 110s, for: 20s}]
clients:
- {name: others, calls: apiserver, rate: 20}
- name: herd
  calls: apiserver
  size: 600
  at: 110s
  within: 100ms
  retry: {schedule: exponential, base: 1s, factor: 2, retries: 5}
scrape: {interval: 1s, targets: 4}
";

#[test]
fn a_dump_is_analysed_by_the_presets_whose_metrics_are_in_it() {
    let folder = TempDir::new().expect("a temporary folder");
    fs::write(folder.path().join("herd.yml"), HERD).expect("a scenario");
    let run = |arguments: &[&str]| {
        let output = squall().args(arguments).current_dir(folder.path()).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&["simulate", "herd.yml", "--out=plain.om", "--seed=3"]);
    let plain = fs::read_to_string(folder.path().join("plain.om")).expect("a dump");
    let named = plain
        .replace("http_client_requests", "rest_client_requests")
        .replace("dependency=", "host=");
    fs::write(folder.path().join("named.om"), named).expect("a dump");
    let found: Value = serde_json::from_slice(&run(&[
        "analyze",
        "named.om",
        "--format=json",
        "--poll-interval=5s",
    ]))
    .expect("JSON");
    let incident = &found["incidents"][0];
    let told = ["watch", "dependency"].map(|key| incident[key].clone());
    assert_eq!(told, ["kubernetes-client-go", "apiserver"], "{found:#}");
    // The advice says what it would have changed, by the simulator.
    let effects: Vec<&str> = incident["advice"]
        .as_array()
        .expect("advice")
        .iter()
        .filter_map(|advice| advice["effect"].as_str())
        .filter(|effect| !effect.is_empty())
        .collect();
    assert!(!effects.is_empty(), "{incident:#}");

    // The simulator's own dump needs no option, and its dependency is found by its label.
    let found: Value =
        serde_json::from_slice(&run(&["analyze", "plain.om", "--format=json"])).expect("JSON");
    let incident = &found["incidents"][0];
    let told = ["watch", "dependency", "classification"].map(|key| incident[key].clone());
    let wanted = ["http-client-requests", "apiserver", "backoff-without-jitter"];
    assert_eq!(told, wanted, "{found:#}");
    assert_eq!(found["warnings"], serde_json::json!([]), "{found:#}");

    // Metrics of nobody's convention: nothing is found, and it is said what to give.
    let odd = plain.replace("http_client_requests", "odd_requests");
    fs::write(folder.path().join("odd.om"), odd).expect("a dump");
    let nothing: Value =
        serde_json::from_slice(&run(&["analyze", "odd.om", "--format=json"])).expect("JSON");
    assert_eq!(nothing["incidents"].as_array().map(Vec::len), Some(0));
    let warnings = nothing["warnings"].to_string();
    assert!(warnings.contains("give --requests or --config.file"), "{warnings}");
}
