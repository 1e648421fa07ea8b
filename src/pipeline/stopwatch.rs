//! What times the costly parts of a pass from outside: this module may know no clock, and what a
//! fit takes must never change what it finds.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use squall::pipeline::stopwatch::Stopwatch;
//!
//! let fits = Arc::new(AtomicU32::new(0));
//! let counted = Arc::clone(&fits);
//! let stopwatch = Stopwatch::new(Arc::new(move |work| {
//!     work();
//!     counted.fetch_add(1, Ordering::Relaxed);
//! }));
//! assert_eq!(stopwatch.time(|| 2 + 2), 4);
//! assert_eq!(Stopwatch::default().time(|| 2 + 2), 4);
//! assert_eq!(fits.load(Ordering::Relaxed), 1);
//! ```

use std::fmt;
use std::sync::Arc;

/// Does the work it is given, once, and times it.
type Timed = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// Times work, or only does it.
#[derive(Clone, Default)]
pub struct Stopwatch(Option<Arc<Timed>>);

impl Stopwatch {
    /// Times by `timed`, which must do the work that it is given.
    #[must_use]
    pub fn new(timed: Arc<Timed>) -> Self {
        Self(Some(timed))
    }

    /// Does `work` and gives what it gives.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(timed) = &self.0 else { return work() };
        let (mut work, mut made) = (Some(work), None);
        timed(&mut || {
            if let Some(work) = work.take() {
                made = Some(work());
            }
        });
        // Whoever times and does not work has only lost the time.
        made.or_else(|| work.take().map(|work| work())).expect("the work is done once")
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stopwatch").field(&self.0.is_some()).finish()
    }
}

impl PartialEq for Stopwatch {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}
