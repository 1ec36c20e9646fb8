//! Merges the drives that are present with the persisted state. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use uuid::Uuid;

use super::{KnownDrive, LastKnown, Tombstone, Tombstones};
use drivebay_model::{Contents, DriveFacts, DriveId, PlaceState, Record, RecordState};

/// Completed deletions that stay recorded, in case a copy of their drive appears: about 150 bytes of the file each.
const MOST_OVER: usize = 4096;

/// Result of reading a drive that is plugged in.
#[derive(Debug, Clone, Copy)]
pub enum Sight<'a> {
    /// The drive carries our label for this cluster and node, and was read.
    Ours(&'a DriveFacts, &'a Contents),
    /// The drive was read and carries no label for this node: wiped, or another node's.
    NotOurs,
    /// The drive is present but was not read (stuck, failed, not scanned yet), or has our label and cannot be used (a path of
    /// a multipath device). No evidence that a volume is gone.
    Unread,
}

/// Result of [`merge`]: the state to persist, and the volumes and drives that are missing, quarantined or due for deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// State of drives to persist.
    pub last_known: LastKnown,
    /// Tombstones to persist: with one for each volume that is being erased, and the time that volumes have spent in quarantine.
    pub tombstones: Tombstones,
    /// Known drives that are not plugged in.
    pub missing_drives: Vec<DriveId>,
    /// Volumes that cannot be read now, with their drive, which is missing or unread. Excludes deleted ones.
    pub missing_volumes: Vec<(DriveId, Record)>,
    /// Subset of `missing_volumes`: a drive was read without them, so they were removed manually.
    pub vanished: BTreeSet<Uuid>,
    /// Volumes that are present and were deleted while they were not: shown as quarantined, and not usable.
    pub quarantined: BTreeSet<Uuid>,
    /// Volumes of `quarantined` whose quarantine is over, with each drive that has them now: to be deleted.
    pub due: Vec<(DriveId, Uuid)>,
}

/// Merges the present drives with the persisted state.
///
/// `here`: every drive that is plugged in. `now`: Unix seconds. `elapsed`: monotonic time since the last merge of this
/// agent process (zero at the first); time without a running agent does not count into a quarantine, which can only
/// make it longer. `quarantine`: its duration.
pub fn merge(
    last_known: &LastKnown,
    tombstones: &Tombstones,
    here: &BTreeMap<DriveId, Sight<'_>>,
    now: u64,
    elapsed: Duration,
    quarantine: Duration,
) -> Merged {
    let mut merged = Merged {
        last_known: remember(last_known, tombstones, here, now),
        ..Merged::default()
    };
    // By volume, not by drive: a drive may return under another identity (another controller).
    let mut observed: BTreeMap<Uuid, Vec<(&DriveId, &RecordState)>> = BTreeMap::new();
    for (id, sight) in here {
        if let Sight::Ours(_, contents) = sight {
            for placed in &contents.volumes {
                let places = observed.entry(placed.record.uuid).or_default();
                places.push((id, &placed.record.state));
            }
        }
    }
    merged.tombstones = remember_deletions(tombstones, here, now);
    for (uuid, tombstone) in &mut merged.tombstones.volumes {
        let places = observed.get(uuid).into_iter().flatten();
        let live = places.filter(|(_, state)| !matches!(state, RecordState::Erasing { .. }));
        let live: Vec<_> = live.collect();
        if live.is_empty() {
            continue;
        }
        tombstone.quarantined_seconds = tombstone
            .quarantined_seconds
            .saturating_add(elapsed.as_secs());
        merged.quarantined.insert(*uuid);
        if tombstone.released || tombstone.quarantined_seconds >= quarantine.as_secs() {
            let due = live.into_iter().map(|(drive, _)| ((*drive).clone(), *uuid));
            merged.due.extend(due);
        }
    }
    let live_volumes = live_in(here);
    for (id, drive) in &merged.last_known.drives {
        for record in &drive.vanished {
            merged.vanished.insert(record.uuid);
            merged.missing_volumes.push((id.clone(), record.clone()));
        }
        match here.get(id) {
            Some(Sight::Ours(..)) => continue,
            None => merged.missing_drives.push(id.clone()),
            Some(Sight::Unread | Sight::NotOurs) => {}
        }
        for record in &drive.volumes {
            let deleted = merged.tombstones.volumes.contains_key(&record.uuid);
            if is_acknowledged(record) && !deleted && !is_found(&live_volumes, record) {
                merged.missing_volumes.push((id.clone(), record.clone()));
            }
        }
    }
    merged
}

