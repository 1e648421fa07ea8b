//! A configuration with all its defaults filled in, as `squall check --effective` prints it.
//!
//! It is YAML that reads back to the same configuration, except that a secret written in the file
//! is shown as `<secret>`.

use std::fmt::Write;
use std::path::Path;

use super::notify::{EmailReceiver, ReceiverKind, SECURITIES};
use super::secret::HIDDEN;
use super::storage::Engine;
use super::{Config, HttpConfig, Secret, WatchConfig, written};

/// Writes `config` as YAML.
#[must_use]
pub fn effective(config: &Config) -> String {
    let mut page = Page { text: String::new() };
    page.head(0, "prometheus", config.prometheus.is_empty());
    for source in &config.prometheus {
        page.item("name", &source.name);
        page.pair(2, "url", &source.url);
        match source.poll_interval {
            Some(interval) => page.pair(2, "poll_interval", &written(interval)),
            None => page.line(2, "# poll_interval: the shortest scrape interval seen"),
        }
        page.pair(2, "timeout", &written(source.timeout));
        page.http(2, &source.http);
    }
    page.head(0, "watch", config.watch.is_empty());
    for watch in &config.watch {
        page.watch(watch);
    }
    page.head(0, "notify", config.notify.is_empty());
    for receiver in &config.notify {
        page.line(1, &format!("- {}:", receiver.kind.as_str()));
        page.pair(4, "name", &receiver.name);
        page.line(4, &format!("send_resolved: {}", receiver.send_resolved));
        if !receiver.r#match.is_empty() {
            page.line(4, "match:");
            for (name, value) in &receiver.r#match {
                page.pair(5, name, value);
            }
        }
        if !receiver.classifications.is_empty() {
            let names: Vec<&str> =
                receiver.classifications.iter().map(|class| class.as_str()).collect();
            page.line(4, &format!("classifications: [{}]", names.join(", ")));
        }
        page.pair(4, "severity", receiver.severity.as_str());
        match &receiver.kind {
            ReceiverKind::Alertmanager(it) => {
                page.pair(4, "url", &it.url);
                page.http(4, &it.http);
            }
            ReceiverKind::Webhook(it) => {
                page.secret(4, "url", &it.url);
                if let Some(secret) = &it.secret {
                    page.secret(4, "secret", secret);
                }
                page.http(4, &it.http);
            }
            ReceiverKind::Slack(it) => {
                page.secret(4, "webhook_url", &it.webhook_url);
                page.http(4, &it.http);
            }
            ReceiverKind::Pagerduty(it) => {
                page.secret(4, "routing_key", &it.routing_key);
                page.pair(4, "url", &it.url);
                page.http(4, &it.http);
            }
            ReceiverKind::Opsgenie(it) => {
                page.secret(4, "api_key", &it.api_key);
                page.pair(4, "url", &it.url);
                page.http(4, &it.http);
            }
            ReceiverKind::Email(it) => page.email(4, it),
        }
    }
    page.head(0, "storage", false);
    match &config.storage.engine {
        Engine::Sqlite(path) => page.path(1, "path", path),
        Engine::Postgres(url) => page.secret(1, "url", url),
    }
    page.pair(1, "retention", &written(config.storage.retention));
    page.text.push_str(&config.rules.section());
    page.text
}

/// The text so far; indents count in steps of two spaces, list items at one.
struct Page {
    text: String,
}

impl Page {
    fn email(&mut self, indent: usize, it: &EmailReceiver) {
        self.line(indent, "to:");
        for address in &it.to {
            self.line(indent + 1, &format!("- {address:?}"));
        }
        self.pair(indent, "from", &it.from);
        self.pair(indent, "smarthost", &it.smarthost);
        if let (Some(name), Some(password)) = (&it.auth_username, &it.auth_password) {
            self.pair(indent, "auth_username", name);
            self.secret(indent, "auth_password", password);
        }
        let security = SECURITIES.iter().find(|(_, security)| *security == it.security);
        self.pair(indent, "security", security.map_or("", |(name, _)| name));
    }

    fn line(&mut self, indent: usize, text: &str) {
        let _infallible = writeln!(self.text, "{:width$}{text}", "", width = indent * 2);
    }

    fn head(&mut self, indent: usize, key: &str, empty: bool) {
        self.line(indent, &format!("{key}:{}", if empty { " []" } else { "" }));
    }

    fn item(&mut self, key: &str, value: &str) {
        self.line(1, &format!("- {key}: {}", quoted(value)));
    }

    fn pair(&mut self, indent: usize, key: &str, value: &str) {
        self.line(indent, &format!("{key}: {}", quoted(value)));
    }

