//! `squall analyze`: files of OpenMetrics text with timestamps through the pipeline, in event time.
//!
//! The text is read as a stream and only the samples of selected series are kept, sixteen bytes
//! each, since a file may hold its series one after the other while the pipeline wants time to
//! move on for all of them at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, WatchConfig};
use crate::incident::IncidentId;
use crate::pipeline::replay::{Feed, Replay, median_spacing};
use crate::pipeline::{Pipeline, WatchId};
use crate::plot::{self, Look, Picture};
use crate::rules::Rules;
use crate::rules::preset::Preset;
use crate::series::selector::{Selector, parse_duration};
use crate::series::table::LabelBuffer;
use crate::series::{Labels, Role, Sample};
use crate::source::openmetrics::{self, Sink};
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

use super::report::Found;
use super::{Failure, Format, progress, report};

/// Arguments of `squall analyze`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall analyze --requests='http_client_requests_total{job=\"shop\"}' \\
      --errors='http_client_requests_total{job=\"shop\",code=~\"5..\"}' --by=dependency dump.om.gz

Without --config.file and --requests, the presets whose metrics are in the files are used.")]
pub struct Args {
    /// OpenMetrics text with timestamps, plain or gzip; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The configuration, for its watches.
    #[arg(long = "config.file", value_name = "FILE", conflicts_with_all = ["requests", "errors", "by"])]
    pub config_file: Option<PathBuf>,
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
    /// A counter selector: every attempt.
    #[arg(long, value_name = "SELECTOR")]
    pub requests: Option<String>,
    /// A counter selector: the attempts that failed.
    #[arg(long, value_name = "SELECTOR", requires = "requests")]
    pub errors: Option<String>,
    /// The labels whose values name a dependency, separated by commas.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', requires = "requests")]
    pub by: Vec<String>,
    /// The interval of the polls a daemon would have made [default: the shortest scrape interval
    /// seen].
    #[arg(long = "poll-interval", value_name = "DURATION")]
    pub poll_interval: Option<String>,
    /// Draw every incident found into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// How to write the result.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Name of the watch that the command line gives.
const WATCH_NAME: &str = "cli";
/// Name of the source in incidents: there is one, and it has no name.
const SOURCE_NAME: &str = "file";
/// The poll interval when no series has two samples: Prometheus' most common interval.
const POLL_DEFAULT: Duration = Duration::from_secs(15);

/// Analyses the files.
///
/// # Errors
///
/// When a file cannot be read or a selector is wrong.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let rules = super::rules::load(&args.rules_path)?;
    let poll = match &args.poll_interval {
        None => None,
        Some(text) => Some(parse_duration(text).ok_or_else(|| {
            Failure::Usage(format!("--poll-interval must be a duration such as 15s, got `{text}`"))
        })?),
    };
    let (watches, rules) = watches_of(args, rules)?;
    let rules = Arc::new(rules);
    let mut collector = match watches {
        Some(watches) => Collector::new(watches.iter().map(Candidate::from).collect()),
        None => Collector::new(rules.presets().iter().filter_map(|it| of_preset(it)).collect()),
    };
    let mut warnings = Vec::new();
    for file in &args.files {
        read(file, &mut collector, &mut warnings)?;
    }
    let (watches, series) = collector.finish(&mut warnings);
    let poll = poll.unwrap_or_else(|| shortest_interval(&series));
    let mut pipeline = Pipeline::new(super::what_if::pipeline_config(), watches, rules);
    let feeds = feeds(series, &mut pipeline);
    let samples: usize = feeds.iter().map(|feed| feed.samples.len()).sum();
    let bar = progress::bar(samples as u64, "samples");
    let draws = args.format == Format::Table && super::draws();
    let mut replay = Replay::new(&mut pipeline, poll);
    if args.plot.is_some() || draws {
        replay = replay.keeping_around();
    }
    replay.take(&feeds, |taken| bar.inc(taken));
    let kept = replay.take_around();
    let (incidents, last) = replay.conclude();
    bar.finish_and_clear();
    let dependencies = last.map_or_else(Vec::new, |last| pipeline.dependencies(last));
    let mut series: BTreeMap<IncidentId, SeriesJson> =
        kept.iter().map(|(id, around)| (id.clone(), SeriesJson::from(around))).collect();
    if args.plot.is_some() || draws {
        // The last looks were not seen by the replay; their history is still there.
        for incident in incidents.values() {
            let started = incident.verdict.started_at;
            let late = pipeline
                .around(incident)
                .filter(|it| it.increments.first().is_some_and(|first| first.from <= started));
            series.extend(late.map(|around| (incident.id.clone(), SeriesJson::from(&around))));
        }
    }
    let found = Found::new(incidents.into_values().collect(), dependencies);
    if let Some(directory) = &args.plot {
        draw_all(directory, &found, &series)?;
    }
    let found = if draws { found.with_series(series) } else { found };
    report::write(&found, &warnings, args.format, out)
}

