//! The one integration-test binary; each module tells one part's story.

mod config;
mod daemon;
mod storm;
mod support;
mod tidy;
