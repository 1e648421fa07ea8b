//! The observer of one dependency: samples of its series in, intervals of its targets out.
//!
//! The obvious way, one increase per series, gives a hundred small observations where there is one
//! (every status code and method of a target is scraped at the same instant), and it loses the
//! first failures: client libraries create the `code="503"` series at the first 503, so that its
//! first sample, which "gives no observation", holds exactly the failures that start a storm. The
//! observer joins the series of a target by their timestamps and knows what was absent before.
//!
//! # Method
//!
//! Samples are buffered until [`Observer::close`] moves the watermark over them: a sample becomes
//! visible later than its timestamp, and not all series of a scrape at once. Then each target's
//! scrapes are taken in the order of time. Two successive ones are one interval `(from, to]` with
//! the increases of all series in it, errors beside requests.
//!
//! * *First scrape of a target*: a baseline, no interval. So too after a gap of over five minutes
//!   (and five scrape intervals): an observation that long says nothing about waves.
//! * *A missed scrape*: one longer interval, never filled in.
//! * *A new series on a target already scraped* counts from zero, if its value could have arrived
//!   since: errors not more than the requests of the interval, requests within a hundred times the
//!   highest rate seen (and always up to a thousand). Otherwise it is a baseline.
//! * *A series missing from a scrape that has others of its role*: the interval is held open, for
//!   two scrapes at most, and closes when the series is back. Then it is gone, and its last value
//!   is remembered: when it returns it goes on from there, within five minutes; later, what
//!   arrived meanwhile has no date and is not counted. No count is ever lost or seen twice by
//!   holding; the interval is longer instead.
//! * *A drop that is no reset* ([`super::counter`]) holds the interval open too.
//! * *Scrapes closer than a quarter of the usual spacing* are another replica's and are dropped.
//! * *Series of a restarted target* that are missing have vanished, and count from zero later.
//!
//! Requests are at least the errors of the interval, whatever the counters say.
//!
//! # Assumptions and what happens when they fail
//!
//! * Requests and errors are asked for over the same window, so that a series absent from the
//!   answer was absent from the scrape. Otherwise the bound of the errors by the requests is what
//!   keeps an old error counter from being taken for new failures.
//! * All samples up to the watermark were pushed before `close`. A later one gives a baseline for
//!   a series never seen and is otherwise dropped; the next sample carries its increase.
//!
//! # Cost
//!
//! `O(log s)` a push and `O(s)` a scrape, with `s` the series of the target; some 100 bytes a
//! series, kept for [`MEMORY`] after its last sample.
//!
//! # Example
//!
//! ```
//! use squall::series::observer::Observer;
//! use squall::series::{Role, Sample, SeriesId, TargetId, Timestamp};
//!
//! let mut observer = Observer::default();
//! let mut push = |role, series, seconds, value| {
//!     let sample = Sample { at: Timestamp::from_seconds(seconds), value };
//!     observer.push(role, TargetId(0), SeriesId(series), sample);
//! };
//! push(Role::Requests, 0, 15.0, 1000.0);
//! push(Role::Requests, 0, 30.0, 1400.0);
//! // The first failures: the series is created by them.
//! push(Role::Requests, 1, 30.0, 60.0);
//! push(Role::Errors, 2, 30.0, 60.0);
//! let closed = observer.close(Timestamp::from_seconds(40.0));
//! assert_eq!(closed.requests.len(), 1);
//! assert_eq!((closed.requests[0].requests, closed.requests[0].errors), (460.0, 60.0));
//! ```

mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Interval, Role, Sample, SeriesId, TargetId, Timestamp};
use stream::Stream;

/// How long a series is remembered after its last sample.
pub const MEMORY: Duration = Duration::from_secs(3600);

/// What was wrong with the data since the last [`Observer::close`]; all counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataQuality {
    /// Samples seen before: the overlap of polls, duplicates, and what is out of order.
    pub repeated: u64,
    /// Samples that came after their scrape had been closed.
    pub late: u64,
    /// NaN (stale or exposed), infinite and negative values.
    pub invalid: u64,
    /// Counter resets.
    pub resets: u64,
    /// Drops to a large value: replicas flipping, counters rolled back.
    pub rollbacks: u64,
    /// Samples of scrapes too close to the one before.
    pub replica_noise: u64,
    /// Scrapes that were missed, by the target's usual spacing.
    pub missed_scrapes: u64,
    /// Gaps so long that the target started anew.
    pub breaks: u64,
    /// Series whose increase over a long absence has no date.
    pub undated: u64,
    /// First or reset values too large to have arrived since: taken as baselines.
    pub implausible: u64,
    /// Samples of series that fall all the time and are no counters.
    pub not_counter: u64,
    /// Intervals whose error counters grew by more than their request counters.
    pub errors_over_requests: u64,
}

/// What one [`Observer::close`] gives; each list sorted by `to`, then target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Closed {
    /// Requests, with the errors among them.
    pub requests: Vec<Interval>,
    /// Retries as a client library counts them, in `requests`.
    pub retries: Vec<Interval>,
    /// Requests wanted, in `requests`.
    pub calls: Vec<Interval>,
    /// What was wrong with the data.
    pub quality: DataQuality,
}

/// What is known of the scrapes of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetScrapes {
    /// The target.
    pub target: TargetId,
    /// Its last scrape under the watermark.
    pub last_scrape: Timestamp,
    /// The median spacing of its last scrapes; none before the second.
    pub scrape_interval: Option<Duration>,
}

/// Turns the samples of one dependency into intervals.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    requests: BTreeMap<TargetId, Stream>,
    retries: BTreeMap<TargetId, Stream>,
    calls: BTreeMap<TargetId, Stream>,
    quality: DataQuality,
}

impl Observer {
    /// Takes one sample, in any order across series; samples seen before are dropped.
    pub fn push(&mut self, role: Role, target: TargetId, series: SeriesId, sample: Sample) {
        let streams = match role {
            Role::Requests | Role::Errors => &mut self.requests,
            Role::Retries => &mut self.retries,
            Role::Calls => &mut self.calls,
        };
        let stream = streams.entry(target).or_default();
        if !stream.push(role == Role::Errors, series, sample) {
            self.quality.repeated += 1;
        }
    }

    /// Gives the intervals that end at or before `watermark` and were not given before.
    pub fn close(&mut self, watermark: Timestamp) -> Closed {
        let mut closed = Closed::default();
        for (streams, intervals) in [
            (&mut self.requests, &mut closed.requests),
            (&mut self.retries, &mut closed.retries),
            (&mut self.calls, &mut closed.calls),
        ] {
            streams.retain(|target, stream| {
                stream.close(*target, watermark, intervals, &mut self.quality);
                !stream.is_forgotten(watermark)
            });
            intervals.sort_by_key(|interval| (interval.to, interval.target));
        }
        closed.quality = std::mem::take(&mut self.quality);
        closed
    }

    /// The targets of the request counters that are not forgotten.
    pub fn targets(&self) -> impl Iterator<Item = TargetScrapes> {
        self.requests.iter().filter_map(|(target, stream)| {
            Some(TargetScrapes {
                target: *target,
                last_scrape: stream.last_scrape()?,
                scrape_interval: stream.scrape_interval(),
            })
        })
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.retries.is_empty() && self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests;
