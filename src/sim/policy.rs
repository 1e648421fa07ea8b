//! A client's retry policy: how long to wait before the n-th retry, and when to stop.
//!
//! The order in which jitter and cap are applied is part of the policy. A library that multiplies
//! its jitter in and then clamps at the cap sends everybody back at exactly the cap: the fleet looks
//! jittered at first and is in lockstep later.

use super::random::Draws;
use crate::rules::policy::Policy;

/// How the waits grow.
#[derive(Debug, Clone, PartialEq)]
pub enum Growth {
    /// No wait at all.
    Immediate,
    /// `base` every time.
    Fixed,
    /// `base * factor^n`, `n` from zero.
    Exponential {
        /// The growth from one wait to the next.
        factor: f64,
    },
    /// `base + step * n`.
    Linear {
        /// Seconds added each time.
        step_seconds: f64,
    },
    /// `base * (n + 1)^power + offset`.
    Polynomial {
        /// The power.
        power: f64,
        /// Seconds added to every wait.
        offset_seconds: f64,
    },
    /// These waits in seconds; the last one repeats.
    List(Vec<f64>),
    /// As a known client library does, jitter and cap included.
    Library(Box<Policy>),
}

/// How a wait is spread over the clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// `U(0, wait)`.
    Full,
    /// `wait / 2 + U(0, wait / 2)`.
    Equal,
    /// `min(cap, U(base, 3 * previous))`.
    Decorrelated,
    /// The wait times `U(low, high)`: proportional jitter of 20 % is `0.8, 1.2`.
    Scaled {
        /// The smallest multiple.
        low: f64,
        /// The largest multiple.
        high: f64,
    },
    /// The wait plus `U(low, high) * (n + 1)^growth` seconds.
    Added {
        /// The least that is added.
        low_seconds: f64,
        /// The most that is added.
        high_seconds: f64,
        /// Whether the range grows with the number of the retry.
        grows: bool,
    },
}

impl Jitter {
    /// Proportional jitter: the wait times `U(1 - fraction, 1 + fraction)`.
    #[must_use]
    pub fn proportional(fraction: f64) -> Self {
        Self::Scaled { low: 1.0 - fraction, high: 1.0 + fraction }
    }
}

/// Whether the cap applies to the wait before the jitter, or to the jittered wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapOrder {
    /// `jitter(min(cap, wait))`, as it should be.
    CapThenJitter,
    /// `min(cap, jitter(wait))`: lockstep once the cap is reached.
    JitterThenCap,
}

/// Thirty years: where growth stops being followed.
const WAIT_SECONDS_MAX: f64 = 1e9;

/// One client's rule.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// How the waits grow.
    pub growth: Growth,
    /// The first wait, seconds.
    pub base_seconds: f64,
    /// The longest wait, seconds; infinite without one.
    pub cap_seconds: f64,
    /// How a wait is spread.
    pub jitter: Jitter,
    /// In which order cap and jitter apply.
    pub cap_order: CapOrder,
    /// Retries after the first attempt; `u32::MAX` for no end.
    pub retries_max: u32,
    /// Seconds after the first attempt beyond which no retry starts; infinite without a budget.
    pub time_budget_seconds: f64,
    /// Whether a server's `Retry-After` replaces the wait.
    pub honours_retry_after: bool,
}

impl RetryPolicy {
    /// A client that never retries.
    #[must_use]
    pub fn none() -> Self {
        Self { retries_max: 0, ..Self::exponential(1.0, 2.0, f64::INFINITY, 0, Jitter::None) }
    }

    /// `min(cap, base * factor^n)` with this jitter.
    #[must_use]
    pub fn exponential(
        base_seconds: f64,
        factor: f64,
        cap_seconds: f64,
        retries_max: u32,
        jitter: Jitter,
    ) -> Self {
        Self {
            growth: Growth::Exponential { factor },
            base_seconds,
            cap_seconds,
            jitter,
            cap_order: CapOrder::CapThenJitter,
            retries_max,
            time_budget_seconds: f64::INFINITY,
            honours_retry_after: false,
        }
    }

    /// The same wait every time.
    #[must_use]
    pub fn fixed(delay_seconds: f64, retries_max: u32) -> Self {
        Self {
            growth: Growth::Fixed,
            ..Self::exponential(delay_seconds, 1.0, f64::INFINITY, retries_max, Jitter::None)
        }
    }

    /// Retries at once.
    #[must_use]
    pub fn immediate(retries_max: u32) -> Self {
        Self { growth: Growth::Immediate, ..Self::fixed(0.0, retries_max) }
    }

    /// The policy of a client library.
    #[must_use]
    pub fn library(policy: &Policy) -> Self {
        Self {
            growth: Growth::Library(Box::new(policy.clone())),
            ..Self::fixed(0.0, policy.retries_max().unwrap_or(u32::MAX))
        }
    }

    /// The wait before retry `n` (from zero) without jitter, after the cap, in seconds.
    #[must_use]
    pub fn nominal_seconds(&self, n: u32) -> f64 {
        self.grown(n).min(self.cap_seconds)
    }

