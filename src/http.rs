//! How squall speaks to a server over HTTP: the keys of Prometheus' own `http_config`, and the
//! client made from them, shared by the source and the notifiers.
//!
//! A plain client with default settings leaks: it follows a redirect anywhere with the custom
//! headers still on, takes a proxy from the environment, and reads secrets once. Here a redirect is
//! followed only to the same origin, a proxy is used only when configured, and secrets are read
//! from their files when they are used, so that a rotated one takes effect by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Largest secret file, in bytes; a larger one is some other file.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// What is shown in place of a secret, as Prometheus shows it.
pub(crate) const HIDDEN: &str = "<secret>";

/// Redirects followed within one origin: a path prefix and a trailing slash are two.
const REDIRECTS_MAX: usize = 3;

/// Connecting takes one round trip; a server that needs longer will not answer in time either.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A token is renewed this long before it ends, so that none ends on its way.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);

/// How long a token lives when the server does not say.
const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// How a server is spoken to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HttpConfig {
    /// Headers sent with every request.
    pub headers: BTreeMap<String, String>,
    /// User name and password.
    pub basic_auth: Option<BasicAuth>,
    /// The `Authorization` header.
    pub authorization: Option<Authorization>,
    /// A token from an authorisation server, by the client-credentials grant.
    pub oauth2: Option<OAuth2>,
    /// How the server is trusted, and how squall shows who it is.
    pub tls_config: TlsConfig,
    /// The proxy to go through.
    pub proxy_url: Option<String>,
}

/// User name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// The user name; `username_file` reads it from a file.
    pub username: Secret,
    /// The password; `password_file` reads it from a file.
    pub password: Secret,
}

/// The `Authorization` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The scheme. Default: `Bearer`, which is what nearly every server takes.
    pub r#type: String,
    /// What follows it; `credentials_file` reads it from a file.
    pub credentials: Secret,
}

/// A token from an authorisation server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuth2 {
    /// The client's id.
    pub client_id: String,
    /// The client's secret; `client_secret_file` reads it from a file.
    pub client_secret: Secret,
    /// Where tokens are given.
    pub token_url: String,
    /// The scopes asked for.
    pub scopes: Vec<String>,
    /// Further parameters of the request for a token.
    pub endpoint_params: BTreeMap<String, String>,
}

/// How a server is trusted, and how squall shows who it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsConfig {
    /// Certificates to trust, PEM. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client certificate, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// The name the server's certificate must have. Default: the host of the address.
    pub server_name: Option<String>,
    /// Trust any certificate. Default: `false`.
    pub insecure_skip_verify: bool,
}

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
}

/// Why a client cannot be made, or a request not be signed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A file named in the configuration cannot be read.
    #[error("cannot read {what} from its file")]
    File {
        /// What the file holds.
        what: &'static str,
        /// What the system says.
        #[source]
        cause: std::io::Error,
    },
    /// A setting that the client does not take.
    #[error("cannot use {what}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What the client says.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The authorisation server gives no token.
    #[error("cannot get a token")]
    Token(#[source] reqwest::Error),
}

/// A client that signs its requests as configured.
#[derive(Debug)]
pub struct Client {
    client: reqwest::Client,
    config: HttpConfig,
    token: Mutex<Option<(String, Instant)>>,
}

impl Client {
    /// Makes a client.
    ///
    /// # Errors
    ///
    /// When a certificate, a key, a header or the proxy cannot be used.
    pub fn new(config: HttpConfig) -> Result<Self, HttpError> {
        Self::with_redirects(config, redirect::Policy::custom(same_origin))
    }

    /// Makes a client that takes a redirect for an answer: what it posts must arrive, and a
    /// redirected post is asked for again as a get.
    ///
    /// # Errors
    ///
    /// When a certificate, a key, a header or the proxy cannot be used.
    pub fn without_redirects(config: HttpConfig) -> Result<Self, HttpError> {
        Self::with_redirects(config, redirect::Policy::none())
    }

    fn with_redirects(config: HttpConfig, redirects: redirect::Policy) -> Result<Self, HttpError> {
        // Fails when one is installed already, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("squall/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirects)
            .default_headers(headers(&config.headers)?)
            .gzip(true);
        builder = match &config.proxy_url {
            Some(url) => {
                let proxy = reqwest::Proxy::all(url);
                builder.proxy(proxy.map_err(|cause| setting("`proxy_url`", cause))?)
            }
            None => builder.no_proxy(),
        };
        builder = tls(builder, &config.tls_config)?;
        let client = builder.build().map_err(|cause| setting("the HTTP settings", cause))?;
        Ok(Self { client, config, token: Mutex::new(None) })
    }

