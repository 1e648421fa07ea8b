//! The shared store: PostgreSQL, for more than one replica and for records that outgrow a file.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::sql::{Database, SqlStore};
use super::{StoreError, migrate};

/// Connections of one replica: the pipeline, the receivers' lanes, and a few pages at once.
const CONNECTIONS: u32 = 8;

/// How long a caller waits for a connection: shorter than a poll, so that a dead database shows
/// itself as such and not as a late poll.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

impl SqlStore {
    /// Connects to the database at `url` (`postgres://user:password@host/name`).
    ///
    /// # Errors
    ///
    /// When the address is wrong, the server does not answer, or its schema is newer.
    pub async fn postgres(url: &str) -> Result<Self, StoreError> {
        let database = Self::postgres_pool(url).await?;
        migrate::migrate(&database).await?;
        Ok(Self { database })
    }

    /// Connects without bringing the schema up to date.
    pub(super) async fn postgres_pool(url: &str) -> Result<Database, StoreError> {
        let failed =
            |cause| StoreError::Database { operation: "connect", engine: "postgresql", cause };
        let options = url.parse::<PgConnectOptions>().map_err(failed)?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.application_name("squall"))
            .await
            .map_err(failed)?;
        Ok(Database::Postgres(pool))
    }
}
