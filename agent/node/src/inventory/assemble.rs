//! Derives the whole snapshot from the known state of drives: volumes with their state and conditions, classes with
//! their totals. Pure.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use uuid::Uuid;

use super::{
    InventoryState, layouts, moving, places,
    present::{self, cannot_be_read, is_elsewhere},
    quarantined, zeroing,
};
use crate::state::{KnownDrive, Merged, Sight, merge};
use drivebay_discovery::host_udev;
use drivebay_evidence::{registry::of_its_drive, unreadable};
use drivebay_model::{
    Checked, ClassConfig, ClassReport, Drive, DriveHealth, DriveId, DriveState, Finding, Placed,
    PollState, Record, RecordState, Reject, RejectCode, Snapshot, Volume, VolumeState,
    condition::{Condition, Reason},
    snapshot::{Erasing, Place},
};
use drivebay_smart::collect;

/// Merges the drives that are present (derived from `inventory`) with the persisted state.
pub fn remember(
    inventory: &InventoryState,
    drives: &BTreeMap<DriveId, Drive>,
    now: u64,
    elapsed: Duration,
    quarantine: Duration,
) -> Merged {
    let here = drives
        .iter()
        .map(|(id, drive)| (id.clone(), sight(drive)))
        .collect();
    merge(
        &inventory.remembered,
        &inventory.tombstones,
        &here,
        now,
        elapsed,
        quarantine,
    )
}

fn sight(drive: &Drive) -> Sight<'_> {
    match (&drive.state, &drive.contents) {
        (DriveState::Claimed, Some(contents)) => Sight::Ours(&drive.facts, contents),
        (
            DriveState::Claimed
            | DriveState::Unprobed
            | DriveState::Missing
            | DriveState::NotScanned,
            _,
        ) => Sight::Unread,
        // Our label was read on a drive that cannot be used, such as a path of a multipath device: its volumes are there.
        (_, Some(_)) if !is_elsewhere(drive) => Sight::Unread,
        _ if is_unreadable(drive) => Sight::Unread,
        _ => Sight::NotOurs,
    }
}

