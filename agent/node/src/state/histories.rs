//! What is kept of a drive's SMART data: one file per drive in the state directory. Losing them loses no data.

use drivebay_model::DriveId;
use drivebay_smart::History;

use super::{Damage, StateDir, StateFile, StateKind, Stored};

/// The history of a drive. An identity is made of characters that a file name takes.
pub fn file(dir: &StateDir, id: &DriveId) -> StateFile<History> {
    StateFile::of(dir, &id.0)
}

impl Stored for History {
    const KIND: StateKind = StateKind::Smart;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        Ok(Self::from_json(bytes)?)
    }

    fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        self.to_json().map_err(std::io::Error::other)
    }
}
