//! Interned label sets: every label set is read once, and a number stands for it from then on.
//!
//! A poll of 100,000 series repeats some 20 MB of label text that was the same a poll before.
//! Building a label set for each answer would cost more than everything squall does with the
//! numbers. So a decoder fills one reused [`LabelBuffer`], the table finds its bytes, and only a
//! label set never seen before allocates.
//!
//! One table serves one watch. It also knows what the labels mean there: which dependency a series
//! belongs to (the watch's `by` labels), and which scrape target it was read from.
//!
//! # Assumptions and what happens when they fail
//!
//! * Series of one scrape target agree in [`TARGET_LABELS`] (as far as they have them) and in the
//!   watch's client labels. Where two targets look the same (the instance was aggregated away),
//!   their scrapes are taken for one target's, and its intervals become longer, not wrong.
//!
//! # Example
//!
//! ```
//! use squall::series::Role;
//! use squall::series::table::{LabelBuffer, SeriesTable};
//!
//! let mut table = SeriesTable::new(&["dependency"], &["app"]);
//! let mut labels = LabelBuffer::default();
//! for (name, value) in [("__name__", "x_total"), ("instance", "a:1"), ("dependency", "pay")] {
//!     labels.push(name, value);
//! }
//! let first = table.intern(Role::Requests, &mut labels);
//! assert_eq!(table.intern(Role::Requests, &mut labels), first);
//! assert_eq!(table.dependency_labels(first.dependency).get("dependency"), Some("pay"));
//! assert_eq!(table.target_labels(first.dependency, first.target).get("instance"), Some("a:1"));
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use super::{Labels, Role, SeriesId, TargetId};

/// Labels that tell scrape targets apart, by the conventions of Prometheus, its operators and the
/// query layers over it, beside those of [`REPLICA_LABELS`].
pub const TARGET_LABELS: &[&str] = &[
    "job",
    "instance",
    "pod",
    "pod_name",
    "kubernetes_pod_name",
    "container",
    "endpoint",
    "namespace",
    "kubernetes_namespace",
    "cluster",
    "node",
    "host",
    "hostname",
    "tenant",
    "tenant_id",
    "__tenant_id__",
    "exported_instance",
    "exported_pod",
    "prometheus",
];

/// Labels of a collector's replicas, by the habits of operators and query layers: two of them see
/// one process at two phases, so they are two targets.
pub const REPLICA_LABELS: &[&str] = &[
    "prometheus_replica",
    "replica",
    "__replica__",
    "receive_replica",
    "thanos_replica",
    "monitor",
];

/// Separates the parts of a key; never occurs in UTF-8.
const SEPARATOR: u8 = 0xFF;

/// The number of a dependency within one watch, dense from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DependencyId(pub u32);

/// A label set under construction, reused from series to series.
#[derive(Debug, Clone, Default)]
pub struct LabelBuffer {
    text: String,
    // Start of the name, start of the value, end of the value, all in `text`.
    spans: Vec<(usize, usize, usize)>,
}

impl LabelBuffer {
    /// Removes all labels and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Adds one label, in any order.
    pub fn push(&mut self, name: &str, value: &str) {
        let start = self.text.len();
        self.text.push_str(name);
        let middle = self.text.len();
        self.text.push_str(value);
        self.spans.push((start, middle, self.text.len()));
    }

    /// The value of a label, empty when absent, as matchers want it.
    #[must_use]
    pub fn value(&self, name: &str) -> &str {
        self.iter().find(|(candidate, _)| *candidate == name).map_or("", |(_, value)| value)
    }

    /// The pairs, in the order they were pushed or, after [`Self::sort`], by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.spans
            .iter()
            .map(|&(start, middle, end)| (&self.text[start..middle], &self.text[middle..end]))
    }

    /// Sorts by name.
    pub fn sort(&mut self) {
        let text = &self.text;
        self.spans.sort_by(|a, b| text[a.0..a.1].cmp(&text[b.0..b.1]));
    }

    /// The same as a label set of its own.
    #[must_use]
    pub fn to_labels(&self) -> Labels {
        Labels::new(self.iter())
    }
}

/// What the table knows of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesEntry {
    /// Its number, dense within the table.
    pub series: SeriesId,
    /// The dependency it belongs to.
    pub dependency: DependencyId,
    /// The scrape target within that dependency.
    pub target: TargetId,
    /// What it counts.
    pub role: Role,
}

#[derive(Debug)]
struct Slot {
    entry: SeriesEntry,
    // Empty for a slot that waits to be used again.
    key: Arc<[u8]>,
    seen_round: u64,
}

