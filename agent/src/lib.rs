//! The agent's program: ordered start and stop, and its interfaces: CSI Node, the service for the controller and the command line, metrics.
//! The functions behind them are in other crates (`agent/README.md`).

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod app;
pub mod csi;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod jobs;
pub mod manual_volumes;
pub mod metrics;
pub mod registration;
pub mod server;
pub mod uplink;
