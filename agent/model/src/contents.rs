//! Contents of a claimed drive: its label, its volumes, its free space.

use std::{cmp::Ordering, time::Duration};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Cordon, DriveId, Layout, Mapping, PlacedSnapshot, Record, RecordState, runs};

/// A run of bytes on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes from the start of the drive.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
}

impl Extent {
    /// Returns the first byte after it, saturating: a damaged record may have any numbers, and is shown anyway, as ambiguous.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Returns the bytes that both have in common; None if there are none.
    pub fn overlap(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let len = self.end().min(other.end()).checked_sub(start)?;
        (len > 0).then_some(Self { start, len })
    }
}

/// Drivebay's label on a claimed drive.
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
    /// Identity of the drive when it was claimed; distinguishes the drive from another one to which its image was moved.
    pub drive_id: DriveId,
    /// Set while the drive takes no new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
}

/// A volume's record, together with what the partition table or LVM and the kernel have for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub record: Record,
    /// Partition number in the table; None if the table has no entry for it.
    pub number: Option<u32>,
    /// Kernel name of the partition, e.g. `sda2`; None if the kernel does not have it.
    pub device: Option<String>,
    /// Major and minor number of `device`.
    pub dev: Option<(u32, u32)>,
    /// Layout `lvm`: the device-mapper uuid that its device must have, `LVM-<VG uuid><LV uuid>` without hyphens.
    /// None for a partition.
    #[serde(default)]
    pub dm_uuid: Option<String>,
    /// Layout `lvm`: the extents of the drive that it occupies, in the order of the volume. Empty for a partition, whose record has its
    /// extent.
    #[serde(default)]
    pub pieces: Vec<Extent>,
    /// The mapped device over its own one, of a volume that has one (`Record::mapping_uuid`) and is open; None otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Mapping>,
    /// Layout `lvm`: its snapshots, by the time at which they were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<PlacedSnapshot>,
    /// Reason why record, table and kernel do not agree. Such a volume is shown and not changed.
    pub ambiguous: Option<String>,
}

impl Placed {
    /// Returns kernel name and number of the device that is formatted, mounted and published: the mapped device of a volume that has one,
    /// else its own. None: the kernel does not have it.
    pub fn used_device(&self) -> Option<(&str, (u32, u32))> {
        match self.record.mapping_uuid() {
            Some(_) => {
                let mapping = self.mapping.as_ref()?;
                Some((&mapping.device, mapping.dev))
            }
            None => self.device.as_deref().zip(self.dev),
        }
    }

    /// Returns the device-mapper uuid of the mapped device that the kernel has of the volume; None if it has none.
    pub fn mapping_uuid(&self) -> Option<String> {
        self.mapping.as_ref().and(self.record.mapping_uuid())
    }

    /// Returns the byte of the volume at which the device of this kernel name begins; None if it is not one of the volume's.
    pub fn offset_of(&self, kernel_name: &str) -> Option<u64> {
        let is_mapping = |mapping: &Mapping| mapping.device == kernel_name;
        match self.mapping.as_ref().is_some_and(is_mapping) {
            true => Some(self.record.header_bytes()),
            false => (self.device.as_deref() == Some(kernel_name)).then_some(0),
        }
    }

    /// Returns the device-mapper uuid of that device; None for a partition.
    pub fn used_dm_uuid(&self) -> Option<String> {
        self.record.mapping_uuid().or_else(|| self.dm_uuid.clone())
    }

    /// Returns the extents of its bytes on the drive: `pieces` with layout `lvm`, else the record's extent.
    pub fn lies_at(&self) -> &[Extent] {
        if self.dm_uuid.is_some() {
            &self.pieces
        } else {
            std::slice::from_ref(&self.record.extent)
        }
    }
}

/// Method of zeroing space on a drive, by the results so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zeroing {
    /// The drive's own command, if it has one.
    #[default]
    Command,
    /// Writing zeros: other bytes were read back after the command.
    Written,
    /// None: other bytes were read back after zeros were written.
    Fails,
}

impl Zeroing {
    /// Returns the method to use after this one did not read back as zeros.
    pub fn after_failure(self) -> Self {
        match self {
            Self::Command => Self::Written,
            Self::Written | Self::Fails => Self::Fails,
        }
    }
}

/// Zeroed free space of a drive, and the method of zeroing it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space {
    /// Runs that Drivebay zeroed and read back, in order, and has allocated to no volume since.
    pub zeroed: Vec<Extent>,
    pub zeroing: Zeroing,
}

/// Space in which a deleted snapshot, or the snapshot of a check, stored data of its volume. It belongs to nothing and is not free until it
/// is erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedStore {
    /// Identity of this deletion, new for each one.
    pub erase_guid: Uuid,
    pub bytes: u64,
    /// Bytes from its start that are erased, durably.
    pub done_bytes: u64,
}

