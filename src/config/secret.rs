//! How a secret stands in the configuration: written there, or in a file of its own.
//!
//! It is read when it is used and not when the configuration is, so that a rotated secret takes
//! effect without a reload.

use std::path::Path;

pub(crate) use crate::http::HIDDEN;
pub use crate::http::Secret;
use crate::rules::spanned::Fields;

impl Secret {
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
