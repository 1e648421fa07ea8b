//! `squall completions`: a completion script for a shell.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Failure};

/// Arguments of `squall completions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall completions bash > /etc/bash_completion.d/squall")]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Writes the script.
///
/// # Errors
///
/// When the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    // Gathered first, because the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "squall", &mut script);
    out.write_all(&script)?;
    Ok(())
}
