//! Telling people: who is told what, when, and how it gets there.
//!
//! ```text
//! incident -> Planner (should_notify, pure) -> outbox, durable -> Worker, one a receiver -> Notifier
//! ```
//!
//! The decision and the sending are apart. The decision is pure and is stored with the incident in
//! one transaction; the sending may fail for hours without detection noticing. Sending from the
//! pipeline, the obvious way, would let a slow receiver hold up detection, and a crash between
//! the two lose a page or send it again under another name.
//!
//! At least once: a message may arrive twice (a crash after the receiver took it, before that was
//! written down), always with the same key, which receivers use to drop the second.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::incident::IncidentId;
use crate::series::Timestamp;
use crate::store::{Delivery, Event};
use crate::wire::IncidentJson;

mod alertmanager;
mod config;
mod decide;
mod email;
mod http;
mod labels;
mod manners;
mod opsgenie;
mod pagerduty;
mod plan;
mod slack;
mod webhook;
mod worker;

pub use alertmanager::{ActiveAlerts, Alertmanager, HOLD, RESEND, RESOLVED_FOR};
pub use config::{InvalidConfig, OPSGENIE_URL, PAGERDUTY_URL, Receiver, Secret, Settings, build};
pub use decide::{Decision, Previous, REPEAT_DEFAULT, Route, Silence, should_notify};
pub use email::{Email, EmailSettings, SmtpSecurity};
pub use http::Http;
pub use labels::{Links, alert_name, annotations, fingerprint, labels};
pub use manners::{BREAKER_FAILURES, Manners, Pace};
pub use opsgenie::Opsgenie;
pub use pagerduty::Pagerduty;
pub use plan::{GROUP_WAIT, Planner, test_notification};
pub use slack::Slack;
pub use webhook::{Webhook, signature};
pub use worker::{AttemptOutcome, Meter, NoMeter, Now, Worker};

/// The kinds of receivers: a closed set, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Alertmanager, API version 2.
    Alertmanager,
    /// A webhook that takes what Alertmanager sends.
    Webhook,
    /// A Slack channel.
    Slack,
    /// PagerDuty, Events API version 2.
    Pagerduty,
    /// Opsgenie.
    Opsgenie,
    /// E-mail.
    Email,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Alertmanager,
        Self::Webhook,
        Self::Slack,
        Self::Pagerduty,
        Self::Opsgenie,
        Self::Email,
    ];

    /// The fixed name used in the configuration and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alertmanager => "alertmanager",
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::Pagerduty => "pagerduty",
            Self::Opsgenie => "opsgenie",
            Self::Email => "email",
        }
    }
}

/// One incident of a message, and what is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What is told.
    pub event: Event,
    /// The incident as it was when that was decided.
    pub incident: IncidentJson,
}

/// One message to one receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The same for every try.
    pub key: String,
    /// The incident whose page this belongs to.
    pub group: IncidentId,
    /// What is told, in order; never empty.
    pub told: Vec<Told>,
    /// The other incidents of the same page that still fire.
    pub others: Vec<Told>,
    /// The time of this try.
    pub now: Timestamp,
}

impl Message {
    /// Reads a delivery of the outbox.
    ///
    /// # Errors
    ///
    /// When a stored incident cannot be read, or there is none.
    pub fn read(delivery: &Delivery, now: Timestamp) -> Result<Self, NotifyError> {
        let read = |notification: &crate::store::Notification| {
            let incident = serde_json::from_str(&notification.content.body)
                .map_err(|cause| NotifyError::Stored { cause: Box::new(cause) })?;
            Ok::<_, NotifyError>(Told { event: notification.content.event, incident })
        };
        let told: Vec<Told> = delivery.notifications.iter().map(read).collect::<Result<_, _>>()?;
        if told.is_empty() {
            return Err(NotifyError::Stored { cause: "a delivery without a notification".into() });
        }
        Ok(Self {
            key: delivery.key.clone(),
            group: delivery.group.clone(),
            told,
            others: delivery.others.iter().map(read).collect::<Result<_, _>>()?,
            now,
        })
    }

    /// Every incident of the page: what is told now, then the others.
    pub fn all(&self) -> impl Iterator<Item = &Told> {
        self.told.iter().chain(&self.others)
    }

    /// Those that fire, after this message.
    pub fn firing(&self) -> impl Iterator<Item = &Told> {
        self.all().filter(|told| !told.event.ends())
    }

