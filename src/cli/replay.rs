//! History through the pipeline in event time: the polls a running daemon would have made.
//!
//! Every sample enters the pass of the first poll at or after its scrape, so a verdict knows
//! nothing that had not been scraped by then. Samples are merged by time through a heap, one entry
//! a series, so that a file may hold its series one after the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::incident::{Dependency, Incident, IncidentId};
use crate::pipeline::{Change, Pipeline, Reason, Trust, WatchId};
use crate::series::table::SeriesEntry;
use crate::series::{Sample, Timestamp};

/// A stretch without any sample that is longer than this is skipped: everything that time alone
/// decides (an end, a stale dependency) is decided well within it.
const SILENCE_MAX: Duration = Duration::from_secs(2 * 3600);
/// Bounds of the poll interval, the same as those of `poll_interval` in the configuration.
const POLL_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Samples between two words about progress: some thousandths of a second of work.
const PROGRESS_STEP: u64 = 10_000;

/// What a replay found.
#[derive(Debug)]
pub(crate) struct Found {
    /// By start, then id.
    pub(crate) incidents: Vec<Incident>,
    /// By source, watch and labels.
    pub(crate) dependencies: Vec<Dependency>,
}

/// The samples of one series and where they go.
#[derive(Debug)]
pub(crate) struct Feed {
    /// What the series is in each watch that selects it.
    pub(crate) uses: Vec<(WatchId, SeriesEntry)>,
    /// Ascending in time.
    pub(crate) samples: Vec<Sample>,
}

/// A replay under way.
#[derive(Debug)]
pub(crate) struct Replay {
    pipeline: Pipeline,
    poll: Duration,
    // The poll made last; none before the first sample.
    polled: Option<Timestamp>,
    last_sample: Timestamp,
    kept: HashMap<IncidentId, Incident>,
}

impl Replay {
    /// A replay that polls every `poll`.
    pub(crate) fn new(pipeline: Pipeline, poll: Duration) -> Self {
        let poll = poll.clamp(POLL_RANGE[0], POLL_RANGE[1]);
        Self { pipeline, poll, polled: None, last_sample: Timestamp::default(), kept: HashMap::new() }
    }

    /// Takes the samples of `feeds`, all of which are later than those taken before; `progress` is
    /// told how many were taken since it was told last.
    pub(crate) fn take(&mut self, feeds: &[Feed], mut progress: impl FnMut(u64)) {
        // Each entry: when the next sample of a series was scraped, and the series.
        let mut heap: BinaryHeap<Reverse<(Timestamp, usize)>> = feeds
            .iter()
            .enumerate()
            .filter_map(|(index, feed)| Some(Reverse((feed.samples.first()?.at, index))))
            .collect();
        let mut positions = vec![0_usize; feeds.len()];
        let mut taken = 0;
        while let Some(&Reverse((at, index))) = heap.peek() {
            self.poll_before(at);
            let feed = &feeds[index];
            let sample = feed.samples[positions[index]];
            for &(watch, entry) in &feed.uses {
                self.pipeline.push_entry(watch, entry, sample);
            }
            positions[index] += 1;
            taken += 1;
            if taken == PROGRESS_STEP {
                progress(taken);
                taken = 0;
            }
            heap.pop();
            if let Some(next) = feed.samples.get(positions[index]) {
                heap.push(Reverse((next.at, index)));
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
                self.kept.insert(incident.id.clone(), incident);
            }
        }
    }

    /// The pipeline, to intern the series of the next feeds.
    pub(crate) fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Makes the last poll and gives what was found: incidents by start, then dependencies.
    pub(crate) fn finish(mut self) -> Found {
        let mut dependencies = Vec::new();
        if let Some(polled) = self.polled {
            let last = polled.plus(self.poll);
            self.pass(last);
            let changes = self.pipeline.finish(last);
            self.keep(changes);
            dependencies = self.pipeline.dependencies(last);
        }
        dependencies.sort_by(|a, b| a.key.cmp(&b.key));
        let mut incidents: Vec<Incident> = self.kept.into_values().collect();
        incidents.sort_by(|a, b| {
            (a.verdict.started_at, &a.id).cmp(&(b.verdict.started_at, &b.id))
        });
        Found { incidents, dependencies }
    }
}
