//! The inventory: all that the agent knows, as one immutable value that readers share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::VolumeState;

use super::{
    Contents, Cordon, DriveFacts, DriveHealth, DriveId, DriveState, Finding, LastCheck, Layout,
    Placed, Reject, RunningCheck,
    condition::{Condition, NormalReason},
    unreadable::UnreadableRange,
};

/// A drive in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub id: DriveId,
    /// Current facts; the last known ones of a missing drive.
    pub facts: DriveFacts,
    pub state: DriveState,
    /// Class that selects or claimed it.
    pub class: Option<String>,
    /// All reasons why it may not be claimed.
    pub rejects: Vec<Reject>,
    /// Contents of a claimed drive; the last known ones of a missing one.
    pub contents: Option<Contents>,
    /// Bytes that volumes could have after claiming, for an available drive.
    pub claimable_bytes: u64,
    /// Failure of its worker or its probe, in stable words (`stuck`, `probe failed`).
    pub trouble: Option<String>,
    #[serde(default)]
    pub health: DriveHealth,
}

impl Drive {
    /// Returns the cordon that an operator set, if any; of a missing drive, the last known one.
    pub fn cordon(&self) -> Option<&Cordon> {
        self.contents.as_ref()?.label.cordon.as_ref()
    }

    /// Returns a description for a person who may have to pull the drive: identity, model, serial number and bay, as far as they are known.
    /// The kernel name is left out: it may change with a boot, and the messages of conditions must stay the same.
    pub fn describe(&self) -> String {
        let serial = Some(&self.facts.serial).filter(|serial| !serial.is_empty());
        let details = [
            self.facts.model.clone(),
            serial.map_or_else(String::new, |serial| format!("serial {serial}")),
            self.facts.bay.describe(),
        ];
        let details: Vec<String> = details.into_iter().filter(|one| !one.is_empty()).collect();
        match details.is_empty() {
            true => self.id.to_string(),
            false => format!("{} ({})", self.id, details.join(", ")),
        }
    }

    /// True if neither the drive's health nor a cordon excludes new volumes.
    pub fn is_fit(&self) -> bool {
        self.health.is_fit() && self.cordon().is_none()
    }
}

/// A place of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub drive: DriveId,
    /// Record, table entry and partition there.
    pub placed: Placed,
}

/// A volume in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub uuid: Uuid,
    pub drive: DriveId,
    /// Record, table entry and partition.
    pub placed: Placed,
    /// Further places of a volume whose drive was copied. `drive` and `placed` are the place that is in use, or that was known first.
    #[serde(default)]
    pub copies: Vec<Place>,
    pub state: VolumeState,
    /// True if it is mounted or published on this node, from any of its places (by mountinfo).
    pub in_use: bool,
    /// Abnormal conditions, in stable words.
    pub conditions: Vec<Condition>,
    /// Time since which each condition is present, by reason, seconds since 1970.
    #[serde(default)]
    pub since: BTreeMap<String, u64>,
    /// The move that is in progress: a condition that is not abnormal.
    #[serde(default)]
    pub moving: Option<Moving>,
    /// Paths at which it is mounted or published; not necessarily all.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// Progress of erasing it, while that runs.
    pub erasing: Option<Erasing>,
    /// The last conclusive check of its filesystem, then the last check if that is another one.
    #[serde(default)]
    pub checks: Vec<LastCheck>,
    /// The check of its filesystem that runs now.
    #[serde(default)]
    pub checking: Option<RunningCheck>,
    /// Ranges of it that cannot be read, in the order of the drive.
    #[serde(default)]
    pub unreadable: Vec<UnreadableRange>,
    /// Bytes used in the stores of its snapshots, by uuid of the snapshot, as far as they are known.
    #[serde(default)]
    pub snapshot_usage: BTreeMap<Uuid, u64>,
}

impl Volume {
    /// Returns all places of the volume; the first one is `drive` and `placed`.
    pub fn places(&self) -> impl Iterator<Item = (&DriveId, &Placed)> {
        let copies = self.copies.iter();
        let copies = copies.map(|place| (&place.drive, &place.placed));
        std::iter::once((&self.drive, &self.placed)).chain(copies)
    }

    /// True if one of its places is on this drive.
    pub fn is_on(&self, drive: &DriveId) -> bool {
        self.places().any(|(on, _)| on == drive)
    }
}

/// A move of a volume that was requested and is not completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    pub reason: NormalReason,
    /// Time of the request, seconds since 1970.
    pub since: u64,
    /// Source, target, progress, and what the move waits for. Changes when one of these does, and not with each byte that is copied,
    /// because each change is sent to all controllers. `moves` and metrics have the bytes that are left.
    pub message: String,
    /// Reason why the move waits; empty if it does not.
    pub waits_for: String,
}

/// Progress of erasing a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasing {
    pub done_bytes: u64,
    /// Seconds until it is done at the present rate; 0 if unknown.
    pub eta_seconds: u64,
}

/// Capacity of a class on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Layout of the next drive that it claims.
    #[serde(default)]
    pub layout: Layout,
    /// Reason why it can claim no further drive; None if it can.
    #[serde(default)]
    pub cannot_claim: Option<String>,
    /// Bytes of its drives, claimed and available, net of label and alignment.
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Size of the largest volume that would fit, bytes.
    pub largest_bytes: u64,
}

/// All that the agent knows at one point in time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Increases with every published change.
    pub revision: u64,
    /// False until the first scan of all drives is complete.
    pub ready: bool,
    /// By identity (a duplicate gets its kernel name appended).
    pub drives: BTreeMap<DriveId, Drive>,
    /// Known volumes by uuid, including missing ones, and deleted ones on present drives until they are erased.
    pub volumes: BTreeMap<Uuid, Volume>,
    /// Capacity of each configured class, by the name of the class.
    pub classes: BTreeMap<String, ClassReport>,
    /// Findings about the host itself.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bay, samples};

    #[test]
    fn a_drive_is_described_by_what_a_person_finds_it_by() {
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        drive.facts.model = "ST4000".into();
        drive.facts.serial = "S4YP".into();
        drive.facts.bay = Bay {
            enclosure: "5000".into(),
            slot: "3".into(),
            pcie_slot: String::new(),
        };
        assert_eq!(
            drive.describe(),
            "wwn-sda (ST4000, serial S4YP, slot 3 of enclosure 5000)"
        );
        drive.facts.serial.clear();
        drive.facts.bay = Bay::default();
        assert_eq!(drive.describe(), "wwn-sda (ST4000)");
        drive.facts.model.clear();
        assert_eq!(drive.describe(), "wwn-sda");
    }
}
