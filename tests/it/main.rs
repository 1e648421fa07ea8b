//! The one integration-test binary; each module tells one part's story.

mod alerts;
mod config;
mod daemon;
mod notify;
mod rules;
mod storm;
mod store;
mod support;
mod tidy;
