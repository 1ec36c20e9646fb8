//! Metrics of the controller: `cluster` defines them; the rest is shared with the agent.

pub mod cluster;
pub mod drive_objects;
pub mod drive_tasks;

pub use drivebay_common::metrics::*;
