//! How a watch is sampled: read as the daemon would read it, through the daemon's own pipeline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::incident::{Dependency, Visibility};
use crate::pipeline::replay::{POLL_RANGE, median_spacing};
use crate::pipeline::{Config, Pipeline, Trust, WatchId};
use crate::rules::Rules;
use crate::series::selector::{Matcher, parse_duration};
use crate::series::table::{LabelBuffer, SeriesEntry};
use crate::series::{Labels, Role, Sample, Timestamp};
use crate::source::{SampleSink, SourceError, Window};

use super::ask::{Asker, Scrapes};
use super::examine::Found;

/// How far back samples are read: enough for a baseline at scrapes of two minutes.
const HISTORY: Duration = Duration::from_secs(1800);
/// Samples of one watch that are read at most, by the estimate beforehand.
const SAMPLES_MAX: f64 = 400_000.0;
/// Shortest history worth reading: a baseline takes a minute at least.
const HISTORY_MIN: Duration = Duration::from_secs(150);
/// The interval assumed where nobody says one: the most common.
const INTERVAL_ASSUMED: Duration = Duration::from_secs(15);
/// How far a poll of the daemon reaches back over the one before.
const POLL_OVERLAP: Duration = Duration::from_secs(16);
/// Bytes of an answer for each series and for each sample, unpacked: measured on Prometheus.
const BYTES: [f64; 2] = [143.0, 24.0];
/// A spacing within this share of a whole number of intervals is even.
const EVEN: f64 = 0.1;

/// Labels of a collector's replicas, by the habits of operators and query layers.
const REPLICA_LABELS: [&str; 6] = [
    "prometheus_replica",
    "replica",
    "__replica__",
    "receive_replica",
    "thanos_replica",
    "monitor",
];

/// One dependency, as the daemon would see it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) dependency: Dependency,
    /// Where in the interval each target is scraped, seconds, ascending.
    pub(super) phases_seconds: Vec<f64>,
}

impl Seen {
    /// The shortest wait that can be told apart; none before a baseline is there.
    pub(super) fn tells_from(&self) -> Option<f64> {
        let is_known = matches!(self.dependency.state, Visibility::Watched | Visibility::Blind);
        is_known.then_some(self.dependency.resolvable_gap_seconds)
    }
}

/// Replicas of the collector that tell of the same targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) label: String,
    pub(super) values: Vec<String>,
}

/// What one poll of the daemon costs the server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cost {
    pub(super) queries: usize,
    pub(super) series: u64,
    pub(super) samples: u64,
    /// Seconds until all of it was answered, measured.
    pub(super) seconds: f64,
    /// Seconds between two polls.
    pub(super) poll_seconds: f64,
}

impl Cost {
    /// Bytes of the answers, unpacked.
    pub(super) fn bytes(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let [series, samples] = [self.series as f64, self.samples as f64];
        BYTES[0].mul_add(series, BYTES[1] * samples)
    }

    /// The cost of both.
    pub(super) fn with(self, other: &Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            series: self.series + other.series,
            samples: self.samples + other.samples,
            seconds: self.seconds + other.seconds,
            poll_seconds: if self.poll_seconds > 0.0 {
                self.poll_seconds.min(other.poll_seconds)
            } else {
                other.poll_seconds
            },
        }
    }
}

/// What the samples of a watch show.
#[derive(Debug, Clone, Default)]
pub(super) struct Sampling {
    /// The busiest first.
    pub(super) dependencies: Vec<Seen>,
    pub(super) replicas: Option<Replicas>,
    /// Share of the spacings between samples that are no whole number of scrape intervals.
    pub(super) uneven: f64,
    pub(super) has_errors: bool,
    /// Requests and retries, or calls wanted, over the history, where a counter of them was read.
    pub(super) cost: Cost,
}

/// The shortest scrape interval that the server's targets have.
pub(super) fn shortest(scrapes: &[Scrapes]) -> Option<Duration> {
    scrapes.iter().filter_map(|it| parse_duration(&it.interval)).min()
}

