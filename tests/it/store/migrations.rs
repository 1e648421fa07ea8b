//! A store of every schema that ever was opens, keeps its rows, and works.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use squall::store::{Event, FailureReason, Reason, SqlStore, Store, StoreError};

use super::cluster::Cluster;
use super::example::{batch, incident, notification};

/// The migration files, in order, as text.
pub(super) fn steps() -> Vec<String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir("src/store/migrations")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// What a squall of schema `version` left behind, with one row in it.
fn old_store(version: usize, serial: &str, bytes: &str) -> String {
    let mut script = "CREATE TABLE schema_version (version BIGINT PRIMARY KEY);\n".to_owned();
    for (number, step) in steps().iter().take(version).enumerate() {
        script.push_str(&step.replace("@serial@", serial).replace("@bytes@", bytes));
        script.push_str(&format!("INSERT INTO schema_version VALUES ({});\n", number + 1));
    }
    if version >= 1 {
        let body = include_str!("../../golden/record/incident.json").replace('\'', "''");
        script.push_str(&format!(
            "INSERT INTO incidents (id, source, watch, labels, dependency, class, state, \
             severity, opened_at, started_at, updated_at, summary, excess_requests, body) VALUES \
             ('5f0c9e1b2a7d4c38', 'main', 'http', '', 'payments', 'backoff-without-jitter', \
             'firing', 'critical', 1, 1, 1, '', 0, '{body}');\n"
        ));
    }
    script
}

async fn works(store: Arc<dyn Store>, version: usize) {
    let open = store.open_incidents().await.unwrap();
    assert_eq!(open.len(), usize::from(version >= 1), "schema {version}");
    let mut new = batch(Reason::Opened, incident(1));
    new.notifications = vec![notification("hook", 1, 1, Event::Firing)];
    store.save(&new).await.unwrap();
    assert_eq!(store.open_incidents().await.unwrap().len(), open.len() + 1);
    assert_eq!(store.heartbeat("me").await.unwrap(), ["me"]);
}

async fn sqlite_with(file: &Path, script: String) {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Makes a file as a squall of schema `version` left it.
pub(super) async fn old_sqlite(file: &Path, version: usize) {
    let script = old_store(version, "INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB");
    sqlite_with(file, script).await;
}

#[tokio::test]
async fn every_sqlite_schema_moves_forward() {
    for version in 0..=steps().len() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("squall.db");
        old_sqlite(&file, version).await;
        works(Arc::new(SqlStore::sqlite_file(&file).await.unwrap()), version).await;
        // And a second start finds nothing to do.
        SqlStore::sqlite_file(&file).await.unwrap();
    }
}

#[tokio::test]
async fn every_postgresql_schema_moves_forward() {
    let cluster = Cluster::start().await;
    for version in 0..=steps().len() {
        let url = cluster.database(&format!("schema_{version}")).await;
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let script = old_store(version, "BIGSERIAL PRIMARY KEY", "BYTEA");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.unwrap();
        // Two replicas that start at once: one of them migrates.
        let (one, two) = tokio::join!(SqlStore::postgres(&url), SqlStore::postgres(&url));
        two.unwrap();
        works(Arc::new(one.unwrap()), version).await;
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("squall.db");
    let script = "CREATE TABLE schema_version (version BIGINT PRIMARY KEY); \
                  INSERT INTO schema_version VALUES (999);";
    sqlite_with(&file, script.to_owned()).await;
    let error = SqlStore::sqlite_file(&file).await.unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 999, .. }), "{error}");
    assert_eq!(error.reason(), FailureReason::NewerSchema);
    let known = steps().len();
    let text = format!("the store has schema 999, and this squall knows up to {known}");
    assert_eq!(error.to_string(), text);
}
