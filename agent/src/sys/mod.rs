//! Side effects: the only place that may spawn a process, mount, or use unsafe code.
//!
//! Everything here is synchronous and small; what may block on a drive is called in
//! workers only.

#![allow(unsafe_code)]

pub mod blkid;
pub mod blockdev;
pub mod cmd;
pub mod diskread;
pub mod mount;
pub mod mountinfo;
pub mod process;
pub mod uevent;
