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
    known: &InventoryState,
    merged: &Merged,
    drives: &BTreeMap<DriveId, Drive>,
    unread: Option<&(u64, Peer)>,
    mut places: Vec<(&Drive, &Placed)>,
) -> Option<Volume> {
    let is_known_on = |drive: &Drive, uuid: Uuid| {
        let before = merged.known.drives.get(&drive.id);
        before.is_some_and(|before| before.volumes.iter().any(|record| record.uuid == uuid))
    };
    places.sort_by_key(|(drive, placed)| {
        let is_used = known.mounts.is_in_use(placed);
        let place = &placed.record.place;
        (
            // A place that is being erased for a move is no place of the volume.
            !placed.record.is_deleted() && placed.record.is_erasing(),
            !is_used,
            place.is_incoming(),
            !is_known_on(drive, placed.record.uuid),
        )
    });
    let judgement = judged(known, unread, &places);
    if let Judgement::Serve { index, .. } = judgement {
        let served = places.remove(index);
        places.insert(0, served);
    }
    let mut places = places.into_iter();
    let (drive, placed) = places.next()?;
    let mut volume = in_place(known, merged, drive, placed);
    for (copy, placed) in places {
        volume.in_use |= known.mounts.is_in_use(placed);
        for at in known.mounts.places(placed) {
            if !volume.mounts.contains(&at) {
                volume.mounts.push(at);
            }
        }
        volume.copies.push(Place {
            drive: copy.id.clone(),
            placed: placed.clone(),
        });
    }
    settle(known, merged, drives, &judgement, &mut volume);
    Some(volume)
}

/// Applies the judgement to a volume that was put together.
fn settle(
    known: &InventoryState,
    merged: &Merged,
    drives: &BTreeMap<DriveId, Drive>,
    judgement: &Judgement,
    volume: &mut Volume,
) {
    let is_completing = known.completing.contains(&volume.uuid);
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
            if !known.ready || is_unscanned(known, merged, peer) =>
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
    known: &InventoryState,
    unread: Option<&(u64, Peer)>,
    places: &[(&Drive, &Placed)],
) -> Judgement {
    let Some(uuid) = places.first().map(|(_, placed)| placed.record.uuid) else {
        return Judgement::Nowhere;
    };
    let seen: Vec<(usize, ObservedPlace<'_>)> = places
        .iter()
        .enumerate()
        .filter(|(_, (_, placed))| !placed.record.is_erasing())
        .map(|(index, (drive, placed))| {
            let label = drive
                .contents
                .as_ref()
                .map(|contents| contents.label.drive_uuid);
            let seen = ObservedPlace {
                label: label.unwrap_or_default(),
                state: &placed.record.place,
            };
            (index, seen)
        })
        .collect();
    let only: Vec<ObservedPlace<'_>> = seen.iter().map(|(_, seen)| seen.clone()).collect();
    let note = known.moves.get(&uuid).and_then(|one| one.note());
    let judgement = judge(&only, note, unread);
    match judgement {
        Judgement::Serve { index, revert } => {
            seen.get(index)
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
    for (id, before) in &merged.known.drives {
        if read.contains(&before.drive_uuid) {
            continue;
        }
        for record in &before.volumes {
            let PlaceState::Live { generation, .. } = record.place else {
                continue;
            };
            let known = latest.get(&record.uuid).map_or(0, |(known, _)| *known);
            if !record.is_deleted() && generation > known {
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

fn is_unscanned(known: &InventoryState, merged: &Merged, peer: &Peer) -> bool {
    let same = merged.known.drives.iter();
    let mut same = same.filter(|(_, before)| before.drive_uuid == peer.label);
    same.any(|(id, _)| known.unscanned.contains_key(id))
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
