//! Block devices: direct reads and writes, sizes, flock, BLKPG, zeroing.
//!
//! A `BlockDev` is a whole drive whose identity was verified when it was opened. It is opened for reading; a descriptor for writing is
//! opened only for the first write, because closing one makes udevd read the drive again. The flock has a descriptor of its own that is
//! closed last, so that udevd finds the drive locked when the writing one closes, and leaves its partitions alone.
//!
//! A process that writes to a drive holds a kernel lock on what it writes: the flock, or, where that is released for long work, a lock on
//! the bytes (`unlock_holding`). The kernel releases both when the process has ended. A process in D state has not ended, even if it was
//! killed and even if the agent that started it no longer runs.

mod partitions;

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    sync::OnceLock,
    time::{Duration, Instant},
};

use super::{
    direct,
    drive::{self, OpenError, io_error, node_of},
    ioctl,
};
use drivebay_model::{DriveRef, units::human_millis};

/// A drive was not opened or not locked.
#[derive(Debug, thiserror::Error)]
pub enum BlockDevError {
    /// Opening failed, or the node is another drive's.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another program holds the flock.
    #[error("{node} stayed locked for {}; see which program keeps it open", human_millis(*waited_ms))]
    Locked {
        node: String,
        /// Time for which the flock was waited for, milliseconds; at least the caller's limit.
        waited_ms: u64,
    },
}

/// A verified whole drive. Fields are dropped in order: the flock last.
#[derive(Debug)]
pub struct BlockDev {
    drive: DriveRef,
    writer: OnceLock<File>,
    reader: File,
    /// Descriptor with the byte locks while the flock is released (`unlock_holding`).
    held: Option<File>,
    lock: Option<File>,
    sector: u32,
}

impl BlockDev {
    /// Opens the drive for reading and verifies its identity.
    pub fn open(drive: &DriveRef) -> Result<Self, OpenError> {
        Self::over(drive, drive::open(drive, false, libc::O_DIRECT)?)
    }

    fn over(drive: &DriveRef, reader: File) -> Result<Self, OpenError> {
        let sector =
            ioctl::logical_sector(reader.as_fd()).map_err(|source| io_error(drive, source))?;
        Ok(Self {
            drive: drive.clone(),
            writer: OnceLock::new(),
            reader,
            held: None,
            lock: None,
            sector,
        })
    }

    /// Opens for writing with O_EXCL: fails while the drive or a partition of it is mounted or held. The exclusive descriptor is the one
    /// that writes, until dropped or `release_exclusive`.
    pub fn open_exclusive(drive: &DriveRef) -> Result<Self, OpenError> {
        let writer = drive::open(drive, true, libc::O_DIRECT | libc::O_EXCL)?;
        let reader = drive::open_beside(drive, &writer, false, libc::O_DIRECT)?;
        let mut dev = Self::over(drive, reader)?;
        dev.writer = OnceLock::from(writer);
        Ok(dev)
    }

    /// Takes flock(LOCK_EX), which udevd and sfdisk --lock respect too, waiting at most `limit`.
    ///
    /// flock(2) has no timeout and nothing to poll; a blocking call bounded by a signal would need a process-wide handler. So it is
    /// retried, with pauses that grow to 10 ms: short compared to the time for which such locks are held (a table write, udevd's probing of
    /// a device).
    pub fn lock(&mut self, limit: Duration) -> Result<(), BlockDevError> {
        self.flock(true, limit)
    }

    /// Takes flock(LOCK_SH) in the same way: programs that respect the flock do not write while the drive is read.
    pub fn lock_shared(&mut self, limit: Duration) -> Result<(), BlockDevError> {
        self.flock(false, limit)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "no race is hidden: the lock itself is what is asked for"
    )]
    fn flock(&mut self, exclusive: bool, limit: Duration) -> Result<(), BlockDevError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let file = drive::open_beside(&self.drive, &self.reader, false, libc::O_DIRECT)?;
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        while !ioctl::try_flock(file.as_fd(), exclusive)
            .map_err(|source| io_error(&self.drive, source))?
        {
            let waited = begin.elapsed();
            if waited >= limit {
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(BlockDevError::Locked {
                    node: node_of(&self.drive),
                    waited_ms,
                });
            }
            std::thread::sleep(pause.min(limit.saturating_sub(waited)));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        self.lock = Some(file);
        Ok(())
    }

    /// Closes the exclusive descriptor and keeps the flock: other programs may open the drive with O_EXCL from here on.
    pub fn release_exclusive(&mut self) {
        drop(self.writer.take());
    }

    /// Closes the writing descriptor, then releases the flock: other programs may change what is read from here on.
    pub fn unlock(&mut self) {
        drop(self.writer.take());
        drop(self.lock.take());
    }

    /// Locks the bytes `runs` (start and length) in the place of those of an earlier call, closes the writing descriptor, and releases the flock,
    /// which the caller has to hold. Only these bytes may be written until the flock is taken again; they stay locked until the next call,
    /// or until this is dropped.
    pub fn unlock_holding(&mut self, runs: impl Iterator<Item = (u64, u64)>) -> io::Result<()> {
        // Under the flock, so that no other process uses the former runs between the two.
        drop(self.held.take());
        let file = drive::open_beside(&self.drive, &self.reader, false, libc::O_DIRECT);
        let file = file.map_err(OpenError::into_io)?;
        for (start, len) in runs {
            ioctl::hold(file.as_fd(), start, len)?;
        }
        self.held = Some(file);
        self.unlock();
        Ok(())
    }

    /// Returns bytes (start and length) in this range that another process has locked (`unlock_holding`), and may still write to; None if
    /// there are none.
    pub fn held(&self, start: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        let file = self.held.as_ref().unwrap_or(&self.reader);
        ioctl::held(file.as_fd(), start, len)
    }

    /// Returns the drive whose identity was verified.
    pub fn drive(&self) -> &DriveRef {
        &self.drive
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.drive.size_bytes
    }

    /// Returns the logical sector size in bytes.
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
        direct::write_zeros(writer, start, len)
    }

    /// Zeroes a run by a command of the drive (PUNCH_HOLE); false, with no effect, if the drive has none. Durable after `flush`.
    pub fn zero_on_command(&self, start: u64, len: u64) -> io::Result<bool> {
        match ioctl::punch(self.writer()?.as_fd(), start, len) {
            Err(error) if unsupported(&error) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Writes zeros without using commands of the drive. Durable after `flush`.
    pub fn write_zeros(&self, start: u64, len: u64) -> io::Result<()> {
        direct::write_zeros(self.writer()?, start, len)
    }

    /// Returns the writing descriptor. The first call opens it, and verifies that it is the same device as the reading one.
    fn writer(&self) -> io::Result<&File> {
        if let Some(file) = self.writer.get() {
            return Ok(file);
        }
        let file = drive::open_beside(&self.drive, &self.reader, true, libc::O_DIRECT);
        let file = file.map_err(OpenError::into_io)?;
        Ok(self.writer.get_or_init(|| file))
    }
}

fn unsupported(error: &io::Error) -> bool {
    // ENOTTY and EINVAL: drivers of old kernels without this call.
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}
