//! What the daemon does now and then: forgets what is past its retention, counts what people said
//! and what waits in the outbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::pipeline::stopwatch::Stopwatch;
use crate::series::Timestamp;
use crate::store::Store;
use crate::telemetry::{Chain, Metrics};

/// How often what is past its retention is deleted.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How often the feedback is counted.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// How often the outbox is counted: as often as Prometheus mostly asks.
const COUNT_OUTBOX_EVERY: Duration = Duration::from_secs(15);

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

/// Counts what waits in the outbox, and what was given up there, until told to stop; besides now
/// and then, when notifications were saved.
pub(crate) async fn count_outbox(
    store: Arc<dyn Store>,
    mut wake: watch::Receiver<u64>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    loop {
        match store.lanes().await {
            Ok(lanes) => {
                metrics.outbox(lanes.iter().map(|it| (it.receiver.as_str(), it.pending, it.dead)));
            }
            Err(error) => tracing::debug!(error = %Chain(&error), "cannot count the outbox"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = wake.changed() => {}
            () = tokio::time::sleep(COUNT_OUTBOX_EVERY) => {}
        }
    }
}

/// What times the fits of the pipelines.
pub(crate) fn fit_stopwatch(metrics: Metrics) -> Stopwatch {
    Stopwatch::new(Arc::new(move |fit| {
        let began = Instant::now();
        fit();
        metrics.fit(began.elapsed());
    }))
}