/// Draws every picture that there is of each incident: `ID-PICTURE.svg`.
fn draw_all(
    directory: &Path,
    found: &Found,
    series: &BTreeMap<IncidentId, SeriesJson>,
) -> Result<(), Failure> {
    let shown = directory.display();
    std::fs::create_dir_all(directory)
        .map_err(|cause| Failure::running(format!("cannot make `{shown}`"), cause))?;
    for incident in found.incidents() {
        let wire = IncidentJson::from(incident);
        let none = SeriesJson::default();
        let series = series.get(&incident.id).unwrap_or(&none);
        for picture in Picture::ALL {
            let Ok(svg) = plot::draw(picture, &wire, series, &Look::default()) else { continue };
            let file = directory.join(format!("{}-{}.svg", incident.id, picture.as_str()));
            std::fs::write(&file, svg).map_err(|cause| {
                Failure::running(format!("cannot write `{}`", file.display()), cause)
            })?;
        }
    }
    Ok(())
}

/// The watches that the arguments name, none for the presets found in the files; and the rules.
fn watches_of(args: &Args, rules: Rules) -> Result<(Option<Vec<WatchConfig>>, Rules), Failure> {
    if let Some(file) = &args.config_file {
        let config = config::load(file, &rules)
            .map_err(|error| Failure::Usage(super::with_causes(&error)))?;
        if config.watch.is_empty() {
            return Err(Failure::Usage(format!("`{}` watches nothing", file.display())));
        }
        return Ok((Some(config.watch), config.rules.known));
    }
    let Some(requests) = &args.requests else { return Ok((None, rules)) };
    let selector = |flag: &str, text: &str| {
        config::selector(text).map_err(|says| Failure::Usage(format!("--{flag}: {says}")))
    };
    let errors = args.errors.as_ref().map(|text| selector("errors", text)).transpose()?;
    let requests = selector("requests", requests)?;
    let watch = WatchConfig::plain(WATCH_NAME, requests, errors, args.by.clone());
    Ok((Some(vec![watch]), rules))
}

/// A watch that may be in the files.
#[derive(Debug)]
struct Candidate {
    watch: crate::pipeline::Watch,
    selectors: Vec<(Role, Selector)>,
    // What tells that a preset is in use; watches of the user are always in use.
    probe: Option<Selector>,
    seen: bool,
}

impl From<&WatchConfig> for Candidate {
    fn from(config: &WatchConfig) -> Self {
        Self {
            watch: config.watch(SOURCE_NAME),
            selectors: config.selectors(),
            probe: None,
            seen: false,
        }
    }
}

/// A candidate from a preset; one with a selector that is wrong is no candidate.
fn of_preset(preset: &Preset) -> Option<Candidate> {
    let probe = preset.probe.parse().ok()?;
    let config = WatchConfig::from_preset(preset).ok()?;
    Some(Candidate { probe: Some(probe), ..Candidate::from(&config) })
}

/// One series that a candidate selects.
#[derive(Debug)]
struct Collected {
    labels: Labels,
    uses: Vec<(usize, Role)>,
    samples: Vec<Sample>,
    sorted: bool,
}

/// Keeps the series that some candidate selects.
#[derive(Debug)]
struct Collector {
    candidates: Vec<Candidate>,
    series: Vec<Collected>,
}

impl Collector {
    fn new(candidates: Vec<Candidate>) -> Self {
        Self { candidates, series: Vec::new() }
    }

