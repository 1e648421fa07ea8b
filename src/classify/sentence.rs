//! The sentence an operator reads: one, with numbers, that can be acted on.
//!
//! Written for three in the morning: what is happening, how large, how sure, what comes next.
//! Numbers are rounded to what the data carries.

use crate::classify::{Class, Impact, JitterKind, RuleMatch, Schedule, ScheduleFamily, Wave};

/// Waits named before the sentence says "and so on".
const WAITS_SHOWN: usize = 6;
/// Clients named before the sentence counts the rest.
const MATCHES_SHOWN: usize = 2;
/// Matches up to which those named are what the schedule fits.
pub const MATCHES_NAMED: usize = 4;

/// How long load outlives its first cause before that is worth telling, seconds: less is the end of
/// the last wave.
pub const OUTLIVED_SECONDS_MIN: f64 = 10.0;

/// What the sentence is made of.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The dependency's name.
    pub dependency: &'a str,
    /// The class.
    pub class: Class,
    /// What it does.
    pub impact: &'a Impact,
    /// The schedule, where there is one.
    pub schedule: Option<&'a Schedule>,
    /// The waves so far.
    pub waves: &'a [Wave],
    /// Clients that fit.
    pub matches: &'a [RuleMatch],
    /// What it would take to see more, for an open kind.
    pub would_take: Option<&'a str>,
    /// Whether load is held up by retries for certain.
    pub storm_is_certain: bool,
}

/// The sentence for an incident.
#[must_use]
pub fn summary(facts: &Facts<'_>) -> String {
    let name = facts.dependency;
    let impact = facts.impact;
    let peak = number(impact.peak_rate);
    let baseline = number(impact.baseline_rate);
    let errors = percent(impact.error_ratio);
    match facts.class {
        Class::BackoffWithoutJitter => {
            let herd = if impact.herd_size >= 1.0 {
                format!("about {} clients retry", number(impact.herd_size))
            } else {
                "clients retry".to_owned()
            };
            let schedule = facts.schedule.map_or_else(
                || "in step".to_owned(),
                |schedule| format!("in step {}", describe(schedule)),
            );
            format!(
                "{name}: {herd} {schedule}; peak {peak}/s against {baseline}/s before, {errors} \
                 failing{}",
                culprits(facts.matches)
            )
        }
        Class::RetryStormWithoutBackoff => {
            let outlived = if impact.outlived_trigger_seconds >= 1.0 {
                format!(
                    "; it has outlived its trigger by {}",
                    seconds(impact.outlived_trigger_seconds)
                )
            } else {
                String::new()
            };
            format!(
                "{name}: retries without backoff hold the load at {peak}/s against {baseline}/s \
                 before, {:.1} attempts per request wanted, {errors} failing{outlived}",
                impact.amplification
            )
        }
        Class::PartialJitter => format!(
            "{name}: retries come in smeared waves {}; spread {} of the gap, peak {peak}/s against \
             {baseline}/s before",
            facts.schedule.map_or_else(String::new, describe),
            facts.schedule.map_or(0.0, |s| (s.jitter_fraction * 100.0).round() / 100.0),
        ),
        Class::JitteredBackoff => format!(
            "{name}: retries spread as they should after a failure; peak {peak}/s against \
             {baseline}/s before, {} requests above normal",
            number(impact.excess_requests)
        ),
        Class::Inconclusive => {
            let what = if facts.storm_is_certain {
                "load is held up by retries"
            } else {
                "retries follow a failure"
            };
            let why = facts.would_take.map_or_else(
                || "their counts tell neither waves nor a flood".to_owned(),
                |text| {
                    format!(
                        "this sampling cannot tell waves from a flood; to tell which kind it would \
                         take {text}"
                    )
                },
            );
            format!(
                "{name}: {what}, peak {peak}/s against {baseline}/s before, {errors} failing, and \
                 {why}"
            )
        }
    }
}

