//! One counter: samples to increases that never exceed what arrived.
//!
//! The obvious rule, "a value below the last one is a reset, so count it from zero", invents
//! requests whenever the drop is not a reset: a query layer that flips between two replicas a
//! scrape apart gives `1000, 998, 1010`, and that rule counts 998 requests that never came. A
//! storm detector fed with them pages on every fail-over. So a drop is a reset only when the new
//! value is small against the old one; every doubtful case gives no increase, and a value once
//! counted is never counted again.
//!
//! # Method
//!
//! With `h` the highest value already accounted for and `v` the new one:
//!
//! ```text
//! v >= h             increase v - h
//! v <  h / 2         reset: the process restarted, increase v
//! otherwise          rollback: no increase, h stays, so that the way back up adds nothing
//! ```
//!
//! A rollback that lasts [`ROLLBACKS_MAX`] samples becomes the new level, still without an
//! increase. A value that returns near the level before a reset was no reset either (a scrape
//! through a load balancer): no increase. A series that falls in three of eight samples without
//! growing is no counter at all (an exporter of deltas) and gives nothing until it behaves.
//!
//! # Assumptions and what happens when they fail
//!
//! * A restarted process starts from zero. One that restores its counter looks like a rollback or
//!   an ordinary increase.
//! * A true reset of a young counter that has passed half of its old value within one scrape is
//!   taken for a rollback and loses that scrape, unless the caller knows that the target
//!   restarted (another series of it was reset at the same instant).
//!
//! # Example
//!
//! ```
//! use squall::series::counter::{Change, Counter, Restart};
//!
//! let mut counter = Counter::starting_at(1000.0);
//! assert_eq!(counter.push(1030.0, Restart::Unknown), Change::Increase(30.0));
//! assert_eq!(counter.push(1029.0, Restart::Unknown), Change::Rollback); // another replica
//! assert_eq!(counter.push(1040.0, Restart::Unknown), Change::Increase(10.0));
//! assert_eq!(counter.push(7.0, Restart::Unknown), Change::Reset(7.0));
//! ```

/// A drop below this share of the last value is a reset. Replicas of one target lag each other by
/// at most some scrapes, so their values differ by little; a restarted process is near zero.
pub const RESET_SHARE_MAX: f64 = 0.5;

/// Samples below the highest value after which the lower level is taken as the true one: two
/// minutes at 15 s, longer than a flip between replicas, shorter than anyone waits.
pub const ROLLBACKS_MAX: u8 = 8;

/// Samples after a reset within which a return near the old level means it was none.
const RETURN_SAMPLES_MAX: u8 = 8;

/// Old levels below this are too small for "returned near it" to mean anything.
const RETURN_LEVEL_MIN: f64 = 1000.0;

/// Samples over which falls are counted.
const BLOCK_SAMPLES: u8 = 8;

/// Falls in a block that make a series no counter. A gauge falls in half of its samples, a counter
/// behind flipping replicas too, but the latter grows all the same.
const BLOCK_FALLS_MIN: u8 = 3;

/// A counter whose growth over a block is under this share of its falls does not grow.
const GROWTH_SHARE_MIN: f64 = 0.5;

/// Whether the target is known to have restarted at this sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Another series of it was reset at the same instant.
    Known,
    /// Nothing says so.
    Unknown,
}

/// What one more sample says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// This many arrived; not negative.
    Increase(f64),
    /// The counter restarted, and this many arrived since; not negative.
    Reset(f64),
    /// A drop that is no reset, or the way back from one: nothing is known to have arrived.
    Rollback,
    /// The series falls all the time and is no counter.
    NotCounter,
}

/// The value of a sample as a count, or none for NaN (stale or exposed), infinities, negatives.
#[must_use]
pub fn count_of(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// The state of one counter series.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    // Invariant: all values finite and not negative.
    highest: f64,
    previous: f64,
    before_reset: f64,
    block_start: f64,
    block_fallen: f64,
    since_reset: u8,
    rollbacks: u8,
    block_samples: u8,
    block_falls: u8,
    is_counter: bool,
}

impl Counter {
    /// A counter whose first sample, which gives no increase, is `value`.
    #[must_use]
    pub fn starting_at(value: f64) -> Self {
        debug_assert!(count_of(value).is_some(), "the caller filters with `count_of`");
        Self {
            highest: value,
            previous: value,
            before_reset: 0.0,
            block_start: value,
            block_fallen: 0.0,
            since_reset: RETURN_SAMPLES_MAX,
            rollbacks: 0,
            block_samples: 0,
            block_falls: 0,
            is_counter: true,
        }
    }

    /// The highest value accounted for.
    #[must_use]
    pub const fn highest(&self) -> f64 {
        self.highest
    }

    /// Whether the series still behaves as a counter.
    #[must_use]
    pub const fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Whether `value` would be a reset by itself: how a caller learns that a target restarted.
    #[must_use]
    pub fn is_reset(&self, value: f64) -> bool {
        self.is_counter && value < self.highest * RESET_SHARE_MAX
    }

    /// Takes the next sample, a value that passed [`count_of`].
    pub fn push(&mut self, value: f64, restart: Restart) -> Change {
        debug_assert!(count_of(value).is_some(), "the caller filters with `count_of`");
        self.judge(value);
        let before = self.highest;
        self.previous = value;
        self.since_reset = self.since_reset.saturating_add(1);
        if !self.is_counter {
            self.highest = value;
            return Change::NotCounter;
        }
        if value >= before {
            self.highest = value;
            self.rollbacks = 0;
            if self.returns_to_old_level(value) {
                self.since_reset = RETURN_SAMPLES_MAX;
                return Change::Rollback;
            }
            return Change::Increase(value - before);
        }
        if restart == Restart::Known || value < before * RESET_SHARE_MAX {
            self.before_reset = before;
            self.since_reset = 0;
            self.highest = value;
            self.rollbacks = 0;
            return Change::Reset(value);
        }
        self.rollbacks += 1;
        if self.rollbacks >= ROLLBACKS_MAX {
            self.highest = value;
            self.rollbacks = 0;
        }
        Change::Rollback
    }

