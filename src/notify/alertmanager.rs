//! Alertmanager, API version 2: alerts are stated again and again while they are true.
//!
//! Alertmanager forgets an alert that nobody states any more and never notifies of one that starts
//! and ends within its `group_wait` (30 s by default). So:
//!
//! * while an incident fires, its alert is posted every [`RESEND`] with `endsAt` four times as far
//!   ahead, as Prometheus does: one lost post ends nothing;
//! * an alert stays up for at least [`HOLD`] after it fired, however short the storm: a storm of
//!   eight seconds still gets past `group_wait` and a `group_interval` of five minutes;
//! * the end is posted for [`RESOLVED_FOR`] after it, since the post that says so may be lost too;
//! * every member of a cluster gets every post, as its manual asks.
//!
//! `startsAt` is when the incident fired and not its onset: Alertmanager flushes a new group at
//! once when an alert in it is older than `group_wait`, which would cut storms from one cause into
//! several pages. The onset is in the annotations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Http, Kind, Links, Message, Notifier, NotifyError, Now, Route, labels};
use crate::incident::{Incident, IncidentId, State};
use crate::series::Timestamp;
use crate::wire::{IncidentJson, rfc3339};

/// How often an alert is posted again; the default of Prometheus.
pub const RESEND: Duration = Duration::from_secs(60);

/// How many times `RESEND` an alert outlives its last post; the factor of Prometheus.
const RESENDS_AHEAD: u32 = 4;

/// How long an alert stays up at least: past the default `group_interval` of 5 min.
pub const HOLD: Duration = Duration::from_secs(330);

/// How long the end of an alert is posted; the time of Prometheus.
pub const RESOLVED_FOR: Duration = Duration::from_secs(900);

/// Alerts in one post; the batch of Prometheus.
const ALERTS_PER_POST: usize = 256;

/// An Alertmanager, or all members of a cluster of them.
#[derive(Debug)]
pub struct Alertmanager {
    pub(super) name: String,
    /// The addresses, each with its path prefix and without a slash at its end.
    pub(super) urls: Vec<String>,
    pub(super) http: Http,
    pub(super) links: Links,
}

/// One alert of a post.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Alert {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(rename = "startsAt")]
    starts_at: String,
    #[serde(rename = "endsAt")]
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: String,
}

/// When the alert ends, as far as is known at `now`.
pub(super) fn ends_at(incident: &IncidentJson, over: bool, now: Timestamp) -> Timestamp {
    let fired = starts_at(incident);
    if !over {
        return now.plus(RESEND * RESENDS_AHEAD);
    }
    incident.ended_at.unwrap_or(incident.updated_at).0.max(fired.plus(HOLD))
}

/// When the alert started: when the incident fired.
fn starts_at(incident: &IncidentJson) -> Timestamp {
    incident.detected_at.unwrap_or(incident.started_at).0
}

impl Alertmanager {
    pub(super) fn alert(&self, incident: &IncidentJson, over: bool, now: Timestamp) -> Alert {
        Alert {
            labels: labels::labels(incident),
            annotations: labels::annotations(incident, &self.links),
            starts_at: rfc3339(starts_at(incident)),
            ends_at: rfc3339(ends_at(incident, over, now)),
            generator_url: self.links.incident(&incident.id),
        }
    }

    /// Posts to every member. One that took it is enough for now: the next resend goes to all.
    async fn post(&self, alerts: &[Alert]) -> Result<(), NotifyError> {
        for alerts in alerts.chunks(ALERTS_PER_POST) {
            // Strings and maps always serialise.
            let body = serde_json::to_vec(alerts).unwrap_or_default();
            let posts = self.urls.iter().map(|url| {
                let url = format!("{url}/api/v2/alerts");
                let body = body.clone();
                async move { self.http.post(&self.name, &url, &[], body).await }
            });
            let mut failure = None;
            let mut taken = false;
            for answer in join_all(posts).await {
                match answer {
                    Ok(_) => taken = true,
                    Err(error) => failure = Some(error),
                }
            }
            if let (false, Some(error)) = (taken, failure) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// States the active alerts every [`RESEND`], until told to stop. Failures are left to the next
    /// turn; the outbox has its own retries for what is new.
    pub async fn keep_alive(
        self: Arc<Self>,
        active: Arc<ActiveAlerts>,
        now: Now,
        stop: CancellationToken,
    ) {
        // A random first wait: replicas started together must not post together.
        let mut wait = RESEND.mul_f64(rand::random::<f64>());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = RESEND;
            if let Err(error) = self.state(&active, now()).await {
                tracing::warn!(receiver = self.name, reason = error.reason().as_str(), %error,
                    "cannot state the active alerts again");
            }
        }
    }

    /// States the active alerts once.
    ///
    /// # Errors
    ///
    /// When no member took them.
    pub async fn state(&self, active: &ActiveAlerts, now: Timestamp) -> Result<(), NotifyError> {
        let alerts: Vec<Alert> = active
            .at(now)
            .iter()
            .map(|incident| self.alert(incident, incident.state == "resolved", now))
            .collect();
        self.post(&alerts).await
    }
}

impl Notifier for Alertmanager {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Alertmanager
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let alerts: Vec<Alert> = message
                .told
                .iter()
                .map(|told| self.alert(&told.incident, told.event.ends(), message.now))
                .collect();
            self.post(&alerts).await
        })
    }
}

/// The incidents whose alerts are to be stated again: those that fire, and those that ended lately.
#[derive(Debug)]
pub struct ActiveAlerts {
    route: Route,
    incidents: Mutex<BTreeMap<IncidentId, IncidentJson>>,
}

impl ActiveAlerts {
    /// Nothing yet, for a receiver with this route.
    #[must_use]
    pub fn new(route: Route) -> Self {
        Self { route, incidents: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IncidentId, IncidentJson>> {
        self.incidents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes incidents as they are now: on every change, and all open ones at the start.
    pub fn observe<'a>(&self, incidents: impl IntoIterator<Item = &'a Incident>) {
        let mut known = self.lock();
        for incident in incidents {
            let wanted = self.route.wants(incident);
            match incident.state {
                State::Firing if wanted => {
                    known.insert(incident.id.clone(), IncidentJson::from(incident));
                }
                // Its alert ends by itself, `RESENDS_AHEAD` turns later.
                State::Pending | State::Firing => {
                    known.remove(&incident.id);
                }
                // One that ended before it was ever seen firing needs its alert held up too.
                State::Resolved if incident.detected_at.is_some() && wanted => {
                    known.insert(incident.id.clone(), IncidentJson::from(incident));
                }
                State::Resolved => {
                    known.remove(&incident.id);
                }
            }
        }
    }

    /// Drops what fires and is not live here any more: another replica states it now, or nobody.
    pub fn retain_open(&self, is_live: impl Fn(&IncidentId) -> bool) {
        self.lock().retain(|id, incident| incident.state == "resolved" || is_live(id));
    }

    /// The incidents to state at `now`; drops those whose end was stated for long enough.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Vec<IncidentJson> {
        let mut known = self.lock();
        known.retain(|_, incident| {
            incident.state != "resolved" || now <= ends_at(incident, true, now).plus(RESOLVED_FOR)
        });
        known.values().cloned().collect()
    }
}
