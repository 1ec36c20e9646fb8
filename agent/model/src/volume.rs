//! A volume: what was requested, and what is durably recorded.

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
    /// Returns the name that mount(2), libblkid and CSI use.
    pub fn as_str(self) -> &'static str {
        FILESYSTEMS[self as usize].0
    }

    /// Returns the filesystem of this name, if Drivebay supports it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.as_str() == text)
    }

    /// Returns the size of the smallest device, bytes.
    pub fn min_bytes(self) -> u64 {
        FILESYSTEMS[self as usize].1
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of a volume on its drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum RecordState {
    /// Intent: the table may or may not have its entry yet. Not acknowledged, so that it may be undone or completed.
    Creating,
    /// Acknowledged; no filesystem yet.
    New,
    /// Recorded durably before the first mkfs: only the filesystem of this type and UUID is Drivebay's.
    Fs {
        /// Type with which it was made, or is being made.
        fs_type: FsType,
        /// UUID that was chosen before mkfs.
        fs_uuid: Uuid,
        /// True once it has been mounted: from then on it is never formatted again.
        mounted: bool,
    },
    /// Recorded durably before the first raw publish: it is never formatted.
    Block,
    /// Acknowledged as deleted; its table entry carries `erase_guid` and another type.
    Erasing {
        /// New identity of the object being erased.
        erase_guid: Uuid,
        /// Bytes from its start that are known to be erased.
        done_bytes: u64,
    },
}

/// Durable record of one volume, on its drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Identity; also the GUID of its partition until the volume is deleted.
    pub uuid: Uuid,
    /// Name in the request that created the volume. A repeated request finds the volume by it.
    pub name: String,
    /// Class that was requested.
    pub class: String,
    pub mode: Mode,
    /// Filesystem that was requested; None for a raw volume.
    pub fs_type: Option<FsType>,
    /// Additional arguments of mkfs, one per element: those of the request, or, if it has none, of the class. Empty for a raw volume.
    pub mkfs_options: Vec<String>,
    /// Additional mount options, one per element: those of the class, then those of the request. Empty for a raw volume.
    pub mount_options: Vec<String>,
    /// Parameters of the request, and what is kept beside them (`created_for`, `copied`).
    pub parameters: BTreeMap<String, String>,
    pub erase: super::ErasePolicy,
    /// Size that was requested at creation, bytes; a repeated request is compared with it.
    pub requested_bytes: u64,
    /// Position on the drive. For a volume that is to be created: from 0, with the length that it is to have.
    pub extent: Extent,
    /// Intent to expand to this extent; the table has either this one or `extent`.
    pub growing_to: Option<Extent>,
    /// Not flattened: `RecordState::Fs` has an `fs_type` of its own.
    pub state: RecordState,
    /// Role in a move.
    #[serde(default, skip_serializing_if = "PlaceState::is_first")]
    pub place: PlaceState,
}

impl Record {
    /// True if the volume itself was deleted. The remains of a move may be erased, too, while the volume lives on another drive; a source
    /// that is `leaving` is served until its copy is live, and is erased only with the volume.
    pub fn is_deleted(&self) -> bool {
        matches!(
            self.place,
            PlaceState::Live { .. } | PlaceState::Leaving { .. }
        ) && self.is_erasing()
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
