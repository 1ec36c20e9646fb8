//! State of a node: its drives and the volumes on them, what is persisted of absent ones, and the operations on
//! volumes. Decisions follow from the contents of drives and the mount table.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod context;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
pub mod inventory;
pub mod keeper;
pub mod lock;
pub mod mounts;
pub mod offline;
pub mod preparation;
pub mod scan_loop;
pub mod state;
pub mod tasks;
pub mod volumes;
