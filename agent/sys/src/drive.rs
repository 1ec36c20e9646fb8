//! Opens whole drives and verifies their identity. All reads and writes of drives use this.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use super::ioctl;
use super::sysfs;
use drivebay_model::{DriveRef, units::human_sizes};

/// A drive was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name belongs to another drive now, or to none.
    #[error("{node} is not the expected drive: {seen}; rescan")]
    NotThisDrive {
        node: String,
        /// Description of the device found.
        seen: String,
    },
    /// The node is missing, or there is no device behind it.
    #[error("there is no device at {node}; rescan")]
    Gone {
        node: String,
        /// ENOENT, ENXIO or ENODEV.
        #[source]
        source: io::Error,
    },
    /// The drive is held exclusively: mounted, part of an array, or opened O_EXCL.
    #[error("{0} is in use")]
    Busy(String),
    /// open(2) or a check failed.
    #[error("cannot open {node}")]
    Io {
        node: String,
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Converts it: an I/O error keeps its kind, others keep their message.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        }
    }
}

/// Opens the drive's node for reading, and for writing if `write`, with these additional flags of open(2), and verifies its identity.
pub fn open(drive: &DriveRef, write: bool, flags: i32) -> Result<File, OpenError> {
    let file = open_node(drive, write, flags)?;
    verify(drive, &file)?;
    Ok(file)
}

/// Opens the drive again, beside a verified descriptor, and checks that both have the same device number: while `verified` is open, the
/// kernel gives its number to no other drive.
pub fn open_beside(
    drive: &DriveRef,
    verified: &File,
    write: bool,
    flags: i32,
) -> Result<File, OpenError> {
    let number = |file: &File| file.metadata().map(|metadata| metadata.rdev());
    let failed = |source| io_error(drive, source);
    let file = open_node(drive, write, flags)?;
    let (expected, actual) = (
        number(verified).map_err(failed)?,
        verify_device(drive, &file)?,
    );
    if expected != libc::makedev(actual.0, actual.1) {
        let actual = format!("device number {}:{}", actual.0, actual.1);
        return Err(other(drive, actual));
    }
    Ok(file)
}

fn open_node(drive: &DriveRef, write: bool, flags: i32) -> Result<File, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_CLOEXEC | flags)
        .open(drive.node())
        .map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => OpenError::Busy(node_of(drive)),
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => OpenError::Gone {
                node: node_of(drive),
                source,
            },
            _ => io_error(drive, source),
        })
}

/// Verifies that the opened device is the expected drive: device number, size and disk sequence number of the open device, then the name's
/// current identity (WWN, serial, …) in sysfs. With the descriptor open and its number compared, the name cannot have been given to another
/// drive since.
pub fn verify(drive: &DriveRef, file: &File) -> Result<(), OpenError> {
    verify_device(drive, file)?;
    verify_name(drive)
}

/// Verifies that sysfs has the expected drive at this name: number, identity, disk sequence number and size. Remains true while the caller
/// has the drive, one of its partitions or an LV on it open.
pub fn verify_name(drive: &DriveRef) -> Result<(), OpenError> {
    let failed = |source| io_error(drive, source);
    let facts = match sysfs::identify(Path::new("/sys"), &drive.kernel_name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(other(drive, "no device".to_owned()));
        }
        facts => facts.map_err(failed)?,
    };
    if (facts.major, facts.minor) != (drive.major, drive.minor) {
        let actual = format!("sysfs has device number {}:{}", facts.major, facts.minor);
        return Err(other(drive, actual));
    }
    if !facts.is(&drive.id) {
        return Err(other(drive, format!("drive {}", facts.id)));
    }
    if drive.diskseq != 0 {
        compare_diskseq(drive, facts.diskseq)?;
    }
    compare_size(drive, facts.size_bytes)
}

/// Verifies the open device without its name, and returns its number.
fn verify_device(drive: &DriveRef, file: &File) -> Result<(u32, u32), OpenError> {
    let failed = |source| io_error(drive, source);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.file_type().is_block_device() {
        return Err(other(drive, "not a block device".to_owned()));
    }
    let number = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    if number != (drive.major, drive.minor) {
        let actual = format!("device number {}:{}", number.0, number.1);
        return Err(other(drive, actual));
    }
    let size = ioctl::size_bytes(file.as_fd()).map_err(failed)?;
    compare_size(drive, size)?;
    if drive.diskseq != 0 {
        compare_diskseq(drive, ioctl::diskseq(file.as_fd()).map_err(failed)?)?;
    }
    Ok(number)
}

fn compare_size(drive: &DriveRef, size: u64) -> Result<(), OpenError> {
    if size == drive.size_bytes {
        return Ok(());
    }
    let [present, expected] = human_sizes([size, drive.size_bytes]);
    let actual = format!("{present} where {expected} were expected");
    Err(other(drive, actual))
}

fn compare_diskseq(drive: &DriveRef, seq: u64) -> Result<(), OpenError> {
    if seq == drive.diskseq {
        return Ok(());
    }
    let actual = format!("it was disconnected and reconnected (sequence {seq})");
    Err(other(drive, actual))
}

fn other(drive: &DriveRef, actual: String) -> OpenError {
    OpenError::NotThisDrive {
        node: node_of(drive),
        seen: actual,
    }
}

/// Returns the path of the device node, for messages.
pub(super) fn node_of(drive: &DriveRef) -> String {
    drive.node().to_string_lossy().into_owned()
}

/// Wraps the error of a failed system call on the drive's node.
pub(super) fn io_error(drive: &DriveRef, source: io::Error) -> OpenError {
    OpenError::Io {
        node: node_of(drive),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::DriveId;

    #[test]
    fn only_a_block_device_is_a_drive() {
        let null = DriveRef {
            id: DriveId("path-null".into()),
            kernel_name: "null".into(),
            major: 1,
            minor: 3,
            diskseq: 0,
            size_bytes: 0,
        };
        let error = open(&null, false, 0).unwrap_err();
        assert!(matches!(error, OpenError::NotThisDrive { .. }), "{error}");
    }

    #[test]
    fn a_node_that_is_not_there_is_a_drive_that_is_gone() {
        let gone = DriveRef {
            id: DriveId("path-gone".into()),
            kernel_name: "no-such-drive".into(),
            major: 8,
            minor: 0,
            diskseq: 0,
            size_bytes: 4096,
        };
        let error = open(&gone, false, 0).unwrap_err();
        assert!(matches!(error, OpenError::Gone { .. }), "{error}");
    }
}
