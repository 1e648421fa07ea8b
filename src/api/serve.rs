//! The listener: accepts connections, speaks TLS where that is configured, and ends in order.
//!
//! A loop of our own and not `axum::serve`, for three limits that it does not have: the number of
//! connections, the time a client may take for its TLS handshake and for the head of a request,
//! and certificates that are read again without closing the port. A client that dribbles bytes or
//! opens a thousand connections must not be able to keep the page from the one who needs it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections open at once: an on-call team and its dashboards use a few dozen.
const CONNECTIONS_MAX: usize = 512;
/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed for want of descriptors, as Go's HTTP server does.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Time that open connections get to finish their answers on shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the port cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{address}`")]
pub struct BindError {
    /// The address as configured.
    pub address: String,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// Listens on `address`, where `:9797` means all addresses of the machine, as in Prometheus.
///
/// # Errors
///
/// When the address is not valid or is taken.
pub async fn bind(address: &str) -> Result<TcpListener, BindError> {
    let full = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    TcpListener::bind(&full).await.map_err(|cause| BindError { address: address.to_owned(), cause })
}

/// Serves `router` until `stop`, then lets open answers finish for a short while.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: watch::Receiver<Option<Arc<ServerConfig>>>,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let slot = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Both are cancel-safe: nothing is taken until they complete.
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let Ok(slot) = slot else { break };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection =
                    connection(stream, peer, router.clone(), tls.borrow().clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        // Forgets what has ended, so that the set does not grow with the number of connections.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained =
        tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(pending = connections.len(), "closed connections that were still answering");
    }
}

/// One connection, from its first byte to its last.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    stop: CancellationToken,
) {
    // Without it small answers wait for the acknowledgement of the ones before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    match tls {
        None => answer(stream, router, stop).await,
        Some(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                Ok(Ok(stream)) => answer(stream, router, stop).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
            }
        }
    }
}

/// Answers the requests of one connection.
async fn answer<S>(stream: S, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let outcome = tokio::select! {
        biased;
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        outcome = serving.as_mut() => outcome,
    };
    if let Err(error) = outcome {
        // A client that goes away in the middle is its own affair.
        tracing::trace!(error, "a connection ended early");
    }
}
