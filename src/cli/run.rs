//! `squall run`: the daemon.

use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;

/// Arguments of `squall run`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall run --config.file=squall.yml --web.listen-address=127.0.0.1:9797")]
pub struct Args {
    /// The configuration.
    #[arg(long = "config.file", value_name = "FILE", default_value = "squall.yml")]
    pub config_file: PathBuf,
    /// Folder of the record; wins over `storage.path` of the configuration [default: data/].
    #[arg(long = "storage.path", value_name = "FOLDER")]
    pub storage_path: Option<PathBuf>,
    /// Address of the page, the API and the metrics.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9797")]
    pub listen_address: String,
    /// TLS and basic authentication, in the form of Prometheus' web configuration.
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Where people reach the page, for the links in alerts [default: the listen address].
    #[arg(long = "web.external-url", value_name = "URL")]
    pub external_url: Option<String>,
    /// The least severe message to log.
    #[arg(long = "log.level", value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// The form of the log.
    #[arg(long = "log.format", value_enum, value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

/// The least severe message to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Everything that may help to find a fault in squall.
    Debug,
    /// What an operator may want to know.
    Info,
    /// What an operator should look at.
    Warn,
    /// What does not work.
    Error,
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `key=value` pairs.
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
///
/// When the configuration is wrong, the address is taken, or a part of the daemon fails.
pub fn run(_args: &Args) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("run"))
}
