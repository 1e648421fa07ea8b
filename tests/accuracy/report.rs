//! The report over the cases, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cases::{Case, Delay, INTERVALS, Strength, TARGETS};
use super::plain;
use super::shares::{cells, cells_of, head, median};

/// Misses that are listed; the others are counted.
const MISSES_MAX: usize = 200;

const STORMS: [&str; 2] = ["backoff-without-jitter", "retry-storm-without-backoff"];

/// What is said, in the order of the columns; the last is silence.
const SAID: [&str; 7] = [
    "backoff-without-jitter",
    "retry-storm-without-backoff",
    "partial-jitter",
    "jittered-backoff",
    "inconclusive, pages",
    "inconclusive",
    "silence",
];

fn truth(case: &Case) -> &str {
    case.truth.as_deref().unwrap_or("no storm")
}

fn said(case: &Case) -> &str {
    match case.said.as_deref() {
        Some("inconclusive") if case.pages => "inconclusive, pages",
        Some(class) => class,
        None => "silence",
    }
}

fn is_storm(case: &Case) -> bool {
    STORMS.contains(&truth(case))
}

/// The section of the report.
pub(crate) fn cases(rows: &[(u64, &Case)], version: &str) -> String {
    let mut text = String::new();
    let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else { return text };
    let all: Vec<&Case> = rows.iter().map(|(_, case)| *case).collect();
    let count = all.len();
    write!(
        text,
        "## Cases of the simulator\n\n\
         {count} cases, seeds {first} to {last}, sources `{version}`; `make accuracy DRAWS={count}`. \
         Every kind of storm and look-alike at scrape intervals of 1, 5, 15, 30 and 60 s of 1, 4, 20 \
         and 60 targets; a seed draws everything else, and `squall simulate NAME` gives the samples \
         of a case again. All shares stand with their 95 % interval (Wilson).\n\n"
    )
    .unwrap();
    summary(&mut text, &all);
    confusion(&mut text, &all);
    shares_of_right(&mut text, &all);
    schedules(&mut text, &all);
    time_to_call(&mut text, &all);
    reliability(&mut text, &all);
    beside(&mut text, &all);
    misses(&mut text, &all);
    text
}

fn summary(text: &mut String, all: &[&Case]) {
    let storms: Vec<&&Case> = all.iter().filter(|it| is_storm(it)).collect();
    let quiet: Vec<&&Case> = all.iter().filter(|it| !it.may_page).collect();
    *text += &head(&[""]);
    writeln!(text, "| right | {} |", cells_of(all, |it| it.right)).unwrap();
    writeln!(text, "| storms that page | {} |", cells_of(&storms, |it| it.pages)).unwrap();
    writeln!(text, "| pages where no page is right | {} |", cells_of(&quiet, |it| it.pages))
        .unwrap();
    let named: Vec<bool> = all.iter().filter_map(|it| it.named).collect();
    writeln!(text, "| schedule named within 10 % | {} |\n", cells_of(&named, |it| *it)).unwrap();
}

fn confusion(text: &mut String, all: &[&Case]) {
    *text += "### What is said, by what it is\n\nBold is the class itself; where two answers cannot be \
              told apart at a sampling both are right, and the last column counts that.\n\n|";
    let mut table: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for case in all {
        *table.entry(truth(case)).or_default().entry(said(case)).or_default() += 1;
    }
    for name in std::iter::once(&"it is").chain(&SAID).chain(&["right"]) {
        write!(text, " {name} |").unwrap();
    }
    *text += &format!("\n| --- |{}\n", " ---: |".repeat(SAID.len() + 1));
    for (is, row) in table {
        write!(text, "| {is} |").unwrap();
        for column in SAID {
            let cases = row.get(column).copied().unwrap_or(0);
            let own = column == is || column == "silence" && is == "no storm";
            let mark = if own { "**" } else { "" };
            write!(text, " {mark}{cases}{mark} |").unwrap();
        }
        let of = all.iter().filter(|it| truth(it) == is);
        let (right, of) = (of.clone().filter(|it| it.right).count(), of.count());
        writeln!(text, " {right} of {of} |").unwrap();
    }
    *text += "\n";
}

