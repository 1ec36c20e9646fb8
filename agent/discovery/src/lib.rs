//! Discovery: finds the attached drives, and decides which of them may be used.
//!
//! `udev` (one thread owns libudev) reports changes; `scan` reads the facts of all drives (`sys::sysfs`) and probes their contents in
//! workers (`layout::probe`); `system` finds the drives that the host uses; `claim` is the pure rule set that derives reject reasons from
//! all of it.
//!
//! `identity` finds devices that are one drive, and assigns the identity of each drive.
//!
//! `locate_light` switches a drive's light. `system` uses `mounts` and `topology`, `claim` uses `reasons` and `contents_reasons`.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod claim;
mod contents_reasons;
pub mod host_udev;
mod identity;
pub mod locate_light;
mod mounts;
mod reasons;
pub mod scan;
pub mod system;
mod topology;
pub mod udev;
