//! Opsgenie: one alert a page, by its alias. Its REST interface ends on 5 April 2027.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::config::Secret;
use super::{Http, Kind, Links, Message, Notifier, NotifyError, labels};

/// Opsgenie's limit of a message, in characters.
const MESSAGE_CHARS_MAX: usize = 130;

/// Opsgenie's limit of a description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 15_000;

/// Opsgenie's limit of a tag, in characters.
const TAG_CHARS_MAX: usize = 50;

/// An Opsgenie account.
#[derive(Debug)]
pub struct Opsgenie {
    pub(super) name: String,
    /// The address of the API, without a slash at its end.
    pub(super) url: String,
    pub(super) api_key: Secret,
    pub(super) http: Http,
    pub(super) links: Links,
}

impl Opsgenie {
    /// The path and the body of the request.
    #[must_use]
    pub fn request(&self, message: &Message) -> (String, Value) {
        let alias = format!("squall-{}", message.group);
        if message.is_over() {
            let path = format!("/v2/alerts/{alias}/close?identifierType=alias");
            return (path, json!({ "source": "squall", "note": message.headline() }));
        }
        let mut details = BTreeMap::new();
        let mut description = String::new();
        for told in message.all() {
            let incident = &told.incident;
            description.push_str(&format!(
                "{}: {}\n{}\n{}\n\n",
                told.event.as_str(),
                incident.summary,
                labels::description(incident),
                self.links.incident(&incident.id)
            ));
        }
        let lead = message.firing().next().map(|told| &told.incident);
        let mut tags: Vec<String> = Vec::new();
        if let Some(incident) = lead {
            details = labels::labels(incident);
            details.insert("plot_url".to_owned(), self.links.plot(&incident.id));
            details.insert("runbook_url".to_owned(), self.links.runbook(incident));
            tags.push(cut(&incident.classification, TAG_CHARS_MAX));
            tags.push(cut(&incident.severity, TAG_CHARS_MAX));
        }
        let body = json!({
            "message": cut(&message.headline(), MESSAGE_CHARS_MAX),
            "alias": alias,
            "description": cut(description.trim_end(), DESCRIPTION_CHARS_MAX),
            "details": details,
            "entity": lead.map_or("", |incident| incident.dependency.as_str()),
            "tags": tags,
            "source": "squall",
            "priority": match message.severity() {
                "critical" => "P1",
                "warning" => "P3",
                _ => "P5",
            },
        });
        ("/v2/alerts".to_owned(), body)
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

impl Notifier for Opsgenie {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Opsgenie
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let key = self.api_key.read(&self.name).await?;
            let (path, body) = self.request(message);
            let url = format!("{}{path}", self.url);
            let headers = [("authorization", format!("GenieKey {key}"))];
            let body = body.to_string().into_bytes();
            self.http.post(&self.name, &url, &headers, body).await.map(drop)
        })
    }
}
