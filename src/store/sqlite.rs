//! The embedded store: one SQLite file in the storage path.
//!
//! Write-ahead log, so that readers never wait for the writer; `synchronous = FULL`, so that a
//! commit survives the loss of power and not only of the process (the usual `NORMAL` of the
//! write-ahead log may lose the last commits, and with them a page that was promised).

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::sql::{Database, SqlStore};
use super::{StoreError, migrate};

/// The file's name inside the storage path.
pub(super) const FILE_NAME: &str = "squall.db";

/// How long a statement waits for another process that holds the file, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections: one writes at a time, the others serve pages and exports.
const CONNECTIONS: u32 = 4;

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool in which no connection is ever handed out inside somebody else's transaction.
fn pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT).after_release(|connection, _| {
        Box::pin(async move {
            // Fails when nothing is open, which is the common case and no error.
            sqlx::query("ROLLBACK").execute(connection).await.ok();
            Ok(true)
        })
    })
}

fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .create_if_missing(true)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .synchronous(SqliteSynchronous::Full)
}

impl SqlStore {
    /// Opens the store in `directory`, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, the file cannot be opened, or its schema is newer.
    pub async fn sqlite(directory: &Path) -> Result<Self, StoreError> {
        tokio::fs::create_dir_all(directory)
            .await
            .map_err(|cause| StoreError::Path { path: directory.display().to_string(), cause })?;
        Self::sqlite_file(&directory.join(FILE_NAME)).await
    }

    /// Opens the store in one file.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or its schema is newer.
    pub async fn sqlite_file(file: &Path) -> Result<Self, StoreError> {
        let database = Self::sqlite_pool(file).await?;
        migrate::migrate(&database).await?;
        Ok(Self { database })
    }

    /// Connects to a file without bringing its schema up to date.
    pub(super) async fn sqlite_pool(file: &Path) -> Result<Database, StoreError> {
        let options = options().filename(file).journal_mode(SqliteJournalMode::Wal);
        let pool =
            pool().max_connections(CONNECTIONS).connect_with(options).await.map_err(|cause| {
                StoreError::Database { operation: "open the file", engine: "sqlite", cause }
            })?;
        Ok(Database::Sqlite(pool))
    }

    /// Opens an empty store in memory, which ends with the value.
    ///
    /// # Errors
    ///
    /// When SQLite cannot start.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // Each connection to `:memory:` is a database of its own, so there is exactly one, forever.
        let pool = pool()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options().in_memory(true))
            .await
            .map_err(|cause| StoreError::Database {
                operation: "open the memory",
                engine: "sqlite",
                cause,
            })?;
        let database = Database::Sqlite(pool);
        migrate::migrate(&database).await?;
        Ok(Self { database })
    }
}
