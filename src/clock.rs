//! The one door to the wall clock, and the only maker of intervals.
//!
//! Functions that depend on time take a `now`; whoever starts a pass asks a [`Clock`] for it, once.
//! Elapsed time is tokio's, which a paused runtime controls, and [`TokioClock`] ties wall time to
//! it, so that a test moves both clocks together.

use std::time::Duration;

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
