//! `squall analyze`: files of OpenMetrics text with timestamps through the pipeline, in event time.

use std::io::Write;
use std::path::PathBuf;

use super::{Failure, Format};

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
    /// How to write the result.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Analyses the files.
///
/// # Errors
///
/// When a file cannot be read or a selector is wrong.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("analyze"))
}
