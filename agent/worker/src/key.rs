//! The address of a worker: the drive whose I/O it does, its slot, and its lane. Its text is the
//! file name of the worker's record, and is shown in the process list.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Slot;
use drivebay_model::DriveId;

/// Target of a job's I/O.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobTarget {
    /// The drive with this id; its worker runs jobs of no other drive.
    Drive(DriveId),
    /// Several drives that share the worker, or an unknown drive: the name of that group, `[a-z-]+`.
    Group(String),
}

impl JobTarget {
    /// Returns the drive; None for a group.
    pub fn drive(&self) -> Option<&DriveId> {
        match self {
            Self::Drive(drive) => Some(drive),
            Self::Group(_) => None,
        }
    }
}

impl fmt::Display for JobTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive(drive) => write!(f, "drive {drive}"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// Which of the workers of a target and slot. Each lane has at most one, and waits for no other lane.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The only one, where a slot has no others.
    #[default]
    Main,
    /// One of several that take the same jobs.
    Number(u32),
    /// For one volume, whose job may take so long that the main lane cannot be kept waiting.
    Volume(Uuid),
    /// Detaches a mount in which another lane hangs: of one volume, or, nil, of one that is not known.
    Detach(Uuid),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => Ok(()),
            Self::Number(number) => write!(f, "{LANE}{number}"),
            Self::Volume(volume) => write!(f, "{LANE}{volume}"),
            Self::Detach(volume) => write!(f, "{LANE}{DETACH}{volume}"),
        }
    }
}

impl Lane {
    fn is_main(&self) -> bool {
        *self == Self::Main
    }
}

/// The address of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey {
    #[serde(flatten)]
    pub target: JobTarget,
    pub slot: Slot,
    #[serde(default, skip_serializing_if = "Lane::is_main")]
    pub lane: Lane,
}

impl WorkerKey {
    /// Returns the address of a group's worker in this slot, on the main lane.
    pub fn of_group(name: &str, slot: Slot) -> Self {
        Self {
            target: JobTarget::Group(name.to_owned()),
            slot,
            lane: Lane::Main,
        }
    }

    /// Returns the address of the worker of the same target and slot on another lane.
    pub fn on(&self, lane: Lane) -> Self {
        Self {
            lane,
            ..self.clone()
        }
    }

    /// Returns the drive; None for a group.
    pub fn drive(&self) -> Option<&DriveId> {
        self.target.drive()
    }

    /// Returns `TARGET[@LANE]`. Bytes of a drive's id that are separators here, or unsafe in a file
    /// name, are escaped as `%xx`.
    pub(super) fn address(&self) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let target = match &self.target {
            JobTarget::Drive(drive) => drive.0.bytes().map(|byte| match plain(byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02x}"),
            }),
            JobTarget::Group(name) => return format!("{GROUP}{name}{}", self.lane),
        };
        target.chain([self.lane.to_string()]).collect()
    }
}

impl From<(&DriveId, Slot)> for WorkerKey {
    fn from((drive, slot): (&DriveId, Slot)) -> Self {
        Self {
            target: JobTarget::Drive(drive.clone()),
            slot,
            lane: Lane::Main,
        }
    }
}

/// Begins the name of a group: no drive has it, as it is escaped in a drive's id. So are the
/// separators below.
const GROUP: char = '+';
/// Separates target and lane.
const LANE: char = '@';
/// Begins a lane that detaches; the volume follows.
const DETACH: &str = "detach+";

/// Writes `SLOT-ADDRESS`, the name of the worker's record.
impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.slot, self.address())
    }
}

/// The text is not the address of a worker, or contains an escape: escapes are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a worker")]
pub struct NoKey;

impl FromStr for WorkerKey {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let (slot, rest) = text.split_once('-').ok_or(NoKey)?;
        let mut slots = Slot::ALL.into_iter();
        let slot = slots
            .find(|candidate| candidate.as_str() == slot)
            .ok_or(NoKey)?;
        let (target, lane) = match rest.split_once(LANE) {
            Some((target, lane)) => (target, lane_of(lane).ok_or(NoKey)?),
            None => (rest, Lane::Main),
        };
        let target = match target.strip_prefix(GROUP) {
            Some(name) => JobTarget::Group(name.to_owned()),
            None if target.is_empty() || target.contains('%') => return Err(NoKey),
            None => JobTarget::Drive(DriveId(target.to_owned())),
        };
        Ok(Self { target, slot, lane })
    }
}

fn lane_of(text: &str) -> Option<Lane> {
    match text.strip_prefix(DETACH) {
        Some(volume) => volume.parse().map(Lane::Detach).ok(),
        None => text.parse().map(Lane::Number).ok().or_else(|| {
            let volume = text.parse().map(Lane::Volume);
            volume.ok()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_its_text() {
        let volume = Uuid::from_u128(7);
        let drive = DriveId("wwn-0x5000:1.2_a".into());
        let main = WorkerKey::from((&drive, Slot::Unmount));
        let lanes = [
            Lane::Main,
            Lane::Number(3),
            Lane::Volume(volume),
            Lane::Detach(volume),
            Lane::Detach(Uuid::nil()),
        ];
        let group = WorkerKey::of_group("samples", Slot::Foreground);
        let mut texts = std::collections::HashSet::new();
        for key in lanes
            .iter()
            .flat_map(|&lane| [main.on(lane), group.on(lane)])
        {
            assert_eq!(key.to_string().parse(), Ok(key.clone()));
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(serde_json::from_str::<WorkerKey>(&json).unwrap(), key);
            assert!(texts.insert(key.to_string()));
        }
        assert_eq!(main.to_string(), "unmount-wwn-0x5000:1.2_a");
        assert_eq!(
            main.on(Lane::Detach(volume)).to_string(),
            format!("unmount-wwn-0x5000:1.2_a@detach+{volume}")
        );
    }

    #[test]
    fn a_drives_id_never_reads_as_a_group_or_a_lane_nor_leaves_a_directory() {
        for id in ["+samples", "a@1", "../a/b", "a%2f", ""] {
            let drive = DriveId(id.into());
            let key = WorkerKey::from((&drive, Slot::Check));
            let text = key.to_string();
            assert!(!text.contains(['/', '+', '@']), "{text}");
            assert_eq!(text.parse::<WorkerKey>(), Err(NoKey), "{text}");
        }
        assert_eq!("elsewhere-x".parse::<WorkerKey>(), Err(NoKey));
    }
}
