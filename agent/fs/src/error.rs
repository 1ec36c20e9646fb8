//! Errors of filesystem and mount jobs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_layout::jobs::LayoutError;
use drivebay_model::{
    Cause, FsType,
    names::{PARAM_ENCRYPTION, SECRET_PASSPHRASE, SECRET_PREVIOUS},
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum FsError {
    /// Error of reading the drive, or of changing the record.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The record says that a filesystem was made, and the device has none. This is damage: the device is not formatted.
    #[error(
        "volume {uuid} was formatted with {fs_type} and no filesystem is found on {device}; it is NOT formatted again. {advice}"
    )]
    FilesystemGone {
        uuid: Uuid,
        fs_type: FsType,
        device: String,
        advice: String,
    },
    /// The device holds something else than the record says.
    #[error(
        "volume {uuid} on {device} holds {found} where {expected} was expected; it is not touched"
    )]
    Unexpected {
        uuid: Uuid,
        device: String,
        found: String,
        expected: String,
    },
    /// Probing failed, which does not mean that the device is empty.
    #[error("probing volume {uuid} on {device} failed; it is neither formatted nor mounted")]
    Probe {
        uuid: Uuid,
        device: String,
        #[source]
        source: Cause,
    },
    /// The request is for another mode or filesystem than the volume has.
    #[error("volume {uuid} is {is}, asked for as {requested}")]
    Incompatible {
        uuid: Uuid,
        is: String,
        requested: String,
    },
    /// Another mount is at the path, or the right one with other options.
    #[error("{path} is mounted already, {how}")]
    Conflict {
        path: String,
        /// Difference between the mount and the request.
        how: String,
    },
    #[error("volume {uuid} is not staged at {path}")]
    NotStaged { uuid: Uuid, path: String },
    /// The staged mount has options that a bind of it cannot change.
    #[error("volume {uuid} is staged at {path} {how}; unstage it first to change that")]
    StagedOtherwise {
        uuid: Uuid,
        path: String,
        how: String,
    },
    /// The path or device does not exist, or is not the volume's.
    #[error("volume is not at {path}: {why}")]
    NotHere { path: String, why: String },
    /// mkfs failed, or the device holds something else afterwards.
    #[error("{tool} on {device} failed: {output}")]
    Mkfs {
        tool: String,
        device: String,
        /// Output of the tool, shortened, or what the probe found.
        output: String,
    },
    #[error("{tool} is not installed; install package {package}")]
    MissingTool {
        tool: String,
        /// Debian package of the tool.
        package: String,
    },
    #[error("mounting {device} at {path} failed: {hint}")]
    Mount {
        device: Box<str>,
        path: String,
        /// Filesystem options were requested: EINVAL may be about them.
        has_options: bool,
        /// Meaning of the errno, and advice.
        hint: Box<str>,
        /// Line of the kernel log, written during the mount, that shows the filesystem to be damaged.
        damage: Option<Box<str>>,
        #[source]
        source: Cause,
    },
    /// The mount at the path is not this volume's.
    #[error(
        "{path} is not unmounted: {what} is mounted there, which is not this volume; unmount it by hand if it is not needed"
    )]
    NotAVolume {
        path: String,
        /// Source and type of the mount.
        what: String,
    },
    #[error("unmounting {path} failed: {hint}")]
    Unmount {
        path: String,
        /// Processes that use the mount, and advice.
        hint: String,
        #[source]
        source: Cause,
    },
    /// The filesystem must be repaired before it may be mounted for writing.
    #[error(
        "the {fs_type} on {device} of volume {uuid} needs a repair and is repaired first, however long that takes; repeat the call"
    )]
    NeedsRepair {
        uuid: Uuid,
        fs_type: FsType,
        /// Kernel name of the partition or LV.
        device: String,
    },
    #[error("growing the filesystem at {path} failed: {output}")]
    Grow {
        path: String,
        /// Output of the tool, shortened, or the reason why none was run.
        output: String,
    },
    /// A path in the request cannot be used.
    #[error("{what} {path} failed")]
    Path {
        /// Operation that failed, worded to stand before the path, e.g. "mounting at".
        what: String,
        path: String,
        #[source]
        source: Cause,
    },
    /// The filesystem is smaller than its device, and mounted read-only.
    #[error(
        "the filesystem at {path} is mounted read-only and cannot grow; it grows when it is staged for writing"
    )]
    ReadOnly { path: String },
    #[error("{what} {path} failed")]
    Io {
        /// Operation that failed, worded to stand before the path, e.g. "opening".
        what: String,
        path: String,
        #[source]
        source: Cause,
    },
    /// The volume is encrypted, and no secret was given.
    #[error(
        "volume {uuid} is encrypted and the call has no secret {key:?}; name a secret that has it in the StorageClass (csi.storage.k8s.io/node-stage-secret-name and -namespace), or a file with --key-file",
        key = SECRET_PASSPHRASE
    )]
    NoSecret { uuid: Uuid },
    /// A secret was given for a volume that is not encrypted.
    #[error(
        "volume {uuid} is not encrypted, and the call has a secret {key:?} for it; what is encrypted is decided when a volume is created, by the parameter {parameter:?} of its StorageClass: create another volume and copy the data, or remove the secret",
        key = SECRET_PASSPHRASE,
        parameter = PARAM_ENCRYPTION
    )]
    NotEncrypted { uuid: Uuid },
    /// No key slot of the volume opens with the secret. The volume is whole.
    #[error(
        "the secret {key:?} does not open volume {uuid}; its data is whole, and opens with the secret of its last use. If the secret was changed: add the earlier one to it as {previous:?}, or run `drivebay-agent volume rekey`",
        key = SECRET_PASSPHRASE,
        previous = SECRET_PREVIOUS
    )]
    WrongSecret { uuid: Uuid },
    /// The volume has no mapped device, since it was not staged, or an encrypted one not with its secret.
    #[error("volume {uuid} is not open; stage it, an encrypted one with its secret")]
    NotOpen { uuid: Uuid },
    /// The volume was in use, and its header is gone or damaged. Nothing is written.
    #[error(
        "the encryption header of volume {uuid} on {device} is {what}; it is NOT made again, since that would destroy the key. Look at dmesg and at `cryptsetup luksDump {device}`; without its header the volume can only be restored from a backup"
    )]
    HeaderDamaged {
        uuid: Uuid,
        device: String,
        what: String,
    },
    #[error("cryptsetup {action} of {device} failed: {output}")]
    Cryptsetup {
        action: String,
        device: String,
        /// Output of the program, shortened.
        output: String,
    },
    /// The volume has lost sectors, and this host cannot have them read as errors. Served without that, they would be wrong data.
    #[error(
        "volume {uuid} has sectors that were lost when it moved, which must read as errors, and this host cannot do that: {why}"
    )]
    NoLostSectors { uuid: Uuid, why: String },
    /// The mapped device of a volume is open.
    #[error(
        "volume {uuid} cannot be closed: {device} is open; unmount it, and end what has it open"
    )]
    MappingInUse {
        uuid: Uuid,
        /// Name in /dev/mapper.
        device: String,
    },
    /// A mount option is refused, by name or by the kernel.
    #[error("option {option:?} is refused: {why}")]
    Option { option: String, why: String },
}
