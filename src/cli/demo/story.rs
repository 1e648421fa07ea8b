//! What the demo says: the troubles of the shop as they begin, and what squall makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::ChangeEvent;
use crate::sim::scenario::{Fault, FaultKind, Scenario};

use super::Line;

/// What each dependency's clients do when it fails, for people.
const CLIENTS: &[(&str, &str)] = &[
    ("payments", "1,200 clients of `checkout` wait 1, 2, 4, 8, … s and come back together"),
    ("sessions", "500 clients of `mobile-app` wait 10 s each time and come back together"),
    ("inventory", "1,000 clients of `warehouse` wait with full jitter, as they should"),
    ("search", "the users of `web-shop` try again at once, three times"),
];

/// A trouble to come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Trouble {
    // Milliseconds from the start of the demo; the order of the set is theirs.
    at_millis: u64,
    every_millis: Option<u64>,
    dependency: String,
    what: String,
}

/// Every trouble of the shop that begins after `history_seconds`, at its first time after that.
pub(super) fn troubles(scenario: &Scenario, history_seconds: f64) -> BTreeSet<Trouble> {
    let mut coming = BTreeSet::new();
    for dependency in &scenario.dependencies {
        for fault in &dependency.faults {
            let Some(what) = what(fault) else { continue };
            let mut at = fault.from_seconds - history_seconds;
            while at < 0.0 && fault.every_seconds.is_finite() {
                at += fault.every_seconds;
            }
            let Some(at_millis) = millis(at) else { continue };
            coming.insert(Trouble {
                at_millis,
                every_millis: millis(fault.every_seconds),
                dependency: dependency.name.clone(),
                what,
            });
        }
    }
    coming
}

/// What happens, in a few words; a refusal that is there to end a flood is a relief and no trouble.
fn what(fault: &Fault) -> Option<String> {
    match fault.kind {
        FaultKind::Slow { factor } => {
            Some(format!("gets {factor} times slower for {} s", fault.for_seconds))
        }
        FaultKind::Refuse { .. } if fault.for_seconds > 5.0 => {
            Some("has its queue shed".to_owned())
        }
        _ => Some(format!("fails for {} s", fault.for_seconds)),
    }
}

/// Milliseconds in a number of seconds that is finite and not negative.
fn millis(seconds: f64) -> Option<u64> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

impl Trouble {
    /// When it begins, from the start of the demo.
    pub(super) fn at(&self) -> Duration {
        Duration::from_millis(self.at_millis)
    }

    /// The same trouble the next time.
    pub(super) fn again(self) -> Option<Self> {
        Some(Self { at_millis: self.at_millis + self.every_millis?, ..self })
    }

    /// What is told of it.
    pub(super) fn text(&self) -> String {
        let clients = CLIENTS.iter().find(|(name, _)| *name == self.dependency);
        match clients {
            Some((_, clients)) if !self.what.contains("shed") => {
                format!("{} {}: {clients}", self.dependency, self.what)
            }
            _ => format!("{} {}", self.dependency, self.what),
        }
    }
}

/// What was told of each incident, so that only news is.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<String, String>);

impl Told {
    /// What to tell of a change; none when the reader knows it.
    pub(super) fn text(&mut self, change: &ChangeEvent) -> Option<String> {
        let incident = &change.incident;
        let verdict = &incident.verdict;
        let name = incident.dependency.name();
        let class = verdict.class.as_str();
        let (news, text) = match change.reason {
            "opened" => return None,
            "resolved" => ("resolved".to_owned(), format!("{name}: over ({class})")),
            "withdrawn" => return None,
            _ => {
                incident.detected_at?;
                let mood = if verdict.class.pages(verdict.severity) { "" } else { " (no page)" };
                (class.to_owned(), format!("{class}{mood}. {}", verdict.summary))
            }
        };
        let known = self.0.insert(incident.id.0.clone(), news.clone());
        (known.as_deref() != Some(news.as_str())).then_some(text)
    }
}

/// The story so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    troubles: usize,
    pages: usize,
}

impl Story {
    /// What is said first.
    pub(super) fn introduction(page: &str, prometheus: &str) -> String {
        format!(
            "squall demo: a shop with six dependencies, all of them simulated.\n\n\
             \x20 the page        {page}\n\
             \x20 its Prometheus  {prometheus}\n\n\
             Some of them will fail for a moment, and their clients will retry, well or badly.\n\
             `catalogue` has a sale now and then and `reports` a cron job each minute: busy,\n\
             and nothing to page anybody for. Lines marked `page` reached a real webhook.\n\
             The first storm comes within a minute. Ctrl-c ends it.\n\n"
        )
    }

    /// Notes what was told.
    pub(super) fn note(&mut self, line: &Line) {
        match line.speaker {
            "shop" => self.troubles += 1,
            "page" => self.pages += 1,
            _ => {}
        }
    }

    /// What is said last.
    pub(super) fn end(&self) -> String {
        let count = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        format!(
            "{}, {}. The record of the demo was in memory and is gone.",
            count(self.troubles, "trouble"),
            count(self.pages, "notification")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::shop::shop;

    #[test]
    fn the_first_trouble_comes_within_a_minute_and_all_are_told_in_time() {
        let mut coming = troubles(&shop(180.0), 180.0);
        let first = coming.first().expect("the shop has troubles").at();
        assert!(first <= Duration::from_secs(60), "{first:?}");
        let mut last = Duration::ZERO;
        for _ in 0..50 {
            let next = coming.pop_first().expect("troubles come back");
            assert!(next.at() >= last, "{next:?}");
            assert!(!next.text().is_empty());
            last = next.at();
            coming.extend(next.again());
        }
    }
}
