//! A bounded, compact log of the intervals of one dependency.
//!
//! An `Interval` in memory takes 40 bytes; a dependency of 200 targets at 15 s would hold 180 MB
//! a day of them. Nearly all of it repeats: the next interval of a target starts where the last
//! one ended, is as long to a few milliseconds, and counts are small integers. So each target's
//! intervals are kept as differences in variable-length integers, four to five bytes each.
//!
//! # Method
//!
//! Per interval, as variable-length integers of seven bits a byte (signed ones zigzagged):
//!
//! ```text
//! 2 (length - previous length) + (starts where the last ended ? 0 : 1)
//! [from - previous to]                         only when it does not
//! 2 count + 0, or 1 and eight bytes            requests; then the same for errors
//! ```
//!
//! Intervals are cut into chunks of [`CHUNK_INTERVALS`]; whole chunks are dropped when they are
//! older than the age limit, or when there are more intervals than the count limit. A window is
//! read by decoding only the chunks that touch it.
//!
//! # Assumptions and what happens when they fail
//!
//! * Intervals of one target are appended in the order of time. One that starts before the end of
//!   its target's last is refused: the observer never gives one.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use squall::series::history::IntervalLog;
//! use squall::series::{Interval, TargetId, Timestamp};
//!
//! let at = Timestamp::from_seconds;
//! let mut log = IntervalLog::new(Duration::from_secs(3600), 100_000);
//! for n in 0..100_i32 {
//!     let from = at(f64::from(n) * 15.0);
//!     let interval =
//!         Interval { target: TargetId(0), from, to: from.plus_seconds(15.0), requests: 40.0, errors: 0.0 };
//!     assert!(log.append(&interval));
//! }
//! assert_eq!(log.window(at(0.0), at(30.0)).len(), 2);
//! assert!(log.encoded_bytes() < 100 * 5);
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Interval, TargetId, Timestamp};

/// Intervals in a chunk: large enough that its header is nothing, small enough that reading the
/// end of a window decodes little and that dropping one forgets little.
pub const CHUNK_INTERVALS: u16 = 128;

/// Counts up to here are exact integers in an `f64` and leave room for the flag bit.
const INTEGER_MAX: f64 = 4_503_599_627_370_496.0;

#[derive(Debug, Clone)]
struct Chunk {
    first_from: Timestamp,
    last_to: Timestamp,
    count: u16,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
struct TargetLog {
    chunks: VecDeque<Chunk>,
    // Of the last interval of the last chunk, for the next difference.
    last_length: i64,
}

/// The intervals of one dependency, bounded by age and by number.
#[derive(Debug, Clone)]
pub struct IntervalLog {
    targets: BTreeMap<TargetId, TargetLog>,
    age_max: Duration,
    count_max: usize,
    count: usize,
    encoded_bytes: usize,
    newest: Option<Timestamp>,
}

impl IntervalLog {
    /// A log that keeps intervals for `age_max` and at most about `count_max` of them.
    #[must_use]
    pub const fn new(age_max: Duration, count_max: usize) -> Self {
        Self {
            targets: BTreeMap::new(),
            age_max,
            count_max,
            count: 0,
            encoded_bytes: 0,
            newest: None,
        }
    }

    /// Adds one interval; false when it does not come after its target's last one.
    pub fn append(&mut self, interval: &Interval) -> bool {
        debug_assert!(interval.from < interval.to, "an interval has a length");
        let log = self.targets.entry(interval.target).or_default();
        let last_to = log.chunks.back().map(|chunk| chunk.last_to);
        if last_to.is_some_and(|last| interval.from < last) {
            return false;
        }
        let is_full = log.chunks.back().is_none_or(|chunk| chunk.count >= CHUNK_INTERVALS);
        if is_full {
            if let Some(full) = log.chunks.back_mut() {
                full.bytes.shrink_to_fit();
            }
            log.last_length = 0;
            log.chunks.push_back(Chunk {
                first_from: interval.from,
                last_to: interval.from,
                count: 0,
                bytes: Vec::new(),
            });
        }
        let chunk = log.chunks.back_mut().expect("one was pushed if there was none");
        let before = chunk.bytes.len();
        let length = interval.to.millis() - interval.from.millis();
        let gap = interval.from.millis() - chunk.last_to.millis();
        let change = zigzag(length - log.last_length) << 1;
        write_varint(&mut chunk.bytes, change | u64::from(gap != 0));
        if gap != 0 {
            write_varint(&mut chunk.bytes, zigzag(gap));
        }
        write_count(&mut chunk.bytes, interval.requests);
        write_count(&mut chunk.bytes, interval.errors);
        chunk.count += 1;
        chunk.last_to = interval.to;
        log.last_length = length;
        self.encoded_bytes += chunk.bytes.len() - before;
        self.count += 1;
        self.newest = self.newest.max(Some(interval.to));
        if is_full {
            self.trim();
        }
        true
    }

