//! From evidence to a verdict: the class, the schedule, the client behind it, and the sentence.
//!
//! Every verdict lists what speaks for it and against it, with numbers, so that a person can
//! disagree with it. The types here are the vocabulary shared by incidents, the store and the API;
//! none of them is serialisable, each of those has wire types of its own.

pub mod advice;
pub mod corroborate;
pub mod decide;
mod evidence;
pub mod rhythm;
pub mod matching;
pub mod sentence;

use crate::detect::Evidence;
use crate::detect::resolution::Resolution;
use crate::detect::schedule_fit::{Channel, KnownWaits};
use crate::rules::Rules;
use crate::series::Timestamp;

/// What kind of trouble an incident is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Synchronised waves at the instants of a retry schedule.
    BackoffWithoutJitter,
    /// Load held up by retries with no schedule in it.
    RetryStormWithoutBackoff,
    /// Waves smeared but still there.
    PartialJitter,
    /// Retries that spread as they should.
    JitteredBackoff,
    /// Retries are there and this sampling cannot tell which kind.
    Inconclusive,
}

impl Class {
    /// Every class, in the order of the contract.
    pub const ALL: [Self; 5] = [
        Self::BackoffWithoutJitter,
        Self::RetryStormWithoutBackoff,
        Self::PartialJitter,
        Self::JitteredBackoff,
        Self::Inconclusive,
    ];

    /// The fixed name used in JSON, labels and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BackoffWithoutJitter => "backoff-without-jitter",
            Self::RetryStormWithoutBackoff => "retry-storm-without-backoff",
            Self::PartialJitter => "partial-jitter",
            Self::JitteredBackoff => "jittered-backoff",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// The class with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether this class pages by itself; `inconclusive` pages only above severity info.
    #[must_use]
    pub const fn pages(self, severity: Severity) -> bool {
        match self {
            Self::BackoffWithoutJitter | Self::RetryStormWithoutBackoff => true,
            Self::Inconclusive => !matches!(severity, Severity::Info),
            Self::PartialJitter | Self::JitteredBackoff => false,
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Kept for the record.
    Info,
    /// Worth a look in working hours.
    Warning,
    /// Wakes somebody.
    Critical,
}

impl Severity {
    /// The fixed name used in JSON, labels and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Info, Self::Warning, Self::Critical].into_iter().find(|s| s.as_str() == name)
    }
}

/// The shape of the waits between successive retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleFamily {
    /// Each wait a factor longer than the one before, no cap seen.
    Exponential,
    /// Exponential up to a cap, then at that cap.
    Capped,
    /// The same wait every time.
    Fixed,
    /// Waits that grow as a power of the retry's number (linear, quadratic, …).
    Polynomial,
    /// A list of waits that follows no formula.
    List,
    /// Waves are certain and their schedule is not.
    Unknown,
}

impl ScheduleFamily {
    /// The fixed name used in JSON and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Capped => "capped",
            Self::Fixed => "fixed",
            Self::Polynomial => "polynomial",
            Self::List => "list",
            Self::Unknown => "unknown",
        }
    }

    /// The family with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Exponential, Self::Capped, Self::Fixed, Self::Polynomial, Self::List, Self::Unknown]
            .into_iter()
            .find(|family| family.as_str() == name)
    }
}

/// How the waits are spread over the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JitterKind {
    /// Every client waits the same.
    None,
    /// The wait times `U(1 - j, 1 + j)`.
    Proportional,
    /// Half the wait plus `U(0, wait / 2)`.
    Equal,
    /// `U(0, wait)`.
    Full,
    /// `min(cap, U(base, 3 * previous))`.
    Decorrelated,
    /// Not told apart.
    Unknown,
}

impl JitterKind {
    /// The fixed name used in JSON and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Proportional => "proportional",
            Self::Equal => "equal",
            Self::Full => "full",
            Self::Decorrelated => "decorrelated",
            Self::Unknown => "unknown",
        }
    }

    /// The kind with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::None, Self::Proportional, Self::Equal, Self::Full, Self::Decorrelated, Self::Unknown]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// The retry schedule that the waves follow.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The shape of the waits.
    pub family: ScheduleFamily,
    /// The first wait, seconds.
    pub base_seconds: f64,
    /// The growth from one wait to the next; 1 for a fixed delay; for a polynomial, its power.
    pub factor: f64,
    /// The longest wait, seconds, where one was seen.
    pub cap_seconds: Option<f64>,
    /// Time from an attempt to its failure, seconds: added to every wait.
    pub attempt_latency_seconds: f64,
    /// The waits themselves, seconds, as many as waves were seen.
    pub waits_seconds: Vec<f64>,
    /// How the waits are spread.
    pub jitter: JitterKind,
    /// Standard deviation of a wave over the gap to the next one.
    pub jitter_fraction: f64,
    /// 95 % intervals by parameter name (`base_seconds`, `factor`, `cap_seconds`, `jitter_fraction`).
    pub intervals: Vec<(&'static str, [f64; 2])>,
}

/// One burst of the train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wave {
    /// Where the schedule puts it.
    pub expected_at: Timestamp,
    /// Requests in it, as fitted: all, or only those that failed.
    pub requests: f64,
    /// Which of the two.
    pub counts: Channel,
}

/// What the trouble does to the dependency.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Impact {
    /// Requests per second before the incident.
    pub baseline_rate: f64,
    /// The highest requests per second seen since.
    pub peak_rate: f64,
    /// Attempts per request wanted; at least 1.
    pub amplification: f64,
    /// Share of requests that failed since the start.
    pub error_ratio: f64,
    /// Requests above the baseline since the start.
    pub excess_requests: f64,
    /// Clients that failed together.
    pub herd_size: f64,
    /// When the first cause ended, where that can be told.
    pub trigger_ended_at: Option<Timestamp>,
    /// How long the load has outlived its trigger.
    pub outlived_trigger_seconds: f64,
}

