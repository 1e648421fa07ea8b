//! The JSON form of an incident, in one place: the API, the export, `analyze` and the `squall` key
//! of a webhook all send this.
//!
//! Core types are not serialisable, so that a renamed field cannot break a client or a database.
//! One shared wire type, and not one for each sender, because the contract promises the same shape
//! everywhere: four copies would drift. The conversion is lossless both ways, so the store keeps an
//! incident as this text and gets the same incident back.
//!
//! Fields beyond the contract are additions that readers may ignore: `supports` of a piece of
//! evidence, `waits_seconds` of a schedule, and `seen_before`.
//!
//! A number that is not finite becomes `null` (JSON has no other word for it) and reads back as NaN.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::classify::{Advice, Impact, RuleMatch, Schedule, Wave};
use crate::detect::Evidence;
use crate::detect::schedule_fit::Channel;
use crate::incident::{Dependency, Feedback, Incident};
use crate::series::{Labels, Timestamp};

/// A stored or received incident that breaks the contract.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{field}` has the unknown value `{value}`")]
pub struct InvalidWire {
    /// The field, by its JSON name.
    pub field: &'static str,
    /// What stands there.
    pub value: String,
}

/// An instant as RFC 3339 with milliseconds, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant3339(pub Timestamp);

/// The instant as RFC 3339 text with milliseconds; beyond the year 9999, the last instant before it.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(at.millis()).unwrap_or(if at.millis() < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    });
    format!("{time:.3}")
}

/// The instant that RFC 3339 text names, cut to the millisecond.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let time = text.parse::<jiff::Timestamp>().ok()?;
    Some(Timestamp::from_millis(time.as_millisecond()))
}

impl Serialize for Instant3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(self.0))
    }
}

impl<'de> Deserialize<'de> for Instant3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rfc3339(&text)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected an RFC 3339 time"))
    }
}

/// A number that may be missing: `null` for NaN and the infinities.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.is_finite().then_some(self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN)))
    }
}

/// An incident, as the contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncidentJson {
    /// Its stable identity.
    pub id: String,
    /// The dependency's name, as shown to people.
    pub dependency: String,
    /// The values of the watch's `by` labels.
    pub labels: BTreeMap<String, String>,
    /// The watch's name.
    pub watch: String,
    /// The source's name.
    pub source: String,
    /// `pending`, `firing` or `resolved`.
    pub state: String,
    /// One of the five classes.
    pub classification: String,
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// The estimated instant of the first failure.
    pub started_at: Instant3339,
    /// When the class first fired.
    pub detected_at: Option<Instant3339>,
    /// The poll that last revised it.
    pub updated_at: Instant3339,
    /// When it ended.
    pub ended_at: Option<Instant3339>,
    /// Calibrated probability that the class is right.
    pub confidence: Number,
    /// One sentence with numbers.
    pub summary: String,
    /// The retry schedule, where there is one.
    pub schedule: Option<ScheduleJson>,
    /// The waves so far.
    pub waves: Vec<WaveJson>,
    /// When the next one is due.
    pub next_wave_at: Option<Instant3339>,
    /// What it does to the dependency.
    pub impact: ImpactJson,
    /// What speaks for and against it.
    pub evidence: Vec<EvidenceJson>,
    /// Known clients whose schedule fits.
    pub matches: Vec<MatchJson>,
    /// What to do.
    pub advice: Vec<AdviceJson>,
    /// What a person said of it.
    pub feedback: Option<FeedbackJson>,
    /// Earlier incidents of the same dependency and schedule, where the sender looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_before: Option<SeenBeforeJson>,
}

/// A retry schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleJson {
    /// The shape of the waits.
    pub family: String,
    /// The first wait.
    pub base_seconds: Number,
    /// The growth from one wait to the next.
    pub factor: Number,
    /// The longest wait, where one was seen.
    pub cap_seconds: Option<f64>,
    /// Time from an attempt to its failure.
    pub attempt_latency_seconds: Number,
    /// The waits themselves, as many as waves were seen.
    #[serde(default)]
    pub waits_seconds: Vec<Number>,
    /// How the waits are spread.
    pub jitter: String,
    /// Standard deviation of a wave over the gap to the next one.
    pub jitter_fraction: Number,
    /// 95 % intervals by parameter name.
    pub intervals: BTreeMap<String, [Number; 2]>,
}

