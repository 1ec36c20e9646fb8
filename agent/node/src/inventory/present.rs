//! Drives that are present. The scan's judgement of a drive and the contents read from it are separate facts; only this
//! module derives the drive's state from both, and from the other drives. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{InventoryState, layouts};
use crate::state::merge::{live_generations, only_on};
use drivebay_discovery::claim::{self, Judgement};
use drivebay_model::{
    ClassConfig, Contents, Drive, DriveFacts, DriveHealth, DriveId, DriveState, GIB, Reject,
    RejectCode, Stamp, units::count,
};

/// A present drive as observed. A job that changes the drive updates its contents, not the judgement: reasons against
/// the drive itself stay until a scan withdraws them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub facts: DriveFacts,
    /// From the last scan.
    pub judgement: Judgement,
    /// Stamp of the metadata that the judgement is about; None: the scan found none of ours.
    pub judged: Option<Stamp>,
    /// Contents as last read, by a scan or a job.
    pub contents: Option<Contents>,
    /// Reason for which its worker gives no answer.
    pub trouble: Option<String>,
}

/// Derives every present drive, with the state that follows from all of them.
pub fn derive(inventory: &InventoryState, classes: &[ClassConfig]) -> BTreeMap<DriveId, Drive> {
    let drives = inventory.drives.iter();
    let drives = drives.map(|(id, observed)| (id.clone(), by_itself(id, observed)));
    let mut drives: BTreeMap<DriveId, Drive> = drives.collect();
    let contents = drives
        .values_mut()
        .filter_map(|drive| drive.contents.as_mut());
    for store in contents.flat_map(|contents| &mut contents.deleted_stores) {
        // Later than what was read from the drive; rounded, since each change is sent to all controllers.
        if let Some(erasing) = inventory.erasing.get(&store.erase_guid) {
            store.done_bytes = erasing.done_bytes / GIB * GIB;
        }
    }
    await_originals(inventory, &mut drives);
    refuse_copies(&mut drives);
    keep_remembered(inventory, &mut drives);
    layouts::size_available(&mut drives, classes);
    drives
}

/// Derives a drive without regard to the others.
fn by_itself(id: &DriveId, observed: &Observed) -> Drive {
    let Observed {
        facts,
        judgement,
        judged,
        contents,
        trouble,
    } = observed;
    let stamp = contents.as_ref().map(Contents::stamp);
    // The scan's result is out of date: a job changed the drive's metadata after the scan had read them.
    let changed = stamp.is_some() && stamp != *judged;
    let (state, class, rejects) = match judgement {
        Judgement::Available { class } if !changed => {
            (DriveState::Available, Some(class.clone()), Vec::new())
        }
        Judgement::Claimed | Judgement::Available { .. } => (DriveState::Claimed, None, Vec::new()),
        Judgement::Rejected { class, reasons } => {
            let stays = |reject: &&Reject| !changed || claim::outlasts_contents(reject.code);
            let reasons: Vec<Reject> = reasons.iter().filter(stays).cloned().collect();
            if changed && reasons.is_empty() && trouble.is_none() {
                (DriveState::Claimed, None, reasons)
            } else {
                (DriveState::Rejected, class.clone(), reasons)
            }
        }
    };
    let label_class = || Some(contents.as_ref()?.label.class.clone());
    Drive {
        id: id.clone(),
        facts: facts.clone(),
        class: match state {
            DriveState::Claimed => label_class(),
            _ => class,
        },
        state: if trouble.is_some() {
            DriveState::Unprobed
        } else {
            state
        },
        rejects,
        contents: contents.clone(),
        claimable_bytes: 0,
        trouble: trouble.clone(),
        health: DriveHealth::default(),
    }
}

/// Withholds a drive whose label was last read on another one: it is that drive under another identity, or a copy of
/// it. Which one is known when the other one was read, or observed to be missing; until then nothing on it is used.
fn await_originals(inventory: &InventoryState, drives: &mut BTreeMap<DriveId, Drive>) {
    let unread: BTreeSet<DriveId> = drives
        .values()
        .filter(|drive| drive.contents.is_none() && cannot_be_read(drive))
        .map(|drive| drive.id.clone())
        .collect();
    for drive in drives.values_mut() {
        let (DriveState::Claimed, Some(contents)) = (drive.state, &drive.contents) else {
            continue;
        };
        let label = contents.label.drive_uuid;
        // Several drives of the persisted state may have this label: a copy that was used alone, and its original.
        let others = inventory.remembered.drives.iter();
        let others = others.filter(|(id, before)| before.drive_uuid == label && **id != drive.id);
        let mut others = others.map(|(id, _)| id);
        if let Some(other) = others
            .clone()
            .find(|id| inventory.unscanned.contains_key(*id))
        {
            drive.state = DriveState::NotScanned;
            drive.trouble = Some(format!(
                "its label is that of drive {other}, which has not been scanned since the agent started"
            ));
        } else if let Some(other) = others.find(|id| unread.contains(*id)) {
            drive.state = DriveState::Rejected;
            drive.rejects.push(Reject {
                code: RejectCode::DuplicateIdentity,
                detail: format!(
                    "its label is that of drive {other}, which cannot be read; detach the one that is out of date"
                ),
            });
        }
    }
}

