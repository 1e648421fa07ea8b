//! The one integration-test binary; each module tells one part's story.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy spares tests, and not the functions that tests share; what they print shows on failure"
)]

mod alerts;
mod backtest;
mod bad_days;
mod clients;
mod config;
mod daemon;
mod doctor;
mod evidence;
mod full_disk;
mod grafana;
mod laboratory;
mod manners;
mod notify;
mod page;
mod presets;
mod quiet_days;
mod replicas;
mod rules;
mod storm;
mod store;
mod support;
mod swarm;
mod tidy;
mod tls;
