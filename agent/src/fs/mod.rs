//! Filesystems and mounts.
//!
//! `mkfs` makes one, exactly once; `options` checks mount and mkfs options; `stage` decides
//! purely what a mount needs (Nothing, Mount, Remount, Conflict); `grow` fits a filesystem to
//! its device; `usage` says how full it is; `jobs` is what the agent asks workers for.

pub mod jobs;
pub mod options;
