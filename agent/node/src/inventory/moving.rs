//! The condition of a volume that is being moved. Pure.

use std::collections::BTreeMap;

use super::{InventoryState, assemble::is_live, places::is_reachable};
use crate::state::moves::{MoveProgress, MoveRecord};
use drivebay_model::{
    Drive, DriveId, Volume, VolumeState, condition::NormalReason, snapshot::Moving,
};

/// State of the last attempt at a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The volume is being copied.
    Copying,
    /// The attempt failed, for this reason; there will be another one.
    Failed(String),
    /// Parts of the source cannot be read.
    Unreadable(String),
}

/// Returns the move that the volume is in. None: it is completed, cancelled, or in doubt, which is a condition of its
/// own.
pub(super) fn moving(
    inventory: &InventoryState,
    drives: &BTreeMap<DriveId, Drive>,
    volume: &Volume,
    record: &MoveRecord,
) -> Option<Moving> {
    let is_completing = inventory.completing.contains(&volume.uuid);
    let served = &volume.placed.record.place;
    let is_current = match &record.progress {
        MoveProgress::Requested => {
            record.from == volume.drive
                && (is_completing || served.generation() + 1 == record.generation)
        }
        MoveProgress::Committing { .. } => is_completing,
        MoveProgress::Moved { .. } => false,
    };
    if !is_live(volume.state) || !is_current {
        return None;
    }
    let attempt = inventory.attempts.get(&volume.uuid);
    let (reason, state, waits_for) = match attempt {
        _ if is_completing => (NormalReason::VolumeMoving, "completing", String::new()),
        Some(Attempt::Copying) => (NormalReason::VolumeMoving, "copying", String::new()),
        Some(Attempt::Unreadable(why)) => {
            (NormalReason::MoveUnreadable, "stands still", why.clone())
        }
        Some(Attempt::Failed(_)) | None => {
            let why = waits_for(drives, volume, record, attempt);
            (NormalReason::VolumeMoving, "waiting", why)
        }
    };
    let gap = if waits_for.is_empty() { "" } else { ": " };
    Some(Moving {
        reason,
        since: record.requested_at,
        message: format!(
            "it moves from drive {} to drive {}: {state}{gap}{waits_for}",
            named(drives, &record.from),
            named(drives, &record.to)
        ),
        waits_for,
    })
}

/// Returns the first reason for which nothing is copied now.
fn waits_for(
    drives: &BTreeMap<DriveId, Drive>,
    volume: &Volume,
    record: &MoveRecord,
    attempt: Option<&Attempt>,
) -> String {
    let (source, target) = (drives.get(&record.from), drives.get(&record.to));
    if volume.in_use {
        return "in use: waits for the volume to be unstaged".to_owned();
    }
    if !source.is_some_and(is_reachable) {
        return format!("drive {} cannot be read now", record.from);
    }
    if !matches!(volume.state, VolumeState::New | VolumeState::Ready) {
        return "the volume cannot be used now".to_owned();
    }
    let against = target.map_or_else(|| Some("it is not found".to_owned()), takes_no_copy);
    match (against, attempt) {
        (Some(why), _) => format!("drive {} takes no copy: {why}", record.to),
        (None, Some(Attempt::Failed(why))) => why.clone(),
        (None, _) => "its turn".to_owned(),
    }
}

/// True if copies can be read and written there now, whatever the drive's health.
pub(crate) fn can_be_copied(drive: &Drive) -> bool {
    drive.trouble.is_none() && drive.state.offers_space()
}

/// Returns why no copy may be written there, also for a drive that has become suspect or was cordoned. None: it may.
pub(crate) fn takes_no_copy(drive: &Drive) -> Option<String> {
    if let Some(trouble) = &drive.trouble {
        return Some(format!("it does not answer: {trouble}"));
    }
    if !drive.state.offers_space() {
        let codes: Vec<&str> = drive.rejects.iter().map(|one| one.code.as_str()).collect();
        return Some(match codes.as_slice() {
            [] => format!("it is {}", drive.state),
            codes => format!("it is {} ({})", drive.state, codes.join(", ")),
        });
    }
    if let Some(cordon) = drive.cordon() {
        return Some(format!("it is cordoned by {}", cordon.by));
    }
    (!drive.health.is_fit()).then(|| format!("its verdict is {}", drive.health.shown_verdict()))
}

pub(crate) fn takes_copy(drive: &Drive) -> bool {
    takes_no_copy(drive).is_none()
}

/// Returns the kernel name, by which commands name a drive, and the description.
fn named(drives: &BTreeMap<DriveId, Drive>, id: &DriveId) -> String {
    let Some(drive) = drives.get(id) else {
        return id.to_string();
    };
    match drive.state.is_present() {
        true => format!("{}, {}", drive.facts.kernel_name, drive.describe()),
        false => drive.describe(),
    }
}

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;
