//! Drives whose snapshots are not in the inventory, because the drives cannot be read now. Pure.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::state::{self, merge::is_acknowledged};
use drivebay_model::{DriveState, Layout, Peer, Snapshot};

/// Returns the drives of layout lvm that are missing or cannot be read, and have volumes that were not deleted. The persisted state of a
/// volume does not include its snapshots: each of these drives may hold any.
pub(super) fn unread_snapshots(
    remembered: &state::LastKnown,
    tombstones: &state::Tombstones,
    shown: &Snapshot,
) -> Vec<Peer> {
    let read = shown.drives.values();
    let read = read.filter(|drive| drive.state != DriveState::NotScanned);
    let read = read.filter_map(|drive| drive.contents.as_ref());
    let read: BTreeSet<Uuid> = read.map(|contents| contents.label.drive_uuid).collect();
    let unread = remembered.drives.iter().filter(|(_, before)| {
        let mut volumes = before.volumes.iter();
        before.layout == Layout::Lvm
            && !read.contains(&before.drive_uuid)
            && volumes.any(|record| {
                is_acknowledged(record) && !tombstones.volumes.contains_key(&record.uuid)
            })
    });
    let unread = unread.map(|(id, before)| Peer {
        label: before.drive_uuid,
        drive: id.clone(),
    });
    unread.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{inventory::Inventory, state::Tombstone};
    use drivebay_model::{DriveId, RecordState, samples};

    /// Returns the unread drives after a drive with a volume in this state was pulled.
    fn unread(layout: Layout, state: RecordState, deleted: bool) -> Vec<DriveId> {
        let inventory = Inventory::new(Vec::new(), Duration::ZERO);
        let mut contents = samples::contents(9, 1, vec![samples::placed(7, state)], 0);
        contents.layout = layout;
        let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
        inventory.update(|inventory_state| {
            inventory_state.ready = true;
            inventory_state
                .drives
                .insert(drive.id.clone(), drive.clone().into());
        });
        assert!(inventory.unread_snapshots().is_empty(), "it is read");
        let tombstone = Tombstone {
            drives: [drive.id.clone()].into(),
            name: "pvc-7".into(),
            deleted_at: 1,
            quarantined_seconds: 0,
            released: false,
        };
        inventory.update(|inventory_state| {
            inventory_state.drives.clear();
            if deleted {
                inventory_state
                    .tombstones
                    .volumes
                    .insert(Uuid::from_u128(7), tombstone);
            }
        });
        let unread = inventory.unread_snapshots();
        assert!(unread.iter().all(|one| one.label == Uuid::from_u128(9)));
        unread.into_iter().map(|one| one.drive).collect()
    }

    #[test]
    fn a_pulled_lvm_drive_may_hold_snapshots_until_its_volumes_are_deleted() {
        let id = DriveId("wwn-sda".into());
        assert_eq!(unread(Layout::Lvm, RecordState::Block, false), [id]);
        assert!(unread(Layout::Lvm, RecordState::Block, true).is_empty());
        assert!(unread(Layout::Lvm, RecordState::Creating, false).is_empty());
        // Layout partition has no snapshots.
        assert!(unread(Layout::Partition, RecordState::Block, false).is_empty());
    }
}
