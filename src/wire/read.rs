//! From the wire form back to the core types: every name is checked against its closed set.

use super::{
    EvidenceJson, FeedbackJson, ImpactJson, IncidentJson, InvalidWire, ScheduleJson, WaveJson,
};
use crate::classify::{
    Advice, Class, Impact, JitterKind, RuleMatch, Schedule, ScheduleFamily, Severity, Verdict, Wave,
};
use crate::detect::schedule_fit::Channel;
use crate::detect::{Evidence, Test};
use crate::incident::{DependencyKey, Feedback, Incident, IncidentId, State};
use crate::series::Labels;

/// Finds the enum value for a wire name, or says which field is wrong.
fn known<T>(
    field: &'static str,
    value: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, InvalidWire> {
    parse(value).ok_or_else(|| InvalidWire { field, value: value.to_owned() })
}

impl TryFrom<IncidentJson> for Incident {
    type Error = InvalidWire;

    fn try_from(wire: IncidentJson) -> Result<Self, InvalidWire> {
        Ok(Self {
            id: IncidentId(wire.id),
            dependency: DependencyKey {
                source: wire.source,
                watch: wire.watch,
                labels: Labels::new(wire.labels),
            },
            state: known("state", &wire.state, State::parse)?,
            verdict: Verdict {
                class: known("classification", &wire.classification, Class::parse)?,
                severity: known("severity", &wire.severity, Severity::parse)?,
                started_at: wire.started_at.0,
                confidence: wire.confidence.0,
                summary: wire.summary,
                schedule: wire.schedule.map(Schedule::try_from).transpose()?,
                waves: wire.waves.into_iter().map(Wave::try_from).collect::<Result<_, _>>()?,
                next_wave_at: wire.next_wave_at.map(|at| at.0),
                impact: Impact::from(wire.impact),
                evidence: wire
                    .evidence
                    .into_iter()
                    .map(Evidence::try_from)
                    .collect::<Result<_, _>>()?,
                matches: wire
                    .matches
                    .into_iter()
                    .map(|found| RuleMatch {
                        rule: found.rule,
                        name: found.name,
                        distance: found.distance.0,
                    })
                    .collect(),
                advice: wire
                    .advice
                    .into_iter()
                    .map(|advice| Advice {
                        title: advice.title,
                        text: advice.text,
                        effect: advice.effect,
                    })
                    .collect(),
            },
            detected_at: wire.detected_at.map(|at| at.0),
            updated_at: wire.updated_at.0,
            ended_at: wire.ended_at.map(|at| at.0),
            feedback: wire.feedback.map(Feedback::try_from).transpose()?,
        })
    }
}

/// The parameters of a schedule that may carry a 95 % interval.
const INTERVAL_NAMES: [&str; 5] =
    ["base_seconds", "factor", "cap_seconds", "jitter_fraction", "attempt_latency_seconds"];

impl TryFrom<ScheduleJson> for Schedule {
    type Error = InvalidWire;

    fn try_from(wire: ScheduleJson) -> Result<Self, InvalidWire> {
        Ok(Self {
            family: known("schedule.family", &wire.family, ScheduleFamily::parse)?,
            base_seconds: wire.base_seconds.0,
            factor: wire.factor.0,
            cap_seconds: wire.cap_seconds,
            attempt_latency_seconds: wire.attempt_latency_seconds.0,
            waits_seconds: wire.waits_seconds.into_iter().map(|wait| wait.0).collect(),
            jitter: known("schedule.jitter", &wire.jitter, JitterKind::parse)?,
            jitter_fraction: wire.jitter_fraction.0,
            intervals: wire
                .intervals
                .into_iter()
                .map(|(name, [low, high])| {
                    let name = known("schedule.intervals", &name, |name| {
                        INTERVAL_NAMES.into_iter().find(|known| *known == name)
                    })?;
                    Ok((name, [low.0, high.0]))
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<WaveJson> for Wave {
    type Error = InvalidWire;

    fn try_from(wire: WaveJson) -> Result<Self, InvalidWire> {
        Ok(Self {
            expected_at: wire.expected_at.0,
            requests: wire.requests.0,
            counts: known("waves.counts", &wire.counts, Channel::parse)?,
        })
    }
}

impl From<ImpactJson> for Impact {
    fn from(wire: ImpactJson) -> Self {
        Self {
            baseline_rate: wire.baseline_rate.0,
            peak_rate: wire.peak_rate.0,
            amplification: wire.amplification.0,
            error_ratio: wire.error_ratio.0,
            excess_requests: wire.excess_requests.0,
            herd_size: wire.herd_size.0,
            trigger_ended_at: wire.trigger_ended_at.map(|at| at.0),
            outlived_trigger_seconds: wire.outlived_trigger_seconds.0,
        }
    }
}

impl TryFrom<EvidenceJson> for Evidence {
    type Error = InvalidWire;

    fn try_from(wire: EvidenceJson) -> Result<Self, InvalidWire> {
        Ok(Self {
            test: known("evidence.test", &wire.test, Test::parse)?,
            statistic: wire.statistic.0,
            p_value: wire.p_value,
            supports: wire.supports,
            says: wire.says,
        })
    }
}

impl TryFrom<FeedbackJson> for Feedback {
    type Error = InvalidWire;

    fn try_from(wire: FeedbackJson) -> Result<Self, InvalidWire> {
        Ok(Self {
            genuine: known("feedback.verdict", &wire.verdict, |verdict| match verdict {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            })?,
            class: wire
                .class
                .as_deref()
                .map(|class| known("feedback.class", class, Class::parse))
                .transpose()?,
            note: wire.note,
            at: wire.at.0,
        })
    }
}