/// Updates the tombstones, and adds one for each volume that is being erased. A drive that was read without a deleted
/// volume no longer has it; one that was read with it does.
fn remember_deletions(
    tombstones: &Tombstones,
    here: &BTreeMap<DriveId, Sight<'_>>,
    now: u64,
) -> Tombstones {
    let mut next = tombstones.clone();
    for (id, sight) in here {
        let volumes = match sight {
            Sight::Ours(_, contents) => contents.volumes.as_slice(),
            Sight::NotOurs => &[],
            Sight::Unread => continue,
        };
        let on_it: BTreeSet<Uuid> = volumes.iter().map(|placed| placed.record.uuid).collect();
        for (uuid, tombstone) in &mut next.volumes {
            if on_it.contains(uuid) {
                tombstone.drives.insert(id.clone());
            } else if tombstone.drives.remove(id) && tombstone.drives.is_empty() {
                // The volume is gone. A copy of its drive that appears later has a quarantine of its own.
                tombstone.quarantined_seconds = 0;
                tombstone.released = false;
            }
        }
        for record in volumes.iter().map(|placed| &placed.record) {
            if record.is_deleted() {
                next.volumes
                    .entry(record.uuid)
                    .or_insert_with(|| Tombstone {
                        drives: [id.clone()].into(),
                        name: record.name.clone(),
                        deleted_at: now,
                        quarantined_seconds: 0,
                        released: false,
                    });
            }
        }
    }
    // The oldest completed ones.
    let over = next.volumes.iter().filter(|(_, of)| of.drives.is_empty());
    let mut over: Vec<(u64, Uuid)> = over.map(|(uuid, of)| (of.deleted_at, *uuid)).collect();
    let surplus = over.len().saturating_sub(MOST_OVER);
    over.sort_unstable();
    for (_, uuid) in over.into_iter().take(surplus) {
        next.volumes.remove(&uuid);
    }
    next
}

/// True if the volume was acknowledged, and its deletion was not. An incomplete copy, or the old place of a move, is no
/// volume.
pub fn is_acknowledged(record: &Record) -> bool {
    !matches!(
        record.state,
        RecordState::Creating | RecordState::Erasing { .. }
    ) && !matches!(
        record.place,
        PlaceState::Incoming { .. } | PlaceState::Moved { .. }
    )
}

/// Returns the generation that a record declares live, or that was live until its copy may have become so.
fn generation(record: &Record) -> u64 {
    match record.place {
        PlaceState::Leaving { generation, .. } => generation.saturating_sub(1),
        _ => record.place.generation(),
    }
}

fn live_in(here: &BTreeMap<DriveId, Sight<'_>>) -> BTreeMap<Uuid, u64> {
    live_generations(here.values().filter_map(|sight| match sight {
        Sight::Ours(_, contents) => Some(*contents),
        _ => None,
    }))
}

/// Returns the volumes in contents that were read, except incomplete copies and old places of moves, with the highest generation of each.
pub fn live_generations<'a>(contents: impl Iterator<Item = &'a Contents>) -> BTreeMap<Uuid, u64> {
    let mut all = BTreeMap::new();
    for placed in contents.flat_map(|contents| &contents.volumes) {
        // A volume that is being erased counts as found, too.
        if placed.record.is_deleted() || is_acknowledged(&placed.record) {
            let highest = all.entry(placed.record.uuid).or_insert(0);
            *highest = generation(&placed.record).max(*highest);
        }
    }
    all
}

/// True if the volume of a persisted record was read, in its generation or a later one.
fn is_found(generations: &BTreeMap<Uuid, u64>, record: &Record) -> bool {
    let highest = generations.get(&record.uuid);
    highest.is_some_and(|highest| *highest >= generation(record))
}

/// Returns the volumes that a drive had and whose data may be nowhere else: acknowledged ones that were not deleted, and were not read in
/// their generation or a later one. `live`: see [`live_generations`].
pub fn only_on<'a>(
    drive: &'a KnownDrive,
    live: &BTreeMap<Uuid, u64>,
    deleted: &Tombstones,
) -> Vec<&'a Record> {
    let records = drive.volumes.iter().chain(&drive.vanished);
    records
        .filter(|record| {
            is_acknowledged(record)
                && !deleted.volumes.contains_key(&record.uuid)
                && !is_found(live, record)
        })
        .collect()
}

