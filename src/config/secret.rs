//! A secret: written in the file or read from a file of its own, and never printed.
//!
//! It is read when it is used and not when the configuration is, so that a rotated secret takes
//! effect without a reload.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::rules::spanned::Fields;

/// Largest secret file, in bytes; a larger one is some other file.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// What is shown in place of a secret, as Prometheus shows it.
pub(crate) const HIDDEN: &str = "<secret>";

/// A secret or where it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// Written in the configuration.
    Inline(String),
    /// In a file of its own; one newline at its end is not part of it.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str(HIDDEN),
            Self::File(path) => write!(f, "file {path:?}"),
        }
    }
}

impl Secret {
    /// The secret itself.
    ///
    /// # Errors
    ///
    /// When its file cannot be read or is too large.
    pub fn reveal(&self) -> std::io::Result<String> {
        match self {
            Self::Inline(text) => Ok(text.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)?;
                if text.len() > SECRET_BYTES_MAX {
                    return Err(std::io::ErrorKind::FileTooLarge.into());
                }
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
            }
        }
    }

    /// Takes `key` or `key_file`; both at once is a fault.
    pub(crate) fn take(
        fields: &mut Fields<'_>,
        key: &'static str,
        key_file: &'static str,
        folder: &Path,
    ) -> Option<Self> {
        let inline = fields.text(key);
        let file = fields.text(key_file);
        if inline.is_some() && file.is_some() {
            fields.fault(key_file, format!("give `{key}` or `{key_file}`, not both"));
        }
        match (inline, file) {
            (Some(text), _) => Some(Self::Inline(text)),
            (None, Some(path)) => Some(Self::File(folder.join(path))),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed_and_loses_one_newline() {
        assert_eq!(format!("{:?}", Secret::Inline("hunter2".into())), "<secret>");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "hunter2\n\n").unwrap();
        assert_eq!(Secret::File(path.clone()).reveal().unwrap(), "hunter2\n");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        assert_eq!(Secret::File(path).reveal().unwrap(), "hunter2");
        assert!(Secret::File(folder.path().join("absent")).reveal().is_err());
    }
}
