//! The one door to the wall clock, and the only maker of intervals.