    /// Adds many, those out of order left out.
    pub fn extend<'a>(&mut self, intervals: impl IntoIterator<Item = &'a Interval>) {
        for interval in intervals {
            self.append(interval);
        }
    }

    /// The intervals with `after < to <= until`, sorted by `to`, then target.
    #[must_use]
    pub fn window(&self, after: Timestamp, until: Timestamp) -> Vec<Interval> {
        let mut found = Vec::new();
        for (target, log) in &self.targets {
            let first = log.chunks.partition_point(|chunk| chunk.last_to <= after);
            for chunk in log.chunks.range(first..) {
                if chunk.first_from >= until {
                    break;
                }
                chunk.decode(*target, |interval| {
                    if interval.to > after && interval.to <= until {
                        found.push(interval);
                    }
                });
            }
        }
        found.sort_by_key(|interval| (interval.to, interval.target));
        found
    }

    /// Everything kept, sorted by `to`, then target.
    #[must_use]
    pub fn all(&self) -> Vec<Interval> {
        self.window(Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX))
    }

    /// The end of the newest interval.
    #[must_use]
    pub const fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The start of the oldest interval.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.targets.values().filter_map(|log| Some(log.chunks.front()?.first_from)).min()
    }

    /// Intervals kept.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the encoded intervals.
    #[must_use]
    pub const fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// Bytes of memory held, headers and spare capacity counted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let chunk_bytes = |chunk: &Chunk| chunk.bytes.capacity() + size_of::<Chunk>();
        let log_bytes = |log: &TargetLog| {
            size_of::<(TargetId, TargetLog)>() + log.chunks.iter().map(chunk_bytes).sum::<usize>()
        };
        size_of::<Self>() + self.targets.values().map(log_bytes).sum::<usize>()
    }

    /// Drops what is too old, then the oldest chunks of what is too much.
    fn trim(&mut self) {
        let Some(newest) = self.newest else { return };
        let oldest_wanted = newest.minus(self.age_max);
        while let Some((target, last_to)) = self.oldest_chunk() {
            if last_to >= oldest_wanted && self.count <= self.count_max {
                return;
            }
            let Some(log) = self.targets.get_mut(&target) else { return };
            if let Some(chunk) = log.chunks.pop_front() {
                self.count -= usize::from(chunk.count);
                self.encoded_bytes -= chunk.bytes.len();
            }
            if log.chunks.is_empty() {
                self.targets.remove(&target);
            }
        }
    }

    /// The chunk that ended first, unless it is the newest of all.
    fn oldest_chunk(&self) -> Option<(TargetId, Timestamp)> {
        let fronts = self.targets.iter().filter_map(|(target, log)| {
            let front = log.chunks.front()?;
            // A chunk being filled is kept until it is too old.
            (front.count > 0).then_some((*target, front.last_to))
        });
        fronts.min_by_key(|(_, last_to)| *last_to)
    }
}

impl Chunk {
    fn decode(&self, target: TargetId, mut take: impl FnMut(Interval)) {
        let mut bytes = self.bytes.as_slice();
        let mut to = self.first_from.millis();
        let mut length = 0;
        for _ in 0..self.count {
            let change = read_varint(&mut bytes);
            length += unzigzag(change >> 1);
            let gap = if change & 1 == 1 { unzigzag(read_varint(&mut bytes)) } else { 0 };
            let from = to + gap;
            to = from + length;
            let requests = read_count(&mut bytes);
            let errors = read_count(&mut bytes);
            take(Interval {
                target,
                from: Timestamp::from_millis(from),
                to: Timestamp::from_millis(to),
                requests,
                errors,
            });
        }
    }
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads what [`write_varint`] wrote; zero at the end of the bytes, which our own chunks never reach.
fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    value
}

