//! Block devices: direct reads and writes, sizes, flock, BLKPG, zeroing.
//!
//! A `BlockDev` is a whole drive that was checked, at the moment it was opened, to be the one
//! that was meant. It is opened for reading; a descriptor for writing is opened only when
//! something is written, because closing one makes udevd read the drive again. The lock has a
//! descriptor of its own that is closed last, so that udevd finds the drive locked when the
//! writing one closes, and leaves its partitions alone.
//!
//! Who writes to a drive holds a lock of the kernel's on what it writes: the flock, or, where the flock is let go for long work,
//! the bytes themselves (`unlock_holding`). The kernel lets either go when the process has ended, and a process that a drive keeps
//! in D state has not, whether it was killed, and whether the agent that started it still runs.

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

/// Why a drive was not opened or locked.
#[derive(Debug, thiserror::Error)]
pub enum BlockDevError {
    /// It was not opened, or is another drive.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another program holds the flock.
    #[error("{node} stayed locked for {}; see which program keeps it open", human_millis(*waited_ms))]
    Locked {
        node: String,
        /// Milliseconds.
        waited_ms: u64,
    },
}

/// A verified whole drive. Fields are dropped in order: the lock last.
#[derive(Debug)]
pub struct BlockDev {
    drive: DriveRef,
    writer: OnceLock<File>,
    reader: File,
    /// Holds bytes while the flock is let go.
    held: Option<File>,
    lock: Option<File>,
    sector: u32,
}

impl BlockDev {
    /// Opens for reading and checks that it is the drive that was meant.
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

    /// Opens for writing with O_EXCL: refused while the drive or a partition of it is mounted or
    /// held. The exclusive descriptor is the one that writes, for as long as this lives.
    pub fn open_exclusive(drive: &DriveRef) -> Result<Self, OpenError> {
        let writer = drive::open(drive, true, libc::O_DIRECT | libc::O_EXCL)?;
        let reader = drive::open_beside(drive, &writer, false, libc::O_DIRECT)?;
        let mut dev = Self::over(drive, reader)?;
        dev.writer = OnceLock::from(writer);
        Ok(dev)
    }

    /// Takes flock(LOCK_EX), which udevd and sfdisk --lock respect too, waiting at most `limit`.
    ///
    /// flock(2) has no timeout and nothing to poll; a blocking call bounded by a signal would need
    /// a process-wide handler. So it is asked again, with pauses that grow to 10 ms: short beside
    /// what holds such locks (a table write, udevd's probing of a device).
    pub fn lock(&mut self, limit: Duration) -> Result<(), BlockDevError> {
        self.flock(true, limit)
    }

    /// Takes flock(LOCK_SH) in the same way: nobody changes anything while it is read.
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

    /// Lets O_EXCL go and keeps the lock: from here on other openers may hold the drive exclusively.
    pub fn release_exclusive(&mut self) {
        drop(self.writer.take());
    }

    /// Lets the flock go, after the descriptor that writes: what is read from here on may be changed by others meanwhile.
    pub fn unlock(&mut self) {
        drop(self.writer.take());
        drop(self.lock.take());
    }

    /// Lets the flock go (closing its descriptor), after the descriptor that writes, and holds these bytes (start and length) for
    /// as long as this lives: only they may be written until the flock is taken again.
    pub fn unlock_holding(&mut self, runs: impl Iterator<Item = (u64, u64)>) -> io::Result<()> {
        if self.held.is_none() {
            let file = drive::open_beside(&self.drive, &self.reader, false, libc::O_DIRECT);
            let file = file.map_err(OpenError::into_io)?;
            for (start, len) in runs {
                ioctl::hold(file.as_fd(), start, len)?;
            }
            self.held = Some(file);
        }
        self.unlock();
        Ok(())
    }

    /// Bytes (start and length) among these that somebody else holds (`unlock_holding`): a process that has not ended may still
    /// write to them.
    pub fn held(&self, start: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        let file = self.held.as_ref().unwrap_or(&self.reader);
        ioctl::held(file.as_fd(), start, len)
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
        direct::write_zeros(writer, start, len)
    }

    /// Has the drive make a run zeros by itself; false where it has no command for that (PUNCH_HOLE). Durable after `flush`.
    pub fn zero_on_command(&self, start: u64, len: u64) -> io::Result<bool> {
        match ioctl::punch(self.writer()?.as_fd(), start, len) {
            Err(error) if unsupported(&error) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Writes zeros, whatever commands the drive has. Durable after `flush`.
    pub fn write_zeros(&self, start: u64, len: u64) -> io::Result<()> {
        direct::write_zeros(self.writer()?, start, len)
    }

    /// Opened, and compared with the one that was checked, when the first write comes.
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
    // ENOTTY and EINVAL: drivers of old kernels that know no such call.
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
    )
}