/// Rejects drives that share a label, of which one is a copy: neither may be used until one of them is gone, since it
/// is unknown which has the newer data. One that gives no answer now is still a copy.
fn refuse_copies(drives: &mut BTreeMap<DriveId, Drive>) {
    let mut holders: BTreeMap<Uuid, Vec<DriveId>> = BTreeMap::new();
    for drive in drives.values().filter(|drive| is_this_nodes(drive)) {
        if let Some(contents) = &drive.contents {
            let label = contents.label.drive_uuid;
            holders.entry(label).or_default().push(drive.id.clone());
        }
    }
    holders.retain(|_, all| all.len() > 1);
    for drive in drives.values_mut().filter(|drive| is_this_nodes(drive)) {
        let Some(contents) = &drive.contents else {
            continue;
        };
        let Some(all) = holders.get(&contents.label.drive_uuid) else {
            continue;
        };
        if drive.state == DriveState::Claimed {
            drive.state = DriveState::Rejected;
        }
        let is_reported = |reject: &Reject| reject.code == RejectCode::DuplicateIdentity;
        if drive.rejects.iter().any(is_reported) {
            continue;
        }
        let others = all.iter().filter(|id| **id != drive.id);
        let others: Vec<&str> = others.map(|id| id.0.as_str()).collect();
        drive.rejects.push(Reject {
            code: RejectCode::DuplicateIdentity,
            detail: format!(
                "its label is also on drive {}: one is a copy of the other; detach the one that is out of date",
                others.join(", ")
            ),
        });
        drive.rejects.sort_by_key(|reject| reject.code);
    }
}

/// True if the contents count as this node's, whether or not they can be used now.
fn is_this_nodes(drive: &Drive) -> bool {
    match drive.state {
        DriveState::Claimed | DriveState::Unprobed => true,
        _ => {
            let mut codes = drive.rejects.iter().map(|reject| reject.code);
            codes.any(|code| code == RejectCode::DuplicateIdentity)
        }
    }
}

/// Rejects a drive that has lost its label: with acknowledged volumes that were not deleted it is a damaged drive of
/// ours, whatever was found on it, and must not be claimed.
fn keep_remembered(inventory: &InventoryState, drives: &mut BTreeMap<DriveId, Drive>) {
    // An old place of a volume is no evidence that this drive does not have the newer one.
    let live = live_generations(drives.values().filter_map(|drive| drive.contents.as_ref()));
    let (remembered, tombstones) = (&inventory.remembered.drives, &inventory.tombstones);
    for (id, drive) in drives {
        let was_read = matches!(drive.state, DriveState::Available | DriveState::Rejected)
            && !cannot_be_read(drive)
            && !is_elsewhere(drive);
        let is_reported = |reject: &Reject| reject.code == RejectCode::OursDamaged;
        if drive.rejects.iter().any(is_reported) {
            continue;
        }
        let Some(before) = remembered.get(id).filter(|_| was_read) else {
            continue;
        };
        let lost = only_on(before, &live, tombstones).len();
        if lost == 0 {
            continue;
        }
        drive.state = DriveState::Rejected;
        drive.rejects.push(Reject {
            code: RejectCode::OursDamaged,
            detail: format!(
                "its label is gone, and it holds {}; restore the label, or delete what it held",
                count(lost, "undeleted volume")
            ),
        });
        drive.rejects.sort_by_key(|reject| reject.code);
    }
}

/// True if the drive was not read, or not completely, which may be temporary.
pub(super) fn cannot_be_read(drive: &Drive) -> bool {
    use RejectCode as Code;
    drive.state == DriveState::Unprobed
        || drive.rejects.iter().any(|reject| {
            matches!(
                reject.code,
                Code::ProbeFailed
                    | Code::SectorSizeChanged
                    | Code::Unreadable
                    | Code::DuplicateIdentity
                    | Code::NotRunning
                    | Code::ZeroSize
                    // Never probed.
                    | Code::HiddenPath
                    | Code::Partition
                    | Code::NotADisk
            )
        })
}

/// True if the label names another node or cluster: its volumes are listed there, and do not conflict with those here.
pub(super) fn is_elsewhere(drive: &Drive) -> bool {
    let mut codes = drive.rejects.iter().map(|reject| reject.code);
    codes.any(|code| code == RejectCode::OursElsewhere)
}

#[cfg(test)]
impl From<Drive> for Observed {
    fn from(drive: Drive) -> Self {
        let no_answer = || "no answer".to_owned();
        Self {
            judgement: match drive.state {
                DriveState::Claimed => Judgement::Claimed,
                DriveState::Available => Judgement::Available {
                    class: drive.class.clone().unwrap_or_default(),
                },
                _ => Judgement::Rejected {
                    class: drive.class,
                    reasons: drive.rejects,
                },
            },
            judged: drive.contents.as_ref().map(Contents::stamp),
            trouble: match drive.state {
                DriveState::Unprobed => drive.trouble.or_else(|| Some(no_answer())),
                _ => drive.trouble,
            },
            facts: drive.facts,
            contents: drive.contents,
        }
    }
}

#[cfg(test)]
#[path = "present_tests.rs"]
mod tests;
