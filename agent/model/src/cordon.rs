//! An operator's decision that a drive takes no new volumes, as it is recorded on the drive.

use serde::{Deserialize, Serialize};

/// What a cordon's text may have, bytes: it lies in the drive's label, which has no room for more.
pub const MAX_TEXT: usize = 512;

/// Why no new volumes are put on a drive. Its volumes stay, and are staged, published, expanded and deleted as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// When it was recorded, seconds since 1970.
    pub at: u64,
    /// The operator, without control characters, at most [MAX_TEXT] bytes.
    pub by: String,
    /// The operator's reason, likewise; may be empty.
    pub reason: String,
}
