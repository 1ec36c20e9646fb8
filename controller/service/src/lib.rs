//! The CSI Controller service over agents.
//!
//! The service talks to agents only through the `Agent` gRPC service, over a channel. In the controller's program, agents connect to it; a
//! headless agent passes an [`in_process_channel`] to itself. Either way, the CSI service is the one in this crate:
//!
//! ```no_run
//! # use drivebay_csi::HealthApi;
//! # use drivebay_service::*;
//! # fn example(router: tonic::transport::server::Router) {
//! let agents = Agents::single(in_process_channel(router));
//! let identity = IdentityService::new(IdentityConfig {
//!     driver_name: "csi.drivebay.io".into(),
//!     version: env!("CARGO_PKG_VERSION").into(),
//!     controller: true,
//!     ready: agents.ready(),
//! });
//! let controller = ControllerService::new(
//!     ControllerConfig { driver_name: "csi.drivebay.io".into(), health_api: HealthApi::Legacy, attach: false },
//!     agents,
//! );
//! # }
//! ```

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod agents;
pub mod audit;
pub mod bounds;
pub mod call;
pub mod catalog;
pub mod csi;
pub mod expected;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
mod inprocess;
pub mod inventory;
pub mod notes;
pub mod page;
pub mod peer_log;
pub mod placement;
pub mod refusals;
pub mod state_troubles;
pub mod tokens;

pub use agents::Agents;
pub use csi::{ControllerConfig, ControllerService, IdentityConfig, IdentityService};
pub use inprocess::in_process_channel;