fn remember(
    last_known: &LastKnown,
    tombstones: &Tombstones,
    here: &BTreeMap<DriveId, Sight<'_>>,
    now: u64,
) -> LastKnown {
    let mut next = last_known.clone();
    // On any drive: a drive may return under another identity.
    let read_uuids: BTreeSet<Uuid> = here
        .values()
        .filter_map(|sight| match sight {
            Sight::Ours(_, contents) => Some(contents),
            _ => None,
        })
        .flat_map(|contents| &contents.volumes)
        .filter(|placed| !placed.record.place.is_incoming())
        .map(|placed| placed.record.uuid)
        .collect();
    for (id, sight) in here {
        match sight {
            Sight::Ours(facts, contents) => {
                // Of the same label only: a drive that was wiped and claimed again has other volumes.
                let label = contents.label.drive_uuid;
                let before = next.drives.get(id);
                let before = before.filter(|before| before.drive_uuid == label);
                let gone = before.into_iter().flat_map(|before| {
                    let all = before.vanished.iter().chain(&before.volumes);
                    all.filter(|record| is_acknowledged(record))
                });
                let vanished = gone.filter(|record| {
                    !read_uuids.contains(&record.uuid)
                        && !tombstones.volumes.contains_key(&record.uuid)
                });
                let vanished: Vec<Record> = vanished.cloned().collect();
                let drive = KnownDrive {
                    facts: (*facts).clone(),
                    class: contents.label.class.clone(),
                    usable_bytes: contents.usable_bytes,
                    layout: contents.layout,
                    drive_uuid: label,
                    volumes: contents
                        .volumes
                        .iter()
                        .map(|placed| placed.record.clone())
                        .collect(),
                    retired: contents.label.cordon.is_some()
                        && contents.volumes.is_empty()
                        && vanished.is_empty(),
                    vanished,
                    last_seen: now,
                };
                next.drives.insert(id.clone(), drive);
            }
            Sight::NotOurs => {
                next.drives.remove(id);
            }
            Sight::Unread => {}
        }
    }
    // A volume that was read has its record.
    next.in_doubt
        .retain(|_, doubt| !read_uuids.contains(&doubt.uuid));
    let live = live_in(here);
    // A drive that returned under another identity is listed by that one only.
    next.drives.retain(|id, drive| {
        here.contains_key(id)
            || (drive.volumes.is_empty() && !drive.retired)
            || !drive.volumes.iter().all(|record| {
                !is_acknowledged(record) && read_uuids.contains(&record.uuid)
                    || is_found(&live, record)
            })
    });
    next
}

/// Merges the state of an earlier agent, read late, with the current state, as if it had been read at start: a drive
/// that was read since has what was read, and those of its earlier volumes that were not deleted have vanished.
pub fn recalled(earlier: LastKnown, now: &LastKnown, deletions: &Tombstones) -> LastKnown {
    let mut all = earlier;
    let on_drives = now.drives.values().flat_map(|drive| &drive.volumes);
    let read_uuids: BTreeSet<Uuid> = on_drives.map(|record| record.uuid).collect();
    for (id, drive) in &now.drives {
        let mut drive = drive.clone();
        let before = all.drives.remove(id);
        let before = before.filter(|before| before.drive_uuid == drive.drive_uuid);
        let gone = before
            .into_iter()
            .flat_map(|before| before.vanished.into_iter().chain(before.volumes));
        let mut vanished: BTreeSet<Uuid> = drive.vanished.iter().map(|one| one.uuid).collect();
        drive.vanished.extend(gone.filter(|record| {
            is_acknowledged(record)
                && !read_uuids.contains(&record.uuid)
                && !deletions.volumes.contains_key(&record.uuid)
                && vanished.insert(record.uuid)
        }));
        all.drives.insert(id.clone(), drive);
    }
    all.in_doubt.extend(now.in_doubt.clone());
    all
}

/// Merges tombstones in the same way: one in both states covers the drives of either.
pub fn recalled_deletions(earlier: Tombstones, now: &Tombstones) -> Tombstones {
    let mut all = earlier;
    for (uuid, tombstone) in &now.volumes {
        match all.volumes.get_mut(uuid) {
            Some(existing) => {
                existing.drives.extend(tombstone.drives.iter().cloned());
                existing.released |= tombstone.released;
            }
            None => {
                all.volumes.insert(*uuid, tombstone.clone());
            }
        }
    }
    all
}

/// True if the change is worth a write: a change of `last_seen` alone is not.
pub fn differs(a: &LastKnown, b: &LastKnown) -> bool {
    let undated = |last_known: &LastKnown| {
        let mut last_known = last_known.clone();
        for drive in last_known.drives.values_mut() {
            drive.last_seen = 0;
        }
        last_known
    };
    undated(a) != undated(b)
}
