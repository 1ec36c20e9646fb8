//! Places of a bad sector, and kinds of faults.

use std::ops::Range;

use drivebay_hwtests::{MIB, hang::HungDrive};
use drivebay_layout::{
    gpt::{ARRAY_BYTES, LABEL_EXTENT},
    lvm::plan::{COPIES, METADATA_END},
};

const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// A distinct structure, or an edge of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The drive's first sector, also without a partition table.
    ProtectiveMbr,
    PrimaryHeader,
    PrimaryEntriesFirst,
    PrimaryEntriesLast,
    BeforeLabel,
    Slot0Header,
    Slot0Records,
    Slot0Last,
    Slot1Header,
    Slot1Records,
    Slot1Last,
    /// The first block of the staged volume.
    VolumeFirst,
    /// The copy of the superblock, and data.
    VolumeMiddle,
    VolumeLast,
    LastMibFirst,
    BackupEntriesFirst,
    BackupEntriesLast,
    BackupHeader,
    LvmLabel,
    LvmAreaHeader,
    LvmFirstText,
    LvmCommittedText,
    /// A text that is not written yet, in the area that LVM reads with the others.
    LvmUnused,
    LvmLastText,
    Copy0First,
    Copy0Last,
    Copy1First,
    Copy1Last,
    DriveLast,
}

/// Returns every place of a layout; if DRIVEBAY_TEST_PLACES is set, only those that it names.
pub(crate) fn places(layout: &str) -> Vec<Place> {
    let only = std::env::var("DRIVEBAY_TEST_PLACES").unwrap_or_default();
    let is_named = |place: &Place| {
        only.split_whitespace()
            .any(|name| name == format!("{place:?}"))
    };
    let mut places = all_places(layout);
    places.retain(|place| only.is_empty() || is_named(place));
    assert!(
        !places.is_empty(),
        "no place of layout {layout} is named {only}"
    );
    places
}

fn all_places(layout: &str) -> Vec<Place> {
    let volume = [
        Place::VolumeFirst,
        Place::VolumeMiddle,
        Place::VolumeLast,
        Place::LastMibFirst,
    ];
    let own: &[Place] = match layout {
        "lvm" => &[
            Place::ProtectiveMbr,
            Place::LvmLabel,
            Place::LvmAreaHeader,
            Place::LvmFirstText,
            Place::LvmCommittedText,
            Place::LvmUnused,
            Place::LvmLastText,
            Place::Copy0First,
            Place::Copy0Last,
            Place::Copy1First,
            Place::Copy1Last,
            Place::DriveLast,
        ],
        _ => &[
            Place::ProtectiveMbr,
            Place::PrimaryHeader,
            Place::PrimaryEntriesFirst,
            Place::PrimaryEntriesLast,
            Place::BeforeLabel,
            Place::Slot0Header,
            Place::Slot0Records,
            Place::Slot0Last,
            Place::Slot1Header,
            Place::Slot1Records,
            Place::Slot1Last,
            Place::BackupEntriesFirst,
            Place::BackupEntriesLast,
            Place::BackupHeader,
        ],
    };
    own.iter().copied().chain(volume).collect()
}

impl Place {
    pub(crate) fn is_in_the_volume(self) -> bool {
        matches!(
            self,
            Self::VolumeFirst | Self::VolumeMiddle | Self::VolumeLast
        )
    }

    /// Returns the byte range on a drive of `drive` bytes, with the volume and LVM's committed text at these offsets.
    pub(crate) fn bytes(self, drive: u64, volume: Range<u64>, text: u64) -> Range<u64> {
        let slot = LABEL_EXTENT.len / 2;
        let (slot_0, slot_1) = (LABEL_EXTENT.start, LABEL_EXTENT.start + slot);
        let copy_1 = COPIES.start + COPIES.len / 2;
        let backup = drive - SECTOR - ARRAY_BYTES;
        let (start, len) = match self {
            Self::ProtectiveMbr => (0, SECTOR),
            Self::PrimaryHeader => (SECTOR, SECTOR),
            Self::PrimaryEntriesFirst => (2 * SECTOR, SECTOR),
            Self::PrimaryEntriesLast => (SECTOR + ARRAY_BYTES, SECTOR),
            Self::BeforeLabel => (LABEL_EXTENT.start - BLOCK, BLOCK),
            Self::Slot0Header => (slot_0, BLOCK),
            Self::Slot0Records => (slot_0 + BLOCK, BLOCK),
            Self::Slot0Last => (slot_1 - BLOCK, BLOCK),
            Self::Slot1Header => (slot_1, BLOCK),
            Self::Slot1Records => (slot_1 + BLOCK, BLOCK),
            Self::Slot1Last => (LABEL_EXTENT.end() - BLOCK, BLOCK),
            Self::VolumeFirst => (volume.start, BLOCK),
            Self::VolumeMiddle => ((volume.start + volume.end) / 2, BLOCK),
            Self::VolumeLast => (volume.end - BLOCK, BLOCK),
            Self::LastMibFirst => (drive - MIB, BLOCK),
            Self::BackupEntriesFirst => (backup, SECTOR),
            Self::BackupEntriesLast => (drive - 2 * SECTOR, SECTOR),
            Self::BackupHeader | Self::DriveLast => (drive - SECTOR, SECTOR),
            Self::LvmLabel => (SECTOR, SECTOR),
            Self::LvmAreaHeader => (BLOCK, SECTOR),
            Self::LvmFirstText => (BLOCK + SECTOR, SECTOR),
            Self::LvmCommittedText => (text, SECTOR),
            Self::LvmUnused => (96 * 1024, BLOCK),
            Self::LvmLastText => (METADATA_END - BLOCK, BLOCK),
            Self::Copy0First => (COPIES.start, BLOCK),
            Self::Copy0Last => (copy_1 - BLOCK, BLOCK),
            Self::Copy1First => (copy_1, BLOCK),
            Self::Copy1Last => (COPIES.end() - BLOCK, BLOCK),
        };
        start..start + len
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ReadError,
    WriteError,
    BitFlipped,
    Zeroed,
    TornHalf,
}

pub(crate) const FAULTS: [Fault; 5] = [
    Fault::ReadError,
    Fault::WriteError,
    Fault::BitFlipped,
    Fault::Zeroed,
    Fault::TornHalf,
];

impl Fault {
    pub(crate) fn strike(self, drive: &HungDrive, bytes: Range<u64>) {
        let len = usize::try_from(bytes.end - bytes.start).unwrap();
        let alter = |how: &dyn Fn(&mut [u8])| drive.alter(bytes.start, len, how).unwrap();
        match self {
            Self::ReadError => drive.spoil(bytes),
            Self::WriteError => drive.refuse_writes(bytes),
            Self::BitFlipped => alter(&|block| {
                let at = block.iter().position(|byte| *byte != 0).unwrap_or(100);
                block[at] ^= 4;
            }),
            Self::Zeroed => alter(&|block| block.fill(0)),
            Self::TornHalf => alter(&|block| block[len / 2..].fill(0xa5)),
        }
    }
}
