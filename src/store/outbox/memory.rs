//! An outbox in memory, on tokio's clock.
//!
//! For the tests that run in virtual time (a database driver answers from a thread that a paused
//! clock does not wait for), and for `demo`, whose pages need not outlive it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::choose::{Candidate, Choice, choose};
use super::{
    Claim, Delivery, Grouping, LaneSize, LastSent, NewNotification, Notification,
    NotificationState, Outbox, Outcome, duration, millis,
};
use crate::incident::IncidentId;
use crate::store::Answer;

/// Notifications that live as long as the value.
#[derive(Debug)]
pub struct MemoryOutbox {
    epoch: Instant,
    rows: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    candidate: Candidate,
    owner: Option<String>,
    group: Option<IncidentId>,
}

impl Default for MemoryOutbox {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryOutbox {
    /// An empty outbox; needs a running tokio clock only to read the time.
    #[must_use]
    pub fn new() -> Self {
        Self { epoch: Instant::now(), rows: Mutex::new(Vec::new()) }
    }

    /// Every notification ever kept, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Notification> {
        self.lock().iter().map(|entry| entry.candidate.notification.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        millis(self.epoch.elapsed())
    }

    fn insert(&self, notifications: &[NewNotification]) {
        let now = self.now();
        let mut rows = self.lock();
        for new in notifications {
            if rows.iter().any(|entry| entry.candidate.notification.content.key == new.key) {
                continue;
            }
            let id = i64::try_from(rows.len()).unwrap_or(i64::MAX).saturating_add(1);
            rows.push(Entry {
                candidate: Candidate {
                    notification: Notification {
                        id,
                        content: new.clone(),
                        state: NotificationState::Pending,
                        attempts: 0,
                        error: None,
                    },
                    due_at: now.saturating_add(millis(new.hold)),
                    lease_until: 0,
                    batch: None,
                    inserted_at: now,
                },
                owner: None,
                group: None,
            });
        }
    }

    fn claim_now(&self, receiver: &str, owner: &str, lease: Duration, grouping: Grouping) -> Claim {
        let now = self.now();
        let mut rows = self.lock();
        let places: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, entry)| {
                let notification = &entry.candidate.notification;
                notification.content.receiver == receiver
                    && notification.state == NotificationState::Pending
            })
            .map(|(place, _)| place)
            .collect();
        let lane: Vec<Candidate> =
            places.iter().map(|place| rows[*place].candidate.clone()).collect();
        let taken = match choose(&lane, now, grouping) {
            Choice::Nothing => return Claim::Empty,
            Choice::Later(wait) => return Claim::Later(duration(wait)),
            Choice::Take(taken) => taken,
        };
        let head = lane[taken[0]].clone();
        let content = &head.notification.content;
        let key = head.batch.clone().unwrap_or_else(|| content.key.clone());
        let group = rows
            .iter()
            .rev()
            .filter(|entry| {
                let other = &entry.candidate.notification.content;
                other.receiver == receiver && other.incident == content.incident
            })
            .find_map(|entry| entry.group.clone())
            .unwrap_or_else(|| content.incident.clone());
        let mut notifications = Vec::new();
        for index in taken {
            let entry = &mut rows[places[index]];
            entry.owner = Some(owner.to_owned());
            entry.group = Some(group.clone());
            entry.candidate.batch = Some(key.clone());
            entry.candidate.lease_until = now.saturating_add(millis(lease));
            entry.candidate.notification.attempts += 1;
            notifications.push(entry.candidate.notification.clone());
        }
        let others = others(&rows, receiver, &group, &notifications);
        Claim::Ready(Delivery {
            key,
            receiver: receiver.to_owned(),
            owner: owner.to_owned(),
            lease,
            attempts: head.notification.attempts + 1,
            age: duration(now.saturating_sub(head.inserted_at)),
            group,
            notifications,
            others,
        })
    }

    fn finish_now(&self, delivery: &Delivery, outcome: &Outcome) -> bool {
        let now = self.now();
        let mut touched = false;
        for entry in self.lock().iter_mut() {
            let owned = entry.candidate.batch.as_ref() == Some(&delivery.key)
                && entry.owner.as_ref() == Some(&delivery.owner)
                && entry.candidate.notification.state == NotificationState::Pending;
            if !owned {
                continue;
            }
            touched = true;
            entry.owner = None;
            entry.candidate.lease_until = 0;
            let notification = &mut entry.candidate.notification;
            match outcome {
                Outcome::Sent => notification.state = NotificationState::Sent,
                Outcome::Retry { after, error } => {
                    entry.candidate.due_at = now.saturating_add(millis(*after));
                    notification.error = Some(error.clone());
                }
                Outcome::Dead { error } => {
                    notification.state = NotificationState::Dead;
                    notification.error = Some(error.clone());
                }
            }
        }
        touched
    }

    fn revive(&self, id: i64) -> bool {
        let now = self.now();
        let mut rows = self.lock();
        let dead = rows.iter_mut().map(|entry| &mut entry.candidate).find(|candidate| {
            candidate.notification.id == id
                && candidate.notification.state == NotificationState::Dead
        });
        let Some(candidate) = dead else { return false };
        candidate.notification.state = NotificationState::Pending;
        candidate.notification.attempts = 0;
        candidate.due_at = now;
        candidate.inserted_at = now;
        candidate.batch = None;
        true
    }
}

