//! A Slack channel, by an incoming webhook.
//!
//! A message there cannot be changed or taken back: the end is a second message.

use std::fmt::Write as _;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::config::Secret;
use super::http::quote;
use super::{Http, Kind, Links, Message, Notifier, NotifyError, Told};
use crate::wire::rfc3339;

/// The most incidents written out; Slack cuts a message of more than about 50 blocks.
const INCIDENTS_MAX: usize = 20;

/// A Slack receiver.
#[derive(Debug)]
pub struct Slack {
    pub(super) name: String,
    pub(super) webhook_url: Secret,
    pub(super) http: Http,
    pub(super) links: Links,
}

impl Slack {
    /// The message as Slack takes it.
    #[must_use]
    pub fn body(&self, message: &Message) -> Value {
        let headline = message.headline();
        let attachments: Vec<Value> =
            message.all().take(INCIDENTS_MAX).map(|told| self.attachment(told)).collect();
        json!({ "text": escape(&headline), "attachments": attachments })
    }

    fn attachment(&self, told: &Told) -> Value {
        let incident = &told.incident;
        let mut text = escape(&incident.summary);
        if let Some(found) = incident.matches.first() {
            write!(text, "\n*Schedule of:* {}", escape(&found.name)).ok();
        }
        for advice in incident.advice.iter().take(2) {
            write!(text, "\n*{}:* {}", escape(&advice.title), escape(&advice.text)).ok();
            if !advice.effect.is_empty() {
                write!(text, " _{}_", escape(&advice.effect)).ok();
            }
        }
        write!(
            text,
            "\n<{}|Picture> · <{}|Runbook>",
            self.links.plot(&incident.id),
            self.links.runbook(incident)
        )
        .ok();
        let over = told.event.ends();
        let color = match incident.severity.as_str() {
            _ if over => "good",
            "critical" => "danger",
            "warning" => "warning",
            _ => "#439fe0",
        };
        let field = |title: &str, value: &str| json!({ "title": title, "value": escape(value), "short": true });
        let state = match told.event.as_str() {
            event @ ("resolved" | "withdrawn" | "test") => event,
            _ => "firing",
        };
        json!({
            "color": color,
            "title": format!("{} is {}", escape(&incident.dependency), state),
            "title_link": self.links.incident(&incident.id),
            "fallback": escape(&incident.summary),
            "text": text,
            "mrkdwn_in": ["text"],
            "fields": [
                field("Class", &incident.classification),
                field("Severity", &incident.severity),
                field("First failure", &rfc3339(incident.started_at.0)),
            ],
        })
    }
}

/// The three characters that Slack reads as its own markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Notifier for Slack {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Slack
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let url = self.webhook_url.read(&self.name).await?;
            let body = self.body(message).to_string().into_bytes();
            let answer = self.http.post(&self.name, &url, &[], body).await?;
            // Slack says success with the word, whatever else a proxy says with 200.
            if answer.trim() == "ok" {
                return Ok(());
            }
            Err(NotifyError::Unconfirmed { receiver: self.name.clone(), body: quote(&answer) })
        })
    }
}
