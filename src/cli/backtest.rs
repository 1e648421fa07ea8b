//! `squall backtest`: history from a Prometheus through the same pipeline, in event time.
//!
//! The history is asked for in parts of bounded size and replayed while the next part is on its
//! way, so that a month needs no more memory than an hour. The hour before `--from` is read too:
//! a daemon that had been running would have known normal traffic by then.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config, Engine, PrometheusConfig, WatchConfig};
use crate::daemon;
use crate::incident::{Dependency, Incident};
use crate::pipeline::replay::{Feed, Replay, median_spacing};
use crate::pipeline::{Pipeline, WatchId};
use crate::rules::Rules;
use crate::series::table::LabelBuffer;
use crate::series::{Role, Timestamp};
use crate::source::Window;
use crate::telemetry::Metrics;
use crate::wire::rfc3339;

use super::report::Found;
use super::{Failure, Format, progress, report};

mod history;
mod record;

use history::{Part, Question};

/// Arguments of `squall backtest`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall backtest --config.file=squall.yml --from=-30d --format=table

Stopped with Ctrl-C, or by a server that does not come back, it writes what it found so far and
says from when on to go on.")]
pub struct Args {
    /// The configuration: sources and watches.
    #[arg(long = "config.file", value_name = "FILE", default_value = "squall.yml")]
    pub config_file: PathBuf,
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
    /// Where to begin: RFC 3339, or a duration back from now (`-30d`).
    #[arg(long, value_name = "TIME", default_value = "-1d", allow_hyphen_values = true)]
    pub from: String,
    /// Where to end: RFC 3339, or a duration back from now; without it, now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Write the incidents that ended into the record, as history; nobody is told of them.
    #[arg(long)]
    pub record: bool,
    /// Folder of the record; wins over `storage` of the configuration.
    #[arg(long = "storage.path", value_name = "FOLDER", requires = "record")]
    pub storage_path: Option<PathBuf>,
    /// How to write the result.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// How far before `--from` reading begins: what a daemon learns normal traffic from.
const LEARNING: Duration = Duration::from_secs(3600);
/// Least time that a server gets for one answer: an hour of history takes longer than a poll.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);
/// The poll interval when no series has two samples: Prometheus' most common interval.
const POLL_DEFAULT: Duration = Duration::from_secs(15);
/// Parts that wait to be replayed: a storm takes longer than a quiet hour, and the server reads on
/// meanwhile.
const PARTS_WAITING: usize = 4;
/// How long after `--from` the first sample may come: a scrape, at the longest usual interval.
const BEGIN_WITHIN: Duration = Duration::from_secs(300);
/// Different warnings of a server that are kept.
const WARNINGS_MAX: usize = 20;

/// Replays the history.
///
/// # Errors
///
/// When the configuration is wrong, a source does not answer, or the record cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let config = load(args, &super::rules::load(&args.rules_path)?)?;
    let rules = Arc::new(config.rules.known.clone());
    let span = span(args, SystemClock.now())?;
    let runtime = super::runtime()?;
    let asked: Vec<(&PrometheusConfig, Vec<WatchConfig>)> = config
        .prometheus
        .iter()
        .map(|source| (source, watches_of(&config, source)))
        .filter(|(_, watches)| !watches.is_empty())
        .collect();
    let bar = progress::bar(asked.len() as u64 * span.length().as_secs(), "history");
    let mut warnings = Vec::new();
    let (mut incidents, mut dependencies) = (Vec::new(), Vec::new());
    let mut failure = None;
    for (source, watches) in asked {
        let mut replayed =
            Replayed::new(&runtime, source, &watches, span, &rules, &bar, &mut warnings)?;
        // The rest is of the learning time, and what it found a run before this one has told.
        replayed.incidents.retain(|it| it.ended_at.unwrap_or(it.updated_at) >= span.after);
        incidents.append(&mut replayed.incidents);
        dependencies.append(&mut replayed.dependencies);
        if let Some(cause) = replayed.failure {
            failure = Some((source.name.clone(), replayed.until, cause));
            break;
        }
    }
    bar.finish_and_clear();
    if args.record {
        runtime.block_on(record::save(&config.storage, &incidents))?;
    }
    report::write(&Found::new(incidents, dependencies), &warnings, args.format, out)?;
    match failure {
        None => Ok(()),
        Some((source, until, cause)) => {
            out.flush()?;
            let at = rfc3339(until.max(span.after));
            Err(Failure::Running {
                operation: format!(
                    "stopped at {at} of source `{source}`; `--from={at}` goes on from there"
                ),
                cause: Some(Box::new(cause)),
            })
        }
    }
}

