//! Evidence about drives and volumes, and the conditions and findings that follow from it.
//!
//! `kmsg` parses the kernel log, `attribute` finds the drive or volume that a line is about, `stalls` sees requests that do not
//! complete, `mounts` what should be mounted, `reading` which place is read next, `suspects` and `unreadable` what does not read and whose it is, `device` and `space` what their names say;
//! `registry` keeps the evidence and derives conditions and findings. The tasks that collect evidence are in `health`.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

use std::time::Duration;

use drivebay_sys::clock::since_boot;

pub mod attribute;
pub mod device;
pub mod kmsg;
pub mod mounts;
pub mod reading;
pub mod registry;
pub mod space;
pub mod stalls;
pub mod suspects;
pub mod unreadable;

pub use registry::HealthRegistry;

/// The registry's time: since boot, moved so far that evidence from before the boot has a time, too.
pub fn now() -> Duration {
    at(since_boot())
}

/// A time since boot as the registry's time.
pub fn at(since_boot: Duration) -> Duration {
    since_boot + registry::COUNTS_FOR
}
