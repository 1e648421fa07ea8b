//! The configuration: read, resolved, and every fault told at once.
//!
//! A file is read into nodes that remember their lines (`rules::spanned`), and from there straight
//! into the running form, in which nothing is optional any more that has a default. The obvious
//! way, a derived deserialiser, stops at the first fault and cannot say where it stood; whoever
//! repairs a file at night wants the whole list. `${…}` is never expanded: a file says what it
//! says, and secrets come from files of their own (`…_file`).
//!
//! The documentation of the fields here is the reference page, `deploy/configuration.md`: a test
//! writes it and fails when it is stale.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::rules::spanned::Fault;

mod effective;
mod http;
mod notify;
mod prometheus;
mod read;
mod reference;
mod rules;
mod secret;
mod storage;
mod watch;
pub mod web;

pub use effective::{effective, quoted};
pub use http::{Authorization, BasicAuth, HttpConfig, OAuth2, TlsConfig};
pub use notify::{
    AlertmanagerReceiver, EmailReceiver, OpsgenieReceiver, PagerdutyReceiver, Receiver,
    ReceiverKind, SlackReceiver, WebhookReceiver,
};
pub use prometheus::PrometheusConfig;
pub use read::{FileKind, kind_of, read};
pub use reference::reference;
pub use rules::{OwnRules, rule_files};
pub use secret::Secret;
pub use storage::{Engine, StorageConfig};
pub use watch::{WatchConfig, selector};

/// Largest file read, in bytes: a configuration is a few pages, and a larger file is another file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The configuration in its running form.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The Prometheus-compatible servers to ask; not needed by `squall analyze`.
    pub prometheus: Vec<PrometheusConfig>,
    /// What to watch.
    pub watch: Vec<WatchConfig>,
    /// Whom to tell.
    pub notify: Vec<Receiver>,
    /// Where the record is kept.
    pub storage: StorageConfig,
    /// Rules of the user's own, and with them all that are known.
    pub rules: OwnRules,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read at all.
    #[error("cannot read `{file}`")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// It is read and wrong.
    #[error("{}", listed(.file, .faults))]
    Faulty {
        /// The file.
        file: PathBuf,
        /// Every fault, in the order of the file.
        faults: Vec<Fault>,
    },
}

/// One line for each fault: `file:line: key path: what is wrong`.
fn listed(file: &Path, faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(|fault| located(file, fault)).collect();
    lines.join("\n")
}

/// A fault with its file, as compilers write it, so that editors can jump to it.
#[must_use]
pub fn located(file: &Path, fault: &Fault) -> String {
    let path = if fault.path.is_empty() { String::new() } else { format!("{}: ", fault.path) };
    format!("{}:{}: {path}{}", shown(file), fault.line, fault.says)
}

/// The name of a file in a message; `-` is standard input.
fn shown(file: &Path) -> impl fmt::Display {
    if file == Path::new("-") { "<standard input>".into() } else { file.to_string_lossy() }
}

/// Reads a file of bounded size; `-` is standard input.
///
/// # Errors
///
/// When it cannot be read, is too large or is not UTF-8.
pub fn text_of(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { file: file.to_owned(), cause };
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file)
            .and_then(|open| open.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
    };
    if file.is_dir() {
        let says = format!("it is a folder; give its files, as `{}/*.yml`", file.display());
        return Err(unreadable(std::io::Error::other(says)));
    }
    let bytes = read.map_err(unreadable)?;
    if bytes as u64 > FILE_BYTES_MAX {
        let says = format!("larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(unreadable(std::io::Error::new(std::io::ErrorKind::FileTooLarge, says)));
    }
    Ok(text)
}

/// Reads and resolves the configuration in `file`.
///
/// # Errors
///
/// When it cannot be read, or with all its faults.
pub fn load(file: &Path, rules: &crate::rules::Rules) -> Result<Config, ConfigError> {
    let text = text_of(file)?;
    read(&text, folder_of(file), rules)
        .map_err(|faults| ConfigError::Faulty { file: file.to_owned(), faults })
}

/// The folder that relative paths of a file start from: its own, as in Prometheus.
#[must_use]
pub fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or_else(|| Path::new(""))
}

/// An environment variable, read here and nowhere else.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one door to the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A duration as Prometheus writes it, for messages.
fn written(duration: Duration) -> String {
    crate::series::selector::format_duration(duration)
}
