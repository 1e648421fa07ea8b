//! The clients' own counters of one dependency: retries, and requests wanted, kept beside its
//! history and summed over the time of trouble.

use std::collections::VecDeque;

use crate::classify::Finding;
use crate::classify::corroborate::{Counted, corroborate};
use crate::series::{Interval, Timestamp};

/// Most intervals kept of either counter.
const INTERVALS_MAX: usize = 40_000;

/// What the clients count.
#[derive(Debug)]
pub(super) struct Counters {
    requests_hold_retries: bool,
    retries: VecDeque<Interval>,
    calls: VecDeque<Interval>,
}

impl Counters {
    pub(super) const fn new(requests_hold_retries: bool) -> Self {
        Self { requests_hold_retries, retries: VecDeque::new(), calls: VecDeque::new() }
    }

    pub(super) fn take(&mut self, retries: Vec<Interval>, calls: Vec<Interval>) {
        self.retries.extend(retries);
        self.calls.extend(calls);
    }

    pub(super) fn forget(&mut self, oldest: Timestamp) {
        for kept in [&mut self.retries, &mut self.calls] {
            while kept.front().is_some_and(|interval| interval.to < oldest)
                || kept.len() > INTERVALS_MAX
            {
                kept.pop_front();
            }
        }
    }

    /// A finding with what the clients counted between two instants, where they count.
    pub(super) fn corroborated(
        &self,
        finding: Finding,
        requests: &[Interval],
        span: [Timestamp; 2],
    ) -> Finding {
        let Finding::Storm { mut verdict, ripeness } = finding else { return finding };
        let of = |kept: &VecDeque<Interval>| (!kept.is_empty()).then(|| sum(kept.iter(), span));
        let counted = Counted {
            requests: sum(requests.iter(), span),
            retries: of(&self.retries),
            calls: of(&self.calls),
            requests_hold_retries: self.requests_hold_retries,
            seconds: span[1].seconds_since(span[0]),
        };
        corroborate(&mut verdict, &counted);
        Finding::Storm { verdict, ripeness }
    }
}

/// The requests of intervals within a span; one that reaches out of it counts by its part inside.
fn sum<'a>(intervals: impl Iterator<Item = &'a Interval>, [from, to]: [Timestamp; 2]) -> f64 {
    intervals
        .map(|interval| {
            let inside = interval.to.min(to).seconds_since(interval.from.max(from)).max(0.0);
            let whole = interval.seconds();
            if whole > 0.0 { interval.requests * inside / whole } else { 0.0 }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    #[test]
    fn an_interval_counts_by_its_part_inside() {
        let at = Timestamp::from_seconds;
        let interval = |from: f64, to: f64| Interval {
            target: TargetId(0),
            from: at(from),
            to: at(to),
            requests: 10.0,
            errors: 0.0,
        };
        let all = [interval(0.0, 10.0), interval(10.0, 20.0), interval(20.0, 30.0)];
        assert!((sum(all.iter(), [at(5.0), at(22.0)]) - 17.0).abs() < 1e-9);
        assert!(sum(all.iter(), [at(50.0), at(60.0)]).abs() < 1e-9);
    }
}
