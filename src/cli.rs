//! The command line: one file a sub-command.
//!
//! Flags are written as Prometheus writes them (`--config.file=squall.yml`), so that what an
//! operator knows of one holds for the other. A sub-command returns a [`Failure`] and never ends
//! the process itself: the one place that maps outcomes to exit codes is [`main`]. Results go to
//! the writer a command is given (standard output), everything else to standard error, so that
//! any command can stand in a pipe.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::series::Timestamp;
use crate::series::selector::parse_duration;
use crate::telemetry::Chain;
use crate::wire::parse_rfc3339;

pub mod analyze;
pub mod backtest;
pub mod check;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod incidents;
pub mod notify;
mod progress;
mod report;
pub mod rules;
pub mod run;
pub mod simulate;
mod what_if;

/// Exit code of a command that failed while running.
const EXIT_FAILED: u8 = 1;
/// Exit code of wrong usage or a wrong configuration; clap uses the same.
const EXIT_USAGE: u8 = 2;

/// Tells backoff without jitter from retry storms without backoff, from the raw request counters
/// in Prometheus.
#[derive(Debug, Parser)]
#[command(name = "squall", version, about, propagate_version = false, max_term_width = 100)]
#[command(after_help = "Examples:
  squall demo
      everything at once, with nothing installed and nothing configured
  squall doctor --prometheus.url=http://127.0.0.1:9090 --write squall.yml
      ask a Prometheus what can be watched, and write a configuration for it
  squall run --config.file=squall.yml
      the daemon")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon.
    Run(run::Args),
    /// Show everything at once on a simulated shop, with nothing configured.
    Demo(demo::Args),
    /// Check configuration, rule and web-config files: every fault at once.
    Check(check::Args),
    /// Ask a Prometheus what could be watched and what cannot be seen there.
    Doctor(doctor::Args),
    /// Replay history from a Prometheus through the same pipeline.
    Backtest(backtest::Args),
    /// Find the storms in files of OpenMetrics text with timestamps.
    Analyze(analyze::Args),
    /// Run a scenario file of the simulator.
    Simulate(simulate::Args),
    /// Read the incidents of a running daemon.
    Incidents(incidents::Args),
    /// Try the receivers of a configuration.
    Notify(notify::Args),
    /// Look up the retry schedules and presets known.
    Rules(rules::Args),
    /// Print a completion script for a shell.
    Completions(completions::Args),
}

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Why a sub-command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments or a configuration are wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It failed while running: exit code 1.
    #[error("{operation}")]
    Running {
        /// What was being done, with its object in backticks.
        operation: String,
        /// Why it failed, where there is an underlying error.
        #[source]
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Standard output could not be written: exit code 1, unless the reader has gone away.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl Failure {
    /// A failure while running with an underlying error.
    pub fn running(
        operation: impl Into<String>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Running { operation: operation.into(), cause: Some(Box::new(cause)) }
    }

    /// A failure while running that says it all itself.
    pub fn plain(operation: impl Into<String>) -> Self {
        Self::Running { operation: operation.into(), cause: None }
    }

    /// A command that this build does not have.
    #[must_use]
    pub fn not_in_this_build(command: &str) -> Self {
        Self::plain(format!("`squall {command}` is not in this build"))
    }

    /// The exit code it is worth.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            // A reader that closed its end has what it wanted (`squall … | head`).
            Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Running { .. } | Self::Output(_) => EXIT_FAILED,
        }
    }
}

/// An error and its causes on one line, as a terminal shows it.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    Chain(error).to_string()
}

/// Runs the command line `arguments` and returns what the process ends with.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(refusal) => {
            // Prints help and version to standard output and faults to standard error.
            let printed = refusal.print();
            let code = if refusal.use_stderr() || printed.is_err() { EXIT_USAGE } else { 0 };
            return ExitCode::from(code);
        }
    };
    let stdout = io::stdout();
    let mut out = io::BufWriter::new(stdout.lock());
    let outcome = dispatch(&cli.command, &mut out).and_then(|()| Ok(out.flush()?));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = failure.exit_code();
            if code != 0 {
                // Nothing is left to say when standard error itself is gone.
                drop(writeln!(io::stderr(), "squall: {}", with_causes(&failure)));
            }
            ExitCode::from(code)
        }
    }
}

/// Runs one command, writing its result to `out`.
///
/// # Errors
///
/// Whatever the command fails with.
pub fn dispatch(command: &Command, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Demo(args) => demo::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Backtest(args) => backtest::run(args, out),
        Command::Analyze(args) => analyze::run(args, out),
        Command::Simulate(args) => simulate::run(args, out),
        Command::Incidents(args) => incidents::run(args, out),
        Command::Notify(args) => notify::run(args, out),
        Command::Rules(args) => rules::run(args, out),
        Command::Completions(args) => completions::run(args, out),
    }
}

/// An instant given on the command line: RFC 3339, or a duration back from now (`-7d`).
pub(crate) fn instant(text: &str, now: Timestamp) -> Option<Timestamp> {
    match text.strip_prefix('-') {
        Some(back) => parse_duration(back).map(|back| now.minus(back)),
        None => parse_rfc3339(text),
    }
}

/// The runtime that commands with network or files to wait for run on.
///
/// # Errors
///
/// When the system gives no threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::running("cannot start the runtime", cause))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_help_has_an_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let mut open: Vec<clap::Command> =
            command.get_subcommands_mut().map(|c| c.clone()).collect();
        let mut seen = 0;
        while let Some(sub) = open.pop() {
            seen += 1;
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example"), "`squall {}` has no example", sub.get_name());
            assert!(
                help.contains(sub.get_name()),
                "the example of `{}` is another's",
                sub.get_name()
            );
            open.extend(sub.get_subcommands().cloned());
        }
        assert!(seen >= 10, "only {seen} sub-commands were looked at");
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        assert_eq!(Failure::plain("cannot").exit_code(), 1);
        assert_eq!(Failure::Output(io::ErrorKind::StorageFull.into()).exit_code(), 1);
        assert_eq!(Failure::Output(io::ErrorKind::BrokenPipe.into()).exit_code(), 0);
    }
}
