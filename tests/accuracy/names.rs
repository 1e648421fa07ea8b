//! Every rule without jitter, played by a herd: is it among the clients that squall names?
//!
//! A herd fails at the start of an outage and retries by one rule. What is asked of the answer is
//! that the rule is among the matches, and that the matches are not many more than those that no
//! one could tell from it.
//!
//! # Method
//!
//! Two rules are **alike** until some time when every wave of either, up to then, stands within 4 %
//! of its own time since the failure, or within a resolution, of a wave of the other or of the
//! failure itself. The resolution is about what the scrapes of all targets together leave open:
//! 0.4 s at 1 s of 4 targets, 1.5 s at 15 s of 20.
//!
//! The **ties** of a rule are the rules alike until the end of the outage, itself included. Counted
//! beside them are those alike until its last wave that is followed: they part from it only by what
//! comes after, such as a wave where it has given up.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use squall::rules::Rules;
use squall::rules::policy::Policy;
use squall::rules::schedule::ScheduleRule;
use squall::sim::run;
use squall::sim::scenario::Scenario;

use super::replay::replay;
use super::rows::core_and;
use super::shares::{cells_of, median};

/// What decides a row.
pub(crate) const SOURCES: &[&str] = core_and!("tests/accuracy/names.rs");

/// One way to watch, and what is promised of it.
struct Sampling {
    interval_seconds: f64,
    targets: u32,
    /// Normal traffic before the outage.
    quiet_seconds: f64,
    /// Closer waves are one.
    resolution_seconds: f64,
    /// Percent of the rules that are to be found.
    promise: u32,
}

const SAMPLINGS: [Sampling; 2] = [
    Sampling {
        interval_seconds: 1.0,
        targets: 4,
        quiet_seconds: 150.0,
        resolution_seconds: 0.4,
        promise: 95,
    },
    Sampling {
        interval_seconds: 15.0,
        targets: 20,
        quiet_seconds: 420.0,
        resolution_seconds: 1.5,
        promise: 85,
    },
];

impl Sampling {
    fn says(&self) -> String {
        format!("{} s of {} targets", self.interval_seconds, self.targets)
    }
}

/// Waves further apart than this share of their time since the failure differ.
const APART_SHARE: f64 = 0.04;
/// Retries that are followed: as many as `squall rules list` shows.
const FOLLOWED_MAX: u32 = 10;
/// No further wave is followed past this time, once there are so many.
const FOLLOWED_SECONDS: f64 = 400.0;
const FOLLOWED_MIN: usize = 3;
/// The outage goes on for so long after the last wave that is followed, and is never longer than the
/// second.
const OUTAGE_AFTER_SECONDS: f64 = 30.0;
const OUTAGE_MAX_SECONDS: f64 = 1200.0;
/// How long is watched after the outage.
const AFTER_SECONDS: f64 = 60.0;
/// More retries than any rule makes in an outage that shows them.
const RETRIES_MAX: u32 = 10_000;

/// What was said of one rule at one sampling.
#[derive(Serialize, Deserialize)]
pub(crate) struct Named {
    rule: String,
    sampling: String,
    /// Where the rule stands among the matches, from 0; none where it is missed.
    rank: Option<usize>,
    /// How many matches there are.
    matches: usize,
    /// Rules that cannot be told from it, itself included.
    ties: usize,
    /// Rules that cannot be told from it until its last wave, itself included.
    ties_until_last_wave: usize,
    /// The class of the incident that has the rule, or else of the first; none for silence.
    said: Option<String>,
}

/// The rules without jitter that wait at all, on a schedule of their own.
static TIMED: LazyLock<Vec<Arc<ScheduleRule>>> = LazyLock::new(|| {
    let rules = Rules::builtin();
    let all = rules.schedules().iter();
    all.filter(|it| it.policy.is_synchronised() && it.policy.is_timed()).cloned().collect()
});

/// Rows when the command line says nothing: every rule at every sampling.
pub(crate) fn rows() -> u64 {
    (SAMPLINGS.len() * TIMED.len()) as u64
}

/// Plays the rule of this seed and looks for it among the matches; seeds past [`rows`] play the
/// rules again.
pub(crate) fn draw(seed: u64) -> Named {
    let index = usize::try_from(seed).unwrap();
    let sampling = &SAMPLINGS[index % SAMPLINGS.len()];
    let rule = &TIMED[index / SAMPLINGS.len() % TIMED.len()];
    let last = last_wave(&rule.policy);
    let outage = (last + OUTAGE_AFTER_SECONDS).min(OUTAGE_MAX_SECONDS);
    let ties = |retries: u32, until: f64| {
        let own = waves(&rule.policy, retries, until);
        let others = TIMED.iter().map(|it| waves(&it.policy, retries, until));
        others.filter(|it| alike(&own, it, sampling.resolution_seconds)).count()
    };
    let scenario = scenario(&rule.id, outage, sampling);
    let incidents = replay(&run(&scenario, seed).series, sampling.interval_seconds);
    let rank = |it: &squall::incident::Incident| {
        it.verdict.matches.iter().position(|found| found.rule == rule.id)
    };
    let best = incidents.iter().find(|it| rank(it).is_some()).or(incidents.first());
    Named {
        rule: rule.id.clone(),
        sampling: sampling.says(),
        rank: best.and_then(rank),
        matches: best.map_or(0, |it| it.verdict.matches.len()),
        ties: ties(RETRIES_MAX, outage),
        ties_until_last_wave: ties(FOLLOWED_MAX, last),
        said: best.map(|it| it.verdict.class.as_str().to_owned()),
    }
}

