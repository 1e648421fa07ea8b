//! Signals: TERM and INT end the daemon, HUP makes it read its configuration again.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::api::ReloadRequest;

/// Waits for signals until one ends the daemon, and cancels `stop` then.
///
/// # Errors
///
/// When the system lets no handler be set.
pub async fn until_told(
    reload: mpsc::Sender<ReloadRequest>,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        let name = tokio::select! {
            biased;
            // All are cancel-safe: a signal not yet taken is kept.
            () = stop.cancelled() => return Ok(()),
            _ = terminate.recv() => "TERM",
            _ = interrupt.recv() => "INT",
            _ = hang_up.recv() => {
                let (sender, _outcome_is_logged) = oneshot::channel();
                if reload.send(sender).await.is_err() {
                    return Ok(());
                }
                continue;
            }
        };
        tracing::info!(signal = name, "stopping");
        stop.cancel();
        return Ok(());
    }
}
