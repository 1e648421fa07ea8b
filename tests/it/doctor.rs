//! `squall doctor` against a real Prometheus that serves three conventions at once: what it finds
//! there, and that what it writes runs without a touch.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use squall::clock::{Clock, SystemClock};
use tempfile::TempDir;

use crate::support::conventions::{CALLERS, convention};
use crate::support::http::get;
use crate::support::process::{Program, free_port, squall, wait_for, wait_until};
use crate::support::proxy::{Manner, Proxy};
use crate::support::servers::{prometheus_of, victoria_with};
use crate::support::targets::{Target, Targets};

/// Time until a baseline is there: a minute of scrapes, on a busy machine.
const BASELINE_LIMIT: Duration = Duration::from_secs(180);

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    squall().arg("doctor").args(arguments).current_dir(folder).output().expect("squall starts")
}

fn report(folder: &Path, url: &str) -> Value {
    let output = doctor(folder, &["--format=json", &format!("--prometheus.url={url}")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn watch<'v>(report: &'v Value, name: &str) -> &'v Value {
    let watches = report["sources"][0]["watches"].as_array().expect("watches");
    watches.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

/// A shop with a sidecar mesh seen by two replicas, a gRPC client, a proxy, and metrics of its own.
fn shop() -> Vec<Target> {
    let mut targets = convention("istio").targets(&[("prometheus_replica", "a")]);
    targets.extend(convention("istio").targets(&[("prometheus_replica", "b")]));
    targets.extend(convention("grpc-otel").targets(&[]));
    targets.extend(convention("haproxy").targets(&[]));
    let own = |elapsed: f64| {
        let requests = (20.0 * elapsed).floor();
        format!(
            "# TYPE shop_requests_total counter\n\
             shop_requests_total{{upstream=\"mail\",code=\"200\"}} {requests}\n\
             shop_requests_total{{upstream=\"mail\",code=\"503\"}} 3\n\
             # TYPE odd_requests_total counter\nodd_requests_total {requests}\n\
             # TYPE traefik_service_requests_total gauge\n\
             traefik_service_requests_total{{protocol=\"http\",service=\"x\",code=\"200\"}} 4\n"
        )
    };
    let labels = vec![("job", "shop".to_owned()), ("instance", "shop-0:80".to_owned())];
    targets.push(Target { labels, exposition: Box::new(own) });
    targets
}

#[test]
fn what_a_prometheus_has_is_found_and_written_down_and_runs() {
    let folder = TempDir::new().expect("a temporary folder");
    let targets = Targets::start(shop());
    let prometheus = prometheus_of(folder.path(), &targets.discovery(), "1s");
    let url = format!("http://127.0.0.1:{}", prometheus.port);
    let is_seen = |report: &Value, name: &str| {
        let watches = report["sources"][0]["watches"].as_array();
        let found = watches.and_then(|all| all.iter().find(|it| it["name"] == name));
        found
            .and_then(|it| it["dependencies"].as_array())
            .is_some_and(|all| !all.is_empty() && all.iter().all(|it| it["state"] == "watched"))
    };
    let all = ["istio", "grpc-otel", "haproxy", "shop_requests_total"];
    let found = wait_for(BASELINE_LIMIT, || {
        let report = report(folder.path(), &url);
        all.iter().all(|name| is_seen(&report, name)).then_some(report)
    })
    .expect("every dependency has a baseline in time");

    let source = &found["sources"][0];
    assert_eq!(source["scrapes"][0]["interval"], "1s", "{source:#}");
    assert_eq!(source["scrapes"][0]["targets"], 13);
    assert_eq!(source["warnings"].as_array().map(Vec::len), Some(0), "{source:#}");
    assert!(source["questions"].as_u64().is_some_and(|it| it < 100), "{source:#}");

    // The mesh: two dependencies, three callers at two phases each, by the replicas' label.
    let istio = watch(&found, "istio");
    assert_eq!((&istio["standing"], &istio["dependencies_total"]), (&"ready".into(), &2.into()));
    assert_eq!(istio["replicas"]["label"], "prometheus_replica", "{istio:#}");
    for dependency in istio["dependencies"].as_array().expect("dependencies") {
        assert_eq!(dependency["targets"], 2 * CALLERS.len(), "{dependency:#}");
        let phases = dependency["phases_seconds"].as_array().expect("phases");
        assert_eq!(phases.len(), 2 * CALLERS.len());
        assert!(phases.iter().all(|it| it.as_f64().is_some_and(|it| (0.0..1.0).contains(&it))));
        let interval = dependency["scrape_interval_seconds"].as_f64().expect("an interval");
        assert!((interval - 1.0).abs() < 0.05, "{interval}");
        // Six targets at one second: a wait of two scrapes is told for certain, and 0.1 s never.
        let waits = dependency["waits"].as_array().expect("waits");
        let told = |seconds: f64| {
            waits.iter().find(|it| it["seconds"] == seconds).map(|it| it["told_apart"] == true)
        };
        assert_eq!((told(0.1), told(2.0), told(60.0)), (Some(false), Some(true), Some(true)));
        let [told, known] =
            ["schedules_told", "schedules_known"].map(|key| dependency[key].as_u64().unwrap_or(0));
        assert!(told > 20 && told < known, "{told} of {known}");
    }
    // The other reporter of the mesh tells of the same requests: a person decides.
    assert_eq!(watch(&found, "istio-destination")["standing"], "ask");
    let haproxy = watch(&found, "haproxy");
    assert_eq!(haproxy["dependencies"][0]["targets"], CALLERS.len());
    assert!(haproxy["changes"].to_string().contains("Start counting attempts"), "{haproxy:#}");
    assert!(haproxy["cost"]["series"].as_u64().is_some_and(|it| it >= 12), "{haproxy:#}");

    // A counter of nobody's convention, one that says too little, and a gauge.
    let own = watch(&found, "shop_requests_total");
    assert_eq!((&own["origin"], &own["standing"]), (&"guess".into(), &"ready".into()));
    assert_eq!(own["by"][0], "upstream");
    assert_eq!(watch(&found, "odd_requests_total")["standing"], "ask");
    assert_eq!(watch(&found, "traefik")["standing"], "refused");

    the_table_fits_a_terminal(folder.path(), &url);
    the_configuration_runs(folder.path(), &url);
}

fn the_table_fits_a_terminal(folder: &Path, url: &str) {
    let output = doctor(folder, &[&format!("--prometheus.url={url}")]);
    let table = String::from_utf8(output.stdout).expect("text");
    println!("{table}");
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // Lines break where they must.
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in ["payments.shop.svc", "dns:///stock:443", "watched", "blind to waits", "replicas"]
    {
        assert!(table.contains(wanted), "no `{wanted}` in\n{table}");
    }
}

/// `doctor --write`, then `check`, then `run`: no hand touches the file.
fn the_configuration_runs(folder: &Path, url: &str) {
    let arguments = [&format!("--prometheus.url={url}"), "--write=squall.yml"];
    let written = doctor(folder, &arguments);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let text = fs::read_to_string(folder.join("squall.yml")).expect("the configuration");
    println!("{text}");
    // What is there is left alone.
    let again = doctor(folder, &arguments);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(fs::read_to_string(folder.join("squall.yml")).expect("the same"), text);

    let check = squall().args(["check", "squall.yml"]).current_dir(folder).output().expect("runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let port = free_port();
    let mut command = squall();
    command
        .current_dir(folder)
        .args(["run", "--config.file=squall.yml"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", folder, &mut command);
    let mut last = String::new();
    wait_until("the daemon watches what the doctor found", Duration::from_secs(120), || {
        let Some(answer) = get(port, "/api/v1/dependencies?limit=1000") else { return false };
        last = answer.body;
        let answer: Value = serde_json::from_str(&last).unwrap_or_default();
        let watched: Vec<&str> = answer["data"]["dependencies"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .filter(|it| it["state"] == "watched")
            .filter_map(|it| it["name"].as_str())
            .collect();
        ["payments.shop.svc.cluster.local", "dns:///payments:443", "payments", "mail"]
            .iter()
            .all(|name| watched.contains(name))
    });
    // The doctor reads the configuration it wrote, and finds nothing new.
    let again = doctor(folder, &["--format=json"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    let origins: Vec<&Value> = again["sources"][0]["watches"]
        .as_array()
        .expect("watches")
        .iter()
        .filter(|it| it["standing"] == "ready")
        .map(|it| &it["origin"])
        .collect();
    assert!(origins.iter().all(|it| **it == "configuration"), "{again:#}");
    assert_eq!(origins.len(), 4, "{again:#}");
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn a_served_simulation_is_examined_as_a_prometheus_is() {
    let folder = TempDir::new().expect("a temporary folder");
    let port = free_port();
    let mut command = squall();
    command.args(["simulate", "layers", "--speed=20", &format!("--serve=127.0.0.1:{port}")]);
    let _fleet = Program::start("fleet", folder.path(), &mut command);
    let url = format!("http://127.0.0.1:{port}");
    wait_until("the simulation is served", Duration::from_secs(60), || {
        get(port, "/-/ready").is_some_and(|answer| answer.status == 200)
    });
    let found = wait_for(BASELINE_LIMIT, || {
        let report = report(folder.path(), &url);
        let watches = report["sources"][0]["watches"].as_array()?;
        let seen = watches.first()?["dependencies"].as_array()?;
        (seen.len() == 3 && seen.iter().all(|it| it["state"] == "watched")).then_some(report)
    })
    .expect("every dependency has a baseline in time");
    let source = &found["sources"][0];
    assert_eq!(source["warnings"], serde_json::json!([]), "{source:#}");
    assert_eq!(source["version"], "3.5.0", "{source:#}");
    assert_eq!(source["scrapes"][0]["interval"], "1s", "{source:#}");
    let watch = watch(&found, "http-client-requests");
    assert_eq!(watch["standing"], "ready", "{watch:#}");
    let names: Vec<&Value> =
        watch["dependencies"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    for name in ["a", "b", "c"] {
        assert!(names.iter().any(|it| *it == name), "{name}: {names:?}");
    }
    // A guess at a counter that no preset reads needs its largest series.
    let query = "/api/v1/query?query=topk(2,%20http_client_requests_total)";
    let largest = get(port, query).expect("an answer").json();
    assert_eq!(largest["data"]["result"].as_array().map(Vec::len), Some(2), "{largest:#}");
}

/// Time between two pushes, milliseconds.
const PUSHED_EVERY: i64 = 15_000;
/// Pushes of each target, up to now.
const PUSHES: i64 = 60;

/// What an agent pushes: the samples of some targets, each at a phase of its own.
fn pushed() -> String {
    let mut text = String::new();
    let begin = SystemClock.now().millis() - PUSHES * PUSHED_EVERY;
    let mut targets = convention("istio").targets(&[]);
    targets.extend(convention("haproxy").targets(&[]));
    for (number, target) in (0..).zip(targets) {
        let labels: Vec<String> =
            target.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let labels = format!(",{}}} ", labels.join(","));
        for push in 0..PUSHES {
            let after = push * PUSHED_EVERY + number * 2_000;
            #[expect(clippy::cast_precision_loss, reason = "some minutes")]
            let exposition = (target.exposition)(after as f64 / 1000.0);
            for line in exposition.lines().filter(|line| !line.starts_with('#')) {
                text.push_str(&line.replace("} ", &labels));
                text.push_str(&format!(" {}\n", begin + after));
            }
        }
    }
    text
}

/// Samples that were pushed have no targets that a server could list, and Thanos and Mimir list
/// none whatever they hold: what the doctor says then comes from the samples.
#[test]
fn servers_that_list_no_targets_are_examined_by_their_samples() {
    let folder = TempDir::new().expect("a temporary folder");
    let victoria = victoria_with(folder.path(), &pushed());
    let proxy = Proxy::before(victoria.port);
    // By their documented interfaces: Mimir is under a prefix and has neither list, the querier of
    // Thanos lists no Alertmanagers, and a proxy may leave nothing but queries and labels.
    let thanos = Manner::Under("", &["/api/v1/alertmanagers"]);
    let mimir = Manner::Under("/prometheus", &["/api/v1/targets", "/api/v1/alertmanagers"]);
    let least = Manner::Under(
        "/prometheus",
        &["/api/v1/targets", "/api/v1/alertmanagers", "/api/v1/metadata", "/api/v1/status"],
    );
    let through = |prefix: &str| format!("http://127.0.0.1:{}{prefix}", proxy.port);
    for (server, manner, url) in [
        ("VictoriaMetrics", Manner::Pass, through("")),
        ("Thanos", thanos, through("")),
        ("Mimir", mimir, through("/prometheus")),
        ("queries alone", least, through("/prometheus/")),
    ] {
        proxy.turn(manner);
        let found = report(folder.path(), &url);
        let source = &found["sources"][0];
        assert_eq!(source["warnings"], serde_json::json!([]), "{server}: {source:#}");
        assert_eq!(source["scrapes"], serde_json::json!([]), "{server}: {source:#}");
        for name in ["istio", "haproxy"] {
            let watch = watch(&found, name);
            assert_eq!(watch["standing"], "ready", "{server}: {watch:#}");
            let dependencies = watch["dependencies"].as_array().expect("dependencies");
            assert_eq!(dependencies.len(), 2, "{server}: {watch:#}");
            for dependency in dependencies {
                assert_eq!(dependency["state"], "watched", "{server}: {dependency:#}");
                assert_eq!(dependency["targets"], CALLERS.len(), "{server}: {dependency:#}");
                let interval = dependency["scrape_interval_seconds"].as_f64();
                assert_eq!(interval, Some(15.0), "{server}: {dependency:#}");
            }
        }
        let written = format!("{}.yml", server.to_lowercase().replace(' ', "-"));
        let arguments = [format!("--prometheus.url={url}"), format!("--write={written}")];
        let output = doctor(folder.path(), &arguments.each_ref().map(String::as_str));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let check = squall().args(["check", &written]).current_dir(folder.path()).output();
        let check = check.expect("squall starts");
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let text = fs::read_to_string(folder.path().join(written)).expect("the configuration");
        let base = url.trim_end_matches('/');
        assert!(text.contains(&format!("url: {base}\n")), "{server}: {text}");
    }
}
