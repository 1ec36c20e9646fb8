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
#[path = "../layout/src/lib.rs"]
pub mod carve;
#[path = "../cli/src/lib.rs"]
pub mod cli;
#[path = "../config/src/lib.rs"]
pub mod config;
pub mod csi;
#[path = "../discovery/src/lib.rs"]
pub mod discovery;
#[path = "../evidence/src/lib.rs"]
pub mod evidence;
#[path = "../fs/src/lib.rs"]
pub mod fs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../proto/golden.rs"]
mod golden;
#[path = "../health/src/lib.rs"]
pub mod health;
pub mod jobs;
pub mod metrics;
#[path = "../model/src/lib.rs"]
pub mod model;
#[path = "../node/src/lib.rs"]
mod node;
pub mod registration;
pub mod server;
#[path = "../smart/src/lib.rs"]
pub mod smart;
#[path = "../sys/src/lib.rs"]
pub mod sys;
pub mod uplink;
#[path = "../worker/src/lib.rs"]
pub mod worker;

pub use fs::{affected, check};
pub use node::{inventory, keeper, lock, offline, preparation, state, survey_loop, tasks, volumes};
pub use smart::slow;
