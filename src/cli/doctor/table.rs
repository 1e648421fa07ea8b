//! The report of `squall doctor`: for people in 80 columns, for programs as JSON.

use std::io::Write;

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::report::{figure, shortened, wrapped};
use crate::rules::Rules;
use crate::rules::policy::seconds;
use crate::wire::DependencyJson;

use super::examine::{Examined, Found, Origin, Standing};
use super::prescribe::{self, WAITS_SECONDS, rounded};
use super::sampling::{Cost, Seen};

/// Columns of a terminal nobody has changed.
const COLUMNS: usize = 80;
/// Dependencies of one watch that a table shows; JSON has all that were looked at.
const DEPENDENCIES_SHOWN: usize = 12;

/// Writes the report for people.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn write(all: &[Examined], rules: &Rules, out: &mut dyn Write) -> Result<(), Failure> {
    for (index, server) in all.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_server(server, rules, out)?;
    }
    Ok(())
}

fn paragraph(out: &mut dyn Write, first: &str, rest: &str, text: &str) -> Result<(), Failure> {
    for (index, line) in wrapped(text, COLUMNS - rest.len()).iter().enumerate() {
        writeln!(out, "{}{line}", if index == 0 { first } else { rest })?;
    }
    Ok(())
}

fn write_server(server: &Examined, rules: &Rules, out: &mut dyn Write) -> Result<(), Failure> {
    let version = server.version.as_deref().unwrap_or("version unknown");
    writeln!(out, "{}  {} ({version})", server.name, server.url)?;
    let scrapes: Vec<String> = server
        .scrapes
        .iter()
        .map(|it| {
            let down = if it.down > 0 { format!(", {} down", it.down) } else { String::new() };
            format!("{} targets every {}{down}", it.targets, it.interval)
        })
        .collect();
    let scrapes = if scrapes.is_empty() {
        "it does not list its targets; intervals are learned from the samples".to_owned()
    } else {
        scrapes.join("; ")
    };
    paragraph(out, "  ", "  ", &format!("{} metrics; {scrapes}", server.names))?;
    for found in &server.watches {
        writeln!(out)?;
        write_watch(found, rules, out)?;
    }
    if server.watches.is_empty() {
        writeln!(out)?;
        let says = "No preset's metrics are here: give a counter of requests by hand, as \
                    deploy/configuration.md shows.";
        paragraph(out, "  ", "  ", says)?;
    }
    if !server.unclaimed.is_empty() {
        writeln!(out)?;
        let says = format!(
            "Counters that look like requests and that nothing above reads: {}",
            server.unclaimed.join(", ")
        );
        paragraph(out, "  ", "  ", &says)?;
    }
    writeln!(out)?;
    paragraph(out, "  ", "  ", &cost_says(server))?;
    for warning in &server.warnings {
        paragraph(out, "  warning: ", "    ", warning)?;
    }
    Ok(())
}

fn cost_says(server: &Examined) -> String {
    let cost = total_cost(server);
    if cost.queries == 0 {
        return format!("Asked {} questions.", server.questions);
    }
    format!(
        "Cost of watching it: {} queries every {}, of {} series and {} samples (some {}), answered \
         in {} here. This examination asked {} questions.",
        cost.queries,
        seconds(cost.poll_seconds),
        cost.series,
        cost.samples,
        bytes(cost.bytes()),
        seconds(rounded(cost.seconds)),
        server.questions,
    )
}

fn total_cost(server: &Examined) -> Cost {
    server
        .watches
        .iter()
        .filter(|found| found.standing == Standing::Ready)
        .fold(Cost::default(), |sum, found| sum.with(&found.sampling.cost))
}

fn bytes(bytes: f64) -> String {
    match bytes {
        large if large >= 1e6 => format!("{:.1} MB", large / 1e6),
        middle if middle >= 1e3 => format!("{:.0} kB", middle / 1e3),
        small => format!("{small:.0} bytes"),
    }
}

/// The heading of a watch: its name, where it comes from, what is to be done with it.
fn heading(found: &Found) -> String {
    let name = &found.config.name;
    let origin = match &found.origin {
        Origin::Configured => "configured".to_owned(),
        Origin::Preset(preset) => format!("preset: {}", preset.name),
        Origin::Guess => format!("by its name: {}", found.config.requests),
    };
    let standing = match &found.standing {
        Standing::Ready => String::new(),
        Standing::Ask(why) => format!(". Asks you first: {why}"),
        Standing::SameAs(other) => format!(". Left out: `{other}` reads the same series"),
        Standing::Refused(why) => format!(". Left out: {why}"),
    };
    format!("{name} ({origin}){standing}")
}

