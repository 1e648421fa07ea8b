//! The cases of the conformance suite, each over an empty store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use squall::classify::{Class, JitterKind, Schedule, ScheduleFamily, Severity};
use squall::incident::{Feedback, IncidentId, State};
use squall::series::Timestamp;
use squall::store::{
    Batch, Claim, Delivery, Event, Grouping, IncidentQuery, NewNotification, NotificationState,
    OffenderKind, Outcome, Precision, Reason, Saved, SeriesAround, Store,
};

use super::example::{START, batch, incident, notification, resolved};

const LEASE: Duration = Duration::from_secs(30);
const ALONE: Grouping = Grouping { within: Duration::ZERO, incidents_max: 1 };
const TOGETHER: Grouping = Grouping { within: Duration::from_secs(90), incidents_max: 10 };

async fn save_all(store: &Arc<dyn Store>, count: u32) {
    let incidents =
        (0..count).map(|n| Saved { reason: Reason::Opened, incident: incident(n) }).collect();
    store.save(&Batch { incidents, ..Batch::default() }).await.unwrap();
}

async fn ids(store: &Arc<dyn Store>, query: &IncidentQuery) -> Vec<String> {
    let page = store.incidents(query).await.unwrap();
    page.incidents.into_iter().map(|incident| incident.id.0).collect()
}

async fn claim(store: &Arc<dyn Store>, receiver: &str, grouping: Grouping) -> Delivery {
    match store.claim(receiver, "me", LEASE, grouping).await.unwrap() {
        Claim::Ready(delivery) => delivery,
        other => panic!("expected a delivery, got {other:?}"),
    }
}

fn keys(delivery: &Delivery) -> Vec<&str> {
    delivery.notifications.iter().map(|n| n.content.key.as_str()).collect()
}

pub(super) async fn an_incident_is_read_back_as_it_was_saved(store: Arc<dyn Store>) {
    let saved = incident(1);
    store.save(&batch(Reason::Opened, saved.clone())).await.unwrap();
    assert_eq!(store.incident(&saved.id).await.unwrap(), Some(saved));
    assert_eq!(store.incident(&IncidentId("nobody".to_owned())).await.unwrap(), None);
}

pub(super) async fn an_incident_and_its_page_are_saved_together(store: Arc<dyn Store>) {
    let mut both = batch(Reason::Opened, incident(1));
    both.notifications = vec![notification("hook", 1, 1, Event::Firing)];
    store.save(&both).await.unwrap();
    assert!(store.incident(&incident(1).id).await.unwrap().is_some());
    assert_eq!(claim(&store, "hook", ALONE).await.key, "hook/1/1");
    store.save(&Batch::default()).await.unwrap();
}

pub(super) async fn saving_again_changes_nothing(store: Arc<dyn Store>) {
    let mut twice = batch(Reason::Opened, incident(1));
    twice.notifications = vec![notification("hook", 1, 1, Event::Firing)];
    store.save(&twice).await.unwrap();
    store.save(&twice).await.unwrap();
    assert_eq!(store.revisions(&incident(1).id).await.unwrap().len(), 1);
    assert_eq!(ids(&store, &IncidentQuery::default()).await.len(), 1);
    assert_eq!(store.lanes().await.unwrap()[0].pending, 1);
}

pub(super) async fn an_older_word_never_replaces_a_newer_one(store: Arc<dyn Store>) {
    store.save(&batch(Reason::Resolved, resolved(1))).await.unwrap();
    store.save(&batch(Reason::Revised, incident(1))).await.unwrap();
    let kept = store.incident(&incident(1).id).await.unwrap().unwrap();
    assert_eq!(kept.state, State::Resolved);
    // An old view from a clock that is ahead looks newer, and takes no end back.
    let mut ahead = incident(1);
    ahead.updated_at = resolved(1).updated_at.plus_seconds(30.0);
    store.save(&batch(Reason::Revised, ahead)).await.unwrap();
    let kept = store.incident(&incident(1).id).await.unwrap().unwrap();
    assert_eq!(kept.state, State::Resolved);
}