    fn path(&mut self, indent: usize, key: &str, path: &Path) {
        self.pair(indent, key, &path.to_string_lossy());
    }

    fn list(&mut self, indent: usize, key: &str, values: &[String]) {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        self.line(indent, &format!("{key}: [{}]", values.join(", ")));
    }

    fn secret(&mut self, indent: usize, key: &str, secret: &Secret) {
        match secret {
            Secret::Inline(_) => self.pair(indent, key, HIDDEN),
            Secret::File(path) => self.path(indent, &format!("{key}_file"), path),
        }
    }

    fn map<'a>(
        &mut self,
        indent: usize,
        key: &str,
        pairs: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) {
        let mut pairs = pairs.into_iter().peekable();
        if pairs.peek().is_none() {
            return;
        }
        self.head(indent, key, false);
        for (name, value) in pairs {
            self.pair(indent + 1, &quoted(name), value);
        }
    }

    fn watch(&mut self, watch: &WatchConfig) {
        self.item("name", &watch.name);
        // The selectors below are those of the preset, narrowed: it is named for the reader only.
        if let Some(preset) = &watch.preset {
            self.line(2, &format!("# preset: {}", quoted(preset)));
        }
        self.pair(2, "requests", &watch.requests.to_string());
        if let Some(errors) = &watch.errors {
            self.pair(2, "errors", &errors.to_string());
        }
        if !watch.retries.is_empty() {
            let retries: Vec<String> = watch.retries.iter().map(ToString::to_string).collect();
            self.list(2, "retries", &retries);
        }
        if let Some(calls) = &watch.calls {
            self.pair(2, "calls", &calls.to_string());
        }
        self.list(2, "by", &watch.by);
        self.list(2, "client", &watch.client);
        if watch.counts_calls {
            self.line(2, "counts_calls: true");
        }
        if !watch.sources.is_empty() {
            self.list(2, "sources", &watch.sources);
        }
        if !watch.flush_intervals.is_empty() {
            let intervals: Vec<String> =
                watch.flush_intervals.iter().copied().map(written).collect();
            self.list(2, "flush_intervals", &intervals);
        }
    }

    fn http(&mut self, indent: usize, http: &HttpConfig) {
        // A header may carry a token (`X-Api-Key`), so only its name is shown.
        let hidden = HIDDEN.to_owned();
        self.map(indent, "headers", http.headers.keys().map(|name| (name, &hidden)));
        if let Some(basic) = &http.basic_auth {
            self.head(indent, "basic_auth", false);
            match &basic.username {
                Secret::Inline(name) => self.pair(indent + 1, "username", name),
                Secret::File(path) => self.path(indent + 1, "username_file", path),
            }
            self.secret(indent + 1, "password", &basic.password);
        }
        if let Some(authorization) = &http.authorization {
            self.head(indent, "authorization", false);
            self.pair(indent + 1, "type", &authorization.r#type);
            self.secret(indent + 1, "credentials", &authorization.credentials);
        }
        if let Some(oauth2) = &http.oauth2 {
            self.head(indent, "oauth2", false);
            self.pair(indent + 1, "client_id", &oauth2.client_id);
            self.secret(indent + 1, "client_secret", &oauth2.client_secret);
            self.pair(indent + 1, "token_url", &oauth2.token_url);
            self.list(indent + 1, "scopes", &oauth2.scopes);
            self.map(indent + 1, "endpoint_params", &oauth2.endpoint_params);
        }
        let tls = &http.tls_config;
        if *tls != super::TlsConfig::default() {
            self.head(indent, "tls_config", false);
            let files = [
                ("ca_file", &tls.ca_file),
                ("cert_file", &tls.cert_file),
                ("key_file", &tls.key_file),
            ];
            for (key, file) in files {
                if let Some(file) = file {
                    self.path(indent + 1, key, file);
                }
            }
            if let Some(name) = &tls.server_name {
                self.pair(indent + 1, "server_name", name);
            }
            let skips = tls.insecure_skip_verify;
            self.line(indent + 1, &format!("insecure_skip_verify: {skips}"));
        }
        if let Some(proxy) = &http.proxy_url {
            self.pair(indent, "proxy_url", proxy);
        }
    }
}

/// A text as a YAML scalar: plain where that is safe, else in double quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:".contains(&b))
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && !text.ends_with(':')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain || text == HIDDEN || is_duration(text) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                let _infallible = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn is_duration(text: &str) -> bool {
    crate::series::selector::parse_duration(text).is_some()
}
