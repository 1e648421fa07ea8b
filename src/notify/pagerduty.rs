//! PagerDuty, Events API version 2: one alert a page, by its deduplication key.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::config::Secret;
use super::http::quote;
use super::{Http, Kind, Links, Message, Notifier, NotifyError};
use crate::wire::rfc3339;

/// PagerDuty's limit of a summary, in characters.
const SUMMARY_CHARS_MAX: usize = 1024;

/// The most incidents written out: PagerDuty takes 512 KB, and an incident is a few.
const INCIDENTS_MAX: usize = 50;

/// A PagerDuty service.
#[derive(Debug)]
pub struct Pagerduty {
    pub(super) name: String,
    /// The address of the API, without a slash at its end.
    pub(super) url: String,
    pub(super) routing_key: Secret,
    pub(super) http: Http,
    pub(super) links: Links,
}

impl Pagerduty {
    /// The event as PagerDuty takes it. A page ends when the last of its incidents does; until
    /// then the end of one of them updates it.
    #[must_use]
    pub fn body(&self, routing_key: &str, message: &Message) -> Value {
        let dedup_key = format!("squall-{}", message.group);
        if message.is_over() {
            return json!({
                "routing_key": routing_key,
                "event_action": "resolve",
                "dedup_key": dedup_key,
            });
        }
        // What is told first leads; others of the page where that one has ended.
        let lead = message.firing().next().map(|told| &told.incident);
        let summary: String = message.headline().chars().take(SUMMARY_CHARS_MAX).collect();
        let mut details = serde_json::Map::new();
        let incidents: Vec<Value> = message
            .all()
            .take(INCIDENTS_MAX)
            .map(|told| {
                json!({
                    "event": told.event.as_str(),
                    "id": told.incident.id,
                    "dependency": told.incident.dependency,
                    "classification": told.incident.classification,
                    "summary": told.incident.summary,
                    "url": self.links.incident(&told.incident.id),
                })
            })
            .collect();
        details.insert("incidents".to_owned(), incidents.into());
        let mut links = Vec::new();
        let mut payload = json!({
            "summary": summary,
            "severity": match message.severity() {
                severity @ ("critical" | "warning") => severity,
                _ => "info",
            },
            "source": "squall",
        });
        if let Some(incident) = lead {
            details.insert("description".to_owned(), super::labels::description(incident).into());
            payload["source"] = incident.dependency.as_str().into();
            payload["component"] = incident.dependency.as_str().into();
            payload["class"] = incident.classification.as_str().into();
            payload["timestamp"] = rfc3339(incident.started_at.0).into();
            links.push(json!({ "href": self.links.incident(&incident.id), "text": "Incident" }));
            links.push(json!({ "href": self.links.plot(&incident.id), "text": "Picture" }));
            links.push(json!({ "href": self.links.runbook(incident), "text": "Runbook" }));
        }
        payload["group"] = message.group.0.as_str().into();
        payload["custom_details"] = Value::Object(details);
        json!({
            "routing_key": routing_key,
            "event_action": "trigger",
            "dedup_key": dedup_key,
            "payload": payload,
            "links": links,
            "client": "squall",
            "client_url": self.links.external_url,
        })
    }
}

impl Notifier for Pagerduty {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Pagerduty
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let routing_key = self.routing_key.read(&self.name).await?;
            let url = format!("{}/v2/enqueue", self.url);
            let body = self.body(&routing_key, message).to_string().into_bytes();
            let answer = self.http.post(&self.name, &url, &[], body).await?;
            let status = serde_json::from_str::<Value>(&answer).unwrap_or_default();
            if status["status"] == "success" {
                return Ok(());
            }
            Err(NotifyError::Unconfirmed { receiver: self.name.clone(), body: quote(&answer) })
        })
    }
}
