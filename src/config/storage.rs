//! The `storage` section: where the record is kept, and for how long.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::rules::spanned::{Faults, Fields, Node};

use super::Secret;
use super::prometheus::duration_in;

/// Where the record is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageConfig {
    /// The engine: `path`, a folder for SQLite, or `url`, a PostgreSQL. Default: `path: data/`.
    pub engine: Engine,
    /// How long incidents are kept after they ended, `1d` to `100y`. Default: `400d`.
    pub retention: Duration,
}

/// Which database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// SQLite in this folder.
    Sqlite(PathBuf),
    /// PostgreSQL at this address, which may hold a password.
    Postgres(Secret),
}

/// Folder of the record when none is given, beside where the daemon was started, as in Prometheus.
pub(crate) const STORAGE_PATH: &str = "data/";
const DAY: Duration = Duration::from_secs(86_400);
/// A little over a year, so that "did we have this at last year's sale?" has an answer.
const RETENTION: Duration = Duration::from_secs(400 * 86_400);
/// Bounds of the retention.
const RETENTION_RANGE: [Duration; 2] = [DAY, Duration::from_secs(100 * 365 * 86_400)];

impl Default for StorageConfig {
    fn default() -> Self {
        Self { engine: Engine::Sqlite(PathBuf::from(STORAGE_PATH)), retention: RETENTION }
    }
}

/// Reads the section.
pub(crate) fn read(node: &Node, folder: &Path, faults: &Faults) -> StorageConfig {
    let default = StorageConfig::default();
    let Some(mut fields) = Fields::open(node, "storage", faults) else { return default };
    let path = fields.text("path");
    let url = Secret::take(&mut fields, "url", "url_file", folder);
    if path.is_some() && url.is_some() {
        fields.fault("url", "give `path` or `url`, not both");
    }
    if let Some(Secret::Inline(text)) = &url
        && !text.starts_with("postgres://")
        && !text.starts_with("postgresql://")
    {
        fields.fault("url", "must begin with postgres://");
    }
    let retention = duration_in(&mut fields, "retention", RETENTION_RANGE).unwrap_or(RETENTION);
    fields.finish();
    let engine = match (path, url) {
        (_, Some(url)) => Engine::Postgres(url),
        // Not relative to the file: the record is the daemon's, not the configuration's.
        (Some(path), None) => Engine::Sqlite(PathBuf::from(path)),
        (None, None) => default.engine,
    };
    StorageConfig { engine, retention }
}
