//! The configuration as a person meets it: one tiny file for each mistake, with the exact text
//! that is shown for it, and the sample and reference page that are shipped.
//!
//! `SQUALL_BLESS=1 cargo test --test it config` writes the expected texts and the reference page
//! again; what it wrote is then read in the diff.

use std::fs;
use std::path::{Path, PathBuf};

use squall::config;
use squall::rules::Rules;

/// Compares with a file, or writes it when asked to.
fn check_golden(path: &Path, actual: &str) -> Option<String> {
    if config::environment("SQUALL_BLESS").is_some() {
        fs::write(path, actual).expect("the expected text can be written");
        return None;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    (expected != actual)
        .then(|| format!("{}\n--- expected\n{expected}\n--- actual\n{actual}", path.display()))
}

fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder of the repository")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn every_mistake_is_shown_with_its_file_line_and_key_path() {
    let rules = Rules::builtin();
    let mut wrong = Vec::new();
    let files = files_in("tests/config", "yml");
    assert!(files.len() >= 20, "only {} files of mistakes", files.len());
    for file in files {
        let web = file.to_string_lossy().contains("/web-");
        let shown = if web {
            config::web::load(&file).map(|_| ()).map_err(|error| error.to_string())
        } else {
            config::load(&file, &rules).map(|_| ()).map_err(|error| error.to_string())
        };
        let Err(shown) = shown else {
            wrong.push(format!("{} has no fault", file.display()));
            continue;
        };
        wrong.extend(check_golden(&file.with_extension("txt"), &format!("{shown}\n")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_expected_text_has_its_file() {
    for text in files_in("tests/config", "txt") {
        assert!(text.with_extension("yml").exists(), "{} has no file", text.display());
    }
}

#[test]
fn the_sample_is_good_and_says_what_it_means() {
    let sample = config::load(Path::new("deploy/squall.yml"), &Rules::builtin());
    let sample = sample.expect("the sample is a good configuration");
    assert_eq!(sample.prometheus[0].url, "http://127.0.0.1:9090");
    assert_eq!(sample.watch[0].by, ["dependency"]);
    assert_eq!(sample.notify[0].name, "alertmanager");
}

#[test]
fn the_effective_configuration_reads_back_to_itself_and_shows_no_secret() {
    let rules = Rules::builtin();
    let text = r#"
prometheus:
  - url: https://prometheus.example/prefix/
    headers: {X-Scope-OrgID: "tenant-${NOT_EXPANDED}"}
    authorization: {credentials: t0ken}
    tls_config: {ca_file: ca.pem, server_name: prometheus}
watch:
  - requests: '{__name__="http.requests", zone!~"a|b"}'
    errors: http_errors_total{code="5\"5"}
    retries: [r_total, s_total]
    by: [dependency, zone]
    flush_intervals: [30s]
notify:
  - webhook: {url: "https://oncall.example/hook?key=s3cret", secret: hunter2}
  - webhook: {url_file: hook.url, send_resolved: false}
  - pagerduty: {routing_key: r0uting, match: {team: shop}, severity: critical}
  - opsgenie: {api_key: 0psgenie, classifications: [partial-jitter, inconclusive]}
  - email:
      to: [oncall@shop.example, "second@shop.example"]
      from: squall@shop.example
      smarthost: "mail.example:465"
      auth_username: squall
      auth_password: p0st
      security: tls
storage: {url: "postgres://squall:pa55@db/squall", retention: 1y}
rules:
  - id: checkout
    name: "Checkout's own: client"
    version: "1.0"
    policy: {family: list, waits: [250ms, 1s, 2s], attempts: 4}
    cases:
      - waits: [0.25, 1, 2]
"#;
    let folder = Path::new("conf");
    let config = config::read(text, folder, &rules).expect("a good configuration");
    assert_eq!(config.prometheus[0].http.headers["X-Scope-OrgID"], "tenant-${NOT_EXPANDED}");
    assert_eq!(config.prometheus[0].url, "https://prometheus.example/prefix");
    let printed = config::effective(&config);
    for secret in ["t0ken", "s3cret", "hunter2", "r0uting", "0psgenie", "p0st", "pa55"] {
        assert!(!printed.contains(secret), "`{secret}` is printed:\n{printed}");
        assert!(!format!("{config:?}").contains(secret), "`{secret}` is in the debug output");
    }
    // What is hidden is hidden again; everything else must survive.
    let readable = printed.replace("url: <secret>", "url: http://hidden").replace("conf/", "");
    let again = config::read(
        &readable.replace("storage:\n  url: http://hidden", "storage:\n  url: postgres://hidden"),
        folder,
        &rules,
    );
    let again = config::effective(&again.unwrap_or_else(|faults| panic!("{faults:?}\n{printed}")));
    assert_eq!(again, printed);
}

#[test]
fn an_empty_file_is_a_configuration_with_every_default() {
    let config = config::read("", Path::new(""), &Rules::builtin()).expect("no fault");
    assert_eq!(
        config::effective(&config),
        "prometheus: []\nwatch: []\nnotify: []\nstorage:\n  path: data/\n  retention: 400d\n"
    );
}

#[test]
fn the_reference_page_is_fresh() {
    let stale = check_golden(Path::new("deploy/configuration.md"), &config::reference());
    assert!(stale.is_none(), "{}", stale.unwrap_or_default());
}