    fn returns_to_old_level(&self, value: f64) -> bool {
        self.since_reset < RETURN_SAMPLES_MAX
            && self.before_reset >= RETURN_LEVEL_MIN
            && value >= self.before_reset
            && value * RESET_SHARE_MAX < self.before_reset
    }

    /// Counts falls, and at the end of each block decides whether this is a counter.
    fn judge(&mut self, value: f64) {
        self.block_samples += 1;
        if value < self.previous {
            self.block_falls += 1;
            self.block_fallen += self.previous - value;
        }
        if self.block_samples < BLOCK_SAMPLES {
            return;
        }
        let grown = value - self.block_start;
        let falls_often = self.block_falls >= BLOCK_FALLS_MIN;
        if falls_often && grown < GROWTH_SHARE_MIN * self.block_fallen {
            self.is_counter = false;
        } else if self.block_falls == 0 {
            self.is_counter = true;
        }
        self.block_start = value;
        self.block_fallen = 0.0;
        self.block_samples = 0;
        self.block_falls = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pushes the values after the first and returns the increases.
    fn increases(values: &[f64]) -> Vec<f64> {
        let mut counter = Counter::starting_at(values[0]);
        values[1..]
            .iter()
            .map(|value| match counter.push(*value, Restart::Unknown) {
                Change::Increase(n) | Change::Reset(n) => n,
                Change::Rollback | Change::NotCounter => 0.0,
            })
            .collect()
    }

    fn check(values: &[f64], expected: &[f64]) {
        assert_eq!(increases(values), expected, "{values:?}");
    }

    #[test]
    fn a_reset_counts_from_zero() {
        check(&[100.0, 130.0, 5.0, 9.0], &[30.0, 5.0, 4.0]);
        check(&[3026.0, 5.0], &[5.0]);
        check(&[7.0, 0.0, 0.0, 2.0], &[0.0, 0.0, 2.0]);
    }

    #[test]
    fn a_flip_to_another_replica_is_no_reset_and_counts_once() {
        check(&[1000.0, 998.0, 1010.0, 1008.0, 1020.0], &[0.0, 10.0, 0.0, 10.0]);
        // The stored case: a value lower by a fraction.
        check(&[3_829_920.063, 3_829_920.042, 3_829_921.0], &[0.0, 3_829_921.0 - 3_829_920.063]);
    }

    #[test]
    fn a_lasting_rollback_becomes_the_level_without_an_increase() {
        let mut values = vec![1000.0];
        values.extend((0..10).map(|n| 800.0 + f64::from(n)));
        let increases = increases(&values);
        assert!((increases.iter().sum::<f64>() - 2.0).abs() < 1e-9, "{increases:?}");
    }

    #[test]
    fn a_known_restart_makes_a_near_drop_a_reset() {
        let mut counter = Counter::starting_at(10.0);
        assert!(!counter.is_reset(8.0));
        assert_eq!(counter.push(8.0, Restart::Known), Change::Reset(8.0));
    }

    #[test]
    fn a_return_to_the_level_before_a_reset_is_no_increase() {
        check(&[50_000.0, 40.0, 50_010.0, 50_020.0], &[40.0, 0.0, 10.0]);
    }

    #[test]
    fn an_exporter_of_deltas_is_flagged_and_silent() {
        let mut counter = Counter::starting_at(50.0);
        let deltas = [48.0, 10.0, 55.0, 3.0, 51.0, 49.0, 60.0, 47.0, 52.0, 46.0, 53.0];
        let last = deltas.map(|value| counter.push(value, Restart::Unknown));
        assert!(!counter.is_counter());
        assert_eq!(last[8..], [Change::NotCounter; 3]);
        // It is believed again once it behaves for a whole block.
        let grown: Vec<Change> =
            (0..16).map(|n| counter.push(100.0 + f64::from(n), Restart::Unknown)).collect();
        assert_eq!(grown.last(), Some(&Change::Increase(1.0)));
    }

    #[test]
    fn flipping_replicas_of_a_growing_counter_stay_a_counter() {
        let mut counter = Counter::starting_at(1000.0);
        for n in 1..100 {
            let lag = if n % 2 == 0 { 5.0 } else { 0.0 };
            counter
                .push(10.0f64.mul_add(f64::from(n), 1000.0) - 12.0 * lag / 5.0, Restart::Unknown);
        }
        assert!(counter.is_counter());
    }

    #[test]
    fn special_values_are_no_counts() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert_eq!(count_of(value), None);
        }
        assert_eq!(count_of(-0.0), Some(0.0));
    }

    proptest! {
        #[test]
        fn an_increase_is_never_negative_nor_above_the_highest_value(
            values in proptest::collection::vec(0.0_f64..1e6, 2..60),
        ) {
            for (increase, value) in increases(&values).iter().zip(&values[1..]) {
                prop_assert!(*increase >= 0.0);
                prop_assert!(increase <= value);
            }
        }

        #[test]
        fn a_counter_that_only_grows_loses_nothing(
            steps in proptest::collection::vec(0_u32..10_000, 1..60),
        ) {
            let mut total = 0.0;
            let mut values = vec![0.0];
            for step in steps {
                total += f64::from(step);
                values.push(total);
            }
            prop_assert!((increases(&values).iter().sum::<f64>() - total).abs() < 1e-6);
        }
    }
}
