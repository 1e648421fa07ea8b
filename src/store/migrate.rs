//! Forward-only schema changes, embedded in the program.
//!
//! All missing steps run in one transaction (both engines can roll back a `CREATE TABLE`), so a
//! process killed in the middle leaves the schema it found. There is no way back: an older squall
//! refuses a newer schema instead of guessing.

use super::StoreError;
use super::sql::{Database, Transaction};

/// The steps, in order; step `n` (from 1) leads to schema `n`. Only ever appended to.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/0001_record.sql"),
    include_str!("migrations/0002_outbox.sql"),
    include_str!("migrations/0003_replicas.sql"),
];

/// Brings the schema to the newest version.
pub(super) async fn migrate(database: &Database) -> Result<(), StoreError> {
    migrate_to(database, STEPS.len()).await
}

/// Brings the schema to version `target`; tests stop at every one of them.
pub(super) async fn migrate_to(database: &Database, target: usize) -> Result<(), StoreError> {
    let mut tx = database.begin("migrate").await?;
    tx.lock("schema").await?;
    tx.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)", &[])
        .await?;
    let found = version(&mut tx).await?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    for (number, step) in (1_i64..).zip(STEPS.iter().take(target)) {
        if number > found {
            tx.script(&dialect(database, step)).await?;
            tx.execute("INSERT INTO schema_version (version) VALUES ($1)", &[number.into()])
                .await?;
        }
    }
    tx.commit().await
}

async fn version(tx: &mut Transaction) -> Result<i64, StoreError> {
    let rows = tx.read("SELECT COALESCE(MAX(version), 0) FROM schema_version", &[]).await?;
    Ok(rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0))
}

/// Fills in the two words that the dialects do not share.
fn dialect(database: &Database, step: &str) -> String {
    let (serial, bytes) = match database {
        Database::Sqlite(_) => ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
        Database::Postgres(_) => ("BIGSERIAL PRIMARY KEY", "BYTEA"),
    };
    step.replace("@serial@", serial).replace("@bytes@", bytes)
}
