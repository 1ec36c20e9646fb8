//! What can be wrong with a volume: a closed list of reasons, which CSI, metrics, events, command lines and documentation
//! name. The agent finds them; strings only where they leave a program, since another version may know more.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::words::Status;

/// What a reason is about. In the order of the checks that the volume-health proposal names for NodeGetVolumeStats, which
/// decides what comes first where only one can be told. Its fourth, a failed release of the volume, does not come up: a volume
/// that is released is no volume any more, and its erasing goes on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The drive's health, as this volume has a part in it.
    Health,
    /// What is recorded of the volume.
    Record,
    /// Drive or device, which is missing or does not work.
    Device,
    /// The staging path.
    Staging,
    /// The target path.
    Target,
    /// Reading, which fails.
    Reading,
    /// The filesystem.
    Filesystem,
    /// What the proposal does not ask for.
    Further,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident: $status:ident, $about:ident;)*) => {
        /// Why a volume is not well. Its name is what users see: it never changes.
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

            /// How bad it is, unless the evidence says otherwise (`DeviceChanged`, `FilesystemNotFound`).
            pub const fn status(self) -> Status {
                match self { $(Self::$name => Status::$status,)* }
            }

            /// In a sentence, for the reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim(),)* }
            }

            /// What it is about.
            pub const fn about(self) -> About {
                match self { $(Self::$name => About::$about,)* }
            }
        }
    };
}

crate::words! {
    /// Why a volume has a condition although nothing is wrong with it. Such a condition is never abnormal and has no status, so that
    /// neither CSI, nor an alert, nor a list of what is wrong has it. As with [Reason], the name never changes.
    NormalReason {
        /// It is being moved to another drive, or waits for that.
        VolumeMoving = "VolumeMoving",
        /// It was to be moved, and its drive does not read everywhere: the move stands still.
        MoveUnreadable = "MoveUnreadable",
    }
}

impl NormalReason {
    /// In a sentence, for the reference.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::VolumeMoving => "It is being moved to another drive, or waits for that.",
            Self::MoveUnreadable => {
                "Its move to another drive stands still, since its drive does not read everywhere; it is served as before."
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
    /// Whether it says how the drive is, rather than the volume.
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
    /// How bad it is.
    pub status: Status,
    /// Unique per volume.
    pub reason: Reason,
    /// What it is and what to do; no timestamps, no counters.
    pub message: String,
}

impl Condition {
    /// With the status of its reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: reason.status(),
            reason,
            message: message.into(),
        }
    }
}
