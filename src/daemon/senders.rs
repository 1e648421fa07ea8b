//! The sender of one receiver: its worker over the outbox, woken when something waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::Board;
use crate::clock::Clock;
use crate::notify::{ActiveAlerts, Alertmanager, Meter, Notifier, Worker};
use crate::store::Store;

/// Time for what is due when the daemon ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(8);

/// One receiver, ready to be sent to.
pub(crate) struct Sender {
    pub(crate) notifier: Arc<dyn Notifier>,
    /// An Alertmanager wants to be told again and again of what fires.
    pub(crate) alertmanager: Option<(Arc<Alertmanager>, Arc<ActiveAlerts>)>,
    pub(crate) meter: Arc<dyn Meter>,
}

/// What all senders share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) board: watch::Receiver<Arc<Board>>,
    /// Changes when notifications were saved.
    pub(crate) wake: watch::Receiver<u64>,
    /// Names this process among all that ever held a lease.
    pub(crate) owner: String,
}

impl Sender {
    pub(crate) fn name(&self) -> String {
        format!("sender to `{}`", self.notifier.name())
    }

    /// Sends until told to stop, and then what is due.
    pub(crate) async fn run(self, common: Common, stop: CancellationToken) {
        let clock = Arc::clone(&common.clock);
        let now: crate::notify::Now = Arc::new(move || clock.now());
        let restating = self.alertmanager.map(|(alertmanager, active)| {
            tokio::spawn(restate(
                alertmanager,
                active,
                common.board.clone(),
                Arc::clone(&now),
                stop.clone(),
            ))
        });
        let outbox: Arc<dyn crate::store::Outbox> = common.store;
        let mut worker = Worker::new(outbox, self.notifier, &common.owner, now, self.meter);
        let mut wake = common.wake;
        loop {
            let wait = worker.turn().await;
            tokio::select! {
                biased;
                // All are cancel-safe: none holds anything while it waits.
                () = stop.cancelled() => break,
                Ok(()) = wake.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        if tokio::time::timeout(FLUSH_TIMEOUT, worker.flush()).await.is_err() {
            tracing::warn!("stopped with notifications that are not sent; they are kept");
        }
        if let Some(restating) = restating {
            drop(restating.await);
        }
    }
}

/// Keeps an Alertmanager told: what is live on the board, again and again.
async fn restate(
    alertmanager: Arc<Alertmanager>,
    active: Arc<ActiveAlerts>,
    mut board: watch::Receiver<Arc<Board>>,
    now: crate::notify::Now,
    stop: CancellationToken,
) {
    let watching = async {
        loop {
            {
                let board = board.borrow_and_update();
                active.observe(&board.incidents);
                active.retain_open(|id| board.incidents.iter().any(|known| known.id == *id));
            }
            if board.changed().await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let telling = alertmanager.keep_alive(Arc::clone(&active), now, stop);
    tokio::select! {
        biased;
        // The telling ends with the token; watching never does, and holds nothing.
        () = telling => {}
        () = watching => {}
    }
}
