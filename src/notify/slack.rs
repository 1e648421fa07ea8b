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
/// The most characters of a name or a headline, and of each text under it: what people read there,
/// and far below what Slack cuts or refuses, however long a label is.
const NAME_CHARS_MAX: usize = 150;
const TEXT_CHARS_MAX: usize = 700;

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
        json!({ "text": text_of(&headline), "attachments": attachments })
    }

    fn attachment(&self, told: &Told) -> Value {
        let incident = &told.incident;
        let mut text = text_of(&incident.summary);
        if let Some(found) = incident.matches.first().filter(|_| incident.schedule.is_some()) {
            write!(text, "\n*Schedule of:* {}", name_of(&found.name)).ok();
        }
        for advice in incident.advice.iter().take(2) {
            write!(text, "\n*{}:* {}", name_of(&advice.title), text_of(&advice.text)).ok();
            if !advice.effect.is_empty() {
                write!(text, " _{}_", text_of(&advice.effect)).ok();
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
        let field = |title: &str, value: &str| json!({ "title": title, "value": name_of(value), "short": true });
        let state = match told.event.as_str() {
            event @ ("resolved" | "withdrawn" | "test") => event,
            _ => "firing",
        };
        json!({
            "color": color,
            "title": format!("{} is {}", name_of(&incident.dependency), state),
            "title_link": self.links.incident(&incident.id),
            "fallback": text_of(&incident.summary),
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

/// A name or a word, cut and escaped.
fn name_of(text: &str) -> String {
    escape(&cut(text, NAME_CHARS_MAX))
}

/// A sentence or two, cut and escaped.
fn text_of(text: &str) -> String {
    escape(&cut(text, TEXT_CHARS_MAX))
}

/// At most so many characters, the end replaced by an ellipsis where there are more.
fn cut(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut head: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        head.push('…');
    }
    head
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
