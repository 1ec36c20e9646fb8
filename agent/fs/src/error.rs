//! Why work on filesystems and mounts fails.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_layout::jobs::CarveError;
use drivebay_model::{Cause, FsType};

/// Why a filesystem job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum FsError {
    /// Carving's part of it (looking at the drive, moving the record on).
    #[error(transparent)]
    Carve(#[from] CarveError),
    /// The record says a filesystem was made, and there is none: damage, not emptiness.
    #[error(
        "volume {uuid} was formatted with {fs_type} and no filesystem is found on {device}; it is NOT formatted again. {advice}"
    )]
    FilesystemGone {
        uuid: Uuid,
        /// What it was.
        fs_type: FsType,
        device: String,
        /// What to do.
        advice: String,
    },
    /// Something else is on the device than the record says.
    #[error(
        "volume {uuid} on {device} holds {found} where {expected} was expected; it is not touched"
    )]
    Unexpected {
        uuid: Uuid,
        device: String,
        /// What was found.
        found: String,
        /// What the record says.
        expected: String,
    },
    /// Probing failed; that is not emptiness.
    #[error("probing volume {uuid} on {device} failed; it is neither formatted nor mounted")]
    Probe {
        uuid: Uuid,
        device: String,
        #[source]
        source: Cause,
    },
    /// The volume is block and was asked for as mount, or the other way round, or with another filesystem.
    #[error("volume {uuid} is {is}, asked for as {asked}")]
    Incompatible {
        uuid: Uuid,
        /// What it is.
        is: String,
        /// What was asked.
        asked: String,
    },
    /// The path is mounted already, from elsewhere or differently.
    #[error("{path} is mounted already, {how}")]
    Conflict {
        path: String,
        /// What is there.
        how: String,
    },
    /// Not staged.
    #[error("volume {uuid} is not staged at {path}")]
    NotStaged { uuid: Uuid, path: String },
    /// Staged in a way that a bind of it cannot change.
    #[error("volume {uuid} is staged at {path} {how}; unstage it first to change that")]
    StagedOtherwise {
        uuid: Uuid,
        path: String,
        how: String,
    },
    /// Not there.
    #[error("volume is not at {path}: {why}")]
    NotHere { path: String, why: String },
    /// mkfs failed.
    #[error("{tool} on {device} failed: {output}")]
    Mkfs {
        tool: String,
        device: String,
        /// What it said, shortened.
        output: String,
    },
    /// A tool is not installed.
    #[error("{tool} is not installed; install package {package}")]
    MissingTool {
        tool: String,
        /// Debian's package.
        package: String,
    },
    /// Mounting failed.
    #[error("mounting {device} at {path} failed: {hint}")]
    Mount {
        device: Box<str>,
        path: String,
        /// Options of the filesystem were asked for: EINVAL may be about them.
        has_options: bool,
        /// What the errno means and what to do.
        hint: Box<str>,
        /// What the kernel logged meanwhile that shows the filesystem to be damaged.
        damage: Option<Box<str>>,
        #[source]
        source: Cause,
    },
    /// What is mounted there is no volume, or another one.
    #[error(
        "{path} is not unmounted: {what} is mounted there, which is not this volume; unmount it by hand if it is not needed"
    )]
    NotAVolume {
        path: String,
        /// Source and type.
        what: String,
    },
    /// Unmounting failed.
    #[error("unmounting {path} failed: {hint}")]
    Unmount {
        path: String,
        /// What holds it, what to do.
        hint: String,
        #[source]
        source: Cause,
    },
    /// A filesystem that must not be mounted before it was repaired.
    #[error(
        "the {fs_type} on {device} of volume {uuid} needs a repair and is repaired first, however long that takes; repeat the call"
    )]
    NeedsRepair {
        uuid: Uuid,
        fs_type: FsType,
        /// Partition or LV.
        device: String,
    },
    /// Growing failed.
    #[error("growing the filesystem at {path} failed: {output}")]
    Grow {
        path: String,
        /// What the tool said.
        output: String,
    },
    /// A path that the caller named cannot be used.
    #[error("{what} {path} failed")]
    Path {
        /// What was being done.
        what: String,
        path: String,
        #[source]
        source: Cause,
    },
    /// It would have to grow, and nothing may write to it.
    #[error(
        "the filesystem at {path} is mounted read-only and cannot grow; it grows when it is staged for writing"
    )]
    ReadOnly { path: String },
    /// A system call failed.
    #[error("{what} {path} failed")]
    Io {
        /// What was being done.
        what: String,
        path: String,
        #[source]
        source: Cause,
    },
    /// A checked option was refused after all.
    #[error("option {option:?} is refused: {why}")]
    Option { option: String, why: String },
}
