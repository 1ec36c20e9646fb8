//! Carving: volumes out of drives.
//!
//! `jobs` is what the agent asks workers for, `run` does it. `marks` tells whose a drive is, `layout` which layout it has;
//! `claim` makes a drive ours that is `claimable`; `claimed` decides about the volumes of one that is, for both layouts; `erase` makes deleted
//! space zeros again, `wipe` a whole drive, `zero_free` free space; `zeroed` is what a drive keeps of that. The layouts: `partition`, on `gpt` (both copies of the table), `record` (the
//! label, byte by byte) and `plan` (decides, purely); and `lvm`. Below all of them: `open`, `device`, `pace`, `space`, `error`.

pub mod claim;
mod claimable;
pub(crate) mod claimed;
pub mod device;
mod erase;
pub(crate) mod error;
#[cfg(test)]
mod fake;
pub mod gpt;
pub mod jobs;
pub mod layout;
pub mod lvm;
pub mod marks;
mod open;
mod pace;
pub(crate) mod partition;
pub mod plan;
pub mod probe;
pub mod record;
mod release;
mod run;
mod space;
pub mod wipe;
mod zero_free;
mod zeroed;
