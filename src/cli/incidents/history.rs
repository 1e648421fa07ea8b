//! What a running daemon is asked of the past: who has the most incidents, how often each class was
//! right, and whether an incident was seen before.

use std::io::Write;

use clap::ValueEnum;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::series::selector::parse_duration;
use crate::wire::{SeenBeforeJson, rfc3339};

use super::{Client, Failure, Format, json, text};

/// Arguments of `squall incidents offenders`.
#[derive(Debug, Clone, clap::Args)]
pub struct Offenders {
    /// Whom to count.
    #[arg(long, value_enum, default_value = "dependency")]
    pub by: By,
    /// How far back.
    #[arg(long, value_name = "DURATION", default_value = "90d")]
    pub since: String,
    /// At most this many.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// How to write them.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Whom to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The dependencies that suffered.
    Dependency,
    /// The clients whose schedule fitted best.
    Client,
}

/// Arguments of `squall incidents precision`.
#[derive(Debug, Clone, clap::Args)]
pub struct Precision {
    /// How far back.
    #[arg(long, value_name = "DURATION", default_value = "90d")]
    pub since: String,
    /// The length of one span.
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    pub step: String,
    /// How to write it.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// The parameter that asks for what started so long before now.
pub(super) fn since(text: Option<&str>) -> Result<Option<(&'static str, String)>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let back = parse_duration(text.trim_start_matches('-')).ok_or_else(|| {
        Failure::Usage(format!("--since must be a duration such as 90d, got `{text}`"))
    })?;
    Ok(Some(("from", rfc3339(SystemClock.now().minus(back)))))
}

/// Widths of the columns beside the name: with them a line has 80.
const NAME_COLUMNS: usize = 34;

impl Offenders {
    pub(super) async fn answer(&self, client: &Client, out: &mut dyn Write) -> Result<(), Failure> {
        let by = match self.by {
            By::Dependency => "dependency",
            By::Client => "client",
        };
        let mut query = vec![("by", by.to_owned()), ("limit", self.limit.to_string())];
        query.extend(since(Some(&self.since))?);
        let data = client.get("offenders", &query).await?;
        if self.format == Format::Json {
            return json(&data, out);
        }
        let lines = data["offenders"].as_array().map(Vec::as_slice).unwrap_or_default();
        if lines.is_empty() {
            writeln!(out, "No incidents.")?;
            return Ok(());
        }
        writeln!(out, "{by:NAME_COLUMNS$} {:>9} {:>9} {:>24}", "incidents", "excess", "last")?;
        for line in lines {
            writeln!(
                out,
                "{:NAME_COLUMNS$} {:>9} {:>9.0} {:>24}",
                shortened(&text(&line["name"])),
                text(&line["incidents"]),
                line["excess_requests"].as_f64().unwrap_or_default(),
                text(&line["last_at"]),
            )?;
        }
        Ok(())
    }
}

impl Precision {
    pub(super) async fn answer(&self, client: &Client, out: &mut dyn Write) -> Result<(), Failure> {
        let mut query = vec![("step", self.step.clone())];
        query.extend(since(Some(&self.since))?);
        let data = client.get("precision", &query).await?;
        if self.format == Format::Json {
            return json(&data, out);
        }
        let lines = data["precision"].as_array().map(Vec::as_slice).unwrap_or_default();
        if lines.is_empty() {
            writeln!(out, "Nobody has said of an incident whether it was right.")?;
            return Ok(());
        }
        writeln!(
            out,
            "{:24} {:28} {:>6} {:>6} {:>9}",
            "from", "class", "right", "judged", "precision"
        )?;
        for line in lines {
            writeln!(
                out,
                "{:24} {:28} {:>6} {:>6} {:>7.0} %",
                text(&line["from"]),
                text(&line["classification"]),
                text(&line["right"]),
                text(&line["judged"]),
                100.0 * line["precision"].as_f64().unwrap_or_default(),
            )?;
        }
        Ok(())
    }
}

/// A name that fits its column.
fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_COLUMNS {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(NAME_COLUMNS - 1).collect();
    short.push('…');
    short
}

/// Says whether an incident was seen before.
pub(super) fn seen_before(told: Value, out: &mut dyn Write) -> Result<(), Failure> {
    let Ok(seen) = serde_json::from_value::<SeenBeforeJson>(told) else { return Ok(()) };
    let (Some(first), Some(last)) = (seen.first_at, seen.last_at) else {
        writeln!(out, "  not seen before on this dependency with this schedule")?;
        return Ok(());
    };
    let plural = if seen.times == 1 { "once" } else { "times" };
    let times = if seen.times == 1 { String::new() } else { format!("{} ", seen.times) };
    let span = if seen.times == 1 {
        format!("at {}", rfc3339(last.0))
    } else {
        format!("from {} to {}", rfc3339(first.0), rfc3339(last.0))
    };
    writeln!(out, "  seen before {times}{plural}, {span}")?;
    for id in &seen.incidents {
        writeln!(out, "    id {id}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(told: Value) -> String {
        let mut out = Vec::new();
        seen_before(told, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_was_seen_before_is_said_with_when_and_how_often() {
        let (first, last) = ("2026-09-01T00:00:00.000Z", "2026-09-20T00:00:00.000Z");
        let told = json!({"times": 3, "first_at": first, "last_at": last, "incidents": ["c", "b"]});
        assert_eq!(
            said(told),
            format!("  seen before 3 times, from {first} to {last}\n    id c\n    id b\n")
        );
        let once = json!({"times": 1, "first_at": last, "last_at": last, "incidents": ["c"]});
        assert_eq!(said(once), format!("  seen before once, at {last}\n    id c\n"));
        let never = json!({"times": 0, "first_at": null, "last_at": null, "incidents": []});
        assert!(said(never).starts_with("  not seen before"));
        assert_eq!(said(Value::Null), "", "where nobody looked nothing is said");
    }

    #[test]
    fn since_is_a_duration_with_or_without_a_minus() {
        for text in ["90d", "-90d"] {
            let (name, at) = since(Some(text)).unwrap().unwrap();
            assert_eq!(name, "from");
            let from = crate::wire::parse_rfc3339(&at).unwrap();
            let back = SystemClock.now().seconds_since(from) / 86_400.0;
            assert!((back - 90.0).abs() < 0.001, "{at}");
        }
        assert_eq!(since(None).unwrap(), None);
        assert!(since(Some("yesterday")).unwrap_err().to_string().contains("such as 90d"));
    }
}
