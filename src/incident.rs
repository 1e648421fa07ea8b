//! Incidents: one for each outage of a dependency, revised in place, never two for one storm.

pub mod lifecycle;

use std::fmt;

use crate::classify::{Class, Observation, Verdict};
use crate::series::{Labels, Timestamp};

/// The stable identity of an incident: the same storm has it on every replica and every replay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncidentId(pub String);

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where an incident is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Something is wrong and its class is not clear yet.
    Pending,
    /// The class is clear.
    Firing,
    /// Over.
    Resolved,
}

impl State {
    /// The fixed name used in JSON and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }

    /// The state with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pending, Self::Firing, Self::Resolved].into_iter().find(|s| s.as_str() == name)
    }
}

/// What is watched: one dependency of one watch of one source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DependencyKey {
    /// The configured name of the source.
    pub source: String,
    /// The name of the watch.
    pub watch: String,
    /// The values of the watch's `by` labels.
    pub labels: Labels,
}

impl DependencyKey {
    /// The name shown to people: the label values joined by `/`, or the watch's name without any.
    #[must_use]
    pub fn name(&self) -> String {
        if self.labels.is_empty() {
            return self.watch.clone();
        }
        self.labels.iter().map(|(_, value)| value).collect::<Vec<_>>().join("/")
    }
}

/// What a person said about an incident afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// Whether it was a storm at all.
    pub genuine: bool,
    /// The class it really was, where they said so.
    pub class: Option<Class>,
    /// Their words.
    pub note: String,
    /// When they said it.
    pub at: Timestamp,
}

/// One storm of one dependency.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Its identity, fixed when it opens.
    pub id: IncidentId,
    /// Whose it is.
    pub dependency: DependencyKey,
    /// Where it is in its life.
    pub state: State,
    /// What is believed now: class, severity, schedule, impact, evidence.
    pub verdict: Verdict,
    /// When the class first fired; none while pending only.
    pub detected_at: Option<Timestamp>,
    /// The poll that last revised it.
    pub updated_at: Timestamp,
    /// When it ended; none while open.
    pub ended_at: Option<Timestamp>,
    /// What a person said of it.
    pub feedback: Option<Feedback>,
}

/// How well a dependency is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// Not enough history for a baseline yet.
    Learning,
    /// Watched.
    Watched,
    /// Sampled too coarsely to tell anything of the schedules of interest.
    Blind,
    /// No fresh samples.
    Stale,
}

impl Visibility {
    /// The fixed name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Watched => "watched",
            Self::Blind => "blind",
            Self::Stale => "stale",
        }
    }
}

/// A dependency and how well it can be seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependency {
    /// What it is.
    pub key: DependencyKey,
    /// How well it is seen.
    pub state: Visibility,
    /// Targets that report on it.
    pub targets: usize,
    /// Seconds between two scrapes of one target, the median.
    pub scrape_interval_seconds: f64,
    /// Seconds between two scrapes of any target, the mean.
    pub effective_step_seconds: f64,
    /// The shortest wait between two waves that can be told apart here, seconds.
    pub resolvable_gap_seconds: f64,
    /// Requests per second in normal traffic.
    pub baseline_rate: f64,
    /// Variance-to-mean ratio of the counts.
    pub dispersion: f64,
    /// The newest sample.
    pub last_sample_at: Option<Timestamp>,
    /// What looked like trouble and was ruled out, newest last.
    pub observations: Vec<Observation>,
}
