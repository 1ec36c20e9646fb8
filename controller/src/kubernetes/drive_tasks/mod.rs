//! Orders as objects of Kubernetes: a DriveTask requests one operation on one drive, once.
//!
//! The resource is in [`drivebay_objects::task`]. `operation` is its operation, `watched` has the tasks, `names` finds drives by the names of
//! their objects, `plan` decides, `agent_calls` requests operations from agents, `progress` follows evacuations, and `run` carries the
//! decisions out.

mod agent_calls;
mod names;
mod operation;
mod plan;
mod progress;
mod run;
mod watched;

pub use run::{Options, follow_tasks};
