//! `squall check`: every fault of configuration, rule and web-config files at once.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::config::{self, ConfigError, FileKind};
use crate::rules::{self, Rules};

use super::Failure;

/// Arguments of `squall check`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall check squall.yml web.yml our-rules/*.yaml")]
pub struct Args {
    /// The files to check; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
    /// Print each configuration with all defaults filled in; secrets are never printed.
    #[arg(long)]
    pub effective: bool,
}

/// Checks the files: faults go to standard error, one line each, and everything else to `out`.
///
/// # Errors
///
/// When a file has a fault or cannot be read.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let rules = super::rules::load(&args.rules_path)?;
    let mut faulty: Vec<String> = Vec::new();
    for file in &args.files {
        match check(file, &rules, args.effective) {
            Ok(says) => write!(out, "{says}")?,
            Err(error) => faulty.push(super::with_causes(&error)),
        }
    }
    if faulty.is_empty() {
        return Ok(());
    }
    out.flush()?;
    Err(Failure::Usage(faulty.join("\n")))
}

/// Checks one file and says what it is.
fn check(file: &Path, rules: &Rules, effective: bool) -> Result<String, ConfigError> {
    let text = config::text_of(file)?;
    let shown = file.display();
    let faulty = |faults| ConfigError::Faulty { file: file.to_owned(), faults };
    let folder = config::folder_of(file);
    match config::kind_of(&text) {
        FileKind::Config => {
            let config = config::read(&text, folder, rules).map_err(faulty)?;
            if effective {
                return Ok(config::effective(&config));
            }
            let mut says = format!(
                "{shown}: a good configuration ({} sources, {} watches, {} receivers)\n",
                config.prometheus.len(),
                config.watch.len(),
                config.notify.len()
            );
            for watch in config.watch.iter().filter(|watch| watch.errors.is_none()) {
                says.push_str(&format!(
                    "{shown}: warning: watch `{}` has no `errors`: a flood of retries cannot be \
                     told from a surge there, and never pages\n",
                    watch.name
                ));
            }
            Ok(says)
        }
        FileKind::Web => {
            let web = config::web::read(&text, folder).map_err(faulty)?;
            let tls = if web.tls.is_some() { "TLS" } else { "no TLS" };
            Ok(format!("{shown}: a good web configuration ({tls}, {} users)\n", web.users.len()))
        }
        FileKind::Rule => {
            let found = rules::parse_file(&text).map_err(faulty)?;
            let rules = if found.len() == 1 { "rule" } else { "rules" };
            Ok(format!("{shown}: {} good {rules}\n", found.len()))
        }
    }
}
