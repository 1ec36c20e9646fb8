//! Ranges of a drive that cannot be read, and what is stored there.

use drivebay_proto::words::RangeContent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Extent;

/// Maximum of files that are named for one range; the others are counted.
pub const NAMED_FILES: usize = 8;

/// Result of reading a window of a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRead {
    /// Extents for which reading ended, with or without an error.
    pub done: Vec<Extent>,
    /// The extents of `done` that could not be read.
    pub failed: Vec<Extent>,
}

/// A range that cannot be read, with one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRange {
    /// Position on the drive.
    pub extent: Extent,
    /// Volume that the range is in, if any.
    pub volume: Option<Uuid>,
    /// Offset from the start of that volume, bytes.
    pub offset: u64,
    pub holds: Holds,
}

/// Content of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "holds", rename_all = "kebab-case")]
pub enum Holds {
    /// Drivebay's own: its label, the partition table, LVM's metadata or a copy of it.
    DrivebayMetadata { what: String },
    /// Space of the drive that is allocated to no volume.
    Unallocated,
    /// A partition or logical volume that Drivebay did not make.
    Foreign { name: String },
    /// The drive is not claimed.
    NotClaimed,
    /// A deleted volume that is being erased.
    Erasing,
    /// A volume that has no filesystem yet.
    Unformatted,
    /// A raw block volume: the content is known to its user only.
    RawBlock,
    /// Data or extent maps of files and directories.
    Files {
        /// Paths from the root of the filesystem, escaped for display; `inode 123` where the path was not found.
        files: Vec<String>,
        /// Number of further files that are not named.
        more: u32,
    },
    /// Structures of the filesystem that belong to no one file.
    FilesystemMetadata,
    /// Free space of the filesystem.
    FilesystemFree,
    /// The content cannot be determined.
    Unknown { why: String },
}

impl Holds {
    /// Returns the kind of content without its details. Its word is equal to the tag in serde.
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

    /// Returns what the kind leaves open: which metadata, whose partition, why it is unknown; else an empty text.
    pub fn detail(&self) -> &str {
        match self {
            Self::DrivebayMetadata { what } => what,
            Self::Foreign { name } => name,
            Self::Unknown { why } => why,
            _ => "",
        }
    }

    /// Returns the named files, and the number of further ones.
    pub fn files(&self) -> (&[String], u32) {
        match self {
            Self::Files { files, more } => (files, *more),
            _ => (&[], 0),
        }
    }
}

/// A piece of a volume that cannot be read, with the content that its filesystem has there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedPiece {
    /// Position within the volume.
    pub extent: Extent,
    pub holds: Holds,
}
