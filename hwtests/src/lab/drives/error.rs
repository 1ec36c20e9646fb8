//! Why a drive cannot be as asked, made, plugged or unplugged.

use std::{io, path::PathBuf};

use super::{
    super::{nbd::NbdError, qmp::QmpError},
    Kind,
};
use crate::Trouble;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// qemu has no such property for this kind.
    #[error("{drive}: qemu's {kind} drives cannot {what}")]
    Unsupported {
        /// Its name.
        drive: String,
        /// Its kind.
        kind: Kind,
        /// The wish.
        what: &'static str,
    },
    /// A text that the device would cut off, or that is not for it.
    #[error(
        "{drive}: its {what} must be 1 to {limit} characters of printable ASCII (a name: letters, digits, '-', '_', a letter first)"
    )]
    Text {
        /// Its name.
        drive: String,
        /// Which text.
        what: &'static str,
        /// The longest.
        limit: usize,
    },
    /// Its sector or total size.
    #[error(
        "{drive}: {bytes} bytes in sectors of {logical} on {physical} cannot be: sectors are 512 or 4096, the size a multiple of both"
    )]
    Geometry {
        /// Its name.
        drive: String,
        /// Its size.
        bytes: u64,
        /// Logical sector.
        logical: u32,
        /// Physical sector.
        physical: u32,
    },
    /// The file behind it.
    #[error("making {}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The closure that writes its contents failed.
    #[error("{drive}: writing its contents")]
    Contents {
        /// Its name.
        drive: String,
        /// Why.
        #[source]
        source: Trouble,
    },
    /// It cannot be served.
    #[error("serving a drive")]
    Nbd(#[from] NbdError),
    /// The slot is another's or does not exist.
    #[error("{drive}: {kind} slot {slot} is taken or does not exist")]
    Slot {
        /// Its name.
        drive: String,
        /// Its kind.
        kind: Kind,
        /// As asked.
        slot: u8,
    },
    /// All slots are taken.
    #[error("{drive}: no {kind} slot is free")]
    Full {
        /// Its name.
        drive: String,
        /// Its kind.
        kind: Kind,
    },
    /// SATA.
    #[error("{drive}: qemu's AHCI has no hotplug; plug it in before power on, or take scsi")]
    NoHotplug {
        /// Its name.
        drive: String,
    },
    /// qemu makes namespaces of their own only before power on.
    #[error(
        "{drive}: an NVMe drive with an EUI-64 can be plugged in again, but must have been there at power on"
    )]
    EuiNotBooted {
        /// Its name.
        drive: String,
    },
    /// It does not answer.
    #[error(
        "{drive} does not answer, and unplugging it would stop the whole machine: resume() or die() it first"
    )]
    Silent {
        /// Its name.
        drive: String,
    },
    /// The guest refused.
    #[error("{drive}: the guest does not let it go")]
    GuestKeeps {
        /// Its name.
        drive: String,
    },
    /// qemu refused or did not answer.
    #[error("{doing} {drive}")]
    Qmp {
        /// What was being done.
        doing: &'static str,
        /// Its name.
        drive: String,
        /// Why not.
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
