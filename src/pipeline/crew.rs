//! Who works side by side: this module may start no threads, and how many there are must never
//! change what is found.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use squall::pipeline::crew::Crew;
//!
//! let two = Crew::new(Arc::new(|work| {
//!     std::thread::scope(|scope| {
//!         scope.spawn(work);
//!         scope.spawn(work);
//!     });
//! }));
//! let begun = AtomicU32::new(0);
//! two.work(&|| drop(begun.fetch_add(1, Ordering::Relaxed)));
//! Crew::default().work(&|| drop(begun.fetch_add(1, Ordering::Relaxed)));
//! assert_eq!(begun.into_inner(), 3);
//! ```

use std::fmt;
use std::sync::Arc;

/// Runs the work it is given on each of its hands, and returns when all of them are done.
type Together = dyn Fn(&(dyn Fn() + Sync)) + Send + Sync;

/// Hands for work that can be shared; the caller's own where there are no others.
#[derive(Clone, Default)]
pub struct Crew(Option<Arc<Together>>);

impl Crew {
    /// Hands that `together` puts to work; it must run the work it is given at least once.
    #[must_use]
    pub fn new(together: Arc<Together>) -> Self {
        Self(Some(together))
    }

    /// Runs `work` on every hand: each takes what the others have left, until nothing is.
    pub fn work(&self, work: &(dyn Fn() + Sync)) {
        match &self.0 {
            Some(together) => together(work),
            None => work(),
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Crew").field(&self.0.is_some()).finish()
    }
}

/// The same hands, not as many: what they find is the same for all.
impl PartialEq for Crew {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}