pub(super) async fn open_incidents_are_taken_up_again(store: Arc<dyn Store>) {
    save_all(&store, 4).await;
    store.save(&batch(Reason::Resolved, resolved(2))).await.unwrap();
    let mut pending = incident(3);
    pending.state = State::Pending;
    pending.detected_at = None;
    store.save(&batch(Reason::Revised, pending.clone())).await.unwrap();
    let open = store.open_incidents().await.unwrap();
    assert_eq!(open, [incident(0), incident(1), pending]);
}

pub(super) async fn pages_are_newest_first_and_whole(store: Arc<dyn Store>) {
    save_all(&store, 25).await;
    let mut query = IncidentQuery::default().with_limit(10).unwrap();
    let mut seen = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let page = store.incidents(&query).await.unwrap();
        sizes.push(page.incidents.len());
        seen.extend(page.incidents.into_iter().map(|incident| incident.id.0));
        match page.next {
            // By way of its text, as a client would.
            Some(next) => {
                query.after = Some(squall::store::Cursor::parse(&next.to_string()).unwrap());
            }
            None => break,
        }
    }
    assert_eq!(sizes, [10, 10, 5]);
    let expected: Vec<String> = (0..25).rev().map(|n| incident(n).id.0).collect();
    assert_eq!(seen, expected);
    let exact = IncidentQuery::default().with_limit(25).unwrap();
    assert_eq!(store.incidents(&exact).await.unwrap().next, None);
}

