//! Labelled cases without end, each drawn from a seed: what detection is measured on.
//!
//! A detector is only as good as the cases it was tried on, and cases that are made one by one end
//! up alike. So everything about a case is drawn: traffic, its dispersion, the size of the herd, the
//! schedule, how much of each wave gets through, the sampling, the faults of the scraper. The label
//! says what is true, and which answers are right at this sampling; where two answers cannot be told
//! apart, both are.
//!
//! # Example
//!
//! ```
//! use squall::sim::corpus::{CaseKind, Sampling, draw_case};
//!
//! let sampling = Sampling { interval_seconds: 15.0, targets: 4 };
//! let case = draw_case(CaseKind::ExponentialNone, sampling, 7);
//! assert_eq!(case.truth.class, Some("backoff-without-jitter"));
//! assert_eq!(case.samples, draw_case(CaseKind::ExponentialNone, sampling, 7).samples);
//! ```

mod lookalikes;
mod storms;

use super::policy::RetryPolicy;
use super::random::{Draws, hash};
use super::scenario::{DependencyPlan, Population, Scenario, ScrapePlan};
use super::truth::Truth;
use super::{SimulatedSeries, run};
use crate::series::Timestamp;

/// The class of synchronised waves.
pub const WAVES: &str = "backoff-without-jitter";
/// The class of floods.
pub const FLOOD: &str = "retry-storm-without-backoff";
/// The class of smeared waves.
pub const PARTIAL: &str = "partial-jitter";
/// The class of retries that spread as they should.
pub const JITTERED: &str = "jittered-backoff";
/// The answer where this sampling cannot tell.
pub const OPEN: &str = "inconclusive";

/// What a case is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CaseKind {
    /// A herd on an exponential schedule without jitter; factors 1.3 to 5.
    ExponentialNone,
    /// The same with many retries at its cap.
    CappedNone,
    /// A herd on a fixed delay.
    FixedNone,
    /// A herd on linearly growing waits.
    LinearNone,
    /// A herd on a power of the retry's number.
    PolynomialNone,
    /// A herd on an explicit list of waits.
    ListNone,
    /// Proportional jitter of 10 %.
    Proportional10,
    /// Proportional jitter of 20 %.
    Proportional20,
    /// Jitter that is lost at the cap.
    JitterThenCap,
    /// A server that tells everybody the same `Retry-After`.
    RetryAfter,
    /// Two libraries in one fleet, one without and one with jitter.
    Mixed,
    /// Two jobs on different schedules, both without jitter.
    SeveralClients,
    /// A herd whose error series appear with the first error.
    LazyErrors,
    /// A herd on a dependency that recovers slowly.
    SlowRecovery,
    /// An outage of minutes under streams of clients that retry on a schedule.
    OutageComb,
    /// A herd of a known client library, whatever its jitter.
    Library,
    /// Equal jitter.
    Equal,
    /// Full jitter.
    Full,
    /// Decorrelated jitter.
    Decorrelated,
    /// Immediate retries in an outage.
    Immediate,
    /// A flood that outlives its trigger.
    Metastable,
    /// Short fixed waits at everybody's own phase: a flood.
    ShortDelay,
    /// An outage whose clients do not retry.
    OutageWithoutRetries,
    /// Load that rises by itself and is served.
    Surge,
    /// Load that rises by itself, until some of it fails.
    SurgeWithErrors,
    /// Load on the wall clock.
    Cron,
    /// Strongly over-dispersed traffic.
    Noise,
    /// Restarts, and many missed scrapes.
    Resets,
    /// A rolling deploy with new names, and a few errors.
    Deploy,
    /// Targets that come and go.
    Autoscaling,
    /// An exporter that shows its counts in steps.
    Staircase,
    /// Pollers left in step by an outage.
    PollingInStep,
    /// Pauses in which requests wait.
    Pauses,
    /// Health checks at a strict period.
    HealthChecks,
    /// Tokens that expire together and are fetched anew.
    TokenExpiry,
    /// A strong daily wave at its steepest.
    Diurnal,
    /// A query layer that flips between two scrapers.
    ReplicaFlips,
    /// A scraper whose clock jumps, and holes in all series.
    ClockJumps,
    /// A crowd that comes at once and is served.
    FlashCrowd,
}