/// Reads the history of a watch, in parts narrowed by matchers, and one poll of it.
///
/// # Errors
///
/// When the server does not answer.
pub(super) async fn sample(
    asker: &mut Asker<'_>,
    found: &Found,
    parts: &[Vec<Matcher>],
    interval: Option<Duration>,
    now: Timestamp,
) -> Result<Sampling, SourceError> {
    let config = &found.config;
    let watch = config.watch("doctor");
    let mut pipeline = Pipeline::new(Config::default(), vec![watch], Arc::new(Rules::default()));
    let window = Window { after: now.minus(history(found.series, interval)), until: now };
    let mut series: Vec<Taken> = Vec::new();
    for matchers in parts {
        for (role, selector) in config.selectors() {
            let mut selector = selector;
            for matcher in matchers {
                selector = selector.and(matcher.clone());
            }
            let mut sink = Sink { pipeline: &mut pipeline, role, series: &mut series };
            asker.samples(&selector, window, &mut sink).await?;
        }
    }
    for taken in &series {
        for sample in &taken.samples {
            pipeline.push_entry(WatchId(0), taken.entry, *sample);
        }
    }
    // What it would page is for `backtest` to say; here only how well it sees is asked.
    drop(pipeline.pass(now, &[Trust::Whole]));
    let phases = phases(&series);
    let requests = || series.iter().filter(|taken| taken.entry.role == Role::Requests);
    let intervals = || requests().filter_map(|taken| median_spacing(&taken.samples));
    let mut dependencies: Vec<Seen> = pipeline
        .dependencies(now)
        .into_iter()
        .zip(0_u32..)
        .map(|(mut dependency, number)| {
            let (interval, phases_seconds) = phases.get(&number).cloned().unwrap_or_default();
            if dependency.state == Visibility::Learning {
                dependency.targets = phases_seconds.len();
                dependency.scrape_interval_seconds = interval;
            }
            Seen { dependency, phases_seconds }
        })
        .collect();
    dependencies.sort_by(|a, b| {
        b.dependency
            .baseline_rate
            .total_cmp(&a.dependency.baseline_rate)
            .then_with(|| a.dependency.key.cmp(&b.dependency.key))
    });
    let poll = intervals().min().unwrap_or(INTERVAL_ASSUMED).clamp(POLL_RANGE[0], POLL_RANGE[1]);
    let has_errors = series.iter().any(|taken| taken.entry.role == Role::Errors);
    let (replicas, uneven) = (replicas(requests().map(|it| &it.labels)), uneven(requests()));
    let cost = cost(asker, found, parts, poll, now).await?;
    Ok(Sampling { dependencies, replicas, uneven, has_errors, cost })
}

/// How much history to read, so that the samples stay within [`SAMPLES_MAX`].
fn history(series: f64, interval: Option<Duration>) -> Duration {
    let interval = interval.unwrap_or(INTERVAL_ASSUMED).as_secs_f64().max(0.1);
    let seconds = SAMPLES_MAX * interval / series.max(1.0);
    Duration::try_from_secs_f64(seconds).map_or(HISTORY, |it| it.clamp(HISTORY_MIN, HISTORY))
}

/// Makes one poll as the daemon makes it, and takes its time.
async fn cost(
    asker: &mut Asker<'_>,
    found: &Found,
    parts: &[Vec<Matcher>],
    poll: Duration,
    now: Timestamp,
) -> Result<Cost, SourceError> {
    let selectors = found.config.selectors();
    let mut cost =
        Cost { queries: selectors.len(), poll_seconds: poll.as_secs_f64(), ..Cost::default() };
    // A watch that is too large to be read whole is not read whole for the sake of a stopwatch.
    let whole = matches!(parts, [only] if only.is_empty());
    let window = Window { after: now.minus(poll + POLL_OVERLAP), until: now };
    for (_, selector) in selectors {
        if whole {
            let began = Instant::now();
            let answer = asker.samples(&selector, window, &mut Nothing).await?;
            cost.seconds += began.elapsed().as_secs_f64();
            cost.series += answer.series;
            cost.samples += answer.samples;
        } else {
            let series = asker.number(&format!("count({selector})")).await?.max(0.0);
            let samples = series * (window.length().as_secs_f64() / poll.as_secs_f64()).ceil();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "numbers of series and samples, from 0"
            )]
            {
                cost.series += series as u64;
                cost.samples += samples as u64;
            }
        }
    }
    Ok(cost)
}

/// One series that was read.
#[derive(Debug)]
struct Taken {
    entry: SeriesEntry,
    labels: Labels,
    samples: Vec<Sample>,
}

/// Takes the series of one selector.
struct Sink<'a> {
    pipeline: &'a mut Pipeline,
    role: Role,
    series: &'a mut Vec<Taken>,
}

impl SampleSink for Sink<'_> {
    fn series(&mut self, labels: &mut LabelBuffer) -> bool {
        let entry = self.pipeline.intern(WatchId(0), self.role, labels);
        self.series.push(Taken { entry, labels: labels.to_labels(), samples: Vec::new() });
        true
    }

    fn sample(&mut self, sample: Sample) {
        if let Some(taken) = self.series.last_mut() {
            taken.samples.push(sample);
        }
    }
}

/// Takes nothing: the answer's own numbers are what is asked for.
struct Nothing;

impl SampleSink for Nothing {
    fn series(&mut self, _labels: &mut LabelBuffer) -> bool {
        true
    }

    fn sample(&mut self, _sample: Sample) {}
}

