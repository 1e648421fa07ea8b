//! The reference page of the configuration, made from the documentation of its fields.
//!
//! The sources are read as text, since documentation comments are nowhere else at run time. A
//! field is a line `pub name: Type,` under its comment; a structure is a section under its path.

/// Where each structure stands in the file, and its source.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("prometheus[]", "PrometheusConfig", include_str!("prometheus.rs")),
    ("watch[]", "WatchConfig", include_str!("watch.rs")),
    ("notify[]", "Receiver", include_str!("notify.rs")),
    ("notify[].alertmanager", "AlertmanagerReceiver", include_str!("notify.rs")),
    ("notify[].webhook", "WebhookReceiver", include_str!("notify.rs")),
    ("notify[].slack", "SlackReceiver", include_str!("notify.rs")),
    ("notify[].pagerduty", "PagerdutyReceiver", include_str!("notify.rs")),
    ("notify[].opsgenie", "OpsgenieReceiver", include_str!("notify.rs")),
    ("notify[].email", "EmailReceiver", include_str!("notify.rs")),
    ("storage", "StorageConfig", include_str!("storage.rs")),
    ("rules[]", "OwnRules", include_str!("rules.rs")),
    ("HTTP, in `prometheus[]` and in each receiver", "HttpConfig", include_str!("../http.rs")),
    ("basic_auth", "BasicAuth", include_str!("../http.rs")),
    ("authorization", "Authorization", include_str!("../http.rs")),
    ("oauth2", "OAuth2", include_str!("../http.rs")),
    ("tls_config", "TlsConfig", include_str!("../http.rs")),
];

/// Fields that are not keys of the file: they hold what stands beside them there.
const NOT_KEYS: &[&str] = &["http", "kind", "inline", "known"];

/// The page, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Every key of `squall.yml`. Unknown keys are errors. Durations are written as Prometheus\n\
         writes them (`15s`, `1h30m`); `${…}` is not expanded. A secret is written in place or read\n\
         from a file by the same key with `_file`, and is never printed. Paths are relative to the\n\
         file they stand in, `storage.path` to where the daemon is started. `squall check FILE`\n\
         tells every fault at once, `squall check --effective FILE` fills in every default.\n\n\
         This page is made from the source; a test keeps it fresh.\n",
    );
    for (path, name, source) in SECTIONS {
        page.push_str(&format!("\n## {path}\n\n"));
        let (about, fields) = structure(source, name);
        page.push_str(&format!("{about}\n\n| key | meaning |\n| --- | --- |\n"));
        for (field, doc) in fields {
            page.push_str(&format!("| `{field}` | {doc} |\n"));
        }
    }
    page
}

/// The documentation of a structure, and its fields with theirs.
fn structure(source: &str, name: &str) -> (String, Vec<(String, String)>) {
    let head = format!("pub struct {name} {{");
    let mut doc: Vec<&str> = Vec::new();
    let mut about = String::new();
    let mut fields = Vec::new();
    let mut inside = false;
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if line == head {
            about = doc.join(" ");
            doc.clear();
            inside = true;
        } else if inside && line == "}" {
            break;
        } else if let Some((field, _)) =
            line.strip_prefix("pub ").filter(|_| inside).and_then(|rest| rest.split_once(':'))
        {
            let field = field.trim_start_matches("r#");
            let key = if field == "engine" { "path, url" } else { field };
            if !NOT_KEYS.contains(&key) {
                // A bar would end the cell.
                fields.push((key.to_owned(), doc.join(" ").replace('|', "\\|")));
            }
            doc.clear();
        } else if !line.starts_with("#[") {
            doc.clear();
        }
    }
    (about, fields)
}
