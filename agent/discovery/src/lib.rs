//! Discovery: what drives are there, and which of them may be used.
//!
//! `udev` (one thread owns libudev) reports changes; `scan` reads the facts of all drives (`sys::sysfs`) and probes their
//! contents in workers (`carve::probe`); `system` finds what the system runs from; `claim` is the pure rule set that turns all
//! of it into reject reasons.
//!
//! `identity` decides which drives are one, and under which identity each is known.
//!
//! `locate_light` switches a drive's light. Behind `system`: `mounts`, `topology`. Behind `claim`: `reasons`, `contents_reasons`.

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
