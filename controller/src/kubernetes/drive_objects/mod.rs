//! Drives as objects of Kubernetes: a view for `kubectl get drives`, written from the inventory. A deleted object is created again, and
//! changes of an object have no effect on its drive.
//!
//! The resource is in [`drivebay_objects::drive`]. `view` makes a status, `watched` keeps digests of existing objects, `plan` decides, `queue` bounds the plan,
//! `requests` are those to the API server, and `write` carries plans out at a bounded rate.

mod plan;
mod queue;
mod requests;
mod view;
mod watched;
mod write;

pub(in crate::kubernetes) use view::{DriveUse, is_shown};
pub use write::{Options, follow_drives};

/// Selects the drives that have objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// All that `drivebay-controller drives` lists, except loop devices in no class.
    All,
    /// Those with something to report.
    Findings,
}