    /// Whether nothing of the page fires any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.firing().next().is_none()
    }

    /// One line for a subject: the only summary, or how many dependencies are in it.
    #[must_use]
    pub fn headline(&self) -> String {
        let names: Vec<&str> = self.all().map(|told| told.incident.dependency.as_str()).collect();
        let firing = self.firing().count();
        match (names.as_slice(), self.told.first()) {
            ([_], Some(told)) => match told.event {
                Event::Resolved => format!("Resolved: {}", told.incident.summary),
                Event::Withdrawn => format!("Withdrawn: {}", told.incident.summary),
                Event::Test => format!("Test: {}", told.incident.summary),
                Event::Firing | Event::Changed | Event::Repeated => told.incident.summary.clone(),
            },
            _ if firing == 0 => {
                format!("Resolved: {} dependencies: {}", names.len(), names.join(", "))
            }
            _ if firing == names.len() => {
                format!("{firing} dependencies storm from one cause: {}", names.join(", "))
            }
            _ => format!(
                "{firing} of {} dependencies still storm: {}",
                names.len(),
                self.firing()
                    .map(|told| told.incident.dependency.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    }

    /// The worst severity among those that fire, or among all when it is over.
    #[must_use]
    pub fn severity(&self) -> &str {
        let rank = |severity: &str| match severity {
            "critical" => 2,
            "warning" => 1,
            _ => 0,
        };
        let over = self.is_over();
        self.all()
            .filter(|told| over || !told.event.ends())
            .map(|told| told.incident.severity.as_str())
            .max_by_key(|severity| rank(severity))
            .unwrap_or("info")
    }
}

/// A way to reach people.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// The configured name: the lane in the outbox.
    fn name(&self) -> &str;

    /// What it is.
    fn kind(&self) -> Kind;

    /// Sends one message; it has a time limit of its own.
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>>;
}

/// Why a message did not get through.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// No connection, or it broke.
    #[error("cannot reach receiver `{receiver}`")]
    Unreachable {
        /// The receiver.
        receiver: String,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("receiver `{receiver}` did not answer in time")]
    Timeout {
        /// The receiver.
        receiver: String,
    },
    /// It answered that it did not take the message.
    #[error("receiver `{receiver}` answered {status}: {body}")]
    Status {
        /// The receiver.
        receiver: String,
        /// The status.
        status: u16,
        /// The start of the answer.
        body: String,
        /// When it asks to be tried again.
        retry_after: Option<Duration>,
    },
    /// It answered success and said otherwise.
    #[error("receiver `{receiver}` did not confirm the message: {body}")]
    Unconfirmed {
        /// The receiver.
        receiver: String,
        /// The start of the answer.
        body: String,
    },
    /// A secret cannot be read.
    #[error("cannot read the secret of receiver `{receiver}` from `{path}`")]
    Secret {
        /// The receiver.
        receiver: String,
        /// The file.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The message cannot be made from what is stored.
    #[error("cannot read a stored notification")]
    Stored {
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The receiver says that this message is wrong, and would be tomorrow.
    #[error("receiver `{receiver}` refused the message: {body}")]
    Refused {
        /// The receiver.
        receiver: String,
        /// What it says.
        body: String,
    },
}

/// The closed set of reasons why a message did not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No connection.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The receiver asks to go slower.
    RateLimited,
    /// Another answer than success.
    BadStatus,
    /// The message itself was refused.
    Refused,
    /// A secret cannot be read.
    Secret,
    /// A stored notification cannot be read.
    Decode,
}

impl Reason {
    /// The fixed name used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::BadStatus => "bad_status",
            Self::Refused => "refused",
            Self::Secret => "secret",
            Self::Decode => "decode",
        }
    }
}

impl NotifyError {
    /// Why, as a closed set.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Unreachable { .. } => Reason::Unreachable,
            Self::Timeout { .. } => Reason::Timeout,
            Self::Status { status: 429, .. } => Reason::RateLimited,
            Self::Status { .. } if self.is_final() => Reason::Refused,
            Self::Status { .. } | Self::Unconfirmed { .. } => Reason::BadStatus,
            Self::Secret { .. } => Reason::Secret,
            Self::Stored { .. } => Reason::Decode,
            Self::Refused { .. } => Reason::Refused,
        }
    }

    /// Whether another try of the same message cannot succeed. A wrong address or credential
    /// (401, 403, 404, 410) is not final: somebody will repair it, and the page should arrive then.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 400 | 413 | 415 | 422),
            Self::Stored { .. } | Self::Refused { .. } => true,
            _ => false,
        }
    }

    /// When the receiver asks to be tried again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
