//! The labels and annotations of an alert, the same for every receiver that has them.
//!
//! Labels are an alert's identity and hold nothing that changes from poll to poll; numbers are in
//! the annotations.

use std::collections::BTreeMap;

use crate::wire::{IncidentJson, rfc3339};

/// Where links lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// squall's own address as people reach it, without a slash at its end.
    pub external_url: String,
    /// What to do about a page; the incident's class is put in the place of `{classification}`.
    pub runbook_url: Option<String>,
}

impl Links {
    /// Links to this address.
    #[must_use]
    pub fn new(external_url: &str) -> Self {
        Self { external_url: external_url.trim_end_matches('/').to_owned(), runbook_url: None }
    }

    /// The incident on the page.
    #[must_use]
    pub fn incident(&self, id: &str) -> String {
        format!("{}/?incident={id}", self.external_url)
    }

    /// The picture of the incident.
    #[must_use]
    pub fn plot(&self, id: &str) -> String {
        format!("{}/api/v1/incidents/{id}/plot.svg", self.external_url)
    }

    /// What to do about this class; the incident's own page when there is no runbook.
    #[must_use]
    pub fn runbook(&self, incident: &IncidentJson) -> String {
        match &self.runbook_url {
            Some(url) => url.replace("{classification}", &incident.classification),
            None => self.incident(&incident.id),
        }
    }
}

/// The name of the alert.
#[must_use]
pub fn alert_name(classification: &str) -> &'static str {
    // A storm of open kind is a retry storm too.
    match classification {
        "backoff-without-jitter" | "partial-jitter" => "BackoffWithoutJitter",
        _ => "RetryStorm",
    }
}

/// The labels of the alert: its own, over those of the watch.
#[must_use]
pub fn labels(incident: &IncidentJson) -> BTreeMap<String, String> {
    let mut labels = incident.labels.clone();
    let own = [
        ("alertname", alert_name(&incident.classification)),
        ("severity", incident.severity.as_str()),
        ("dependency", incident.dependency.as_str()),
        ("classification", incident.classification.as_str()),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    labels.retain(|_, value| !value.is_empty());
    labels
}

/// The annotations of the alert.
#[must_use]
pub fn annotations(incident: &IncidentJson, links: &Links) -> BTreeMap<String, String> {
    [
        ("summary", incident.summary.clone()),
        ("description", description(incident)),
        ("runbook_url", links.runbook(incident)),
        ("plot_url", links.plot(&incident.id)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The evidence and the advice, one sentence a line.
pub(super) fn description(incident: &IncidentJson) -> String {
    let mut lines = vec![format!("First failure at {}.", rfc3339(incident.started_at.0))];
    if let Some(at) = incident.next_wave_at {
        lines.push(format!("Next wave at {}.", rfc3339(at.0)));
    }
    for evidence in incident.evidence.iter().filter(|evidence| evidence.supports) {
        lines.push(sentence(&evidence.says));
    }
    // Without a schedule the matches are what cannot be ruled out.
    if let Some(found) = incident.matches.first().filter(|_| incident.schedule.is_some()) {
        lines.push(format!("The schedule is that of {}.", found.name));
    }
    for advice in &incident.advice {
        let effect =
            if advice.effect.is_empty() { String::new() } else { format!(" ({})", advice.effect) };
        lines.push(sentence(&format!("{}: {}{effect}", advice.title, advice.text)));
    }
    lines.join("\n")
}

fn sentence(text: &str) -> String {
    let ended = text.ends_with(['.', '!', '?', ')']);
    if ended { text.to_owned() } else { format!("{text}.") }
}

/// The fingerprint that Prometheus and Alertmanager give a label set: 64-bit FNV-1a over names and
/// values in order, each followed by a byte that no UTF-8 text contains.
#[must_use]
pub fn fingerprint(labels: &BTreeMap<String, String>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}
