//! Decides what is to be done about places and moves in the current state. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{
    inventory::{is_reachable, takes_copy},
    state::moves::{MoveProgress, MoveRecord},
};
use drivebay_model::{Drive, DriveId, PlaceState, Snapshot, Volume, VolumeState};

/// One step. At most one is done about a volume, and at most one copy is read from or written to a drive, at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Make the source live again: it is `leaving`, and no commit was issued.
    Revert { uuid: Uuid, drive: DriveId },
    /// Record on this drive that the volume is live elsewhere.
    Fence { uuid: Uuid, drive: DriveId },
    /// Erase a copy that is not needed any more.
    DropCopy {
        uuid: Uuid,
        drive: DriveId,
        place: PlaceState,
    },
    /// Erase an old place that was kept for long enough.
    DropOld {
        uuid: Uuid,
        drive: DriveId,
        place: PlaceState,
    },
    /// Begin to keep an old place that has no record here.
    KeepOld { uuid: Uuid, drive: DriveId },
    /// Copy the volume, then complete the move.
    Copy { uuid: Uuid },
    /// Record that the target is live.
    Confirm { uuid: Uuid },
    /// Remove the record of the move: nothing is left of it.
    Forget { uuid: Uuid },
}

impl Action {
    pub(super) fn uuid(&self) -> Uuid {
        match self {
            Self::Revert { uuid, .. }
            | Self::Fence { uuid, .. }
            | Self::DropCopy { uuid, .. }
            | Self::DropOld { uuid, .. }
            | Self::KeepOld { uuid, .. }
            | Self::Copy { uuid }
            | Self::Confirm { uuid }
            | Self::Forget { uuid } => *uuid,
        }
    }
}

/// Returns everything that can be done now about volumes that are not `busy`. `delay_seconds`: time for which an old
/// place is kept.
pub(super) fn actions(
    snapshot: &Snapshot,
    moves: &BTreeMap<Uuid, MoveRecord>,
    busy: &BTreeSet<Uuid>,
    delay_seconds: u64,
) -> Vec<Action> {
    if !snapshot.ready {
        return Vec::new();
    }
    let mut drives = drives_in_use(snapshot, moves, busy);
    let mut all = Vec::new();
    for (uuid, volume) in &snapshot.volumes {
        if busy.contains(uuid) {
            continue;
        }
        let record = moves.get(uuid);
        let about = of_volume(snapshot, volume, record, delay_seconds);
        all.extend(about.filter(|action| match (action, record) {
            (Action::Copy { .. }, Some(record)) => {
                let free = !drives.contains(&volume.drive) && !drives.contains(&record.to);
                if free {
                    drives.extend([volume.drive.clone(), record.to.clone()]);
                }
                free
            }
            _ => true,
        }));
    }
    let gone = moves.keys().filter(|uuid| {
        !busy.contains(uuid)
            && !snapshot.volumes.contains_key(uuid)
            && may_be_forgotten(snapshot, moves.get(uuid))
    });
    all.extend(gone.map(|uuid| Action::Forget { uuid: *uuid }));
    all
}

/// Returns the drives that a copy is read from or written to.
fn drives_in_use(
    snapshot: &Snapshot,
    moves: &BTreeMap<Uuid, MoveRecord>,
    busy: &BTreeSet<Uuid>,
) -> BTreeSet<DriveId> {
    let copied = busy.iter().filter_map(|uuid| moves.get(uuid));
    let copied = copied.filter(|record| !record.has_moved());
    let drives = copied.flat_map(|record| [record.from.clone(), record.to.clone()]);
    drives
        .filter(|drive| snapshot.drives.contains_key(drive))
        .collect()
}

/// Returns the first step for a volume; None: there is nothing to do.
fn of_volume(
    snapshot: &Snapshot,
    volume: &Volume,
    record: Option<&MoveRecord>,
    delay_seconds: u64,
) -> Option<Action> {
    let uuid = volume.uuid;
    // A deletion covers all places, and a volume in doubt is left unchanged.
    if !matches!(volume.state, VolumeState::New | VolumeState::Ready) {
        return None;
    }
    let served = &volume.placed.record;
    if let PlaceState::Leaving { .. } = served.place {
        return is_here(snapshot, &volume.drive).then(|| Action::Revert {
            uuid,
            drive: volume.drive.clone(),
        });
    }
    if let Some(record) = record
        && let MoveProgress::Committing { note } = &record.progress
        && served.place.generation() >= note.generation
    {
        return Some(Action::Confirm { uuid });
    }
    let mut others = volume
        .copies
        .iter()
        .filter(|copy| is_here(snapshot, &copy.drive) && !copy.placed.record.is_erasing());
    let other = others.find_map(|copy| {
        let place = copy.placed.record.place.clone();
        let drive = copy.drive.clone();
        match &place {
            PlaceState::Incoming { .. } => {
                let is_wanted = record.is_some_and(|record| {
                    record.to == drive
                        && !record.has_moved()
                        && place.generation() == served.place.generation() + 1
                        // The volume has not grown since.
                        && copy.placed.record.extent.len == served.extent.len
                });
                (!is_wanted).then_some(Action::DropCopy { uuid, drive, place })
            }
            PlaceState::Leaving { .. } | PlaceState::Live { .. } => {
                Some(Action::Fence { uuid, drive })
            }
            PlaceState::Moved { .. } => match record.map(|record| &record.progress) {
                Some(MoveProgress::Moved {
                    kept_seconds,
                    used,
                    now,
                    ..
                }) => {
                    let is_due = *now || (*used && *kept_seconds >= delay_seconds);
                    is_due.then_some(Action::DropOld { uuid, drive, place })
                }
                // The volume moves on; the earlier old place is kept until that is done.
                Some(_) => None,
                None => Some(Action::KeepOld { uuid, drive }),
            },
        }
    });
    if other.is_some() {
        return other;
    }
    let record = record?;
    match &record.progress {
        // Requested for another place: an operator has preferred one since.
        MoveProgress::Requested
            if record.from != volume.drive
                || record.generation != served.place.generation() + 1 =>
        {
            Some(Action::Forget { uuid })
        }
        MoveProgress::Requested => {
            let may = !volume.in_use
                && is_here(snapshot, &volume.drive)
                && drive(snapshot, &record.to).is_some_and(takes_copy);
            may.then_some(Action::Copy { uuid })
        }
        MoveProgress::Committing { .. } => None,
        MoveProgress::Moved { .. } => (volume.copies.is_empty()
            && may_be_forgotten(snapshot, Some(record)))
        .then_some(Action::Forget { uuid }),
    }
}

/// True if no place of a move can return: its source was read without the volume. One that was not read may return.
fn may_be_forgotten(snapshot: &Snapshot, record: Option<&MoveRecord>) -> bool {
    let Some(record) = record else {
        return true;
    };
    if record.note().is_none() {
        return true;
    }
    is_here(snapshot, &record.from)
}

fn drive<'a>(snapshot: &'a Snapshot, id: &DriveId) -> Option<&'a Drive> {
    snapshot.drives.get(id)
}

fn is_here(snapshot: &Snapshot, id: &DriveId) -> bool {
    drive(snapshot, id).is_some_and(is_reachable)
}

#[cfg(test)]
#[path = "next_tests.rs"]
mod tests;
