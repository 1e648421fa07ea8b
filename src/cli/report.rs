//! What `analyze` and `backtest` found, as JSON for programs or as a table for people.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::incident::{Dependency, Incident, IncidentId};
use crate::plot::terminal;
use crate::wire::around::SeriesJson;
use crate::wire::{DependencyJson, IncidentJson, rfc3339};

use super::{Failure, Format};

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    incidents: Vec<Incident>,
    dependencies: Vec<Dependency>,
    // What is drawn of them; empty where nobody looks.
    series: BTreeMap<IncidentId, SeriesJson>,
}

impl Found {
    /// Incidents in the order of their start and dependencies in that of their names, so that two
    /// runs over the same input write the same bytes.
    pub(crate) fn new(mut incidents: Vec<Incident>, mut dependencies: Vec<Dependency>) -> Self {
        incidents.sort_by(|a, b| (a.verdict.started_at, &a.id).cmp(&(b.verdict.started_at, &b.id)));
        dependencies.sort_by(|a, b| a.key.cmp(&b.key));
        Self { incidents, dependencies, series: BTreeMap::new() }
    }

    /// The same with the series to draw on the terminal.
    pub(crate) fn with_series(self, series: BTreeMap<IncidentId, SeriesJson>) -> Self {
        Self { series, ..self }
    }

    /// The incidents, in the order of their start.
    pub(crate) fn incidents(&self) -> &[Incident] {
        &self.incidents
    }
}

/// The JSON of the contract.
#[derive(Debug, Serialize)]
struct Report<'a> {
    incidents: Vec<IncidentJson>,
    dependencies: Vec<DependencyJson>,
    warnings: &'a [String],
}

/// Columns of a terminal nobody has changed.
const COLUMNS: usize = 80;

/// Writes what was found.
///
/// # Errors
///
/// When the output cannot be written.
pub(crate) fn write(
    found: &Found,
    warnings: &[String],
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let report = Report {
                incidents: found.incidents.iter().map(IncidentJson::from).collect(),
                dependencies: found.dependencies.iter().map(DependencyJson::from).collect(),
                warnings,
            };
            serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Table => {
            incidents(&found.incidents, &found.series, out)?;
            if !found.incidents.is_empty() {
                let pages = |it: &&Incident| it.verdict.class.pages(it.verdict.severity);
                let paging = found.incidents.iter().filter(pages).count();
                writeln!(out, "\n{paging} of {} would have paged.", found.incidents.len())?;
            }
            writeln!(out)?;
            dependencies(&found.dependencies, out)?;
            for warning in warnings {
                writeln!(out, "\nwarning: {warning}")?;
            }
        }
    }
    Ok(())
}

/// Writes incidents as a list, each with its sentence.
///
/// The train of those in `series` is drawn.
pub(crate) fn incidents(
    incidents: &[Incident],
    series: &BTreeMap<IncidentId, SeriesJson>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if incidents.is_empty() {
        writeln!(out, "No incidents.")?;
        return Ok(());
    }
    let plural = if incidents.len() == 1 { "" } else { "s" };
    writeln!(out, "{} incident{plural}", incidents.len())?;
    for incident in incidents {
        let verdict = &incident.verdict;
        writeln!(
            out,
            "\n{}  {}  {} ({}, {})",
            rfc3339(verdict.started_at),
            incident.dependency.name(),
            verdict.class.as_str(),
            verdict.severity.as_str(),
            incident.state.as_str(),
        )?;
        for line in wrapped(&verdict.summary, COLUMNS - 2) {
            writeln!(out, "  {line}")?;
        }
        let drawn = series
            .get(&incident.id)
            .and_then(|series| terminal::lines(&IncidentJson::from(incident), series, COLUMNS));
        for line in drawn.into_iter().flatten() {
            writeln!(out, "{line}")?;
        }
        if let Some(matched) = verdict.matches.first() {
            for line in wrapped(&format!("fits: {} ({})", matched.name, matched.rule), COLUMNS - 2)
            {
                writeln!(out, "  {line}")?;
            }
        }
        if let Some(advice) = verdict.advice.first() {
            for line in wrapped(&format!("do: {}", advice.title), COLUMNS - 2) {
                writeln!(out, "  {line}")?;
            }
        }
        writeln!(out, "  id {}", incident.id)?;
    }
    Ok(())
}

/// Writes all that is believed of one incident.
///
/// With `series` its train is drawn.
pub(crate) fn incident(
    incident: &Incident,
    series: Option<SeriesJson>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let series = series.map(|series| (incident.id.clone(), series)).into_iter().collect();
    incidents(std::slice::from_ref(incident), &series, out)?;
    let verdict = &incident.verdict;
    let impact = &verdict.impact;
    writeln!(
        out,
        "\n  {} requests/s before, {} at the peak, {} times the requests wanted, {} % failed",
        figure(impact.baseline_rate),
        figure(impact.peak_rate),
        figure(impact.amplification),
        figure(impact.error_ratio * 100.0),
    )?;
    if let Some(schedule) = &verdict.schedule {
        let waits: Vec<String> = schedule.waits_seconds.iter().copied().map(figure).collect();
        writeln!(
            out,
            "  schedule: {}, waits {} s, jitter {}",
            schedule.family.as_str(),
            waits.join(", "),
            schedule.jitter.as_str(),
        )?;
    }
    for evidence in &verdict.evidence {
        let sign = if evidence.supports { '+' } else { '-' };
        let says = format!("{sign} {}: {}", evidence.test.as_str(), evidence.says);
        for line in wrapped(&says, COLUMNS - 2) {
            writeln!(out, "  {line}")?;
        }
    }
    for advice in &verdict.advice {
        for line in
            wrapped(&format!("{}: {} {}", advice.title, advice.text, advice.effect), COLUMNS - 2)
        {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Writes dependencies as a table.
fn dependencies(dependencies: &[Dependency], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{:<28} {:<8} {:>7} {:>9} {:>10} {:>10}",
        "DEPENDENCY", "STATE", "TARGETS", "SCRAPE", "TELLS", "RATE"
    )?;
    for it in dependencies {
        writeln!(
            out,
            "{:<28} {:<8} {:>7} {:>8}s {:>9}s {:>8}/s",
            shortened(&it.key.name(), 28),
            it.state.as_str(),
            it.targets,
            figure(it.scrape_interval_seconds),
            figure(it.resolvable_gap_seconds),
            figure(it.baseline_rate),
        )?;
        for seen in &it.observations {
            let says = format!("{}: {} {}", rfc3339(seen.from), seen.kind.as_str(), seen.says);
            for line in wrapped(&says, COLUMNS - 2) {
                writeln!(out, "  {line}")?;
            }
        }
    }
    Ok(())
}

/// A number with as many digits as help.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A text of at most `max` characters, its end replaced by an ellipsis where it is longer.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let head: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{head}…")
}

/// A text broken between words into lines of at most `max` characters.
pub(crate) fn wrapped(text: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_long_words_stand_alone() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("a overlong b", 4), ["a", "overlong", "b"]);
        assert!(wrapped("", 4).is_empty());
        assert_eq!(shortened("payments", 8), "payments");
        assert_eq!(shortened("payments", 5), "paym…");
    }

    #[test]
    fn figures_have_the_digits_that_help() {
        assert_eq!([1234.6, 12.34, 1.234].map(figure), ["1235", "12.3", "1.23"]);
        assert_eq!(figure(f64::NAN), "?");
    }
}
