//! Where samples come from: Prometheus over HTTP, OpenMetrics text, the simulator.

pub mod openmetrics;