/// Right by each of the things that were drawn.
fn shares_of_right(text: &mut String, all: &[&Case]) {
    by(text, "kind", all, |it| Some(it.kind.clone()));
    *text +=
        "### Right by sampling\n\nScrape interval by targets: percent right, of how many.\n\n| |";
    for targets in TARGETS {
        write!(text, " {targets} |").unwrap();
    }
    *text += &format!("\n| ---: |{}\n", " ---: |".repeat(TARGETS.len()));
    for interval in INTERVALS {
        write!(text, "| {interval} s |").unwrap();
        for targets in TARGETS {
            let of: Vec<_> = all.iter().filter(|it| sampled(it, interval, targets)).collect();
            let hits = of.iter().filter(|it| it.right).count();
            let [low, high] = super::shares::wilson(hits, of.len()).map(|it| 100.0 * it);
            let percent = 100.0 * hits as f64 / of.len().max(1) as f64;
            write!(text, " {percent:.1} % of {} ({low:.0} to {high:.0}) |", of.len()).unwrap();
        }
        *text += "\n";
    }
    *text += "\n";
    by(text, "jitter", all, |it| Some(it.jitter.clone()));
    *text += "### Right by strength\n\nWhat a storm adds, in seconds of normal traffic: the clients that \
              failed together, or else all retries. Each in thirds.\n\n";
    *text += &head(&["", "seconds of normal traffic"]);
    type Of = fn(Strength) -> Option<f64>;
    let herd: Of = |it| if let Strength::Herd(of) = it { Some(of) } else { None };
    let excess: Of = |it| if let Strength::Excess(of) = it { Some(of) } else { None };
    for (name, of) in [("herd", herd), ("retries without a herd", excess)] {
        let mut sorted: Vec<(f64, bool)> =
            all.iter().filter_map(|it| Some((it.strength.and_then(of)?, it.right))).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        for third in sorted.chunks(sorted.len().div_ceil(3).max(1)) {
            let (low, high) = (third[0].0, third[third.len() - 1].0);
            let right = cells_of(third, |it| it.1);
            writeln!(text, "| {name} | {low:.1} to {high:.1} | {right} |").unwrap();
        }
    }
    *text += "\n";
}

fn sampled(case: &Case, interval_seconds: f64, targets: usize) -> bool {
    (case.interval_seconds - interval_seconds).abs() < 1e-9 && case.targets == targets
}

fn by(text: &mut String, what: &str, all: &[&Case], of: impl Fn(&Case) -> Option<String>) {
    write!(text, "### Right by {what}\n\n{}", head(&[what])).unwrap();
    let mut groups: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for case in all {
        if let Some(group) = of(case) {
            groups.entry(group).or_default().push(case.right);
        }
    }
    for (group, right) in groups {
        writeln!(text, "| {group} | {} |", cells_of(&right, |it| *it)).unwrap();
    }
    *text += "\n";
}

fn schedules(text: &mut String, all: &[&Case]) {
    *text += "### Schedules named\n\nBase and factor both within 10 %, of the paged herds whose schedule \
              shows at this sampling and has a base and a factor; one without a schedule counts as not \
              named. The errors are medians.\n\n";
    *text += "| sampling | named | share | 95 % | error of the base | of the factor |\n\
              | --- | ---: | ---: | ---: | ---: | ---: |\n";
    for interval in INTERVALS {
        for targets in TARGETS {
            let of: Vec<_> = all
                .iter()
                .filter(|it| sampled(it, interval, targets) && it.named.is_some())
                .collect();
            if of.is_empty() {
                continue;
            }
            let off = |which: usize| {
                let of = of.iter().filter_map(|it| Some(100.0 * it.errors?[which].abs()));
                median(of.collect())
            };
            let named = cells_of(&of, |it| it.named == Some(true));
            let (base, factor) = (off(0), off(1));
            writeln!(text, "| {interval} s, {targets} | {named} | {base:.1} % | {factor:.1} % |")
                .unwrap();
        }
    }
    *text += "\n";
}

