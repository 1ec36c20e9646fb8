//! Carving: volumes out of drives.
//!
//! `jobs` is what the agent asks workers for, `run` does it. `marks` tells whose a drive is, `layout` which layout it has;
//! `claim` makes a drive ours that is `claimable`; `claimed` decides about the volumes of one that is, for both layouts; `erase` makes deleted
//! space zeros again, `wipe` a whole drive, `zero_free` free space; `copy` copies a volume that moves to its other drive; `zeroed` is what a drive keeps of that. The layouts: `partition`, on `gpt` (both copies of the table), `record` (the
//! label, byte by byte) and `plan` (decides, purely); and `lvm`. Below all of them: `open`, `device`, `pace`, `space`, `error`.

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
pub mod lvm;
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