impl CaseKind {
    /// Every kind.
    pub const ALL: [Self; 39] = [
        Self::ExponentialNone,
        Self::CappedNone,
        Self::FixedNone,
        Self::LinearNone,
        Self::PolynomialNone,
        Self::ListNone,
        Self::Proportional10,
        Self::Proportional20,
        Self::JitterThenCap,
        Self::RetryAfter,
        Self::Mixed,
        Self::SeveralClients,
        Self::LazyErrors,
        Self::SlowRecovery,
        Self::OutageComb,
        Self::Library,
        Self::Equal,
        Self::Full,
        Self::Decorrelated,
        Self::Immediate,
        Self::Metastable,
        Self::ShortDelay,
        Self::OutageWithoutRetries,
        Self::Surge,
        Self::SurgeWithErrors,
        Self::Cron,
        Self::Noise,
        Self::Resets,
        Self::Deploy,
        Self::Autoscaling,
        Self::Staircase,
        Self::PollingInStep,
        Self::Pauses,
        Self::HealthChecks,
        Self::TokenExpiry,
        Self::Diurnal,
        Self::ReplicaFlips,
        Self::ClockJumps,
        Self::FlashCrowd,
    ];

    /// The fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExponentialNone => "exponential-none",
            Self::CappedNone => "capped-none",
            Self::FixedNone => "fixed-none",
            Self::LinearNone => "linear-none",
            Self::PolynomialNone => "polynomial-none",
            Self::ListNone => "list-none",
            Self::Proportional10 => "proportional-10",
            Self::Proportional20 => "proportional-20",
            Self::JitterThenCap => "jitter-then-cap",
            Self::RetryAfter => "retry-after",
            Self::Mixed => "mixed",
            Self::SeveralClients => "several-clients",
            Self::LazyErrors => "lazy-errors",
            Self::SlowRecovery => "slow-recovery",
            Self::OutageComb => "outage-comb",
            Self::Library => "library",
            Self::Equal => "equal",
            Self::Full => "full",
            Self::Decorrelated => "decorrelated",
            Self::Immediate => "immediate",
            Self::Metastable => "metastable",
            Self::ShortDelay => "short-delay",
            Self::OutageWithoutRetries => "outage-without-retries",
            Self::Surge => "surge",
            Self::SurgeWithErrors => "surge-with-errors",
            Self::Cron => "cron",
            Self::Noise => "noise",
            Self::Resets => "resets",
            Self::Deploy => "deploy",
            Self::Autoscaling => "autoscaling",
            Self::Staircase => "staircase",
            Self::PollingInStep => "polling-in-step",
            Self::Pauses => "pauses",
            Self::HealthChecks => "health-checks",
            Self::TokenExpiry => "token-expiry",
            Self::Diurnal => "diurnal",
            Self::ReplicaFlips => "replica-flips",
            Self::ClockJumps => "clock-jumps",
            Self::FlashCrowd => "flash-crowd",
        }
    }

    /// The kind with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// How a case is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Seconds between two scrapes of one target.
    pub interval_seconds: f64,
    /// Targets.
    pub targets: usize,
}

impl Sampling {
    /// The samplings of interest: scrape intervals as people configure them, one to sixty targets.
    pub const ALL: [Self; 12] = [
        Self { interval_seconds: 1.0, targets: 1 },
        Self { interval_seconds: 1.0, targets: 4 },
        Self { interval_seconds: 5.0, targets: 4 },
        Self { interval_seconds: 5.0, targets: 20 },
        Self { interval_seconds: 15.0, targets: 1 },
        Self { interval_seconds: 15.0, targets: 4 },
        Self { interval_seconds: 15.0, targets: 20 },
        Self { interval_seconds: 30.0, targets: 4 },
        Self { interval_seconds: 30.0, targets: 20 },
        Self { interval_seconds: 30.0, targets: 60 },
        Self { interval_seconds: 60.0, targets: 20 },
        Self { interval_seconds: 60.0, targets: 60 },
    ];
}

/// What is true of a case, and which answers are right.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseTruth {
    /// The class, whether it can be seen or not; none where there is no storm.
    pub class: Option<&'static str>,
    /// Every right answer; none stands for silence.
    pub accept: Vec<Option<&'static str>>,
    /// Whether this sampling shows the schedule.
    pub observable: bool,
    /// Whether there are retries enough to matter.
    pub material: bool,
    /// The first failure.
    pub onset: Option<Timestamp>,
    /// Where the schedule puts the waves.
    pub waves: Vec<Timestamp>,
    /// The policy of the herd.
    pub policy: Option<RetryPolicy>,
    /// Clients that failed together.
    pub herd: usize,
}

