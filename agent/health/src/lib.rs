//! Tasks that collect evidence about drives and volumes: `watch` (the kernel log and error counters), `mount_watch`,
//! `fsevents` (error events of filesystems), `look` (reads samples of each drive periodically), `unreadable` (finds the
//! unreadable sectors and their owners), `smart` (with `logged`, the unreadable sectors in the drives' logs), `checks` (runs
//! filesystem checks), and `slow` (compares the drives' latencies). `memory` persists what cannot be observed again,
//! `collected` is what the tasks collect for one another. `state_dir` reports state files that cannot be saved or were lost.
//! `changes` logs changes.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod acknowledge;
pub mod changes;
pub mod checks;
mod collected;
pub mod fsevents;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
mod logged;
pub mod memory;
pub mod mount_watch;
pub mod sampling;
pub mod slow;
pub mod smart;
pub mod state_dir;
pub mod unreadable;
pub mod watch;

pub use acknowledge::Acknowledger;
pub use collected::CollectedEvidence;