/// Result of reading the metadata of a claimed drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub label: Label,
    pub layout: Layout,
    /// Sequence number of the label slot that was read: of two reads of one label, the higher one is the later.
    pub sequence: u64,
    /// Moment of this reading.
    #[serde(default)]
    pub read_at: ReadAt,
    /// Volumes in ascending order of their start, including those that are being created or erased.
    pub volumes: Vec<Placed>,
    /// Free runs, aligned, in order.
    pub free: Vec<Extent>,
    #[serde(default)]
    pub space: Space,
    /// Space that all volumes could have together, bytes.
    pub usable_bytes: u64,
    /// Allocation unit, bytes: sizes and starts are multiples of it.
    pub extent_bytes: u64,
    /// True if the partition table has no entry left: however much is free, no further volume can be made. Never true with layout `lvm`.
    #[serde(default)]
    pub table_full: bool,
    /// Name and extent of table entries without a record: shown, counted as used, not changed.
    pub strangers: Vec<(String, Extent)>,
    /// Bytes of snapshots of checks, and of deleted snapshots that are not marked for erasing yet. Always 0 with layout `partition`.
    #[serde(default)]
    pub unmarked_bytes: u64,
    /// Stores that are marked for erasing. None with layout `partition`.
    #[serde(default)]
    pub deleted_stores: Vec<DeletedStore>,
    /// Messages for an operator, in stable words, e.g. of a repaired table or a lost slot.
    pub notes: Vec<String>,
}

/// Moment at which it was read what the kernel has of a drive, by the clock of this boot. The drive's lock is held meanwhile, so that its
/// metadata do not change. The same contents read again are the same: two moments are equal, and only `Contents::replaces` compares them.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ReadAt {
    /// Nanoseconds since the boot; 0: not known.
    pub nanoseconds: u64,
}

impl PartialEq for ReadAt {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadAt {}

impl From<Duration> for ReadAt {
    /// Takes the time since the boot.
    fn from(since_boot: Duration) -> Self {
        Self {
            nanoseconds: u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// State of a drive's metadata that was read: uuid and sequence number of the label.
pub type Stamp = (Uuid, u64);

impl Contents {
    /// Returns the state of the drive's metadata that this was read from.
    pub fn stamp(&self) -> Stamp {
        (self.label.drive_uuid, self.sequence)
    }

    /// True if these contents replace `old`: they are of another label, were written later, or were read later, with what the kernel has by
    /// then. Metadata may go back, when an older image of a drive is attached.
    pub fn replaces(&self, old: &Self) -> bool {
        let read_later = self.read_at.nanoseconds.cmp(&old.read_at.nanoseconds);
        self.label.drive_uuid != old.label.drive_uuid
            || match read_later {
                Ordering::Less => self.sequence > old.sequence,
                Ordering::Equal => self.sequence >= old.sequence,
                Ordering::Greater => true,
            }
    }

    /// True if a scan with repair has work here: notes, an unfinished creation or expansion, or a volume that should have a device and has
    /// none.
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

    /// Returns the sum of the free runs, bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free.iter().map(|run| run.len).sum()
    }

    /// Returns the bytes that deleted snapshots and snapshots of checks occupy and that are not erased yet.
    pub fn unerased_bytes(&self) -> u64 {
        self.unmarked_bytes + self.to_erase_bytes()
    }

    /// Returns the bytes of `deleted_stores` that are not erased yet.
    pub fn to_erase_bytes(&self) -> u64 {
        let stores = self.deleted_stores.iter();
        let left = stores.map(|store| store.bytes.saturating_sub(store.done_bytes));
        left.sum()
    }

    /// Returns the free runs that are not known to be zeros.
    pub fn unzeroed(&self) -> Vec<Extent> {
        runs::without(&self.free, &self.space.zeroed)
    }

    /// Returns the size of the largest volume that would fit now, bytes: a partition needs one free run, a logical volume takes several. 0
    /// if the table is full.
    pub fn largest_free(&self) -> u64 {
        match self.layout {
            _ if self.table_full => 0,
            Layout::Partition => self.free.iter().map(|run| run.len).max().unwrap_or(0),
            Layout::Lvm => self.free_bytes(),
        }
    }

    pub fn volume(&self, uuid: Uuid) -> Option<&Placed> {
        self.volumes
            .iter()
            .find(|placed| placed.record.uuid == uuid)
    }

    /// Returns the snapshots of all its volumes.
    pub fn snapshots(&self) -> impl Iterator<Item = &PlacedSnapshot> {
        self.volumes.iter().flat_map(|placed| &placed.snapshots)
    }

    pub fn snapshot(&self, uuid: Uuid) -> Option<&PlacedSnapshot> {
        self.snapshots().find(|one| one.record.uuid == uuid)
    }
}
