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

pub mod affected;
pub mod app;
pub mod by_hand;
pub mod carve;
pub mod check;
pub mod cli;
pub mod config;
pub mod csi;
pub mod discovery;
pub mod evidence;
pub mod fs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../proto/golden.rs"]
mod golden;
pub mod health;
pub mod inventory;
pub mod jobs;
pub mod keeper;
pub mod lock;
pub mod metrics;
pub mod model;
pub mod offline;
mod preparation;
pub mod registration;
pub mod server;
pub mod slow;
pub mod smart;
pub mod state;
pub mod survey_loop;
pub mod sys;
mod tasks;
pub mod uplink;
pub mod volumes;
pub mod worker;
