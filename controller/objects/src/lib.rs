//! Drivebay's resources of Kubernetes: [`drive::Drive`] and [`task::DriveTask`].

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod drive;
pub mod task;
pub mod times;