fn time_to_call(text: &mut String, all: &[&Case]) {
    let storms: Vec<&&Case> = all.iter().filter(|it| is_storm(it)).collect();
    let called: Vec<Delay> = storms.iter().filter_map(|it| it.delay).collect();
    let in_waves: Vec<usize> = called.iter().filter_map(|it| it.waves).collect();
    write!(
        text,
        "### Time to call\n\nFrom the first failure to the page, over the storms that page; median \
         {:.0} s, {:.1} scrapes. Waves are those of the schedule that had come by then; \
         the first page may be of an open kind and is revised on the same incident.\n\n{}",
        median(called.iter().map(|it| it.seconds).collect()),
        median(called.iter().map(|it| it.scrapes).collect()),
        head(&["called within"])
    )
    .unwrap();
    for waves in 1..=8 {
        let by_then = cells_of(&in_waves, |it| *it <= waves);
        writeln!(text, "| {waves} {} | {by_then} |", if waves == 1 { "wave" } else { "waves" })
            .unwrap();
    }
    for seconds in [5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0] {
        let by_then = cells_of(&called, |it| it.seconds <= seconds);
        writeln!(text, "| {seconds} s | {by_then} |").unwrap();
    }
    *text += "\n";
}

fn reliability(text: &mut String, all: &[&Case]) {
    let given: Vec<(f64, bool)> =
        all.iter().filter_map(|it| Some((it.confidence?, it.right))).collect();
    let mut error = 0.0;
    let mut table = String::new();
    for bin in 0..20 {
        let (low, high) = (f64::from(bin) / 20.0, f64::from(bin + 1) / 20.0);
        let of: Vec<&(f64, bool)> =
            given.iter().filter(|it| it.0 >= low && (it.0 < high || bin == 19)).collect();
        if of.is_empty() {
            continue;
        }
        let mean = of.iter().map(|it| it.0).sum::<f64>() / of.len() as f64;
        let hits = of.iter().filter(|it| it.1).count();
        error += (hits as f64 - mean * of.len() as f64).abs() / given.len() as f64;
        writeln!(table, "| {low:.2} to {high:.2} | {mean:.3} | {} |", cells(hits, of.len()))
            .unwrap();
    }
    write!(
        text,
        "### Reliability of the confidence\n\nOf the incidents given such a confidence, this share is \
         right. Expected calibration error over these bins: **{error:.3}**.\n\n{}{table}\n",
        head(&["confidence", "mean"])
    )
    .unwrap();
}

fn beside(text: &mut String, all: &[&Case]) {
    let storms: Vec<&&Case> = all.iter().filter(|it| is_storm(it)).collect();
    let quiet: Vec<&&Case> = all.iter().filter(|it| !it.may_page).collect();
    *text += "### Beside plain rules\n\nThe same samples given to what people use today. None of these \
              knows errors, and none says of which kind a storm is.\n\n";
    *text += "| rule | pages on storms | share | 95 % | pages where no page is right | share | 95 % |\n\
              | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    let mut line = |name: &str, pages: &dyn Fn(&Case) -> bool| {
        let [hits, false_ones] = [&storms, &quiet].map(|of| cells_of(of, |it| pages(it)));
        writeln!(text, "| {name} | {hits} | {false_ones} |").unwrap();
    };
    line("squall", &|it| it.pages);
    for (index, name) in plain::NAMES.into_iter().enumerate() {
        line(name, &|it| it.plain.get(index).copied().unwrap_or(false));
    }
    *text += "\n";
}

fn misses(text: &mut String, all: &[&Case]) {
    let mut misses: Vec<&&Case> = all.iter().filter(|it| !it.right).collect();
    misses.sort_by(|a, b| a.name.cmp(&b.name));
    write!(text, "### Misses\n\n").unwrap();
    if misses.is_empty() {
        *text += "None.\n\n";
        return;
    }
    *text += "| case | it is | squall said | called after |\n| --- | --- | --- | ---: |\n";
    for miss in misses.iter().take(MISSES_MAX) {
        let after = miss.delay.map_or_else(|| "–".to_owned(), |it| format!("{:.0} s", it.seconds));
        let (name, is, said) = (&miss.name, truth(miss), said(miss));
        writeln!(text, "| `{name}` | {is} | {said} | {after} |").unwrap();
    }
    if misses.len() > MISSES_MAX {
        writeln!(text, "\nAnd {} more.", misses.len() - MISSES_MAX).unwrap();
    }
    *text += "\n";
}
