//! Fuzz targets: every parser of external input, and the properties of its results. Tests replay the seeds and some thousand changes of
//! them; `hwtests/fuzz` runs the targets under libFuzzer.
//!
//! `image` is a drive that an input changes; `partitions`, `lvm` and `claim` read such drives; `texts` covers the kernel and udev, `tools`
//! the output of programs, `requests` messages over sockets, `files` the agent's state and configuration.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a property that does not hold is a panic"
)]

mod claim;
mod files;
mod image;
mod input;
mod lvm;
mod partitions;
mod requests;
#[cfg(test)]
mod tests;
mod texts;
mod tools;

pub use drivebay_common::fuzzing::Target;
use drivebay_common::fuzzing::seeds;
use input::Input;

/// Returns all targets of the agent.
pub fn targets() -> Vec<Target> {
    [
        partitions::targets(),
        lvm::targets(),
        claim::targets(),
        texts::targets(),
        tools::targets(),
        requests::targets(),
        files::targets(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
