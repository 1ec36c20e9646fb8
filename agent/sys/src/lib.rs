//! Side effects: the only place that may spawn a process, mount, or use unsafe code.
//!
//! Functions here are mostly synchronous and small; those that may block on a drive are called in workers only.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "the bans fence side effects into this folder"
)]

pub mod attribute;
pub mod blkid;
pub mod blockdev;
pub mod blockstat;
pub mod btrfs;
pub mod busy;
pub mod child;
pub mod clock;
pub mod cmd;
pub mod direct;
pub mod diskread;
pub mod dm;
pub mod drive;
pub mod fanotify;
pub mod fscontext;
pub mod fsmap;
pub mod fssize;
pub mod holders;
pub mod host_udev;
pub mod input;
mod ioctl;
pub mod kmsg;
pub mod locate_light;
pub mod lockfile;
pub mod lvm;
pub mod mount;
pub mod mountinfo;
pub mod mountwatch;
pub mod offload;
pub mod path;
pub mod process;
pub mod quiet;
pub mod scratch;
mod seclude;
pub mod start;
pub mod statefile;
pub mod sysfs;
pub mod tool_namespace;
pub mod uevent;
pub mod user;
pub mod walk;
pub mod worker_server;
pub mod worker_socket;
