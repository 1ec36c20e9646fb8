//! GUID partition tables. Reads and compares both copies, and writes them in an order that leaves
//! one whole copy at every moment (UEFI 2.10, chapter 5).
//!
//! Only the common shape is accepted (except by `scan`, which reads any table), since Drivebay
//! writes no other: 128 entries of 128 bytes, the primary array at LBA 2, the backup array right
//! before the backup header. An entry keeps its slot as long as it exists, and foreign entries are
//! kept byte for byte.

mod codec;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod write;

use uuid::Uuid;

use drivebay_model::{Extent, LABEL_TYPE, MIB};

pub use read::{FirstSector, GptCopies, first_sector, read, written_sector};
pub use scan::{GptScan, GptState, scan};
pub use write::{clear_unreadable, create, is_our_mbr, protective_mbr, write, write_copy};

/// Number of entries of a table.
pub const ENTRIES: usize = 128;
pub const ENTRY_BYTES: usize = 128;
pub const ARRAY_BYTES: u64 = (ENTRIES * ENTRY_BYTES) as u64;
/// Extent of the label partition, the same on every drive.
pub const LABEL_EXTENT: Extent = Extent {
    start: MIB,
    len: 4 * MIB,
};
/// Partition name of the label and of volumes (GPT names have 36 UTF-16 units; the identity is the
/// GUID).
pub const PARTITION_NAME: &str = "drivebay";

/// One of the two copies of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// At the start of the drive.
    Primary,
    /// At the end of the drive that the table was written for: entries, then the header in sector
    /// `Table::last_lba`.
    Backup,
}

impl Which {
    /// Returns the name for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
        }
    }
}

/// One slot of the table: its 128 bytes on the drive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    pub const UNUSED: Self = Self([0; ENTRY_BYTES]);

    /// Returns the entry of a partition of Drivebay. The extent must be a multiple of the sector.
    pub fn new(type_guid: Uuid, guid: Uuid, extent: Extent, sector: u64) -> Self {
        let mut entry = Self::UNUSED;
        for (i, unit) in PARTITION_NAME.encode_utf16().enumerate() {
            entry.put(56 + 2 * i, &unit.to_le_bytes());
        }
        entry
            .with_identity(type_guid, guid)
            .with_extent(extent, sector)
    }

    /// Returns the partition with another type and GUID.
    pub fn with_identity(mut self, type_guid: Uuid, guid: Uuid) -> Self {
        self.put(0, &type_guid.to_bytes_le());
        self.put(16, &guid.to_bytes_le());
        self
    }

    /// Returns the partition with another extent, which must be a multiple of the sector.
    pub fn with_extent(mut self, extent: Extent, sector: u64) -> Self {
        self.put(32, &(extent.start / sector).to_le_bytes());
        self.put(40, &(extent.end() / sector - 1).to_le_bytes());
        self
    }

    /// True if the slot holds a partition: its type is not nil.
    pub fn is_used(&self) -> bool {
        !self.type_guid().is_nil()
    }

    /// Returns the type of the partition.
    pub fn type_guid(&self) -> Uuid {
        Uuid::from_bytes_le(self.get(0))
    }

    /// Returns the GUID of the partition, which is its identity.
    pub fn guid(&self) -> Uuid {
        Uuid::from_bytes_le(self.get(16))
    }

    /// Returns the first sector.
    pub fn first_lba(&self) -> u64 {
        u64::from_le_bytes(self.get(32))
    }

    /// Returns the last sector, which is part of the partition.
    pub fn last_lba(&self) -> u64 {
        u64::from_le_bytes(self.get(40))
    }

    /// Returns the extent in bytes. It is wrong for an entry whose last sector precedes its first,
    /// which tables that were read do not have.
    pub fn extent(&self, sector: u64) -> Extent {
        Extent {
            start: self.first_lba().saturating_mul(sector),
            len: (self.last_lba() + 1)
                .saturating_sub(self.first_lba())
                .saturating_mul(sector),
        }
    }

    /// Returns the partition's name; units that are no valid UTF-16 are replaced.
    pub fn name(&self) -> String {
        let units = self
            .0
            .get(56..)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| {
                u16::from_le_bytes([
                    pair.first().copied().unwrap_or(0),
                    pair.get(1).copied().unwrap_or(0),
                ])
            });
        String::from_utf16_lossy(&units.take_while(|&unit| unit != 0).collect::<Vec<_>>())
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        codec::bytes(&self.0, at)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        codec::put(&mut self.0, at, bytes);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}/{} {}..={}",
            self.type_guid(),
            self.guid(),
            self.first_lba(),
            self.last_lba()
        )
    }
}

/// A table, independent of the copy that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub disk_guid: Uuid,
    /// Bytes of a logical sector.
    pub sector: u64,
    /// Last sector of the table's drive, which holds the backup header.
    pub last_lba: u64,
    /// First sector that partitions may use.
    pub first_usable: u64,
    /// Last sector that partitions may use.
    pub last_usable: u64,
    /// All slots, used or not; the partition number is the index plus one.
    pub entries: Vec<Entry>,
}

impl Table {
    /// Returns the table that claiming writes, which has only the label partition; None if the
    /// drive is too small for it and a MiB.
    pub fn fresh(disk_guid: Uuid, label_guid: Uuid, size: u64, sector: u64) -> Option<Self> {
        let array = ARRAY_BYTES / sector;
        let last_lba = (size / sector).checked_sub(1)?;
        let last_usable = last_lba.checked_sub(array + 1)?;
        if (last_usable + 1) * sector < LABEL_EXTENT.end() + MIB {
            return None;
        }
        let mut entries = vec![Entry::UNUSED; ENTRIES];
        if let Some(first) = entries.first_mut() {
            *first = Entry::new(LABEL_TYPE, label_guid, LABEL_EXTENT, sector);
        }
        Some(Self {
            disk_guid,
            sector,
            last_lba,
            first_usable: 2 + array,
            last_usable,
            entries,
        })
    }

    /// Returns the used slots with their partition numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (1..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.is_used())
    }

    /// True if the first slot is Drivebay's label partition.
    pub fn is_ours(&self) -> bool {
        self.entries.first().is_some_and(|entry| {
            entry.type_guid() == LABEL_TYPE && entry.extent(self.sector) == LABEL_EXTENT
        })
    }

    /// Returns the lowest unused partition number; None if all are used.
    pub fn free_number(&self) -> Option<u32> {
        (1..)
            .zip(&self.entries)
            .find(|(_, entry)| !entry.is_used())
            .map(|(number, _)| number)
    }

    /// Returns the table with one slot replaced; unchanged if there is no such number.
    pub fn with(&self, number: u32, entry: Entry) -> Self {
        let mut table = self.clone();
        let slot = (number as usize)
            .checked_sub(1)
            .and_then(|i| table.entries.get_mut(i));
        if let Some(slot) = slot {
            *slot = entry;
        }
        table
    }

    /// Returns the slot of this partition number; None if there is no such number.
    pub fn entry(&self, number: u32) -> Option<Entry> {
        (number as usize)
            .checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .copied()
    }
}
