//! Metrics of the controller: `cluster` is what it knows; the rest is shared with the agent.

pub mod cluster;

pub use drivebay_common::metrics::*;
