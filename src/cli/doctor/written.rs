//! The configuration that `squall doctor --write` writes: what was found, with what is known of it
//! beside it, ready to run without a touch.
//!
//! What a person should decide stands there as a comment: conventions whose counter may mean
//! something else, and whom to tell.

use std::fmt::Write as _;

use crate::cli::report::wrapped;
use crate::config::quoted;
use crate::rules::Rules;
use crate::rules::policy::seconds;

use super::examine::{Examined, Found, Origin, Standing};
use super::prescribe;

/// Columns of the file.
const COLUMNS: usize = 100;

/// Writes the configuration for the servers examined. `prometheus` is the section of that name as
/// it stands in the configuration at hand, credentials and all; without one it is made.
pub(super) fn configuration(all: &[Examined], prometheus: Option<&str>, rules: &Rules) -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "",
        "Written by `squall doctor`. `squall check` tells every fault in it at once, `squall run` \
         takes it as it is, and `squall doctor --config.file` says how well it sees.",
    );
    text.push('\n');
    match prometheus {
        Some(section) => text.push_str(section),
        None => {
            text.push_str("prometheus:\n");
            for server in all {
                let _infallible = write!(
                    text,
                    "  - name: {}\n    url: {}\n",
                    quoted(&server.name),
                    quoted(&server.url)
                );
                for it in &server.scrapes {
                    let says = format!("{} targets every {}", it.targets, it.interval);
                    comment(&mut text, "    ", &says);
                }
                comment(&mut text, "    ", "poll_interval: the shortest scrape interval seen");
            }
        }
    }
    text.push('\n');
    watches(&mut text, all, rules);
    text.push('\n');
    receivers(&mut text, all);
    text.push('\n');
    comment(
        &mut text,
        "",
        "The record of incidents: SQLite in this folder, or PostgreSQL by `url`.",
    );
    text.push_str("storage:\n  path: data/\n  retention: 400d\n");
    text
}

fn comment(text: &mut String, indent: &str, says: &str) {
    // What begins with a dash goes on under its first word.
    let hang = if says.starts_with("- ") { "  " } else { "" };
    for (index, line) in wrapped(says, COLUMNS - indent.len() - 4).iter().enumerate() {
        let hang = if index == 0 { "" } else { hang };
        let _infallible = writeln!(text, "{indent}# {hang}{line}");
    }
}

fn watches(text: &mut String, all: &[Examined], rules: &Rules) {
    let ready = |found: &&Found| found.standing == Standing::Ready;
    let any = all.iter().any(|server| server.watches.iter().any(|found| ready(&found)));
    if any {
        text.push_str("watch:\n");
    } else {
        comment(
            text,
            "",
            "Nothing was found that can be watched as it is. Give a counter of requests, and the \
             failures among them:",
        );
        text.push_str(
            "# watch:\n#   - name: http\n#     requests: http_client_requests_total\n#     errors: \
             http_client_requests_total{code=~\"5..\"}\n#     by: [dependency]\n",
        );
    }
    // The same preset on two servers is one watch.
    let mut written: Vec<&str> = Vec::new();
    for server in all {
        for found in &server.watches {
            if written.contains(&found.config.name.as_str()) {
                continue;
            }
            if !written.is_empty() {
                text.push('\n');
            }
            written.push(&found.config.name);
            watch(text, found, rules, any);
        }
    }
}

fn watch(text: &mut String, found: &Found, rules: &Rules, any: bool) {
    let indent = "  ";
    let dependencies = found.dependencies_total;
    let about = match &found.origin {
        Origin::Preset(preset) => preset.name.clone(),
        _ => found.config.requests.to_string(),
    };
    let is_ready = found.standing == Standing::Ready;
    let indent = if is_ready || any { indent } else { "" };
    match &found.standing {
        Standing::Ready => {
            let plural = if dependencies == 1 { "dependency" } else { "dependencies" };
            let says = format!("{about}: {dependencies} {plural}, {:.0} series.", found.series);
            comment(text, indent, &says);
        }
        Standing::Ask(why) => {
            comment(
                text,
                indent,
                &format!("{about}. Take it in when you have looked at this: {why}"),
            );
        }
        Standing::SameAs(other) => {
            comment(text, indent, &format!("{about}: `{other}` reads the same series."));
        }
        Standing::Refused(why) => comment(text, indent, &format!("{about}: {why}.")),
    }
    if is_ready {
        if let Some(says) = prescribe::blindness(found, rules) {
            comment(text, indent, &format!("It {says}."));
        }
        for says in prescribe::changes(found) {
            comment(text, indent, &format!("- {says}"));
        }
    }
    let mark = if is_ready { "" } else { "# " };
    let mut line = |says: &str| {
        let _infallible = writeln!(text, "{indent}{mark}{says}");
    };
    if found.config.preset.is_some() && !matches!(found.origin, Origin::Configured) {
        line(&format!("- preset: {}", quoted(&found.config.name)));
        return;
    }
    line(&format!("- name: {}", quoted(&found.config.name)));
    if let Some(preset) = &found.config.preset {
        line(&format!("  preset: {}", quoted(preset)));
    }
    line(&format!("  requests: {}", quoted(&found.config.requests.to_string())));
    if let Some(errors) = &found.config.errors {
        line(&format!("  errors: {}", quoted(&errors.to_string())));
    }
    let list =
        |values: &[String]| values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ");
    let retries: Vec<String> = found.config.retries.iter().map(ToString::to_string).collect();
    if !retries.is_empty() {
        line(&format!("  retries: [{}]", list(&retries)));
    }
    if let Some(calls) = &found.config.calls {
        line(&format!("  calls: {}", quoted(&calls.to_string())));
    }
    for (key, values) in [
        ("by", &found.config.by),
        ("client", &found.config.client),
        ("sources", &found.config.sources),
    ] {
        if !values.is_empty() {
            line(&format!("  {key}: [{}]", list(values)));
        }
    }
    if found.config.counts_calls {
        line("  counts_calls: true");
    }
    let flushes: Vec<String> =
        found.config.flush_intervals.iter().map(|flush| seconds(flush.as_secs_f64())).collect();
    if !flushes.is_empty() {
        line(&format!("  flush_intervals: [{}]", flushes.join(", ")));
    }
}

fn receivers(text: &mut String, all: &[Examined]) {
    let mut known: Vec<&str> =
        all.iter().flat_map(|server| &server.alertmanagers).map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    let says = if known.is_empty() {
        "Whom to tell. Until a receiver stands here, storms are kept and shown, and nobody is told."
    } else {
        "Whom to tell: these are the Alertmanagers of this Prometheus. Until one stands here without \
         its mark, storms are kept and shown, and nobody is told."
    };
    comment(text, "", says);
    let known = if known.is_empty() { vec!["http://127.0.0.1:9093"] } else { known };
    text.push_str("# notify:\n");
    for url in known {
        let _infallible = writeln!(text, "#   - alertmanager: {{url: {}}}", quoted(url));
    }
}
