//! `squall demo`: a simulated shop, the daemon beside it, and the story told on the terminal.
//!
//! Nothing is faked between the shop and the page: the daemon asks a Prometheus-compatible endpoint
//! over HTTP, keeps a record, and tells a webhook receiver, exactly as it would beside a real
//! Prometheus. Only the record is in memory, and the shop is simulated.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{self, ChangeEvent, EVENTS_KEPT, WebConfig};
use crate::clock::SystemClock;
use crate::config;
use crate::daemon::{self, DaemonError, Loaded, Setup};
use crate::rules::Rules;
use crate::series::selector::parse_duration;
use crate::sim::scenario::Scenario;
use crate::sim::serve::{Live, serve};
use crate::sim::shop::shop;
use crate::store::SqlStore;
use crate::telemetry::{self, Metrics};

use super::run::reachable;
use super::{Failure, report};

mod receiver;
mod story;

use story::Story;

/// Arguments of `squall demo`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall demo --duration=2m")]
pub struct Args {
    /// End after this long, as Prometheus writes durations; without it, run until ctrl-c.
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// The seed of the simulated shop.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Address of the page and the API; port 0 takes a free one.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen_address: String,
}

/// Seconds that the shop has been open when the demo starts: history for the baselines.
const HISTORY_SECONDS: f64 = 180.0;
/// Lines of the story that wait to be printed.
const LINES_WAITING: usize = 256;
/// Columns of a terminal nobody has changed.
const COLUMNS: usize = 80;
/// Columns of the time and the speaker before each line.
const MARGIN: usize = 15;

/// One thing that happened, as it is told.
#[derive(Debug)]
pub(crate) struct Line {
    /// Who says it: `shop`, `squall` or `page`.
    pub(crate) speaker: &'static str,
    /// What happened.
    pub(crate) text: String,
}

/// Runs the demo.
///
/// # Errors
///
/// When the daemon or the simulated shop cannot start.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let duration = match &args.duration {
        None => None,
        Some(text) => Some(parse_duration(text).ok_or_else(|| {
            Failure::Usage(format!("--duration must be a duration such as 2m, got `{text}`"))
        })?),
    };
    // The story has the terminal; only what does not work is logged.
    telemetry::init("error", telemetry::LogFormat::Logfmt)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    super::runtime()?.block_on(tell(args, duration, out))
}

/// Listens on a free port of this machine.
async fn listen(what: &str) -> Result<TcpListener, Failure> {
    let cannot = |cause| Failure::running(format!("cannot listen for {what}"), cause);
    TcpListener::bind("127.0.0.1:0").await.map_err(cannot)
}

async fn tell(args: &Args, duration: Option<Duration>, out: &mut dyn Write) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let (lines, mut told) = mpsc::channel(LINES_WAITING);
    let prometheus = listen("the simulated Prometheus").await?;
    let hook = listen("the webhook receiver").await?;
    let web = api::bind(&args.listen_address)
        .await
        .map_err(|error| Failure::running("cannot start the web server", error))?;
    let page = reachable("http", &web);
    let prometheus_url = reachable("http", &prometheus);
    let scenario = shop(HISTORY_SECONDS);
    let address = prometheus_url.trim_start_matches("http://").to_owned();
    let clock = Arc::new(SystemClock);
    let live = Live::start(&scenario, args.seed, 1.0, HISTORY_SECONDS, clock, &address);
    let began = Instant::now();
    tokio::spawn(serve(prometheus, live, stop.clone().cancelled_owned()));
    let hook_url = format!("{}/", reachable("http", &hook));
    tokio::spawn(receiver::receive(hook, lines.clone(), stop.clone()));
    tokio::spawn(troubles(scenario.clone(), began, lines.clone(), stop.clone()));
    let (changes, changes_reader) = broadcast::channel(EVENTS_KEPT);
    tokio::spawn(seen(changes_reader, lines, stop.clone()));

    let introduction = Story::introduction(&page, &prometheus_url);
    write!(out, "{introduction}")?;
    out.flush()?;
    let setup = setup(web, &page, &prometheus_url, &hook_url, changes).await?;
    let reload = mpsc::channel(1);
    let signals = tokio::spawn(daemon::until_told(reload.0.clone(), stop.clone()));
    let mut daemon = std::pin::pin!(daemon::run(setup, reload, stop.clone()));
    let end = async {
        match duration {
            Some(duration) => tokio::time::sleep_until(began + duration).await,
            None => std::future::pending().await,
        }
    };
    let mut end = std::pin::pin!(end);
    let mut story = Story::default();
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = daemon.as_mut() => break outcome,
            // Cancel-safe: a line not yet taken stays in the channel.
            Some(line) = told.recv() => {
                story.note(&line);
                print(&line, began.elapsed(), out)?;
            }
            () = end.as_mut(), if !stop.is_cancelled() => stop.cancel(),
        }
    };
    stop.cancel();
    if let Ok(Err(cause)) = signals.await {
        return Err(Failure::running("cannot take signals", cause));
    }
    outcome.map_err(|error: DaemonError| Failure::running("cannot run the demo", error))?;
    write!(out, "\n{}\n", story.end())?;
    Ok(())
}

