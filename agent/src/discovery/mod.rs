//! Discovery: what drives are there, and which of them may be used.
//!
//! `udev` (one thread owns libudev) says that something changed; `sysfs` reads facts
//! without touching a medium; `probe` is the worker job that reads signatures and
//! blankness; `system` finds what the system runs from; `claim` is the pure rule set
//! that turns all of it into reject reasons.

mod attach;
mod attrs;
mod blank;
pub mod claim;
mod contents_reasons;
mod gptscan;
mod identity;
mod magics;
mod mounts;
pub mod probe;
mod reasons;
pub mod survey;
pub mod sysfs;
pub mod system;
mod topology;
pub mod udev;
