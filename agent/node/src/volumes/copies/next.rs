//! Decides which actions for copies are due, from the current inventory. Pure.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::inventory::{assemble::is_live, is_reachable};
use drivebay_model::{
    DriveId, Snapshot, SnapshotRecord, Volume, VolumeState, volume_snapshot::INTERNAL,
};

/// Action of the background task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Copies to the volume.
    Fill { uuid: Uuid, drive: DriveId },
    /// Deletes a snapshot that was taken for a copy that has ended.
    Drop { volume: Uuid, snapshot: Uuid },
}

/// Returns all actions that are possible now. `busy`: volumes and snapshots that are skipped. `writing`: drives to which a copy is being
/// written; each drive gets one copy at a time.
pub(super) fn actions(
    snapshot: &Snapshot,
    busy: &BTreeSet<Uuid>,
    writing: &BTreeSet<DriveId>,
) -> Vec<Action> {
    if !snapshot.ready {
        return Vec::new();
    }
    let mut writing = writing.clone();
    let mut all = Vec::new();
    for volume in snapshot.volumes.values() {
        let drive = snapshot.drives.get(&volume.drive);
        if !drive.is_some_and(is_reachable) {
            continue;
        }
        if volume.state == VolumeState::Copying
            && !busy.contains(&volume.uuid)
            && writing.insert(volume.drive.clone())
        {
            all.push(Action::Fill {
                uuid: volume.uuid,
                drive: volume.drive.clone(),
            });
        }
        let over = volume.placed.snapshots.iter().map(|one| &one.record);
        let over = over.filter(|record| is_over(snapshot, busy, record));
        all.extend(over.map(|record| Action::Drop {
            volume: volume.uuid,
            snapshot: record.uuid,
        }));
    }
    all
}

/// True if the snapshot was taken for a copy that is not in progress, and neither is in `busy`.
fn is_over(snapshot: &Snapshot, busy: &BTreeSet<Uuid>, record: &SnapshotRecord) -> bool {
    let Some(copy) = record.name.strip_prefix(INTERNAL) else {
        return false;
    };
    let Ok(copy) = copy.parse::<Uuid>() else {
        return false;
    };
    let volume = snapshot.volumes.get(&copy);
    !busy.contains(&copy)
        && !busy.contains(&record.uuid)
        && volume.is_none_or(|volume| volume.state != VolumeState::Copying)
}

/// True if another live volume has the name of `filling` and precedes it: a complete one, or an incomplete one with a smaller uuid. The
/// volume that is superseded was never acknowledged.
pub(super) fn is_superseded(snapshot: &Snapshot, filling: &Volume) -> bool {
    let comes_first = |volume: &Volume| {
        let is_filling = volume.placed.record.place.is_filling();
        is_live(volume.state) && (!is_filling || volume.uuid < filling.uuid)
    };
    let mut volumes = snapshot.volumes.values();
    volumes.any(|volume| {
        volume.uuid != filling.uuid
            && volume.placed.record.name == filling.placed.record.name
            && comes_first(volume)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, Peer, PlaceState, RecordState, samples};

    fn node(state: VolumeState) -> Snapshot {
        let mut snapshot = Snapshot {
            ready: true,
            ..Snapshot::default()
        };
        let mut origin = samples::placed(1, RecordState::Block);
        let mut taken = samples::snapshot(9, 1);
        taken.record.name = SnapshotRecord::internal_name(Uuid::from_u128(2));
        origin.snapshots = vec![taken, samples::snapshot(8, 1)];
        let copies = [(2, "sdb"), (3, "sdb"), (4, "sdc")];
        let drives = ["sda", "sdb", "sdc"].map(|name| {
            let contents = samples::contents(1, 1, vec![], 0);
            samples::drive(name, DriveState::Claimed, Some(contents))
        });
        let origin = Volume {
            state: VolumeState::Ready,
            ..samples::volume(&drives[0], origin)
        };
        snapshot.volumes.insert(origin.uuid, origin);
        for (uuid, name) in copies {
            let drive = drives.iter().find(|drive| drive.facts.kernel_name == name);
            let volume = Volume {
                state,
                ..samples::volume(drive.unwrap(), samples::placed(uuid, RecordState::Block))
            };
            snapshot.volumes.insert(volume.uuid, volume);
        }
        for drive in drives {
            snapshot.drives.insert(drive.id.clone(), drive);
        }
        snapshot
    }

    fn filled(actions: &[Action]) -> Vec<u128> {
        let fills = actions.iter().filter_map(|action| match action {
            Action::Fill { uuid, .. } => Some(uuid.as_u128()),
            Action::Drop { .. } => None,
        });
        fills.collect()
    }

    #[test]
    fn of_volumes_of_one_name_a_complete_one_stays_or_else_the_first_of_those_that_are_filled() {
        let superseded = |change: fn(&mut Volume)| {
            let mut node = node(VolumeState::Copying);
            for volume in node.volumes.values_mut().skip(1) {
                volume.placed.record.name = "one".into();
                volume.placed.record.place = PlaceState::Incoming {
                    generation: 1,
                    from: Peer {
                        label: Uuid::from_u128(1),
                        drive: DriveId("wwn-sda".into()),
                    },
                };
            }
            change(node.volumes.get_mut(&Uuid::from_u128(3)).unwrap());
            let all = node.volumes.values().skip(1);
            let all = all.filter(|volume| is_superseded(&node, volume));
            all.map(|volume| volume.uuid.as_u128()).collect::<Vec<_>>()
        };
        assert_eq!(superseded(|_| ()), [3, 4]);
        // Volume 3 is complete, although its drive is missing; the results for 2 and 4 are tested.
        let complete = |volume: &mut Volume| {
            volume.placed.record.place = PlaceState::default();
            volume.state = VolumeState::Missing;
        };
        assert_eq!(superseded(complete), [2, 3, 4]);
        let deleted = |volume: &mut Volume| volume.state = VolumeState::Erasing;
        assert_eq!(superseded(deleted), [3, 4]);
        let other = |volume: &mut Volume| volume.placed.record.name = "other".into();
        assert_eq!(superseded(other), [4]);
    }

    #[test]
    fn a_drive_is_written_to_by_one_copy_at_a_time() {
        let node = node(VolumeState::Copying);
        let none = BTreeSet::new();
        let all = actions(
            &node,
            &none,
            &none.iter().map(|_: &Uuid| unreachable!()).collect(),
        );
        assert_eq!(filled(&all), [2, 4]);
        let busy = BTreeSet::from([Uuid::from_u128(2)]);
        let writing = BTreeSet::from([DriveId("wwn-sdb".into())]);
        assert_eq!(filled(&actions(&node, &busy, &writing)), [4]);
        let unready = Snapshot {
            ready: false,
            ..node
        };
        assert!(actions(&unready, &busy, &writing).is_empty());
    }

    #[test]
    fn a_snapshot_that_was_taken_for_a_copy_goes_when_the_copy_is_over_and_no_other_does() {
        let none = BTreeSet::new();
        let drops = |state| {
            let all = actions(&node(state), &none, &BTreeSet::new());
            let drops = all.into_iter().filter_map(|action| match action {
                Action::Drop { snapshot, .. } => Some(snapshot.as_u128()),
                Action::Fill { .. } => None,
            });
            drops.collect::<Vec<_>>()
        };
        assert!(drops(VolumeState::Copying).is_empty());
        assert_eq!(drops(VolumeState::Ready), [9]);
        assert_eq!(drops(VolumeState::Erasing), [9]);
    }
}
