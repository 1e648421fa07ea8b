//! The web configuration: TLS and basic authentication, in the form of Prometheus' exporter-toolkit.
//!
//! A setting of security that squall does not have is refused, never ignored: whoever wrote it
//! relies on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::api::{ClientAuth, TlsFiles, TlsVersion, WebConfig};
use crate::rules::spanned::{Fault, Faults, Fields, parse};

use super::http::{section, text_map};
use super::{ConfigError, folder_of, text_of};

/// Costs of bcrypt that are taken: below 4 is no bcrypt, above 16 one password takes seconds.
const BCRYPT_COST: std::ops::RangeInclusive<u32> = 4..=16;

/// Headers that may be set, as in exporter-toolkit.
const HEADERS: &[&str] = &[
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
    "Referrer-Policy",
];

/// Reads the web configuration in `file`.
///
/// # Errors
///
/// When it cannot be read, or with all its faults.
pub fn load(file: &Path) -> Result<WebConfig, ConfigError> {
    read(&text_of(file)?, folder_of(file))
        .map_err(|faults| ConfigError::Faulty { file: file.to_owned(), faults })
}

/// Reads the text of a web configuration; relative paths start from `folder`.
///
/// # Errors
///
/// Every fault, in the order of the file.
pub fn read(text: &str, folder: &Path) -> Result<WebConfig, Vec<Fault>> {
    let node = parse(text).map_err(|fault| vec![fault])?;
    if node.is_null() {
        return Ok(WebConfig::default());
    }
    let faults = Faults::default();
    let web = Fields::open(&node, "", &faults).map(|mut fields| {
        let tls = section(&mut fields, "tls_server_config", &faults, |inner| tls(inner, folder));
        let (http2, headers) = section(&mut fields, "http_server_config", &faults, |inner| {
            let http2 = inner.flag("http2").unwrap_or(true);
            let headers = text_map(inner, "headers", &faults);
            for name in headers.keys() {
                if !HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                    inner.fault(
                        "headers",
                        format!("`{name}` cannot be set here; can be: {}", HEADERS.join(", ")),
                    );
                }
            }
            Some((http2, headers))
        })
        .unwrap_or((true, BTreeMap::new()));
        let users = text_map(&mut fields, "basic_auth_users", &faults);
        for (user, hash) in &users {
            if let Some(says) = hash_fault(hash) {
                fields.fault("basic_auth_users", format!("the hash of `{user}` {says}"));
            }
        }
        if fields.has("rate_limit") {
            fields
                .fault("rate_limit", "is not supported; limit requests in the proxy before squall");
        }
        fields.finish();
        WebConfig { tls, http2, headers, users }
    });
    match web {
        Some(web) if faults.is_empty() => Ok(web),
        _ => Err(faults.into_sorted()),
    }
}

/// What is wrong with a bcrypt hash.
fn hash_fault(hash: &str) -> Option<&'static str> {
    let mut parts = hash.split('$').skip(1);
    let version = parts.next().unwrap_or_default();
    let cost = parts.next().and_then(|cost| cost.parse::<u32>().ok());
    let is_bcrypt = matches!(version, "2a" | "2b" | "2x" | "2y")
        && parts.next().is_some_and(|rest| rest.len() == 53);
    match cost {
        Some(cost) if is_bcrypt && BCRYPT_COST.contains(&cost) => None,
        Some(_) if is_bcrypt => Some("has a cost outside 4 to 16"),
        _ => Some("is not one of bcrypt (`htpasswd -nBC 10 \"\"` makes one)"),
    }
}

fn tls(fields: &mut Fields<'_>, folder: &Path) -> Option<TlsFiles> {
    let mut path = |key: &'static str| -> Option<PathBuf> {
        let path = fields.text(key).map(|path| folder.join(path));
        if path.is_none() && key != "client_ca_file" {
            fields.fault(key, "is missing");
        }
        path
    };
    let (cert_file, key_file) = (path("cert_file"), path("key_file"));
    let client_ca_file = path("client_ca_file");
    for key in ["cert", "key", "client_ca"] {
        if fields.has(key) {
            fields.fault(key, format!("is not supported: give `{key}_file`"));
        }
    }
    let client_auth = fields
        .one_of(
            "client_auth_type",
            &[
                ("NoClientCert", ClientAuth::None),
                ("VerifyClientCertIfGiven", ClientAuth::VerifyIfGiven),
                ("RequireAndVerifyClientCert", ClientAuth::RequireAndVerify),
            ],
        )
        .unwrap_or(ClientAuth::None);
    if client_auth != ClientAuth::None && client_ca_file.is_none() {
        fields.fault("client_ca_file", "is missing: client certificates are verified against it");
    }
    if client_auth == ClientAuth::None && client_ca_file.is_some() {
        fields
            .fault("client_auth_type", "is missing: without it `client_ca_file` protects nothing");
    }
    let versions = [("TLS12", TlsVersion::V1_2), ("TLS13", TlsVersion::V1_3)];
    let version_min = fields.one_of("min_version", &versions).unwrap_or(TlsVersion::V1_2);
    let version_max = fields.one_of("max_version", &versions).unwrap_or(TlsVersion::V1_3);
    if version_min > version_max {
        fields.fault("max_version", "is below `min_version`");
    }
    for key in ["cipher_suites", "curve_preferences", "client_allowed_sans"] {
        if fields.has(key) {
            fields.fault(key, "is not supported");
        }
    }
    // The order of the suites is the server's in TLS 1.3, whatever is written here.
    fields.flag("prefer_server_cipher_suites");
    Some(TlsFiles {
        cert_file: cert_file?,
        key_file: key_file?,
        client_ca_file,
        client_auth,
        version_min,
        version_max,
    })
}
