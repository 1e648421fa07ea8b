//! The scrapes of one target, taken in the order of time; see [`super`] for the rules.

use std::borrow::Cow;
use std::time::Duration;

use super::{DataQuality, MEMORY};
use crate::series::counter::{Change, Counter, Restart, count_of};
use crate::series::{Interval, Sample, SeriesId, TargetId, Timestamp};

/// Scrapes for which an interval is held open for a series that is missing. Two, so that one
/// answer cut short and its neighbour do no harm; more would delay detection.
const HELD_SCRAPES_MAX: u8 = 2;

/// Shortest gap that makes a target start anew: Prometheus' own look-back.
const BREAK_MIN_MILLIS: i64 = 300_000;

/// The same in scrape intervals, for targets scraped rarely.
const BREAK_SCRAPES: i64 = 5;

/// Spacings kept for the median.
const SPACINGS: usize = 8;

/// Spacings needed before a scrape can be too close.
const SPACINGS_MIN: usize = 4;

/// A scrape within a quarter of the usual spacing is another replica's. Prometheus' own phases
/// wander by milliseconds, and two replicas without labels have a spacing of half on average.
const NOISE_DIVISOR: i64 = 4;

/// A new series may hold this many times what the target's highest rate would have given: a herd
/// of clients fails at once, at many times the usual rate, but not at a hundred times.
const NEW_SERIES_FACTOR: f64 = 100.0;

/// And always this many: a target may have been idle.
const NEW_SERIES_MIN: f64 = 1000.0;

/// What is left of the highest rate after each scrape: half of it after some 70 scrapes.
const PEAK_DECAY: f64 = 0.99;

/// Room for samples not yet under the watermark, before duplicates among them are looked for.
const PENDING_ROOM: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Pending {
    at: Timestamp,
    is_error: bool,
    series: SeriesId,
    value: f64,
}

impl Pending {
    fn key(&self) -> (Timestamp, bool, SeriesId) {
        (self.at, self.is_error, self.series)
    }
}

#[derive(Debug, Clone)]
struct Track {
    is_error: bool,
    series: SeriesId,
    last_at: Timestamp,
    misses: u8,
    // Missing since the target restarted: counts from zero when it is back. It is kept, so that an
    // overlap of polls does not bring its old samples in as those of a series never seen.
    has_vanished: bool,
    counter: Counter,
}

/// One target's series and its open interval.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    pending: Vec<Pending>,
    compacted_len: usize,
    // Sorted by (is_error, series).
    tracks: Vec<Track>,
    from: Timestamp,
    last_scrape: Option<Timestamp>,
    held_scrapes: u8,
    requests: f64,
    errors: f64,
    peak_rate: f64,
    spacings: [i64; SPACINGS],
    spacing_count: usize,
    /// Their median, asked for several times a scrape.
    median_spacing: Option<i64>,
}

impl Stream {
    /// Buffers a sample; false when it was seen before.
    pub(super) fn push(&mut self, is_error: bool, series: SeriesId, sample: Sample) -> bool {
        if let Ok(index) = self.find(is_error, series)
            && sample.at <= self.tracks[index].last_at
        {
            return false;
        }
        self.pending.push(Pending { at: sample.at, is_error, series, value: sample.value });
        if self.pending.len() > 2 * self.compacted_len + PENDING_ROOM {
            self.compact();
        }
        true
    }

    /// Sorts the buffer and keeps one sample for each (series, millisecond): the largest, and a
    /// number rather than NaN, so that the order of arrival makes no difference.
    fn compact(&mut self) {
        self.pending.sort_by(|a, b| {
            let rank = |p: &Pending| count_of(p.value).unwrap_or(-1.0);
            a.key().cmp(&b.key()).then(rank(b).total_cmp(&rank(a)))
        });
        self.pending.dedup_by_key(|pending| pending.key());
        self.compacted_len = self.pending.len();
    }

    /// Takes every scrape up to the watermark.
    pub(super) fn close(
        &mut self,
        target: TargetId,
        watermark: Timestamp,
        intervals: &mut Vec<Interval>,
        quality: &mut DataQuality,
    ) {
        self.compact();
        let due = self.pending.partition_point(|pending| pending.at <= watermark);
        let mut scrapes = std::mem::take(&mut self.pending);
        let mut later = scrapes.split_off(due);
        for scrape in scrapes.chunk_by(|a, b| a.at == b.at) {
            self.scrape(target, scrape, intervals, quality);
        }
        // The room is used again: this is done for every target on every poll.
        scrapes.clear();
        scrapes.append(&mut later);
        self.pending = scrapes;
        self.compacted_len = self.pending.len();
        if let Some(last) = self.last_scrape
            && watermark.millis() - last.millis() > self.break_after()
        {
            self.flush(target, last, intervals, quality);
        }
    }

