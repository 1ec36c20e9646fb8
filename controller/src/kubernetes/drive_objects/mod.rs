//! Drives as objects of Kubernetes: a view for `kubectl get drives`, written from the inventory. The drives stay the truth: an object
//! that is deleted returns, and nothing that is changed in one has an effect.
//!
//! `object` is the resource, `view` makes a status, `known` keeps what there is, `plan` decides, and `write` carries that out at a
//! bounded rate.

mod known;
pub mod object;
mod plan;
mod view;
mod write;

pub use write::{Options, follow_drives};

/// Which drives have objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// All that `drivebay-controller drives` lists, but loop devices in no class.
    All,
    /// Those with something to report.
    Findings,
}
