//! Storage that fails: what is said of it, and how the record catches up.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use squall::store::{Backlog, FailureReason, IncidentQuery, Outbox as _, Reason, SqlStore, Store};
use tokio::process::Command;

use super::cluster::Cluster;
use super::example::{batch, incident, notification};
use squall::store::{Batch, Event};

/// Says to the child where it works; without it the child's test does nothing.
const DIRECTORY: &str = "SQUALL_TEST_FULL_DISK";

/// The limit of a file's size for the child, in blocks of 512 bytes: a megabyte.
const FILE_BLOCKS: u32 = 2000;

/// A child may write no file beyond a megabyte, which is how a full disk or a quota looks from
/// inside: the write fails. (A file system of its own would need the rights to mount it.)
#[tokio::test]
async fn a_full_disk_is_said_and_caught_up_with() {
    let directory = tempfile::tempdir().unwrap();
    let limits = format!("trap '' XFSZ; ulimit -S -f {FILE_BLOCKS}; exec \"$0\" \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limits])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "store::faults::child_on_a_full_disk", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let error = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("caught up"), "{said}\n{error}");
}

#[tokio::test]
async fn child_on_a_full_disk() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let store = SqlStore::sqlite(&directory).await.unwrap();
    let mut backlog = Backlog::new();
    let mut failed = None;
    let mut pushed = 0;
    while pushed < 2000 {
        backlog.push(Batch {
            notifications: vec![notification("hook", pushed, 1, Event::Firing)],
            ..batch(Reason::Opened, incident(pushed))
        });
        pushed += 1;
        if let Err(error) = backlog.flush(&store).await {
            failed = Some(error);
            break;
        }
    }
    let error = failed.expect("a megabyte is full before 2000 incidents");
    assert_eq!(error.reason(), FailureReason::Io, "{error:?}");
    // Detection goes on: batches are taken, and reading still works.
    for _ in 0..10 {
        backlog.push(batch(Reason::Opened, incident(pushed)));
        pushed += 1;
        backlog.flush(&store).await.unwrap_err();
    }
    assert_eq!(backlog.changes(), 11);
    assert!(!store.open_incidents().await.unwrap().is_empty());
    // Space again.
    let pid = std::process::id().to_string();
    let lifted =
        Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status().await.unwrap();
    assert!(lifted.success());
    backlog.flush(&store).await.unwrap();
    assert!(backlog.is_empty());
    let open = store.open_incidents().await.unwrap().len();
    assert_eq!(open, usize::try_from(pushed).unwrap());
    println!("caught up");
}

#[tokio::test]
async fn a_database_that_turns_read_only_or_dies_is_said_and_caught_up_with() {
    let cluster = Cluster::start().await;
    let url = cluster.database("faults").await;
    let store = SqlStore::postgres(&url).await.unwrap();
    let mut backlog = Backlog::new();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let mut set = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    };
    set("SET default_transaction_read_only = off").await;
    set("ALTER SYSTEM SET default_transaction_read_only = on").await;
    set("SELECT pg_reload_conf()").await;

    // The setting reaches a session between two of its statements; bounded by the test's limit.
    let mut number = 0;
    let error = loop {
        number += 1;
        assert!(number < 1000, "the database never turned read-only");
        backlog.push(batch(Reason::Opened, incident(number)));
        if let Err(error) = backlog.flush(&store).await {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(error.reason(), FailureReason::ReadOnly, "{error:?}");
    assert!(store.incidents(&IncidentQuery::default()).await.is_ok());

    set("ALTER SYSTEM SET default_transaction_read_only = off").await;
    set("SELECT pg_reload_conf()").await;
    for _ in 0..1000 {
        if backlog.flush(&store).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(backlog.is_empty());
    let open = store.open_incidents().await.unwrap().len();
    assert_eq!(open, usize::try_from(number).unwrap());

    drop(cluster);
    let store: Arc<dyn Store> = Arc::new(store);
    let error = store.save(&batch(Reason::Opened, incident(5000))).await.unwrap_err();
    let gone = [FailureReason::Unreachable, FailureReason::Timeout];
    assert!(gone.contains(&error.reason()), "{error:?}");
}

#[tokio::test]
async fn a_copy_of_a_store_in_use_is_whole_and_opens() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqlStore::sqlite(&directory.path().join("data")).await.unwrap());
    let new = |n| Batch {
        notifications: vec![notification("hook", n, 1, Event::Firing)],
        ..batch(Reason::Opened, incident(n))
    };
    for n in 0..50 {
        store.save(&new(n)).await.unwrap();
    }
    let writer = Arc::clone(&store);
    let writing = tokio::spawn(async move {
        for n in 50..300 {
            writer.save(&new(n)).await.unwrap();
        }
    });
    let copy = directory.path().join("copy").join("squall.db");
    std::fs::create_dir(directory.path().join("copy")).unwrap();
    store.backup(&copy).await.unwrap();
    writing.await.unwrap();

    let copied = SqlStore::sqlite(copy.parent().unwrap()).await.unwrap();
    let incidents = copied.open_incidents().await.unwrap().len();
    assert!((50..=300).contains(&incidents), "{incidents}");
    // Of one moment: each incident with its notification.
    let lanes = copied.lanes().await.unwrap();
    assert_eq!(usize::try_from(lanes[0].pending).unwrap(), incidents);
    assert_eq!(store.open_incidents().await.unwrap().len(), 300);
}
