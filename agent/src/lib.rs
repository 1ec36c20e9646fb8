//! The Drivebay agent: finds a node's drives, carves volumes from those it may
//! use, mounts them, and reports their health.
//!
//! Data flows one way: discovery → inventory → {carve, fs} through workers →
//! snapshot → {csi, uplink, metrics, cli}.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod app;
pub mod by_hand;
pub mod csi;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod jobs;
pub mod metrics;
pub mod registration;
pub mod server;
pub mod uplink;
