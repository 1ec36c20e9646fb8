//! Block devices: direct reads and writes, sizes, flock, BLKPG, zeroing.
//!
//! A `BlockDev` is a whole drive that was checked, at the moment it was opened, to be the one
//! that was meant. It is opened for reading; a descriptor for writing is opened only when
//! something is written, because closing one makes udevd read the drive again. The lock has a
//! descriptor of its own that is closed last, so that udevd finds the drive locked when the
//! writing one closes, and leaves its partitions alone.

mod direct;
mod ioctl;
mod partitions;

use std::{
    cell::OnceCell,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use direct::AlignedBuf;

use crate::model::DriveRef;

/// Why a drive was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another drive has this name now, or none.
    #[error("{node} is not the expected drive: {seen}")]
    NotThisDrive {
        /// Device node.
        node: String,
        /// What was there.
        seen: String,
    },
    /// Held exclusively by somebody: mounted, part of an array, opened O_EXCL.
    #[error("{0} is in use")]
    Busy(String),
    /// open(2) or a check failed.
    #[error("cannot open {node}")]
    Io {
        /// Device node.
        node: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another program holds the flock.
    #[error("{node} stayed locked for {waited_ms} ms")]
    Locked {
        /// Device node.
        node: String,
        /// Milliseconds.
        waited_ms: u64,
    },
}

/// A verified whole drive. Fields are dropped in order: the lock last.
#[derive(Debug)]
pub struct BlockDev {
    drive: DriveRef,
    writer: OnceCell<File>,
    reader: File,
    lock: Option<File>,
    sector: u32,
}

impl BlockDev {
    /// Opens for reading and checks that it is the drive that was meant.
    pub fn open(drive: &DriveRef) -> Result<Self, OpenError> {
        let reader = open_checked(drive, false, 0)?;
        let sector = ioctl::logical_sector(reader.as_fd()).map_err(|source| io_error(drive, source))?;
        verify_identity(drive)?;
        Ok(Self { drive: drive.clone(), writer: OnceCell::new(), reader, lock: None, sector })
    }

    /// Opens for writing with O_EXCL: refused while the drive or a partition of it is mounted or
    /// held. The exclusive descriptor is the one that writes, for as long as this lives.
    pub fn open_exclusive(drive: &DriveRef) -> Result<Self, OpenError> {
        let writer = open_checked(drive, true, libc::O_EXCL)?;
        let mut dev = Self::open(drive)?;
        dev.writer = OnceCell::from(writer);
        Ok(dev)
    }

    /// Takes flock(LOCK_EX), which udevd and sfdisk --lock respect too, waiting at most `limit`.
    ///
    /// flock(2) has no timeout and nothing to poll; a blocking call bounded by a signal would need
    /// a process-wide handler. So it is asked again, with pauses that grow to 50 ms: short beside
    /// what holds such locks (a table write, udevd's probing of a device).
    pub fn lock(&mut self, limit: Duration) -> Result<(), OpenError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let file = open_checked(&self.drive, false, 0)?;
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        while !ioctl::try_flock(file.as_fd()).map_err(|source| io_error(&self.drive, source))? {
            let waited = begin.elapsed();
            if waited >= limit {
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(OpenError::Locked { node: node_of(&self.drive), waited_ms });
            }
            std::thread::sleep(pause.min(limit.saturating_sub(waited)));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        self.lock = Some(file);
        Ok(())
    }

    /// Lets the flock go (closing its descriptor), after the descriptor that writes.
    pub fn unlock(&mut self) {
        drop(self.writer.take());
        drop(self.lock.take());
    }

    /// The drive this was verified to be.
    pub fn drive(&self) -> &DriveRef {
        &self.drive
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.drive.size_bytes
    }

    /// Logical sector, bytes.
    pub fn sector(&self) -> u32 {
        self.sector
    }

    /// Reads from the medium (O_DIRECT). Offset and length are multiples of the sector.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        direct::read(&self.reader, offset, buf)
    }

    /// Writes to the medium (O_DIRECT); durable after `flush`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        direct::write(self.writer()?, offset, data)
    }

    /// Flushes the drive's volatile cache.
    pub fn flush(&self) -> io::Result<()> {
        self.writer()?.sync_all()
    }

    /// Makes a run read as zeros: PUNCH_HOLE (the kernel guarantees zeros or refuses), else
    /// BLKZEROOUT, else written. Durable after `flush`.
    pub fn zero(&self, start: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let writer = self.writer()?;
        match ioctl::punch(writer.as_fd(), start, len) {
            Err(error) if unsupported(&error) => {}
            done => return done,
        }
        match ioctl::zeroout(writer.as_fd(), start, len) {
            Err(error) if unsupported(&error) => {}
            done => return done,
        }
        let zeros = AlignedBuf::zeroed(usize::try_from(len.min(1 << 20)).unwrap_or(1 << 20));
        let mut at = 0;
        while at < len {
            let piece = usize::try_from(len - at).unwrap_or(usize::MAX).min(zeros.len());
            direct::write_aligned(writer, start + at, &zeros, piece)?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Opened, and checked again, when the first write comes.
    fn writer(&self) -> io::Result<&File> {
        if let Some(file) = self.writer.get() {
            return Ok(file);
        }
        let file = open_checked(&self.drive, true, 0).map_err(|error| match error {
            OpenError::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        })?;
        Ok(self.writer.get_or_init(|| file))
    }
}

fn node_of(drive: &DriveRef) -> String {
    drive.node().to_string_lossy().into_owned()
}

fn io_error(drive: &DriveRef, source: io::Error) -> OpenError {
    OpenError::Io { node: node_of(drive), source }
}

fn unsupported(error: &io::Error) -> bool {
    // ENOTTY and EINVAL: drivers of old kernels that know no such call.
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}

/// Opens the node with O_DIRECT and compares device number, size and diskseq.
fn open_checked(drive: &DriveRef, write: bool, flags: i32) -> Result<File, OpenError> {
    let other = |seen: String| OpenError::NotThisDrive { node: node_of(drive), seen };
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC | flags)
        .open(drive.node())
        .map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => OpenError::Busy(node_of(drive)),
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => other("no device".into()),
            _ => io_error(drive, source),
        })?;
    let meta = file.metadata().map_err(|source| io_error(drive, source))?;
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    if !meta.file_type().is_block_device() || (major, minor) != (drive.major, drive.minor) {
        return Err(other(format!("device number {major}:{minor}")));
    }
    let size = ioctl::size_bytes(file.as_fd()).map_err(|source| io_error(drive, source))?;
    if size != drive.size_bytes {
        return Err(other(format!("{size} bytes")));
    }
    if drive.diskseq != 0 {
        let seq = ioctl::diskseq(file.as_fd()).map_err(|source| io_error(drive, source))?;
        if seq != drive.diskseq {
            return Err(other(format!("diskseq {seq}")));
        }
    }
    Ok(file)
}

/// The identity (WWN, serial, …) that sysfs gives this name now. The last check: with the
/// descriptor open and its number compared, the name cannot have been given to another drive since.
fn verify_identity(drive: &DriveRef) -> Result<(), OpenError> {
    match crate::discovery::sysfs::read(Path::new("/sys"), &drive.kernel_name) {
        Ok(facts) if facts.id == drive.id => Ok(()),
        Ok(facts) => Err(OpenError::NotThisDrive { node: node_of(drive), seen: facts.id.0 }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::NotThisDrive {
            node: node_of(drive),
            seen: "no device".into(),
        }),
        Err(source) => Err(io_error(drive, source)),
    }
}

/// `/sys/class/block/<disk>`.
fn sysfs_dir(drive: &DriveRef) -> PathBuf {
    Path::new("/sys/class/block").join(&drive.kernel_name)
}