#[derive(Debug)]
struct DependencySlot {
    labels: Labels,
    targets: HashMap<Labels, TargetId>,
    target_labels: Vec<Labels>,
}

/// All series of one watch.
#[derive(Debug)]
pub struct SeriesTable {
    by: Vec<String>,
    client: Vec<String>,
    target_names: Vec<String>,
    index: HashMap<Arc<[u8]>, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    dependencies: HashMap<Labels, DependencyId>,
    dependency_slots: Vec<DependencySlot>,
    round: u64,
    key: Vec<u8>,
}

impl SeriesTable {
    /// A table for a watch with these `by` and `client` labels.
    pub fn new<S: AsRef<str>>(by: &[S], client: &[S]) -> Self {
        let own = |names: &[S]| names.iter().map(|name| name.as_ref().to_owned()).collect();
        let client: Vec<String> = own(client);
        let mut target_names: Vec<String> =
            TARGET_LABELS.iter().chain(REPLICA_LABELS).map(|name| (*name).to_owned()).collect();
        target_names.extend(client.iter().cloned());
        Self {
            by: own(by),
            client,
            target_names,
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            dependencies: HashMap::new(),
            dependency_slots: Vec::new(),
            round: 0,
            key: Vec::new(),
        }
    }

    /// The entry of a label set in a role, made when it is new. Sorts the buffer.
    pub fn intern(&mut self, role: Role, labels: &mut LabelBuffer) -> SeriesEntry {
        labels.sort();
        self.key.clear();
        self.key.push(role_byte(role));
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            self.key.extend_from_slice(name.as_bytes());
            self.key.push(SEPARATOR);
            self.key.extend_from_slice(value.as_bytes());
            self.key.push(SEPARATOR);
        }
        if let Some(&number) = self.index.get(self.key.as_slice()) {
            let slot = &mut self.slots[number as usize];
            slot.seen_round = self.round;
            return slot.entry;
        }
        self.insert(role, &labels.to_labels())
    }

    fn insert(&mut self, role: Role, labels: &Labels) -> SeriesEntry {
        let (dependency, target) = self.place(labels);
        let number = self.free.pop().unwrap_or_else(|| {
            u32::try_from(self.slots.len()).expect("fewer than four thousand million series")
        });
        let key: Arc<[u8]> = self.key.as_slice().into();
        let entry = SeriesEntry { series: SeriesId(number), dependency, target, role };
        let slot = Slot { entry, key: Arc::clone(&key), seen_round: self.round };
        match self.slots.get_mut(number as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.index.insert(key, number);
        entry
    }

    fn place(&mut self, labels: &Labels) -> (DependencyId, TargetId) {
        let by = labels.project(&self.by);
        let slots = &mut self.dependency_slots;
        let dependency = *self.dependencies.entry(by).or_insert_with_key(|labels| {
            slots.push(DependencySlot {
                labels: labels.clone(),
                targets: HashMap::new(),
                target_labels: Vec::new(),
            });
            DependencyId(u32::try_from(slots.len() - 1).expect("fewer dependencies than series"))
        });
        let DependencySlot { targets, target_labels, .. } = &mut slots[dependency.0 as usize];
        let projected = labels.project(&self.target_names);
        let target = *targets.entry(projected).or_insert_with_key(|labels| {
            target_labels.push(labels.clone());
            TargetId(u32::try_from(target_labels.len() - 1).expect("fewer targets than series"))
        });
        (dependency, target)
    }

    /// The labels of a series, or none for a number that is not in use.
    #[must_use]
    pub fn labels(&self, series: SeriesId) -> Option<Labels> {
        let key = &self.slots.get(series.0 as usize)?.key;
        let parts: Vec<&str> = key
            .get(1..)?
            .split(|byte| *byte == SEPARATOR)
            .map(|part| std::str::from_utf8(part).unwrap_or_default())
            .collect();
        Some(Labels::new(parts.chunks_exact(2).map(|pair| (pair[0], pair[1]))))
    }

    /// The `by` labels of a dependency of this table.
    #[must_use]
    pub fn dependency_labels(&self, dependency: DependencyId) -> &Labels {
        &self.dependency_slots[dependency.0 as usize].labels
    }

    /// The labels that tell a target of this table from others, the client labels among them.
    #[must_use]
    pub fn target_labels(&self, dependency: DependencyId, target: TargetId) -> &Labels {
        &self.dependency_slots[dependency.0 as usize].target_labels[target.0 as usize]
    }

    /// The labels of a target that name the caller; empty where the watch names none.
    #[must_use]
    pub fn client_labels(&self, dependency: DependencyId, target: TargetId) -> Labels {
        self.target_labels(dependency, target).project(&self.client)
    }

    /// Dependencies seen so far.
    #[must_use]
    pub fn dependency_count(&self) -> usize {
        self.dependency_slots.len()
    }

    /// Targets of a dependency seen so far.
    #[must_use]
    pub fn target_count(&self, dependency: DependencyId) -> usize {
        self.dependency_slots[dependency.0 as usize].target_labels.len()
    }

    /// Series in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Ends a round (a poll) and drops the series not interned in the last `idle_rounds_max` ones.
    ///
    /// Their numbers are used again, so this must be longer than an observer remembers a series
    /// ([`super::observer::MEMORY`]).
    pub fn end_round(&mut self, idle_rounds_max: u64) {
        self.round += 1;
        let oldest = self.round.saturating_sub(idle_rounds_max);
        for (number, slot) in (0..).zip(&mut self.slots) {
            if slot.seen_round < oldest && !slot.key.is_empty() {
                self.index.remove(&slot.key);
                slot.key = Arc::default();
                self.free.push(number);
            }
        }
    }
}

