//! A volume: what is asked for, and what is durably known of it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::Mode;

use super::Extent;

/// Filesystems Drivebay makes and mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// btrfs
    Btrfs,
}

impl FsType {
    /// Every filesystem there is.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// As mount(2), libblkid and CSI write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The filesystem of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.as_str() == text)
    }

    /// Smallest device, in bytes; see `names::FILESYSTEMS`.
    pub fn min_bytes(self) -> u64 {
        drivebay_proto::names::smallest_filesystem(self.as_str()).unwrap_or(super::GIB)
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What CreateVolume asks a drive for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Identity, chosen by the agent before the first step.
    pub uuid: Uuid,
    /// The CSI name, any Unicode but control characters, at most 128 bytes.
    pub name: String,
    /// The class it was asked from.
    pub class: String,
    /// Use.
    pub mode: Mode,
    /// Filesystem it will be formatted with (None for block).
    pub fs_type: Option<FsType>,
    /// Further mkfs arguments, one per element.
    pub mkfs_options: Vec<String>,
    /// Further mount options, one per element.
    pub mount_options: Vec<String>,
    /// Size in bytes, a multiple of the layout's extent.
    pub size_bytes: u64,
    /// The request's parameters, for ValidateVolumeCapabilities and for comparing repeats.
    pub parameters: BTreeMap<String, String>,
    /// What deleting it does to its bytes.
    pub erase: super::ErasePolicy,
    /// What it is made of if it is raw.
    pub raw_space: super::RawSpace,
    /// Which free place of the drive it gets.
    pub placement: super::Placement,
}

/// The life of a volume on its drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum RecordState {
    /// Intent: the table may or may not have its entry yet. Never acknowledged, so undone or finished freely.
    Creating,
    /// Acknowledged; no filesystem yet.
    New,
    /// Durable before the first mkfs: this filesystem, with this UUID, and nothing else, is ours.
    Fs {
        /// The type it was (or is being) made with.
        fs_type: FsType,
        /// The UUID planned before mkfs.
        fs_uuid: Uuid,
        /// True once it has been mounted: from then on it is never made again.
        mounted: bool,
    },
    /// Durable before the first raw publish: never formatted.
    Block,
    /// Acknowledged as deleted; its table entry carries `erase_guid` and another type.
    Erasing {
        /// New identity of the object being erased.
        erase_guid: Uuid,
        /// Bytes from its start known to be erased.
        done_bytes: u64,
    },
}

/// What is durably known of one volume, on its drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Identity; the GUID of its partition while it lives.
    pub uuid: Uuid,
    /// The CSI name.
    pub name: String,
    /// Class it was asked from.
    pub class: String,
    /// Use.
    pub mode: Mode,
    /// Filesystem asked for; None for block.
    pub fs_type: Option<FsType>,
    /// Further mkfs arguments.
    pub mkfs_options: Vec<String>,
    /// Further mount options.
    pub mount_options: Vec<String>,
    /// The request's parameters.
    pub parameters: BTreeMap<String, String>,
    /// What deleting does to the bytes.
    pub erase: super::ErasePolicy,
    /// Size asked for at creation, bytes (an answered repeat compares with this).
    pub requested_bytes: u64,
    /// Where it lies.
    pub extent: Extent,
    /// Intent to grow to this extent; the table has either this or `extent`.
    pub growing_to: Option<Extent>,
    /// Its life. Not flattened: `RecordState::Fs` has an `fs_type` of its own.
    pub state: RecordState,
}

impl Record {
    /// The record of a volume that is made as asked, lying there, in this state.
    pub fn new(spec: &VolumeSpec, extent: Extent, state: RecordState) -> Self {
        Self {
            uuid: spec.uuid,
            name: spec.name.clone(),
            class: spec.class.clone(),
            mode: spec.mode,
            fs_type: spec.fs_type,
            mkfs_options: spec.mkfs_options.clone(),
            mount_options: spec.mount_options.clone(),
            parameters: spec.parameters.clone(),
            erase: spec.erase,
            requested_bytes: spec.size_bytes,
            extent,
            growing_to: None,
            state,
        }
    }
}
