//! The filesystem and mount work an agent asks a drive's worker for, as it travels: plain data. `run` does it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::error::FsError;
use drivebay_model::{Contents, DriveRef, FsType, Placed};

/// Readies a volume: verify the device, format guard, mkfs if (and only if) it was never made,
/// mount (which replays the journal), grow. A block volume's record is moved to `Block`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// None: block; nothing is mounted. Some: mount there.
    pub mount: Option<StageMount>,
    /// A filesystem that must be repaired first is repaired, however long that takes. Else the answer is `NeedsRepair`.
    pub may_repair: bool,
}

/// How to mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageMount {
    /// The staging path; an existing directory.
    pub path: PathBuf,
    /// The filesystem the request names; None: whatever the record says.
    pub fs_type: Option<FsType>,
    /// Mount flags of the request, checked by `options`; added to the record's.
    pub flags: Vec<String>,
    /// Mount read-only (a reader-only access mode). Never formats.
    pub read_only: bool,
    /// The filesystem's options that what is mounted there was asked for with; None: not known.
    pub mounted_with: Option<Vec<String>>,
    /// XFS: leave metadata write retries as they are instead of setting them to 0.
    pub xfs_retry_forever: bool,
}

/// What staging did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Staged {
    /// The drive after the record moved on; None when nothing was written.
    pub contents: Option<Contents>,
    /// A filesystem was made.
    pub formatted: bool,
    /// Whether the filesystem is as large as its device.
    pub growth: Growth,
    /// It was mounted already.
    pub already: bool,
}

/// Result of fitting a filesystem to its device. A volume that could not be grown is still a volume with its data: this fails no
/// stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// The sizes were not compared.
    NotTried,
    /// It was as large as it can be.
    Fits,
    /// It was smaller, and was grown.
    Grown,
    /// It is smaller, and could not be grown.
    Failed {
        /// What the tool said.
        why: String,
    },
}

impl Growth {
    /// Why it could not be grown, if so.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { why } => Some(why),
            Self::NotTried | Self::Fits | Self::Grown => None,
        }
    }
}

/// Publishes a staged volume: a bind mount, read-only before it is visible when asked so;
/// for block, a bind of the partition's device node onto a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Publish {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Where it is on the drive. Its device is checked against staging path and target.
    pub placed: Placed,
    /// Some: bind this staged mount. None: block; the device stays open until the worker ends.
    pub staging_path: Option<PathBuf>,
    /// Where; created when it is missing (its parent exists).
    pub target: PathBuf,
    /// The mount is never writable, not for a moment. That does not protect a device node (see `publish`).
    pub read_only: bool,
    /// Mount options of the volume's record.
    pub options: Vec<String>,
    /// Mount flags of the request, added to them.
    pub flags: Vec<String>,
    /// The filesystem's options that the staged mount was asked for with; None: not known.
    pub staged_with: Option<Vec<String>>,
    /// All options that the mount at the target was asked for with; None: not known.
    pub published_with: Option<Vec<String>>,
}

/// What publishing did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// False when it was so already.
    pub changed: bool,
    /// The new mount's id that no later one has, where the kernel has such ids.
    pub mount: Option<u64>,
}

/// Opens the device of a raw volume that is published, which stays open until the worker ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hold {
    pub drive: DriveRef,
    pub placed: Placed,
}

/// Unmounts one path as often as it is mounted there. Needs nothing from the disk: decides from
/// mountinfo alone. Runs in the unmount slot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unmount {
    pub path: PathBuf,
    /// Give up plain umount after this many milliseconds.
    pub deadline_ms: u64,
    /// There is evidence that the drive is gone or stuck: detach (MNT_DETACH) when plain umount fails.
    pub may_detach: bool,
    /// Remove the file or empty directory at the path afterwards (unpublish does, unstage does not).
    pub remove: bool,
    /// Only unmount mounts of one of these devices, when any are given (a foreign mount is refused).
    pub expected: Vec<Device>,
}

/// The device of a volume. The kernel gives the names and numbers of devices that are gone to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub dev: (u32, u32),
    /// Device-mapper uuid of an LV.
    pub dm_uuid: Option<String>,
}

impl Device {
    /// Where the kernel has a volume, if it does.
    pub fn of(placed: &Placed) -> Option<Self> {
        Some(Self {
            name: placed.device.clone()?,
            dev: placed.dev?,
            dm_uuid: placed.dm_uuid.clone(),
        })
    }
}

/// What unmounting did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmounted {
    /// How many mounts were taken away.
    pub count: u32,
    /// MNT_DETACH was needed: the superblock may live on.
    pub detached: bool,
}

/// How full a volume is. One statfs or one sysfs read; no process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    /// Path the orchestrator gave: a mount of the volume, or (block) its device node or a bind of it.
    pub path: PathBuf,
    /// The volume's device (the number of a btrfs mount differs: compared by source).
    pub device: Device,
    /// Block volume.
    pub block: bool,
}

/// What a volume holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of the filesystem, or of the device.
    pub total_bytes: u64,
    /// Bytes an unprivileged user can still write; 0 for block.
    pub available_bytes: u64,
    /// Bytes in use; 0 for block (unknown).
    pub used_bytes: u64,
    /// (total, free, used) inodes; None for block and for filesystems without a fixed number (btrfs).
    pub inodes: Option<(u64, u64, u64)>,
    /// The mount says read-only.
    pub read_only: bool,
    /// Reading the root directory failed with this errno (5 = EIO: XFS shut down).
    pub unreadable: Option<i32>,
}

/// Grows a mounted filesystem to its device; nothing to do for block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrowFs {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Where it is mounted (staging or publish path).
    pub path: PathBuf,
    pub device: Device,
    /// Block volume: answers the device's size.
    pub block: bool,
}

/// What growing did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// Bytes of the device now.
    pub device_bytes: u64,
    /// False when the filesystem filled its device already.
    pub changed: bool,
}
