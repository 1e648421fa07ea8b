//! One thin layer over the two drivers, so that every statement is written once.
//!
//! The statements are the common part of both dialects (`$1` parameters, `ON CONFLICT`, `RETURNING`);
//! what differs stands in this file, `migrate.rs`, and the two openers. sqlx's `Any` driver is the
//! obvious tool; it hides neither the clock nor the locks, which are what differs here, and knows
//! fewer types. Being generic over `sqlx::Database` would repeat a dozen bounds at every function.

use std::fmt;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, Postgres, Row as _, Sqlite};

use super::{FailureReason, StoreError};

/// The store over SQLite or PostgreSQL.
#[derive(Clone)]
pub struct SqlStore {
    pub(super) database: Database,
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("engine", &self.database.engine()).finish()
    }
}

/// A pool of one of the engines.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// A write transaction; dropped without `commit` it rolls back.
pub(super) struct Transaction {
    inner: Inner,
    operation: &'static str,
}

enum Inner {
    // Not sqlx's transaction: a failed write makes SQLite roll back by itself, after which sqlx
    // counts one transaction too many on the connection and never starts another. The pool rolls
    // back what is still open when a connection returns to it (see `sqlite.rs`).
    Sqlite(PoolConnection<Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

/// A parameter of a statement. The type is stated for `NULL` too: PostgreSQL asks for it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Int(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}
impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(Some(value))
    }
}
impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        Self::Float(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}
impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}
impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}
impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

/// One row of an answer, read by position.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        pub(super) fn $name(&self, column: usize) -> Result<$type, sqlx::Error> {
            match self {
                Self::Sqlite(row) => row.try_get(column),
                Self::Postgres(row) => row.try_get(column),
            }
        }
    };
}

impl Row {
    getter!(
        /// A whole number.
        int, i64);
    getter!(
        /// A whole number or `NULL`.
        int_or_null, Option<i64>);
    getter!(
        /// A number.
        float, f64);
    getter!(
        /// A text.
        text, String);
    getter!(
        /// A text or `NULL`.
        text_or_null, Option<String>);
    getter!(
        /// A blob.
        bytes, Vec<u8>);
}

macro_rules! bind_all {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match value {
                Value::Int(value) => query.bind(*value),
                Value::Float(value) => query.bind(*value),
                Value::Text(value) => query.bind(value.clone()),
                Value::Bytes(value) => query.bind(value.clone()),
            };
        }
        query
    }};
}

impl Database {
    /// The engine's name, as errors and metrics say it.
    pub(super) const fn engine(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgresql",
        }
    }

    /// The SQL expression for the database's own time, in Unix milliseconds.
    pub(super) const fn clock(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "CAST(unixepoch('subsec') * 1000 AS BIGINT)",
            Self::Postgres(_) => "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Wraps a driver's error with what was being done.
    pub(super) fn error(&self, operation: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
        let engine = self.engine();
        move |cause| StoreError::Database { operation, engine, cause }
    }

    /// Reads rows outside any transaction.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let rows = match self {
            Self::Sqlite(pool) => bind_all!(sqlx::query::<Sqlite>(AssertSqlSafe(sql)), values)
                .fetch_all(pool)
                .await
                .map(|rows| rows.into_iter().map(Row::Sqlite).collect()),
            Self::Postgres(pool) => bind_all!(sqlx::query::<Postgres>(AssertSqlSafe(sql)), values)
                .fetch_all(pool)
                .await
                .map(|rows| rows.into_iter().map(Row::Postgres).collect()),
        };
        rows.map_err(self.error(operation))
    }

    /// Starts a write transaction. SQLite takes the write lock at once: a transaction that reads
    /// first and writes later could otherwise fail in the middle, with nothing to do but redo it.
    pub(super) async fn begin(&self, operation: &'static str) -> Result<Transaction, StoreError> {
        let inner = match self {
            Self::Sqlite(pool) => begin_immediate(pool).await.map(Inner::Sqlite),
            Self::Postgres(pool) => pool.begin().await.map(Inner::Postgres),
        };
        Ok(Transaction { inner: inner.map_err(self.error(operation))?, operation })
    }
}

impl Transaction {
    fn error(&self) -> impl Fn(sqlx::Error) -> StoreError + use<> {
        let operation = self.operation;
        let engine = match self.inner {
            Inner::Sqlite(_) => "sqlite",
            Inner::Postgres(_) => "postgresql",
        };
        move |cause| StoreError::Database { operation, engine, cause }
    }

