//! Errors of creating, plugging and unplugging drives.

use std::{io, path::PathBuf};

use super::{
    super::{nbd::NbdError, qmp::QmpError},
    Kind,
};
use crate::Trouble;

/// A drive cannot be created, plugged or unplugged.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// qemu's device of this kind does not support it.
    #[error("{drive}: qemu's {kind} drives cannot {what}")]
    Unsupported {
        /// Name of the drive.
        drive: String,
        /// Kind of the drive.
        kind: Kind,
        /// Requested property, as a phrase after "cannot", e.g. "have a WWN".
        what: &'static str,
    },
    /// A text that the device would truncate, or with invalid characters.
    #[error(
        "{drive}: its {what} must be 1 to {limit} characters of printable ASCII (a name: letters, digits, '-', '_', a letter first)"
    )]
    Text {
        /// Name of the drive.
        drive: String,
        /// Name of the text.
        what: &'static str,
        /// Longest accepted text, characters.
        limit: usize,
    },
    /// Unsupported sector size or total size.
    #[error(
        "{drive}: {bytes} bytes in sectors of {logical} on {physical} cannot be: sectors are 512 or 4096, the size a multiple of both"
    )]
    Geometry {
        /// Name of the drive.
        drive: String,
        /// Size, bytes.
        bytes: u64,
        /// Logical sector, bytes.
        logical: u32,
        /// Physical sector, bytes.
        physical: u32,
    },
    /// The backing file cannot be created.
    #[error("making {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operation.
        #[source]
        source: io::Error,
    },
    /// The closure that writes its contents failed.
    #[error("{drive}: writing its contents")]
    Contents {
        /// Name of the drive.
        drive: String,
        /// Error of the closure.
        #[source]
        source: Trouble,
    },
    /// The drive cannot be served.
    #[error("serving a drive")]
    Nbd(#[from] NbdError),
    /// The slot is taken or does not exist.
    #[error("{drive}: {kind} slot {slot} is taken or does not exist")]
    Slot {
        /// Name of the drive.
        drive: String,
        /// Kind of the drive.
        kind: Kind,
        /// Requested slot of the kind's bus, from 0.
        slot: u8,
    },
    /// All slots are taken.
    #[error("{drive}: no {kind} slot is free")]
    Full {
        /// Name of the drive.
        drive: String,
        /// Kind of the drive.
        kind: Kind,
    },
    /// A SATA drive cannot be plugged or unplugged.
    #[error("{drive}: qemu's AHCI has no hotplug; plug it in before power on, or take scsi")]
    NoHotplug {
        /// Name of the drive.
        drive: String,
    },
    /// qemu creates separate namespaces only before power on.
    #[error(
        "{drive}: an NVMe drive with an EUI-64 can be plugged in again, but must have been there at power on"
    )]
    EuiNotBooted {
        /// Name of the drive.
        drive: String,
    },
    /// The drive does not answer.
    #[error(
        "{drive} does not answer, and unplugging it would stop the whole machine: resume() or die() it first"
    )]
    Silent {
        /// Name of the drive.
        drive: String,
    },
    /// The guest did not release the drive.
    #[error("{drive}: the guest does not let it go")]
    GuestKeeps {
        /// Name of the drive.
        drive: String,
    },
    /// qemu refused or did not answer.
    #[error("{doing} {drive}")]
    Qmp {
        /// Operation, as a phrase before the name of the drive, e.g. "plugging in".
        doing: &'static str,
        /// Name of the drive.
        drive: String,
        /// Refusal by qemu, or failure or timeout of its control socket.
        #[source]
        source: QmpError,
    },
}

impl From<DriveError> for Trouble {
    fn from(error: DriveError) -> Self {
        use std::error::Error;
        match error.source() {
            Some(source) => Self::doing(&error, source),
            None => Self(error.to_string()),
        }
    }
}