fn write_count(bytes: &mut Vec<u8>, count: f64) {
    #[expect(clippy::float_cmp, reason = "exactly an integer, or stored whole")]
    let is_integer = (0.0..=INTEGER_MAX).contains(&count) && count.trunc() == count;
    if is_integer {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a non-negative integer below 2^52"
        )]
        write_varint(bytes, (count as u64) << 1);
    } else {
        bytes.push(1);
        bytes.extend_from_slice(&count.to_le_bytes());
    }
}

fn read_count(bytes: &mut &[u8]) -> f64 {
    let value = read_varint(bytes);
    if value & 1 == 0 {
        #[expect(clippy::cast_precision_loss, reason = "written from an integer below 2^52")]
        return (value >> 1) as f64;
    }
    let Some((raw, rest)) = bytes.split_first_chunk::<8>() else { return 0.0 };
    *bytes = rest;
    f64::from_le_bytes(*raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(target: u32, from: i64, to: i64, requests: f64, errors: f64) -> Interval {
        Interval {
            target: TargetId(target),
            from: Timestamp::from_millis(from),
            to: Timestamp::from_millis(to),
            requests,
            errors,
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn targets_are_merged_by_the_end_of_their_intervals() {
        let mut log = IntervalLog::new(HOUR, 1000);
        let a = [interval(0, 0, 10, 1.0, 0.0), interval(0, 10, 20, 2.0, 0.0)];
        let b = [interval(1, 5, 15, 3.5, 0.25), interval(1, 16, 20, 4.0, 4.0)];
        log.extend(&a);
        log.extend(&b);
        assert_eq!(log.all(), [a[0], b[0], a[1], b[1]]);
        let at = Timestamp::from_millis;
        assert_eq!(log.window(at(10), at(15)), [b[0]]);
        assert_eq!((log.oldest(), log.newest()), (Some(at(0)), Some(at(20))));
    }

    #[test]
    fn an_interval_out_of_order_is_refused() {
        let mut log = IntervalLog::new(HOUR, 1000);
        assert!(log.append(&interval(0, 0, 10, 1.0, 0.0)));
        assert!(!log.append(&interval(0, 5, 15, 1.0, 0.0)));
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn old_and_surplus_chunks_are_dropped() {
        let mut by_age = IntervalLog::new(Duration::from_secs(60), usize::MAX);
        let mut by_count = IntervalLog::new(HOUR * 24 * 365, 1000);
        for n in 0..10_000 {
            let next =
                interval(n % 2, i64::from(n / 2) * 1000, i64::from(n / 2) * 1000 + 1000, 5.0, 0.0);
            by_age.append(&next);
            by_count.append(&next);
        }
        let chunk = usize::from(CHUNK_INTERVALS);
        assert!((120..=120 + 4 * chunk).contains(&by_age.len()), "{}", by_age.len());
        assert!((1000 - chunk..=1000 + 2 * chunk).contains(&by_count.len()), "{}", by_count.len());
        assert_eq!(by_age.all().len(), by_age.len());
        assert_eq!(by_count.all().len(), by_count.len());
        assert!(by_count.memory_bytes() < 1500 * 8);
    }

    proptest! {
        #[test]
        fn what_is_appended_comes_back(
            steps in proptest::collection::vec(
                (0_u32..4, 0_i64..3, 1_i64..100_000, prop_oneof![
                    (0_u32..1_000_000).prop_map(f64::from), 0.0_f64..1e18,
                ], 0.0_f64..10.0),
                0..600,
            ),
            start in -1_000_000_000_000_i64..2_000_000_000_000,
        ) {
            let mut log = IntervalLog::new(Duration::MAX, usize::MAX);
            let mut ends = [start; 4];
            let mut expected = Vec::new();
            for (target, gap, length, requests, errors) in steps {
                let from = ends[target as usize] + gap * 7;
                let next = interval(target, from, from + length, requests, errors);
                ends[target as usize] = from + length;
                prop_assert!(log.append(&next));
                expected.push(next);
            }
            expected.sort_by_key(|i| (i.to, i.target));
            prop_assert_eq!(log.all(), expected);
        }
    }
}