/// When the last wave that is followed comes, in seconds since the failure.
fn last_wave(policy: &Policy) -> f64 {
    let all = waves(policy, FOLLOWED_MAX, f64::INFINITY);
    let followed = |&(n, at): &(usize, &f64)| n < FOLLOWED_MIN || *at <= FOLLOWED_SECONDS;
    all.iter().enumerate().take_while(followed).last().map_or(0.0, |(_, at)| *at)
}

/// The times of its first waves since the failure, without immediate retries.
fn waves(policy: &Policy, retries: u32, until_seconds: f64) -> Vec<f64> {
    let sums = policy.timed_waits(retries).into_iter().scan(0.0, |at, wait| {
        *at += wait;
        Some(*at)
    });
    // Sums of the same waits in another order differ by a rounding.
    sums.take_while(|at| *at <= until_seconds + 0.01).collect()
}

/// Whether every wave of either stands near one of the other, or near the failure.
fn alike(one: &[f64], other: &[f64], resolution_seconds: f64) -> bool {
    let all_near = |of: &[f64], to: &[f64]| {
        of.iter().all(|at| {
            let apart = resolution_seconds.max(APART_SHARE * at);
            // The waves are in order: the nearest is one of two, or the failure.
            let next = to.partition_point(|it| it < at);
            let before = if next == 0 { 0.0 } else { to[next - 1] };
            at - before <= apart || to.get(next).is_some_and(|it| it - at <= apart)
        })
    };
    all_near(one, other) && all_near(other, one)
}

fn scenario(rule: &str, outage_seconds: f64, sampling: &Sampling) -> Scenario {
    let Sampling { interval_seconds, targets, quiet_seconds: quiet, .. } = sampling;
    let text = format!(
        "about: A herd that retries by one rule.\n\
         duration: {:.0}s\n\
         dependencies:\n\
         - name: payments\n  faults: [{{at: {quiet}s, for: {outage_seconds:.3}s}}]\n\
         clients:\n\
         - {{name: others, calls: payments, rate: 50}}\n\
         - {{name: herd, calls: payments, size: 2000, at: {quiet}s, within: 100ms, retry: {{rule: {rule}}}}}\n\
         scrape: {{interval: {interval_seconds}s, targets: {targets}}}\n",
        (quiet + outage_seconds + AFTER_SECONDS).floor(),
    );
    Scenario::parse(rule, &text, &Rules::builtin()).unwrap()
}

/// The section of the report.
pub(crate) fn report(rows: &[(u64, &Named)], version: &str) -> String {
    let mut text = String::new();
    let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else { return text };
    let count = rows.len();
    write!(
        text,
        "## Names\n\n\
         {count} herds, seeds {first} to {last}, sources `{version}`; `make accuracy-names \
         DRAWS={count}`. Each rule that comes with squall and waits without jitter, played by 2,000 \
         clients that fail together beside 50 requests a second of others. It is found when it is \
         among the matches. Its ties are the rules, itself included, whose waves until the end of the \
         outage all stand within 4 % of their time or the resolution of the sampling of one of its own, \
         and the other way round; the last column counts waves until its last one only, and not what \
         comes after. Promised is a median of at most two matches past the ties, over the herds of \
         which anything is said.\n\n\
         | sampling | found | share | 95 % | promised | matches less ties, median | less ties until \
         its last wave |\n| --- |{}\n",
        " ---: |".repeat(6)
    )
    .unwrap();
    for sampling in &SAMPLINGS {
        let (says, promise) = (sampling.says(), sampling.promise);
        let of: Vec<&Named> =
            rows.iter().map(|(_, it)| *it).filter(|it| it.sampling == says).collect();
        let more_than = |ties: fn(&Named) -> usize| {
            let told = of.iter().filter(|it| it.said.is_some());
            median(told.map(|it| it.matches as f64 - ties(it) as f64).collect())
        };
        let found = cells_of(&of, |it| it.rank.is_some());
        let [all, until_last] = [more_than(|it| it.ties), more_than(|it| it.ties_until_last_wave)];
        writeln!(text, "| {says} | {found} | {promise} % | {all:.0} | {until_last:.0} |").unwrap();
    }
    text += "\n### Rules missed\n\n";
    let mut missed: Vec<&Named> =
        rows.iter().map(|(_, it)| *it).filter(|it| it.rank.is_none()).collect();
    missed.sort_by(|a, b| (&a.sampling, &a.rule).cmp(&(&b.sampling, &b.rule)));
    if missed.is_empty() {
        return text + "None.\n\n";
    }
    text +=
        "| rule | sampling | squall said | matches | ties |\n| --- | --- | --- | ---: | ---: |\n";
    for Named { rule, sampling, said, matches, ties, .. } in missed {
        let said = said.as_deref().unwrap_or("silence");
        writeln!(text, "| `{rule}` | {sampling} | {said} | {matches} | {ties} |").unwrap();
    }
    text + "\n"
}