fn write_watch(found: &Found, rules: &Rules, out: &mut dyn Write) -> Result<(), Failure> {
    paragraph(out, "  ", "    ", &heading(found))?;
    let seen = &found.sampling.dependencies;
    if !seen.is_empty() {
        writeln!(
            out,
            "    {:<30} {:<8} {:>7} {:>7} {:>8} {:>9}",
            "DEPENDENCY", "STATE", "TARGETS", "SCRAPE", "TELLS", "RATE"
        )?;
    }
    for it in seen.iter().take(DEPENDENCIES_SHOWN) {
        let dependency = &it.dependency;
        let tells = it.tells_from().map_or("?".to_owned(), |gap| seconds(rounded(gap)));
        let scrape = seconds(rounded(dependency.scrape_interval_seconds));
        let rate = it.tells_from().map_or("?".to_owned(), |_| figure(dependency.baseline_rate));
        writeln!(
            out,
            "    {:<30} {:<8} {:>7} {:>7} {:>8} {:>7}/s",
            shortened(&dependency.key.name(), 30),
            dependency.state.as_str(),
            dependency.targets,
            scrape,
            tells,
            rate,
        )?;
    }
    let more = found.dependencies_total.saturating_sub(seen.len().min(DEPENDENCIES_SHOWN));
    if more > 0 {
        writeln!(out, "    and {more} more")?;
    }
    if let Some(says) = prescribe::blindness(found, rules) {
        paragraph(out, "    ", "    ", &says)?;
    } else if !seen.is_empty() {
        let says = "too little history for a baseline yet: ask again in some minutes";
        paragraph(out, "    ", "    ", says)?;
    }
    if matches!(found.standing, Standing::Ready | Standing::Ask(_)) {
        for says in prescribe::changes(found) {
            paragraph(out, "    - ", "      ", &says)?;
        }
    }
    Ok(())
}

/// The report for programs:
///
/// ```text
/// {"sources": [{"name", "url", "version", "metrics", "scrapes": [{"interval", "targets", "down"}],
///   "watches": [{"name", "preset", "origin", "standing", "says", "requests", "errors", "by",
///     "client", "series", "dependencies_total", "blindness", "changes", "replicas",
///     "uneven_share", "cost": {…}, "dependencies": [DEPENDENCY with "phases_seconds",
///       "waits": [{"seconds", "told_apart"}], "schedules_told", "schedules_known"]}],
///   "unclaimed", "alertmanagers", "questions", "cost", "warnings"}]}
/// ```
///
/// `resolvable_gap_seconds` and all that rests on it is null while a dependency is learning.
pub(super) fn to_json(all: &[Examined], rules: &Rules) -> Value {
    let sources: Vec<Value> = all.iter().map(|server| server_json(server, rules)).collect();
    json!({"sources": sources})
}

fn server_json(server: &Examined, rules: &Rules) -> Value {
    let scrapes: Vec<Value> = server
        .scrapes
        .iter()
        .map(|it| json!({"interval": it.interval, "targets": it.targets, "down": it.down}))
        .collect();
    let watches: Vec<Value> = server.watches.iter().map(|it| watch_json(it, rules)).collect();
    json!({
        "name": server.name,
        "url": server.url,
        "version": server.version,
        "metrics": server.names,
        "scrapes": scrapes,
        "watches": watches,
        "unclaimed": server.unclaimed,
        "alertmanagers": server.alertmanagers,
        "questions": server.questions,
        "cost": cost_json(&total_cost(server)),
        "warnings": server.warnings,
    })
}

fn cost_json(cost: &Cost) -> Value {
    json!({
        "queries": cost.queries,
        "series": cost.series,
        "samples": cost.samples,
        "bytes": cost.bytes(),
        "seconds": cost.seconds,
        "poll_interval_seconds": cost.poll_seconds,
    })
}

fn watch_json(found: &Found, rules: &Rules) -> Value {
    let (standing, says) = match &found.standing {
        Standing::Ready => ("ready", None),
        Standing::Ask(why) => ("ask", Some(why.clone())),
        Standing::SameAs(other) => ("same", Some(format!("`{other}` reads the same series"))),
        Standing::Refused(why) => ("refused", Some(why.clone())),
    };
    let origin = match found.origin {
        Origin::Configured => "configuration",
        Origin::Preset(_) => "preset",
        Origin::Guess => "guess",
    };
    let dependencies: Vec<Value> =
        found.sampling.dependencies.iter().map(|seen| dependency_json(seen, rules)).collect();
    let replicas =
        found.sampling.replicas.as_ref().map(|it| json!({"label": it.label, "values": it.values}));
    json!({
        "name": found.config.name,
        "preset": found.config.preset,
        "origin": origin,
        "standing": standing,
        "says": says,
        "requests": found.config.requests.to_string(),
        "errors": found.config.errors.as_ref().map(ToString::to_string),
        "has_error_series": found.sampling.has_errors,
        "by": found.config.by,
        "client": found.config.client,
        "series": found.series,
        "dependencies_total": found.dependencies_total,
        "dependencies": dependencies,
        "blindness": prescribe::blindness(found, rules),
        "changes": prescribe::changes(found),
        "replicas": replicas,
        "uneven_share": found.sampling.uneven,
        "cost": cost_json(&found.sampling.cost),
    })
}

fn dependency_json(seen: &Seen, rules: &Rules) -> Value {
    let mut value = json!(DependencyJson::from(&seen.dependency));
    let gap = seen.tells_from();
    let waits: Option<Vec<Value>> = gap.map(|gap| {
        let wait = |wait: &f64| json!({"seconds": wait, "told_apart": *wait >= gap});
        WAITS_SECONDS.iter().map(wait).collect()
    });
    let told = gap.map(|gap| prescribe::told(gap, rules));
    value["resolvable_gap_seconds"] = json!(gap);
    value["phases_seconds"] = json!(seen.phases_seconds);
    value["waits"] = json!(waits);
    value["schedules_told"] = json!(told.map(|told| told.told));
    value["schedules_known"] = json!(told.map(|told| told.of));
    value
}
