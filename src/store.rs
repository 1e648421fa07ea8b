//! The record: what was believed when, what was sent, and which replica does what.
//!
//! One [`Store`] trait, one conformance suite, two engines (SQLite embedded, PostgreSQL for more
//! than one replica). What must not be lost goes through [`Store::save`] in a single transaction:
//! incidents, their revisions and the notifications they cause. So a notification exists exactly
//! when the incident that caused it does, and both are durable before anything is sent.
//!
//! An incident is kept as its wire text beside the columns that are asked for. Columns for all of
//! it were the obvious way; they would make every new piece of evidence a migration.
//!
//! # Time
//!
//! Leases, retries and heartbeats are measured on the database's own clock, which the replicas
//! share. A replica whose clock is wrong by half a minute then still neither steals a lease nor
//! loses its own. Everything else carries the caller's `now`.
//!
//! # Saving again
//!
//! Saving the same batch twice changes nothing: revisions and notifications are keyed by their
//! content, and an incident older than the stored one is ignored. So after a failure the caller
//! may simply save again ([`Backlog`] does).

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::classify::{Class, Severity};
use crate::incident::{Feedback, Incident, IncidentId, State};
use crate::series::Timestamp;
use crate::wire::{IncidentJson, SeenBeforeJson};

mod backlog;
mod config;
mod export;
mod ledger;
mod migrate;
mod outbox;
mod postgres;
mod query;
mod record;
mod replicas;
mod sql;
mod sqlite;

pub use backlog::Backlog;
pub use config::{Config, Location, open};
pub use export::{csv_header, csv_row, json_line, labels_json};
pub use outbox::{
    Claim, Delivery, Event, Grouping, LaneSize, LastSent, MemoryOutbox, NewNotification,
    Notification, NotificationState, Outbox, Outcome,
};
pub use query::{Cursor, IncidentQuery, InvalidQuery, LIMIT_DEFAULT, LIMIT_MAX, Limit, Page};
pub use replicas::{MEMBER_TTL, owner, owns};
pub use sql::SqlStore;

/// The answer of a store, boxed so that the trait is object safe.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Why an incident is saved, in the words of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It is new.
    Opened,
    /// Its class became clear.
    Fired,
    /// What is believed of it changed.
    Revised,
    /// It is over.
    Resolved,
    /// It was taken up again.
    Reopened,
    /// It was found by replaying history, and was never live.
    Replayed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::Opened, Self::Fired, Self::Revised, Self::Resolved, Self::Reopened, Self::Replayed];

    /// The fixed name used in the ledger and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Fired => "fired",
            Self::Revised => "revised",
            Self::Resolved => "resolved",
            Self::Reopened => "reopened",
            Self::Replayed => "replayed",
        }
    }

    /// The reason with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// One incident as it is now, and why it is saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Why.
    pub reason: Reason,
    /// The incident. Its `feedback` is not saved: only [`Store::add_feedback`] writes that.
    pub incident: Incident,
}

/// What is kept around an incident besides its numbers: an opaque text or blob and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesAround {
    /// Whose it is.
    pub incident: IncidentId,
    /// What it is: `increments`, `model`, `correlogram`, `spectrum`.
    pub kind: String,
    /// When it was cut.
    pub at: Timestamp,
    /// The data, in the form its maker reads back.
    pub body: Vec<u8>,
}

/// Everything that becomes durable together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Incidents that changed.
    pub incidents: Vec<Saved>,
    /// The series around them.
    pub series: Vec<SeriesAround>,
    /// Notifications they cause.
    pub notifications: Vec<NewNotification>,
}

impl Batch {
    /// Whether there is nothing to save.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.incidents.is_empty() && self.series.is_empty() && self.notifications.is_empty()
    }
}

/// What was believed of an incident at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// The poll that made it.
    pub at: Timestamp,
    /// Why it was made.
    pub reason: Reason,
    /// The incident as it was believed then.
    pub incident: IncidentJson,
}

/// Whom to count in [`Store::offenders`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OffenderKind {
    /// The dependencies that suffered.
    Dependency,
    /// The clients whose schedule matched best.
    Client,
}

/// One line of the top offenders.
#[derive(Debug, Clone, PartialEq)]
pub struct Offender {
    /// The dependency or client.
    pub name: String,
    /// Incidents.
    pub incidents: u64,
    /// Requests above the baseline, in all of them.
    pub excess_requests: f64,
    /// The newest incident's start.
    pub last_at: Timestamp,
}

/// How often a class was right, from feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// The class that squall gave.
    pub class: Class,
    /// The start of the span counted.
    pub from: Timestamp,
    /// Incidents that a person said were right.
    pub right: u64,
    /// Incidents that a person judged.
    pub judged: u64,
}

