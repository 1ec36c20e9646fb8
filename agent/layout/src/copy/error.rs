//! Errors of copying a volume.

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;

/// Error of a step of a copy. Bytes copied by that step do not count as done; the same step can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CopyError {
    /// Reading the source failed. Unreadable blocks are no error: they are returned (`CopyProgress::unreadable`).
    #[error("cannot read the volume to be copied")]
    Source(#[source] LayoutError),
    /// Reading or writing the drive of the copy failed.
    #[error("cannot write the copy of the volume")]
    Target(#[source] LayoutError),
    /// The data read back differs from what was written and flushed, also after a second attempt.
    #[error(
        "drive {drive} does not read back what was copied to it, at byte {at} of the volume, after two attempts; replace that drive, or look at the host's memory and the cabling"
    )]
    Differs {
        /// Drive of the copy.
        drive: String,
        /// First byte that differs, relative to the volume's start.
        at: u64,
    },
}