impl CaseTruth {
    /// No storm: silence is right.
    fn silence() -> Self {
        Self {
            class: None,
            accept: vec![None],
            observable: false,
            material: false,
            onset: None,
            waves: Vec::new(),
            policy: None,
            herd: 0,
        }
    }
}

/// One case with its label.
#[derive(Debug, Clone)]
pub struct LabelledCase {
    /// What it is of.
    pub kind: CaseKind,
    /// How it is sampled.
    pub sampling: Sampling,
    /// The seed that draws it again.
    pub seed: u64,
    /// What was simulated.
    pub scenario: Scenario,
    /// What is right to say of it.
    pub truth: CaseTruth,
    /// What the scraper collected.
    pub samples: Vec<SimulatedSeries>,
    /// What happened, second by second.
    pub happened: Truth,
}

/// Reads the name of a case, `exponential-none/15s/4t/7`.
#[must_use]
pub fn parse_name(name: &str) -> Option<(CaseKind, Sampling, u64)> {
    let parts: Vec<&str> = name.split('/').collect();
    let [kind, interval, targets, seed] = parts[..] else { return None };
    let interval_seconds: f64 = interval.strip_suffix('s')?.parse().ok()?;
    let targets = targets.strip_suffix('t')?.parse().ok()?;
    let usual = (0.1..=3600.0).contains(&interval_seconds) && (1..=1_000).contains(&targets);
    let sampling = Sampling { interval_seconds, targets };
    usual.then_some((CaseKind::parse(kind)?, sampling, seed.parse().ok()?))
}

impl LabelledCase {
    /// The name that draws it again, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        let Sampling { interval_seconds, targets } = self.sampling;
        format!("{}/{interval_seconds}s/{targets}t/{}", self.kind.as_str(), self.seed)
    }
}

/// Seconds of quiet traffic before anything happens, at the least; and as scrapes.
const QUIET_SECONDS: f64 = 480.0;
const QUIET_SCRAPES: f64 = 25.0;

/// Seconds that are watched after the last planned event, at the least; and as scrapes.
const AFTER_SECONDS: f64 = 180.0;
const AFTER_SCRAPES: f64 = 8.0;

/// A case being drawn.
struct Draft {
    draws: Draws,
    scenario: Scenario,
    sampling: Sampling,
    /// The dependency.
    to: usize,
    /// Mean calls per second of the other traffic.
    background: f64,
    /// When it happens, seconds.
    onset: f64,
    truth: CaseTruth,
}

impl Draft {
    fn new(kind: CaseKind, sampling: Sampling, seed: u64) -> Self {
        let mut draws = Draws::new(seed, hash(kind.as_str(), sampling.targets as u64));
        let quiet = QUIET_SECONDS.max(QUIET_SCRAPES * sampling.interval_seconds);
        let onset = quiet + draws.between(0.0, 100.0);
        let mut scenario = Scenario::new(kind.as_str(), onset + QUIET_SECONDS);
        scenario.start_unix_seconds =
            super::scenario::START_UNIX_SECONDS + (draws.uniform() * 86_400.0).floor();
        let background = draws.log_between(20.0, 300.0);
        let plan = DependencyPlan {
            latency_seconds: draws.pick(&[0.01, 0.02, 0.05, 0.2]),
            refusal_seconds: draws.pick(&[0.005, 0.02, 0.05, 0.2]),
            error_share: draws.pick(&[0.0, 0.0005, 0.002, 0.01]),
            error_code: draws.pick(&[500, 502, 503, 503, 503, 504]),
            ..DependencyPlan::new("payments")
        };
        let to = scenario.dependency(plan);
        scenario.scrape = ScrapePlan {
            interval_seconds: sampling.interval_seconds,
            targets: sampling.targets,
            missed: draws.pick(&[0.0, 0.0, 0.02, 0.05]),
            weight_spread: draws.pick(&[0.0, 0.1, 0.4]),
            ..ScrapePlan::default()
        };
        let mut draft =
            Self { draws, scenario, sampling, to, background, onset, truth: CaseTruth::silence() };
        let dispersion = draft.draws.pick(&[1.0, 1.5, 3.0, 6.0]);
        draft.traffic(dispersion);
        draft
    }

    /// The other traffic, which does not retry; replaces what was there.
    fn traffic(&mut self, dispersion: f64) {
        let correlation = self.draws.log_between(2.0, 60.0);
        let mut others = Population::stream("others", self.to, self.background);
        if let super::scenario::Calls::Stream { dispersion: d, correlation_seconds: c, .. } =
            &mut others.calls
        {
            (*d, *c) = (dispersion, correlation);
        }
        self.scenario.clients.retain(|population| population.name != "others");
        self.scenario.clients.insert(0, others);
    }

