//! Which notifications of a lane go out next: a pure function, shared by every outbox.

use super::{Event, Grouping, Notification};

/// A waiting notification with what the choice needs. Times are on the outbox's own clock.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) notification: Notification,
    pub(super) due_at: i64,
    pub(super) lease_until: i64,
    pub(super) batch: Option<String>,
    pub(super) inserted_at: i64,
}

/// What to do with a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nothing waits.
    Nothing,
    /// Look again after this many milliseconds.
    Later(i64),
    /// Send these, by index.
    Take(Vec<usize>),
}

/// Chooses from a lane in its order. Nothing ever overtakes the head: that is the order promised.
/// First pages right behind the head join it when their storms started near its own; an event of
/// any other kind ends the group, since joining across it would reorder the two.
pub(super) fn choose(lane: &[Candidate], now: i64, grouping: Grouping) -> Choice {
    let Some(head) = lane.first() else { return Choice::Nothing };
    let ready_at = head.due_at.max(head.lease_until);
    if ready_at > now {
        return Choice::Later(ready_at.saturating_sub(now));
    }
    if let Some(batch) = &head.batch {
        let same = |(index, candidate): (usize, &Candidate)| {
            (candidate.batch.as_ref() == Some(batch)).then_some(index)
        };
        return Choice::Take(lane.iter().enumerate().filter_map(same).collect());
    }
    let first_page = |candidate: &Candidate| candidate.notification.content.event == Event::Firing;
    if !first_page(head) {
        return Choice::Take(vec![0]);
    }
    let within = i64::try_from(grouping.within.as_millis()).unwrap_or(i64::MAX);
    let cause = head.notification.content.cause_at.millis();
    let joins = |candidate: &Candidate| {
        first_page(candidate)
            && candidate.batch.is_none()
            && candidate.notification.content.cause_at.millis().abs_diff(cause)
                <= within.unsigned_abs()
    };
    let members = lane.iter().take(grouping.incidents_max.max(1)).take_while(|c| joins(c)).count();
    Choice::Take((0..members.max(1)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::classify::{Class, Severity};
    use crate::incident::IncidentId;
    use crate::series::Timestamp;
    use crate::store::{NewNotification, NotificationState, Standing};

    const GROUPING: Grouping = Grouping { within: Duration::from_secs(30), incidents_max: 3 };

    fn candidate(event: Event, cause_seconds: i64) -> Candidate {
        Candidate {
            notification: Notification {
                id: 0,
                content: NewNotification {
                    key: "k".to_owned(),
                    receiver: "r".to_owned(),
                    incident: IncidentId("i".to_owned()),
                    sequence: 1,
                    event,
                    standing: Standing {
                        class: Class::BackoffWithoutJitter,
                        severity: Severity::Critical,
                    },
                    cause_at: Timestamp::from_millis(cause_seconds * 1000),
                    body: String::new(),
                    created_at: Timestamp::from_millis(0),
                    hold: Duration::ZERO,
                },
                state: NotificationState::Pending,
                attempts: 0,
                error: None,
            },
            due_at: 0,
            lease_until: 0,
            batch: None,
            inserted_at: 0,
        }
    }

    fn check(lane: &[Candidate], expected: Choice) {
        assert_eq!(choose(lane, 1000, GROUPING), expected);
    }

    #[test]
    fn first_pages_from_one_cause_go_out_together_up_to_the_limit() {
        let near = candidate(Event::Firing, 20);
        check(&[], Choice::Nothing);
        check(&[candidate(Event::Firing, 0)], Choice::Take(vec![0]));
        check(&[candidate(Event::Firing, 0), near.clone()], Choice::Take(vec![0, 1]));
        check(&[candidate(Event::Firing, 0), candidate(Event::Firing, 31)], Choice::Take(vec![0]));
        check(&vec![near; 9], Choice::Take(vec![0, 1, 2]));
    }

    #[test]
    fn nothing_overtakes_the_head() {
        let mut held = candidate(Event::Firing, 0);
        held.due_at = 1500;
        check(&[held.clone(), candidate(Event::Firing, 0)], Choice::Later(500));
        held.due_at = 0;
        held.lease_until = 1700;
        check(&[held, candidate(Event::Resolved, 0)], Choice::Later(700));
    }

    #[test]
    fn another_event_ends_the_group() {
        let lane = [
            candidate(Event::Firing, 0),
            candidate(Event::Resolved, 0),
            candidate(Event::Firing, 0),
        ];
        check(&lane, Choice::Take(vec![0]));
        check(&lane[1..], Choice::Take(vec![0]));
    }

    #[test]
    fn a_later_try_sends_what_the_first_try_sent() {
        let mut tried = candidate(Event::Firing, 0);
        tried.batch = Some("b".to_owned());
        let lane = [tried.clone(), tried, candidate(Event::Firing, 0)];
        check(&lane, Choice::Take(vec![0, 1]));
    }
}