/// Builds the snapshot from the drives that are present, derived from `inventory`. The caller sets its revision.
pub fn assemble(
    inventory: &InventoryState,
    mut drives: BTreeMap<DriveId, Drive>,
    merged: &Merged,
    classes: &[ClassConfig],
) -> Snapshot {
    for (id, stuck) in &inventory.stuck {
        if let Some(drive) = drives.get_mut(id) {
            drive.trouble = Some(stuck.clone());
        }
    }
    for (id, drive) in &mut drives {
        drive.health = inventory.health.drive(id);
        drive.health.poll = poll_state(inventory, drive);
        drive.health.expire(inventory.now);
        zeroing::judge(drive);
        for given in &inventory.overrides {
            given.apply(id, &mut drive.health, inventory.now);
        }
        let unreadable = inventory.health.unreadable(id);
        if !unreadable.is_empty() {
            drive.health.unreadable =
                unreadable::describe(drive, &unreadable, inventory.health.located());
        }
    }
    // An absent drive of the persisted state stays listed.
    for id in &merged.missing_drives {
        if let Some(remembered) = merged.last_known.drives.get(id) {
            drives.insert(id.clone(), absent(inventory, id, remembered));
        }
    }
    let mut places: BTreeMap<Uuid, Vec<(&Drive, &Placed)>> = BTreeMap::new();
    // Contents of a drive that are not accepted yet count where they were last seen.
    let counts = |drive: &&Drive| !is_elsewhere(drive) && drive.state != DriveState::NotScanned;
    for drive in drives.values().filter(counts) {
        for placed in drive.contents.iter().flat_map(|contents| &contents.volumes) {
            let of = places.entry(placed.record.uuid).or_default();
            of.push((drive, placed));
        }
    }
    let unread = places::latest_unread(merged, &drives);
    let mut volumes: BTreeMap<Uuid, Volume> = places
        .into_iter()
        .filter_map(|(uuid, all)| {
            let volume = places::volume(inventory, merged, &drives, unread.get(&uuid), all)?;
            Some((uuid, volume))
        })
        .collect();
    let mut missing: Vec<&(DriveId, Record)> = merged.missing_volumes.iter().collect();
    missing.sort_by_key(|(_, record)| Reverse(record.place.generation()));
    for (id, record) in missing {
        let Some(drive) = drives.get(id) else {
            continue;
        };
        let shown = volume(inventory, merged, drive, &places::remembered(record));
        match volumes.get_mut(&record.uuid) {
            // Only an incomplete copy of it, or an old place that is being erased, was read.
            Some(only) if is_no_place(&only.placed.record) => {
                let copies = std::iter::once(Place {
                    drive: only.drive.clone(),
                    placed: only.placed.clone(),
                });
                let copies = copies.chain(only.copies.iter().cloned()).collect();
                *only = Volume { copies, ..shown };
            }
            Some(_) => {}
            None => {
                volumes.insert(record.uuid, shown);
            }
        }
    }
    for (uuid, record) in &inventory.moves {
        if let Some(volume) = volumes.get_mut(uuid) {
            volume.moving = moving::moving(inventory, &drives, volume, record);
        }
    }
    let mut reports: BTreeMap<String, ClassReport> = classes
        .iter()
        .map(|class| {
            let layout = class.layout;
            let empty = ClassReport {
                layout,
                cannot_claim: layouts::unavailable(inventory, layout).map(str::to_owned),
                total_bytes: 0,
                free_bytes: 0,
                largest_bytes: 0,
            };
            (class.name.clone(), empty)
        })
        .collect();
    for drive in drives.values() {
        let Some(report) = drive.class.as_ref().and_then(|name| reports.get_mut(name)) else {
            continue;
        };
        let (total, free, largest) = match (&drive.state, &drive.contents) {
            _ if drive.trouble.is_some() => (0, 0, 0),
            (DriveState::Available, _) if report.cannot_claim.is_some() => (0, 0, 0),
            (DriveState::Claimed, Some(contents)) => (
                contents.usable_bytes,
                // Room too small for a volume does not count as free space either.
                if contents.table_full {
                    0
                } else {
                    contents.free_bytes()
                },
                contents.largest_free(),
            ),
            (DriveState::Available, _) => (
                drive.claimable_bytes,
                drive.claimable_bytes,
                drive.claimable_bytes,
            ),
            _ => (0, 0, 0),
        };
        report.total_bytes += total;
        // Free space of a drive that takes no new volumes does not count.
        // A first poll is over in seconds, and what capacity is published is kept for a minute.
        if !drive.is_fit() {
            continue;
        }
        report.free_bytes += free;
        report.largest_bytes = report.largest_bytes.max(largest);
    }
    // Without a drive that is used or can be, no volume is.
    let used = |drive: &Drive| matches!(drive.state, DriveState::Claimed | DriveState::Available);
    let mut findings: Vec<Finding> = match &inventory.host_udev {
        Some(host) if drives.values().any(used) => host_udev::finding(host).into_iter().collect(),
        _ => Vec::new(),
    };
    findings.extend(layouts::findings(inventory, &drives, classes));
    findings.extend(inventory.state_files.iter().cloned());
    findings.extend(quarantined::findings(&volumes, &inventory.kept_in_use));
    Snapshot {
        revision: 0,
        ready: inventory.ready,
        drives,
        volumes,
        classes: reports,
        findings,
    }
}

/// Returns whether the drive was polled since the start; `Polled` if it is not polled at all.
fn poll_state(inventory: &InventoryState, drive: &Drive) -> PollState {
    let is_polled = drive.class.is_some()
        && drive.state != DriveState::Missing
        && inventory.polls.as_ref().is_some_and(|config| {
            collect::is_polled(&drive.facts, config.device_type(&drive.facts))
        });
    match inventory.health.report(&drive.id) {
        _ if !is_polled => PollState::Polled,
        Some(report) => report.poll,
        None => PollState::Awaited,
    }
}