/// One burst of the train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaveJson {
    /// Where the schedule puts it.
    pub expected_at: Instant3339,
    /// Requests in it: all, or only those that failed.
    pub requests: Number,
    /// Which of the two: `requests` or `failures`.
    #[serde(default = "all_requests")]
    pub counts: String,
}

/// What a wave counts where an older record does not say.
fn all_requests() -> String {
    Channel::Requests.as_str().to_owned()
}

/// What the trouble does to the dependency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImpactJson {
    /// Requests per second before.
    pub baseline_rate: Number,
    /// The highest requests per second since.
    pub peak_rate: Number,
    /// Attempts per request wanted.
    pub amplification: Number,
    /// Share of requests that failed.
    pub error_ratio: Number,
    /// Requests above the baseline.
    pub excess_requests: Number,
    /// Clients that failed together.
    pub herd_size: Number,
    /// When the first cause ended.
    pub trigger_ended_at: Option<Instant3339>,
    /// How long the load has outlived its trigger.
    pub outlived_trigger_seconds: Number,
}

/// What one statistic says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceJson {
    /// The statistic.
    pub test: String,
    /// Its value.
    pub statistic: Number,
    /// The calibrated p-value, where there is one.
    pub p_value: Option<f64>,
    /// Whether it speaks for the class.
    #[serde(default = "supports_by_default")]
    pub supports: bool,
    /// One sentence.
    pub says: String,
}

const fn supports_by_default() -> bool {
    true
}

/// A known client whose schedule fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatchJson {
    /// The rule's id.
    pub rule: String,
    /// The client's name.
    pub name: String,
    /// Distance of the waits; 0 is exact.
    pub distance: Number,
}

/// Something the reader can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdviceJson {
    /// What, in a few words.
    pub title: String,
    /// How.
    pub text: String,
    /// What it would have changed here.
    pub effect: String,
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedbackJson {
    /// `true` or `false`.
    pub verdict: String,
    /// The class it really was.
    pub class: Option<String>,
    /// Their words.
    pub note: String,
    /// When they said it.
    pub at: Instant3339,
}

/// Earlier incidents of the same dependency and schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenBeforeJson {
    /// How many.
    pub times: u64,
    /// The first of them.
    pub first_at: Option<Instant3339>,
    /// The last of them.
    pub last_at: Option<Instant3339>,
    /// The ids of the newest few, newest first.
    pub incidents: Vec<String>,
}

/// A dependency and how well it can be seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DependencyJson {
    /// Its name, as shown to people.
    pub name: String,
    /// The values of the watch's `by` labels.
    pub labels: BTreeMap<String, String>,
    /// The watch's name.
    pub watch: String,
    /// The source's name.
    pub source: String,
    /// `learning`, `watched`, `blind` or `stale`.
    pub state: String,
    /// Targets that report on it.
    pub targets: usize,
    /// Seconds between two scrapes of one target.
    pub scrape_interval_seconds: Number,
    /// Seconds between two scrapes of any target.
    pub effective_step_seconds: Number,
    /// The shortest wait between two waves that can be told apart.
    pub resolvable_gap_seconds: Number,
    /// Requests per second in normal traffic.
    pub baseline_rate: Number,
    /// Variance-to-mean ratio of the counts.
    pub dispersion: Number,
    /// The newest sample.
    pub last_sample_at: Option<Instant3339>,
    /// What looked like trouble and was ruled out.
    pub observations: Vec<ObservationJson>,
}

/// Something that looked like trouble and was ruled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservationJson {
    /// What it was.
    pub kind: String,
    /// When it began.
    pub from: Instant3339,
    /// When it ended.
    pub to: Instant3339,
    /// What ruled a storm out.
    pub says: String,
}

/// The labels as a map.
#[must_use]
pub fn label_map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl From<&Incident> for IncidentJson {
    fn from(incident: &Incident) -> Self {
        let verdict = &incident.verdict;
        Self {
            id: incident.id.0.clone(),
            dependency: incident.dependency.name(),
            labels: label_map(&incident.dependency.labels),
            watch: incident.dependency.watch.clone(),
            source: incident.dependency.source.clone(),
            state: incident.state.as_str().to_owned(),
            classification: verdict.class.as_str().to_owned(),
            severity: verdict.severity.as_str().to_owned(),
            started_at: Instant3339(verdict.started_at),
            detected_at: incident.detected_at.map(Instant3339),
            updated_at: Instant3339(incident.updated_at),
            ended_at: incident.ended_at.map(Instant3339),
            confidence: Number(verdict.confidence),
            summary: verdict.summary.clone(),
            schedule: verdict.schedule.as_ref().map(ScheduleJson::from),
            waves: verdict.waves.iter().map(WaveJson::from).collect(),
            next_wave_at: verdict.next_wave_at.map(Instant3339),
            impact: ImpactJson::from(&verdict.impact),
            evidence: verdict.evidence.iter().map(EvidenceJson::from).collect(),
            matches: verdict.matches.iter().map(MatchJson::from).collect(),
            advice: verdict.advice.iter().map(AdviceJson::from).collect(),
            feedback: incident.feedback.as_ref().map(FeedbackJson::from),
            seen_before: None,
        }
    }
}

