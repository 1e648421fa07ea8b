//! Many samples and the polls between them, with the dependencies side by side.
//!
//! A dependency knows nothing of the others, so that each can go through a stretch of history alone,
//! as long as all see the same polls. What they found is put back into the order of the polls, then
//! of the dependencies: how many hands the crew has changes nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use super::around::Around;
use super::replay::Feed;
use super::tracked::Tracked;
use super::{Change, Pipeline, Trust, clients};
use crate::series::Timestamp;
use crate::series::table::SeriesEntry;

/// Samples between two words about progress: some thousandths of a second of work.
const PROGRESS_STEP: u64 = 10_000;

/// A change, which poll found it, and what was around it then.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) poll: usize,
    pub(super) change: Change,
    pub(super) around: Option<Around>,
}

/// One use of a series, by one watch in one role.
#[derive(Debug, Clone, Copy)]
struct Use<'f> {
    entry: SeriesEntry,
    feed: &'f Feed,
    /// Whether its samples count as taken: those of a series that is used twice are taken once.
    counts: bool,
}

/// One dependency and the series that are its own.
struct Lane<'a, 'f> {
    watch: usize,
    number: usize,
    tracked: &'a mut Tracked,
    uses: Vec<Use<'f>>,
}

impl Pipeline {
    /// Takes the samples of `feeds` and makes `polls`, which ascend, between them; a poll sees what
    /// was scraped by then. What is around each change is kept where it is asked for.
    pub(super) fn run(
        &mut self,
        feeds: &[Feed],
        polls: &[Timestamp],
        with_around: bool,
        progress: impl FnMut(u64) + Send,
    ) -> Vec<Told> {
        let mut uses: Vec<Vec<Vec<Use<'_>>>> =
            self.tracked.iter().map(|tracked| vec![Vec::new(); tracked.len()]).collect();
        for feed in feeds {
            for (number, &(watch, entry)) in feed.uses.iter().enumerate() {
                let one = Use { entry, feed, counts: number == 0 };
                uses[watch.0][entry.dependency.0 as usize].push(one);
            }
        }
        let (config, rules) = (&self.config, &self.rules);
        let (watches, tables) = (&self.watches, &self.tables);
        let mut lanes = Vec::new();
        for (watch, (tracked, uses)) in self.tracked.iter_mut().zip(uses).enumerate() {
            for (number, (tracked, uses)) in tracked.iter_mut().zip(uses).enumerate() {
                lanes.push(Lane { watch, number, tracked, uses });
            }
        }
        let go = |lane: Lane<'_, '_>, taken: &dyn Fn(u64)| {
            let (watch, number) = (lane.watch, lane.number);
            let mut told = Vec::new();
            lane.run(polls, taken, |poll, now, tracked| {
                let mut changes = Vec::new();
                tracked.pass(now, Trust::Whole, config, rules, &mut changes);
                for change in changes {
                    let around = with_around.then(|| tracked.around(&change.incident)).flatten();
                    let around = around.map(|mut around| {
                        around.model.clients = clients(&watches[watch], &tables[watch], number);
                        around
                    });
                    told.push(Told { poll, change, around });
                }
            });
            (watch, number, told)
        };
        let queue = Mutex::new(lanes.into_iter());
        let (found, progress) = (Mutex::new(Vec::new()), Mutex::new(progress));
        self.config.crew.work(&|| {
            // Whoever panics ends the whole of it; nobody goes on with half of a result.
            let next = || queue.lock().ok().and_then(|mut lanes| lanes.next());
            let taken = |samples| {
                if let Ok(mut progress) = progress.lock() {
                    progress(samples);
                }
            };
            while let Some(lane) = next() {
                let one = go(lane, &taken);
                if let Ok(mut found) = found.lock() {
                    found.push(one);
                }
            }
        });
        let mut found = found.into_inner().unwrap_or_default();
        found.sort_by_key(|(watch, number, _)| (*watch, *number));
        let mut told: Vec<Told> = found.into_iter().flat_map(|(_, _, told)| told).collect();
        told.sort_by_key(|it| it.poll);
        told
    }
}

impl Lane<'_, '_> {
    /// Merges the samples by time and makes each poll once all that came by then is taken.
    fn run(
        self,
        polls: &[Timestamp],
        taken: &dyn Fn(u64),
        mut poll: impl FnMut(usize, Timestamp, &mut Tracked),
    ) {
        let mut heap: BinaryHeap<Reverse<(Timestamp, usize)>> = self
            .uses
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some(Reverse((one.feed.samples.first()?.at, index))))
            .collect();
        let mut positions = vec![0_usize; self.uses.len()];
        let (mut made, mut count) = (0, 0);
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((at, index)) = *top;
            let Use { entry, feed, counts } = self.uses[index];
            let sample = feed.samples[positions[index]];
            positions[index] += 1;
            match feed.samples.get(positions[index]) {
                Some(next) => *top = Reverse((next.at, index)),
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
            }
            while let Some(&now) = polls.get(made).filter(|now| **now < at) {
                poll(made, now, self.tracked);
                made += 1;
            }
            self.tracked.push(entry, sample);
            count += u64::from(counts);
            if count == PROGRESS_STEP {
                taken(std::mem::take(&mut count));
            }
        }
        for (index, &now) in polls.iter().enumerate().skip(made) {
            poll(index, now, self.tracked);
        }
        taken(count);
    }
}
