//! A range of a drive that does not read, and what is stored there.

use drivebay_proto::words::RangeContent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Extent;

/// Files that are named for one range; of the others the number is given.
pub const NAMED_FILES: usize = 8;

/// What reading a window of a drive found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRead {
    /// What was read, or failed to be.
    pub done: Vec<Extent>,
    /// Of that, what failed.
    pub failed: Vec<Extent>,
}

/// A range that does not read, with one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRange {
    /// On the drive.
    pub extent: Extent,
    /// The volume that it is in.
    pub volume: Option<Uuid>,
    /// Bytes from the start of that volume.
    pub offset: u64,
    pub holds: Holds,
}

/// What a range holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "holds", rename_all = "kebab-case")]
pub enum Holds {
    /// Drivebay's own: its label, the partition table, LVM's metadata or a copy of it.
    DrivebayMetadata { what: String },
    /// Space of the drive that no volume has.
    Unallocated,
    /// A partition or logical volume that Drivebay did not make.
    Foreign { name: String },
    /// The drive is not claimed.
    NotClaimed,
    /// A deleted volume that is being erased.
    Erasing,
    /// A volume that has no filesystem yet.
    Unformatted,
    /// A raw block volume: only its user knows.
    RawBlock,
    /// Data or extent maps of files and directories.
    Files {
        /// Paths from the root of the filesystem, escaped for display; `inode 123` where the path was not found.
        files: Vec<String>,
        /// Further ones that are not named.
        more: u32,
    },
    /// Structures of the filesystem that belong to no one file.
    FilesystemMetadata,
    /// Free space of the filesystem.
    FilesystemFree,
    /// It cannot be told.
    Unknown { why: String },
}

impl Holds {
    /// Without its details. Its word is the tag in serde.
    pub fn content(&self) -> RangeContent {
        match self {
            Self::DrivebayMetadata { .. } => RangeContent::DrivebayMetadata,
            Self::Unallocated => RangeContent::Unallocated,
            Self::Foreign { .. } => RangeContent::Foreign,
            Self::NotClaimed => RangeContent::NotClaimed,
            Self::Erasing => RangeContent::Erasing,
            Self::Unformatted => RangeContent::Unformatted,
            Self::RawBlock => RangeContent::RawBlock,
            Self::Files { .. } => RangeContent::Files,
            Self::FilesystemMetadata => RangeContent::FilesystemMetadata,
            Self::FilesystemFree => RangeContent::FilesystemFree,
            Self::Unknown { .. } => RangeContent::Unknown,
        }
    }

    /// What the word leaves open: which metadata, whose partition, why it is unknown.
    pub fn detail(&self) -> &str {
        match self {
            Self::DrivebayMetadata { what } => what,
            Self::Foreign { name } => name,
            Self::Unknown { why } => why,
            _ => "",
        }
    }

    /// Named files, and how many more there are.
    pub fn files(&self) -> (&[String], u32) {
        match self {
            Self::Files { files, more } => (files, *more),
            _ => (&[], 0),
        }
    }
}

/// A piece of a volume that does not read, as its filesystem answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedPiece {
    /// Within the volume.
    pub extent: Extent,
    pub holds: Holds,
}
