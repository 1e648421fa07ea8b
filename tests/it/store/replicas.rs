//! Two replicas on one PostgreSQL: each has its share, and a storm is one page, whatever their
//! clocks say.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use squall::notify::{
    Http, Kind, Message, NoMeter, Notifier, NotifyError, Now, Planner, Receiver, Route, Secret,
    Settings, Worker,
};
use squall::series::Timestamp;
use squall::store::{Batch, Outbox, Reason, SqlStore, Store, owns};

use super::cluster::Cluster;
use super::example::{START, batch, incident, resolved};

/// Keeps the keys it is sent, and by whom.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl Notifier for Kept {
    fn name(&self) -> &'static str {
        "hook"
    }

    fn kind(&self) -> Kind {
        Kind::Webhook
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        self.0.lock().unwrap().push(message.key.clone());
        Box::pin(std::future::ready(Ok(())))
    }
}

fn receiver() -> Receiver {
    Receiver {
        name: "hook".to_owned(),
        route: Route::default(),
        settings: Settings::Webhook {
            url: Secret::Inline(String::new()),
            secret: None,
            http: Http::plain().unwrap(),
        },
    }
}

#[tokio::test]
async fn a_storm_is_one_page_with_clocks_thirty_seconds_apart() {
    let cluster = Cluster::start().await;
    let url = cluster.database("replicas").await;
    let kept = Kept::default();
    let storms: u32 = 12;
    let replica = async |name: &'static str, clock_off: f64| {
        let store = Arc::new(SqlStore::postgres(&url).await.unwrap());
        let mut planner = Planner::new(&[receiver()]);
        let clock: Now = Arc::new(move || START.plus_seconds(clock_off));
        let outbox: Arc<dyn Outbox> = store.clone();
        let notifier = Arc::new(kept.clone());
        let mut worker = Worker::new(outbox, notifier, name, clock, Arc::new(NoMeter));
        // Both see every storm begin and end, ten minutes apart.
        for n in (0..storms).map(|n| n * 10) {
            for (reason, seen) in [(Reason::Fired, incident(n)), (Reason::Resolved, resolved(n))] {
                let now: Timestamp = seen.updated_at.plus_seconds(clock_off);
                let mut notifications =
                    planner.plan(store.as_ref(), std::slice::from_ref(&seen), now).await;
                for new in &mut notifications {
                    new.hold = Duration::ZERO;
                }
                store.save(&Batch { notifications, ..batch(reason, seen) }).await.unwrap();
                worker.turn().await;
            }
        }
        while !store.lanes().await.unwrap().is_empty() {
            worker.turn().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(replica("a", 0.0), replica("b", 30.0));
    let mut keys = kept.0.lock().unwrap().clone();
    let sent = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((sent, keys.len()), (24, 24), "a page and its end for each of {storms} storms");
}

#[tokio::test]
async fn replicas_that_see_each_other_share_the_dependencies() {
    let cluster = Cluster::start().await;
    let url = cluster.database("members").await;
    let (a, b) = (SqlStore::postgres(&url).await.unwrap(), SqlStore::postgres(&url).await.unwrap());
    a.heartbeat("a").await.unwrap();
    let seen_by_b = b.heartbeat("b").await.unwrap();
    let seen_by_a = a.heartbeat("a").await.unwrap();
    assert_eq!((&seen_by_a, &seen_by_b), (&seen_by_b, &vec!["a".to_owned(), "b".to_owned()]));
    let mut shares = [0, 0];
    for n in 0..100 {
        let dependency = incident(n).dependency;
        let (mine, yours) =
            (owns(&seen_by_a, "a", &dependency), owns(&seen_by_b, "b", &dependency));
        assert!(mine != yours, "d{n} is somebody's, and nobody else's");
        shares[usize::from(yours)] += 1;
    }
    assert!(shares.iter().all(|share| *share >= 30), "{shares:?}");
    // One leaves: the other has it all.
    b.leave("b").await.unwrap();
    let alone = a.heartbeat("a").await.unwrap();
    assert!((0..100).all(|n| owns(&alone, "a", &incident(n).dependency)));
}
