//! The `notify` section: whom to tell.

use std::collections::BTreeMap;
use std::path::Path;

use crate::classify::{Class, Severity};
use crate::notify::{OPSGENIE_URL, PAGERDUTY_URL, SmtpSecurity};
use crate::rules::spanned::{Faults, Fields, Node, Value};

use super::Secret;
use super::http::{self, HttpConfig, text_map};

/// One receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// A name of your choice, unique. Default: its kind, numbered where there are several.
    pub name: String,
    /// Whether the end of an incident is told too. Default: `true`.
    pub send_resolved: bool,
    /// Label values that the dependency must have; `dependency` is its name too. Default: any.
    pub r#match: BTreeMap<String, String>,
    /// The classes that are told. Default: those that page.
    pub classifications: Vec<Class>,
    /// The lowest severity that is told: `info`, `warning` or `critical`. Default: `info`.
    pub severity: Severity,
    /// What it is.
    pub kind: ReceiverKind,
}

/// The kinds of receivers.
#[derive(Debug, Clone, PartialEq)]
pub enum ReceiverKind {
    /// An Alertmanager, by its API version 2.
    Alertmanager(AlertmanagerReceiver),
    /// A webhook that takes what Alertmanager sends.
    Webhook(WebhookReceiver),
    /// A Slack channel.
    Slack(SlackReceiver),
    /// A PagerDuty service.
    Pagerduty(PagerdutyReceiver),
    /// An Opsgenie account.
    Opsgenie(OpsgenieReceiver),
    /// E-mail.
    Email(EmailReceiver),
}

impl ReceiverKind {
    /// The key it has in the file.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Alertmanager(_) => "alertmanager",
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::Pagerduty(_) => "pagerduty",
            Self::Opsgenie(_) => "opsgenie",
            Self::Email(_) => "email",
        }
    }
}

/// An Alertmanager. Give every one of a cluster, each as a receiver of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertmanagerReceiver {
    /// The address, with the path prefix where there is one.
    pub url: String,
    /// How it is spoken to.
    pub http: HttpConfig,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookReceiver {
    /// The address; `url_file` reads it from a file.
    pub url: Secret,
    /// The key of the signature in `X-Squall-Signature`; `secret_file` reads it from a file.
    pub secret: Option<Secret>,
    /// How it is spoken to.
    pub http: HttpConfig,
}

/// A Slack channel.
#[derive(Debug, Clone, PartialEq)]
pub struct SlackReceiver {
    /// The address of the incoming webhook, a secret; `webhook_url_file` reads it from a file.
    pub webhook_url: Secret,
    /// The proxy to go through, and whom to trust.
    pub http: HttpConfig,
}

/// A PagerDuty service, by Events API version 2.
#[derive(Debug, Clone, PartialEq)]
pub struct PagerdutyReceiver {
    /// The integration key; `routing_key_file` reads it from a file.
    pub routing_key: Secret,
    /// The address of the API. Default: `https://events.pagerduty.com`.
    pub url: String,
    /// The proxy to go through, and whom to trust.
    pub http: HttpConfig,
}

/// An Opsgenie account, by its Alert API.
#[derive(Debug, Clone, PartialEq)]
pub struct OpsgenieReceiver {
    /// The key of an API integration; `api_key_file` reads it from a file.
    pub api_key: Secret,
    /// The address of the API. Default: `https://api.opsgenie.com`.
    pub url: String,
    /// The proxy to go through, and whom to trust.
    pub http: HttpConfig,
}

/// E-mail, by SMTP.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailReceiver {
    /// Whom to write to, one or a list.
    pub to: Vec<String>,
    /// The sender.
    pub from: String,
    /// The server, `host:port`: usually port 587 with STARTTLS and 465 with TLS.
    pub smarthost: String,
    /// Whom to log in as. Default: nobody.
    pub auth_username: Option<String>,
    /// The password; `auth_password_file` reads it from a file.
    pub auth_password: Option<Secret>,
    /// `starttls` (or nothing is sent), `tls` from the first byte, or `plain`. Default: `starttls`.
    pub security: SmtpSecurity,
}

