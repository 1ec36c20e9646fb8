//! Lays volumes out on drives, as partitions or with LVM.
//!
//! `jobs` has the requests of the agent, `run` executes them in a worker. `marks` reads which node
//! owns a drive, `layout` which layout a drive has. `claim` claims a drive that is `claimable`;
//! `claimed` decides about the volumes of a claimed drive, for both layouts. `erase` zeroes the
//! space of deleted volumes, `wipe` a whole drive, `zero_free` free space, and `zeroed` records
//! which free space is zero. `copy` copies a volume to another drive, `encrypted` knows the header
//! of an encrypted one, `lost` the marks of sectors that did not read when it moved, and `mapped`
//! the mapped device of either. The layouts are `partition`,
//! which uses `gpt` (both copies of the table), `record` (the byte format of labels and records)
//! and `plan` (pure decisions), and `lvm`. All of them use `open`, `device`, `pace`, `space` and
//! `error`.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod claim;
mod claimable;
pub mod claimed;
pub mod copy;
pub mod device;
mod encrypted;
mod erase;
pub mod error;
#[cfg(test)]
mod fake;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
pub mod gpt;
pub mod jobs;
pub mod layout;
pub mod lost;
pub mod lvm;
mod mapped;
pub mod marks;
mod open;
mod pace;
pub mod partition;
pub mod plan;
pub mod probe;
pub mod record;
mod release;
mod run;
mod space;
pub mod wipe;
mod zero_free;
mod zeroed;
