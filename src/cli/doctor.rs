//! `squall doctor`: what a Prometheus lets squall watch, and what it cannot show.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;

/// Arguments of `squall doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall doctor --prometheus.url=http://127.0.0.1:9090 --write squall.yml")]
pub struct Args {
    /// The Prometheus to ask; without it, those of the configuration.
    #[arg(long = "prometheus.url", value_name = "URL")]
    pub prometheus_url: Option<String>,
    /// The configuration, for its sources and watches.
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Write a configuration for what was found; an existing file is left alone.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Asks and reports.
///
/// # Errors
///
/// When no Prometheus answers.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("doctor"))
}
