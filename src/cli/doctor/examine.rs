//! One server examined: which presets are in use there, and how well each dependency is seen.
//!
//! # Method
//!
//! Names of metrics first, in one question; only presets whose counter is among them cost more. A
//! preset is in use when its probe finds something. Of two presets that read the same series one is
//! enough: the larger set, or with equal sets the more specific preset. Then the last half hour of
//! raw samples goes through the daemon's own pipeline, which says what it would say: targets, their
//! true phases, and the shortest wait that can be told apart. A mesh of more than [`SERIES_MAX`]
//! series is looked at in its busiest dependencies only.

use std::sync::Arc;
use std::time::Duration;

use crate::config::WatchConfig;
use crate::rules::Rules;
use crate::rules::preset::Preset;
use crate::series::Timestamp;
use crate::series::selector::{MatchOp, Matcher, Selector};
use crate::source::{Source, SourceError};
use crate::telemetry::Chain;

use super::ask::{Asker, Scrapes};
use super::guess;
use super::sampling::{self, Sampling};

/// Series of one watch that are read whole; past it only the busiest dependencies are.
const SERIES_MAX: f64 = 5_000.0;
/// Dependencies that are read where a watch is too large to be read whole.
const BUSIEST: usize = 12;
/// Series of one dependency past which it is not read at all.
const DEPENDENCY_SERIES_MAX: f64 = 20_000.0;

/// Why a watch is in the list.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// It stands in the configuration.
    Configured,
    /// A preset's metrics are there.
    Preset(Arc<Preset>),
    /// A counter that looks like one of requests.
    Guess,
}

/// What is to be done with a watch that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be watched as it is.
    Ready,
    /// It needs a decision of a person's, and why.
    Ask(String),
    /// It reads the series of another watch, named here.
    SameAs(String),
    /// It cannot be watched, and why.
    Refused(String),
}

/// One watch that was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) config: WatchConfig,
    pub(super) origin: Origin,
    pub(super) standing: Standing,
    /// Series of its request counter that are alive.
    pub(super) series: f64,
    pub(super) dependencies_total: usize,
    pub(super) sampling: Sampling,
}

/// One server.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) version: Option<String>,
    /// Names of metrics seen in the last hour.
    pub(super) names: usize,
    pub(super) scrapes: Vec<Scrapes>,
    pub(super) watches: Vec<Found>,
    /// Names of counters that look like requests, and that nothing above reads.
    pub(super) unclaimed: Vec<String>,
    pub(super) alertmanagers: Vec<String>,
    pub(super) questions: u32,
    pub(super) warnings: Vec<String>,
}

/// Examines a server: the watches of the configuration, and the presets in use there.
///
/// # Errors
///
/// When it does not answer.
pub(super) async fn examine(
    mut asker: Asker<'_>,
    url: &str,
    configured: &[WatchConfig],
    rules: &Rules,
    progress: &dyn Fn(),
) -> Result<Examined, SourceError> {
    let now = asker.server.now().await?;
    asker.questions += 2;
    let version = asker.server.version().await.unwrap_or_default();
    let names = asker.names(now).await?;
    let scrapes = asker.scrapes().await;
    let alertmanagers = asker.alertmanagers().await;
    let mut watches = Vec::new();
    for config in configured {
        watches.push(found(&mut asker, config.clone(), Origin::Configured).await?);
    }
    let is_named = |selector: &Selector| {
        selector.name().is_none_or(|name| names.iter().any(|known| known == name))
    };
    for preset in rules.presets() {
        let Ok(config) = WatchConfig::from_preset(preset) else { continue };
        let Ok(probe) = preset.probe.parse::<Selector>() else { continue };
        if !is_named(&config.requests) || !is_named(&probe) {
            continue;
        }
        if asker.is_spent() {
            asker.warnings.push("too many presets: the rest was not looked at".to_owned());
            break;
        }
        if probe != config.requests && asker.number(&format!("count({probe})")).await? < 1.0 {
            continue;
        }
        let found = found(&mut asker, config, Origin::Preset(Arc::clone(preset))).await?;
        if found.series >= 1.0 {
            watches.push(found);
        }
    }
    for guess in guess::guesses(&mut asker, &names, &watches).await? {
        let mut found = found(&mut asker, guess.config, Origin::Guess).await?;
        if let (Standing::Ready, Some(doubt)) = (&found.standing, guess.doubt) {
            found.standing = Standing::Ask(doubt);
        }
        if found.series >= 1.0 {
            watches.push(found);
        }
    }
    settle_overlaps(&mut asker, &mut watches).await?;
    let interval = sampling::shortest(&scrapes);
    for found in watches.iter_mut().filter(|found| is_sampled(&found.standing)) {
        progress();
        sample(&mut asker, found, interval, now).await;
    }
    let unclaimed = guess::unclaimed(&names, &watches);
    Ok(Examined {
        name: asker.server.name().to_owned(),
        url: url.to_owned(),
        version,
        names: names.len(),
        scrapes,
        watches,
        unclaimed,
        alertmanagers,
        questions: asker.questions,
        warnings: asker.warnings,
    })
}

const fn is_sampled(standing: &Standing) -> bool {
    matches!(standing, Standing::Ready | Standing::Ask(_))
}

