//! What is said of a volume that is being moved. Pure.

use std::collections::BTreeMap;

use super::{Known, assemble::is_live, places::is_reachable};
use crate::state::moves::{MoveProgress, MoveRecord};
use drivebay_model::{
    Drive, DriveId, Volume, VolumeState, condition::NormalReason, snapshot::Moving,
};

/// How the last attempt at a move stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The volume is being copied.
    Copying,
    /// It failed, for this reason; there will be another one.
    Failed(String),
    /// The source does not read everywhere.
    Unreadable(String),
}

/// The move that the volume is in. None: there is none any more. It is completed, given up, or in doubt, which is a condition of its
/// own.
pub(super) fn moving(
    known: &Known,
    drives: &BTreeMap<DriveId, Drive>,
    volume: &Volume,
    record: &MoveRecord,
) -> Option<Moving> {
    let is_completing = known.completing.contains(&volume.uuid);
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
    let attempt = known.attempts.get(&volume.uuid);
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

/// Why nothing is copied now; the first reason counts.
fn waits_for(
    drives: &BTreeMap<DriveId, Drive>,
    volume: &Volume,
    record: &MoveRecord,
    attempt: Option<&Attempt>,
) -> String {
    let (source, target) = (drives.get(&record.from), drives.get(&record.to));
    match attempt {
        _ if volume.in_use => "in use: waits for the volume to be unstaged".to_owned(),
        _ if !source.is_some_and(is_reachable) => {
            format!("drive {} cannot be read now", record.from)
        }
        _ if !matches!(volume.state, VolumeState::New | VolumeState::Ready) => {
            "the volume cannot be used now".to_owned()
        }
        _ if !target.is_some_and(takes_copy) => {
            let why = match target {
                Some(drive) if drive.cordon().is_some() => "it is cordoned",
                Some(drive) if is_present(drive) => "it takes no new volumes",
                _ => "it cannot be written now",
            };
            format!("drive {} takes no copy: {why}", record.to)
        }
        Some(Attempt::Failed(why)) => why.clone(),
        _ => "its turn".to_owned(),
    }
}

fn is_present(drive: &Drive) -> bool {
    drive.trouble.is_none() && drive.state.offers_space()
}

/// Whether a copy may be written there: a drive that has become suspect or was cordoned takes none.
pub(crate) fn takes_copy(drive: &Drive) -> bool {
    is_present(drive) && drive.is_fit()
}

/// With the kernel name that it has now, by which commands name it.
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
