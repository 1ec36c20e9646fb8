//! A volume in all its places: which of them is served, and how the others are shown. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{
    InventoryState,
    assemble::{is_live, volume as in_place},
};
use crate::state::Merged;
use drivebay_model::{
    Drive, DriveId, DriveState, Peer, PlaceState, Placed, Record, Volume, VolumeState,
    condition::{Condition, Reason},
    place::{Doubt, Judgement, ObservedPlace, judge},
    snapshot::Place,
};

/// Builds a volume from all its places. None without a place.
///
/// `unread`: the highest generation on a drive that is not read now. The place on which the records and the agent's
/// note agree comes first, and is the only one that is used. If they do not agree, the first is the one in use, else
/// the one on the drive that was known to have it, and nothing is changed.
pub(super) fn volume(
    inventory: &InventoryState,
    merged: &Merged,
    drives: &BTreeMap<DriveId, Drive>,
    unread: Option<&(u64, Peer)>,
    mut places: Vec<(&Drive, &Placed)>,
) -> Option<Volume> {
    let was_on = |drive: &Drive, uuid: Uuid| {
        let before = merged.last_known.drives.get(&drive.id);
        before.is_some_and(|before| before.volumes.iter().any(|record| record.uuid == uuid))
    };
    places.sort_by_key(|(drive, placed)| {
        let is_used = inventory.mounts.is_in_use(placed);
        let place = &placed.record.place;
        (
            // A place that is being erased for a move is no place of the volume.
            !placed.record.is_deleted() && placed.record.is_erasing(),
            !is_used,
            place.is_incoming(),
            !was_on(drive, placed.record.uuid),
        )
    });
    let judgement = judged(inventory, unread, &places);
    if let Judgement::Serve { index, .. } = judgement {
        let served = places.remove(index);
        places.insert(0, served);
    }
    let mut places = places.into_iter();
    let (drive, placed) = places.next()?;
    let mut volume = in_place(inventory, merged, drive, placed);
    for (copy, placed) in places {
        volume.in_use |= inventory.mounts.is_in_use(placed);
        for at in inventory.mounts.places(placed) {
            if !volume.mounts.contains(&at) {
                volume.mounts.push(at);
            }
        }
        volume.copies.push(Place {
            drive: copy.id.clone(),
            placed: placed.clone(),
        });
    }
    settle(inventory, merged, drives, &judgement, &mut volume);
    Some(volume)
}

/// Applies the judgement to a volume that was put together.
fn settle(
    inventory: &InventoryState,
    merged: &Merged,
    drives: &BTreeMap<DriveId, Drive>,
    judgement: &Judgement,
    volume: &mut Volume,
) {
    let is_completing = inventory.completing.contains(&volume.uuid);
    // A deleted volume needs no decision, and one whose move is being completed gets one.
    if !is_live(volume.state) || is_completing {
        return;
    }
    let name = |id: &DriveId| {
        let drive = drives.get(id);
        drive.map_or_else(|| id.to_string(), Drive::describe)
    };
    match judgement {
        Judgement::Serve { .. } | Judgement::Nowhere => {}
        // The source of its data may be on any drive.
        Judgement::OnlyIncoming(_) if volume.placed.record.place.is_filling() => {
            volume.state = VolumeState::Copying;
            volume.conditions.clear();
        }
        // Not scanned yet is not missing.
        Judgement::InDoubt(Doubt::TargetNotSeen(peer) | Doubt::CommitIssued(peer))
        | Judgement::OnlyIncoming(peer)
            if !inventory.ready || is_unscanned(inventory, merged, peer) =>
        {
            volume.state = VolumeState::NotScanned;
            volume.conditions.clear();
        }
        Judgement::InDoubt(Doubt::SeveralLive(_)) => {
            let others: Vec<String> = volume.copies.iter().map(|copy| name(&copy.drive)).collect();
            volume.state = VolumeState::Ambiguous;
            volume.conditions = vec![Condition::new(
                Reason::VolumeOnTwoDrives,
                format!(
                    "the volume is on drive {} and on drive {}; detach the copy",
                    name(&volume.drive),
                    others.join(" and on drive ")
                ),
            )];
        }
        Judgement::InDoubt(doubt) => {
            volume.state = VolumeState::Ambiguous;
            volume.conditions = vec![Condition::new(Reason::MoveInDoubt, doubt.describe(name))];
        }
        Judgement::OnlyIncoming(source) => {
            volume.state = VolumeState::Missing;
            volume.conditions = vec![Condition::new(
                Reason::DriveMissing,
                format!(
                    "drive {} is not found on this node with it; what is on drive {} is a copy that is not complete",
                    name(&source.drive),
                    name(&volume.drive)
                ),
            )];
        }
    }
}

