//! What the daemon does now and then: forgets what is past its retention, counts what people said,
//! and what waits for receivers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::series::Timestamp;
use crate::store::Store;
use crate::telemetry::{Chain, Metrics};

/// How often what is past its retention is deleted.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How often the feedback is counted.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// How often what waits for receivers is counted: about as often as the metrics are scraped.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Deletes what is past its retention, until told to stop.
pub(crate) async fn forget(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    retention: watch::Receiver<Duration>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FORGET_EVERY) => {}
        }
        let cutoff = clock.now().minus(*retention.borrow());
        match store.forget_before(cutoff).await {
            Ok(0) => {}
            Ok(incidents) => tracing::info!(incidents, "forgot what is past its retention"),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "cannot forget what is past its retention");
            }
        }
    }
}

/// Counts what people said of the incidents in the record, until told to stop.
pub(crate) async fn count_feedback(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    loop {
        let until = clock.now().plus(COUNT_EVERY);
        // One span for all that is kept.
        let whole = until.seconds_since(Timestamp::default()).max(1.0);
        let step = Duration::from_secs_f64(whole);
        match store.precision(Timestamp::default(), until, step).await {
            Ok(lines) => {
                for line in lines {
                    let wrong = line.judged.saturating_sub(line.right);
                    metrics.feedback(line.class.as_str(), line.right, wrong);
                }
            }
            Err(error) => tracing::debug!(error = %Chain(&error), "cannot count the feedback"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(COUNT_EVERY) => {}
        }
    }
}

/// Counts what waits for each receiver, until told to stop.
pub(crate) async fn count_waiting(
    store: Arc<dyn Store>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut known = BTreeSet::<String>::new();
    loop {
        match store.lanes().await {
            Ok(lanes) => {
                // A lane that is empty is not in the answer.
                for receiver in &known {
                    metrics.outbox(receiver, 0, 0);
                }
                for lane in lanes {
                    metrics.outbox(&lane.receiver, lane.pending, lane.dead);
                    known.insert(lane.receiver);
                }
            }
            Err(error) => tracing::debug!(error = %Chain(&error), "cannot count what waits"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
