//! Kills at random instants over a scripted record: nothing is lost, nothing doubled.
//!
//! `make kills` kills five hundred times over a week; the tests do it often enough to notice.
//!
//! The test binary runs itself as the victim. A victim takes the script up where the record says
//! that the last one died, saves its steps, and sends what the outbox holds to a file. Whatever was
//! killed, the record must in the end hold every incident once with every revision, and the file
//! every notification at least once, under its own key, in order.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::{RngExt as _, SeedableRng as _};
use squall::incident::{Incident, IncidentId, State};
use squall::notify::{
    Http, Kind, Message, NoMeter, Notifier, NotifyError, Now, Planner, Receiver, Route, Secret,
    Settings, Worker,
};
use squall::store::{Backlog, Batch, IncidentQuery, Outbox, Reason, SqlStore, Store};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::example::{incident, resolved};
use super::migrations;

/// Kills unless `SQUALL_TEST_KILLS` says otherwise; every fifth hits a store that is just being
/// made, or moved on from an old schema.
const KILLS: u32 = 80;

/// Incidents for each kill, with three steps each: long enough that the last kills still find work
/// under way. Five hundred kills make a week of one every five minutes.
const INCIDENTS_PER_KILL: u32 = 4;

/// The longest life of a victim, in milliseconds after its start.
const LIFE_MAX: u64 = 150;

/// The seed unless `SQUALL_TEST_SEED` says otherwise.
const SEED: u64 = 20_261_130;

/// Says to the victim where it works; without it the victim's test does nothing.
const DIRECTORY: &str = "SQUALL_TEST_VICTIM";

fn number(name: &str, usual: u64) -> u64 {
    let text = squall::config::environment(name);
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

fn kills() -> u32 {
    u32::try_from(number("SQUALL_TEST_KILLS", u64::from(KILLS))).unwrap()
}

/// The victim reads the same environment, so that both have the same script.
fn incidents() -> u32 {
    kills() * INCIDENTS_PER_KILL
}

fn receiver() -> Receiver {
    Receiver {
        name: "file".to_owned(),
        route: Route::default(),
        settings: Settings::Webhook {
            url: Secret::Inline(String::new()),
            secret: None,
            http: Http::plain().unwrap(),
        },
    }
}

/// Writes each message as one line: key, incident, event.
struct ToFile(PathBuf);

impl fmt::Debug for ToFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToFile")
    }
}

impl Notifier for ToFile {
    fn name(&self) -> &'static str {
        "file"
    }

    fn kind(&self) -> Kind {
        Kind::Webhook
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let mut line = message.key.clone();
            for told in &message.told {
                line.push_str(&format!(" {}:{}", told.incident.id, told.event.as_str()));
            }
            line.push('\n');
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
            file.write_all(line.as_bytes()).unwrap();
            Ok(())
        })
    }
}

/// Step `k` of the script.
fn step(k: u32) -> (Reason, Incident) {
    // Five minutes apart in their causes, so that every page is of one incident.
    let n = k / 3 * 5;
    match k % 3 {
        0 => (Reason::Fired, incident(n)),
        1 => {
            let mut revised = incident(n);
            revised.updated_at = revised.updated_at.plus_seconds(15.0);
            (Reason::Revised, revised)
        }
        _ => (Reason::Resolved, resolved(n)),
    }
}

/// The first step that is not in the record.
async fn next_step(store: &SqlStore) -> u32 {
    let newest = IncidentQuery::default().with_limit(1).unwrap();
    let page = store.incidents(&newest).await.unwrap();
    let Some(last) = page.incidents.first() else { return 0 };
    // What an old store held before is older than the script.
    let Some(n) = last.id.0.strip_prefix("incident-") else { return 0 };
    let n: u32 = n.parse().unwrap();
    let steps = u32::try_from(store.revisions(&last.id).await.unwrap().len()).unwrap();
    n / 5 * 3 + steps
}

async fn run_script(store: Arc<SqlStore>) {
    let mut planner = Planner::new(&[receiver()]);
    let mut backlog = Backlog::new();
    for k in next_step(&store).await..incidents() * 3 {
        let (reason, incident) = step(k);
        let now = incident.updated_at;
        let mut notifications =
            planner.plan(store.as_ref(), std::slice::from_ref(&incident), now).await;
        for new in &mut notifications {
            new.hold = Duration::ZERO;
        }
        backlog.push(Batch { notifications, ..super::example::batch(reason, incident) });
        backlog.flush(store.as_ref()).await.unwrap();
    }
}

