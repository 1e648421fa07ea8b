//! How squall itself retries: full jitter, a budget, a breaker. Pure: time and chance are arguments.
//!
//! A program that finds retry storms must not be one. After a failure the wait is drawn from
//! `U(0, min(cap, base * 2^n))`; `n` counts the failures of the receiver in a row, not of the
//! message, so that a queue of new messages does not start afresh against a receiver that is down.
//! Beyond that a token bucket bounds the retries of any stretch of time, whatever the draws were,
//! and a `Retry-After` is honoured.
//!
//! What all clients wait alike keeps them in step, however their own draws fall: the time-out of a
//! receiver that hangs, and the time that it names to everybody. So the draw is at least as wide as
//! that.
//!
//! The breaker is open from [`BREAKER_FAILURES`] failures in a row to the next success: then the
//! lane sends nothing but its head, one try at a time, and says so in the metrics.

use std::time::Duration;

/// The limit of the first wait: a receiver that restarts is back in about this time.
const BASE: Duration = Duration::from_secs(1);

/// The limit of every later wait: a page that arrives five minutes after its receiver came back
/// is late, and trying more often does not bring the receiver back.
const CAP: Duration = Duration::from_secs(300);

/// Retries that may follow each other without a wait for the budget.
const BUDGET_BURST: f64 = 10.0;

/// Retries a second that the budget gives back: one in twelve seconds, 300 an hour.
const BUDGET_PER_SECOND: f64 = 1.0 / 12.0;

/// Failures in a row after which a receiver counts as down.
pub const BREAKER_FAILURES: u32 = 5;

/// The longest wait that a receiver may ask for; a date far in the future would silence it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What the rest of the program may know of a receiver's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The last try succeeded, or few have failed.
    Closed,
    /// It counts as down: only its head is tried.
    Open,
}

/// The retry state of one receiver.
#[derive(Debug, Clone)]
pub struct Manners {
    failures: u32,
    // Invariant: from 0 to `BUDGET_BURST`; below zero only by the retries already promised.
    tokens: f64,
    refilled_at: Duration,
}

impl Default for Manners {
    fn default() -> Self {
        Self { failures: 0, tokens: BUDGET_BURST, refilled_at: Duration::ZERO }
    }
}

impl Manners {
    /// Notes a success.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Notes a failure at `now` (of any clock that only goes forward) and returns the wait before
    /// the next try. `draw` is uniform in `[0, 1)`; `took` is how long the try lasted; `asked` is
    /// the receiver's `Retry-After`.
    pub fn failed(
        &mut self,
        now: Duration,
        draw: f64,
        took: Duration,
        asked: Option<Duration>,
    ) -> Duration {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let asked = asked.unwrap_or_default().min(RETRY_AFTER_MAX);
        let limit = BASE.saturating_mul(1 << doublings).max(took).max(asked).min(CAP);
        let wait = asked + limit.mul_f64(draw.clamp(0.0, 1.0));
        wait + self.spend(now + wait)
    }

    /// Takes one retry from the budget for the instant `at`; returns how much longer it must wait.
    fn spend(&mut self, at: Duration) -> Duration {
        let gained = at.saturating_sub(self.refilled_at).as_secs_f64() * BUDGET_PER_SECOND;
        self.tokens = (self.tokens + gained).min(BUDGET_BURST);
        self.refilled_at = self.refilled_at.max(at);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / BUDGET_PER_SECOND)
    }

    /// Whether the receiver counts as down.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        if self.failures >= BREAKER_FAILURES { Pace::Open } else { Pace::Closed }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const SEED: u64 = 20_260_921;

    #[test]
    fn waits_are_drawn_from_nothing_to_a_doubling_limit() {
        let check = |draw: f64, expected: &[f64]| {
            let mut manners = Manners::default();
            let mut now = Duration::ZERO;
            for expected in expected {
                let wait = manners.failed(now, draw, Duration::ZERO, None);
                assert!((wait.as_secs_f64() - expected).abs() < 1e-9, "{wait:?} for {expected}");
                now += wait + Duration::from_secs(60);
            }
        };
        check(0.0, &[0.0, 0.0, 0.0, 0.0]);
        check(0.5, &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 150.0, 150.0]);
    }

    #[test]
    fn a_success_starts_afresh_and_closes_the_breaker() {
        let mut manners = Manners::default();
        for failure in 1..=BREAKER_FAILURES {
            assert_eq!(manners.pace(), Pace::Closed, "before failure {failure}");
            manners.failed(Duration::ZERO, 0.5, Duration::ZERO, None);
        }
        assert_eq!(manners.pace(), Pace::Open);
        manners.succeeded();
        assert_eq!(manners.pace(), Pace::Closed);
    }

    #[test]
    fn retry_after_is_a_lower_bound_with_a_spread_and_an_end() {
        let wait = |draw, asked| {
            let asked = Some(Duration::from_secs(asked));
            Manners::default().failed(Duration::ZERO, draw, Duration::ZERO, asked)
        };
        assert_eq!(wait(0.0, 20), Duration::from_secs(20));
        assert_eq!(wait(0.25, 20), Duration::from_secs(25));
        assert_eq!(wait(0.5, 0), Duration::from_millis(500));
        let year = 31_536_000;
        assert_eq!(wait(0.0, year), RETRY_AFTER_MAX);
        assert_eq!(wait(0.5, year), RETRY_AFTER_MAX + CAP / 2);
    }

    #[test]
    fn a_time_out_is_spread_over_as_long_again() {
        let took = Duration::from_secs(12);
        let wait = |draw| Manners::default().failed(Duration::ZERO, draw, took, None);
        assert_eq!((wait(0.0), wait(0.5)), (Duration::ZERO, took / 2));
    }

    #[test]
    fn no_draws_get_past_the_budget() {
        println!("seed {SEED}");
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(SEED);
        for unlucky in [true, false] {
            let mut manners = Manners::default();
            let mut now = Duration::ZERO;
            let mut retries = 0_u32;
            while now < Duration::from_secs(3600) {
                let draw = if unlucky { 0.0 } else { rng.random::<f64>() };
                now += manners.failed(now, draw, Duration::ZERO, None);
                retries += 1;
            }
            let allowed = 3600.0_f64.mul_add(BUDGET_PER_SECOND, BUDGET_BURST) + 1.0;
            assert!(f64::from(retries) <= allowed, "{retries} retries in an hour");
            assert!(retries >= 12, "{retries}: a budget must not silence it");
        }
    }
}
