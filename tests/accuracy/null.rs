//! Days without a storm through the whole pipeline: how often would somebody be woken for nothing?

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::rows::{core_and, cpu_seconds};
use super::shares::garwood;
use super::{quiet, replay};

/// What decides a row.
pub(crate) const SOURCES: &[&str] =
    core_and!("tests/accuracy/null.rs", "tests/it/support/quiet.rs");

/// Days when the command line says nothing.
pub(crate) const DAYS: u64 = 10_000;

/// What one day of one dependency gave.
#[derive(Serialize, Deserialize)]
pub(crate) struct Day {
    pages: usize,
    /// The class of each incident, with a mark on those that page.
    incidents: Vec<String>,
    /// What each page says, and what such a day was like.
    said: Vec<String>,
    law: Option<String>,
    cpu_seconds: Option<f64>,
}

/// Draws the day of this seed and replays it.
pub(crate) fn day(seed: u64) -> Day {
    let before = cpu_seconds();
    let incidents = replay::replay(&quiet::day(seed), quiet::INTERVAL_SECONDS);
    let paging = incidents.iter().filter(|it| replay::pages(it));
    let said: Vec<String> = paging.map(|it| it.verdict.summary.clone()).collect();
    let law = (!said.is_empty()).then(|| format!("{:?}", quiet::Law::of(seed)));
    let named = |it: &squall::incident::Incident| {
        let class = it.verdict.class.as_str();
        if replay::pages(it) { format!("{class}, pages") } else { class.to_owned() }
    };
    let cpu_seconds = cpu_seconds().zip(before).map(|(after, before)| after - before);
    let incidents = incidents.iter().map(named).collect();
    Day { pages: said.len(), incidents, said, law, cpu_seconds }
}

/// The section of the report.
pub(crate) fn report(days: &[(u64, &Day)], version: &str) -> String {
    let mut text = String::new();
    if days.is_empty() {
        return text;
    }
    let count = days.len();
    let per_thousand = |events: usize| {
        let [rate, bound] = [events as f64, garwood(events)].map(|it| 1000.0 * it / count as f64);
        format!("{events} | {rate:.2} | {bound:.2}")
    };
    let pages: usize = days.iter().map(|(_, day)| day.pages).sum();
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    for class in days.iter().flat_map(|(_, day)| &day.incidents) {
        *classes.entry(class).or_default() += 1;
    }
    write!(
        text,
        "## Days without a storm\n\n\
         {count} days of one dependency each, {} targets scraped every {} s: the shape of a day, red \
         noise, over-dispersed counts, failures at a low ratio that is red itself, missed scrapes and \
         counter resets, and no retries. Seeds {} to {}, sources `{version}`; `make accuracy-null \
         DAYS={count}`.\n\n\
         | | events | per 1,000 days | 95 % upper bound |\n| --- | ---: | ---: | ---: |\n\
         | pages | {} |\n| incidents | {} |\n",
        quiet::TARGETS,
        quiet::INTERVAL_SECONDS,
        days[0].0,
        days[count - 1].0,
        per_thousand(pages),
        per_thousand(classes.values().sum()),
    )
    .unwrap();
    for (class, events) in classes {
        writeln!(text, "| – {class} | {} |", per_thousand(events)).unwrap();
    }
    let cpu: Vec<f64> = days.iter().filter_map(|(_, day)| day.cpu_seconds).collect();
    let mean = cpu.iter().sum::<f64>() / cpu.len().max(1) as f64;
    write!(text, "\nThe bound is Garwood's, one-sided. A day took {mean:.3} s of one processor, ")
        .unwrap();
    text += "its simulation included.\n";
    let woken = days.iter().filter(|(_, day)| day.pages > 0);
    for (seed, day) in woken {
        write!(text, "\n- seed {seed}: {}", day.said.join(" ")).unwrap();
        write!(text, " ({})", day.law.as_deref().unwrap_or_default()).unwrap();
    }
    text += "\n";
    text + "\n"
}
