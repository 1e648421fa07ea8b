//! `squall notify test`: a page that says it is a test, and its end, to each receiver.
//!
//! Sent past the outbox, since what is asked is whether a receiver takes it now; and the end too,
//! so that no test stays open at a receiver that keeps pages until they are resolved.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::classify::{Class, Impact, Severity, Verdict};
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::daemon;
use crate::incident::{DependencyKey, Incident, IncidentId, State};
use crate::notify::{Message, Notifier, NotifyError, Told};
use crate::rules::Rules;
use crate::series::{Labels, Timestamp};
use crate::store::Event;
use crate::wire::IncidentJson;

use super::Failure;

/// Arguments of `squall notify`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall notify test --config.file=squall.yml")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the receivers.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Send a page that says it is a test, and its end, to each receiver.
    #[command(
        after_help = "Example:\n  squall notify test --config.file=squall.yml --receiver=slack"
    )]
    Test {
        /// The configuration, for its receivers.
        #[arg(long = "config.file", value_name = "FILE", default_value = "squall.yml")]
        config_file: PathBuf,
        /// Only this one; may be given several times.
        #[arg(long, value_name = "NAME")]
        receiver: Vec<String>,
        /// Where people reach the page, for the links.
        #[arg(
            long = "web.external-url",
            value_name = "URL",
            default_value = "http://127.0.0.1:9797"
        )]
        external_url: String,
    },
}

/// Time one receiver gets for one message, as the daemon gives it.
const TRY_LIMIT: Duration = Duration::from_secs(12);

/// Tells the receivers.
///
/// # Errors
///
/// When the configuration is wrong, or a receiver did not take what it was sent.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let Action::Test { config_file, receiver, external_url } = &args.action;
    let config = config::load(config_file, &Rules::builtin())
        .map_err(|error| Failure::Usage(super::with_causes(&error)))?;
    let mut notifiers = daemon::notifiers(&config, external_url)
        .map_err(|error| Failure::running("cannot set up the receivers", error))?;
    if notifiers.is_empty() {
        return Err(Failure::Usage(format!("`{}` tells nobody", config_file.display())));
    }
    for name in receiver {
        if !notifiers.iter().any(|notifier| notifier.name() == name) {
            let known: Vec<&str> = notifiers.iter().map(|notifier| notifier.name()).collect();
            let known = known.join(", ");
            return Err(Failure::Usage(format!("no receiver is called `{name}`; known: {known}")));
        }
    }
    notifiers.retain(|it| receiver.is_empty() || receiver.iter().any(|name| name == it.name()));
    let now = SystemClock.now();
    let failed = super::runtime()?.block_on(async {
        let mut failed = 0;
        for notifier in &notifiers {
            match tell(notifier, now).await {
                Ok(()) => writeln!(out, "{}: took it", notifier.name())?,
                Err(error) => {
                    failed += 1;
                    writeln!(out, "{}: {}", notifier.name(), super::with_causes(&error))?;
                }
            }
        }
        Ok::<_, Failure>(failed)
    })?;
    if failed > 0 {
        out.flush()?;
        let all = notifiers.len();
        return Err(Failure::plain(format!("{failed} of {all} receivers did not take the test")));
    }
    Ok(())
}

/// Sends the page and its end.
async fn tell(notifier: &Arc<dyn Notifier>, now: Timestamp) -> Result<(), NotifyError> {
    for (sequence, event) in [(1, Event::Test), (2, Event::Resolved)] {
        let incident = example(now, event.ends());
        let message = Message {
            key: format!("{}-{}-{sequence}", incident.id, notifier.name()),
            group: incident.id.clone(),
            told: vec![Told { event, incident: IncidentJson::from(&incident) }],
            others: Vec::new(),
            now,
        };
        match tokio::time::timeout(TRY_LIMIT, notifier.send(&message)).await {
            Ok(sent) => sent?,
            Err(_) => return Err(NotifyError::Timeout { receiver: notifier.name().to_owned() }),
        }
    }
    Ok(())
}

/// The incident that is told of.
fn example(now: Timestamp, is_over: bool) -> Incident {
    Incident {
        id: IncidentId(format!("test-{}", now.millis())),
        dependency: DependencyKey {
            source: "test".to_owned(),
            watch: "test".to_owned(),
            labels: Labels::new([("dependency", "test")]),
        },
        state: if is_over { State::Resolved } else { State::Firing },
        verdict: Verdict {
            class: Class::BackoffWithoutJitter,
            severity: Severity::Info,
            started_at: now,
            confidence: 1.0,
            summary: "A test by `squall notify test`: nothing is wrong, and nothing is to be done."
                .to_owned(),
            schedule: None,
            waves: Vec::new(),
            next_wave_at: None,
            impact: Impact::default(),
            evidence: Vec::new(),
            matches: Vec::new(),
            advice: Vec::new(),
        },
        detected_at: Some(now),
        updated_at: now,
        ended_at: is_over.then_some(now),
        feedback: None,
    }
}
