//! Evidence about drives and volumes, and the conditions and findings that follow from it.
//!
//! `kmsg` parses the kernel log, `attribute` maps a line to its drive or volume, `stalls` detects requests that do not
//! complete, `mounts` compares the mount table with the expected mounts, `reading` chooses the next place to read,
//! `suspects` and `unreadable` keep places that cannot be read and their owners, `device` and `space` check devices and free
//! space; `registry` keeps the evidence and derives conditions and findings. The tasks that collect evidence are in
//! `health`.

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

/// Returns the time since boot on the registry's clock, which is ahead of it so that evidence from before the boot has a
/// time, too.
pub fn now() -> Duration {
    at(since_boot())
}

/// Converts a time since boot to the registry's clock.
pub fn at(since_boot: Duration) -> Duration {
    since_boot + registry::COUNTS_FOR
}
