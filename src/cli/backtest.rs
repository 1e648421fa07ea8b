//! `squall backtest`: history from a Prometheus through the same pipeline, in event time.

use std::io::Write;
use std::path::PathBuf;

use super::{Failure, Format};

/// Arguments of `squall backtest`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall backtest --config.file=squall.yml --from=-30d --format=table")]
pub struct Args {
    /// The configuration: sources and watches.
    #[arg(long = "config.file", value_name = "FILE", default_value = "squall.yml")]
    pub config_file: PathBuf,
    /// Where to begin: RFC 3339, or a duration back from now (`-30d`).
    #[arg(long, value_name = "TIME", default_value = "-1d", allow_hyphen_values = true)]
    pub from: String,
    /// Where to end: RFC 3339, or a duration back from now; without it, now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// How to write the result.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Replays the history.
///
/// # Errors
///
/// When the configuration is wrong or the source does not answer.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("backtest"))
}