/// The last entry about each incident of a page, without those just told and those that ended.
fn others(
    rows: &[Entry],
    receiver: &str,
    group: &IncidentId,
    told: &[Notification],
) -> Vec<Notification> {
    let last = |entry: &&Entry| {
        let content = &entry.candidate.notification.content;
        !rows.iter().any(|other| {
            let other = &other.candidate.notification.content;
            other.receiver == receiver
                && other.incident == content.incident
                && other.sequence > content.sequence
        })
    };
    rows.iter()
        .filter(|entry| {
            let content = &entry.candidate.notification.content;
            content.receiver == receiver
                && entry.group.as_ref() == Some(group)
                && !content.event.ends()
                && !told.iter().any(|told| told.content.incident == content.incident)
        })
        .filter(last)
        .map(|entry| entry.candidate.notification.clone())
        .collect()
}

impl Outbox for MemoryOutbox {
    fn enqueue<'a>(&'a self, notifications: &'a [NewNotification]) -> Answer<'a, ()> {
        self.insert(notifications);
        Box::pin(std::future::ready(Ok(())))
    }

    fn claim<'a>(
        &'a self,
        receiver: &'a str,
        owner: &'a str,
        lease: Duration,
        grouping: Grouping,
    ) -> Answer<'a, Claim> {
        let claim = self.claim_now(receiver, owner, lease, grouping);
        Box::pin(std::future::ready(Ok(claim)))
    }

    fn finish<'a>(&'a self, delivery: &'a Delivery, outcome: &'a Outcome) -> Answer<'a, bool> {
        let owned = self.finish_now(delivery, outcome);
        Box::pin(std::future::ready(Ok(owned)))
    }

    fn last_sent<'a>(&'a self, incidents: &'a [IncidentId]) -> Answer<'a, Vec<LastSent>> {
        let mut last: Vec<LastSent> = Vec::new();
        for Notification { content, .. } in self.all() {
            if !incidents.contains(&content.incident) {
                continue;
            }
            last.retain(|other| {
                other.receiver != content.receiver || other.incident != content.incident
            });
            last.push(LastSent {
                receiver: content.receiver,
                incident: content.incident,
                sequence: content.sequence,
                event: content.event,
                standing: content.standing,
                created_at: content.created_at,
            });
        }
        Box::pin(std::future::ready(Ok(last)))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<Notification>> {
        let mut dead = self.all();
        dead.retain(|notification| notification.state == NotificationState::Dead);
        dead.reverse();
        dead.truncate(limit);
        Box::pin(std::future::ready(Ok(dead)))
    }

    fn resend(&self, id: i64) -> Answer<'_, bool> {
        let found = self.revive(id);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn lanes(&self) -> Answer<'_, Vec<LaneSize>> {
        let mut lanes: Vec<LaneSize> = Vec::new();
        for notification in self.all() {
            let receiver = notification.content.receiver;
            let (pending, dead) = match notification.state {
                NotificationState::Pending => (1, 0),
                NotificationState::Dead => (0, 1),
                NotificationState::Sent => continue,
            };
            match lanes.iter_mut().find(|lane| lane.receiver == receiver) {
                Some(lane) => {
                    lane.pending += pending;
                    lane.dead += dead;
                }
                None => lanes.push(LaneSize { receiver, pending, dead }),
            }
        }
        lanes.sort_by(|a, b| a.receiver.cmp(&b.receiver));
        Box::pin(std::future::ready(Ok(lanes)))
    }
}