    /// The watches that are in the files, with their series renumbered.
    fn finish(self, warnings: &mut Vec<String>) -> (Vec<crate::pipeline::Watch>, Vec<Collected>) {
        let mut watches = Vec::new();
        let mut numbers = Vec::with_capacity(self.candidates.len());
        for candidate in self.candidates {
            let is_used = candidate.probe.is_none() || candidate.seen;
            numbers.push(is_used.then_some(watches.len()));
            if is_used {
                watches.push(candidate.watch);
            }
        }
        let mut series = self.series;
        let mut unsorted = 0_usize;
        for one in &mut series {
            one.uses = one
                .uses
                .iter()
                .filter_map(|&(candidate, role)| Some((numbers[candidate]?, role)))
                .collect();
            if !one.sorted {
                unsorted += 1;
                one.samples.sort_by_key(|sample| sample.at);
            }
        }
        series.retain(|one| !one.uses.is_empty());
        // The order of the file must not decide anything: the order of labels does.
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        if unsorted > 0 {
            warnings
                .push(format!("{unsorted} series were not in the order of time and are sorted"));
        }
        let count = |sample: &Sample| sample.value.is_finite() && sample.value >= 0.0;
        let left_out = |one: &Collected| one.samples.iter().filter(|it| !count(it)).count();
        let (samples, of) = series
            .iter()
            .map(left_out)
            .filter(|samples| *samples > 0)
            .fold((0, 0), |(all, of), samples| (all + samples, of + 1));
        if samples > 0 {
            warnings.push(format!(
                "{samples} samples of {of} series are NaN, infinite or negative, which no counter \
                 is, and are left out"
            ));
        }
        for watch in &watches {
            let number = watches.iter().position(|other| other == watch);
            let found = series.iter().any(|one| {
                one.uses.iter().any(|(at, role)| Some(*at) == number && *role == Role::Requests)
            });
            if !found {
                warnings.push(format!("watch `{}` selects no series of requests", watch.name));
            }
        }
        if watches.is_empty() {
            warnings.push(
                "no preset's metrics are in the files; give --requests or --config.file".to_owned(),
            );
        }
        (watches, series)
    }
}

impl Sink for Collector {
    fn series(&mut self, labels: &mut LabelBuffer) -> Option<u32> {
        let mut uses = Vec::new();
        for (index, candidate) in self.candidates.iter_mut().enumerate() {
            if let Some(probe) = &candidate.probe
                && !candidate.seen
                && probe.matches_by(|name| labels.value(name))
            {
                candidate.seen = true;
            }
            for (role, selector) in &candidate.selectors {
                if selector.matches_by(|name| labels.value(name)) {
                    uses.push((index, *role));
                }
            }
        }
        if uses.is_empty() {
            return None;
        }
        let labels = labels.to_labels();
        // The same series may come again in another file.
        let known = self.series.iter().position(|one| one.labels == labels);
        let index = known.unwrap_or_else(|| {
            self.series.push(Collected { labels, uses, samples: Vec::new(), sorted: true });
            self.series.len() - 1
        });
        u32::try_from(index).ok()
    }

    fn sample(&mut self, series: u32, sample: Sample) {
        let one = &mut self.series[series as usize];
        if one.samples.last().is_some_and(|last| last.at > sample.at) {
            one.sorted = false;
        }
        one.samples.push(sample);
    }
}

/// Reads one file into the collector.
fn read(file: &Path, collector: &mut Collector, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let failed = |cause| Failure::running(format!("cannot read `{shown}`"), cause);
    let is_stdin = file == Path::new("-");
    let bar;
    let input: Box<dyn Read> = if is_stdin {
        bar = progress::bar(0, "bytes");
        Box::new(io::stdin().lock())
    } else {
        let open = File::open(file).map_err(failed)?;
        bar = progress::bar(open.metadata().map_or(0, |about| about.len()), "bytes");
        Box::new(open)
    };
    let mut input: Box<dyn BufRead> =
        Box::new(BufReader::with_capacity(256 * 1024, bar.wrap_read(input)));
    let summary = openmetrics::read(&mut input, collector)
        .map_err(|cause| Failure::running(format!("cannot analyse `{shown}`"), cause))?;
    bar.finish_and_clear();
    warnings.extend(summary.warnings.into_iter().map(|says| format!("{shown}: {says}")));
    for candidate in &collector.candidates {
        for (_, selector) in &candidate.selectors {
            if let Some(name) = selector.name()
                && summary.gauges.iter().any(|gauge| gauge == name)
            {
                warnings.push(format!(
                    "{shown}: `{name}` is declared a gauge; watch `{}` wants counters",
                    candidate.watch.name
                ));
            }
        }
    }
    Ok(())
}

/// Interns the series and hands over their samples.
fn feeds(series: Vec<Collected>, pipeline: &mut Pipeline) -> Vec<Feed> {
    let mut buffer = LabelBuffer::default();
    let mut feeds = Vec::with_capacity(series.len());
    for one in series {
        let mut uses = Vec::with_capacity(one.uses.len());
        for (watch, role) in one.uses {
            buffer.clear();
            for (name, value) in one.labels.iter() {
                buffer.push(name, value);
            }
            let watch = WatchId(watch);
            uses.push((watch, pipeline.intern(watch, role, &mut buffer)));
        }
        feeds.push(Feed { uses, samples: one.samples });
    }
    feeds
}

/// The shortest of the series' scrape intervals, each the median spacing of its samples.
fn shortest_interval(series: &[Collected]) -> Duration {
    series.iter().filter_map(|one| median_spacing(&one.samples)).min().unwrap_or(POLL_DEFAULT)
}
