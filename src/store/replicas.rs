//! Who lives, and whose a dependency is.
//!
//! Each replica stamps its row on the database's clock; whoever has not done so for
//! [`MEMBER_TTL`] is dead to the others. A dependency belongs to the living member with the
//! highest hash of (member, dependency): rendezvous hashing. Every replica computes the same owner
//! from the same list without talking to the others, and when a member goes only its own
//! dependencies move. A ring with virtual nodes does the same with more code; `hash % n` moves
//! nearly everything.

use std::time::Duration;

use super::StoreError;
use super::sql::SqlStore;
use crate::incident::DependencyKey;

/// How long after its last heartbeat a replica counts as alive. With heartbeats every 5 s a dead
/// replica's work is taken over within 20 s, inside the promised 30.
pub const MEMBER_TTL: Duration = Duration::from_secs(15);

/// The member that a dependency belongs to; none when there is no member.
#[must_use]
pub fn owner<'a>(members: &'a [String], dependency: &DependencyKey) -> Option<&'a str> {
    let key = format!("{}\u{0}{}\u{0}{}", dependency.source, dependency.watch, dependency.labels);
    members.iter().max_by_key(|member| (weight(member, &key), member.as_str())).map(String::as_str)
}

/// Whether a dependency is `replica`'s. An empty list means that nobody could be asked: then it is
/// everybody's, since watching twice is harmless and watching never is not.
#[must_use]
pub fn owns(members: &[String], replica: &str, dependency: &DependencyKey) -> bool {
    owner(members, dependency).is_none_or(|owner| owner == replica)
}

/// A hash that is the same in every process and release: 64-bit FNV-1a, then the finalizer of
/// SplitMix64, since FNV alone barely mixes the last bytes into the high bits that decide here.
fn weight(member: &str, key: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in member.bytes().chain([0]).chain(key.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl SqlStore {
    pub(super) async fn beat(&self, replica: &str) -> Result<Vec<String>, StoreError> {
        let clock = self.database.clock();
        let ttl = i64::try_from(MEMBER_TTL.as_millis()).unwrap_or(i64::MAX);
        let mut tx = self.database.begin("say that this replica lives").await?;
        let sql = format!(
            "INSERT INTO replicas (name, heartbeat_at) VALUES ($1, {clock}) \
             ON CONFLICT (name) DO UPDATE SET heartbeat_at = excluded.heartbeat_at"
        );
        tx.execute(&sql, &[replica.into()]).await?;
        let sql =
            format!("SELECT name FROM replicas WHERE heartbeat_at > {clock} - $1 ORDER BY name");
        let rows = tx.read(&sql, &[ttl.into()]).await?;
        tx.commit().await?;
        rows.iter()
            .map(|row| row.text(0))
            .collect::<Result<_, _>>()
            .map_err(self.database.error("say that this replica lives"))
    }

    pub(super) async fn write_something(&self) -> Result<(), StoreError> {
        let mut tx = self.database.begin("see whether it takes writes").await?;
        // A replica without a name that never lived. It changes, as SQLite leaves out a write that
        // changes nothing.
        let sql = "INSERT INTO replicas (name, heartbeat_at) VALUES ('', 0) \
                   ON CONFLICT (name) DO UPDATE SET heartbeat_at = 1 - replicas.heartbeat_at";
        tx.execute(sql, &[]).await?;
        tx.commit().await
    }

    pub(super) async fn sign_off(&self, replica: &str) -> Result<(), StoreError> {
        let mut tx = self.database.begin("take this replica out").await?;
        tx.execute("DELETE FROM replicas WHERE name = $1", &[replica.into()]).await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Labels;

    fn key(number: usize) -> DependencyKey {
        DependencyKey {
            source: "main".to_owned(),
            watch: "http".to_owned(),
            labels: Labels::new([("dependency", format!("d{number}"))]),
        }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("replica-{n}")).collect()
    }

    #[test]
    fn each_of_n_members_gets_its_share() {
        for count in [2, 3, 5] {
            let members = names(count);
            for member in &members {
                let mine = (0..10_000).filter(|n| owns(&members, member, &key(*n))).count();
                // Binomial: sd is at most 50 of 10,000, so 250 is five of them.
                assert!(mine.abs_diff(10_000 / count) < 250, "{member} of {count} has {mine}");
            }
        }
    }

    #[test]
    fn only_the_work_of_the_member_that_left_moves() {
        let before = names(4);
        let after: Vec<String> =
            before.iter().filter(|name| *name != "replica-2").cloned().collect();
        for number in 0..2000 {
            let old = owner(&before, &key(number)).unwrap();
            let new = owner(&after, &key(number)).unwrap();
            assert!(old == new || old == "replica-2", "{old} -> {new}");
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter_and_an_empty_one_is_everybodys() {
        let mut members = names(3);
        let first = owner(&members, &key(7)).unwrap().to_owned();
        members.reverse();
        assert_eq!(owner(&members, &key(7)), Some(first.as_str()));
        assert!(owns(&[], "anyone", &key(7)));
    }
}
