//! Discovery: what drives are there, and which of them may be used.
//!
//! `udev` (one thread owns libudev) says that something changed; `sysfs` reads facts
//! without touching a medium; `probe` is the worker job that reads signatures and
//! blankness; `system` finds what the system runs from; `claim` is the pure rule set
//! that turns all of it into reject reasons.
//!
//! Behind `sysfs`: `attrs`, `attach`, `identity`, `vpd`. Behind `system`: `mounts`, `topology`. Behind `probe`:
//! `magics`, `remains`, `gptscan`, `blank`. Behind `claim`: `reasons`, `contents_reasons`.

#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod attach;
mod attrs;
mod blank;
pub mod claim;
mod contents_reasons;
mod gptscan;
pub mod host_udev;
mod identity;
mod magics;
mod mounts;
pub mod probe;
mod reasons;
mod remains;
pub mod survey;
pub mod sysfs;
pub mod system;
mod topology;
pub mod udev;
mod vpd;