    /// Runs a statement; returns the rows it touched.
    pub(super) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let error = self.error();
        let done = match &mut self.inner {
            Inner::Sqlite(tx) => bind_all!(sqlx::query::<Sqlite>(AssertSqlSafe(sql)), values)
                .execute(&mut **tx)
                .await
                .map(|done| done.rows_affected()),
            Inner::Postgres(tx) => bind_all!(sqlx::query::<Postgres>(AssertSqlSafe(sql)), values)
                .execute(&mut **tx)
                .await
                .map(|done| done.rows_affected()),
        };
        done.map_err(error)
    }

    /// Runs a statement that answers with rows.
    pub(super) async fn read(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let error = self.error();
        let rows = match &mut self.inner {
            Inner::Sqlite(tx) => bind_all!(sqlx::query::<Sqlite>(AssertSqlSafe(sql)), values)
                .fetch_all(&mut **tx)
                .await
                .map(|rows| rows.into_iter().map(Row::Sqlite).collect()),
            Inner::Postgres(tx) => bind_all!(sqlx::query::<Postgres>(AssertSqlSafe(sql)), values)
                .fetch_all(&mut **tx)
                .await
                .map(|rows| rows.into_iter().map(Row::Postgres).collect()),
        };
        rows.map_err(error)
    }

    /// Runs several statements without parameters, for migrations.
    pub(super) async fn script(&mut self, sql: &str) -> Result<(), StoreError> {
        let error = self.error();
        let done = match &mut self.inner {
            Inner::Sqlite(tx) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await.map(drop)
            }
            Inner::Postgres(tx) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await.map(drop)
            }
        };
        done.map_err(error)
    }

    /// Lets one transaction at a time hold `name`, until it ends. SQLite has one writer anyway.
    pub(super) async fn lock(&mut self, name: &str) -> Result<(), StoreError> {
        if matches!(self.inner, Inner::Sqlite(_)) {
            return Ok(());
        }
        let sql = "SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended($1, 0))) AS held";
        self.read(sql, &[format!("squall {name}").into()]).await.map(drop)
    }

    /// Makes it durable.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let error = self.error();
        match self.inner {
            Inner::Sqlite(mut tx) => {
                sqlx::query::<Sqlite>("COMMIT").execute(&mut *tx).await.map(drop)
            }
            Inner::Postgres(tx) => tx.commit().await,
        }
        .map_err(error)
    }
}

async fn begin_immediate(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    sqlx::query::<Sqlite>("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    Ok(connection)
}

/// Why a driver's error happened, as a closed set.
pub(super) fn reason_of(error: &sqlx::Error) -> FailureReason {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => {
            FailureReason::Unreachable
        }
        sqlx::Error::WorkerCrashed => FailureReason::Unreachable,
        sqlx::Error::PoolTimedOut => FailureReason::Timeout,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => FailureReason::Decode,
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                sqlite_reason(&code)
            } else {
                postgres_reason(&code)
            }
        }
        _ => FailureReason::Other,
    }
}

/// SQLite gives the extended result code; its low byte is the kind.
fn sqlite_reason(code: &str) -> FailureReason {
    let Ok(code) = code.parse::<u32>() else { return FailureReason::Other };
    match code & 0xff {
        5 | 6 => FailureReason::Busy,
        8 => FailureReason::ReadOnly,
        // A quota, a broken disk and a file system that turned read-only all look like this.
        10 => FailureReason::Io,
        11 | 26 => FailureReason::Corrupt,
        13 => FailureReason::Full,
        14 => FailureReason::Unreachable,
        _ => FailureReason::Other,
    }
}

/// The SQLSTATE classes of the PostgreSQL manual, appendix A.
fn postgres_reason(code: &str) -> FailureReason {
    match code {
        "53100" => FailureReason::Full,
        "25006" => FailureReason::ReadOnly,
        "57014" => FailureReason::Timeout,
        "40001" | "40P01" | "55P03" => FailureReason::Busy,
        "XX001" | "XX002" => FailureReason::Corrupt,
        _ if code.starts_with("08") || code.starts_with("57P") || code == "53300" => {
            FailureReason::Unreachable
        }
        _ => FailureReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_codes_have_their_reasons() {
        let check = |code: &str, reason| assert_eq!(sqlite_reason(code), reason, "{code}");
        check("13", FailureReason::Full);
        check("778", FailureReason::Io);
        check("8", FailureReason::ReadOnly);
        check("1032", FailureReason::ReadOnly);
        check("5", FailureReason::Busy);
        check("517", FailureReason::Busy);
        check("26", FailureReason::Corrupt);
        let check = |code: &str, reason| assert_eq!(postgres_reason(code), reason, "{code}");
        check("53100", FailureReason::Full);
        check("25006", FailureReason::ReadOnly);
        check("57P01", FailureReason::Unreachable);
        check("08006", FailureReason::Unreachable);
        check("42P01", FailureReason::Other);
    }
}
