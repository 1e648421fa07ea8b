//! Storage that fails: what is said of it, and how the record catches up.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use squall::store::{Backlog, FailureReason, IncidentQuery, Reason, SqlStore, Store};

use super::cluster::Cluster;
use super::example::{batch, incident};

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