    pub(super) fn is_forgotten(&self, watermark: Timestamp) -> bool {
        self.pending.is_empty() && self.last_scrape.is_none_or(|last| last.plus(MEMORY) < watermark)
    }

    pub(super) const fn last_scrape(&self) -> Option<Timestamp> {
        self.last_scrape
    }

    pub(super) fn scrape_interval(&self) -> Option<Duration> {
        let median = self.median_spacing?;
        Some(Duration::from_millis(u64::try_from(median).unwrap_or(0)))
    }

    fn find(&self, is_error: bool, series: SeriesId) -> Result<usize, usize> {
        self.tracks.binary_search_by_key(&(is_error, series), |t| (t.is_error, t.series))
    }

    /// Starts a series without an increase.
    fn set_baseline(&mut self, sample: &Pending) {
        let track = Track {
            is_error: sample.is_error,
            series: sample.series,
            last_at: sample.at,
            misses: 0,
            has_vanished: false,
            counter: Counter::starting_at(sample.value),
        };
        match self.find(sample.is_error, sample.series) {
            Ok(index) => self.tracks[index] = track,
            Err(index) => self.tracks.insert(index, track),
        }
    }

    fn scrape(
        &mut self,
        target: TargetId,
        scrape: &[Pending],
        intervals: &mut Vec<Interval>,
        quality: &mut DataQuality,
    ) {
        let is_count = |pending: &Pending| count_of(pending.value).is_some();
        let samples: Cow<'_, [Pending]> = if scrape.iter().all(is_count) {
            scrape.into()
        } else {
            scrape.iter().filter(|pending| is_count(pending)).copied().collect()
        };
        quality.invalid += (scrape.len() - samples.len()) as u64;
        let Some(at) = samples.first().map(|sample| sample.at) else { return };
        let Some(last) = self.last_scrape else { return self.start(at, &samples) };
        let spacing = at.millis() - last.millis();
        if spacing <= 0 {
            quality.late += samples.len() as u64;
            for sample in samples.iter() {
                if self.find(sample.is_error, sample.series).is_err() {
                    self.set_baseline(sample);
                }
            }
            return;
        }
        let median = self.median_spacing;
        if median.is_some_and(|median| {
            self.spacing_count >= SPACINGS_MIN && spacing * NOISE_DIVISOR < median
        }) {
            quality.replica_noise += samples.len() as u64;
            return;
        }
        if spacing > self.break_after() {
            quality.breaks += 1;
            self.flush(target, last, intervals, quality);
            if last.plus(MEMORY) < at {
                *self = Self { pending: std::mem::take(&mut self.pending), ..Self::default() };
            }
            return self.start(at, &samples);
        }
        if let Some(median) = median.filter(|median| *median > 0) {
            let scrapes = (spacing + median / 2) / median;
            quality.missed_scrapes += u64::try_from(scrapes - 1).unwrap_or(0);
        }
        self.observe(at, &samples, quality);
        self.note_spacing(spacing);
        if self.held_scrapes == 0 {
            self.emit(target, at, intervals, quality);
        }
    }

    fn note_spacing(&mut self, spacing: i64) {
        self.spacings[self.spacing_count % SPACINGS] = spacing;
        self.spacing_count += 1;
        let mut spacings = self.spacings;
        let spacings = &mut spacings[..self.spacing_count.min(SPACINGS)];
        let middle = spacings.len() / 2;
        self.median_spacing = Some(*spacings.select_nth_unstable(middle).1);
    }

    /// The first scrape, or the first after a long gap.
    fn start(&mut self, at: Timestamp, samples: &[Pending]) {
        self.forget(at);
        for track in &mut self.tracks {
            track.misses = HELD_SCRAPES_MAX + 1;
        }
        for sample in samples {
            self.set_baseline(sample);
        }
        self.from = at;
        self.last_scrape = Some(at);
        self.held_scrapes = 0;
        self.requests = 0.0;
        self.errors = 0.0;
    }

    /// Adds one scrape to the open interval, and decides whether to hold it open.
    fn observe(&mut self, at: Timestamp, samples: &[Pending], quality: &mut DataQuality) {
        self.forget(at);
        let restart = self.restart(samples);
        let return_span = self.break_after();
        let limit =
            NEW_SERIES_MIN.max(NEW_SERIES_FACTOR * self.peak_rate * at.seconds_since(self.from));
        let mut holds = false;
        let mut new_errors: Vec<f64> = Vec::new();
        let mut present = [false; 2];
        for sample in samples {
            present[usize::from(sample.is_error)] = true;
            let known = self.find(sample.is_error, sample.series).ok();
            let Some(index) = known.filter(|index| !self.tracks[*index].has_vanished) else {
                self.set_baseline(sample);
                if sample.is_error {
                    new_errors.push(sample.value);
                } else if sample.value <= limit {
                    self.requests += sample.value;
                } else {
                    quality.implausible += 1;
                }
                continue;
            };
            let track = &mut self.tracks[index];
            let is_dated = at.millis() - track.last_at.millis() <= return_span;
            track.last_at = at;
            track.misses = 0;
            let increase = match track.counter.push(sample.value, restart) {
                Change::Increase(increase) if is_dated => increase,
                Change::Increase(increase) => {
                    quality.undated += u64::from(increase > 0.0);
                    0.0
                }
                Change::Reset(increase) => {
                    quality.resets += 1;
                    if increase > limit {
                        quality.implausible += 1;
                        0.0
                    } else {
                        increase
                    }
                }
                Change::Rollback => {
                    quality.rollbacks += 1;
                    holds = true;
                    0.0
                }
                Change::NotCounter => {
                    quality.not_counter += 1;
                    0.0
                }
            };
            if sample.is_error {
                self.errors += increase;
            } else {
                self.requests += increase;
            }
        }
        let has_requests = self.tracks.iter().any(|track| !track.is_error);
        for value in new_errors {
            let room = if has_requests { self.requests - self.errors } else { limit };
            // Half a count, since counters may be fractional by rounding.
            if value <= room + 0.5 {
                self.errors += value;
            } else {
                quality.implausible += 1;
            }
        }
        holds |= self.count_missing(at, present, restart, return_span);
        self.last_scrape = Some(at);
        self.held_scrapes =
            if holds && self.held_scrapes < HELD_SCRAPES_MAX { self.held_scrapes + 1 } else { 0 };
    }

    /// Whether the whole target restarted: the series that were reset outweigh all others, those
    /// missing included, so that one small counter seen through a lagging replica does not make
    /// resets of all the rest, nor strangers of those that are only missing.
    fn restart(&self, samples: &[Pending]) -> Restart {
        let mut others: f64 = self
            .tracks
            .iter()
            .filter(|track| track.misses <= HELD_SCRAPES_MAX)
            .map(|track| track.counter.highest())
            .sum();
        let mut reset = 0.0;
        for sample in samples {
            if let Ok(index) = self.find(sample.is_error, sample.series)
                && self.tracks[index].misses <= HELD_SCRAPES_MAX
                && self.tracks[index].counter.is_reset(sample.value)
            {
                reset += self.tracks[index].counter.highest();
                others -= self.tracks[index].counter.highest();
            }
        }
        if reset > others { Restart::Known } else { Restart::Unknown }
    }

    /// Counts the scrapes that each series was missing from; whether one of them is worth holding
    /// the interval for.
    fn count_missing(
        &mut self,
        at: Timestamp,
        present: [bool; 2],
        restart: Restart,
        return_span: i64,
    ) -> bool {
        if restart == Restart::Known {
            for track in self.tracks.iter_mut().filter(|track| track.last_at < at) {
                track.has_vanished = true;
                track.misses = HELD_SCRAPES_MAX + 1;
            }
            return false;
        }
        let mut holds = false;
        let mut waits_for_requests = !present[0];
        let mut has_live_requests = false;
        for track in &mut self.tracks {
            let is_live = track.misses <= HELD_SCRAPES_MAX
                && at.millis() - track.last_at.millis() <= return_span;
            has_live_requests |= is_live && !track.is_error;
            if track.last_at < at && is_live && present[usize::from(track.is_error)] {
                track.misses += 1;
                holds |= track.misses <= HELD_SCRAPES_MAX;
            }
        }
        waits_for_requests &= has_live_requests;
        holds || waits_for_requests
    }

    fn emit(
        &mut self,
        target: TargetId,
        to: Timestamp,
        intervals: &mut Vec<Interval>,
        quality: &mut DataQuality,
    ) {
        if self.errors > self.requests + 0.5 && self.tracks.iter().any(|track| !track.is_error) {
            quality.errors_over_requests += 1;
        }
        let requests = self.requests.max(self.errors);
        let interval = Interval { target, from: self.from, to, requests, errors: self.errors };
        self.peak_rate = (self.peak_rate * PEAK_DECAY).max(requests / interval.seconds());
        intervals.push(interval);
        self.from = to;
        self.requests = 0.0;
        self.errors = 0.0;
        self.held_scrapes = 0;
    }

    /// Closes an interval that was held open when nothing more comes.
    fn flush(
        &mut self,
        target: TargetId,
        last: Timestamp,
        intervals: &mut Vec<Interval>,
        quality: &mut DataQuality,
    ) {
        if self.held_scrapes > 0 && last > self.from {
            self.emit(target, last, intervals, quality);
        }
    }

    fn forget(&mut self, at: Timestamp) {
        self.tracks.retain(|track| track.last_at.plus(MEMORY) >= at);
    }

    fn break_after(&self) -> i64 {
        BREAK_MIN_MILLIS.max(BREAK_SCRAPES * self.median_spacing.unwrap_or(0))
    }
}
