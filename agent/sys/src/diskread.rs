//! Reading a whole block device without changing it: what the kernel says of it, uncached reads.

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

/// A drive opened for reading, verified to be the one that was meant.
#[derive(Debug)]
pub struct DiskReader {
    drive: DriveRef,
    file: File,
    direct: bool,
}

impl DiskReader {
    /// Opens a drive O_RDONLY, and O_EXCL when asked (`Busy`: somebody holds it).
    pub fn open(drive: &DriveRef, exclusive: bool) -> Result<Self, OpenError> {
        let excl = if exclusive { libc::O_EXCL } else { 0 };
        Ok(Self {
            drive: drive.clone(),
            file: drive::open(drive, false, libc::O_NONBLOCK | excl)?,
            direct: false,
        })
    }

    /// That the name still leads to this drive: it may have gone to another one since the opening.
    pub fn verify(&self) -> Result<(), OpenError> {
        drive::verify(&self.drive, &self.file)
    }

    /// Bytes, as verified.
    pub fn size(&self) -> u64 {
        self.drive.size_bytes
    }

    /// BLKROGET.
    pub fn read_only(&self) -> io::Result<bool> {
        ioctl::read_only(self.file.as_fd())
    }

    /// BLKSSZGET, bytes.
    pub fn logical_sector(&self) -> io::Result<u32> {
        ioctl::logical_sector(self.file.as_fd())
    }

    /// The opened file, for libblkid.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// From now on reads go past the page cache (O_DIRECT), so that they say what the medium holds.
    /// Where the device refuses that, what is cached is dropped before every read instead, which works as
    /// long as nobody else has the pages in use.
    pub fn uncached(&mut self) {
        let set = || -> nix::Result<()> {
            let flags = OFlag::from_bits_retain(fcntl(&self.file, FcntlArg::F_GETFL)?);
            fcntl(&self.file, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT))?;
            Ok(())
        };
        self.direct = set().is_ok();
    }

    /// Reads exactly `buffer.len()` bytes at `offset`. After `uncached`, offset and length are multiples of
    /// the logical sector; the end of the device may be in between.
    pub fn read(&self, offset: u64, buffer: &mut Aligned) -> io::Result<()> {
        if !self.direct {
            let (start, len) = (offset.cast_signed(), buffer.bytes().len() as i64);
            // Advice: when it fails the read is merely cached.
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
