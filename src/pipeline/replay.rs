//! History through the pipeline in event time: the polls a running daemon would have made.
//!
//! Every sample enters the pass of the first poll at or after its scrape, so a verdict knows
//! nothing that had not been scraped by then. The dependencies go side by side (lanes.rs); the
//! samples of each are merged by time, so that the input may hold its series one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::around::Around;
use super::lanes::Told;
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
    pub fn take(&mut self, feeds: &[Feed], progress: impl FnMut(u64) + Send) {
        let polls = self.polls(feeds);
        let told = self.pipeline.run(feeds, &polls, self.around.is_some(), progress);
        for Told { change, around, .. } in told {
            if change.reason != Reason::Withdrawn
                && let (Some(kept), Some(around)) = (&mut self.around, around)
            {
                kept.insert(around.incident.clone(), around);
            }
            self.keep(change);
        }
    }

    /// The polls that come before the last of these samples can be seen.
    fn polls(&mut self, feeds: &[Feed]) -> Vec<Timestamp> {
        let times = || feeds.iter().flat_map(|feed| &feed.samples).map(|sample| sample.at);
        let Some(first) = times().min() else { return Vec::new() };
        let mut polled = self.polled.unwrap_or_else(|| {
            // The first poll stands one interval after the first sample.
            self.last_sample = first;
            first
        });
        // Between two polls, the first sample and the last are all that matters.
        let step = i64::try_from(self.poll.as_millis()).unwrap_or(1).max(1);
        let mut seen: BTreeMap<i64, [Timestamp; 2]> = BTreeMap::new();
        for at in times() {
            let slot =
                at.millis().saturating_sub(polled.millis()).saturating_sub(1).div_euclid(step);
            let span = seen.entry(slot).or_insert([at, at]);
            *span = [span[0].min(at), span[1].max(at)];
        }
        let mut polls = Vec::new();
        for [from, to] in seen.into_values() {
            while polled.plus(self.poll) < from {
                if polled > self.last_sample.plus(SILENCE_MAX) {
                    // Whole intervals are skipped, so that the polls keep their phase.
                    let whole = from.millis().saturating_sub(polled.millis()) / step;
                    let skipped = polled.millis() + (whole - 1).max(0) * step;
                    polled = Timestamp::from_millis(skipped).max(polled);
                }
                polled = polled.plus(self.poll);
                polls.push(polled);
            }
            self.last_sample = self.last_sample.max(to);
        }
        self.polled = Some(polled);
        polls
    }

    fn pass(&mut self, now: Timestamp) {
        let trust = vec![Trust::Whole; self.pipeline.watches().len()];
        let changes = self.pipeline.pass(now, &trust);
        self.keep_all(changes);
    }

    fn keep_all(&mut self, changes: Vec<Change>) {
        for change in changes {
            if change.reason != Reason::Withdrawn
                && let Some(around) = &mut self.around
            {
                let seen = self.pipeline.around(&change.incident);
                around.extend(seen.map(|it| (it.incident.clone(), it)));
            }
            self.keep(change);
        }
    }

    fn keep(&mut self, Change { reason, incident }: Change) {
        if reason == Reason::Withdrawn {
            self.kept.remove(&incident.id);
        } else {
            self.kept.insert(incident.id.clone(), incident);
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
            self.keep_all(changes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Config;
    use crate::rules::Rules;

    #[test]
    fn samples_ages_apart_cost_no_more_polls_than_the_silence_after_each() {
        let rules = std::sync::Arc::new(Rules::default());
        let mut pipeline = Pipeline::new(Config::default(), Vec::new(), rules);
        let ages = [i64::MIN + 1, i64::MIN / 3, 0, 1_790_000_000_000, i64::MAX / 2, i64::MAX - 1];
        let sample = |millis| Sample { at: Timestamp::from_millis(millis), value: 1.0 };
        let feeds = [Feed { uses: Vec::new(), samples: ages.map(sample).to_vec() }];
        let mut replay = Replay::new(&mut pipeline, Duration::from_secs(15));
        let polls = replay.polls(&feeds);
        // Two hours of polls, and the few of a jump that takes more than one leap.
        assert!(polls.len() <= ages.len() * (480 + 10), "{}", polls.len());
        assert!(polls.is_sorted());
    }
}
