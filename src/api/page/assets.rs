//! The style, the scripts and the icon, compiled in.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::api::answer::ApiError;

/// Name, type and content of each.
const ASSETS: [(&str, &str, &str); 4] = [
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("theme.js", "text/javascript; charset=utf-8", include_str!("assets/theme.js")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// A day: a new squall has new addresses for what changed.
const CACHE: &str = "public, max-age=86400";

/// The address of an asset below the top; it changes with the content.
pub(super) fn address(name: &str) -> String {
    let content = ASSETS.iter().find(|(known, ..)| *known == name).map_or("", |asset| asset.2);
    format!("assets/{name}?v={:08x}", checksum(content))
}

/// 32-bit FNV-1a.
const fn checksum(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

/// `GET /assets/{name}`
pub(super) async fn one(Path(name): Path<String>) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, content)) = found else {
        return Err(ApiError::not_found("there is no such file"));
    };
    let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, CACHE)];
    Ok((headers, *content).into_response())
}