/// Reads the configuration and refuses one that there is nothing to replay of.
fn load(args: &Args, rules: &Rules) -> Result<Config, Failure> {
    let mut config = config::load(&args.config_file, rules)
        .map_err(|error| Failure::Usage(super::with_causes(&error)))?;
    let file = args.config_file.display();
    if config.prometheus.is_empty() {
        return Err(Failure::Usage(format!("`{file}` names no Prometheus to ask")));
    }
    if config.watch.is_empty() {
        return Err(Failure::Usage(format!("`{file}` watches nothing")));
    }
    if let Some(path) = &args.storage_path {
        config.storage.engine = Engine::Sqlite(path.clone());
    }
    Ok(config)
}

/// The stretch of time that the arguments ask for.
fn span(args: &Args, now: Timestamp) -> Result<Window, Failure> {
    let instant = |flag: &str, text: &str| {
        super::instant(text, now).ok_or_else(|| {
            Failure::Usage(format!(
                "--{flag} must be RFC 3339 or a duration back from now such as -30d, got `{text}`"
            ))
        })
    };
    let after = instant("from", &args.from)?;
    let until = args.to.as_deref().map_or(Ok(now), |text| instant("to", text))?.min(now);
    if after >= until {
        return Err(Failure::Usage("--from must be before --to and before now".to_owned()));
    }
    Ok(Window { after, until })
}

/// What is watched on a source.
fn watches_of(config: &Config, source: &PrometheusConfig) -> Vec<WatchConfig> {
    let on =
        |watch: &&WatchConfig| watch.sources.is_empty() || watch.sources.contains(&source.name);
    config.watch.iter().filter(on).cloned().collect()
}

/// The history of one source, replayed.
struct Replayed {
    incidents: Vec<Incident>,
    dependencies: Vec<Dependency>,
    /// Why it is not the whole of it.
    failure: Option<history::Stopped>,
    /// Up to when it was replayed.
    until: Timestamp,
}

impl Replayed {
    fn new(
        runtime: &Runtime,
        source: &PrometheusConfig,
        watches: &[WatchConfig],
        span: Window,
        rules: &Arc<Rules>,
        bar: &ProgressBar,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let client = |timeout| {
            let config = PrometheusConfig { timeout, ..source.clone() };
            daemon::prometheus_sources(Metrics::new())(&config)
                .map_err(|error| Failure::running(format!("cannot ask `{}`", source.name), error))
        };
        let greeted = client(history::GREETING_TIMEOUT)?;
        let patient = client(source.timeout.max(TIMEOUT_MIN))?;
        let questions: Vec<Question> = watches
            .iter()
            .enumerate()
            .flat_map(|(index, watch)| Question::of_watch(WatchId(index), watch))
            .collect();
        let whole = Window { after: span.after.minus(LEARNING), ..span };
        let (sender, mut parts) = mpsc::channel(PARTS_WAITING);
        let say = say(bar);
        let [from, to] = [whole.after, whole.until].map(rfc3339);
        say(&format!("asking source `{}` at {} for {from} to {to}", source.name, source.url));
        runtime.spawn(history::read(greeted, patient, questions, whole, say, sender));

        let running = watches.iter().map(|watch| watch.watch(&source.name)).collect();
        let mut pipeline =
            Pipeline::new(super::what_if::pipeline_config(), running, Arc::clone(rules));
        let mut taken = Taken { has_requests: vec![false; watches.len()], first: None };
        let (mut failure, mut until) = (None, whole.after);
        // The poll interval comes from the first part that holds samples.
        let mut waiting = Vec::new();
        let mut replay = loop {
            let Some(part) = take(&mut parts, &mut failure) else {
                break Replay::new(&mut pipeline, source.poll_interval.unwrap_or(POLL_DEFAULT));
            };
            until = part.window.until;
            let is_empty = part.series.is_empty();
            advance(bar, span, &part);
            if !is_empty {
                let shortest =
                    part.series.iter().filter_map(|one| median_spacing(&one.samples)).min();
                let poll = source.poll_interval.or(shortest).unwrap_or(POLL_DEFAULT);
                waiting.push(part);
                break Replay::new(&mut pipeline, poll);
            }
        };
        let mut next = waiting.pop().or_else(|| take(&mut parts, &mut failure));
        while let Some(part) = next {
            until = part.window.until;
            note(warnings, &source.name, &part.warnings);
            advance(bar, span, &part);
            let feeds = taken.feeds(part, replay.pipeline());
            replay.take(&feeds, |_| ());
            next = take(&mut parts, &mut failure);
        }
        let (found, last) = replay.conclude();
        taken.warn(watches, &source.name, span, warnings);
        Ok(Self {
            incidents: found.into_values().collect(),
            dependencies: last.map_or_else(Vec::new, |last| pipeline.dependencies(last)),
            failure,
            until,
        })
    }
}

