//! Where the record is kept, and for how long.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::{SqlStore, Store, StoreError};

/// The path when none is given, as Prometheus names it.
const PATH_DEFAULT: &str = "data/";

/// Incidents are few and small; thirteen months let a yearly event be compared with its last time.
const RETENTION_DEFAULT: Duration = Duration::from_secs(400 * 24 * 3600);

/// A retention under this would delete incidents that are still being talked about.
const RETENTION_MIN: Duration = Duration::from_secs(3600);

/// `storage` in the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// The directory of the SQLite store.
    pub path: Option<PathBuf>,
    /// The address of a PostgreSQL store; takes the place of `path`.
    pub url: Option<String>,
    /// A file that holds the address, for one with a password in it.
    pub url_file: Option<PathBuf>,
    /// How long resolved incidents are kept.
    pub retention: Option<String>,
}

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

/// A fault of `storage` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {fault}")]
pub struct InvalidConfig {
    /// The key, inside `storage`.
    pub key: &'static str,
    /// What is wrong with it.
    pub fault: String,
}

impl ConfigFile {
    /// The running form, with `path` of the command line over that of the file.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn resolve(self, path: Option<&Path>) -> Result<Config, Vec<InvalidConfig>> {
        let mut faults = Vec::new();
        let mut fault =
            |key, text: &str| faults.push(InvalidConfig { key, fault: text.to_owned() });
        let location = match (self.url, self.url_file) {
            (Some(_), Some(_)) => {
                fault("url_file", "give `url` or `url_file`, not both");
                None
            }
            (Some(url), None)
                if !url.starts_with("postgres://") && !url.starts_with("postgresql://") =>
            {
                fault("url", "must start with `postgres://`; for SQLite give `path`");
                None
            }
            (Some(url), None) => Some(Location::Url(url)),
            (None, Some(file)) => Some(Location::UrlFile(file)),
            (None, None) => {
                let path = path.map(Path::to_path_buf).or(self.path);
                Some(Location::Directory(path.unwrap_or_else(|| PathBuf::from(PATH_DEFAULT))))
            }
        };
        let retention = match self.retention.as_deref().map(crate::wire::parse_duration) {
            None => RETENTION_DEFAULT,
            Some(Some(retention)) if retention >= RETENTION_MIN => retention,
            Some(Some(_)) => {
                fault("retention", "must be at least 1h");
                RETENTION_DEFAULT
            }
            Some(None) => {
                fault("retention", "must be a duration such as `400d` or `1h30m`");
                RETENTION_DEFAULT
            }
        };
        match location {
            Some(location) if faults.is_empty() => Ok(Config { location, retention }),
            _ => Err(faults),
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

    fn resolve(yaml: &str) -> Result<Config, Vec<InvalidConfig>> {
        serde_yaml::from_str::<ConfigFile>(yaml).unwrap().resolve(None)
    }

    #[test]
    fn defaults_are_sqlite_in_data_for_thirteen_months() {
        let config = ConfigFile::default().resolve(None).unwrap();
        assert_eq!(config, Config::default());
        let over = ConfigFile::default().resolve(Some(Path::new("x"))).unwrap();
        assert_eq!(over.location, Location::Directory(PathBuf::from("x")));
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let faults = resolve("{url: 'mysql://x', retention: 5}").unwrap_err();
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "url: must start with `postgres://`; for SQLite give `path`",
                "retention: must be a duration such as `400d` or `1h30m`"
            ]
        );
        assert!(serde_yaml::from_str::<ConfigFile>("{pat: x}").is_err());
    }

    #[test]
    fn a_password_is_never_printed() {
        let config = resolve("url: postgres://squall:hunter2@db/squall").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
