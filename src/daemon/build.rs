//! From the configuration to the settings of each part.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::KnownRules;
use crate::config::{self, Config, EmailReceiver, Engine, ReceiverKind, StorageConfig};
use crate::notify::{
    self, ActiveAlerts, Alertmanager, AttemptOutcome, EmailSettings, Kind, Links, Meter, Notifier,
    Pace, Planner, Route, Settings,
};
use crate::rules::Rules;
use crate::source::prometheus;
use crate::store;
use crate::telemetry::Metrics;

use super::recorder::PlannerFactory;
use super::senders::Sender;
use super::{DaemonError, SourceFactory};

/// The settings of the store.
#[must_use]
pub fn store_config(storage: &StorageConfig) -> store::Config {
    let location = match &storage.engine {
        Engine::Sqlite(path) => store::Location::Directory(path.clone()),
        Engine::Postgres(config::Secret::Inline(url)) => store::Location::Url(url.clone()),
        Engine::Postgres(config::Secret::File(file)) => store::Location::UrlFile(file.clone()),
    };
    store::Config { location, retention: storage.retention }
}

/// The receivers in the form that `notify` has.
fn receivers(config: &Config) -> Result<Vec<notify::Receiver>, DaemonError> {
    config
        .notify
        .iter()
        .map(|receiver| {
            let failed = |cause: Box<dyn std::error::Error + Send + Sync>| DaemonError::Receiver {
                name: receiver.name.clone(),
                cause,
            };
            let http = |http: &config::HttpConfig| {
                notify::Http::new(http.clone()).map_err(|error| failed(Box::new(error)))
            };
            let settings = match &receiver.kind {
                ReceiverKind::Alertmanager(it) => {
                    Settings::Alertmanager { urls: vec![it.url.clone()], http: http(&it.http)? }
                }
                ReceiverKind::Webhook(it) => Settings::Webhook {
                    url: secret(&it.url),
                    secret: it.secret.as_ref().map(secret),
                    http: http(&it.http)?,
                },
                ReceiverKind::Slack(it) => {
                    Settings::Slack { webhook_url: secret(&it.webhook_url), http: http(&it.http)? }
                }
                ReceiverKind::Pagerduty(it) => Settings::Pagerduty {
                    url: it.url.clone(),
                    routing_key: secret(&it.routing_key),
                    http: http(&it.http)?,
                },
                ReceiverKind::Opsgenie(it) => Settings::Opsgenie {
                    url: it.url.clone(),
                    api_key: secret(&it.api_key),
                    http: http(&it.http)?,
                },
                ReceiverKind::Email(it) => Settings::Email(email(it)),
            };
            let route = Route {
                labels: receiver.r#match.clone().into_iter().collect(),
                classes: receiver.classifications.clone(),
                severity_min: receiver.severity,
                send_resolved: receiver.send_resolved,
                ..Route::default()
            };
            Ok(notify::Receiver { name: receiver.name.clone(), route, settings })
        })
        .collect()
}

fn email(it: &EmailReceiver) -> EmailSettings {
    let (host, port) = it.server().unwrap_or_default();
    EmailSettings {
        host,
        port,
        security: it.security,
        login: it.auth_username.clone().zip(it.auth_password.as_ref().map(secret)),
        from: it.from.clone(),
        to: it.to.clone(),
    }
}

fn secret(secret: &config::Secret) -> notify::Secret {
    match secret {
        config::Secret::Inline(text) => notify::Secret::Inline(text.clone()),
        config::Secret::File(path) => notify::Secret::File(path.clone()),
    }
}

/// The receivers of this configuration, ready to be sent to; `external_url` is where people reach
/// the page.
///
/// # Errors
///
/// When a receiver cannot be made from its configuration.
pub fn notifiers(
    config: &Config,
    external_url: &str,
) -> Result<Vec<Arc<dyn Notifier>>, DaemonError> {
    notify::build(&receivers(config)?, &Links::new(external_url)).map_err(|cause| {
        DaemonError::Receiver { name: "notify".to_owned(), cause: Box::new(cause) }
    })
}

