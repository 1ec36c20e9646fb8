//! Filesystems and mounts.
//!
//! `stage` decides purely what a mount needs (Nothing, Mount, Remount, Conflict) and whether a device may be formatted; `staging`
//! executes it; `mkfs` makes a filesystem, exactly once; `copied` gives a copied one its own UUID; `options` and `mkfs_options` check what requests may ask for,
//! `kernel_options` asks the kernel and `mkfs_trial` the tool; `publish` and `unmount` bind and take away; `grow` fits a filesystem
//! to its device; `usage` says how full it is; `check` checks it; `locate` asks which file has a place. `jobs` is what the agent asks
//! workers for, `run` does it.
//!
//! All of these ask `kind` for what differs between filesystems, which knows none of them. Below it: `device` proves that a
//! partition is the expected one, `tools` runs programs, `decode` reads what checkers say, `affected` is what filesystems have in
//! common that are asked for files.

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
