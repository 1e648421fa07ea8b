//! TLS from certificate files, with one provider of cryptography for the whole program.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::{ClientAuth, TlsFiles, TlsVersion};

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{file}`")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file holds no certificate or key.
    #[error("there is no {wanted} in `{file}`")]
    Missing {
        /// What should be there.
        wanted: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// Certificate and key do not work.
    #[error("the certificate in `{file}` and its key do not work together")]
    Unusable {
        /// The certificate.
        file: PathBuf,
        /// Why.
        #[source]
        cause: rustls::Error,
    },
    /// The certificates that sign those of clients do not work.
    #[error("the certificates in `{file}` cannot verify clients")]
    Clients {
        /// The certificates.
        file: PathBuf,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The server side of TLS from `files`.
///
/// # Errors
///
/// When a file cannot be read, or holds nothing that works.
pub fn server_config(files: &TlsFiles, http2: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.cert_file)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes_of(&files.key_file)?).map_err(|_no_key| {
        TlsError::Missing { wanted: "private key", file: files.key_file.clone() }
    })?;
    let unusable = |cause| TlsError::Unusable { file: files.cert_file.clone(), cause };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(files))
        .map_err(unusable)?;
    let builder = match (&files.client_ca_file, files.client_auth) {
        (Some(file), ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify) => {
            let clients = |cause| TlsError::Clients { file: file.clone(), cause };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|cause| clients(Box::new(cause)))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = match files.client_auth {
                ClientAuth::VerifyIfGiven => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|cause| clients(Box::new(cause)))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols =
        if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok(Arc::new(config))
}

fn versions(files: &TlsFiles) -> Vec<&'static SupportedProtocolVersion> {
    let known =
        [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)];
    let spoken = |version: TlsVersion| (files.version_min..=files.version_max).contains(&version);
    known.into_iter().filter(|(version, _)| spoken(*version)).map(|(_, it)| it).collect()
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|cause| TlsError::Unreadable { file: file.to_owned(), cause })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = bytes_of(file)?;
    let missing = || TlsError::Missing { wanted: "certificate", file: file.to_owned() };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(missing()),
    }
}