/// Says on standard error, above the bar where there is one, what is under way.
fn say(bar: &ProgressBar) -> history::Say {
    let bar = bar.clone();
    Box::new(move |text| {
        // Standard error may be closed; the result is what counts.
        bar.suspend(|| drop(writeln!(std::io::stderr(), "squall: {text}")));
    })
}

/// The next part; none at the end of the history, or where it stopped.
fn take(
    parts: &mut mpsc::Receiver<Result<Part, history::Stopped>>,
    failure: &mut Option<history::Stopped>,
) -> Option<Part> {
    match parts.blocking_recv()? {
        Ok(part) => Some(part),
        Err(stopped) => {
            *failure = Some(stopped);
            None
        }
    }
}

/// Moves the bar to the end of a part.
fn advance(bar: &ProgressBar, span: Window, part: &Part) {
    let from = part.window.after.max(span.after);
    let seconds = Window { after: from, ..part.window }.length().as_secs();
    bar.inc(seconds);
    bar.set_message(rfc3339(part.window.until));
}

/// Keeps the warnings of a server, each once.
fn note(warnings: &mut Vec<String>, source: &str, said: &[String]) {
    for warning in said {
        let warning = format!("source `{source}`: {warning}");
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

/// What was seen of the series so far.
struct Taken {
    /// For each watch, whether there were requests.
    has_requests: Vec<bool>,
    /// The first sample of all.
    first: Option<Timestamp>,
}

impl Taken {
    /// Interns the series of a part and hands over their samples.
    fn feeds(&mut self, part: Part, pipeline: &mut Pipeline) -> Vec<Feed> {
        let mut buffer = LabelBuffer::default();
        let mut feeds = Vec::with_capacity(part.series.len());
        for one in part.series {
            let mut uses = Vec::with_capacity(one.uses.len());
            for (watch, role) in one.uses {
                buffer.clear();
                for (name, value) in one.labels.iter() {
                    buffer.push(name, value);
                }
                uses.push((watch, pipeline.intern(watch, role, &mut buffer)));
                self.has_requests[watch.0] |= role == Role::Requests;
            }
            let first = one.samples.first().map(|sample| sample.at);
            self.first = match (self.first, first) {
                (Some(known), Some(new)) => Some(known.min(new)),
                (known, new) => known.or(new),
            };
            feeds.push(Feed { uses, samples: one.samples });
        }
        feeds
    }

    /// Says what the history does not hold.
    fn warn(
        &self,
        watches: &[WatchConfig],
        source: &str,
        span: Window,
        warnings: &mut Vec<String>,
    ) {
        for (watch, has_requests) in watches.iter().zip(&self.has_requests) {
            if !has_requests {
                let name = &watch.name;
                warnings.push(format!(
                    "source `{source}`: watch `{name}` selects no series of requests"
                ));
            }
        }
        if let Some(first) = self.first.filter(|first| *first > span.after.plus(BEGIN_WITHIN)) {
            let first = rfc3339(first);
            warnings.push(format!("source `{source}`: there is no history before {first}"));
        }
    }
}