/// Judges all places but those that are being erased. Indices are those of `places`.
fn judged(
    inventory: &InventoryState,
    unread: Option<&(u64, Peer)>,
    places: &[(&Drive, &Placed)],
) -> Judgement {
    let Some(uuid) = places.first().map(|(_, placed)| placed.record.uuid) else {
        return Judgement::Nowhere;
    };
    let observed: Vec<(usize, ObservedPlace<'_>)> = places
        .iter()
        .enumerate()
        .filter(|(_, (_, placed))| !placed.record.is_erasing())
        .map(|(index, (drive, placed))| {
            let label = drive
                .contents
                .as_ref()
                .map(|contents| contents.label.drive_uuid);
            let place = ObservedPlace {
                label: label.unwrap_or_default(),
                state: &placed.record.place,
            };
            (index, place)
        })
        .collect();
    let only: Vec<ObservedPlace<'_>> = observed.iter().map(|(_, place)| place.clone()).collect();
    let note = inventory.moves.get(&uuid).and_then(|one| one.note());
    let judgement = judge(&only, note, unread);
    match judgement {
        Judgement::Serve { index, revert } => {
            observed
                .get(index)
                .map_or(Judgement::Nowhere, |(index, _)| Judgement::Serve {
                    index: *index,
                    revert,
                })
        }
        other => other,
    }
}

/// Returns the highest generation in which each volume was read as live, on a drive that is not read now.
pub(super) fn latest_unread(
    merged: &Merged,
    drives: &BTreeMap<DriveId, Drive>,
) -> BTreeMap<Uuid, (u64, Peer)> {
    let contents = drives.values().filter_map(|drive| drive.contents.as_ref());
    let read: BTreeSet<Uuid> = contents.map(|contents| contents.label.drive_uuid).collect();
    let mut latest: BTreeMap<Uuid, (u64, Peer)> = BTreeMap::new();
    for (id, before) in &merged.last_known.drives {
        if read.contains(&before.drive_uuid) {
            continue;
        }
        for record in &before.volumes {
            let PlaceState::Live { generation, .. } = record.place else {
                continue;
            };
            let highest = latest.get(&record.uuid).map_or(0, |(highest, _)| *highest);
            if !record.is_deleted() && generation > highest {
                let peer = Peer {
                    label: before.drive_uuid,
                    drive: id.clone(),
                };
                latest.insert(record.uuid, (generation, peer));
            }
        }
    }
    latest
}

fn is_unscanned(inventory: &InventoryState, merged: &Merged, peer: &Peer) -> bool {
    let same = merged.last_known.drives.iter();
    let mut same = same.filter(|(_, before)| before.drive_uuid == peer.label);
    same.any(|(id, _)| inventory.unscanned.contains_key(id))
}

/// Builds the placed volume of a record of the persisted state, whose drive was not read: it has no device.
pub(super) fn remembered(record: &Record) -> Placed {
    Placed {
        record: record.clone(),
        number: None,
        device: None,
        dev: None,
        dm_uuid: None,
        pieces: Vec::new(),
        mapping: None,
        snapshots: Vec::new(),
        ambiguous: None,
    }
}

/// True if a drive can be read and written now.
pub(crate) fn is_reachable(drive: &Drive) -> bool {
    drive.state == DriveState::Claimed && drive.trouble.is_none()
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
