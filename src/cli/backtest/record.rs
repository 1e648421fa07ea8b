//! What a replay found, into the record as history.
//!
//! Only what has ended: an incident that is still open is a running daemon's to write. And what a
//! daemon saw live stays as it was written then, with all that was believed of it.

use std::io::Write as _;

use crate::config::StorageConfig;
use crate::daemon;
use crate::incident::{Incident, State};
use crate::store::{self, Batch, Reason, Saved, StoreError};

use super::Failure;

/// Incidents in one transaction.
const BATCH: usize = 200;

/// Writes the incidents; says on standard error how many.
///
/// # Errors
///
/// When the record cannot be opened, read or written.
pub(super) async fn save(storage: &StorageConfig, incidents: &[Incident]) -> Result<(), Failure> {
    let failed = |cause: StoreError| Failure::running("cannot write the record", cause);
    let store = store::open(&daemon::store_config(storage)).await.map_err(failed)?;
    let (mut written, mut live, mut open) = (0, 0, 0);
    for some in incidents.chunks(BATCH) {
        let mut batch = Batch::default();
        for incident in some {
            if incident.state != State::Resolved {
                open += 1;
                continue;
            }
            let known = store.revisions(&incident.id).await.map_err(failed)?;
            if known.iter().any(|revision| revision.reason != Reason::Replayed) {
                live += 1;
                continue;
            }
            batch.incidents.push(Saved { reason: Reason::Replayed, incident: incident.clone() });
        }
        written += batch.incidents.len();
        store.save(&batch).await.map_err(failed)?;
    }
    // Standard error may be closed; the record is what counts.
    drop(writeln!(
        std::io::stderr(),
        "recorded {written}; {live} were seen live and stay as they are, {open} have not ended"
    ));
    Ok(())
}