const fn role_byte(role: Role) -> u8 {
    match role {
        Role::Requests => b'r',
        Role::Errors => b'e',
        Role::Retries => b't',
        Role::Calls => b'c',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(pairs: &[(&str, &str)]) -> LabelBuffer {
        let mut labels = LabelBuffer::default();
        for (name, value) in pairs {
            labels.push(name, value);
        }
        labels
    }

    #[test]
    fn order_and_empty_values_make_no_difference() {
        let mut table = SeriesTable::new(&["dep"], &[]);
        let a = table.intern(Role::Requests, &mut buffer(&[("b", "2"), ("a", "1"), ("c", "")]));
        let b = table.intern(Role::Requests, &mut buffer(&[("a", "1"), ("b", "2")]));
        assert_eq!(a, b);
        assert_eq!(table.labels(a.series), Some(Labels::new([("a", "1"), ("b", "2")])));
        // The same text cut differently is another set.
        let c = table.intern(Role::Requests, &mut buffer(&[("a", "1b"), ("b", "")]));
        assert_ne!(a.series, c.series);
    }

    #[test]
    fn roles_are_series_apart_on_one_target() {
        let mut table = SeriesTable::new(&["dep"], &[]);
        let mut labels = buffer(&[("dep", "pay"), ("instance", "a"), ("code", "503")]);
        let requests = table.intern(Role::Requests, &mut labels);
        let errors = table.intern(Role::Errors, &mut labels);
        assert_ne!(requests.series, errors.series);
        assert_eq!((requests.dependency, requests.target), (errors.dependency, errors.target));
    }

    #[test]
    fn targets_are_dense_within_a_dependency_and_clients_are_targets_apart() {
        let mut table = SeriesTable::new(&["dep"], &["app"]);
        let mut intern = |dep: &str, instance: &str, app: &str, replica: &str| {
            let pairs = [
                ("dep", dep),
                ("instance", instance),
                ("app", app),
                ("prometheus_replica", replica),
            ];
            let entry = table.intern(Role::Requests, &mut buffer(&pairs));
            (entry.dependency.0, entry.target.0)
        };
        assert_eq!(intern("pay", "a", "shop", "0"), (0, 0));
        assert_eq!(intern("pay", "b", "shop", "0"), (0, 1));
        assert_eq!(intern("pay", "a", "till", "0"), (0, 2));
        assert_eq!(intern("pay", "a", "shop", "1"), (0, 3));
        assert_eq!(intern("mail", "a", "shop", "0"), (1, 0));
        assert_eq!(table.client_labels(DependencyId(0), TargetId(2)).get("app"), Some("till"));
        assert_eq!(table.target_count(DependencyId(0)), 4);
    }

    #[test]
    fn idle_series_are_dropped_and_their_numbers_used_again() {
        let mut table = SeriesTable::new(&["dep"], &[]);
        let a = table.intern(Role::Requests, &mut buffer(&[("a", "1")]));
        let b = table.intern(Role::Requests, &mut buffer(&[("a", "2")]));
        for _ in 0..3 {
            table.end_round(2);
            table.intern(Role::Requests, &mut buffer(&[("a", "2")]));
        }
        assert_eq!(table.len(), 1);
        assert_eq!(table.labels(a.series), None);
        let c = table.intern(Role::Requests, &mut buffer(&[("a", "3")]));
        assert_eq!(c.series, a.series);
        assert_eq!(table.intern(Role::Requests, &mut buffer(&[("a", "2")])), b);
    }
}
