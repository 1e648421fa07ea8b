//! History through the pipeline in event time: the polls a running daemon would have made.
//!
//! Every sample enters the pass of the first poll at or after its scrape, so a verdict knows
//! nothing that had not been scraped by then. Samples are merged by time through a heap, one entry
//! a series, so that the input may hold its series one after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::around::Around;
use super::{Change, Pipeline, Reason, Trust, WatchId};
use crate::incident::{Incident, IncidentId};
use crate::series::table::SeriesEntry;
use crate::series::{Sample, Timestamp};

/// A stretch without any sample that is longer than this is skipped: everything that time alone
/// decides (an end, a stale dependency) is decided well within it.
const SILENCE_MAX: Duration = Duration::from_secs(2 * 3600);

/// Bounds of the interval between two polls: faster than a second floods a server that squall is
/// to protect, slower than five minutes pages after the fact.
pub const POLL_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Samples between two words about progress: some thousandths of a second of work.
const PROGRESS_STEP: u64 = 10_000;

/// The samples of one series and where they go.
#[derive(Debug)]
pub struct Feed {
    /// What the series is in each watch that selects it.
    pub uses: Vec<(WatchId, SeriesEntry)>,
    /// Ascending in time.
    pub samples: Vec<Sample>,
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay<'p> {
    pipeline: &'p mut Pipeline,
    poll: Duration,
    // The poll made last; none before the first sample.
    polled: Option<Timestamp>,
    last_sample: Timestamp,
    kept: BTreeMap<IncidentId, Incident>,
    // What is kept around them; none where nobody asked.
    around: Option<BTreeMap<IncidentId, Around>>,
}

impl<'p> Replay<'p> {
    /// A replay that polls every `poll`, held within [`POLL_RANGE`].
    #[must_use]
    pub fn new(pipeline: &'p mut Pipeline, poll: Duration) -> Self {
        Self {
            pipeline,
            poll: poll.clamp(POLL_RANGE[0], POLL_RANGE[1]),
            polled: None,
            last_sample: Timestamp::default(),
            kept: BTreeMap::new(),
            around: None,
        }
    }

    /// The same, keeping what is around each incident as it changes: the history behind it may be
    /// gone at the end.
    #[must_use]
    pub fn keeping_around(self) -> Self {
        Self { around: Some(BTreeMap::new()), ..self }
    }

    /// What was kept around the incidents until now.
    pub fn take_around(&mut self) -> BTreeMap<IncidentId, Around> {
        self.around.take().unwrap_or_default()
    }

    /// The pipeline, to intern the series of the next feeds.
    pub fn pipeline(&mut self) -> &mut Pipeline {
        self.pipeline
    }

    /// Takes the samples of `feeds`, all of which are later than those taken before; `progress` is
    /// told how many were taken since it was told last.
    pub fn take(&mut self, feeds: &[Feed], mut progress: impl FnMut(u64)) {
        // Each entry: when the next sample of a series was scraped, and the series.
        let mut heap: BinaryHeap<Reverse<(Timestamp, usize)>> = feeds
            .iter()
            .enumerate()
            .filter_map(|(index, feed)| Some(Reverse((feed.samples.first()?.at, index))))
            .collect();
        let mut positions = vec![0_usize; feeds.len()];
        let mut taken = 0;
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((at, index)) = *top;
            let feed = &feeds[index];
            positions[index] += 1;
            match feed.samples.get(positions[index]) {
                Some(next) => *top = Reverse((next.at, index)),
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
            }
            self.poll_before(at);
            let sample = feed.samples[positions[index] - 1];
            for &(watch, entry) in &feed.uses {
                self.pipeline.push_entry(watch, entry, sample);
            }
            taken += 1;
            if taken == PROGRESS_STEP {
                progress(taken);
                taken = 0;
            }
        }
        progress(taken);
    }

    /// Makes the polls that come before a sample scraped at `at` can be seen.
    fn poll_before(&mut self, at: Timestamp) {
        let Some(mut polled) = self.polled else {
            // The first poll stands one interval after the first sample.
            self.polled = Some(at);
            self.last_sample = at;
            return;
        };
        while polled.plus(self.poll) < at {
            if polled > self.last_sample.plus(SILENCE_MAX) {
                // Whole intervals are skipped, so that the polls keep their phase.
                let poll = i64::try_from(self.poll.as_millis()).unwrap_or(1).max(1);
                let whole = (at.millis() - polled.millis()) / poll;
                let skipped = Timestamp::from_millis(polled.millis() + (whole - 1).max(0) * poll);
                polled = skipped.max(polled);
            }
            polled = polled.plus(self.poll);
            self.pass(polled);
        }
        self.polled = Some(polled);
        self.last_sample = self.last_sample.max(at);
    }

    fn pass(&mut self, now: Timestamp) {
        let trust = vec![Trust::Whole; self.pipeline.watches().len()];
        let changes = self.pipeline.pass(now, &trust);
        self.keep(changes);
    }

    fn keep(&mut self, changes: Vec<Change>) {
        for Change { reason, incident } in changes {
            if reason == Reason::Withdrawn {
                self.kept.remove(&incident.id);
            } else {
                if let Some(around) = &mut self.around {
                    around.extend(
                        self.pipeline.around(&incident).map(|it| (it.incident.clone(), it)),
                    );
                }
                self.kept.insert(incident.id.clone(), incident);
            }
        }
    }

    /// Makes the last poll; gives the incidents found, by id, and when that poll was.
    #[must_use]
    pub fn finish(mut self) -> (BTreeMap<IncidentId, Incident>, Option<Timestamp>) {
        let last = self.polled.map(|polled| polled.plus(self.poll));
        if let Some(last) = last {
            self.pass(last);
        }
        (self.kept, last)
    }
}

impl Replay<'_> {
    /// Makes the last poll and then decides storms that are still open on all that was seen; they
    /// stay open. For history, where nothing comes after; gives what [`Self::finish`] does.
    #[must_use]
    pub fn conclude(mut self) -> (BTreeMap<IncidentId, Incident>, Option<Timestamp>) {
        let last = self.polled.map(|polled| polled.plus(self.poll));
        if let Some(last) = last {
            self.pass(last);
            let changes = self.pipeline.finish(last);
            self.keep(changes);
        }
        (self.kept, last)
    }
}

/// Spacings looked at to learn a scrape interval.
const SPACINGS_MAX: usize = 1000;

/// The median spacing of a series' samples, which is its scrape interval.
#[must_use]
pub fn median_spacing(samples: &[Sample]) -> Option<Duration> {
    let mut spacings: Vec<i64> = samples
        .windows(2)
        .map(|pair| pair[1].at.millis() - pair[0].at.millis())
        .filter(|spacing| *spacing > 0)
        .take(SPACINGS_MAX)
        .collect();
    if spacings.is_empty() {
        return None;
    }
    let middle = spacings.len() / 2;
    let (_, median, _) = spacings.select_nth_unstable(middle);
    u64::try_from(*median).ok().map(Duration::from_millis)
}
