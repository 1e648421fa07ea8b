//! A webhook that takes what Alertmanager sends: body version "4", with the incident under `squall`.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::Sha256;

use super::config::Secret;
use super::{Http, Kind, Links, Message, Notifier, NotifyError, Told, labels};
use crate::store::Event;
use crate::wire::{IncidentJson, rfc3339};

/// What Go prints for a time that is not set; receivers of version 4 expect it while firing.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// A webhook receiver.
#[derive(Debug)]
pub struct Webhook {
    pub(super) name: String,
    pub(super) url: Secret,
    pub(super) secret: Option<Secret>,
    pub(super) http: Http,
    pub(super) links: Links,
}

#[derive(Debug, Serialize)]
struct Body<'a> {
    receiver: &'a str,
    status: &'static str,
    alerts: Vec<Alert<'a>>,
    #[serde(rename = "groupLabels")]
    group_labels: BTreeMap<String, String>,
    #[serde(rename = "commonLabels")]
    common_labels: BTreeMap<String, String>,
    #[serde(rename = "commonAnnotations")]
    common_annotations: BTreeMap<String, String>,
    #[serde(rename = "externalURL")]
    external_url: &'a str,
    version: &'static str,
    #[serde(rename = "groupKey")]
    group_key: String,
    #[serde(rename = "truncatedAlerts")]
    truncated_alerts: u64,
    squall: &'a IncidentJson,
}

#[derive(Debug, Serialize)]
struct Alert<'a> {
    status: &'static str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(rename = "startsAt")]
    starts_at: String,
    #[serde(rename = "endsAt")]
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: String,
    fingerprint: String,
    /// Each alert carries its own incident where a page lists several.
    #[serde(skip_serializing_if = "Option::is_none")]
    squall: Option<&'a IncidentJson>,
}

impl Webhook {
    /// The body that is sent: the same for every try of a message.
    #[must_use]
    pub fn body(&self, message: &Message) -> Vec<u8> {
        let several = message.all().nth(1).is_some();
        let alerts: Vec<Alert<'_>> = message.all().map(|told| self.alert(told, several)).collect();
        let common_labels = common(alerts.iter().map(|alert| &alert.labels));
        let mut group_labels = common_labels.clone();
        group_labels.retain(|name, _| name == "alertname" || name == "dependency");
        let body = Body {
            receiver: &self.name,
            status: if message.is_over() { "resolved" } else { "firing" },
            common_annotations: common(alerts.iter().map(|alert| &alert.annotations)),
            group_labels,
            common_labels,
            external_url: &self.links.external_url,
            version: "4",
            group_key: format!("{{}}:{{incident=\"{}\"}}", message.group),
            truncated_alerts: 0,
            // A message always tells of one incident at least.
            squall: &message.told[0].incident,
            alerts,
        };
        // Strings, numbers and lists always serialise.
        let mut bytes = serde_json::to_vec(&body).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    fn alert<'a>(&self, told: &'a Told, several: bool) -> Alert<'a> {
        let incident = &told.incident;
        let labels = labels::labels(incident);
        let over = told.event.ends();
        let ended = incident.ended_at.unwrap_or(incident.updated_at);
        Alert {
            status: if over { "resolved" } else { "firing" },
            fingerprint: labels::fingerprint(&labels),
            labels,
            annotations: labels::annotations(incident, &self.links),
            starts_at: rfc3339(incident.started_at.0),
            ends_at: if over { rfc3339(ended.0) } else { NO_TIME.to_owned() },
            generator_url: self.links.incident(&incident.id),
            squall: several.then_some(incident),
        }
    }
}

/// The pairs that all of the maps share.
fn common<'a>(
    mut maps: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut shared = maps.next().cloned().unwrap_or_default();
    for map in maps {
        shared.retain(|name, value| map.get(name) == Some(value));
    }
    shared
}

/// `sha256=` and the HMAC of the body in hexadecimal digits, as GitHub signs its webhooks.
#[must_use]
pub fn signature(secret: &[u8], body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret).expect("an HMAC takes a key of any length");
    mac.update(body);
    let digits: String =
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

impl Notifier for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Webhook
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let body = self.body(message);
            let mut headers = vec![("idempotency-key", message.key.clone())];
            if message.told.iter().any(|told| told.event == Event::Test) {
                headers.push(("x-squall-test", "true".to_owned()));
            }
            if let Some(secret) = &self.secret {
                let secret = secret.read(&self.name).await?;
                headers.push(("x-squall-signature", signature(secret.as_bytes(), &body)));
            }
            let url = self.url.read(&self.name).await?;
            self.http.post(&self.name, &url, &headers, body).await.map(drop)
        })
    }
}
