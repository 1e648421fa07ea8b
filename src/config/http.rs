//! How a server is spoken to over HTTP: the keys of Prometheus' own `http_config`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::rules::spanned::{Faults, Fields, Node, Value};

use crate::http::Secret;
pub use crate::http::{Authorization, BasicAuth, HttpConfig, OAuth2, TlsConfig};

/// Scheme of the `Authorization` header when none is given, as in Prometheus.
const AUTHORIZATION_TYPE: &str = "Bearer";

/// Takes the keys of `http_config` out of the mapping they stand in.
pub(crate) fn take(fields: &mut Fields<'_>, folder: &Path, faults: &Faults) -> HttpConfig {
    let basic_auth = section(fields, "basic_auth", faults, |inner| {
        let username = Secret::take(inner, "username", "username_file", folder);
        let password = Secret::take(inner, "password", "password_file", folder);
        if username.is_none() {
            inner.fault("username", "is missing");
        }
        Some(BasicAuth {
            username: username?,
            password: password.unwrap_or_else(|| Secret::Inline(String::new())),
        })
    });
    let authorization = section(fields, "authorization", faults, |inner| {
        let r#type = inner.text("type").unwrap_or_else(|| AUTHORIZATION_TYPE.to_owned());
        if r#type.eq_ignore_ascii_case("basic") {
            inner.fault("type", "use `basic_auth` for user name and password");
        }
        let credentials = Secret::take(inner, "credentials", "credentials_file", folder);
        if credentials.is_none() {
            inner.fault("credentials", "is missing");
        }
        Some(Authorization { r#type, credentials: credentials? })
    });
    let oauth2 = section(fields, "oauth2", faults, |inner| {
        let client_id = inner.required_text("client_id");
        let client_secret = Secret::take(inner, "client_secret", "client_secret_file", folder);
        if client_secret.is_none() {
            inner.fault("client_secret", "is missing");
        }
        let token_url = url(inner, "token_url");
        if !inner.has("token_url") {
            inner.fault("token_url", "is missing");
        }
        let scopes = inner.text_list("scopes").unwrap_or_default();
        let endpoint_params = text_map(inner, "endpoint_params", faults);
        Some(OAuth2 {
            client_id: client_id?,
            client_secret: client_secret?,
            token_url: token_url?,
            scopes,
            endpoint_params,
        })
    });
    let ways = [
        ("basic_auth", basic_auth.is_some()),
        ("authorization", authorization.is_some()),
        ("oauth2", oauth2.is_some()),
    ];
    let given: Vec<&str> = ways.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    if let [first, second, ..] = given.as_slice() {
        fields.fault(second, format!("give `{first}` or `{second}`, not both"));
    }
    let tls_config = section(fields, "tls_config", faults, |inner| Some(tls(inner, folder)));
    let headers = text_map(fields, "headers", faults);
    for name in headers.keys().filter(|name| !is_header_name(name)) {
        fields.fault("headers", format!("`{name}` is no name of a header"));
    }
    HttpConfig {
        headers,
        basic_auth,
        authorization,
        oauth2,
        tls_config: tls_config.unwrap_or_default(),
        proxy_url: url(fields, "proxy_url"),
    }
}

fn tls(fields: &mut Fields<'_>, folder: &Path) -> TlsConfig {
    let mut path = |key| fields.text(key).map(|path| folder.join(path));
    let (ca_file, cert_file, key_file) = (path("ca_file"), path("cert_file"), path("key_file"));
    if cert_file.is_some() != key_file.is_some() {
        let missing = if cert_file.is_some() { "key_file" } else { "cert_file" };
        fields.fault(
            missing,
            "is missing: a client certificate needs its key and a key its certificate",
        );
    }
    TlsConfig {
        ca_file,
        cert_file,
        key_file,
        server_name: fields.text("server_name"),
        insecure_skip_verify: fields.flag("insecure_skip_verify").unwrap_or(false),
    }
}

/// Reads the mapping at `key`, where there is one.
pub(crate) fn section<T>(
    fields: &mut Fields<'_>,
    key: &'static str,
    faults: &Faults,
    read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
) -> Option<T> {
    let node = fields.node(key)?;
    let mut inner = Fields::open(node, &fields.path_of(key), faults)?;
    let read = read(&mut inner);
    inner.finish();
    read
}

/// Reads a mapping of texts with any keys.
pub(crate) fn text_map(
    fields: &mut Fields<'_>,
    key: &'static str,
    faults: &Faults,
) -> BTreeMap<String, String> {
    let Some(node) = fields.node(key) else { return BTreeMap::new() };
    let path = fields.path_of(key);
    entries_of(node, &path, faults)
}

fn entries_of(node: &Node, path: &str, faults: &Faults) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let Value::Mapping(entries) = &node.value else {
        faults.add(node.line, path, "must be a mapping of names to texts");
        return texts;
    };
    for entry in entries {
        let path = format!("{path}.{}", entry.key);
        match entry.node.scalar() {
            Some(text) if texts.contains_key(&entry.key) => {
                faults.add(entry.line, &path, format!("given twice, again as `{text}`"));
            }
            Some(text) => {
                texts.insert(entry.key.clone(), text.to_owned());
            }
            None => faults.add(entry.line, &path, "must be text"),
        }
    }
    texts
}

/// Reads an address: `http://` or `https://` with a host.
pub(crate) fn url(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let text = fields.text(key)?;
    match url_fault(&text) {
        None => Some(text.trim_end_matches('/').to_owned()),
        Some(says) => {
            fields.fault(key, says);
            None
        }
    }
}

/// What is wrong with an address.
fn url_fault(text: &str) -> Option<String> {
    if text.contains("${") {
        return Some(format!("`${{…}}` is not expanded, got `{text}`"));
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest else {
        return Some(format!("must begin with http:// or https://, got `{text}`"));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("holds credentials: use `basic_auth` with `password_file`".to_owned());
    }
    // A colon inside brackets belongs to an IPv6 address.
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|p| !p.ends_with(']'));
    let is_valid = !authority.is_empty()
        && !authority.starts_with(':')
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b));
    (!is_valid).then(|| format!("is no address, got `{text}`"))
}

/// Whether a text may name a header.
fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
