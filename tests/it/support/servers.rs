//! Debian's Prometheus and Alertmanager on free ports, each with a folder of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::http::get;
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
    fs::write(
        folder.join("prometheus.yml"),
        format!(
            "global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n\
             scrape_configs:\n  - job_name: shop\n    honor_labels: true\n    \
             http_sd_configs: [{{url: '{discovery}', refresh_interval: 5s}}]\n"
        ),
    )
    .expect("a configuration for Prometheus");
    start_prometheus(folder, free_port())
}

fn start_prometheus(folder: &Path, port: u16) -> Server {
    let config = folder.join("prometheus.yml");
    let data = folder.join("tsdb");
    let (mut command, ready) = match squall::config::environment("SQUALL_TEST_VICTORIAMETRICS") {
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

/// A Prometheus over the blocks in `folder/tsdb`, that scrapes nothing and reads no more than
/// `samples_max` for one query.
pub(crate) fn prometheus_over(folder: &Path, samples_max: u32) -> Server {
    let config = folder.join("history.yml");
    fs::write(&config, "scrape_configs: []\n").expect("a configuration for Prometheus");
    let port = free_port();
    let mut command = Command::new(program("prometheus", "SQUALL_TEST_PROMETHEUS"));
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
        .arg("--storage.tsdb.retention.time=100y")
        .arg(format!("--query.max-samples={samples_max}"))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let program = Program::start("history", folder, &mut command);
    wait_until("the server is ready", START_LIMIT, || {
        get(port, "/-/ready").is_some_and(|answer| answer.status == 200)
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