/// Makes the planner of this configuration, as often as it is asked for.
pub(crate) fn planner(config: &Config) -> Result<PlannerFactory, DaemonError> {
    let receivers = receivers(config)?;
    Ok(PlannerFactory(Box::new(move || Planner::new(&receivers))))
}

/// The senders of this configuration.
pub(crate) fn senders(
    config: &Config,
    external_url: &str,
    metrics: &Metrics,
) -> Result<Vec<Sender>, DaemonError> {
    let (receivers, notifiers) = (receivers(config)?, notifiers(config, external_url)?);
    let links = Links::new(external_url);
    for receiver in &receivers {
        metrics.receiver_known(&receiver.name);
    }
    Ok(receivers
        .iter()
        .zip(notifiers)
        .map(|(receiver, notifier)| Sender {
            notifier,
            alertmanager: Alertmanager::from_receiver(receiver, links.clone())
                .map(|it| (Arc::new(it), Arc::new(ActiveAlerts::new(receiver.route.clone())))),
            meter: Arc::new(Counted { receiver: receiver.name.clone(), metrics: metrics.clone() }),
        })
        .collect())
}

/// The rules as the API lists them.
pub(crate) fn known_rules(rules: &Rules) -> KnownRules {
    let schedules = rules.schedules().iter().map(|rule| {
        let waits: Vec<Value> =
            rule.policy.waits(WAITS_LISTED).into_iter().map(|seconds| json!(seconds)).collect();
        json!({
            "id": rule.id,
            "name": rule.name,
            "ecosystem": rule.ecosystem,
            "version": rule.version,
            "reference": rule.reference,
            "says": rule.policy.says(),
            "in_step": rule.policy.jitter_fraction(WAITS_LISTED) < SPREAD_BREAKS,
            "waits_seconds": waits,
            "note": rule.note,
            "remedy": rule.remedy,
        })
    });
    let presets = rules.presets().iter().map(|preset| {
        json!({
            "id": preset.id,
            "name": preset.name,
            "reference": preset.reference,
            "requests": preset.requests,
            "errors": preset.errors,
            "by": preset.by,
            "client": preset.client,
            "pitfalls": preset.pitfalls,
        })
    });
    KnownRules { schedules: schedules.collect(), presets: presets.collect() }
}

/// Spread of the waves, against the gap before them, from which on a herd breaks up.
const SPREAD_BREAKS: f64 = 0.16;
/// Waits listed of each schedule.
const WAITS_LISTED: u32 = 8;

/// Makes sources that ask Prometheus servers.
#[must_use]
pub fn prometheus_sources(metrics: Metrics) -> SourceFactory {
    Box::new(move |config| Ok(Box::new(prometheus_source(config, &metrics)?)))
}

/// A source that asks one Prometheus server.
///
/// # Errors
///
/// When its HTTP settings cannot be used.
pub fn prometheus_source(
    config: &config::PrometheusConfig,
    metrics: &Metrics,
) -> Result<prometheus::Prometheus, DaemonError> {
    let settings = prometheus::Config {
        timeout: config.timeout,
        budget: config.timeout.saturating_mul(BUDGET_TIMEOUTS),
        http: config.http.clone(),
        ..prometheus::Config::new(&config.name, &config.url)
    };
    prometheus::Prometheus::new(settings, metrics.clone())
        .map_err(|cause| DaemonError::Source { name: config.name.clone(), cause: Box::new(cause) })
}

/// Time for a question with all its retries and parts, in time-outs of one answer: room for one
/// retry of an answer that came late.
const BUDGET_TIMEOUTS: u32 = 2;

/// Counts the tries of one receiver.
#[derive(Debug)]
struct Counted {
    receiver: String,
    metrics: Metrics,
}

impl Meter for Counted {
    fn attempted(&self, _kind: Kind, outcome: AttemptOutcome, _took: Duration) {
        let outcome = match outcome {
            AttemptOutcome::Sent => "sent",
            AttemptOutcome::Failed(_) => "failed",
            AttemptOutcome::Dead(_) => "dead",
        };
        self.metrics.notification(&self.receiver, outcome);
    }

    fn paced(&self, _kind: Kind, _pace: Pace) {}
}