/// The record of incidents.
pub trait Store: Outbox + fmt::Debug + Send + Sync + 'static {
    /// Makes the batch durable, all of it or nothing.
    fn save<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()>;

    /// One incident.
    fn incident<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Option<Incident>>;

    /// The incidents that are not resolved, oldest first: what a restart takes up again.
    fn open_incidents(&self) -> Answer<'_, Vec<Incident>>;

    /// One page, newest first.
    fn incidents<'a>(&'a self, query: &'a IncidentQuery) -> Answer<'a, Page>;

    /// What was believed of an incident, oldest first.
    fn revisions<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<Revision>>;

    /// The series around an incident, by kind.
    fn series<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<SeriesAround>>;

    /// Writes what a person said; false when there is no such incident.
    fn add_feedback<'a>(&'a self, id: &'a IncidentId, feedback: &'a Feedback) -> Answer<'a, bool>;

    /// Everything people said of an incident, oldest first.
    fn feedback<'a>(&'a self, id: &'a IncidentId) -> Answer<'a, Vec<Feedback>>;

    /// Earlier incidents of the same dependency and schedule.
    fn seen_before<'a>(&'a self, incident: &'a Incident) -> Answer<'a, SeenBeforeJson>;

    /// Who caused or suffered the most incidents in `[from, to)`, worst first.
    fn offenders(
        &self,
        by: OffenderKind,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Offender>>;

    /// Right over judged for each class in each span of `step` in `[from, to)`.
    fn precision(
        &self,
        from: Timestamp,
        to: Timestamp,
        step: Duration,
    ) -> Answer<'_, Vec<Precision>>;

    /// How many incidents there are of each class and state.
    fn counts(&self) -> Answer<'_, Vec<(Class, State, u64)>>;

    /// Deletes what ended before `cutoff`; returns the number of incidents.
    fn forget_before(&self, cutoff: Timestamp) -> Answer<'_, u64>;

    /// Makes something durable that nobody reads: whether storage takes writes shows before there
    /// is something to lose.
    fn probe(&self) -> Answer<'_, ()>;

    /// Says that this replica lives; returns the live ones, itself among them, sorted by name.
    fn heartbeat<'a>(&'a self, replica: &'a str) -> Answer<'a, Vec<String>>;

    /// Takes this replica out of the list, on an orderly stop.
    fn leave<'a>(&'a self, replica: &'a str) -> Answer<'a, ()>;

    /// Writes a copy of a running SQLite store to `path`; other engines have their own tools.
    fn backup<'a>(&'a self, path: &'a std::path::Path) -> Answer<'a, ()>;
}

/// Why a store could not answer.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The database refused or broke a statement.
    #[error("cannot {operation} in the {engine} store")]
    Database {
        /// What was being done.
        operation: &'static str,
        /// Which engine.
        engine: &'static str,
        /// What the driver says.
        #[source]
        cause: sqlx::Error,
    },
    /// The store was written by a later squall.
    #[error("the store has schema {found}, and this squall knows up to {known}")]
    NewerSchema {
        /// The schema found.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// A stored row cannot be read back.
    #[error("cannot read back `{column}` of `{row}`")]
    Decode {
        /// The column.
        column: &'static str,
        /// The row's key.
        row: String,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The directory of the store cannot be made or used.
    #[error("cannot use the storage path `{path}`")]
    Path {
        /// The path.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The engine has no such operation.
    #[error("the {engine} store cannot {operation}")]
    Unsupported {
        /// What was asked for.
        operation: &'static str,
        /// Which engine.
        engine: &'static str,
    },
}

/// The closed set of reasons why storage fails: metric label, log field, retry decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureReason {
    /// No connection.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// Locked by somebody else.
    Busy,
    /// The storage takes no writes.
    ReadOnly,
    /// No space left.
    Full,
    /// The disk refuses: it is broken, a quota is used up, or its file system turned read-only.
    Io,
    /// The file is damaged or no database.
    Corrupt,
    /// The schema is newer than this program.
    NewerSchema,
    /// A row cannot be read back.
    Decode,
    /// Anything else.
    Other,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Busy,
        Self::ReadOnly,
        Self::Full,
        Self::Io,
        Self::Corrupt,
        Self::NewerSchema,
        Self::Decode,
        Self::Other,
    ];

    /// The fixed name used in metrics, logs and `/-/ready`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::NewerSchema => "newer_schema",
            Self::Decode => "decode",
            Self::Other => "other",
        }
    }
}

impl StoreError {
    /// Why, as a closed set.
    #[must_use]
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Database { cause, .. } => sql::reason_of(cause),
            Self::NewerSchema { .. } => FailureReason::NewerSchema,
            Self::Decode { .. } => FailureReason::Decode,
            Self::Path { cause, .. } => match cause.kind() {
                std::io::ErrorKind::StorageFull => FailureReason::Full,
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                    FailureReason::ReadOnly
                }
                _ => FailureReason::Other,
            },
            Self::Unsupported { .. } => FailureReason::Other,
        }
    }
}

/// What a class and severity are called beside an incident in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The class that was told.
    pub class: Class,
    /// The severity that was told.
    pub severity: Severity,
}
