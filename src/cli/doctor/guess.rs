//! Counters of nobody's convention that look like requests, so that a shop with metrics of its own
//! gets a configuration too.
//!
//! A guess is written down as a watch only where labels name both the dependency and the outcome;
//! else it is a suggestion for a person to complete.

use crate::config::{self, WatchConfig};
use crate::series::Labels;
use crate::source::SourceError;

use super::ask::Asker;
use super::examine::{Found, Origin};

/// How a counter of requests is called.
const ENDINGS: [&str; 6] = [
    "requests_total",
    "request_total",
    "calls_total",
    "attempts_total",
    "requests_seconds_count",
    "request_duration_seconds_count",
];
/// What servers count about themselves: never a dependency of the user's.
const OWN: [&str; 9] = [
    "prometheus_",
    "promhttp_",
    "alertmanager_",
    "squall_",
    "vm_",
    "vmagent_",
    "thanos_",
    "grafana_",
    "go_",
];
/// Labels that name a dependency, the clearest first.
const DEPENDENCY_LABELS: [&str; 13] = [
    "dependency",
    "upstream",
    "destination_service",
    "destination",
    "target_service",
    "remote_service",
    "peer_service",
    "callee",
    "backend",
    "server_address",
    "client_name",
    "host",
    "service",
];
/// Labels that hold an HTTP status.
const STATUS_LABELS: [&str; 7] = [
    "code",
    "status",
    "status_code",
    "http_status",
    "http_status_code",
    "http_response_status_code",
    "response_code",
];
/// Labels that hold a word for the outcome.
const OUTCOME_LABELS: [&str; 3] = ["outcome", "result", "status"];
/// Words for a failure.
const FAILURES: [&str; 6] = ["error", "failure", "failed", "timeout", "SERVER_ERROR", "ERROR"];

/// Counters looked at, and counters named.
const GUESSES_MAX: usize = 4;
/// Names listed of those that nothing reads.
const UNCLAIMED_MAX: usize = 8;
/// Series of a counter whose labels are looked at.
const SERIES_LOOKED_AT: usize = 50;

/// A watch that may be what the user wants.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) config: WatchConfig,
    /// What a person has to decide; none where labels say it all.
    pub(super) doubt: Option<String>,
}

/// Whether some watch reads a metric.
fn is_read(name: &str, watches: &[Found]) -> bool {
    watches.iter().any(|found| {
        let own = found.config.selectors().into_iter();
        let breakers = match &found.origin {
            Origin::Preset(preset) => preset.breakers.clone(),
            _ => Vec::new(),
        };
        own.filter_map(|(_, selector)| selector.name().map(str::to_owned)).any(|it| it == name)
            || breakers.iter().any(|it| it.split('{').next() == Some(name))
    })
}

/// Counters by their name that look like requests, and that no watch reads.
fn candidates<'a>(names: &'a [String], watches: &'a [Found]) -> impl Iterator<Item = &'a String> {
    names.iter().filter(|name| {
        ENDINGS.iter().any(|ending| name.ends_with(ending))
            && !OWN.iter().any(|own| name.starts_with(own))
            && !is_read(name, watches)
    })
}

/// The names of such counters, for people.
pub(super) fn unclaimed(names: &[String], watches: &[Found]) -> Vec<String> {
    candidates(names, watches).take(UNCLAIMED_MAX).cloned().collect()
}

/// Watches made of counters that no preset reads.
///
/// # Errors
///
/// When the server does not answer.
pub(super) async fn guesses(
    asker: &mut Asker<'_>,
    names: &[String],
    watches: &[Found],
) -> Result<Vec<Guess>, SourceError> {
    let mut all = Vec::new();
    let chosen: Vec<&String> = candidates(names, watches).take(GUESSES_MAX).collect();
    for name in chosen {
        let query = format!("topk({SERIES_LOOKED_AT}, {{__name__={name:?}}})");
        let series = asker.vector(&query).await?;
        let labels: Vec<&Labels> = series.iter().map(|(labels, _)| labels).collect();
        all.extend(guess(name, &labels));
    }
    Ok(all)
}

/// A watch of one counter, from the labels of some of its series.
fn guess(name: &str, series: &[&Labels]) -> Option<Guess> {
    let values = |label: &str| -> Vec<&str> {
        series.iter().filter_map(|labels| labels.get(label)).collect()
    };
    let by = DEPENDENCY_LABELS.iter().find(|label| !values(label).is_empty());
    let is_status = |value: &&str| {
        value.len() == 3 && value.starts_with(['1', '2', '3', '4', '5'])
            || value.len() == 3 && value.ends_with("xx")
    };
    let status = STATUS_LABELS.iter().find(|label| {
        let values = values(label);
        !values.is_empty() && values.iter().all(is_status)
    });
    let outcome = OUTCOME_LABELS.iter().find(|label| {
        values(label).iter().any(|it| FAILURES.contains(it) || *it == "success" || *it == "ok")
    });
    let errors = match (status, outcome) {
        (Some(label), _) => Some(format!("{name}{{{label}=~\"5..|5xx\"}}")),
        (None, Some(label)) => Some(format!("{name}{{{label}=~{:?}}}", FAILURES.join("|"))),
        (None, None) => None,
    };
    let doubt = match (by, &errors) {
        (Some(_), Some(_)) => None,
        (None, _) => Some("which label names the dependency? give it as `by`".to_owned()),
        (Some(_), None) => Some("which label tells failures? give them as `errors`".to_owned()),
    };
    let config = WatchConfig::plain(
        name,
        config::selector(name).ok()?,
        errors.and_then(|text| config::selector(&text).ok()),
        by.map(|label| (*label).to_owned()).into_iter().collect(),
    );
    Some(Guess { config, doubt })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, series: &[&[(&str, &str)]]) -> Guess {
        let labels: Vec<Labels> =
            series.iter().map(|pairs| Labels::new(pairs.iter().copied())).collect();
        guess(name, &labels.iter().collect::<Vec<_>>()).expect("a plain name")
    }

    #[test]
    fn a_status_and_a_dependency_make_a_watch() {
        let found = check(
            "shop_requests_total",
            &[&[("upstream", "pay"), ("code", "200")], &[("upstream", "pay"), ("code", "503")]],
        );
        assert_eq!(found.doubt, None);
        assert_eq!(found.config.by, ["upstream"]);
        let errors = found.config.errors.expect("errors").to_string();
        assert_eq!(errors, "shop_requests_total{code=~\"5..|5xx\"}");
    }

    #[test]
    fn words_for_the_outcome_are_taken_too() {
        let found = check("x_calls_total", &[&[("callee", "pay"), ("status", "success")]]);
        let errors = found.config.errors.expect("errors").to_string();
        assert!(errors.starts_with("x_calls_total{status=~\"error|failure"), "{errors}");
    }

    #[test]
    fn what_the_labels_do_not_say_is_asked() {
        assert!(check("x_requests_total", &[&[("handler", "/")]]).doubt.is_some());
        assert!(check("x_requests_total", &[&[("host", "pay"), ("code", "ok")]]).doubt.is_some());
    }
}