    /// Signs a request made with [`Self::requests`].
    ///
    /// # Errors
    ///
    /// When a secret cannot be read or no token is given.
    pub async fn sign(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::RequestBuilder, HttpError> {
        if let Some(basic) = &self.config.basic_auth {
            let name = reveal("the user name", &basic.username)?;
            return Ok(request.basic_auth(name, Some(reveal("the password", &basic.password)?)));
        }
        if let Some(authorization) = &self.config.authorization {
            let credentials = reveal("the credentials", &authorization.credentials)?;
            let text = format!("{} {credentials}", authorization.r#type);
            let mut value = HeaderValue::from_str(&text)
                .map_err(|cause| setting("the credentials in a header", cause))?;
            value.set_sensitive(true);
            return Ok(request.header(reqwest::header::AUTHORIZATION, value));
        }
        if let Some(oauth2) = &self.config.oauth2 {
            return Ok(request.bearer_auth(self.token(oauth2).await?));
        }
        Ok(request)
    }

    /// The maker of requests.
    #[must_use]
    pub const fn requests(&self) -> &reqwest::Client {
        &self.client
    }

    /// Forgets the token that a server has refused.
    pub async fn forget_token(&self) {
        *self.token.lock().await = None;
    }

    /// The token, asked for when there is none that lasts. The lock is held meanwhile, so that
    /// many requests ask for one token.
    async fn token(&self, oauth2: &OAuth2) -> Result<String, HttpError> {
        #[derive(serde::Deserialize)]
        struct Given {
            access_token: String,
            expires_in: Option<u64>,
        }
        let mut kept = self.token.lock().await;
        if let Some((token, ends)) = &*kept
            && Instant::now() + TOKEN_MARGIN < *ends
        {
            return Ok(token.clone());
        }
        let secret = reveal("the client secret", &oauth2.client_secret)?;
        let scopes = oauth2.scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        form.extend(
            oauth2.endpoint_params.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        );
        let asked = self.client.post(&oauth2.token_url).timeout(CONNECT_TIMEOUT);
        let answer = asked.basic_auth(&oauth2.client_id, Some(secret)).form(&form).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        let given: Given = match answer {
            Ok(answer) => answer.json().await,
            Err(error) => Err(error),
        }
        .map_err(|cause| HttpError::Token(cause.without_url()))?;
        let life = given.expires_in.map_or(TOKEN_LIFE, Duration::from_secs);
        *kept = Some((given.access_token.clone(), Instant::now() + life));
        Ok(given.access_token)
    }
}

/// Follows a redirect only where everything sent may go: to the same origin.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_same =
        attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if is_same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn headers(configured: &BTreeMap<String, String>) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|cause| setting("the name of a header", cause))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|cause| setting("the value of a header", cause))?;
        // Headers often hold keys.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn tls(
    mut builder: reqwest::ClientBuilder,
    config: &TlsConfig,
) -> Result<reqwest::ClientBuilder, HttpError> {
    let read =
        |what, path: &PathBuf| std::fs::read(path).map_err(|cause| HttpError::File { what, cause });
    if let Some(path) = &config.ca_file {
        let pem = read("the certificates to trust", path)?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|cause| setting("`ca_file`", cause))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let (Some(certificate), Some(key)) = (&config.cert_file, &config.key_file) {
        let mut pem = read("the client certificate", certificate)?;
        pem.push(b'\n');
        pem.extend(read("the client key", key)?);
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|cause| setting("the client certificate and its key", cause))?;
        builder = builder.identity(identity);
    }
    if config.insecure_skip_verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if config.server_name.is_some() {
        let cause = "the server's name is taken from the address";
        return Err(HttpError::Setting { what: "`server_name`", cause: cause.into() });
    }
    Ok(builder)
}

fn reveal(what: &'static str, secret: &Secret) -> Result<String, HttpError> {
    secret.reveal().map_err(|cause| HttpError::File { what, cause })
}

fn setting(what: &'static str, cause: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::Setting { what, cause: Box::new(cause) }
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
