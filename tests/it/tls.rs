//! The web server on a real port, with TLS and basic authentication as exporter-toolkit has them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::process::{Program, free_port, squall, wait_until};

/// Makes a certificate of its own for `localhost`.
fn certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .arg("-keyout")
        .arg(folder.join("server.key"))
        .arg("-out")
        .arg(folder.join("server.pem"))
        .output()
        .expect("openssl can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Asks as a person would, with a client that is not ours.
fn curl(folder: &Path, port: u16, more: &[&str]) -> Output {
    Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10", "--cacert"])
        .arg(folder.join("server.pem"))
        .args(["--write-out", "\n%{http_code} %{http_version}"])
        .args(more)
        .arg(format!("https://localhost:{port}/-/healthy"))
        .output()
        .expect("curl can be run")
}

#[test]
fn the_page_is_served_by_tls_to_those_who_know_the_password() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path();
    certificate(path);
    let hash = bcrypt::hash("s3cret", 4).expect("a hash");
    let web = path.join("web.yml");
    let text = format!(
        "tls_server_config: {{cert_file: server.pem, key_file: server.key, min_version: TLS13}}\n\
         basic_auth_users: {{alice: {hash}}}\n"
    );
    fs::write(&web, text).expect("a web configuration");
    fs::write(path.join("squall.yml"), "").expect("a configuration");
    let port = free_port();
    let mut command = squall();
    command
        .arg("run")
        .arg(format!("--config.file={}", path.join("squall.yml").display()))
        .arg(format!("--storage.path={}", path.join("data").display()))
        .arg(format!("--web.config.file={}", web.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Program::start("squall", path, &mut command);
    let says = |more: &[&str]| {
        let output = curl(path, port, more);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    wait_until("the web server answers", Duration::from_secs(60), || {
        says(&["--user", "alice:s3cret"]) == "squall is healthy.\n\n200 2"
    });
    assert_eq!(says(&["--user", "alice:wrong"]), "Unauthorized\n\n401 2");
    assert_eq!(says(&[]), "Unauthorized\n\n401 2");
    assert_eq!(says(&["--http1.1", "--user", "alice:s3cret"]), "squall is healthy.\n\n200 1.1");
    // Older TLS than configured is refused before anything is said.
    let old = curl(path, port, &["--tls-max", "1.2", "--user", "alice:s3cret"]);
    assert!(!old.status.success(), "{}", String::from_utf8_lossy(&old.stdout));
    assert_eq!(daemon.terminate(), Some(0), "{}", daemon.output());
}
