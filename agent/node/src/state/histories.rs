//! SMART histories: one file per drive in the state directory. Losing them loses no data.

use drivebay_model::DriveId;
use drivebay_smart::History;

use super::{Damage, StateDir, StateFile, StateKind, Stored};

/// Returns the file of a drive's history. An identity has only characters that are valid in a file name.
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
