//! A PostgreSQL cluster of the test's own, on a free loopback port.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// How long a cluster may take to answer, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running cluster, stopped and deleted when dropped.
pub(crate) struct Cluster {
    server: Child,
    port: u16,
    // Deleted last: fields drop in order.
    _directory: tempfile::TempDir,
}

impl Cluster {
    /// Makes a cluster and waits until it answers.
    pub(crate) async fn start() -> Self {
        let bin = binaries();
        let directory = tempfile::Builder::new().prefix("squall-pg").tempdir().unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if is_root() {
            // PostgreSQL refuses to run as root; the directories must be its user's.
            let owned = Command::new("chown")
                .args(["-R", "postgres:postgres"])
                .arg(directory.path())
                .status();
            assert!(owned.unwrap().success(), "cannot give the data directory to `postgres`");
        }
        let made = unprivileged(&bin.join("initdb"))
            .args(["--auth=trust", "--username=squall", "--no-sync", "--encoding=UTF8", "-D"])
            .arg(&data)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = unprivileged(&bin.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(["-c", "fsync=off", "-c", "max_connections=200"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut cluster = Self { server, port, _directory: directory };
        cluster.wait().await;
        cluster
    }

    async fn wait(&mut self) {
        let url = self.url("postgres");
        let answered = tokio::time::timeout(START_LIMIT, async {
            loop {
                if let Some(status) = self.server.try_wait().unwrap() {
                    panic!("postgres ended with {status}");
                }
                if PgConnection::connect(&url).await.is_ok() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        answered.await.expect("postgres answers within its limit");
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://squall@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Makes an empty database; returns its address.
    pub(crate) async fn database(&self, name: &str) -> String {
        // PostgreSQL cuts names to 63 bytes.
        let name = &name[..name.len().min(60)];
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{name}\"")))
            .execute(&mut connection)
            .await
            .unwrap();
        self.url(name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGQUIT stops it and its children at once; SIGKILL would leave the children behind.
        Command::new("kill").args(["-QUIT", &self.server.id().to_string()]).status().ok();
        self.server.wait().ok();
    }
}

/// The newest PostgreSQL that Debian's packages installed.
fn binaries() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed (Debian: apt-get install postgresql)")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            path.join("bin/postgres").exists().then(|| (version, path.join("bin")))
        })
        .collect();
    versions.sort();
    versions.pop().expect("a PostgreSQL server is installed").1
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command that runs as `postgres` when the tests run as root, and that ends with the test.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg("--pdeathsig=QUIT").arg(program);
    command
}