#[tokio::test]
async fn victim() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let store = Arc::new(SqlStore::sqlite(&directory).await.unwrap());
    let now: Now = Arc::new(|| super::example::START);
    let file = ToFile(directory.join("received"));
    let owner = format!("victim-{}", std::process::id());
    let outbox: Arc<dyn Outbox> = store.clone();
    let worker = Worker::new(outbox, Arc::new(file), &owner, now, Arc::new(NoMeter));
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker.run(stop.clone()));
    run_script(store.clone()).await;
    while !store.lanes().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    working.await.unwrap();
}

fn spawn(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::kill::victim", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn kills_lose_and_double_nothing() {
    let (kills, seed) = (kills(), number("SQUALL_TEST_SEED", SEED));
    println!("{kills} kills, seed {seed}");
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let schemas = migrations::steps().len();
    let mut too_late = 0;
    for kill in 0..kills {
        let fresh = (kill % 5 == 4).then(|| tempfile::tempdir().unwrap());
        let version = kill as usize / 5 % (schemas + 1);
        if let Some(fresh) = &fresh {
            migrations::old_sqlite(&fresh.path().join("squall.db"), version).await;
        }
        let place = fresh.as_ref().map_or(directory.path(), tempfile::TempDir::path);
        let life = if fresh.is_some() { LIFE_MAX / 3 } else { LIFE_MAX };
        let mut victim = spawn(place);
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..life))).await;
        victim.start_kill().ok();
        let ended = victim.wait_with_output().await.unwrap();
        // Killed, or done; never a panic, which would be code 101.
        assert_ne!(
            ended.status.code(),
            Some(101),
            "kill {kill}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        too_late += u32::from(ended.status.success());
        if fresh.is_some() {
            // Whatever the kill left of a store being made or moved on, it opens, with its rows.
            let store = SqlStore::sqlite(place).await.unwrap();
            let old = IncidentId("5f0c9e1b2a7d4c38".to_owned());
            let kept = store.incident(&old).await.unwrap();
            assert_eq!(kept.is_some(), version >= 1, "kill {kill}, schema {version}");
        }
    }
    assert!(too_late < kills.div_ceil(10), "{too_late} of {kills} kills came after the end");
    let last = spawn(directory.path()).wait_with_output().await.unwrap();
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
    check(directory.path()).await;
}

async fn check(directory: &Path) {
    let store = SqlStore::sqlite(directory).await.unwrap();
    let mut query = IncidentQuery::default().with_limit(1000).unwrap();
    let mut found = 0;
    loop {
        let page = store.incidents(&query).await.unwrap();
        for incident in &page.incidents {
            assert_eq!(incident.state, State::Resolved, "{}", incident.id);
            let reasons: Vec<Reason> =
                store.revisions(&incident.id).await.unwrap().iter().map(|r| r.reason).collect();
            let expected = [Reason::Fired, Reason::Revised, Reason::Resolved];
            assert_eq!(reasons, expected, "{}", incident.id);
            found += 1;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, incidents());
    assert_eq!(store.lanes().await.unwrap(), []);

    // Every page arrived, under one key each, in the order of the script.
    let received = std::fs::read_to_string(directory.join("received")).unwrap();
    let mut keys: HashMap<&str, &str> = HashMap::new();
    let mut first_times = Vec::new();
    for line in received.lines() {
        let (key, told) = line.split_once(' ').unwrap();
        assert_eq!(key.len(), 32, "a key on every page: {line}");
        if let Some(before) = keys.insert(key, told) {
            assert_eq!(before, told, "one key, one message");
        } else {
            first_times.push(told.to_owned());
        }
    }
    let expected: Vec<String> = (0..incidents())
        .flat_map(|n| {
            let id = incident(n * 5).id;
            [format!("{id}:firing"), format!("{id}:resolved")]
        })
        .collect();
    assert_eq!(first_times, expected);
    let doubled = received.lines().count() - expected.len();
    println!("{doubled} of {} pages arrived twice, each under its own key", expected.len());
}
