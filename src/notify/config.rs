//! The receivers in their running form, and the notifiers made of them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::{
    Alertmanager, Email, EmailSettings, Http, Kind, Links, Notifier, NotifyError, Opsgenie,
    Pagerduty, Route, Slack, Webhook,
};

/// A text that is never printed: given as it is, or read from a file at every use, so that a
/// rotated secret needs no reload.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Inline(String),
    /// A file that holds it.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("<secret>"),
            Self::File(path) => write!(f, "<secret in {}>", path.display()),
        }
    }
}

impl Secret {
    /// The secret, without white space around it.
    pub(super) async fn read(&self, receiver: &str) -> Result<String, NotifyError> {
        match self {
            Self::Inline(text) => Ok(text.clone()),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(text.trim().to_owned()),
                Err(cause) => Err(NotifyError::Secret {
                    receiver: receiver.to_owned(),
                    path: path.display().to_string(),
                    cause,
                }),
            },
        }
    }
}

/// One receiver: who, for what, and how.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Its name, unique: the lane in the outbox.
    pub name: String,
    /// Which incidents it is told of.
    pub route: Route,
    /// How it is reached.
    pub settings: Settings,
}

/// How a receiver is reached.
#[derive(Debug, Clone)]
pub enum Settings {
    /// All members of an Alertmanager cluster.
    Alertmanager {
        /// Their addresses, with path prefixes.
        urls: Vec<String>,
        /// How requests are made.
        http: Http,
    },
    /// A webhook.
    Webhook {
        /// Its address.
        url: Secret,
        /// The key of its signature.
        secret: Option<Secret>,
        /// How requests are made.
        http: Http,
    },
    /// A Slack channel.
    Slack {
        /// The address of its incoming webhook.
        webhook_url: Secret,
        /// How requests are made.
        http: Http,
    },
    /// A PagerDuty service.
    Pagerduty {
        /// The address of the API.
        url: String,
        /// The integration key.
        routing_key: Secret,
        /// How requests are made.
        http: Http,
    },
    /// An Opsgenie account.
    Opsgenie {
        /// The address of the API.
        url: String,
        /// The key of the integration.
        api_key: Secret,
        /// How requests are made.
        http: Http,
    },
    /// Mail.
    Email(EmailSettings),
}

/// Where PagerDuty takes events, outside its European region.
pub const PAGERDUTY_URL: &str = "https://events.pagerduty.com";

/// Where Opsgenie takes alerts, outside its European region.
pub const OPSGENIE_URL: &str = "https://api.opsgenie.com";

impl Settings {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Alertmanager { .. } => Kind::Alertmanager,
            Self::Webhook { .. } => Kind::Webhook,
            Self::Slack { .. } => Kind::Slack,
            Self::Pagerduty { .. } => Kind::Pagerduty,
            Self::Opsgenie { .. } => Kind::Opsgenie,
            Self::Email(_) => Kind::Email,
        }
    }
}

/// Receivers that cannot be used together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidConfig {
    /// Two receivers share a lane.
    #[error("two receivers are named `{0}`")]
    Name(String),
    /// A receiver without an address.
    #[error("receiver `{0}` has no address")]
    Address(String),
}

/// Makes the notifiers.
///
/// # Errors
///
/// When two receivers share a name or one has no address.
pub fn build(
    receivers: &[Receiver],
    links: &Links,
) -> Result<Vec<Arc<dyn Notifier>>, InvalidConfig> {
    let mut made: Vec<Arc<dyn Notifier>> = Vec::with_capacity(receivers.len());
    for receiver in receivers {
        let name = receiver.name.clone();
        if made.iter().any(|other| other.name() == name) {
            return Err(InvalidConfig::Name(name));
        }
        let links = links.clone();
        let trim = |url: &str| url.trim_end_matches('/').to_owned();
        made.push(match receiver.settings.clone() {
            Settings::Alertmanager { .. } => Arc::new(
                Alertmanager::from_receiver(receiver, links)
                    .ok_or_else(|| InvalidConfig::Address(name.clone()))?,
            ),
            Settings::Webhook { url, secret, http } => {
                Arc::new(Webhook { name, url, secret, http, links })
            }
            Settings::Slack { webhook_url, http } => {
                Arc::new(Slack { name, webhook_url, http, links })
            }
            Settings::Pagerduty { url, routing_key, http } => {
                Arc::new(Pagerduty { name, url: trim(&url), routing_key, http, links })
            }
            Settings::Opsgenie { url, api_key, http } => {
                Arc::new(Opsgenie { name, url: trim(&url), api_key, http, links })
            }
            Settings::Email(settings) if settings.to.is_empty() => {
                return Err(InvalidConfig::Address(name));
            }
            Settings::Email(settings) => Arc::new(Email { name, settings, links }),
        });
    }
    Ok(made)
}

impl Alertmanager {
    /// The Alertmanager of a receiver of that kind; for [`Alertmanager::keep_alive`].
    #[must_use]
    pub fn from_receiver(receiver: &Receiver, links: Links) -> Option<Self> {
        let Settings::Alertmanager { urls, http } = &receiver.settings else { return None };
        if urls.is_empty() {
            return None;
        }
        Some(Self {
            name: receiver.name.clone(),
            urls: urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
            http: http.clone(),
            links,
        })
    }
}