    fn grown(&self, n: u32) -> f64 {
        match &self.growth {
            Growth::Immediate => 0.0,
            Growth::Fixed => self.base_seconds,
            Growth::Exponential { factor } => {
                // Repeated multiplication: exact for the usual factor of two, alike everywhere.
                let mut wait = self.base_seconds;
                for _ in 0..n {
                    wait *= factor;
                    if wait > WAIT_SECONDS_MAX {
                        break;
                    }
                }
                wait
            }
            Growth::Linear { step_seconds } => self.base_seconds + step_seconds * f64::from(n),
            Growth::Polynomial { power, offset_seconds } => {
                self.base_seconds * libm::pow(f64::from(n) + 1.0, *power) + offset_seconds
            }
            Growth::List(waits) => {
                let last = waits.len().saturating_sub(1);
                waits.get((n as usize).min(last)).copied().unwrap_or(0.0)
            }
            Growth::Library(policy) => policy.nominal_wait(n + 1).unwrap_or(0.0),
        }
    }

    /// Draws the wait before retry `n` (from zero); `previous_seconds` is the wait before that.
    pub fn wait_seconds(&self, n: u32, previous_seconds: f64, draws: &mut Draws) -> f64 {
        if let Growth::Library(policy) = &self.growth {
            let previous = (n > 0).then_some(previous_seconds);
            return policy.draw(n + 1, previous, draws.uniform()).unwrap_or(0.0);
        }
        let wait = match self.cap_order {
            CapOrder::CapThenJitter => self.nominal_seconds(n),
            CapOrder::JitterThenCap => self.grown(n),
        };
        let spread = match self.jitter {
            Jitter::None => wait,
            Jitter::Full => wait * draws.uniform(),
            Jitter::Equal => wait * (0.5 + 0.5 * draws.uniform()),
            Jitter::Decorrelated => {
                let previous = if n == 0 { self.base_seconds } else { previous_seconds };
                let high = (3.0 * previous).max(self.base_seconds);
                draws.between(self.base_seconds, high).min(self.cap_seconds)
            }
            Jitter::Scaled { low, high } => wait * draws.between(low, high),
            Jitter::Added { low_seconds, high_seconds, grows } => {
                let times = if grows { f64::from(n) + 1.0 } else { 1.0 };
                wait + draws.between(low_seconds, high_seconds) * times
            }
        };
        match self.cap_order {
            CapOrder::CapThenJitter => spread.max(0.0),
            CapOrder::JitterThenCap => spread.clamp(0.0, self.cap_seconds),
        }
    }

    /// The instants of the retries after a failure at zero, without jitter and latency.
    #[must_use]
    pub fn nominal_instants(&self, count: u32) -> Vec<f64> {
        let mut at = 0.0;
        (0..count.min(self.retries_max))
            .map(|n| {
                at += self.nominal_seconds(n);
                at
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_from_one_second_returns_at_1_3_7_15_31() {
        let policy = RetryPolicy::exponential(1.0, 2.0, 32.0, 7, Jitter::None);
        assert_eq!(policy.nominal_instants(7), [1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 95.0]);
    }

    #[test]
    fn the_power_of_four_schedule_of_a_job_framework() {
        let policy = RetryPolicy {
            growth: Growth::Polynomial { power: 4.0, offset_seconds: 2.0 },
            ..RetryPolicy::exponential(1.0, 1.0, f64::INFINITY, 5, Jitter::None)
        };
        let waits: Vec<f64> = (0..5).map(|n| policy.nominal_seconds(n)).collect();
        assert_eq!(waits, [3.0, 18.0, 83.0, 258.0, 627.0]);
    }

    #[test]
    fn jitter_before_the_cap_ends_at_exactly_the_cap() {
        let mut draws = Draws::new(5, 0);
        let policy = RetryPolicy {
            cap_order: CapOrder::JitterThenCap,
            ..RetryPolicy::exponential(0.5, 2.0, 2.0, 20, Jitter::proportional(0.5))
        };
        assert!((0..50).all(|_| policy.wait_seconds(0, 0.0, &mut draws) < 2.0));
        // From the fourth retry on the smallest draw, 0.5 * 4, is already the cap.
        assert!(
            (0..50).all(|_| policy.wait_seconds(3, 0.0, &mut draws).to_bits() == 2.0_f64.to_bits())
        );
    }

    #[test]
    fn spreads_stay_in_their_ranges() {
        let mut draws = Draws::new(6, 0);
        let with = |jitter| RetryPolicy::exponential(1.0, 2.0, 32.0, 9, jitter);
        for (jitter, low, high) in [
            (Jitter::Full, 0.0, 8.0),
            (Jitter::Equal, 4.0, 8.0),
            (Jitter::Decorrelated, 1.0, 12.0),
            (Jitter::proportional(0.2), 6.4, 9.6),
            (Jitter::Added { low_seconds: 0.3, high_seconds: 3.0, grows: false }, 8.3, 11.0),
        ] {
            let policy = with(jitter);
            let waits: Vec<f64> =
                (0..500).map(|_| policy.wait_seconds(3, 4.0, &mut draws)).collect();
            assert!(waits.iter().all(|wait| (low..high).contains(wait)), "{jitter:?}");
            let widest = waits.iter().fold(0.0_f64, |a, b| a.max(*b));
            assert!(widest > low + 0.9 * (high - low), "{jitter:?} does not fill its range");
        }
    }
}
