//! Side effects: the only place that may spawn a process, mount, or use unsafe code.
//!
//! Everything here is synchronous and small; what may block on a drive is called in
//! workers only.

#![allow(unsafe_code)]

pub mod blkid;
pub mod blockdev;
pub mod clock;
pub mod cmd;
pub mod diskread;
pub mod fssize;
pub mod lockfile;
pub mod mount;
pub mod mountinfo;
pub mod mountwatch;
pub mod offload;
pub mod path;
pub mod process;
pub mod socket;
pub mod statefile;
pub mod uds;
pub mod uevent;
