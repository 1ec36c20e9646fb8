//! Filesystems and mounts.
//!
//! `stage` decides purely what a mount needs (Nothing, Mount, Remount, Conflict) and whether a device may be formatted;
//! `staging` executes it; `mkfs` makes a filesystem, exactly once; `copied` gives a copied one its own UUID; `options` and
//! `mkfs_options` check the requested options, `kernel_options` checks them with the kernel and `mkfs_trial` with the tool;
//! `publish` binds and `unmount` unmounts; `grow` fits a filesystem to its device; `usage` reads its usage; `check` checks
//! it; `mapped` opens volumes that have a mapped device, `crypt` the encrypted ones of them; `locate` finds the files at
//! given places. `jobs` has the jobs that the agent sends to workers, `run` executes them.
//!
//! All of these use `kind` for the differences between filesystems, which depends on none of them. Below it: `device`
//! verifies that a partition is the expected one, `tools` runs programs, `decode` parses the output of checkers, `affected`
//! is common code of filesystems that look up files.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod affected;
pub mod backend;
pub mod check;
pub mod copied;
pub mod crypt;
pub mod decode;
pub mod device;
mod error;
pub mod grow;
mod growing;
pub mod hints;
pub mod jobs;
pub mod kernel_options;
pub mod kind;
pub mod locate;
mod luks;
mod mapped;
pub mod mkfs;
pub mod mkfs_options;
pub mod mkfs_trial;
pub mod mounts;
pub mod options;
pub mod publish;
mod refused_mount;
mod run;
pub mod stage;
pub mod staging;
pub mod tools;
pub mod unmount;
pub mod usage;

pub use mkfs_options::check_mkfs_options;
pub use options::{MountFlags, OptionError, parse_mount_flags};
