//! Conditions of volumes: a closed list of reasons, with the names that CSI, metrics, events, command lines and documentation use. They are
//! strings only outside of a program, since a peer of another version may have further ones.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::words::Status;

/// Subject of a reason, in the order of the checks that the volume-health proposal lists for NodeGetVolumeStats, which decides the order of
/// conditions. Its fourth, a failed release of the volume, does not occur: a released volume no longer exists, and is erased without
/// further calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// Health of the drive, as far as it concerns this volume.
    Health,
    /// Record of the volume.
    Record,
    /// Drive or device, if missing or not working.
    Device,
    /// Mount at the staging path, if missing.
    Staging,
    /// Mounts at target paths, if missing; also another device that is mounted at a path of the volume.
    Target,
    /// Reads of the volume or its filesystem, if they fail.
    Reading,
    /// Filesystem, if missing, damaged, shut down or read-only, or if it reports errors.
    Filesystem,
    /// Subjects that the proposal does not have.
    Further,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident: $status:ident, $about:ident;)*) => {
        /// Reason of an abnormal condition of a volume. Users see its name, so the name never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)* }

        impl Reason {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As it is shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The reason of this name; None: of another version.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }

            /// Default status; the evidence can require another one (`DeviceChanged`, `FilesystemNotFound`).
            pub const fn status(self) -> Status {
                match self { $(Self::$name => Status::$status,)* }
            }

            /// In a sentence, for the reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim(),)* }
            }

            /// Subject, which decides the place among CSI's checks.
            pub const fn about(self) -> About {
                match self { $(Self::$name => About::$about,)* }
            }
        }
    };
}

crate::words! {
    /// Reason of a condition of a volume with which nothing is wrong. Such a condition is never abnormal and has no status, so that
    /// neither CSI, nor an alert, nor a list of what is wrong has it. As with [Reason], the name never changes.
    NormalReason {
        /// Being moved to another drive, or waiting for that.
        VolumeMoving = "VolumeMoving",
        /// The move to another drive is stopped, since its drive has unreadable blocks.
        MoveUnreadable = "MoveUnreadable",
        /// A copy of a source with unreadable blocks, with zeros in their place, as requested.
        CopiedWithLoss = "CopiedWithLoss",
    }
}

impl NormalReason {
    /// Returns the meaning as a sentence, for the reference.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::VolumeMoving => "It is being moved to another drive, or waits for that.",
            Self::MoveUnreadable => {
                "Its move to another drive stands still, since its drive does not read everywhere; it is served as before."
            }
            Self::CopiedWithLoss => {
                "It was made as a copy of what did not read everywhere, as its StorageClass or `--unreadable zeros` allows: it has zeros there."
            }
        }
    }
}

reasons! {
    /// Its drive's verdict is SUSPECT.
    DriveSuspect: Degraded, Health;
    /// Its drive's verdict is BAD.
    DriveFailing: Degraded, Health;
    /// Its drive has requests and completes none.
    DriveStalled: Inaccessible, Health;
    /// The kernel could not read or write places under it.
    MediumErrors: Degraded, Health;
    /// Requests to its drive failed.
    IoErrors: Degraded, Health;
    /// Record, drive and kernel disagree.
    RecordMismatch: Inaccessible, Record;
    /// It was being moved, and it is not known which of its drives has its latest data.
    MoveInDoubt: Inaccessible, Record;
    /// Two drives have it.
    VolumeOnTwoDrives: Inaccessible, Record;
    /// Its drive is not found on the node.
    DriveMissing: Inaccessible, Device;
    /// Its drive cannot be read.
    DriveUnreadable: Inaccessible, Device;
    /// Its drive does not answer.
    DriveStuck: Inaccessible, Device;
    /// The kernel lost its drive's controller or link.
    DeviceLost: Inaccessible, Device;
    /// The kernel no longer has its device.
    DeviceGone: Inaccessible, Device;
    /// Its device was changed by hand; DEGRADED when it only grew.
    DeviceChanged: Inaccessible, Device;
    /// Its device-mapper device is suspended.
    DeviceSuspended: Inaccessible, Device;
    /// The kernel refuses writes to its device.
    DeviceReadOnly: Degraded, Device;
    /// Its drive did not answer in time.
    NoAnswer: Inaccessible, Device;
    /// It was not deleted through Drivebay, and is not on its drive.
    VolumeNotFound: DataLoss, Device;
    /// It is not mounted at its staging path.
    StagingMountMissing: Inaccessible, Staging;
    /// It is not mounted at its target path.
    TargetMountMissing: Inaccessible, Target;
    /// Something else is mounted at a path of it.
    WrongDevice: Inaccessible, Target;
    /// Its filesystem does not read.
    Unreadable: Inaccessible, Reading;
    /// A place under it does not read.
    ReadFailed: Degraded, Reading;
    /// Sectors of it were unreadable on a drive that it moved off, and read as errors until they are written.
    SectorsLost: DataLoss, Reading;
    /// Its filesystem is gone, or something else is in its place; INACCESSIBLE when it was never mounted.
    FilesystemNotFound: DataLoss, Filesystem;
    /// Its filesystem reports errors.
    FilesystemError: Degraded, Filesystem;
    /// Its filesystem is damaged.
    FilesystemCorrupted: DataLoss, Filesystem;
    /// A check found damage that has a good copy.
    FilesystemMendable: Degraded, Filesystem;
    /// Its filesystem was shut down after an error.
    FilesystemShutDown: Inaccessible, Filesystem;
    /// Its mount turned read-only.
    ReadOnly: Degraded, Filesystem;
    /// Its filesystem is smaller than the volume, and could not be grown.
    FilesystemNotGrown: Degraded, Further;
    /// No space is left in its filesystem.
    VolumeFull: Degraded, Further;
    /// No inode is left in its filesystem.
    InodesExhausted: Degraded, Further;
}

impl Reason {
    /// True if it is about the drive, rather than the volume.
    pub const fn is_of_drive(self) -> bool {
        matches!(
            self,
            Self::DriveSuspect
                | Self::DriveFailing
                | Self::DriveStalled
                | Self::DriveMissing
                | Self::DriveUnreadable
                | Self::DriveStuck
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Effect on the users of the volume; may differ from the default of the reason.
    pub status: Status,
    /// Reason; a volume has at most one condition of each.
    pub reason: Reason,
    /// For an operator: the cause, and what to do. No timestamps and no counters: it must not change while the condition lasts.
    pub message: String,
}

impl Condition {
    /// Creates a condition with the default status of its reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: reason.status(),
            reason,
            message: message.into(),
        }
    }
}
