//! An operator's decision that a drive takes no new volumes, as it is recorded on the drive.

use serde::{Deserialize, Serialize};

/// Longest text of a cordon, bytes: it is stored in the drive's label, which has no room for more.
pub const MAX_TEXT: usize = 512;

/// Excludes a drive from new volumes. Its volumes stay, and are staged, published, expanded and deleted as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Time at which it was recorded, seconds since 1970.
    pub at: u64,
    /// Name of the operator, without control characters, at most [MAX_TEXT] bytes.
    pub by: String,
    /// The operator's reason, within the same limits; may be empty.
    pub reason: String,
}
