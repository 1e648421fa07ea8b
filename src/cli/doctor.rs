//! `squall doctor`: what a Prometheus lets squall watch, and what it cannot show.
//!
//! Nobody writes a configuration for a tool they have never seen work. So the doctor looks first:
//! which conventions' counters are there, who depends on whom, how often and at which phases they
//! are scraped, which retry schedules would be seen at that, and which would not. `--write` turns
//! the answer into a configuration.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::config::{self, Config};
use crate::daemon;
use crate::rules::Rules;
use crate::telemetry::Metrics;

use super::{Failure, Format, progress, runtime};

mod ask;
mod examine;
mod guess;
mod prescribe;
mod sampling;
mod table;
mod written;

/// The configuration that is read where none is named, as `squall run` does.
const CONFIG_DEFAULT: &str = "squall.yml";

/// Arguments of `squall doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall doctor --prometheus.url=http://127.0.0.1:9090 --write squall.yml")]
pub struct Args {
    /// The Prometheus to ask; without it, those of the configuration.
    #[arg(long = "prometheus.url", value_name = "URL")]
    pub prometheus_url: Option<String>,
    /// The configuration, for its sources and watches [default: squall.yml, where there is one].
    #[arg(long = "config.file", value_name = "FILE", conflicts_with = "prometheus_url")]
    pub config_file: Option<PathBuf>,
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
    /// Write a configuration for what was found; an existing file is left alone.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// How to write the report.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Asks and reports.
///
/// # Errors
///
/// When no Prometheus answers.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(file) = args.write.as_ref().filter(|file| file.exists()) {
        let says = format!("`{}` is there already and is left alone", file.display());
        return Err(Failure::Usage(says));
    }
    let rules = super::rules::load(&args.rules_path)?;
    let (config, section) = configuration(args, &rules)?;
    let rules = config.rules.known.clone();
    let found = runtime()?.block_on(examine_all(&config, &rules))?;
    match args.format {
        Format::Table => table::write(&found, &rules, out)?,
        Format::Json => {
            let report = table::to_json(&found, &rules);
            serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
    }
    let Some(file) = &args.write else { return Ok(()) };
    let mut text = written::configuration(&found, section.as_deref(), &rules);
    let mut own = config.rules;
    own.path.extend(args.rules_path.iter().cloned());
    for path in &mut own.path {
        // The file may be written to another folder than the one its rules were named from.
        *path = std::path::absolute(&*path).map_err(|cause| {
            Failure::running(format!("cannot find `{}`", path.display()), cause)
        })?;
    }
    if !own.path.is_empty() || !own.inline.is_empty() {
        text.push('\n');
        text.push_str(&own.section());
    }
    if let Err(faults) = config::read(&text, config::folder_of(file), &rules) {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let says =
            format!("the configuration made is faulty, which is a bug: {}", faults.join("; "));
        return Err(Failure::plain(says));
    }
    save(file, &text)?;
    if args.format == Format::Table {
        writeln!(out, "\nWritten to {}: `squall run --config.file={0}`", file.display())?;
    }
    Ok(())
}

/// The sources and watches to look at, and the section `prometheus` as it was written.
fn configuration(args: &Args, rules: &Rules) -> Result<(Config, Option<String>), Failure> {
    if let Some(url) = &args.prometheus_url {
        let text = format!("prometheus: [{{name: main, url: {}}}]", config::quoted(url));
        let config = config::read(&text, Path::new(""), rules).map_err(|faults| {
            let says: Vec<&str> = faults.iter().map(|fault| fault.says.as_str()).collect();
            Failure::Usage(format!("--prometheus.url: {}", says.join("; ")))
        })?;
        return Ok((config, None));
    }
    let file = match &args.config_file {
        Some(file) => file.clone(),
        None if Path::new(CONFIG_DEFAULT).exists() => PathBuf::from(CONFIG_DEFAULT),
        None => {
            return Err(Failure::Usage(
                "which Prometheus? give it as --prometheus.url=http://127.0.0.1:9090, or a \
                 configuration by --config.file"
                    .to_owned(),
            ));
        }
    };
    let faulty = |error| Failure::Usage(super::with_causes(&error));
    let text = config::text_of(&file).map_err(faulty)?;
    let config = config::load(&file, rules).map_err(faulty)?;
    if config.prometheus.is_empty() {
        return Err(Failure::Usage(format!("`{}` names no Prometheus", file.display())));
    }
    Ok((config, Some(section_of(&text, "prometheus"))))
}

/// The lines of a top-level section of a YAML file, as they are.
fn section_of(text: &str, key: &str) -> String {
    let head = format!("{key}:");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&head)).peekable();
    let mut section = String::new();
    for line in lines.next().into_iter().chain(lines) {
        let is_other = line.starts_with(|c: char| !c.is_whitespace() && !"-#}]".contains(c))
            && !line.starts_with(&head);
        if is_other {
            break;
        }
        section.push_str(line.trim_end());
        section.push('\n');
    }
    format!("{}\n", section.trim_end())
}

async fn examine_all(config: &Config, rules: &Rules) -> Result<Vec<examine::Examined>, Failure> {
    let metrics = Metrics::new();
    let mut all = Vec::new();
    let mut refused: Option<Failure> = None;
    let bar = progress::bar(0, "watches");
    for source in &config.prometheus {
        let server = daemon::prometheus_source(source, &metrics)
            .map_err(|error| Failure::running("cannot ask", error))?;
        let configured: Vec<config::WatchConfig> = config
            .watch
            .iter()
            .filter(|watch| watch.sources.is_empty() || watch.sources.contains(&source.name))
            .cloned()
            .collect();
        let asker = ask::Asker::new(&server);
        match examine::examine(asker, &source.url, &configured, rules, &|| bar.inc(1)).await {
            Ok(examined) => all.push(examined),
            Err(error) => {
                let says = format!("cannot examine `{}`", source.url);
                refused = Some(Failure::running(says, error));
            }
        }
    }
    bar.finish_and_clear();
    match refused {
        // One of several that does not answer must not hide what the others have.
        Some(failure) if all.is_empty() => Err(failure),
        Some(failure) => {
            if let Some(first) = all.first_mut() {
                first.warnings.push(super::with_causes(&failure));
            }
            Ok(all)
        }
        None => Ok(all),
    }
}

/// Writes a file that must not be there yet.
fn save(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |cause| Failure::running(format!("cannot write `{}`", file.display()), cause);
    let mut open = File::create_new(file).map_err(failed)?;
    open.write_all(text.as_bytes()).and_then(|()| open.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_taken_as_it_was_written() {
        let text = "# mine\nprometheus:\n- name: a\n  # why\n  url: x\n\nwatch:\n  - preset: y\n";
        assert_eq!(section_of(text, "prometheus"), "prometheus:\n- name: a\n  # why\n  url: x\n");
        assert_eq!(section_of("prometheus: [{url: x}]", "prometheus"), "prometheus: [{url: x}]\n");
    }

    #[test]
    fn nothing_to_ask_is_wrong_usage() {
        let args = Args {
            prometheus_url: Some("ftp://x".to_owned()),
            config_file: None,
            rules_path: Vec::new(),
            write: None,
            format: Format::Table,
        };
        let failure = run(&args, &mut Vec::new()).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(says) if says.contains("prometheus.url")));
    }
}
