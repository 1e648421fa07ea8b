//! Debian's Prometheus and Alertmanager on free ports, each with a folder of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use super::http::{get, request};
use super::process::{Program, free_port, wait_until};

/// Time a server gets to start on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) program: Program,
}

impl Server {
    /// The same Prometheus again, where it was, with what it had.
    pub(crate) fn again(&self, folder: &Path) -> Self {
        start_prometheus(folder, self.port)
    }
}

/// Another program than Debian's, from the environment: `make test-servers` sets it.
fn program(name: &str, variable: &str) -> String {
    squall::config::environment(variable).unwrap_or_else(|| name.to_owned())
}

/// A Prometheus that scrapes what `discovery` (an address of HTTP service discovery) lists.
pub(crate) fn prometheus_of(folder: &Path, discovery: &str, interval: &str) -> Server {
    prometheus_with(folder, discovery, interval, "")
}

/// The same with more sections in its configuration.
pub(crate) fn prometheus_with(
    folder: &Path,
    discovery: &str,
    interval: &str,
    sections: &str,
) -> Server {
    fs::write(
        folder.join("prometheus.yml"),
        format!(
            "global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n\
             scrape_configs:\n  - job_name: shop\n    honor_labels: true\n    \
             http_sd_configs: [{{url: '{discovery}', refresh_interval: 5s}}]\n{sections}"
        ),
    )
    .expect("a configuration for Prometheus");
    start_prometheus(folder, free_port())
}

fn start_prometheus(folder: &Path, port: u16) -> Server {
    let config = folder.join("prometheus.yml");
    let data = folder.join("tsdb");
    let (mut command, ready) = match victoriametrics() {
        // The same scrapes and the same questions, by another server.
        Some(victoria) => {
            let mut command = Command::new(victoria);
            command
                .arg(format!("-promscrape.config={}", config.display()))
                .arg("-promscrape.config.strictParse=false")
                .arg("-promscrape.httpSDCheckInterval=5s")
                .arg(format!("-storageDataPath={}", data.display()))
                .arg(format!("-httpListenAddr=127.0.0.1:{port}"));
            (command, "/health")
        }
        None => {
            let mut command = Command::new(program("prometheus", "SQUALL_TEST_PROMETHEUS"));
            command
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"));
            (command, "/-/ready")
        }
    };
    let program = Program::start("prometheus", folder, &mut command);
    wait_until("the server is ready", START_LIMIT, || {
        get(port, ready).is_some_and(|answer| answer.status == 200)
    });
    Server { port, program }
}

/// The VictoriaMetrics to take in place of Prometheus, where there is one.
pub(crate) fn victoriametrics() -> Option<String> {
    squall::config::environment("SQUALL_TEST_VICTORIAMETRICS")
}

/// Puts one file of OpenMetrics text into what [`history_over`] serves.
pub(crate) fn backfill(folder: &Path, file: &Path) {
    if victoriametrics().is_some() {
        let mut server = history_over(folder, u32::MAX);
        let address = format!("http://127.0.0.1:{}/api/v1/import/prometheus", server.port);
        let mut curl = Command::new("curl");
        succeed("curl", curl.args(["--silent", "--fail", "-T"]).arg(file).arg(address));
        let flushed = get(server.port, "/internal/force_flush").map(|answer| answer.status);
        assert_eq!(flushed, Some(200));
        assert_eq!(server.program.terminate(), Some(0));
        return;
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(file);
    succeed("promtool", promtool.arg(folder.join("tsdb")));
}

/// Runs a program to its end, which must be a success.
pub(crate) fn succeed(what: &str, command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{error}", output.status);
    output
}

/// A server over the history in `folder`, that scrapes nothing and reads no more than `samples_max`
/// for one query.
pub(crate) fn history_over(folder: &Path, samples_max: u32) -> Server {
    if let Some(victoria) = victoriametrics() {
        return victoria_over(folder, &victoria, samples_max);
    }
    let port = free_port();
    let config = folder.join("history.yml");
    fs::write(&config, "scrape_configs: []\n").expect("a configuration for Prometheus");
    let mut command = Command::new(program("prometheus", "SQUALL_TEST_PROMETHEUS"));
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
        .arg("--storage.tsdb.retention.time=100y")
        .arg(format!("--query.max-samples={samples_max}"))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    ready(folder, &mut command, port, "/-/ready")
}

fn victoria_over(folder: &Path, victoria: &str, samples_max: u32) -> Server {
    let port = free_port();
    let mut command = Command::new(victoria);
    command
        .arg(format!("-storageDataPath={}", folder.join("history").display()))
        .arg("-retentionPeriod=100y")
        .arg(format!("-search.maxSamplesPerQuery={samples_max}"))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"));
    ready(folder, &mut command, port, "/health")
}

/// Debian's VictoriaMetrics, or the one to take in its place, with these samples pushed into it:
/// text with timestamps in milliseconds.
pub(crate) fn victoria_with(folder: &Path, samples: &str) -> Server {
    let server = victoria_over(
        folder,
        &program("victoria-metrics", "SQUALL_TEST_VICTORIAMETRICS"),
        u32::MAX,
    );
    let taken = request("POST", server.port, "/api/v1/import/prometheus", samples);
    assert!(taken.as_ref().is_some_and(|it| it.status == 204), "{taken:?}");
    let flushed = get(server.port, "/internal/force_flush").map(|answer| answer.status);
    assert_eq!(flushed, Some(200));
    server
}

fn ready(folder: &Path, command: &mut Command, port: u16, path: &str) -> Server {
    let program = Program::start("history", folder, command);
    wait_until("the server is ready", START_LIMIT, || {
        get(port, path).is_some_and(|answer| answer.status == 200)
    });
    Server { port, program }
}

/// An Alertmanager that tells `webhook` of every alert after `group_wait`.
pub(crate) fn alertmanager(folder: &Path, webhook: &str, group_wait: &str) -> Server {
    let port = free_port();
    let config = folder.join("alertmanager.yml");
    fs::write(
        &config,
        format!(
            "route: {{receiver: hook, group_by: [alertname, dependency], group_wait: {group_wait}, \
             group_interval: 5s}}\nreceivers:\n  - name: hook\n    webhook_configs:\n      \
             - url: {webhook}\n"
        ),
    )
    .expect("a configuration for Alertmanager");
    let mut command = Command::new(program("prometheus-alertmanager", "SQUALL_TEST_ALERTMANAGER"));
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.join("alertmanager").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--cluster.listen-address=");
    let program = Program::start("alertmanager", folder, &mut command);
    wait_until("Alertmanager is ready", START_LIMIT, || {
        get(port, "/-/ready").is_some_and(|answer| answer.status == 200)
    });
    Server { port, program }
}