impl EmailReceiver {
    /// The name and the port of the server; it was checked when it was read.
    #[must_use]
    pub fn server(&self) -> Option<(String, u16)> {
        server(&self.smarthost)
    }
}

/// The two parts of `host:port`.
fn server(smarthost: &str) -> Option<(String, u16)> {
    let (host, port) = smarthost.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some((host.to_owned(), port.parse().ok().filter(|it| *it > 0)?))
}

/// The ways to protect a connection to a mail server, by name.
pub(crate) const SECURITIES: [(&str, SmtpSecurity); 3] = [
    ("starttls", SmtpSecurity::StartTls),
    ("tls", SmtpSecurity::Tls),
    ("plain", SmtpSecurity::Plain),
];
/// The kinds, for a message.
const KINDS: &str = "alertmanager, webhook, slack, pagerduty, opsgenie, email";
/// The severities, by name.
const SEVERITIES: [(&str, Severity); 3] =
    [("info", Severity::Info), ("warning", Severity::Warning), ("critical", Severity::Critical)];

/// Reads the list of receivers.
pub(crate) fn read(items: &[Node], folder: &Path, faults: &Faults) -> Vec<Receiver> {
    let mut receivers: Vec<Receiver> = Vec::new();
    for (index, node) in items.iter().enumerate() {
        let path = format!("notify[{index}]");
        let Value::Mapping(entries) = &node.value else {
            faults.add(node.line, &path, format!("must be a mapping of one of {KINDS}"));
            continue;
        };
        let [entry] = entries.as_slice() else {
            faults.add(node.line, &path, format!("must hold exactly one of {KINDS}"));
            continue;
        };
        let path = format!("{path}.{}", entry.key);
        let read = match entry.key.as_str() {
            "alertmanager" => one(&entry.node, &path, faults, |f| alertmanager(f, folder, faults)),
            "webhook" => one(&entry.node, &path, faults, |f| webhook(f, folder, faults)),
            "slack" => one(&entry.node, &path, faults, |f| slack(f, folder, faults)),
            "pagerduty" => one(&entry.node, &path, faults, |f| pagerduty(f, folder, faults)),
            "opsgenie" => one(&entry.node, &path, faults, |f| opsgenie(f, folder, faults)),
            "email" => one(&entry.node, &path, faults, |f| email(f, folder)),
            _ => {
                faults.add(entry.line, &path, format!("unknown receiver; known: {KINDS}"));
                None
            }
        };
        let Some((name, mut receiver)) = read else { continue };
        receiver.name = match name {
            Some(name) => {
                if receivers.iter().any(|other| other.name == name) {
                    faults.add(entry.line, &format!("{path}.name"), format!("`{name}` is taken"));
                }
                name
            }
            None => free_name(receiver.kind.as_str(), &receivers),
        };
        receivers.push(receiver);
    }
    receivers
}

/// `webhook`, or `webhook-2` when that is taken.
fn free_name(kind: &str, receivers: &[Receiver]) -> String {
    let taken = |name: &str| receivers.iter().any(|other| other.name == name);
    if !taken(kind) {
        return kind.to_owned();
    }
    let mut number = 2;
    while taken(&format!("{kind}-{number}")) {
        number += 1;
    }
    format!("{kind}-{number}")
}

/// A receiver, and the name it is given.
type Read = (Option<String>, Receiver);

