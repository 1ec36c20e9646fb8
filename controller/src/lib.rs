//! Drivebay's controller: the CSI Controller service over agents.
//!
//! It talks to agents only through the `Agent` service, over a channel. The
//! `drivebay-controller` binary dials one; a headless agent hands over an
//! [`in_process_channel`] to itself. Either way the service is the one here:
//!
//! ```no_run
//! # use drivebay_controller::*;
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
//!
//! The Node service of the agent shares [`validate`], [`health`] and [`topology`].

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod agents;
pub mod app;
pub mod audit;
pub mod bounds;
pub mod call;
mod capability;
pub mod catalog;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod csi;
pub mod expected;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../proto/golden.rs"]
mod golden;
pub mod health;
pub mod inprocess;
pub mod inventory;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod last_known;
pub mod listen;
pub mod metrics;
pub mod notes;
pub mod page;
pub mod peer_log;
pub mod placement;
pub mod refusals;
pub mod settings;
pub mod size;
pub mod state_troubles;
pub mod tokens;
pub mod topology;
pub mod undelivered_deletes;
pub mod validate;

pub use agents::Agents;
pub use config::HealthApi;
pub use csi::{ControllerConfig, ControllerService, IdentityConfig, IdentityService};
#[cfg(feature = "certs")]
pub use drivebay_certs as certs;
// Below this crate, and named here for its own modules; other crates take them from `drivebay_common`.
use drivebay_common::{dial, files, limits, liveness, logging, manager, socket, tls};
pub use inprocess::in_process_channel;