/// Builds a drive of the persisted state that has no current scan result. It is missing only if that was observed: one
/// of two devices with its identity may be it.
fn absent(inventory: &InventoryState, id: &DriveId, remembered: &KnownDrive) -> Drive {
    let mut rejects = Vec::new();
    let (state, trouble) = if inventory.unscanned.contains_key(id) {
        (DriveState::NotScanned, None)
    } else if inventory.has_twins(id) {
        rejects.push(Reject {
            code: RejectCode::DuplicateIdentity,
            detail: "several devices have its identity; detach those that are not it".to_owned(),
        });
        (DriveState::Rejected, None)
    } else {
        let trouble = "not found on this node".to_owned();
        (DriveState::Missing, Some(trouble))
    };
    let mut drive = Drive {
        id: id.clone(),
        facts: remembered.facts.clone(),
        state,
        class: Some(remembered.class.clone()),
        rejects,
        contents: None,
        claimable_bytes: 0,
        trouble,
        health: DriveHealth::default(),
    };
    if state == DriveState::NotScanned {
        drive.health = inventory.health.drive(id);
        drive.health.poll = poll_state(inventory, &drive);
        drive.health.expire(inventory.now);
    }
    drive
}

/// True if the place of a volume has no data of it: an incomplete copy, or an old place that is being erased.
fn is_no_place(record: &Record) -> bool {
    record.place.is_incoming() || (record.is_erasing() && !record.is_deleted())
}

/// True if the drive is present, but its contents could not be read (stuck, probe failed, our label or table damaged).
/// Damage is not absence: known contents stay listed.
fn is_unreadable(drive: &Drive) -> bool {
    cannot_be_read(drive) || is_damaged(drive)
}

/// True if the drive was read, and its table or our label is damaged or gone: it does not recover without an operator,
/// whose repair brings its volumes back.
pub fn is_damaged(drive: &Drive) -> bool {
    use drivebay_model::RejectCode as Code;
    drive.state == DriveState::Rejected
        && drive.rejects.iter().any(|reject| {
            matches!(
                reject.code,
                Code::OursDamaged | Code::GptDamaged | Code::PhantomTable | Code::NotBlank
            )
        })
}

/// Returns the first drive that may hold unknown volumes: a selected one that gives no answer, or one with a Drivebay
/// label that cannot be read. Pure.
pub fn stranger(inventory: &InventoryState) -> Option<DriveId> {
    use drivebay_model::RejectCode as Code;
    let drives = present::derive(inventory, &[]);
    let mut drives = drives.into_values();
    let stranger = drives.find(|drive| {
        let silent = drive.state == DriveState::Unprobed && drive.class.is_some();
        let illegible = drive
            .rejects
            .iter()
            .any(|reject| matches!(reject.code, Code::OursDamaged | Code::SectorSizeChanged));
        (silent || illegible)
            && drive.contents.is_none()
            && !inventory.remembered.drives.contains_key(&drive.id)
    });
    stranger.map(|drive| drive.id)
}