    fn plan(&mut self) -> &mut DependencyPlan {
        &mut self.scenario.dependencies[self.to]
    }

    fn others(&mut self) -> &mut Population {
        &mut self.scenario.clients[0]
    }

    /// Watches at least until this instant and some time after.
    fn watch_until(&mut self, seconds: f64) {
        let after = AFTER_SECONDS.max(AFTER_SCRAPES * self.sampling.interval_seconds);
        self.scenario.duration_seconds = self.scenario.duration_seconds.max(seconds + after);
    }

    fn stamp(&self, seconds: f64) -> Timestamp {
        Timestamp::from_seconds(self.scenario.start_unix_seconds + seconds)
    }

    /// Declares a storm of this class from the onset on.
    fn storm(&mut self, class: &'static str, also: &[Option<&'static str>]) {
        self.truth.class = Some(class);
        self.truth.onset = Some(self.stamp(self.onset));
        self.truth.material = true;
        self.truth.accept = std::iter::once(Some(class)).chain(also.iter().copied()).collect();
        self.truth.accept.dedup();
    }
}

/// Draws the case of this kind, sampling and seed, simulates it and labels it.
#[must_use]
pub fn draw_case(kind: CaseKind, sampling: Sampling, seed: u64) -> LabelledCase {
    let mut draft = Draft::new(kind, sampling, seed);
    if !storms::draw(kind, &mut draft) {
        lookalikes::draw(kind, &mut draft);
    }
    let Draft { scenario, truth, .. } = draft;
    let run = run(&scenario, seed);
    LabelledCase { kind, sampling, seed, scenario, truth, samples: run.series, happened: run.truth }
}

/// Whether a lockstep schedule of these waits shows at this sampling: at least two gaps that are
/// long against what the sampling can cut time into. The multiples were read off a likelihood
/// fitted to such cases: many targets at different phases cut an interval finer than one does.
#[must_use]
pub fn shows(waits: &[f64], sampling: Sampling, spread: f64) -> bool {
    let finest = match sampling.targets {
        0..=2 => 1.9,
        3..=10 => 0.9,
        _ => 0.35,
    };
    let shortest = (finest * sampling.interval_seconds * spread).max(0.8);
    waits.iter().filter(|wait| **wait >= shortest).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLING: Sampling = Sampling { interval_seconds: 15.0, targets: 4 };

    #[test]
    fn every_kind_draws_a_case_with_samples_and_a_label() {
        for kind in CaseKind::ALL {
            let case = draw_case(kind, SAMPLING, 3);
            assert!(!case.samples.is_empty(), "{}", case.name());
            assert!(!case.truth.accept.is_empty(), "{}", case.name());
            assert_eq!(case.truth.class.is_some(), case.truth.onset.is_some(), "{}", case.name());
            assert_eq!(parse_name(&case.name()), Some((kind, SAMPLING, 3)));
        }
    }

    #[test]
    fn storms_have_retries_and_look_alikes_have_none() {
        for kind in CaseKind::ALL {
            let case = draw_case(kind, SAMPLING, 5);
            let retries: u64 = case
                .happened
                .populations
                .iter()
                .flat_map(|population| population.groups.iter().skip(1))
                .map(|group| group.attempts)
                .sum();
            assert_eq!(retries > 0, case.truth.class.is_some(), "{}: {retries}", case.name());
        }
    }

    #[test]
    fn a_herd_comes_back_in_shrinking_waves_at_the_instants_of_its_schedule() {
        for seed in 0..10 {
            let case = draw_case(CaseKind::ExponentialNone, SAMPLING, seed);
            let herd = case.happened.population("herd").cloned().unwrap_or_default();
            let sizes: Vec<u64> = herd.groups[1..].iter().map(|g| g.attempts).collect();
            assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0]), "{}: {sizes:?}", case.name());
            assert!(sizes[0] as f64 > 0.5 * case.truth.herd as f64, "{}: {sizes:?}", case.name());
            for (wave, group) in case.truth.waves.iter().zip(&herd.groups[1..]) {
                if group.attempts > 0 {
                    let at = wave.seconds() - case.scenario.start_unix_seconds;
                    // Latency is added at every attempt, up to a quarter of a second each.
                    let late = group.mean_seconds() - at;
                    assert!((-0.1..3.0).contains(&late), "{}: {late}", case.name());
                }
            }
        }
    }
}