fn one(
    node: &Node,
    path: &str,
    faults: &Faults,
    kind: impl FnOnce(&mut Fields<'_>) -> Option<ReceiverKind>,
) -> Option<Read> {
    let mut fields = Fields::open(node, path, faults)?;
    let name = fields.text("name");
    let send_resolved = fields.flag("send_resolved").unwrap_or(true);
    let r#match = text_map(&mut fields, "match", faults);
    let mut classifications = Vec::new();
    for name in fields.text_list("classifications").unwrap_or_default() {
        match Class::parse(&name) {
            Some(class) => classifications.push(class),
            None => {
                let known: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
                let known = known.join(", ");
                fields.fault("classifications", format!("`{name}` is no class; known: {known}"));
            }
        }
    }
    let severity = fields.one_of("severity", &SEVERITIES).unwrap_or(Severity::Info);
    let kind = kind(&mut fields);
    fields.finish();
    let receiver = Receiver {
        name: String::new(),
        send_resolved,
        r#match,
        classifications,
        severity,
        kind: kind?,
    };
    Some((name, receiver))
}

fn alertmanager(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> Option<ReceiverKind> {
    let url = http::url(fields, "url");
    if !fields.has("url") {
        fields.fault("url", "is missing");
    }
    let http = http::take(fields, folder, faults);
    Some(ReceiverKind::Alertmanager(AlertmanagerReceiver { url: url?, http }))
}

fn webhook(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> Option<ReceiverKind> {
    let url = secret_url(fields, "url", "url_file", folder);
    let secret = Secret::take(fields, "secret", "secret_file", folder);
    let http = http::take(fields, folder, faults);
    Some(ReceiverKind::Webhook(WebhookReceiver { url: url?, secret, http }))
}

fn slack(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> Option<ReceiverKind> {
    let webhook_url = secret_url(fields, "webhook_url", "webhook_url_file", folder);
    let http = http::take(fields, folder, faults);
    Some(ReceiverKind::Slack(SlackReceiver { webhook_url: webhook_url?, http }))
}

fn pagerduty(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> Option<ReceiverKind> {
    let routing_key = Secret::take(fields, "routing_key", "routing_key_file", folder);
    if routing_key.is_none() {
        fields.fault("routing_key", "is missing");
    }
    let url = http::url(fields, "url").unwrap_or_else(|| PAGERDUTY_URL.to_owned());
    let http = http::take(fields, folder, faults);
    Some(ReceiverKind::Pagerduty(PagerdutyReceiver { routing_key: routing_key?, url, http }))
}

fn opsgenie(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> Option<ReceiverKind> {
    let api_key = Secret::take(fields, "api_key", "api_key_file", folder);
    if api_key.is_none() {
        fields.fault("api_key", "is missing");
    }
    let url = http::url(fields, "url").unwrap_or_else(|| OPSGENIE_URL.to_owned());
    let http = http::take(fields, folder, faults);
    Some(ReceiverKind::Opsgenie(OpsgenieReceiver { api_key: api_key?, url, http }))
}

fn email(fields: &mut Fields<'_>, folder: &Path) -> Option<ReceiverKind> {
    let to = fields.text_list("to").unwrap_or_default();
    let from = fields.text("from");
    let smarthost = fields.text("smarthost");
    for (key, is_missing) in
        [("to", to.is_empty()), ("from", from.is_none()), ("smarthost", smarthost.is_none())]
    {
        if is_missing {
            fields.fault(key, "is missing");
        }
    }
    if let Some(smarthost) = smarthost.as_ref().filter(|it| server(it).is_none()) {
        fields.fault("smarthost", format!("must be host:port, got `{smarthost}`"));
    }
    let auth_username = fields.text("auth_username");
    let auth_password = Secret::take(fields, "auth_password", "auth_password_file", folder);
    if auth_username.is_some() != auth_password.is_some() {
        let missing = if auth_username.is_some() { "auth_password" } else { "auth_username" };
        fields.fault(missing, "is missing: a name needs its password and a password its name");
    }
    let security = fields.one_of("security", &SECURITIES).unwrap_or(SmtpSecurity::StartTls);
    Some(ReceiverKind::Email(EmailReceiver {
        to,
        from: from?,
        smarthost: smarthost?,
        auth_username,
        auth_password,
        security,
    }))
}

/// An address that is a secret in itself.
fn secret_url(
    fields: &mut Fields<'_>,
    key: &'static str,
    key_file: &'static str,
    folder: &Path,
) -> Option<Secret> {
    if fields.has(key) {
        // Checked as an address, and kept as a secret.
        http::url(fields, key)?;
    }
    let secret = Secret::take(fields, key, key_file, folder);
    if secret.is_none() {
        fields.fault(key, "is missing");
    }
    secret
}
