//! Read-only access to a whole block device: its properties, and uncached reads.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
};

use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};

use super::{
    direct::Aligned,
    drive::{self, OpenError},
    ioctl,
};
use drivebay_model::DriveRef;

/// A drive opened for reading, with its identity verified.
#[derive(Debug)]
pub struct DiskReader {
    drive: DriveRef,
    file: File,
    direct: bool,
}

impl DiskReader {
    /// Opens a drive O_RDONLY, and O_EXCL if `exclusive` (`Busy`: it is mounted or held).
    pub fn open(drive: &DriveRef, exclusive: bool) -> Result<Self, OpenError> {
        let excl = if exclusive { libc::O_EXCL } else { 0 };
        Ok(Self {
            drive: drive.clone(),
            file: drive::open(drive, false, libc::O_NONBLOCK | excl)?,
            direct: false,
        })
    }

    /// Verifies that the drive's name still refers to the opened device.
    pub fn verify(&self) -> Result<(), OpenError> {
        drive::verify(&self.drive, &self.file)
    }

    /// Returns the verified size in bytes.
    pub fn size(&self) -> u64 {
        self.drive.size_bytes
    }

    /// Returns the kernel's read-only flag (BLKROGET).
    pub fn read_only(&self) -> io::Result<bool> {
        ioctl::read_only(self.file.as_fd())
    }

    /// Returns the logical sector size in bytes (BLKSSZGET).
    pub fn logical_sector(&self) -> io::Result<u32> {
        ioctl::logical_sector(self.file.as_fd())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes reads bypass the page cache (O_DIRECT), so that they return what the medium holds. If the device refuses that, cached pages
    /// are dropped before each read instead, which has no effect on pages in use.
    pub fn uncached(&mut self) {
        let set = || -> nix::Result<()> {
            let flags = OFlag::from_bits_retain(fcntl(&self.file, FcntlArg::F_GETFL)?);
            fcntl(&self.file, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT))?;
            Ok(())
        };
        self.direct = set().is_ok();
    }

    /// Reads exactly `buffer.len()` bytes at `offset`. After `uncached`, offset and length must be multiples of the logical sector. Errs if
    /// the device ends before.
    pub fn read(&self, offset: u64, buffer: &mut Aligned) -> io::Result<()> {
        if !self.direct {
            let (start, len) = (offset.cast_signed(), buffer.bytes().len() as i64);
            // Advisory: if it fails, the read is cached.
            let _ = posix_fadvise(
                &self.file,
                start,
                len,
                PosixFadviseAdvice::POSIX_FADV_DONTNEED,
            );
        }
        self.file.read_exact_at(buffer.bytes_mut(), offset)
    }
}
