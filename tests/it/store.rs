//! The conformance suite of the record: every case runs on SQLite in memory, on a SQLite file, and
//! on PostgreSQL. The PostgreSQL run is one test, so that it starts one cluster; without Debian's
//! `postgresql` it fails, since a suite that skips silently proves nothing.

mod cases;
pub(crate) mod cluster;
pub(crate) mod example;
mod faults;
mod kill;
mod migrations;
mod replicas;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use squall::store::{SqlStore, Store};

use self::cluster::Cluster;

/// One case over an empty store.
type Case = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! conformance {
    ($($case:ident),+ $(,)?) => {
        const CASES: &[(&str, Case)] =
            &[$((stringify!($case), |store| Box::pin(cases::$case(store)))),+];

        mod sqlite_in_memory {
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                cases::$case(Arc::new(SqlStore::in_memory().await.unwrap())).await;
            })+
        }

        mod sqlite_in_a_file {
            use super::*;
            $(#[tokio::test]
            async fn $case() {
                let directory = tempfile::tempdir().unwrap();
                cases::$case(Arc::new(SqlStore::sqlite(directory.path()).await.unwrap())).await;
            })+
        }
    };
}

conformance!(
    an_incident_is_read_back_as_it_was_saved,
    an_incident_and_its_page_are_saved_together,
    saving_again_changes_nothing,
    an_older_word_never_replaces_a_newer_one,
    open_incidents_are_taken_up_again,
    pages_are_newest_first_and_whole,
    pages_stay_whole_while_rows_arrive,
    filters_let_through_what_they_say,
    text_is_found_whatever_its_letters,
    the_ledger_keeps_what_was_believed_when,
    series_around_an_incident_keep_the_newest,
    feedback_is_kept_and_survives_a_revision,
    precision_counts_right_over_judged,
    seen_before_finds_the_same_schedule_only,
    offenders_are_counted_worst_first,
    retention_forgets_what_ended_and_nothing_else,
    a_notification_is_kept_once,
    a_lane_is_in_order_and_one_at_a_time,
    a_lost_lease_is_taken_over_and_its_answer_ignored,
    a_retry_waits_and_sends_the_same,
    pages_from_one_cause_share_a_delivery,
    a_resolution_knows_who_still_fires_on_its_page,
    dead_letters_are_listed_and_sent_again,
    the_last_word_is_known_for_each_receiver,
    members_live_by_their_heartbeats,
    claims_of_many_workers_never_overlap,
);

#[tokio::test]
async fn postgresql_passes_every_case() {
    let cluster = Cluster::start().await;
    for (name, case) in CASES {
        println!("case {name}");
        let url = cluster.database(name).await;
        case(Arc::new(SqlStore::postgres(&url).await.unwrap())).await;
    }
}
