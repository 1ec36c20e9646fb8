//! Carving: volumes out of drives.
//!
//! `record` is the on-drive format of the label, byte by byte; `gpt` reads, compares,
//! repairs and writes both copies of the table; `plan` decides, purely; `partition`
//! looks and executes; `erase` makes deleted space zeros again, `wipe` a whole drive; `jobs`
//! is what the agent asks workers for. `lvm` does both for drives carved with LVM, and
//! `layout` tells which a drive has; `marks` tells whose a drive is.

pub mod device;
pub mod erase;
#[cfg(test)]
mod fake;
pub mod gpt;
pub mod jobs;
pub mod layout;
pub mod lvm;
pub mod marks;
pub mod partition;
pub mod plan;
pub mod record;
pub mod wipe;
