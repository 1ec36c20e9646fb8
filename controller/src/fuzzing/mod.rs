//! Fuzz targets: every parser of foreign bytes, with the properties that its results must have. Tests replay the seeds and
//! some thousand mutations of them; `hwtests/fuzz` runs the targets under libFuzzer.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a property that does not hold is a panic"
)]

mod agents;
mod files;
mod requests;
#[cfg(test)]
mod tests;

pub use drivebay_common::fuzzing::Target;
use drivebay_common::fuzzing::seeds;

/// Returns all targets of the controller.
pub fn targets() -> Vec<Target> {
    [
        drivebay_common::authority::fuzzing::targets(),
        agents::targets(),
        requests::targets(),
        files::targets(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the hex-decoded rest of each recorded line after `marker`.
fn recorded(marker: &str) -> Vec<Vec<u8>> {
    const FRAMES: &str = include_str!("seeds/messages.txt");
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    FRAMES
        .lines()
        .filter_map(|line| Some(line.split_once(marker)?.1))
        .map(|hex| hex.as_bytes().chunks(2).map(byte).collect())
        .collect()
}
