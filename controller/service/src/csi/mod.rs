//! CSI services of the controller: identity, controller and group controller, and the mapping of errors to status codes.

mod attach;
mod attempt;
mod controller;
mod create;
mod delete;
mod encode;
mod existing_groups;
mod group_controller;
mod group_snapshots;
mod grow;
mod listing;
mod origin;
mod pending;
mod snapshot_listing;
mod snapshots;
mod status;
mod suitable;
#[cfg(test)]
mod test_nodes;
mod volumes;

pub use controller::{ControllerConfig, ControllerService};
pub use drivebay_common::{IdentityConfig, IdentityService, rpc::logged};
