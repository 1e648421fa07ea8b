//! What could not be saved yet: bounded, in order, and saved as soon as storage takes writes again.
//!
//! When the disk is full or the database is away, detection goes on. The pipeline gives its
//! batches to the backlog and flushes it on every poll; nothing waits, and saving again is
//! harmless (see the store's header). A plain queue would grow with every poll; here the newest
//! word on an incident replaces the older revisions of it, so that an outage of storage for a day
//! costs a few incidents of memory. What is never dropped is an incident's newest state and the
//! notifications.

use std::collections::VecDeque;

use super::{Batch, Reason, Saved, Store, StoreError};

/// Changes kept while storage is away; beyond it, revisions in the middle are merged.
const CHANGES_MAX: usize = 10_000;

/// Changes in one transaction when catching up, so that each try is short.
const FLUSH_CHANGES: usize = 500;

/// Batches that wait for storage.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<Batch>,
    changes: usize,
    merged: u64,
}

impl Backlog {
    /// An empty backlog.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a batch at the end.
    pub fn push(&mut self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        self.changes += batch.incidents.len();
        self.waiting.push_back(batch);
        if self.changes > CHANGES_MAX {
            self.merge();
        }
    }

    /// Changes that wait.
    #[must_use]
    pub const fn changes(&self) -> usize {
        self.changes
    }

    /// Revisions that were merged into a later one because too many waited.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.merged
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The notifications that wait for storage, oldest first.
    pub fn notifications(&self) -> impl Iterator<Item = &super::NewNotification> {
        self.waiting.iter().flat_map(|batch| &batch.notifications)
    }

    /// Saves what waits, oldest first; what fails stays.
    ///
    /// # Errors
    ///
    /// The first failure of the store; everything before it is saved.
    pub async fn flush(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        while let Some(first) = self.waiting.pop_front() {
            let mut joined = first;
            while let Some(next) = self.waiting.front() {
                if joined.incidents.len() + next.incidents.len() > FLUSH_CHANGES {
                    break;
                }
                if let Some(next) = self.waiting.pop_front() {
                    joined.incidents.extend(next.incidents);
                    joined.series.extend(next.series);
                    joined.notifications.extend(next.notifications);
                }
            }
            if let Err(error) = store.save(&joined).await {
                self.waiting.push_front(joined);
                return Err(error);
            }
            self.changes -= joined.incidents.len();
        }
        Ok(())
    }

    /// Makes one batch of all, with plain revisions dropped where a later word follows.
    fn merge(&mut self) {
        let mut all = Batch::default();
        for batch in self.waiting.drain(..) {
            all.incidents.extend(batch.incidents);
            all.series.extend(batch.series);
            all.notifications.extend(batch.notifications);
        }
        let before = all.incidents.len();
        let mut last_seen = std::collections::BTreeSet::new();
        let mut kept: Vec<Saved> = Vec::new();
        for saved in all.incidents.into_iter().rev() {
            let newest = last_seen.insert(saved.incident.id.clone());
            if newest || saved.reason != Reason::Revised {
                kept.push(saved);
            }
        }
        kept.reverse();
        let mut kinds = std::collections::BTreeSet::new();
        all.series.reverse();
        all.series.retain(|series| kinds.insert((series.incident.clone(), series.kind.clone())));
        all.series.reverse();
        self.merged += u64::try_from(before - kept.len()).unwrap_or(u64::MAX);
        all.incidents = kept;
        self.changes = all.incidents.len();
        self.waiting.push_back(all);
    }
}
