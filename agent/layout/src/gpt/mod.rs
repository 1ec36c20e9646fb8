//! GUID partition tables: both copies, read and compared by ourselves, and written in an order
//! that leaves one whole copy at every moment (UEFI 2.10, chapter 5).
//!
//! Only the common shape is accepted (but by `scan`, which looks at anybody's table), since it is the only one we write: 128 entries of 128
//! bytes, the primary array at LBA 2, the backup array right before the backup header. Entries
//! keep their slot for ever, and entries that are not ours are kept byte for byte.

mod codec;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod write;

use uuid::Uuid;

use drivebay_model::{Extent, LABEL_TYPE, MIB};

pub use read::{FirstSector, Found, first_sector, read, written_sector};
pub use scan::{GptScan, GptState, scan};
pub use write::{clear_unreadable, create, is_our_mbr, protective_mbr, write, write_copy};

/// Entries of a table.
pub const ENTRIES: usize = 128;
/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 128;
/// Bytes of the entry array.
pub const ARRAY_BYTES: u64 = (ENTRIES * ENTRY_BYTES) as u64;
/// Where the label partition lies, on every drive of ours.
pub const LABEL_EXTENT: Extent = Extent {
    start: MIB,
    len: 4 * MIB,
};
/// Partition name of the label and of volumes (GPT names hold 36 UTF-16 units; the identity is the GUID).
pub const PARTITION_NAME: &str = "drivebay";

/// One of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// At the start of the drive.
    Primary,
    /// At its end.
    Backup,
}

impl Which {
    /// The word in notes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
        }
    }
}

/// One slot of the table: the 128 bytes as they are on the drive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    /// An unused slot.
    pub const UNUSED: Self = Self([0; ENTRY_BYTES]);

    /// A partition of ours. The extent is a multiple of the sector.
    pub fn new(type_guid: Uuid, guid: Uuid, extent: Extent, sector: u64) -> Self {
        let mut entry = Self::UNUSED;
        for (i, unit) in PARTITION_NAME.encode_utf16().enumerate() {
            entry.put(56 + 2 * i, &unit.to_le_bytes());
        }
        entry
            .with_identity(type_guid, guid)
            .with_extent(extent, sector)
    }

    /// The same partition under another type and GUID.
    pub fn with_identity(mut self, type_guid: Uuid, guid: Uuid) -> Self {
        self.put(0, &type_guid.to_bytes_le());
        self.put(16, &guid.to_bytes_le());
        self
    }

    /// The same partition at another extent.
    pub fn with_extent(mut self, extent: Extent, sector: u64) -> Self {
        self.put(32, &(extent.start / sector).to_le_bytes());
        self.put(40, &(extent.end() / sector - 1).to_le_bytes());
        self
    }

    /// Whether the slot holds a partition.
    pub fn is_used(&self) -> bool {
        !self.type_guid().is_nil()
    }

    /// What kind of partition.
    pub fn type_guid(&self) -> Uuid {
        Uuid::from_bytes_le(self.get(0))
    }

    /// Which partition.
    pub fn guid(&self) -> Uuid {
        Uuid::from_bytes_le(self.get(16))
    }

    /// First sector.
    pub fn first_lba(&self) -> u64 {
        u64::from_le_bytes(self.get(32))
    }

    /// Last sector.
    pub fn last_lba(&self) -> u64 {
        u64::from_le_bytes(self.get(40))
    }

    /// Where it lies, in bytes. Tables that were read hold no entry for which this is wrong.
    pub fn extent(&self, sector: u64) -> Extent {
        Extent {
            start: self.first_lba().saturating_mul(sector),
            len: (self.last_lba() + 1)
                .saturating_sub(self.first_lba())
                .saturating_mul(sector),
        }
    }

    /// The partition's name.
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

/// A table, without saying which copy it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The drive's GUID.
    pub disk_guid: Uuid,
    /// Logical sector, bytes.
    pub sector: u64,
    /// Where the backup header is: the last sector the table knows of.
    pub last_lba: u64,
    /// First sector partitions may use.
    pub first_usable: u64,
    /// Last sector partitions may use.
    pub last_usable: u64,
    /// All slots, used or not; the partition number is the index plus one.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The table that claiming writes: nothing but the label partition. None when the drive is too
    /// small to hold it.
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

    /// Used slots with their partition numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (1..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.is_used())
    }

    /// Whether it starts with our label partition.
    pub fn is_ours(&self) -> bool {
        self.entries.first().is_some_and(|entry| {
            entry.type_guid() == LABEL_TYPE && entry.extent(self.sector) == LABEL_EXTENT
        })
    }

    /// The lowest unused partition number.
    pub fn free_number(&self) -> Option<u32> {
        (1..)
            .zip(&self.entries)
            .find(|(_, entry)| !entry.is_used())
            .map(|(number, _)| number)
    }

    /// The same table with one slot changed.
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

    /// The slot of this partition number.
    pub fn entry(&self, number: u32) -> Option<Entry> {
        (number as usize)
            .checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .copied()
    }
}