pub(super) async fn pages_stay_whole_while_rows_arrive(store: Arc<dyn Store>) {
    save_all(&store, 20).await;
    let mut query = IncidentQuery::default().with_limit(6).unwrap();
    let mut seen = Vec::new();
    let mut arrived = 100;
    loop {
        let page = store.incidents(&query).await.unwrap();
        seen.extend(page.incidents.into_iter().map(|incident| incident.id.0));
        // A new one arrives, and one that was not shown yet gets an earlier start.
        store.save(&batch(Reason::Opened, incident(arrived))).await.unwrap();
        arrived += 1;
        let mut revised = incident(5);
        revised.verdict.started_at = START.plus_seconds(-3600.0 * f64::from(arrived));
        revised.updated_at = revised.updated_at.plus_seconds(f64::from(arrived));
        store.save(&batch(Reason::Revised, revised)).await.unwrap();
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let expected: Vec<String> = (0..20).rev().map(|n| incident(n).id.0).collect();
    assert_eq!(seen, expected);
}

pub(super) async fn filters_let_through_what_they_say(store: Arc<dyn Store>) {
    save_all(&store, 6).await;
    let mut other = incident(6);
    other.verdict.class = Class::PartialJitter;
    other.verdict.severity = Severity::Warning;
    other.verdict.matches[0].rule = "grpc-go".to_owned();
    store.save(&batch(Reason::Opened, other.clone())).await.unwrap();
    store.save(&batch(Reason::Resolved, resolved(0))).await.unwrap();

    let check = async |query: IncidentQuery, expected: &[u32]| {
        let expected: Vec<String> = expected.iter().map(|n| incident(*n).id.0).collect();
        assert_eq!(ids(&store, &query).await, expected, "{query:?}");
    };
    let all = IncidentQuery::default;
    check(IncidentQuery { dependency: Some("d3".to_owned()), ..all() }, &[3]).await;
    check(IncidentQuery { class: Some(Class::PartialJitter), ..all() }, &[6]).await;
    check(IncidentQuery { state: Some(State::Resolved), ..all() }, &[0]).await;
    check(IncidentQuery { severity: Some(Severity::Warning), ..all() }, &[6]).await;
    check(IncidentQuery { schedule: Some("grpc-go".to_owned()), ..all() }, &[6]).await;
    let rule = Some("resilience4j-exponential".to_owned());
    check(IncidentQuery { schedule: rule.clone(), ..all() }, &[5, 4, 3, 2, 1, 0]).await;
    let from = incident(2).verdict.started_at;
    let to = incident(4).verdict.started_at;
    check(IncidentQuery { from: Some(from), to: Some(to), ..all() }, &[3, 2]).await;
    let both = IncidentQuery { schedule: rule.clone(), from: Some(from), ..all() };
    check(both, &[5, 4, 3, 2]).await;
    let paged = IncidentQuery { schedule: rule, ..all() }.with_limit(4).unwrap();
    let next = store.incidents(&paged).await.unwrap().next;
    check(IncidentQuery { after: next, ..paged }, &[1, 0]).await;
    check(IncidentQuery { dependency: Some("d".to_owned()), ..all() }, &[]).await;
}

pub(super) async fn text_is_found_whatever_its_letters(store: Arc<dyn Store>) {
    save_all(&store, 3).await;
    let mut odd = incident(3);
    odd.verdict.summary = "Ledger is at 100% of _its_ limit".to_owned();
    store.save(&batch(Reason::Opened, odd)).await.unwrap();
    let check = async |text: &str, expected: usize| {
        let query = IncidentQuery { text: Some(text.to_owned()), ..IncidentQuery::default() };
        assert_eq!(ids(&store, &query).await.len(), expected, "{text}");
    };
    check("LEDGER", 1).await;
    check("100%", 1).await;
    check("_its_", 1).await;
    check("0%e", 0).await;
    check("xitsx", 0).await;
    check("d2", 1).await;
    check("'", 0).await;
}

pub(super) async fn the_ledger_keeps_what_was_believed_when(store: Arc<dyn Store>) {
    let mut first = incident(1);
    first.verdict.class = Class::Inconclusive;
    store.save(&batch(Reason::Opened, first.clone())).await.unwrap();
    let mut second = incident(1);
    second.updated_at = second.updated_at.plus_seconds(15.0);
    second.verdict.evidence.truncate(1);
    store.save(&batch(Reason::Fired, second.clone())).await.unwrap();
    let revisions = store.revisions(&first.id).await.unwrap();
    let told: Vec<_> = revisions
        .iter()
        .map(|r| (r.at, r.reason, r.incident.classification.as_str(), r.incident.evidence.len()))
        .collect();
    assert_eq!(
        told,
        [
            (first.updated_at, Reason::Opened, "inconclusive", 2),
            (second.updated_at, Reason::Fired, "backoff-without-jitter", 1),
        ]
    );
}

pub(super) async fn series_around_an_incident_keep_the_newest(store: Arc<dyn Store>) {
    let series = |kind: &str, at: i64, body: &[u8]| SeriesAround {
        incident: incident(1).id,
        kind: kind.to_owned(),
        at: Timestamp::from_millis(at),
        body: body.to_vec(),
    };
    let mut first = batch(Reason::Opened, incident(1));
    first.series = vec![series("model", 10, b"{}"), series("increments", 10, &[0, 255, 0])];
    store.save(&first).await.unwrap();
    let later = Batch {
        series: vec![series("model", 20, b"{1}"), series("increments", 5, b"old")],
        ..Batch::default()
    };
    store.save(&later).await.unwrap();
    let kept = store.series(&incident(1).id).await.unwrap();
    assert_eq!(kept, [series("increments", 10, &[0, 255, 0]), series("model", 20, b"{1}")]);
    // Series of an incident that is not there are dropped, not an error that holds up the rest.
    let orphan = SeriesAround { incident: incident(9).id, ..series("model", 1, b"x") };
    store.save(&Batch { series: vec![orphan], ..Batch::default() }).await.unwrap();
    assert_eq!(store.series(&incident(9).id).await.unwrap(), []);
}

fn said(genuine: bool, class: Option<Class>, at: i64) -> Feedback {
    Feedback { genuine, class, note: "so".to_owned(), at: Timestamp::from_millis(at) }
}

pub(super) async fn feedback_is_kept_and_survives_a_revision(store: Arc<dyn Store>) {
    save_all(&store, 1).await;
    let id = incident(0).id;
    let nobody = IncidentId("nobody".to_owned());
    assert!(!store.add_feedback(&nobody, &said(true, None, 1)).await.unwrap());
    assert!(store.add_feedback(&id, &said(true, None, 1)).await.unwrap());
    let last = said(false, Some(Class::JitteredBackoff), 2);
    assert!(store.add_feedback(&id, &last).await.unwrap());
    store.save(&batch(Reason::Resolved, resolved(0))).await.unwrap();
    let kept = store.incident(&id).await.unwrap().unwrap();
    assert_eq!(kept.feedback, Some(last.clone()));
    assert_eq!(store.feedback(&id).await.unwrap(), [said(true, None, 1), last]);
}

pub(super) async fn precision_counts_right_over_judged(store: Arc<dyn Store>) {
    save_all(&store, 6).await;
    let day = Duration::from_secs(120);
    for (n, feedback) in [
        (0, said(true, None, 1)),
        (1, said(false, None, 1)),
        (2, said(true, Some(Class::PartialJitter), 1)),
        (3, said(true, Some(Class::BackoffWithoutJitter), 1)),
    ] {
        store.add_feedback(&incident(n).id, &feedback).await.unwrap();
    }
    let to = START.plus(Duration::from_secs(600));
    let expected = |from: u64, right, judged| Precision {
        class: Class::BackoffWithoutJitter,
        from: START.plus(Duration::from_secs(from)),
        right,
        judged,
    };
    let lines = store.precision(START, to, day).await.unwrap();
    assert_eq!(lines, [expected(0, 1, 2), expected(120, 1, 2)]);
    let whole = store.precision(START, to, Duration::from_secs(600)).await.unwrap();
    assert_eq!(whole, [expected(0, 2, 4)]);
}

fn schedule(family: ScheduleFamily, base_seconds: f64, factor: f64) -> Schedule {
    Schedule {
        family,
        base_seconds,
        factor,
        cap_seconds: None,
        attempt_latency_seconds: 0.0,
        waits_seconds: Vec::new(),
        jitter: JitterKind::None,
        jitter_fraction: 0.0,
        intervals: Vec::new(),
    }
}

pub(super) async fn seen_before_finds_the_same_schedule_only(store: Arc<dyn Store>) {
    let with = |n: u32, dependency: u32, found: Option<Schedule>| {
        let mut made = incident(n);
        made.dependency = incident(dependency).dependency;
        made.verdict.schedule = found;
        made
    };
    let doubling = |base| Some(schedule(ScheduleFamily::Exponential, base, 2.0));
    let history = [
        with(1, 7, doubling(1.0)),
        with(2, 7, Some(schedule(ScheduleFamily::Capped, 1.08, 1.95))),
        with(3, 7, doubling(2.0)),
        with(4, 7, Some(schedule(ScheduleFamily::Polynomial, 1.0, 2.0))),
        with(5, 8, doubling(1.0)),
        with(6, 7, None),
    ];
    for made in history {
        store.save(&batch(Reason::Opened, made)).await.unwrap();
    }
    let now = with(10, 7, doubling(1.04));
    store.save(&batch(Reason::Opened, now.clone())).await.unwrap();
    let seen = store.seen_before(&now).await.unwrap();
    assert_eq!(seen.times, 2);
    assert_eq!(seen.incidents, [incident(2).id.0, incident(1).id.0]);
    assert_eq!(seen.first_at.unwrap().0, incident(1).verdict.started_at);
    assert_eq!(seen.last_at.unwrap().0, incident(2).verdict.started_at);
    let flood = with(11, 7, None);
    assert_eq!(store.seen_before(&flood).await.unwrap().incidents, [incident(6).id.0]);
    let first = with(12, 9, doubling(1.0));
    assert_eq!(store.seen_before(&first).await.unwrap().times, 0);
}

pub(super) async fn offenders_are_counted_worst_first(store: Arc<dyn Store>) {
    for (n, dependency, client) in [(1, 1, "a"), (2, 1, "b"), (3, 2, "a"), (4, 2, "a")] {
        let mut made = incident(n);
        made.dependency = incident(dependency).dependency;
        made.verdict.matches[0].name = client.to_owned();
        made.verdict.impact.excess_requests = f64::from(n);
        store.save(&batch(Reason::Opened, made)).await.unwrap();
    }
    let mut unknown = incident(5);
    unknown.verdict.matches.clear();
    store.save(&batch(Reason::Opened, unknown)).await.unwrap();
    let to = incident(5).verdict.started_at;
    let list = async |by| {
        let lines = store.offenders(by, START, to, 10).await.unwrap();
        lines.into_iter().map(|l| (l.name, l.incidents, l.excess_requests)).collect::<Vec<_>>()
    };
    let line = |name: &str, incidents, excess| (name.to_owned(), incidents, excess);
    assert_eq!(list(OffenderKind::Dependency).await, [line("d2", 2, 7.0), line("d1", 2, 3.0)]);
    assert_eq!(list(OffenderKind::Client).await, [line("a", 3, 8.0), line("b", 1, 2.0)]);
}

pub(super) async fn retention_forgets_what_ended_and_nothing_else(store: Arc<dyn Store>) {
    save_all(&store, 4).await;
    for n in [0, 1, 3] {
        let mut over = batch(Reason::Resolved, resolved(n));
        over.notifications = vec![notification("hook", n, 1, Event::Firing)];
        store.save(&over).await.unwrap();
    }
    let cutoff = resolved(1).ended_at.unwrap().plus_seconds(1.0);
    assert_eq!(store.forget_before(cutoff).await.unwrap(), 2);
    let left = ids(&store, &IncidentQuery::default()).await;
    assert_eq!(left, [incident(3).id.0, incident(2).id.0]);
    assert_eq!(store.revisions(&incident(0).id).await.unwrap(), []);
    // Nothing that still has to be sent is lost with its incident.
    assert_eq!(store.lanes().await.unwrap()[0].pending, 3);
    assert_eq!(store.forget_before(cutoff).await.unwrap(), 0);
}

pub(super) async fn a_notification_is_kept_once(store: Arc<dyn Store>) {
    let new = notification("hook", 1, 1, Event::Firing);
    store.enqueue(&[new.clone(), new.clone()]).await.unwrap();
    let delivery = claim(&store, "hook", ALONE).await;
    assert_eq!(delivery.notifications.len(), 1);
    let kept = &delivery.notifications[0].content;
    assert_eq!(kept, &NewNotification { hold: Duration::ZERO, ..new });
    assert!(store.finish(&delivery, &Outcome::Sent).await.unwrap());
    // Another replica, late, with the same key.
    store.enqueue(&[notification("hook", 1, 1, Event::Firing)]).await.unwrap();
    assert_eq!(store.claim("hook", "me", LEASE, ALONE).await.unwrap(), Claim::Empty);
}

pub(super) async fn a_lane_is_in_order_and_one_at_a_time(store: Arc<dyn Store>) {
    let lane: Vec<NewNotification> =
        (1..=3).map(|n| notification("hook", n, 1, Event::Firing)).collect();
    store.enqueue(&lane).await.unwrap();
    store.enqueue(&[notification("other", 9, 1, Event::Firing)]).await.unwrap();
    for n in 1..=3 {
        let delivery = claim(&store, "hook", ALONE).await;
        assert_eq!(keys(&delivery), [format!("hook/{n}/1")]);
        let busy = store.claim("hook", "you", LEASE, ALONE).await.unwrap();
        let Claim::Later(wait) = busy else { panic!("two at a time: {busy:?}") };
        assert!(wait <= LEASE, "{wait:?}");
        assert!(store.finish(&delivery, &Outcome::Sent).await.unwrap());
    }
    assert_eq!(store.claim("hook", "me", LEASE, ALONE).await.unwrap(), Claim::Empty);
    assert_eq!(keys(&claim(&store, "other", ALONE).await), ["other/9/1"]);
}

pub(super) async fn a_lost_lease_is_taken_over_and_its_answer_ignored(store: Arc<dyn Store>) {
    store.enqueue(&[notification("hook", 1, 1, Event::Firing)]).await.unwrap();
    let Claim::Ready(slow) = store.claim("hook", "slow", Duration::ZERO, ALONE).await.unwrap()
    else {
        panic!("nothing to claim")
    };
    let quick = claim(&store, "hook", ALONE).await;
    assert_eq!((quick.key.as_str(), quick.attempts), (slow.key.as_str(), 2));
    assert!(!store.finish(&slow, &Outcome::Sent).await.unwrap());
    assert!(store.finish(&quick, &Outcome::Sent).await.unwrap());
    assert!(!store.finish(&quick, &Outcome::Sent).await.unwrap());
}

pub(super) async fn a_retry_waits_and_sends_the_same(store: Arc<dyn Store>) {
    let group: Vec<NewNotification> =
        [1, 2].map(|n| notification("hook", n, 1, Event::Firing)).into();
    store.enqueue(&group).await.unwrap();
    let first = claim(&store, "hook", TOGETHER).await;
    assert_eq!(keys(&first), ["hook/1/1", "hook/2/1"]);
    let later = Outcome::Retry { after: Duration::from_secs(3600), error: "503".to_owned() };
    assert!(store.finish(&first, &later).await.unwrap());
    let waits = store.claim("hook", "me", LEASE, TOGETHER).await.unwrap();
    assert!(matches!(waits, Claim::Later(wait) if wait > Duration::from_secs(3500)), "{waits:?}");
    // Tried again at once, with a third from the same cause behind it.
    let again = claim_after_retry(&store).await;
    assert_eq!(again, (first.key, vec!["x/1/1".to_owned(), "x/2/1".to_owned()], 2));
}

/// A retry without a wait, on a lane of its own: the same delivery, whatever came meanwhile.
async fn claim_after_retry(store: &Arc<dyn Store>) -> (String, Vec<String>, u64) {
    let group: Vec<NewNotification> = [1, 2].map(|n| notification("x", n, 1, Event::Firing)).into();
    store.enqueue(&group).await.unwrap();
    let first = claim(store, "x", TOGETHER).await;
    let now = Outcome::Retry { after: Duration::ZERO, error: "reset".to_owned() };
    assert!(store.finish(&first, &now).await.unwrap());
    store.enqueue(&[notification("x", 3, 1, Event::Firing)]).await.unwrap();
    let second = claim(store, "x", TOGETHER).await;
    assert_eq!(second.key, first.key);
    assert_eq!(second.notifications[0].error.as_deref(), Some("reset"));
    let keys = keys(&second).into_iter().map(str::to_owned).collect();
    ("hook/1/1".to_owned(), keys, second.attempts)
}

pub(super) async fn pages_from_one_cause_share_a_delivery(store: Arc<dyn Store>) {
    let lane: Vec<NewNotification> =
        [1, 2, 9].map(|n| notification("hook", n, 1, Event::Firing)).into();
    store.enqueue(&lane).await.unwrap();
    let delivery = claim(&store, "hook", TOGETHER).await;
    assert_eq!(keys(&delivery), ["hook/1/1", "hook/2/1"]);
    assert_eq!(delivery.group, incident(1).id);
    store.finish(&delivery, &Outcome::Sent).await.unwrap();
    assert_eq!(keys(&claim(&store, "hook", TOGETHER).await), ["hook/9/1"]);
}

pub(super) async fn a_resolution_knows_who_still_fires_on_its_page(store: Arc<dyn Store>) {
    let lane: Vec<NewNotification> =
        [1, 2].map(|n| notification("hook", n, 1, Event::Firing)).into();
    store.enqueue(&lane).await.unwrap();
    let page = claim(&store, "hook", TOGETHER).await;
    assert_eq!(page.others, []);
    store.finish(&page, &Outcome::Sent).await.unwrap();

    store.enqueue(&[notification("hook", 2, 2, Event::Resolved)]).await.unwrap();
    let second = claim(&store, "hook", TOGETHER).await;
    assert_eq!((keys(&second), &second.group), (vec!["hook/2/2"], &incident(1).id));
    let others: Vec<&str> = second.others.iter().map(|n| n.content.key.as_str()).collect();
    assert_eq!(others, ["hook/1/1"]);
    store.finish(&second, &Outcome::Sent).await.unwrap();

    store.enqueue(&[notification("hook", 1, 2, Event::Resolved)]).await.unwrap();
    let first = claim(&store, "hook", TOGETHER).await;
    assert_eq!((&first.group, first.others.len()), (&incident(1).id, 0));
}

pub(super) async fn dead_letters_are_listed_and_sent_again(store: Arc<dyn Store>) {
    let lane: Vec<NewNotification> =
        [1, 2].map(|n| notification("hook", n, 1, Event::Firing)).into();
    store.enqueue(&lane).await.unwrap();
    let first = claim(&store, "hook", ALONE).await;
    let dead = Outcome::Dead { error: "400".to_owned() };
    store.finish(&first, &dead).await.unwrap();
    let letters = store.dead_letters(10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].state, NotificationState::Dead);
    assert_eq!(letters[0].error.as_deref(), Some("400"));
    // It does not hold up the lane.
    let second = claim(&store, "hook", ALONE).await;
    assert_eq!(keys(&second), ["hook/2/1"]);
    store.finish(&second, &Outcome::Sent).await.unwrap();
    assert!(store.resend(letters[0].id).await.unwrap());
    assert!(!store.resend(letters[0].id).await.unwrap());
    assert_eq!(claim(&store, "hook", ALONE).await.key, first.key);
    assert_eq!(store.dead_letters(10).await.unwrap(), []);
}

