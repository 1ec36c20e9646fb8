//! Filesystem and mount jobs that an agent sends to a drive's worker: plain data. `run` executes them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::error::FsError;
use drivebay_model::{
    Contents, DriveRef, Encryption, FsType, MappingNames, Placed, Secret, StageSecrets,
};

/// Makes a volume usable: verifies its device, makes a filesystem if (and only if) none was ever made, mounts it (which
/// replays the journal), and grows it. The record of a block volume is moved to `Block`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// None for a block volume: nothing is mounted.
    pub mount: Option<StageMount>,
    /// Opens an encrypted volume. Another one has none.
    pub secrets: Option<StageSecrets>,
    /// A filesystem that must be repaired first is repaired, without a limit of time. If false, errs with `NeedsRepair`.
    pub may_repair: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageMount {
    /// Staging path; must be an existing directory.
    pub path: PathBuf,
    /// Requested filesystem, which must be that of the record; None: that of the record.
    pub fs_type: Option<FsType>,
    /// Requested mount flags, checked by `options`; added to those of the record.
    pub flags: Vec<String>,
    /// Mount read-only (a reader-only access mode). Never formats.
    pub read_only: bool,
    /// Filesystem options with which the present mount at the path was requested; None: not known.
    pub mounted_with: Option<Vec<String>>,
    /// XFS: leaves the limit of metadata write retries as it is instead of setting it to 0.
    pub xfs_retry_forever: bool,
}

/// Result of [Stage]: the volume is mounted at the staging path, or its record is that of a raw volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Staged {
    /// Contents of the drive, as they were read, or as the last change of the record left them: the device may have been brought back
    /// meanwhile.
    pub contents: Contents,
    /// True if a filesystem was made.
    pub formatted: bool,
    /// Result of growing the filesystem to its device.
    pub growth: Growth,
    /// True if the volume was staged already.
    pub already: bool,
}

/// Result of fitting a filesystem to its device. A volume that could not be grown is still a volume with its data: this fails no
/// stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// The sizes were not compared.
    NotTried,
    /// The filesystem was as large as it can be.
    Fits,
    /// The filesystem was smaller, and was grown.
    Grown,
    /// The filesystem is smaller, and could not be grown.
    Failed {
        /// Error with its causes.
        why: String,
    },
}

impl Growth {
    /// Returns the error of `Failed`.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { why } => Some(why),
            Self::NotTried | Self::Fits | Self::Grown => None,
        }
    }
}

/// Publishes a staged volume: a bind mount, made read-only before it is visible if requested; for block, a bind of the
/// device node onto a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Publish {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Location on the drive. Its device is verified at staging path and target.
    pub placed: Placed,
    /// Mount to bind. None for block: the device stays open until the worker ends.
    pub staging_path: Option<PathBuf>,
    /// Target path; created if it is missing (its parent must exist).
    pub target: PathBuf,
    /// The mount is never writable, not even briefly. That does not protect a device node (see `publish`).
    pub read_only: bool,
    /// Mount options of the volume's record.
    pub options: Vec<String>,
    /// Requested mount flags, added to the options.
    pub flags: Vec<String>,
    /// Filesystem options with which the staged mount was requested; None: not known.
    pub staged_with: Option<Vec<String>>,
    /// All options with which the present mount at the target was requested; None: not known.
    pub published_with: Option<Vec<String>>,
}

/// Result of [Publish]: the volume is at the target, with the requested access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// False if the volume was published there already.
    pub changed: bool,
    /// Id of the new mount, which is never reused; None if the kernel has no such ids, or nothing was mounted.
    pub mount: Option<u64>,
}

/// Opens the device of a published raw volume, and keeps it open until the worker ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hold {
    pub drive: DriveRef,
    pub placed: Placed,
}

/// Unmounts all mounts at one path. Reads nothing from the drive: decides from mountinfo alone. Runs in the unmount slot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unmount {
    pub path: PathBuf,
    /// Limit of plain umount before detaching, milliseconds; without `may_detach` there is none.
    pub deadline_ms: u64,
    /// There is evidence that the drive is missing or unresponsive: detaches (MNT_DETACH) if plain umount fails.
    pub may_detach: bool,
    /// Removes the file or empty directory at the path afterwards (unpublish does, unstage does not).
    pub remove: bool,
    /// Devices whose mounts may be unmounted; errs with `NotAVolume` for a mount of another one. Empty: any.
    pub expected: Vec<Device>,
}

