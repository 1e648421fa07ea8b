//! The `notify` section: whom to tell.

use std::path::Path;

use crate::rules::spanned::{Faults, Fields, Node, Value};

use super::Secret;
use super::http::{self, HttpConfig};

/// One receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// A name of your choice, unique. Default: its kind, numbered where there are several.
    pub name: String,
    /// Whether the end of an incident is told too. Default: `true`.
    pub send_resolved: bool,
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

/// Where PagerDuty takes events outside the European region.
const PAGERDUTY_URL: &str = "https://events.pagerduty.com";
/// The kinds, for a message.
const KINDS: &str = "alertmanager, webhook, slack, pagerduty";

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
            _ => {
                faults.add(entry.line, &path, format!("unknown receiver; known: {KINDS}"));
                None
            }
        };
        let Some((name, send_resolved, kind)) = read else { continue };
        let name = match name {
            Some(name) => {
                if receivers.iter().any(|other| other.name == name) {
                    faults.add(entry.line, &format!("{path}.name"), format!("`{name}` is taken"));
                }
                name
            }
            None => free_name(kind.as_str(), &receivers),
        };
        receivers.push(Receiver { name, send_resolved, kind });
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

type Read = (Option<String>, bool, ReceiverKind);

fn one(
    node: &Node,
    path: &str,
    faults: &Faults,
    kind: impl FnOnce(&mut Fields<'_>) -> Option<ReceiverKind>,
) -> Option<Read> {
    let mut fields = Fields::open(node, path, faults)?;
    let name = fields.text("name");
    let send_resolved = fields.flag("send_resolved").unwrap_or(true);
    let kind = kind(&mut fields);
    fields.finish();
    Some((name, send_resolved, kind?))
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