/// By the number of the dependency: its scrape interval, and its targets' phases in it, seconds.
fn phases(series: &[Taken]) -> HashMap<u32, (f64, Vec<f64>)> {
    let mut intervals: HashMap<u32, Duration> = HashMap::new();
    let mut newest: HashMap<(u32, u32), Timestamp> = HashMap::new();
    for taken in series.iter().filter(|taken| taken.entry.role == Role::Requests) {
        let dependency = taken.entry.dependency.0;
        let Some(last) = taken.samples.last() else { continue };
        let at = newest.entry((dependency, taken.entry.target.0)).or_insert(last.at);
        *at = last.at.max(*at);
        if let Some(spacing) = median_spacing(&taken.samples) {
            let shortest = intervals.entry(dependency).or_insert(spacing);
            *shortest = spacing.min(*shortest);
        }
    }
    let mut all: HashMap<u32, (f64, Vec<f64>)> = HashMap::new();
    for ((dependency, _), at) in newest {
        let interval = intervals.get(&dependency).map_or(0.0, Duration::as_secs_f64);
        let known = all.entry(dependency).or_insert((interval, Vec::new()));
        known.1.push(if interval > 0.0 { at.seconds().rem_euclid(interval) } else { 0.0 });
    }
    for (_, phases) in all.values_mut() {
        phases.sort_by(f64::total_cmp);
    }
    all
}

/// The label that tells replicas of the collector apart: series that differ in nothing else.
fn replicas<'a>(series: impl Iterator<Item = &'a Labels>) -> Option<Replicas> {
    let series: Vec<&Labels> = series.collect();
    REPLICA_LABELS.iter().find_map(|label| {
        let mut values: Vec<&str> = series.iter().filter_map(|it| it.get(label)).collect();
        values.sort_unstable();
        values.dedup();
        if values.len() < 2 {
            return None;
        }
        let mut groups: HashMap<Vec<(&str, &str)>, usize> = HashMap::new();
        for it in &series {
            let rest = it.iter().filter(|(name, _)| name != label).collect();
            *groups.entry(rest).or_default() += 1;
        }
        // A label that is one part of a target's name has one value for most.
        let told_twice = groups.values().filter(|count| **count > 1).count();
        (2 * told_twice > groups.len()).then(|| Replicas {
            label: (*label).to_owned(),
            values: values.into_iter().map(str::to_owned).collect(),
        })
    })
}

/// Share of the spacings that are no whole number of intervals.
fn uneven<'a>(series: impl Iterator<Item = &'a Taken>) -> f64 {
    let (mut odd, mut all) = (0_u32, 0_u32);
    for taken in series {
        let Some(interval) = median_spacing(&taken.samples) else { continue };
        for pair in taken.samples.windows(2) {
            let intervals = pair[1].at.seconds_since(pair[0].at) / interval.as_secs_f64();
            all += 1;
            odd += u32::from((intervals - intervals.round()).abs() > EVEN);
        }
    }
    f64::from(odd) / f64::from(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::table::DependencyId;
    use crate::series::{SeriesId, TargetId};

    fn labels(replica: &str, instance: &str) -> Labels {
        Labels::new([("instance", instance), ("replica", replica)])
    }

    fn taken(target: u32, at: &[f64]) -> Taken {
        let entry = SeriesEntry {
            series: SeriesId(target),
            dependency: DependencyId(0),
            target: TargetId(target),
            role: Role::Requests,
        };
        let sample = |at: &f64| Sample { at: Timestamp::from_seconds(*at), value: 0.0 };
        Taken { entry, labels: labels("a", "x"), samples: at.iter().map(sample).collect() }
    }

    #[test]
    fn replicas_tell_of_the_same_targets_and_shards_do_not() {
        let pair = [labels("a", "x"), labels("b", "x"), labels("a", "y"), labels("b", "y")];
        let found = replicas(pair.iter()).expect("a pair");
        assert_eq!((found.label.as_str(), found.values), ("replica", vec!["a".into(), "b".into()]));
        let shards = [labels("a", "x"), labels("b", "y"), labels("a", "z")];
        assert_eq!(replicas(shards.iter()), None);
    }

    #[test]
    fn phases_are_those_of_the_last_scrapes() {
        let series = [taken(0, &[100.2, 115.2, 130.2]), taken(1, &[97.5, 112.5, 127.5])];
        let (interval, phases) = phases(&series)[&0].clone();
        assert!((interval - 15.0).abs() < 1e-9);
        assert!((phases[0] - 7.5).abs() < 1e-6 && (phases[1] - 10.2).abs() < 1e-6, "{phases:?}");
    }

    #[test]
    fn missed_scrapes_are_even_and_switched_replicas_are_not() {
        let missed = [taken(0, &[0.0, 15.0, 30.0, 60.0, 75.0])];
        assert!(uneven(missed.iter()) < 1e-9);
        let switched = [taken(0, &[0.0, 15.0, 30.0, 52.0, 67.0])];
        assert!((uneven(switched.iter()) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_large_watch_is_read_over_a_shorter_time() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(history(10.0, second), HISTORY);
        assert_eq!(history(1000.0, second), Duration::from_secs(400));
        assert_eq!(history(1e9, second), HISTORY_MIN);
    }
}
