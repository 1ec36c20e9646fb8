//! A volume: what is asked for, and what is durably known of it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::Mode;

use super::{Extent, place::PlaceState};
use drivebay_proto::names::FILESYSTEMS;

/// Declares [FsType] in the order of [FILESYSTEMS], which has the names and smallest sizes that the controller needs too. A row of
/// one without a row of the other does not compile.
macro_rules! filesystems {
    ($($variant:ident),+) => {
        /// Filesystems Drivebay makes and mounts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum FsType {
            $($variant),+
        }

        impl FsType {
            /// Every filesystem there is.
            pub const ALL: [Self; FILESYSTEMS.len()] = [$(Self::$variant),+];
        }

        $(const _: () = {
            let name = FILESYSTEMS[FsType::$variant as usize].0;
            assert!(name.eq_ignore_ascii_case(stringify!($variant)));
        };)+
    };
}

filesystems!(Ext4, Xfs, Btrfs);

impl FsType {
    /// As mount(2), libblkid and CSI write it.
    pub fn as_str(self) -> &'static str {
        FILESYSTEMS[self as usize].0
    }

    /// The filesystem of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.as_str() == text)
    }

    /// Smallest device, in bytes.
    pub fn min_bytes(self) -> u64 {
        FILESYSTEMS[self as usize].1
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
    /// Where it lies. Of one that is to be created: from 0, as long as it is to be.
    pub extent: Extent,
    /// Intent to grow to this extent; the table has either this or `extent`.
    pub growing_to: Option<Extent>,
    /// Its life. Not flattened: `RecordState::Fs` has an `fs_type` of its own.
    pub state: RecordState,
    /// Its part in a move.
    #[serde(default, skip_serializing_if = "PlaceState::is_first")]
    pub place: PlaceState,
}

impl Record {
    /// Whether the volume itself was deleted. What is left of a move may be erased, too, while the volume lives on another drive.
    pub fn is_deleted(&self) -> bool {
        self.place.is_live() && self.is_erasing()
    }

    pub fn is_erasing(&self) -> bool {
        matches!(self.state, RecordState::Erasing { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_is_stored_under_the_name_that_mount_takes() {
        for fs_type in FsType::ALL {
            let stored = serde_json::to_value(fs_type).unwrap();
            assert_eq!(stored, fs_type.as_str());
            assert_eq!(FsType::parse(fs_type.as_str()), Some(fs_type));
        }
    }
}
