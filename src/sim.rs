//! A fleet, the dependencies it calls and the Prometheus that watches: ground truth for squall.
//!
//! Arguments about retry policy are settled by running them. The simulation is deterministic: one
//! seed, the same bytes on any machine. It shares no code with detection, since an exam that shares
//! code with the pupil proves nothing.
//!
//! # Method
//!
//! Discrete events in microseconds. Each call of each client is simulated; what a dependency answers
//! is settled when the attempt arrives (a queue is the instant until which its server is busy), so a
//! call that succeeds at once costs no further event. Counters are incremented when the client
//! knows the outcome, and read when the scraper comes by.
//!
//! # Cost
//!
//! About 0.4 microseconds for an attempt. A hundred thousand clients over ten simulated minutes, a
//! common failure and 3.8 million attempts take 1.4 s of one busy core of a virtual server
//! (`cargo bench --bench squall -- simulation`), and 29 MiB of memory: what is in flight, the samples
//! not yet taken away, and one row of truth a second.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts, instants in microseconds and indices stay far below the limits of their types"
)]
#![expect(
    clippy::suboptimal_flops,
    reason = "plain sums and products are the same on every machine and fast without fused hardware"
)]

pub mod builtin;
pub mod compare;
pub mod corpus;
pub mod counterfactual;
pub mod openmetrics;
pub mod plot;
pub mod policy;
pub mod random;
pub mod scenario;
pub mod serve;
pub mod shop;
pub mod truth;
pub mod world;

mod arrivals;
mod dependency;
mod scraper;

use crate::series::{Labels, Sample};

/// One simulated series with its name among its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedSeries {
    /// The labels, `__name__` included.
    pub labels: Labels,
    /// The samples in the order in which they arrived.
    pub samples: Vec<Sample>,
}

/// A whole simulation: what was seen, and what was true.
#[derive(Debug, Clone)]
pub struct Run {
    /// What the scraper collected.
    pub series: Vec<SimulatedSeries>,
    /// What happened.
    pub truth: truth::Truth,
}

/// Simulates the whole scenario.
#[must_use]
pub fn run(scenario: &scenario::Scenario, seed: u64) -> Run {
    let seconds = scenario.duration_seconds as usize + world::TRUTH_SECONDS;
    let mut world = world::World::remembering(scenario, seed, seconds);
    world.advance(scenario.duration_seconds);
    world.finish()
}
