//! A volume's partition, opened and proven to be the expected one at the moment of use: names move on reboot.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{jobs::FsError, superblock};
use crate::{
    model::{Cause, DriveRef, Placed},
    sys::{
        mountinfo::{MountEntry, parse_dev},
        path::{self, Kind},
    },
};

/// A partition that was checked. While it is open, the kernel gives neither its number nor its name to another.
#[derive(Debug)]
pub struct Partition {
    /// Its node.
    pub node: PathBuf,
    /// Its kernel name.
    pub device: String,
    /// Its number.
    pub dev: (u32, u32),
    /// Bytes.
    pub bytes: u64,
    file: File,
}

/// The node of a kernel name (sysfs writes `!` for `/`).
pub fn node(device: &str) -> PathBuf {
    Path::new("/dev").join(device.replace('!', "/"))
}

fn sysfs(device: &str) -> PathBuf {
    Path::new("/sys/class/block").join(device.replace('/', "!"))
}

fn attribute(device: &str, name: &str) -> io::Result<String> {
    std::fs::read_to_string(sysfs(device).join(name)).map(|text| text.trim().to_owned())
}

/// Device number of a kernel name, from sysfs; None when there is no such device now.
pub fn number(device: &str) -> Option<(u32, u32)> {
    attribute(device, "dev").ok().as_deref().and_then(parse_dev)
}

/// Bytes of a device that must have this number, from sysfs alone.
pub fn bytes(device: &str, dev: (u32, u32)) -> Result<u64, FsError> {
    if number(device) != Some(dev) {
        return Err(FsError::NotHere {
            path: node(device).display().to_string(),
            why: format!("it is not the device {}:{} any more", dev.0, dev.1),
        });
    }
    let sectors = attribute(device, "size")
        .map_err(|error| io_error("reading the size of", &node(device), error))?;
    let sectors: u64 = sectors.parse().map_err(|_| {
        io_error(
            "reading the size of",
            &node(device),
            io::Error::from(io::ErrorKind::InvalidData),
        )
    })?;
    Ok(sectors * 512)
}

/// Opens a volume's partition read-only and checks: the node's number, that sysfs says it is a partition of
/// this drive, and that it begins and ends where the record says.
pub fn open(drive: &DriveRef, placed: &Placed) -> Result<Partition, FsError> {
    let (Some(device), Some(dev)) = (&placed.device, placed.dev) else {
        return Err(FsError::Io {
            what: format!("finding the partition of volume {} on", placed.record.uuid),
            path: drive.node().display().to_string(),
            source: Cause::text(
                "the kernel does not have it (is the drive being used by something else?)",
            ),
        });
    };
    let node = node(device);
    let wrong = |found: String, expected: String| FsError::Unexpected {
        uuid: placed.record.uuid,
        device: device.clone(),
        found,
        expected,
    };
    let file = open_node(&node, 0).map_err(|error| io_error("opening", &node, error))?;
    let facts = path::facts_of(&file).map_err(|error| io_error("looking at", &node, error))?;
    if facts.kind != Kind::Block || facts.rdev != dev || number(device) != Some(dev) {
        return Err(wrong(
            format!("device {}:{}", facts.rdev.0, facts.rdev.1),
            format!("device {}:{}", dev.0, dev.1),
        ));
    }
    let parent = std::fs::canonicalize(sysfs(device))
        .ok()
        .and_then(|own| std::fs::read_to_string(own.parent()?.join("dev")).ok())
        .as_deref()
        .and_then(parse_dev);
    if parent != Some((drive.major, drive.minor)) {
        return Err(wrong(
            format!(
                "a device of {}",
                parent.map_or("another drive".to_owned(), |(a, b)| format!(
                    "drive {a}:{b}"
                ))
            ),
            format!(
                "a partition of {} ({}:{})",
                drive.kernel_name, drive.major, drive.minor
            ),
        ));
    }
    let start = attribute(device, "start")
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .map(|sectors| sectors * 512);
    let bytes = bytes(device, dev)?;
    let record = &placed.record;
    let fits = |len: u64| start == Some(record.extent.start) && bytes == len;
    if !fits(record.extent.len) && !record.growing_to.is_some_and(|to| fits(to.len)) {
        return Err(wrong(
            format!(
                "a partition at byte {} with {bytes} bytes",
                start.map_or("?".to_owned(), |s| s.to_string())
            ),
            format!(
                "byte {} and {} bytes",
                record.extent.start, record.extent.len
            ),
        ));
    }
    Ok(Partition {
        node,
        device: device.clone(),
        dev,
        bytes,
        file,
    })
}

fn open_node(node: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | flags)
        .open(node)
}

impl Partition {
    /// Holds it exclusively: fails with EBUSY while it is mounted or held by anything else.
    pub fn hold(&self) -> io::Result<File> {
        open_node(&self.node, libc::O_EXCL)
    }

    /// Its first bytes, for `superblock`.
    pub fn head(&self) -> io::Result<Vec<u8>> {
        let mut head = vec![0; superblock::HEAD_BYTES];
        self.file.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    /// Writes everything back and flushes the drive's cache.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Whether a mount is of this partition: by number, for btrfs (whose mounts have numbers of their own) by
/// the number of its source's name. A source that is gone from sysfs belongs to nothing.
pub fn is_mount_of(entry: &MountEntry, dev: (u32, u32)) -> bool {
    entry.dev == dev || (entry.fs_type == "btrfs" && source_number(entry) == Some(dev))
}

/// The number of a mount's source, when that is a device which still exists.
pub fn source_number(entry: &MountEntry) -> Option<(u32, u32)> {
    number(entry.source.strip_prefix("/dev").ok()?.to_str()?)
}

/// A failed system call.
pub fn io_error(what: &str, path: &Path, error: io::Error) -> FsError {
    FsError::Io {
        what: what.to_owned(),
        path: path.display().to_string(),
        source: Cause::from(error),
    }
}
