//! The one door to the wall clock, and the only maker of intervals.
//!
//! Functions that depend on time take a `now`; whoever starts a pass asks a [`Clock`] for it, once.
//! Elapsed time is tokio's, which a paused runtime controls, and [`TokioClock`] ties wall time to
//! it, so that a test moves both clocks together.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::series::Timestamp;

/// Wall time.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the wall clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 is a machine whose clock is not set yet.
        Timestamp::default().plus(since.unwrap_or(Duration::ZERO))
    }
}

/// A fixed start and tokio's elapsed time: on a paused runtime, time that a test moves.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `start` now.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start.plus(self.origin.elapsed())
    }
}

/// Ticks every `interval`, from a random instant within the first one, and never in a burst after
/// a stall: squall must not be a herd itself.
#[must_use]
pub fn ticker(interval: Duration) -> Interval {
    let start = Instant::now() + interval.mul_f64(random_fraction());
    let mut ticker = tokio::time::interval_at(start, interval);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}

/// A random number in `[0, 1)` for spreading our own requests; never for statistics, which are
/// seeded, nor for secrets.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits")]
pub fn random_fraction() -> f64 {
    // Each `RandomState` has keys of its own, the first of them from the operating system.
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_runtime_moves_the_wall_clock_too() {
        let clock = TokioClock::starting_at(Timestamp::from_millis(1_000));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().millis(), 3_601_000);
    }

    #[tokio::test(start_paused = true)]
    async fn tickers_start_apart_and_do_not_burst() {
        let mut first_ticks = Vec::new();
        for _ in 0..8 {
            let clock = TokioClock::starting_at(Timestamp::default());
            let mut ticker = ticker(Duration::from_secs(1000));
            ticker.tick().await;
            let first = clock.now().millis();
            assert!((0..=1_000_001).contains(&first), "{first}");
            first_ticks.push(first);
            // A stall of 5.5 intervals is followed by one tick, and the next is a whole one away.
            tokio::time::advance(Duration::from_secs(5500)).await;
            ticker.tick().await;
            let stalled = clock.now().millis();
            ticker.tick().await;
            assert!(clock.now().millis() - stalled >= 999_000);
        }
        first_ticks.dedup();
        assert!(first_ticks.len() > 1, "all started at {first_ticks:?}");
    }

    #[test]
    fn fractions_fill_the_unit_interval() {
        let mut halves = [0; 2];
        for _ in 0..200 {
            let fraction = random_fraction();
            assert!((0.0..1.0).contains(&fraction));
            halves[usize::from(fraction >= 0.5)] += 1;
        }
        assert!(halves.iter().all(|count| *count > 20), "{halves:?}");
    }
}
