//! Gauges of what there is now: what is gone leaves, and a scrape never misses what stays.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// One gauge for each thing that there is; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LiveGauges<L> {
    family: Family<L, Gauge<f64, AtomicU64>>,
    // What the family holds, so that only what is gone is taken out of it.
    held: Arc<Mutex<BTreeSet<L>>>,
}

impl<L: Clone + Hash + Eq + Ord> Default for LiveGauges<L> {
    fn default() -> Self {
        Self { family: Family::default(), held: Arc::default() }
    }
}

impl<L: Clone + Hash + Eq + Ord + Debug> LiveGauges<L> {
    /// The family, to be registered.
    pub(super) fn family(&self) -> Family<L, Gauge<f64, AtomicU64>> {
        self.family.clone()
    }

    /// Sets what there is now, and takes out what there no longer is.
    pub(super) fn set(&self, values: impl IntoIterator<Item = (L, f64)>) {
        let mut now = BTreeSet::new();
        for (labels, value) in values {
            self.family.get_or_create(&labels).set(value);
            now.insert(labels);
        }
        let mut held = self.held.lock().expect("nothing in here panics");
        for gone in held.difference(&now) {
            self.family.remove(gone);
        }
        *held = now;
    }
}
