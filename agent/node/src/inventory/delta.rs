//! Changes between two snapshots. Pure.

use drivebay_model::{Drive, DriveId, Snapshot, Volume};
use uuid::Uuid;

/// Difference of two snapshots; applying it to the old one gives the new one.
#[derive(Debug, Default, PartialEq)]
pub struct Delta<'a> {
    /// New or changed drives.
    pub drives: Vec<&'a Drive>,
    /// Drives that are gone.
    pub removed_drives: Vec<&'a DriveId>,
    /// New or changed volumes.
    pub volumes: Vec<&'a Volume>,
    /// Volumes that are gone.
    pub removed_volumes: Vec<Uuid>,
}

/// Returns the difference from `old` to `new`.
pub fn delta<'a>(old: &'a Snapshot, new: &'a Snapshot) -> Delta<'a> {
    Delta {
        drives: new
            .drives
            .iter()
            .filter(|(id, drive)| old.drives.get(*id) != Some(*drive))
            .map(|(_, drive)| drive)
            .collect(),
        removed_drives: old
            .drives
            .keys()
            .filter(|id| !new.drives.contains_key(*id))
            .collect(),
        volumes: new
            .volumes
            .iter()
            .filter(|(id, volume)| old.volumes.get(*id) != Some(*volume))
            .map(|(_, volume)| volume)
            .collect(),
        removed_volumes: old
            .volumes
            .keys()
            .filter(|id| !new.volumes.contains_key(*id))
            .copied()
            .collect(),
    }
}
