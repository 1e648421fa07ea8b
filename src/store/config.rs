//! Where the record is kept, and for how long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{SqlStore, Store, StoreError};

/// The path when none is given, as Prometheus names it.
const PATH_DEFAULT: &str = "data/";

/// Incidents are few and small; thirteen months let a yearly event be compared with its last time.
const RETENTION_DEFAULT: Duration = Duration::from_secs(400 * 24 * 3600);

/// Where the record is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// SQLite in this directory.
    Directory(PathBuf),
    /// PostgreSQL at this address.
    Url(String),
    /// PostgreSQL at the address in this file.
    UrlFile(PathBuf),
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "Directory({})", path.display()),
            // The address may hold a password.
            Self::Url(_) => f.write_str("Url(<secret>)"),
            Self::UrlFile(path) => write!(f, "UrlFile({})", path.display()),
        }
    }
}

/// The record in its running form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where.
    pub location: Location,
    /// How long resolved incidents are kept.
    pub retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            location: Location::Directory(PathBuf::from(PATH_DEFAULT)),
            retention: RETENTION_DEFAULT,
        }
    }
}

/// Opens the record and brings its schema up to date.
///
/// # Errors
///
/// When the place cannot be used, see [`StoreError`].
pub async fn open(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    let store = match &config.location {
        Location::Directory(path) => SqlStore::sqlite(path).await?,
        Location::Url(url) => SqlStore::postgres(url).await?,
        Location::UrlFile(file) => {
            let url = tokio::fs::read_to_string(file)
                .await
                .map_err(|cause| StoreError::Path { path: file.display().to_string(), cause })?;
            SqlStore::postgres(url.trim()).await?
        }
    };
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let location = Location::Url("postgres://squall:hunter2@db/squall".to_owned());
        let config = Config { location, ..Config::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
