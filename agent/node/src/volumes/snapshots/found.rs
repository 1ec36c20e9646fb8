//! Group snapshots in the inventory, and how a request for one compares with those of its name. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::volumes::VolumeError;
use drivebay_layout::jobs::Member;
use drivebay_model::{PlacedSnapshot, Snapshot, Volume, volume_snapshot::SnapshotGroup};

/// A group snapshot in the inventory. Members may be missing or incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundGroup {
    pub(super) group: SnapshotGroup,
    /// By uuid of the volume.
    pub(super) members: BTreeMap<Uuid, PlacedSnapshot>,
}

impl FoundGroup {
    /// True if all its members are found and complete.
    pub(super) fn is_whole(&self) -> bool {
        let complete = self.members.values();
        let complete = complete.filter(|one| one.record.is_complete).count();
        u32::try_from(complete) == Ok(self.group.members)
    }

    /// True if the group has as many members as there are requested volumes, and each member found is of one of them.
    fn fits(&self, wanted: &BTreeSet<Uuid>) -> bool {
        u32::try_from(wanted.len()) == Ok(self.group.members)
            && self.members.keys().all(|volume| wanted.contains(volume))
    }
}

/// Returns the groups for which `is_it` is true, by uuid, with the members found.
pub(super) fn groups(
    snapshot: &Snapshot,
    is_it: impl Fn(&SnapshotGroup) -> bool,
) -> Vec<FoundGroup> {
    let mut all: BTreeMap<Uuid, FoundGroup> = BTreeMap::new();
    for volume in snapshot.volumes.values() {
        for one in &volume.placed.snapshots {
            if let Some(group) = &one.record.group
                && is_it(group)
            {
                let entry = all.entry(group.uuid).or_insert_with(|| FoundGroup {
                    group: group.clone(),
                    members: BTreeMap::new(),
                });
                entry.members.insert(volume.uuid, one.clone());
            }
        }
    }
    all.into_values().collect()
}

/// Result of [`compare`], if no other group has the name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// The requested group exists and is complete.
    Whole(FoundGroup),
    /// Members of incomplete groups, to be deleted before the group is taken: volume and snapshot. Empty if there are none.
    Leftovers(Vec<(Uuid, Uuid)>),
}

/// Compares the groups of one name with the volumes of a request.
///
/// # Errors
/// The volumes of another group of that name that was acknowledged, or may have been.
pub(super) fn compare(
    named: Vec<FoundGroup>,
    wanted: &BTreeSet<Uuid>,
) -> Result<Existing, BTreeSet<Uuid>> {
    let mut leftovers = Vec::new();
    for group in named {
        let fits = group.fits(wanted);
        if fits && group.is_whole() {
            return Ok(Existing::Whole(group));
        }
        let mut members = group.members.values();
        if !fits && members.any(|one| one.record.is_complete) {
            return Err(group.members.into_keys().collect());
        }
        // The operator decides about an ambiguous member; `due` deletes those of other volumes.
        let members = group.members.into_iter();
        let members = members.filter(|(of, one)| one.ambiguous.is_none() && wanted.contains(of));
        leftovers.extend(members.map(|(of, one)| (of, one.record.uuid)));
    }
    Ok(Existing::Leftovers(leftovers))
}

/// Returns the devices of an incomplete snapshot and its volume. Errs if the volume has no device-mapper device.
pub(super) fn devices(volume: &Volume, snapshot: &PlacedSnapshot) -> Result<Member, VolumeError> {
    let origin = volume.placed.dm_uuid.clone();
    Ok(Member {
        uuid: snapshot.record.uuid,
        origin: origin.ok_or_else(|| VolumeError::Internal {
            what: format!("volume {} has no device-mapper device", volume.uuid),
        })?,
        snapshot: snapshot.dm_uuid.clone(),
        mapping: volume.placed.mapping_uuid(),
    })
}

#[cfg(test)]
#[path = "found_tests.rs"]
mod tests;
