//! One synchronous pass from samples to incidents on one `now`, used by every command.
//!
//! `run`, `backtest`, `analyze`, `demo` and the tests drive this same pass; only the source and the
//! clock differ. Nothing here waits, reads a clock, or fails on data.

use crate::incident::Incident;

/// One watch in its running form: which labels make a dependency, and which name the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// The configured name of the source.
    pub source: String,
    /// The name of the watch.
    pub name: String,
    /// One dependency for each distinct value of these labels.
    pub by: Vec<String>,
    /// Labels that name the caller.
    pub client: Vec<String>,
    /// Whether an error selector is given; without one a flood cannot be told from a surge.
    pub has_errors: bool,
    /// Periods, in seconds, that are the exporter's own and no evidence (flush intervals).
    pub flush_seconds: Vec<f64>,
}

/// The number of a watch, its index in the list the pipeline was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub usize);

/// How complete the answers of one watch were on this poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Everything asked for was answered.
    Whole,
    /// Answered with warnings: samples are used, nothing opens or closes.
    Partial,
    /// Not answered: nothing opens or closes.
    Missing,
}

pub use crate::incident::lifecycle::Reason;

/// One change of one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Why.
    pub reason: Reason,
    /// The incident as it is now.
    pub incident: Incident,
}
