//! `squall rules`: the retry schedules and presets known.

use std::io::Write;

use super::{Failure, Format};

/// Arguments of `squall rules`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall rules match --waits 1,2,4,8")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the rules.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// List the schedules and presets.
    #[command(after_help = "Example:\n  squall rules list --format=json")]
    List {
        /// How to write them.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Show one of them.
    #[command(after_help = "Example:\n  squall rules show resilience4j-exponential")]
    Show {
        /// The rule's id.
        id: String,
    },
    /// Name the clients whose schedule fits some waits.
    #[command(after_help = "Example:\n  squall rules match --waits 1,2,4,8")]
    Match {
        /// The waits between successive attempts in seconds, separated by commas.
        #[arg(long, value_name = "SECONDS", value_delimiter = ',', required = true)]
        waits: Vec<f64>,
        /// How to write them.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// Looks the rules up.
///
/// # Errors
///
/// When there is no such rule.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("rules"))
}
