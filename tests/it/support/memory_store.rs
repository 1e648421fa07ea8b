//! A store in memory, for tests on a paused clock: a database driver works on threads of its own,
//! which a paused clock takes for idleness.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use squall::classify::Class;
use squall::incident::{Feedback, Incident, IncidentId, State};
use squall::series::Timestamp;
use squall::store::{
    Answer, Batch, Claim, Delivery, Grouping, IncidentQuery, LaneSize, LastSent, MemoryOutbox,
    NewNotification, Notification, Offender, OffenderKind, Outbox, Outcome, Page, Precision,
    Revision, Saved, SeriesAround, Store, StoreError,
};
use squall::wire::SeenBeforeJson;

/// Keeps everything it is given, in order; can be told to fail.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    saved: Mutex<Vec<Saved>>,
    outbox: MemoryOutbox,
    broken: AtomicBool,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Vec<Saved>> {
        self.saved.lock().expect("no test panics while it holds this")
    }

    /// Everything saved, in order.
    pub(crate) fn saved(&self) -> Vec<Saved> {
        self.lock().clone()
    }

    /// The newest word on each incident.
    pub(crate) fn latest(&self) -> BTreeMap<IncidentId, Incident> {
        self.lock()
            .iter()
            .map(|saved| (saved.incident.id.clone(), saved.incident.clone()))
            .collect()
    }

    /// Every notification ever kept.
    pub(crate) fn notifications(&self) -> Vec<Notification> {
        self.outbox.all()
    }

    /// Takes no writes from now on, or takes them again.
    pub(crate) fn break_down(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    fn refusal(&self) -> Option<StoreError> {
        self.broken.load(Ordering::Relaxed).then(|| StoreError::Path {
            path: "data/".to_owned(),
            cause: std::io::ErrorKind::StorageFull.into(),
        })
    }
}

/// An answer that is there at once.
fn ready<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for MemoryStore {
    fn save<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()> {
        if let Some(error) = self.refusal() {
            return Box::pin(std::future::ready(Err(error)));
        }
        self.lock().extend(batch.incidents.iter().cloned());
        self.outbox.enqueue(&batch.notifications)
    }

    fn incident<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Option<Incident>> {
        ready(self.latest().remove(id))
    }

    fn open_incidents(&self) -> Answer<'_, Vec<Incident>> {
        ready(self.latest().into_values().filter(|it| it.state != State::Resolved).collect())
    }

    fn incidents<'a>(&'a self, _query: &'a IncidentQuery) -> Answer<'a, Page> {
        ready(Page { incidents: self.latest().into_values().collect(), next: None })
    }

    fn revisions<'a>(&'a self, _id: &'a IncidentId) -> Answer<'a, Vec<Revision>> {
        ready(Vec::new())
    }

    fn series<'a>(&'a self, _id: &'a IncidentId) -> Answer<'a, Vec<SeriesAround>> {
        ready(Vec::new())
    }

    fn add_feedback<'a>(&'a self, _: &'a IncidentId, _: &'a Feedback) -> Answer<'a, bool> {
        ready(false)
    }

    fn feedback<'a>(&'a self, _id: &'a IncidentId) -> Answer<'a, Vec<Feedback>> {
        ready(Vec::new())
    }

    fn seen_before<'a>(&'a self, _incident: &'a Incident) -> Answer<'a, SeenBeforeJson> {
        Box::pin(std::future::ready(Err(StoreError::Unsupported {
            operation: "look back",
            engine: "memory",
        })))
    }

    fn offenders(
        &self,
        _by: OffenderKind,
        _from: Timestamp,
        _to: Timestamp,
        _limit: usize,
    ) -> Answer<'_, Vec<Offender>> {
        ready(Vec::new())
    }

    fn precision(
        &self,
        _from: Timestamp,
        _to: Timestamp,
        _step: Duration,
    ) -> Answer<'_, Vec<Precision>> {
        ready(Vec::new())
    }

    fn counts(&self) -> Answer<'_, Vec<(Class, State, u64)>> {
        ready(Vec::new())
    }

    fn forget_before(&self, _cutoff: Timestamp) -> Answer<'_, u64> {
        ready(0)
    }

    fn probe(&self) -> Answer<'_, ()> {
        ready(())
    }

    fn heartbeat<'a>(&'a self, replica: &'a str) -> Answer<'a, Vec<String>> {
        ready(vec![replica.to_owned()])
    }

    fn leave<'a>(&'a self, _replica: &'a str) -> Answer<'a, ()> {
        ready(())
    }

    fn backup<'a>(&'a self, _path: &'a std::path::Path) -> Answer<'a, ()> {
        ready(())
    }
}

impl Outbox for MemoryStore {
    fn enqueue<'a>(&'a self, notifications: &'a [NewNotification]) -> Answer<'a, ()> {
        self.outbox.enqueue(notifications)
    }

    fn claim<'a>(
        &'a self,
        receiver: &'a str,
        owner: &'a str,
        lease: Duration,
        grouping: Grouping,
    ) -> Answer<'a, Claim> {
        self.outbox.claim(receiver, owner, lease, grouping)
    }

    fn finish<'a>(&'a self, delivery: &'a Delivery, outcome: &'a Outcome) -> Answer<'a, bool> {
        self.outbox.finish(delivery, outcome)
    }

    fn last_sent<'a>(&'a self, incidents: &'a [IncidentId]) -> Answer<'a, Vec<LastSent>> {
        self.outbox.last_sent(incidents)
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<Notification>> {
        self.outbox.dead_letters(limit)
    }

    fn resend(&self, id: i64) -> Answer<'_, bool> {
        self.outbox.resend(id)
    }

    fn lanes(&self) -> Answer<'_, Vec<LaneSize>> {
        self.outbox.lanes()
    }
}