/// A schedule in words: `every 5 s`, `at 1, 2, 4, 8 s (doubling, no jitter)`.
#[must_use]
pub fn describe(schedule: &Schedule) -> String {
    let jitter = match schedule.jitter {
        JitterKind::None => "no jitter".to_owned(),
        JitterKind::Proportional => {
            format!("jitter of only {} of the gap", percent(schedule.jitter_fraction))
        }
        JitterKind::Equal => "equal jitter".to_owned(),
        JitterKind::Full => "full jitter".to_owned(),
        JitterKind::Decorrelated => "decorrelated jitter".to_owned(),
        JitterKind::Unknown => "jitter unknown".to_owned(),
    };
    let cap =
        schedule.cap_seconds.map_or_else(String::new, |cap| format!(" up to {}", seconds(cap)));
    match schedule.family {
        ScheduleFamily::Fixed => format!("every {} ({jitter})", seconds(schedule.base_seconds)),
        ScheduleFamily::Exponential | ScheduleFamily::Capped => format!(
            "after {}{cap} (times {}, {jitter})",
            waits(schedule),
            significant(schedule.factor, 2)
        ),
        ScheduleFamily::Polynomial | ScheduleFamily::List => {
            format!("after {}{cap} ({jitter})", waits(schedule))
        }
        ScheduleFamily::Unknown => "on a schedule not named".to_owned(),
    }
}

fn waits(schedule: &Schedule) -> String {
    let shown: Vec<String> =
        schedule.waits_seconds.iter().take(WAITS_SHOWN).map(|wait| significant(*wait, 2)).collect();
    let more = if schedule.waits_seconds.len() > WAITS_SHOWN { ", …" } else { "" };
    format!("{}{more} s", shown.join(", "))
}

fn culprits(matches: &[RuleMatch]) -> String {
    if matches.is_empty() {
        return String::new();
    }
    let shown: Vec<&str> =
        matches.iter().take(MATCHES_SHOWN).map(|found| found.name.as_str()).collect();
    // A list of names reads as an accusation where many clients wait alike.
    if matches.len() > MATCHES_NAMED {
        return format!(
            "; {} known clients wait like this, {} among them",
            matches.len(),
            shown.join(" and ")
        );
    }
    let rest = matches.len().saturating_sub(MATCHES_SHOWN);
    let more = if rest > 0 { format!(" or {rest} more") } else { String::new() };
    format!("; fits {}{more}", shown.join(", "))
}

/// A count or rate with thousands separated: `2,031`, `7.3`.
#[must_use]
pub fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return significant(value, 2);
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// A value to so many significant digits, without trailing zeros.
#[must_use]
pub fn significant(value: f64, digits: i32) -> String {
    if value.abs() < 1e-12 || !value.is_finite() {
        return "0".to_owned();
    }
    #[expect(clippy::cast_possible_truncation, reason = "the exponent of a finite float is small")]
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (digits - 1 - magnitude).max(0);
    let text = format!("{value:.*}", usize::try_from(decimals).unwrap_or(0));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A share as a percentage: `12 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", significant((share * 100.0).clamp(0.0, 1e6), 2))
}

/// A length of time in the unit a person would use.
#[must_use]
pub fn seconds(length: f64) -> String {
    if length >= 600.0 {
        format!("{:.0} min", length / 60.0)
    } else if length >= 10.0 {
        format!("{length:.0} s")
    } else {
        format!("{} s", significant(length, 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(number(2031.4), "2,031");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(7.31), "7.3");
        assert_eq!(number(0.0), "0");
        assert_eq!(significant(0.1234, 2), "0.12");
        assert_eq!(significant(2.0, 2), "2");
        assert_eq!(percent(0.125), "12 %");
        assert_eq!(seconds(754.0), "13 min");
    }

    #[test]
    fn a_herd_is_named_with_its_schedule_and_its_culprit() {
        let schedule = Schedule {
            family: ScheduleFamily::Exponential,
            base_seconds: 1.0,
            factor: 2.0,
            cap_seconds: None,
            attempt_latency_seconds: 0.0,
            waits_seconds: vec![1.0, 2.0, 4.0, 8.0],
            jitter: JitterKind::None,
            jitter_fraction: 0.01,
            intervals: Vec::new(),
        };
        let impact = Impact {
            baseline_rate: 100.0,
            peak_rate: 2031.0,
            error_ratio: 0.83,
            herd_size: 1980.0,
            ..Impact::default()
        };
        let text = summary(&Facts {
            dependency: "payments",
            class: Class::BackoffWithoutJitter,
            impact: &impact,
            schedule: Some(&schedule),
            waves: &[],
            matches: &[RuleMatch {
                rule: "x".into(),
                name: "go-retryablehttp".into(),
                distance: 0.0,
            }],
            would_take: None,
            storm_is_certain: true,
        });
        assert_eq!(
            text,
            "payments: about 1,980 clients retry in step after 1, 2, 4, 8 s (times 2, no jitter); \
             peak 2,031/s against 100/s before, 83 % failing; fits go-retryablehttp"
        );
    }
}
