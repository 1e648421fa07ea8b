//! `squall simulate`: a scenario file as OpenMetrics, as live targets, or as a picture.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;

/// Arguments of `squall simulate`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall simulate scenario.yml --seed=7 --out storm.om
  squall simulate scenario.yml --serve=127.0.0.1:9100")]
pub struct Args {
    /// The scenario.
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Write OpenMetrics here instead of to standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Serve it live, as targets to scrape and as a Prometheus-compatible API.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "out")]
    pub serve: Option<String>,
    /// Draw the load.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// The seed; wins over the scenario's own.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Runs the scenario.
///
/// # Errors
///
/// When the scenario is wrong or the output cannot be written.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("simulate"))
}
