//! What was read from a claimed drive: its label, its volumes, its free space.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Cordon, DriveId, Layout, PlacedSnapshot, Record, RecordState, runs};

/// A run of bytes on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes from the start of the drive.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Extent {
    /// The first byte after it. A damaged record may have any numbers and is shown all the same, as ambiguous: what would lie
    /// behind the last number there is ends there.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// What both have in common; None where that is nothing.
    pub fn overlap(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let len = self.end().min(other.end()).checked_sub(start)?;
        (len > 0).then_some(Self { start, len })
    }
}

/// Our mark on a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Random, made at claim; also the GPT's disk GUID.
    pub drive_uuid: Uuid,
    /// Cluster the drive belongs to.
    pub cluster: String,
    /// Node that claimed it.
    pub node: String,
    /// Class it was claimed for.
    pub class: String,
    /// The drive's identity when it was claimed, to tell a moved image from the drive itself.
    pub drive_id: DriveId,
    /// Set while the drive takes no new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
}

/// A record together with what the table and the kernel say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// What the label says.
    pub record: Record,
    /// Partition number in the table; None when the table has no entry for it.
    pub number: Option<u32>,
    /// Kernel name of the partition, e.g. `sda2`; None when the kernel does not have it.
    pub device: Option<String>,
    /// Device number of the partition.
    pub dev: Option<(u32, u32)>,
    /// Layout `lvm`: the device-mapper uuid that its device must have, `LVM-<VG uuid><LV uuid>` without hyphens.
    /// None for a partition.
    #[serde(default)]
    pub dm_uuid: Option<String>,
    /// Layout `lvm`: the pieces of the drive that it has, in its own order. Empty for a partition, whose record says where it
    /// lies.
    #[serde(default)]
    pub pieces: Vec<Extent>,
    /// Layout `lvm`: its snapshots, by the moment that they are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<PlacedSnapshot>,
    /// Why record, table and kernel do not agree; such a volume is shown and not touched.
    pub ambiguous: Option<String>,
}

impl Placed {
    /// Where its bytes lie on the drive.
    pub fn lies_at(&self) -> &[Extent] {
        if self.dm_uuid.is_some() {
            &self.pieces
        } else {
            std::slice::from_ref(&self.record.extent)
        }
    }
}

/// How zeros are made on a drive, by what it did when it was told to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zeroing {
    /// By its own command, where it has one.
    #[default]
    Command,
    /// Written: after the command other bytes were read back.
    Written,
    /// Neither way: other bytes were read back after zeros were written.
    Fails,
}

impl Zeroing {
    /// The way to go after this one did not read back as zeros.
    pub fn after_failure(self) -> Self {
        match self {
            Self::Command => Self::Written,
            Self::Written | Self::Fails => Self::Fails,
        }
    }
}

/// What is known of a drive's free space.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space {
    /// Runs that Drivebay zeroed and read back, in order, and has given to no volume since.
    pub zeroed: Vec<Extent>,
    pub zeroing: Zeroing,
}

/// All that a look at a claimed drive found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Our mark.
    pub label: Label,
    /// How the drive is carved.
    pub layout: Layout,
    /// Sequence number of the label slot that was read: of two looks at one label, the higher is the later.
    pub sequence: u64,
    /// Volumes, by start.
    pub volumes: Vec<Placed>,
    /// Free runs, aligned, in order.
    pub free: Vec<Extent>,
    /// What is known of the bytes of free space.
    #[serde(default)]
    pub space: Space,
    /// Bytes all volumes could have together.
    pub usable_bytes: u64,
    /// Sizes and starts are multiples of this.
    pub extent_bytes: u64,
    /// The partition table has no entry left: whatever is free, no further volume can be made. Never of layout `lvm`.
    #[serde(default)]
    pub table_full: bool,
    /// Table entries that no record knows: shown, counted as used, not touched. (name, extent)
    pub strangers: Vec<(String, Extent)>,
    /// Things an operator should know, in stable words (a repaired table, a lost slot).
    pub notes: Vec<String>,
}

/// Which state of a drive's metadata was read: the label's drive, and its sequence number.
pub type Stamp = (Uuid, u64);

impl Contents {
    /// Which state of the drive this is of.
    pub fn stamp(&self) -> Stamp {
        (self.label.drive_uuid, self.sequence)
    }

    /// Whether there is something that a repairing look mends.
    pub fn needs_repair(&self) -> bool {
        !self.notes.is_empty()
            || self.volumes.iter().any(|placed| {
                let record = &placed.record;
                record.growing_to.is_some()
                    || matches!(record.state, RecordState::Creating)
                    || (placed.ambiguous.is_none()
                        && placed.device.is_none()
                        && record.place.has_device()
                        && !matches!(record.state, RecordState::Erasing { .. }))
            })
    }

    /// Sum of the free runs, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free.iter().map(|run| run.len).sum()
    }

    /// Free runs that are not known to be zeros.
    pub fn unzeroed(&self) -> Vec<Extent> {
        runs::without(&self.free, &self.space.zeroed)
    }

    /// The largest volume that would fit now, in bytes: a partition needs one free run, a logical volume
    /// takes several. None would fit when the table is full.
    pub fn largest_free(&self) -> u64 {
        match self.layout {
            _ if self.table_full => 0,
            Layout::Partition => self.free.iter().map(|run| run.len).max().unwrap_or(0),
            Layout::Lvm => self.free_bytes(),
        }
    }

    /// The volume of this identity.
    pub fn volume(&self, uuid: Uuid) -> Option<&Placed> {
        self.volumes
            .iter()
            .find(|placed| placed.record.uuid == uuid)
    }
}
