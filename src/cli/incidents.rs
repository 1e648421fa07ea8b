//! `squall incidents`: reads a running daemon over HTTP.

use std::io::Write;
use std::path::PathBuf;

use super::{Failure, Format};

/// Arguments of `squall incidents`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall incidents list --url=http://127.0.0.1:9797 --state=firing")]
pub struct Args {
    /// Where the daemon listens.
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:9797")]
    pub url: String,
    /// A file that holds `user:password` for a daemon behind basic authentication.
    #[arg(long = "basic-auth-file", global = true, value_name = "FILE")]
    pub basic_auth_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the incidents.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// List incidents, newest first.
    #[command(after_help = "Example:\n  squall incidents list --dependency=payments --from=-7d")]
    List(Filter),
    /// Show one incident.
    #[command(after_help = "Example:\n  squall incidents show 3f9c2ab1d0e47586")]
    Show {
        /// The incident's id.
        id: String,
        /// How to write it.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Write every incident that matches as one JSON object a line.
    #[command(after_help = "Example:\n  squall incidents export --from=-30d > incidents.jsonl")]
    Export(Filter),
    /// Say whether an incident was right.
    #[command(after_help = "Example:
  squall incidents feedback 3f9c2ab1d0e47586 --verdict=false --note='load test'")]
    Feedback {
        /// The incident's id.
        id: String,
        /// Whether it was a storm at all.
        #[arg(long, value_parser = ["true", "false"])]
        verdict: String,
        /// The class it really was.
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// In your words.
        #[arg(long, default_value = "")]
        note: String,
    },
}

/// Which incidents.
#[derive(Debug, Clone, clap::Args)]
pub struct Filter {
    /// Only of this dependency.
    #[arg(long)]
    pub dependency: Option<String>,
    /// Only of this class.
    #[arg(long, value_name = "CLASS")]
    pub classification: Option<String>,
    /// Only in this state: pending, firing or resolved.
    #[arg(long)]
    pub state: Option<String>,
    /// Only of this severity: critical, warning or info.
    #[arg(long)]
    pub severity: Option<String>,
    /// Only those whose best match is this rule.
    #[arg(long, value_name = "RULE")]
    pub schedule: Option<String>,
    /// Only those that hold these words.
    #[arg(long, value_name = "WORDS")]
    pub q: Option<String>,
    /// Only those that started at or after this: RFC 3339, or a duration back from now (`-7d`).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only those that started before this.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// At most this many; `export` writes all without it.
    #[arg(long)]
    pub limit: Option<usize>,
    /// How to write them; `export` always writes JSON lines.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Asks the daemon.
///
/// # Errors
///
/// When the daemon does not answer or refuses.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("incidents"))
}
