//! `squall check`: every fault of configuration, rule and web-config files at once.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;

/// Arguments of `squall check`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall check squall.yml web.yml rules/schedules/*.yaml")]
pub struct Args {
    /// The files to check; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print each configuration with all defaults filled in; secrets are never printed.
    #[arg(long)]
    pub effective: bool,
}

/// Checks the files.
///
/// # Errors
///
/// When a file has a fault or cannot be read.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("check"))
}