pub(super) async fn the_last_word_is_known_for_each_receiver(store: Arc<dyn Store>) {
    let told = [
        notification("hook", 1, 1, Event::Firing),
        notification("hook", 1, 2, Event::Resolved),
        notification("chat", 1, 1, Event::Firing),
        notification("chat", 2, 1, Event::Firing),
    ];
    store.enqueue(&told).await.unwrap();
    let mut last: Vec<(String, u64, Event)> = store
        .last_sent(&[incident(1).id])
        .await
        .unwrap()
        .into_iter()
        .map(|last| (last.receiver, last.sequence, last.event))
        .collect();
    last.sort();
    assert_eq!(
        last,
        [("chat".to_owned(), 1, Event::Firing), ("hook".to_owned(), 2, Event::Resolved)]
    );
    assert_eq!(store.last_sent(&[]).await.unwrap(), []);
}

pub(super) async fn members_live_by_their_heartbeats(store: Arc<dyn Store>) {
    // What asks whether storage takes writes is nobody's heartbeat.
    store.probe().await.unwrap();
    assert_eq!(store.heartbeat("b").await.unwrap(), ["b"]);
    assert_eq!(store.heartbeat("a").await.unwrap(), ["a", "b"]);
    store.leave("b").await.unwrap();
    assert_eq!(store.heartbeat("a").await.unwrap(), ["a"]);
}

pub(super) async fn claims_of_many_workers_never_overlap(store: Arc<dyn Store>) {
    const NOTIFICATIONS: u32 = 40;
    let lane: Vec<NewNotification> =
        (0..NOTIFICATIONS).map(|n| notification("hook", n, 1, Event::Firing)).collect();
    store.enqueue(&lane).await.unwrap();
    let worker = async |name: &'static str| {
        let mut sent = Vec::new();
        loop {
            match store.claim("hook", name, LEASE, ALONE).await.unwrap() {
                Claim::Empty => return sent,
                Claim::Later(_) => tokio::task::yield_now().await,
                Claim::Ready(delivery) => {
                    assert!(store.finish(&delivery, &Outcome::Sent).await.unwrap());
                    sent.push(delivery.notifications[0].id);
                }
            }
        }
    };
    let (a, b, c) = tokio::join!(worker("a"), worker("b"), worker("c"));
    let mut all: Vec<i64> = a.into_iter().chain(b).chain(c).collect();
    let count = all.len();
    all.sort_unstable();
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!((count, distinct.len()), (40, 40));
}