impl From<&Schedule> for ScheduleJson {
    fn from(schedule: &Schedule) -> Self {
        let interval = |(name, [low, high]): &(&str, [f64; 2])| {
            ((*name).to_owned(), [Number(*low), Number(*high)])
        };
        Self {
            family: schedule.family.as_str().to_owned(),
            base_seconds: Number(schedule.base_seconds),
            factor: Number(schedule.factor),
            cap_seconds: schedule.cap_seconds,
            attempt_latency_seconds: Number(schedule.attempt_latency_seconds),
            waits_seconds: schedule.waits_seconds.iter().copied().map(Number).collect(),
            jitter: schedule.jitter.as_str().to_owned(),
            jitter_fraction: Number(schedule.jitter_fraction),
            intervals: schedule.intervals.iter().map(interval).collect(),
        }
    }
}

impl From<&Wave> for WaveJson {
    fn from(wave: &Wave) -> Self {
        Self {
            expected_at: Instant3339(wave.expected_at),
            requests: Number(wave.requests),
            counts: wave.counts.as_str().to_owned(),
        }
    }
}

impl From<&Impact> for ImpactJson {
    fn from(impact: &Impact) -> Self {
        Self {
            baseline_rate: Number(impact.baseline_rate),
            peak_rate: Number(impact.peak_rate),
            amplification: Number(impact.amplification),
            error_ratio: Number(impact.error_ratio),
            excess_requests: Number(impact.excess_requests),
            herd_size: Number(impact.herd_size),
            trigger_ended_at: impact.trigger_ended_at.map(Instant3339),
            outlived_trigger_seconds: Number(impact.outlived_trigger_seconds),
        }
    }
}

impl From<&Evidence> for EvidenceJson {
    fn from(evidence: &Evidence) -> Self {
        Self {
            test: evidence.test.as_str().to_owned(),
            statistic: Number(evidence.statistic),
            p_value: evidence.p_value,
            supports: evidence.supports,
            says: evidence.says.clone(),
        }
    }
}

impl From<&RuleMatch> for MatchJson {
    fn from(found: &RuleMatch) -> Self {
        Self {
            rule: found.rule.clone(),
            name: found.name.clone(),
            distance: Number(found.distance),
        }
    }
}

impl From<&Advice> for AdviceJson {
    fn from(advice: &Advice) -> Self {
        Self {
            title: advice.title.clone(),
            text: advice.text.clone(),
            effect: advice.effect.clone(),
        }
    }
}

impl From<&Feedback> for FeedbackJson {
    fn from(feedback: &Feedback) -> Self {
        Self {
            verdict: feedback.genuine.to_string(),
            class: feedback.class.map(|class| class.as_str().to_owned()),
            note: feedback.note.clone(),
            at: Instant3339(feedback.at),
        }
    }
}

impl From<&Dependency> for DependencyJson {
    fn from(dependency: &Dependency) -> Self {
        let key = &dependency.key;
        Self {
            name: key.name(),
            labels: label_map(&key.labels),
            watch: key.watch.clone(),
            source: key.source.clone(),
            state: dependency.state.as_str().to_owned(),
            targets: dependency.targets,
            scrape_interval_seconds: Number(dependency.scrape_interval_seconds),
            effective_step_seconds: Number(dependency.effective_step_seconds),
            resolvable_gap_seconds: Number(dependency.resolvable_gap_seconds),
            baseline_rate: Number(dependency.baseline_rate),
            dispersion: Number(dependency.dispersion),
            last_sample_at: dependency.last_sample_at.map(Instant3339),
            observations: dependency
                .observations
                .iter()
                .map(|observation| ObservationJson {
                    kind: observation.kind.as_str().to_owned(),
                    from: Instant3339(observation.from),
                    to: Instant3339(observation.to),
                    says: observation.says.clone(),
                })
                .collect(),
        }
    }
}

pub mod around;
mod read;
#[cfg(test)]
mod tests;
