//! Drivebay's controller: the program around the CSI Controller service (`drivebay_service`). It accepts agents' connections,
//! persists its state, writes Kubernetes Events, and has a command line.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod app;
pub mod cli;
pub mod cluster;
pub mod config;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../proto/golden.rs"]
mod golden;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod last_known;
pub mod listen;
pub mod metrics;
pub mod settings;
pub mod undelivered_deletes;

#[cfg(feature = "certs")]
pub use drivebay_certs as certs;
// Below this crate, and named here for its own modules; other crates take them from `drivebay_common`.
use drivebay_common::{dial, files, limits, liveness, logging, manager, socket, tls};
