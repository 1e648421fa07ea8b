//! How often squall is right, over cases drawn by the simulator: `make accuracy`.
//!
//! Every kind of storm and look-alike at every sampling, each with a seed of its own, goes through
//! the whole pipeline in event time. The first argument says how
//! many cases: 3,276 when it says nothing, which is 39 kinds at 12 samplings, seven times. Beside squall stand three plain rules over the same draws: a z-score of the
//! rate over a minute, the autocorrelation of the pooled rate, and Fisher's g of its periodogram.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]
#![expect(clippy::unwrap_used, reason = "a fault of the program ends it")]
#![expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use squall::sim::corpus::{CaseKind, LabelledCase, Sampling, draw_case};
use squall::sim::policy::Growth;

mod plain;
#[path = "../it/support/replay.rs"]
mod replay;

/// What became of one case.
struct Outcome {
    name: String,
    truth: &'static str,
    said: String,
    is_right: bool,
    pages: bool,
    may_page: bool,
    confidence: Option<f64>,
    delay: Option<[f64; 2]>,
    named: Option<bool>,
    plain: [bool; 3],
}

fn judge(case: &LabelledCase) -> Outcome {
    let scrape = case.sampling.interval_seconds;
    let incidents = replay::replay(&case.samples, scrape);
    let truth = &case.truth;
    let silence = truth.accept.contains(&None);
    let accepts = |class: &str| truth.accept.contains(&Some(class));
    let paging: Vec<_> = incidents.iter().filter(|it| replay::pages(it)).collect();
    let classes_right = incidents.iter().all(|it| {
        let class = it.verdict.class.as_str();
        accepts(class) || (silence && class == "inconclusive" && !replay::pages(it))
    });
    let starts_right = paging.iter().all(|it| {
        truth.onset.is_none_or(|onset| {
            it.verdict.started_at.seconds_since(onset).abs() <= (2.0 * scrape).max(10.0)
        })
    });
    let is_right =
        classes_right && starts_right && paging.len() <= 1 && (silence || !incidents.is_empty());
    let first = paging.first().copied().or(incidents.first());
    let delay = paging.first().zip(truth.onset).and_then(|(it, onset)| {
        let seconds = it.detected_at?.seconds_since(onset);
        Some([seconds, seconds / scrape])
    });
    let named = paging.first().filter(|_| is_right && truth.observable).and_then(|it| {
        let (schedule, policy) = (it.verdict.schedule.as_ref()?, truth.policy.as_ref()?);
        let Growth::Exponential { factor } = policy.growth else { return None };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() <= 0.1;
        Some(near(schedule.base_seconds, policy.base_seconds) && near(schedule.factor, factor))
    });
    Outcome {
        name: case.name(),
        truth: truth.class.unwrap_or("no storm"),
        said: first.map_or("silence".to_owned(), |it| it.verdict.class.as_str().to_owned()),
        is_right,
        pages: !paging.is_empty(),
        may_page: ["backoff-without-jitter", "retry-storm-without-backoff", "inconclusive"]
            .into_iter()
            .any(accepts),
        confidence: first.map(|it| it.verdict.confidence),
        delay,
        named,
        plain: plain::pages(case),
    }
}

/// The 95 % interval of a share (Wilson 1927).
fn wilson(hits: usize, of: usize) -> [f64; 2] {
    if of == 0 {
        return [0.0, 1.0];
    }
    let (n, z) = (of as f64, 1.96);
    let p = hits as f64 / n;
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    [(middle - half) / (1.0 + z * z / n), (middle + half) / (1.0 + z * z / n)]
}

fn share(what: &str, hits: usize, of: usize) {
    let [low, high] = wilson(hits, of);
    let percent = 100.0 * hits as f64 / of.max(1) as f64;
    let (low, high) = (100.0 * low, 100.0 * high);
    println!("{what:<44} {hits:>5} of {of:<5} {percent:5.1} %  (95 %: {low:.1} to {high:.1})");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let wanted = std::env::args().skip(1).find_map(|it| it.parse().ok());
    let draws: usize = wanted.unwrap_or(3276);
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(draws));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= draws {
                        break;
                    }
                    let kind = CaseKind::ALL[index % CaseKind::ALL.len()];
                    let round = index / CaseKind::ALL.len();
                    let sampling = Sampling::ALL[round % Sampling::ALL.len()];
                    let outcome = judge(&draw_case(kind, sampling, index as u64));
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    report(&outcomes, draws);
}

fn report(outcomes: &[Outcome], draws: usize) {
    println!("{draws} cases, seeds 0 to {}\n", draws.saturating_sub(1));
    println!("misses (`squall simulate NAME` gives the samples again):");
    for miss in outcomes.iter().filter(|it| !it.is_right) {
        println!("  {:<44} is {}, said {}", miss.name, miss.truth, miss.said);
    }
    println!("\nsaid, by what it is:");
    let mut table: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for it in outcomes {
        *table.entry((it.truth, it.said.as_str())).or_default() += 1;
    }
    for ((truth, said), cases) in &table {
        println!("  {truth:<30} {said:<30} {cases:>5}");
    }
    println!();
    share("right", outcomes.iter().filter(|it| it.is_right).count(), outcomes.len());
    for truth in outcomes.iter().map(|it| it.truth).collect::<std::collections::BTreeSet<_>>() {
        let of: Vec<_> = outcomes.iter().filter(|it| it.truth == truth).collect();
        share(&format!("  {truth}"), of.iter().filter(|it| it.is_right).count(), of.len());
    }
    let quiet: Vec<_> = outcomes.iter().filter(|it| !it.may_page).collect();
    share("pages where no page is right", quiet.iter().filter(|it| it.pages).count(), quiet.len());
    let named: Vec<bool> = outcomes.iter().filter_map(|it| it.named).collect();
    share(
        "schedule named within 10 %, where it shows",
        named.iter().filter(|it| **it).count(),
        named.len(),
    );
    let delays: Vec<[f64; 2]> = outcomes.iter().filter_map(|it| it.delay).collect();
    println!(
        "detection delay, median: {:.0} s, {:.1} scrapes, over {} pages",
        median(delays.iter().map(|it| it[0]).collect()),
        median(delays.iter().map(|it| it[1]).collect()),
        delays.len()
    );
    println!("\nreliability: of the incidents given this confidence, this share is right");
    for bin in 0..5 {
        let (low, high) = (f64::from(5 + bin) / 10.0, f64::from(6 + bin) / 10.0);
        let inside =
            |it: &&Outcome| it.confidence.is_some_and(|c| c >= low && (c < high || bin == 4));
        let of: Vec<_> = outcomes.iter().filter(inside).collect();
        let hits = of.iter().filter(|it| it.is_right).count();
        share(&format!("  {low:.1} to {high:.1}"), hits, of.len());
    }
    println!(
        "\nplain rules on the same cases: pages on storms that page, and where no page is right"
    );
    for (index, name) in plain::NAMES.into_iter().enumerate() {
        let pages = |of: &[&Outcome]| of.iter().filter(|it| it.plain[index]).count();
        let storms: Vec<_> = outcomes
            .iter()
            .filter(|it| {
                matches!(it.truth, "backoff-without-jitter" | "retry-storm-without-backoff")
            })
            .collect();
        share(&format!("  {name}, storms"), pages(&storms), storms.len());
        share(&format!("  {name}, no page is right"), pages(&quiet), quiet.len());
    }
}
