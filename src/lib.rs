//! squall tells backoff without jitter from retry storms without backoff, from the raw request
//! counters that a Prometheus already holds.
//!
//! ```text
//! source -> series -> detect -> classify -> incident -> store
//! (raw scrapes) (intervals) (evidence) (verdict) (lifecycle)  |-> notify
//!                                                             `-> api, web page
//! sim: a fleet and a dependency, seen as a source    rules/: schedules, presets, alerts
//! ```
//!
//! The modules, in the order of the data:

pub mod api;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod detect;
pub mod incident;
pub mod notify;
pub mod pipeline;
pub mod plot;
pub mod rules;
pub mod series;
pub mod sim;
pub mod source;
pub mod store;
pub mod telemetry;
pub mod http;
pub mod wire;