/// Prints one line under its time and speaker.
fn print(line: &Line, elapsed: Duration, out: &mut dyn Write) -> Result<(), Failure> {
    let seconds = elapsed.as_secs();
    let head = format!("{:02}:{:02}  {:<8}", seconds / 60, seconds % 60, line.speaker);
    for (index, text) in report::wrapped(&line.text, COLUMNS - MARGIN).iter().enumerate() {
        let head = if index == 0 { head.as_str() } else { "" };
        writeln!(out, "{head:<MARGIN$}{text}")?;
    }
    out.flush()?;
    Ok(())
}

/// What the daemon of the demo is made from.
async fn setup(
    listener: TcpListener,
    page: &str,
    prometheus_url: &str,
    hook_url: &str,
    changes: broadcast::Sender<Arc<ChangeEvent>>,
) -> Result<Setup, Failure> {
    let rules = Rules::builtin();
    let text = format!(
        "prometheus:\n  - {{name: shop, url: {prometheus_url}, poll_interval: 1s}}\n\
         watch:\n  - name: shop\n    requests: http_client_requests_total\n    \
         errors: http_client_requests_total{{code=~\"5..\"}}\n    by: [dependency]\n    client: [job]\n\
         notify:\n  - webhook: {{url: {hook_url}}}\n"
    );
    let config = config::read(&text, Path::new(""), &rules).map_err(|faults| {
        let says: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failure::plain(format!("the configuration of the demo is wrong: {}", says.join("; ")))
    })?;
    let store = SqlStore::in_memory()
        .await
        .map_err(|cause| Failure::running("cannot make a record in memory", cause))?;
    let loaded = Loaded { config, web: WebConfig::default() };
    let again = loaded.clone();
    let metrics = Metrics::new();
    Ok(Setup {
        sources: daemon::prometheus_sources(metrics.clone()),
        store: Arc::new(store),
        listener,
        external_url: page.to_owned(),
        clock: Arc::new(SystemClock),
        pipeline: super::what_if::pipeline_config(),
        metrics,
        changes,
        loaded,
        loader: Box::new(move || Ok(again.clone())),
    })
}

/// Tells of the shop's troubles when they begin.
async fn troubles(
    scenario: Scenario,
    began: Instant,
    lines: mpsc::Sender<Line>,
    stop: CancellationToken,
) {
    let mut coming = story::troubles(&scenario, HISTORY_SECONDS);
    loop {
        let Some(next) = coming.pop_first() else { return };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(began + next.at()) => {}
        }
        let line = Line { speaker: "shop", text: next.text() };
        if lines.send(line).await.is_err() {
            return;
        }
        coming.extend(next.again());
    }
}

/// Tells of what squall believes when that changes.
async fn seen(
    mut changes: broadcast::Receiver<Arc<ChangeEvent>>,
    lines: mpsc::Sender<Line>,
    stop: CancellationToken,
) {
    let mut told = story::Told::default();
    loop {
        let change = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            change = changes.recv() => change,
        };
        let text = match change {
            Ok(change) => told.text(&change),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if let Some(text) = text
            && lines.send(Line { speaker: "squall", text }).await.is_err()
        {
            return;
        }
    }
}
