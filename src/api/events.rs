//! `GET /api/v1/events`: incidents opened, revised and resolved, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use tokio::sync::broadcast::error::RecvError;

use crate::wire::IncidentJson;

use super::{ChangeEvent, Shared};

/// Pause after which an idle stream says that it lives: shorter than the minute after which
/// proxies commonly cut an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The stream of changes from now on. A reader that falls too far behind gets one `missed` event,
/// and asks the list again.
pub(super) async fn stream(
    State(shared): State<Shared>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = shared.changes.subscribe();
    let stop = shared.stop.clone();
    let events = unfold((changes, stop), |(mut changes, stop)| async move {
        let received = tokio::select! {
            biased;
            // Cancel-safe: a change not yet received stays in the channel.
            () = stop.cancelled() => return None,
            received = changes.recv() => received,
        };
        let event = match received {
            Ok(change) => event_of(&change),
            Err(RecvError::Lagged(missed)) => {
                Event::default().event("missed").data(missed.to_string())
            }
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), (changes, stop)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

fn event_of(change: &Arc<ChangeEvent>) -> Event {
    let incident = IncidentJson::from(&change.incident);
    let id = format!("{}-{}", incident.id, change.incident.updated_at.millis());
    let data = serde_json::to_string(&incident).unwrap_or_default();
    Event::default().event(change.reason).id(id).data(data)
}
