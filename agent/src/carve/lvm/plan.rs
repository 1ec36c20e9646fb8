//! The arithmetic of the `lvm` layout.

use crate::model::MIB;

/// Bytes of a physical extent (PE) in a VG of ours; volumes are multiples of it.
pub const EXTENT_BYTES: u64 = MIB;

/// Bytes that volumes could have on a drive of this size once it is claimed; 0 when it is too small.
pub fn claimable_bytes(size: u64, sector: u64) -> u64 {
    let _ = sector;
    size.saturating_sub(16 * MIB) / EXTENT_BYTES * EXTENT_BYTES
}
