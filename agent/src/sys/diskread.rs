//! Reading a whole block device without changing it: open, what the kernel says of it, uncached reads.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};

/// Start, length and memory of direct reads are multiples of this; no drive has larger logical sectors.
pub const ALIGN: u64 = 4096;

mod ioctl {
    #![allow(missing_docs)] // the macros take none
    // BLKROGET is _IO(0x12, 94) although it writes an int.
    nix::ioctl_read_bad!(blkroget, nix::request_code_none!(0x12, 94), libc::c_int);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, u64);
}

/// A block device opened for reading.
#[derive(Debug)]
pub struct DiskReader {
    file: File,
    size: u64,
    direct: bool,
}

impl DiskReader {
    /// Opens a device node O_RDONLY, and O_EXCL when asked (EBUSY: somebody holds it).
    pub fn open(node: &Path, exclusive: bool) -> io::Result<Self> {
        let excl = if exclusive { libc::O_EXCL } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | excl)
            .open(node)?;
        if !file.metadata()?.file_type().is_block_device() {
            return Err(io::Error::other(format!(
                "{} is not a block device",
                node.display()
            )));
        }
        let mut size = 0_u64;
        // SAFETY: BLKGETSIZE64 writes one u64 into a live u64.
        unsafe { ioctl::blkgetsize64(file.as_raw_fd(), &raw mut size) }?;
        Ok(Self {
            file,
            size,
            direct: false,
        })
    }

    /// Device number of what was opened.
    pub fn number(&self) -> io::Result<(u32, u32)> {
        let number = self.file.metadata()?.rdev();
        Ok((libc::major(number), libc::minor(number)))
    }

    /// Bytes, from BLKGETSIZE64 at opening.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// BLKROGET.
    pub fn read_only(&self) -> io::Result<bool> {
        let mut flag = 0;
        // SAFETY: BLKROGET writes one int into a live int.
        unsafe { ioctl::blkroget(self.file.as_raw_fd(), &raw mut flag) }?;
        Ok(flag != 0)
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
            let (start, len) = (offset.cast_signed(), buffer.len as i64);
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

/// A buffer that begins at a multiple of `ALIGN`.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        let align = ALIGN as usize;
        let memory = vec![0; len + align];
        let skip = memory.as_ptr().align_offset(align).min(align);
        Self { memory, skip, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked() {
        for len in [0, 1, 512, 1 << 20] {
            let buffer = Aligned::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN as usize, 0);
        }
    }

    #[test]
    fn only_a_block_device_is_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DiskReader::open(file.path(), false).is_err());
    }
}