/// Device of a volume. The kernel reuses the names and numbers of removed devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub dev: (u32, u32),
    /// Device-mapper uuid; None for a partition.
    pub dm_uuid: Option<String>,
}

impl Device {
    /// Returns the device of a volume that is mounted and published; None if the kernel does not have it, or an encrypted volume is not
    /// open.
    pub fn of(placed: &Placed) -> Option<Self> {
        let (name, dev) = placed.used_device()?;
        Some(Self {
            name: name.to_owned(),
            dev,
            dm_uuid: placed.used_dm_uuid(),
        })
    }

    /// Returns the partition or LV of a volume; None if the kernel does not have it.
    pub fn own(placed: &Placed) -> Option<Self> {
        Some(Self {
            name: placed.device.clone()?,
            dev: placed.dev?,
            dm_uuid: placed.dm_uuid.clone(),
        })
    }
}

/// Result of [Unmount]: no mount is left at the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmounted {
    /// Number of mounts that were removed.
    pub count: u32,
    /// True if MNT_DETACH was needed, or writing back has not ended: the superblock may still exist.
    pub detached: bool,
}

/// Reads the usage of a volume: one statfs or one sysfs read, no process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    /// Path that the orchestrator gave: a mount of the volume, or (block) its device node or a bind of it.
    pub path: PathBuf,
    /// Device of the volume (a btrfs mount has another number: compared by source).
    pub device: Device,
    pub block: bool,
}

/// Usage of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Size of the filesystem, or of the device for block.
    pub total_bytes: u64,
    /// Bytes an unprivileged user can still write; 0 for block.
    pub available_bytes: u64,
    /// Bytes in use; 0 for block (unknown).
    pub used_bytes: u64,
    /// (total, free, used) inodes; None for block and for filesystems without a fixed number (btrfs).
    pub inodes: Option<(u64, u64, u64)>,
    /// True if the mount is read-only.
    pub read_only: bool,
    /// Errno of opening or reading the root directory, or of statfs, if one failed (5 = EIO: XFS shut down).
    pub unreadable: Option<i32>,
}

/// Grows a mounted filesystem to its device. Does nothing for block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrowFs {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Path where it is mounted (staging or target path).
    pub path: PathBuf,
    pub device: Device,
    /// Encrypted volume: its mapped device, `device`, is grown first.
    pub encryption: Option<Encryption>,
    /// Block volume: only returns the device's size.
    pub block: bool,
}

/// Changes the secret of an encrypted volume from the previous one. Does nothing if it is changed. The volume may be in use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rekey {
    pub drive: DriveRef,
    pub placed: Placed,
    pub secrets: StageSecrets,
}

/// Verifies the secret of an encrypted volume, which may be in use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckSecret {
    pub drive: DriveRef,
    pub placed: Placed,
    pub secret: Secret,
}

/// Result of [CheckSecret]: the secret opens the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedSecret {
    /// Number of key slots that it opens, at least 1.
    pub slots: u32,
    /// True if it is a recovery key.
    pub is_recovery_key: bool,
    /// True if the volume has a recovery key.
    pub has_recovery_key: bool,
}

/// Adds a recovery key to an encrypted volume, in place of an earlier one. Makes its header if it has none yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AddRecoveryKey {
    pub drive: DriveRef,
    pub placed: Placed,
    pub secret: Secret,
    pub recovery: Secret,
}

/// Removes the mapped devices of a volume that is unstaged. Reads nothing from the drive. Runs in the unmount slot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CloseMapping {
    pub uuid: Uuid,
    /// From the top.
    pub mappings: Vec<MappingNames>,
}

/// Result of [GrowFs]: the filesystem is as large as its tool makes it on the device. A raw volume is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// Size of the device now.
    pub device_bytes: u64,
    /// False if the filesystem filled its device already.
    pub changed: bool,
}
