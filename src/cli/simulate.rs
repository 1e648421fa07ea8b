//! `squall simulate`: a scenario as OpenMetrics, as live targets, as a picture, or as a comparison.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Failure, runtime};
use crate::clock::SystemClock;
use crate::rules::Rules;
use crate::sim::compare::{compare, table};
use crate::sim::corpus::{draw_case, parse_name};
use crate::sim::scenario::Scenario;
use crate::sim::serve::{Live, serve};
use crate::sim::{builtin, openmetrics, plot};

/// The seed of a run that names none: the same bytes for everybody.
const SEED: u64 = 1;

/// Arguments of `squall simulate`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  squall simulate --list
  squall simulate herd-none --seed=7 --out storm.om --plot storm.svg
  squall simulate herd-none --compare=none,equal,full,decorrelated
  squall simulate scenario.yml --serve=127.0.0.1:9100")]
pub struct Args {
    /// A scenario file, the name of one that is built in, or that of a drawn case
    /// (`exponential-none/15s/4t/7`: kind, scrape interval, targets, seed).
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// List the scenarios that are built in.
    #[arg(long)]
    pub list: bool,
    /// Write OpenMetrics here instead of to standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write what really happened here, as JSON.
    #[arg(long, value_name = "FILE.json")]
    pub truth: Option<PathBuf>,
    /// Draw the load.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Compare jitters side by side: none, equal, full, decorrelated.
    #[arg(long, value_name = "JITTER,…", value_delimiter = ',', conflicts_with_all = ["out", "serve", "plot", "truth"])]
    pub compare: Vec<String>,
    /// Serve it live, as targets to scrape and as a Prometheus-compatible API.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["out", "plot", "truth"])]
    pub serve: Option<String>,
    /// Run this many times faster than the clock; only with --serve.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, requires = "serve")]
    pub speed: f64,
    /// The seed: the same seed gives the same bytes on any machine.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

/// Runs the scenario.
///
/// # Errors
///
/// When the scenario is wrong or the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if args.list {
        return list(out);
    }
    let (scenario, seed) = load(args.scenario.as_deref().unwrap_or_default(), args.seed)?;
    if let Some(address) = &args.serve {
        return live(&scenario, args, seed, address);
    }
    if !args.compare.is_empty() {
        let names: Vec<&str> = args.compare.iter().map(String::as_str).collect();
        let rows = compare(&scenario, &names, seed)
            .map_err(|incomparable| Failure::Usage(incomparable.to_string()))?;
        return emit(out, &table(&rows));
    }
    let done = crate::sim::run(&scenario, seed);
    if let Some(path) = &args.plot {
        save(path, &plot::svg(&done.truth))?;
    }
    if let Some(path) = &args.truth {
        save(path, &format!("{:#}\n", done.truth.to_json()))?;
    }
    let text = openmetrics::write(&done.series);
    match &args.out {
        Some(path) => save(path, &text),
        None => emit(out, &text),
    }
}

fn list(out: &mut dyn Write) -> Result<(), Failure> {
    let rules = Rules::builtin();
    let width = builtin::BUILTIN.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in builtin::BUILTIN {
        let about = Scenario::parse(name, text, &rules).map(|s| s.about).unwrap_or_default();
        emit(out, &format!("{name:width$}  {about}\n"))?;
    }
    Ok(())
}

/// Reads a file, or else the built-in scenario of that name, or draws the case of that name; a drawn
/// case has its own seed.
fn load(wanted: &str, seed: u64) -> Result<(Scenario, u64), Failure> {
    if let Some((kind, sampling, seed)) = parse_name(wanted) {
        return Ok((draw_case(kind, sampling, seed).scenario, seed));
    }
    let path = PathBuf::from(wanted);
    let name =
        path.file_stem().map_or(wanted.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let text = match (builtin::find(wanted), path.exists()) {
        (Some(text), false) => text.to_owned(),
        (None, false) => {
            return Err(Failure::Usage(format!(
                "no file and no built-in scenario is called `{wanted}`; `squall simulate --list` \
                 names those built in"
            )));
        }
        (_, true) => fs::read_to_string(&path)
            .map_err(|error| Failure::running(format!("cannot read `{wanted}`"), error))?,
    };
    // What a scenario names lies beside it.
    let open = |file: &str| fs::read_to_string(path.with_file_name(file));
    let scenario = Scenario::parse_with(&name, &text, &Rules::builtin(), &open);
    scenario.map(|scenario| (scenario, seed)).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("{wanted}: {fault}")).collect();
        Failure::Usage(lines.join("\n"))
    })
}

fn emit(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    out.write_all(text.as_bytes()).map_err(Failure::from)
}

fn save(path: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::running(format!("cannot write `{}`", path.display()), error))
}

fn live(scenario: &Scenario, args: &Args, seed: u64, address: &str) -> Result<(), Failure> {
    if !(args.speed > 0.0 && args.speed.is_finite()) {
        return Err(Failure::Usage("--speed must be above 0".to_owned()));
    }
    runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|error| Failure::running(format!("cannot listen on `{address}`"), error))?;
        let bound = listener.local_addr().map_or(address.to_owned(), |bound| bound.to_string());
        tracing::info!(address = %bound, scenario = %scenario.name, "serving the simulation");
        let clock = Arc::new(SystemClock);
        let live = Live::start(scenario, seed, args.speed, 0.0, clock, &bound);
        let stopped = async {
            // Without a handler for the signal the process ends by it all the same.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        serve(listener, live, stopped)
            .await
            .map_err(|error| Failure::running("cannot serve the simulation", error))
    })
}
