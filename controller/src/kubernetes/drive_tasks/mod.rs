//! Orders as objects of Kubernetes: a DriveTask requests one operation on one drive, once.
//!
//! `object` is the resource, `operation` its operation, `names` finds drives by the names of their objects, `plan` decides, `agent_calls`
//! requests operations from agents, and `run` carries the decisions out.

mod agent_calls;
mod names;
pub mod object;
mod operation;
mod plan;
mod run;

pub use run::{Options, follow_tasks};
