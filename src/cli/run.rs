//! `squall run`: the daemon.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::api::{self, EVENTS_KEPT, WebConfig};
use crate::clock::SystemClock;
use crate::config::{self, ConfigError, Engine};
use crate::daemon::{self, DaemonError, Loaded, Setup};
use crate::store;
use crate::telemetry::{self, Metrics};

use super::Failure;

/// Arguments of `squall run`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall run --config.file=squall.yml --web.listen-address=127.0.0.1:9797")]
pub struct Args {
    /// The configuration.
    #[arg(long = "config.file", value_name = "FILE", default_value = "squall.yml")]
    pub config_file: PathBuf,
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
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

impl LogLevel {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Requests for a reload that wait while one is under way.
const RELOADS_WAITING: usize = 4;

/// Runs the daemon until it is told to stop.
///
/// # Errors
///
/// When the configuration is wrong, the address is taken, or a part of the daemon fails.
pub fn run(args: &Args) -> Result<(), Failure> {
    let format = match args.log_format {
        LogFormat::Logfmt => telemetry::LogFormat::Logfmt,
        LogFormat::Json => telemetry::LogFormat::Json,
    };
    telemetry::init(args.log_level.as_str(), format)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let loaded = load(args).map_err(Failure::Usage)?;
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(serve(args.clone(), loaded));
    // What did not end in its time is not waited for: a fit under way may take seconds more.
    runtime.shutdown_background();
    outcome
}

/// Reads everything that the arguments name; says what is wrong with it.
fn load(args: &Args) -> Result<Loaded, String> {
    let rules =
        super::rules::load(&args.rules_path).map_err(|failure| super::with_causes(&failure))?;
    let mut config = match config::load(&args.config_file, &rules) {
        Ok(config) => config,
        Err(ConfigError::Unreadable { file, cause }) if cause.kind() == ErrorKind::NotFound => {
            let file = file.display();
            return Err(format!(
                "there is no configuration `{file}`; \
                 `squall doctor --prometheus.url=http://127.0.0.1:9090 --write {file}` writes one"
            ));
        }
        Err(error) => return Err(super::with_causes(&error)),
    };
    if let Some(path) = &args.storage_path {
        config.storage.engine = Engine::Sqlite(path.clone());
    }
    let web = match &args.web_config_file {
        Some(file) => config::web::load(file).map_err(|error| super::with_causes(&error))?,
        None => WebConfig::default(),
    };
    Ok(Loaded { config, web })
}

async fn serve(args: Args, loaded: Loaded) -> Result<(), Failure> {
    let failed = |error: DaemonError| Failure::running("cannot run the daemon", error);
    let listener = api::bind(&args.listen_address)
        .await
        .map_err(|error| Failure::running("cannot start the web server", error))?;
    let store = store::open(&daemon::store_config(&loaded.config.storage))
        .await
        .map_err(|cause| failed(DaemonError::Store(cause)))?;
    let scheme = if loaded.web.tls.is_some() { "https" } else { "http" };
    let external_url = args.external_url.clone().unwrap_or_else(|| reachable(scheme, &listener));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        url = external_url,
        sources = loaded.config.prometheus.len(),
        watches = loaded.config.watch.len(),
        "starting",
    );
    let metrics = Metrics::new();
    let reload = mpsc::channel(RELOADS_WAITING);
    let stop = CancellationToken::new();
    let told = tokio::spawn(daemon::until_told(reload.0.clone(), stop.clone()));
    let setup = Setup {
        sources: daemon::prometheus_sources(metrics.clone()),
        store,
        listener,
        external_url,
        clock: Arc::new(SystemClock),
        pipeline: super::what_if::pipeline_config(),
        metrics,
        changes: broadcast::channel(EVENTS_KEPT).0,
        loaded,
        loader: Box::new(move || load(&args)),
    };
    let outcome = daemon::run(setup, reload, stop).await;
    if let Ok(Err(cause)) = told.await {
        tracing::warn!(error = %cause, "signals could not be taken");
    }
    outcome.map_err(failed)
}

/// The address at which a browser on this machine reaches a listener.
pub(crate) fn reachable(scheme: &str, listener: &TcpListener) -> String {
    match listener.local_addr() {
        Ok(address) if address.ip().is_unspecified() => {
            format!("{scheme}://localhost:{}", address.port())
        }
        Ok(address) => format!("{scheme}://{address}"),
        Err(_) => format!("{scheme}://localhost"),
    }
}