/// Builds the volume from this place of it.
pub(super) fn volume(
    inventory: &InventoryState,
    merged: &Merged,
    drive: &Drive,
    placed: &Placed,
) -> Volume {
    let record = &placed.record;
    let mut conditions = Vec::new();
    let is_erasing = matches!(record.state, RecordState::Erasing { .. });
    // An acknowledged deletion takes precedence over problems of the drive.
    let state = if is_erasing {
        VolumeState::Erasing
    } else if merged.tombstones.volumes.contains_key(&record.uuid) {
        VolumeState::Quarantined
    } else if drive.state == DriveState::NotScanned {
        VolumeState::NotScanned
    } else if drive.state == DriveState::Missing {
        conditions.push(Condition::new(
            Reason::DriveMissing,
            format!(
                "drive {} is not found on this node; plug it in again",
                drive.describe()
            ),
        ));
        VolumeState::Missing
    } else if merged.vanished.contains(&record.uuid) {
        conditions.push(Condition::new(
            Reason::VolumeNotFound,
            format!(
                "it was on drive {} and is not found any more, although it was not deleted through Drivebay; if that was a mistake, put nothing new on the drive and restore its table or LVM metadata (vgcfgrestore); else delete the volume",
                drive.describe()
            ),
        ));
        VolumeState::Missing
    } else if let Some(why) = &placed.ambiguous {
        conditions.push(Condition::new(
            Reason::RecordMismatch,
            format!("what is recorded of it and what the drive and the kernel have disagree: {why}; nothing is changed until an operator decides"),
        ));
        VolumeState::Ambiguous
    } else if drive.state != DriveState::Claimed {
        conditions.push(Condition::new(
            Reason::DriveUnreadable,
            format!(
                "drive {} cannot be read: {}",
                drive.describe(),
                drive
                    .rejects
                    .iter()
                    .map(|reject| reject.code.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ));
        VolumeState::Missing
    } else if matches!(
        record.state,
        RecordState::Creating | RecordState::New | RecordState::Fs { mounted: false, .. }
    ) {
        VolumeState::New
    } else {
        VolumeState::Ready
    };
    if let Some(trouble) = &drive.trouble
        && drive.state != DriveState::Missing
    {
        conditions.push(Condition::new(
            Reason::DriveStuck,
            format!("drive {} does not answer: {trouble}", drive.describe()),
        ));
    }
    let acknowledged = drive.health.acknowledged.as_ref();
    let acknowledged = acknowledged.and_then(|_| inventory.health.acknowledged_at(&drive.id));
    conditions.extend(inventory.health.volume(record.uuid, acknowledged));
    let mut unreadable: Vec<_> = drive
        .health
        .unreadable
        .iter()
        .filter(|range| range.volume == Some(record.uuid))
        .cloned()
        .collect();
    conditions.extend(unreadable::condition(drive, &unreadable));
    let lost = unreadable::lost(placed, inventory.health.located());
    conditions.extend(unreadable::lost_condition(&lost));
    unreadable.extend(lost);
    conditions.extend(of_its_drive(drive));
    conditions.extend(
        inventory
            .conditions
            .get(&record.uuid)
            .into_iter()
            .flatten()
            .cloned(),
    );
    let mut reasons = std::collections::BTreeSet::new();
    conditions.retain(|condition| reasons.insert(condition.reason));
    Volume {
        uuid: record.uuid,
        drive: drive.id.clone(),
        placed: placed.clone(),
        copies: Vec::new(),
        state,
        in_use: inventory.mounts.is_in_use(placed),
        conditions,
        since: BTreeMap::new(),
        moving: None,
        checks: inventory
            .checked
            .get(&record.uuid)
            .map(Checked::to_show)
            .unwrap_or_default(),
        checking: inventory.checking.get(&record.uuid).copied(),
        unreadable,
        snapshot_usage: placed
            .snapshots
            .iter()
            .filter_map(|one| {
                let uuid = one.record.uuid;
                Some((uuid, *inventory.snapshot_usage.get(&uuid)?))
            })
            .collect(),
        mounts: inventory.mounts.places(placed),
        erasing: match record.state {
            RecordState::Erasing { done_bytes, .. } => Some(
                inventory
                    .erasing
                    .get(&record.uuid)
                    .copied()
                    .unwrap_or(Erasing {
                        done_bytes,
                        eta_seconds: 0,
                    }),
            ),
            _ => None,
        },
    }
}

/// True if a volume of this state exists for CSI.
pub fn is_live(state: VolumeState) -> bool {
    !matches!(state, VolumeState::Erasing | VolumeState::Quarantined)
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
