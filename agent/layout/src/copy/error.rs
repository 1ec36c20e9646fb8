//! Why a copy of a volume did not go on.

use serde::{Deserialize, Serialize};

use crate::error::CarveError;

/// Why a step of a copy failed. What it copied is not counted; the same step can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CopyError {
    /// The drive that the volume lives on. What does not read there is none: it is answered (`CopyProgress::unreadable`).
    #[error("cannot read the volume to be copied")]
    Source(#[source] CarveError),
    /// The drive that the copy is on.
    #[error("cannot write the copy of the volume")]
    Target(#[source] CarveError),
    /// What was written, flushed, and written and flushed again, reads as something else.
    #[error(
        "drive {drive} does not read back what was copied to it, at byte {at} of the volume, after two attempts; replace that drive, or look at the host's memory and the cabling"
    )]
    Differs {
        /// Where the copy is.
        drive: String,
        /// The first byte, from the volume's start.
        at: u64,
    },
}
