//! The inventory: everything the agent knows, as one immutable value that readers share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::VolumeState;

use super::{
    Contents, Cordon, DriveFacts, DriveHealth, DriveId, DriveState, Finding, LastCheck, Layout,
    Placed, Reject,
    condition::{Condition, NormalReason},
    unreadable::UnreadableRange,
};

/// A drive as the inventory shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub id: DriveId,
    /// Facts now; the last known ones for a missing drive.
    pub facts: DriveFacts,
    /// What may be done with it.
    pub state: DriveState,
    /// The class that selects (or claimed) it.
    pub class: Option<String>,
    /// Every reason against it.
    pub rejects: Vec<Reject>,
    /// What is on it, when it is ours.
    pub contents: Option<Contents>,
    /// For an available drive: bytes that volumes could have after claiming.
    pub claimable_bytes: u64,
    /// Condition of its worker or its probe, in stable words (`stuck`, `probe failed`).
    pub trouble: Option<String>,
    /// How well it is.
    #[serde(default)]
    pub health: DriveHealth,
}

impl Drive {
    /// Why no new volumes are put on it, if an operator decided so; of a drive that is missing, as it was last known.
    pub fn cordon(&self) -> Option<&Cordon> {
        self.contents.as_ref()?.label.cordon.as_ref()
    }

    /// Names it for a person who may have to pull it: identity, model, serial number and bay, as far as they are known. Not its
    /// kernel name, which is another one after a boot, so that the messages of conditions stay the same.
    pub fn describe(&self) -> String {
        let serial = Some(&self.facts.serial).filter(|serial| !serial.is_empty());
        let known = [
            self.facts.model.clone(),
            serial.map_or_else(String::new, |serial| format!("serial {serial}")),
            self.facts.bay.describe(),
        ];
        let known: Vec<String> = known.into_iter().filter(|one| !one.is_empty()).collect();
        match known.is_empty() {
            true => self.id.to_string(),
            false => format!("{} ({})", self.id, known.join(", ")),
        }
    }

    /// Whether new volumes may be put on it, as far as its health and the operator go.
    pub fn is_fit(&self) -> bool {
        self.health.is_fit() && self.cordon().is_none()
    }
}

/// One of the places of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub drive: DriveId,
    /// Record, table entry and partition there.
    pub placed: Placed,
}

/// A volume as the inventory shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub uuid: Uuid,
    pub drive: DriveId,
    /// Record, table entry and partition.
    pub placed: Placed,
    /// Where else it is: its drive was copied. The first place is the one that is in use, or was known first.
    #[serde(default)]
    pub copies: Vec<Place>,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Mounted or published here, from whichever place (from mountinfo).
    pub in_use: bool,
    /// What is wrong, in stable words.
    pub conditions: Vec<Condition>,
    /// Since when each condition is there, by reason, seconds since 1970.
    #[serde(default)]
    pub since: BTreeMap<String, u64>,
    /// The move that it is in: a condition with which nothing is wrong.
    #[serde(default)]
    pub moving: Option<Moving>,
    /// Where it is mounted or published, some of the places.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// How far erasing is, while it is erased.
    pub erasing: Option<Erasing>,
    /// The last check of its filesystem that said something, then the last attempt if that is another.
    #[serde(default)]
    pub checks: Vec<LastCheck>,
    /// What of it does not read, in the order of the drive.
    #[serde(default)]
    pub unreadable: Vec<UnreadableRange>,
    /// Bytes that are used of the stores of its snapshots, as far as they are known.
    #[serde(default)]
    pub snapshot_usage: BTreeMap<Uuid, u64>,
}

impl Volume {
    /// All places of it, the first one first.
    pub fn places(&self) -> impl Iterator<Item = (&DriveId, &Placed)> {
        let copies = self.copies.iter();
        let copies = copies.map(|place| (&place.drive, &place.placed));
        std::iter::once((&self.drive, &self.placed)).chain(copies)
    }

    /// Whether one of its places is on this drive.
    pub fn is_on(&self, drive: &DriveId) -> bool {
        self.places().any(|(on, _)| on == drive)
    }
}

/// A move of a volume that was requested and is not completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    pub reason: NormalReason,
    /// When it was requested, seconds since 1970.
    pub since: u64,
    /// From where to where, how far, and what it waits for. Changes when one of these does, and not with each byte that is copied:
    /// each change is sent to all controllers. How many bytes are left, `moves` and metrics say.
    pub message: String,
    /// What it waits for; empty: nothing.
    pub waits_for: String,
}

/// How far erasing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasing {
    /// Bytes done.
    pub done_bytes: u64,
    /// Seconds until it is done at the present rate; 0 when unknown.
    pub eta_seconds: u64,
}

/// What a class has to offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// How its next drive is carved.
    #[serde(default)]
    pub layout: Layout,
    /// Why it can claim no further drive.
    #[serde(default)]
    pub cannot_claim: Option<String>,
    /// Bytes of its drives, claimed and available, net of label and alignment.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// The largest volume that would fit.
    pub largest_bytes: u64,
}

/// Everything known at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Grows with every published change.
    pub revision: u64,
    /// False until the first look at every drive is complete.
    pub ready: bool,
    /// By identity (a duplicate gets its kernel name appended).
    pub drives: BTreeMap<DriveId, Drive>,
    /// By identity.
    pub volumes: BTreeMap<Uuid, Volume>,
    /// By class name.
    pub classes: BTreeMap<String, ClassReport>,
    /// What a person should know of the host itself.
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