/// A known client whose schedule fits.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleMatch {
    /// The rule's id.
    pub rule: String,
    /// The client's name.
    pub name: String,
    /// How far behind the likeliest it is, or its waits from the fitted ones; 0 is exact.
    pub distance: f64,
}

/// Something the reader can do about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// What to do, in a few words.
    pub title: String,
    /// How.
    pub text: String,
    /// What it would have changed here, with numbers; empty where that is not known.
    pub effect: String,
}

/// What squall believes of one dependency on one poll.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// How bad it is.
    pub severity: Severity,
    /// The estimated instant of the first failure.
    pub started_at: Timestamp,
    /// Calibrated probability that the class is right.
    pub confidence: f64,
    /// One sentence with numbers that an on-call person can act on.
    pub summary: String,
    /// The schedule, where there is one.
    pub schedule: Option<Schedule>,
    /// The waves so far, as fitted.
    pub waves: Vec<Wave>,
    /// When the next one is due.
    pub next_wave_at: Option<Timestamp>,
    /// What it does to the dependency.
    pub impact: Impact,
    /// What speaks for and against it.
    pub evidence: Vec<Evidence>,
    /// Known clients whose schedule fits.
    pub matches: Vec<RuleMatch>,
    /// What to do.
    pub advice: Vec<Advice>,
}

/// Why something that looked like trouble was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObservationKind {
    /// Load rose by itself and was served.
    OrganicSurge,
    /// Load on the clock, present on healthy days.
    ScheduledLoad,
    /// Errors without any excess: clients do not retry.
    OutageWithoutRetries,
    /// Resets, gaps, staircases, replica flips.
    DataArtefact,
}

impl ObservationKind {
    /// The fixed name used in JSON and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrganicSurge => "organic-surge",
            Self::ScheduledLoad => "scheduled-load",
            Self::OutageWithoutRetries => "outage-without-retries",
            Self::DataArtefact => "data-artefact",
        }
    }
}

/// Something that looked like trouble and was ruled out.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What it was.
    pub kind: ObservationKind,
    /// When it began.
    pub from: Timestamp,
    /// When it ended, or the last look at it.
    pub to: Timestamp,
    /// What ruled a storm out, in a sentence with numbers.
    pub says: String,
}

/// What one look at one dependency came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// Too early to say anything but that something is wrong.
    Undecided,
    /// Retries are there.
    Storm {
        /// What is believed of them.
        verdict: Box<Verdict>,
        /// How sure the class is.
        ripeness: Ripeness,
    },
    /// It was no storm, and why.
    Ruled(Observation),
}

impl Finding {
    /// Whether the clients behind it can be told by their waits from a common start: those of a storm
    /// whose kind is clear and has none, and those heard by their echoes, cannot, and none while other
    /// classes are still open.
    #[must_use]
    pub fn may_be_named(&self) -> bool {
        let Self::Storm { verdict, ripeness } = self else { return false };
        if *ripeness == Ripeness::Early {
            return false;
        }
        let heard = verdict.schedule.is_some() && verdict.waves.is_empty();
        let none =
            matches!(verdict.class, Class::RetryStormWithoutBackoff | Class::JitteredBackoff);
        !heard && !none
    }
}

/// How sure the class of a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ripeness {
    /// Provisional: other classes are still open.
    Early,
    /// The class is clear, if the next look agrees.
    Clear,
    /// No later look could reasonably change it.
    Certain,
}

/// Completes a finding with what the rules know: the clients that fit, advice, the sentence.
#[must_use]
pub fn complete(
    finding: Finding,
    dependency: &str,
    resolution: &Resolution,
    rules: &Rules,
    known: &[KnownWaits],
    what_if: &advice::WhatIf,
) -> Finding {
    let known = if finding.may_be_named() { known } else { &[] };
    let Finding::Storm { mut verdict, ripeness } = finding else { return finding };
    let told =
        verdict.schedule.as_ref().map(|schedule| matching::of_substance(schedule, &verdict.waves));
    let level = match verdict.class {
        Class::RetryStormWithoutBackoff => true,
        Class::Inconclusive => verdict.severity > Severity::Info,
        _ => false,
    };
    let seen = matching::Seen {
        resolvable_gap_seconds: resolution.gap_seconds,
        immediate_first_retry: matching::tried_at_once(&verdict.waves, resolution.gap_seconds),
        level: (level && told.is_none()).then_some(verdict.impact.amplification),
        ..matching::Seen::default()
    };
    (verdict.matches, verdict.advice) = advice::match_and_advise(
        verdict.class,
        told.as_ref(),
        known,
        &seen,
        &verdict.impact,
        &what_if.effects(&verdict),
        rules,
    );
    let would_take = resolution.would_take(WAIT_OF_INTEREST_SECONDS);
    verdict.summary = sentence::summary(&sentence::Facts {
        dependency,
        class: verdict.class,
        impact: &verdict.impact,
        schedule: verdict.schedule.as_ref(),
        waves: &verdict.waves,
        matches: &verdict.matches,
        would_take: would_take.as_deref().filter(|_| verdict.class == Class::Inconclusive),
        storm_is_certain: verdict.severity > Severity::Info,
    });
    Finding::Storm { verdict, ripeness }
}

/// The wait whose visibility is worth a change of the sampling: the commonest first wait.
const WAIT_OF_INTEREST_SECONDS: f64 = 1.0;
