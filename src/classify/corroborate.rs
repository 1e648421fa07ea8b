//! What the clients' own counters say of the retries: how many there were, and whether the excess
//! is theirs.
//!
//! Everything else is inferred from what a dependency sees. Where a client library counts its
//! retries, or the requests that were wanted, the amplification is measured instead, and the
//! verdict is surer or less sure by it. Never required: most fleets count neither.
//!
//! # Method
//!
//! Over the time of trouble, with `R` requests, `T` retries, `C` requests wanted:
//!
//! ```text
//! amplification = R / C                  where calls are counted
//!               = R / (R - T)            where retries are among the requests
//!               = (R + T) / R            where the request counter hides them
//! share         = T / excess             of the excess that is retries by the clients' count
//! ```
//!
//! # Assumptions, and what happens when they fail
//!
//! * The counters are of the same clients. Where only some of a fleet count, the share is too low:
//!   it lowers the confidence only where it is next to nothing.

use super::sentence::number;
use super::{Class, Verdict};
use crate::detect::{Evidence, Test};

/// Share of the excess from which the clients' count agrees.
const SHARE_AGREES: f64 = 0.5;
/// Share under which it disagrees: a canary that alone counts is a tenth of many a fleet.
const SHARE_DISAGREES: f64 = 0.05;
/// Part of the doubt that agreement takes away. Half of it: a second witness, and not a proof of
/// the schedule.
const DOUBT_TAKEN: f64 = 0.5;
/// What disagreement leaves of the confidence.
const CONFIDENCE_LEFT: f64 = 0.6;
/// Requests under which nothing is measured.
const REQUESTS_MIN: f64 = 20.0;

/// What was counted over the time of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Requests, by the watch's own counter.
    pub requests: f64,
    /// Retries, where a counter of them was read.
    pub retries: Option<f64>,
    /// Requests wanted, where a counter of them was read.
    pub calls: Option<f64>,
    /// Whether the requests hold the retries: attempts are counted, and not calls.
    pub requests_hold_retries: bool,
    /// How long it was, seconds.
    pub seconds: f64,
}

impl Counted {
    /// Retries, counted or as what is over the requests wanted.
    fn retries(&self) -> Option<f64> {
        self.retries.or_else(|| self.calls.map(|calls| (self.requests - calls).max(0.0)))
    }

    /// Attempts for each request wanted; none where the counters make no sense together.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        if self.requests < REQUESTS_MIN || self.seconds <= 0.0 {
            return None;
        }
        let amplification = match (self.calls, self.retries) {
            (Some(calls), _) if calls > 0.0 => self.requests / calls,
            (_, Some(retries)) if !self.requests_hold_retries => {
                (self.requests + retries) / self.requests
            }
            (_, Some(retries)) if retries < self.requests => {
                self.requests / (self.requests - retries)
            }
            _ => return None,
        };
        (amplification.is_finite() && amplification > 0.0).then_some(amplification.max(1.0))
    }
}

/// Puts the measured amplification into a verdict, with its evidence, and moves its confidence.
pub fn corroborate(verdict: &mut Verdict, counted: &Counted) {
    let (Some(amplification), Some(retries)) = (counted.amplification(), counted.retries()) else {
        return;
    };
    let excess = verdict.impact.excess_requests;
    let share = if excess > 0.0 { retries / excess } else { 0.0 };
    // What hides its retries shows no excess of them, so that only their presence can agree.
    let agrees = if counted.requests_hold_retries { share >= SHARE_AGREES } else { retries > 0.0 };
    let disagrees = counted.requests_hold_retries && share < SHARE_DISAGREES;
    let rate = |count: f64| number(count / counted.seconds);
    let original = counted.calls.unwrap_or(if counted.requests_hold_retries {
        counted.requests - retries
    } else {
        counted.requests
    });
    verdict.impact.amplification = amplification;
    verdict.evidence.push(Evidence {
        test: Test::Amplification,
        statistic: amplification,
        p_value: None,
        supports: !disagrees,
        says: format!(
            "the clients count {}/s of retries beside {}/s of requests wanted, {amplification:.1} \
             attempts for each{}",
            rate(retries),
            rate(original.max(0.0)),
            if disagrees { "; by their count the excess is not retries" } else { "" },
        ),
    });
    if verdict.class == Class::Inconclusive {
        // An open kind stays open: how many retries there are says nothing of their waits.
        return;
    }
    if agrees {
        verdict.confidence += DOUBT_TAKEN * (1.0 - verdict.confidence);
    } else if disagrees {
        verdict.confidence *= CONFIDENCE_LEFT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Impact, Severity};
    use crate::series::Timestamp;

    fn verdict(excess_requests: f64) -> Verdict {
        Verdict {
            class: Class::RetryStormWithoutBackoff,
            severity: Severity::Critical,
            started_at: Timestamp::default(),
            confidence: 0.8,
            summary: String::new(),
            schedule: None,
            waves: Vec::new(),
            next_wave_at: None,
            impact: Impact { excess_requests, amplification: 2.0, ..Impact::default() },
            evidence: Vec::new(),
            matches: Vec::new(),
            advice: Vec::new(),
        }
    }

    fn counted(requests: f64, retries: Option<f64>, calls: Option<f64>) -> Counted {
        Counted { requests, retries, calls, requests_hold_retries: true, seconds: 100.0 }
    }

    #[test]
    fn retries_that_make_the_excess_raise_the_confidence() {
        let mut seen = verdict(3000.0);
        corroborate(&mut seen, &counted(4000.0, Some(3000.0), None));
        assert!((seen.impact.amplification - 4.0).abs() < 1e-9);
        assert!((seen.confidence - 0.9).abs() < 1e-9);
        let says = &seen.evidence[0].says;
        assert!(says.contains("30/s of retries beside 10/s of requests wanted, 4.0"), "{says}");
    }

    #[test]
    fn an_excess_without_retries_lowers_it() {
        let mut seen = verdict(3000.0);
        corroborate(&mut seen, &counted(4000.0, Some(20.0), None));
        assert!((seen.confidence - 0.48).abs() < 1e-9);
        assert!(!seen.evidence[0].supports);
    }

    #[test]
    fn calls_tell_it_by_themselves_and_hidden_retries_are_added() {
        assert_eq!(counted(900.0, None, Some(300.0)).amplification(), Some(3.0));
        let hidden = Counted { requests_hold_retries: false, ..counted(100.0, Some(200.0), None) };
        assert_eq!(hidden.amplification(), Some(3.0));
        // More retries than attempts: another unit, or another fleet.
        assert_eq!(counted(100.0, Some(200.0), None).amplification(), None);
        assert_eq!(counted(5.0, Some(2.0), None).amplification(), None);
    }

    #[test]
    fn nothing_counted_changes_nothing() {
        let mut seen = verdict(3000.0);
        corroborate(&mut seen, &counted(4000.0, None, None));
        assert_eq!(seen, verdict(3000.0));
    }
}