/// A watch with the number of its series, and whether it can be watched.
async fn found(
    asker: &mut Asker<'_>,
    config: WatchConfig,
    origin: Origin,
) -> Result<Found, SourceError> {
    let series = asker.number(&format!("count({})", config.requests)).await?;
    let gauge = match config.requests.name() {
        Some(name) if series >= 1.0 && asker.is_gauge(name).await => Some(name.to_owned()),
        _ => None,
    };
    let standing = match (gauge, &origin) {
        (Some(name), _) => Standing::Refused(format!("`{name}` is a gauge, and not a counter")),
        (None, Origin::Preset(preset)) if preset.tier > 2 => {
            Standing::Ask(preset.pitfalls.first().cloned().unwrap_or_else(|| {
                "this convention needs a look at what its counter means here".to_owned()
            }))
        }
        (None, Origin::Configured) if series < 1.0 => {
            Standing::Refused(format!("`{}` selects no series that is alive", config.requests))
        }
        (None, _) => Standing::Ready,
    };
    Ok(Found {
        config,
        origin,
        standing,
        series,
        dependencies_total: 0,
        sampling: Sampling::default(),
    })
}

/// Marks the watches that read what another one reads already.
async fn settle_overlaps(asker: &mut Asker<'_>, watches: &mut [Found]) -> Result<(), SourceError> {
    for second in 1..watches.len() {
        for first in 0..second {
            let (a, b) = (&watches[first], &watches[second]);
            let both = is_sampled(&a.standing) && is_sampled(&b.standing);
            if !both || a.config.requests.name() != b.config.requests.name() {
                continue;
            }
            let query = format!("count({} and {})", a.config.requests, b.config.requests);
            let shared = asker.number(&query).await?;
            if shared < a.series.min(b.series) || shared < 1.0 {
                if a.config.by == b.config.by && has_common_dependency(asker, a, b).await? {
                    let says = format!(
                        "it tells of the same dependencies as `{}`, from the other side of the wire",
                        a.config.name
                    );
                    watches[second].standing = Standing::Ask(says);
                }
                continue;
            }
            let a_goes = match (&a.origin, &b.origin) {
                (Origin::Configured, _) => false,
                _ if (a.series - b.series).abs() >= 1.0 => a.series < b.series,
                _ => specificity(b) > specificity(a),
            };
            let (goes, stays) = if a_goes { (first, second) } else { (second, first) };
            watches[goes].standing = Standing::SameAs(watches[stays].config.name.clone());
        }
    }
    Ok(())
}

/// Whether two watches on one metric have a dependency in common, as the two reporters of a mesh.
async fn has_common_dependency(
    asker: &mut Asker<'_>,
    a: &Found,
    b: &Found,
) -> Result<bool, SourceError> {
    if a.config.by.is_empty() {
        return Ok(false);
    }
    let by: Vec<String> = a.config.by.iter().map(|name| label_name(name)).collect();
    let by = by.join(", ");
    let [a, b] = [a, b].map(|it| format!("count by ({by}) ({})", it.config.requests));
    Ok(asker.number(&format!("count({a} and {b})")).await? >= 1.0)
}

/// How much a preset asks for before it calls itself in use; then its tier.
fn specificity(found: &Found) -> (usize, usize, std::cmp::Reverse<u32>) {
    let Origin::Preset(preset) = &found.origin else { return (0, 0, std::cmp::Reverse(0)) };
    let probe: Option<Selector> = preset.probe.parse().ok();
    let has_own_probe =
        probe.as_ref().is_some_and(|probe| probe.name() != found.config.requests.name());
    let matchers = probe.map_or(0, |probe| probe.matchers().len());
    (usize::from(has_own_probe), matchers, std::cmp::Reverse(preset.tier))
}

/// Reads the raw samples of a watch and what they show; what fails is a warning.
async fn sample(
    asker: &mut Asker<'_>,
    found: &mut Found,
    interval: Option<Duration>,
    now: Timestamp,
) {
    let outcome = match narrowed(asker, found).await {
        Ok(parts) => sampling::sample(asker, found, &parts, interval, now).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(sampling) => {
            found.dependencies_total = found.dependencies_total.max(sampling.dependencies.len());
            found.sampling = sampling;
        }
        Err(error) => {
            let says = format!("`{}` cannot be read: {}", found.config.name, Chain(&error));
            asker.warnings.push(says);
        }
    }
}

/// The matchers of the parts in which a watch is read: one empty part where it is read whole.
async fn narrowed(
    asker: &mut Asker<'_>,
    found: &mut Found,
) -> Result<Vec<Vec<Matcher>>, SourceError> {
    if found.series <= SERIES_MAX || found.config.by.is_empty() {
        return Ok(vec![Vec::new()]);
    }
    let by: Vec<String> = found.config.by.iter().map(|name| label_name(name)).collect();
    let counted = format!("count by ({}) ({})", by.join(", "), found.config.requests);
    let total = asker.number(&format!("count({counted})")).await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of series, from 0"
    )]
    {
        found.dependencies_total = total.max(0.0) as usize;
    }
    let busiest = asker.vector(&format!("topk({BUSIEST}, {counted})")).await?;
    let mut parts = Vec::new();
    for (labels, series) in busiest {
        if series > DEPENDENCY_SERIES_MAX {
            continue;
        }
        let matchers = found.config.by.iter().filter_map(|name| {
            let value = labels.get(name).unwrap_or_default().to_owned();
            Matcher::new(name.clone(), MatchOp::Equal, value).ok()
        });
        parts.push(matchers.collect());
    }
    Ok(parts)
}

/// A label's name as PromQL takes it; the quoted names of Prometheus 3 may hold anything.
fn label_name(name: &str) -> String {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_plain { name.to_owned() } else { format!("{name:?}") }
}
