//! Reads and writes device-mapper devices past the page cache.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use super::identify;
use crate::{direct, ioctl, path};

/// A device-mapper device whose uuid was verified when it was opened. While it is open, the kernel gives its number to no other one.
#[derive(Debug)]
pub struct Reader {
    file: File,
    size: u64,
    sector: u32,
}

impl Reader {
    /// # Errors
    /// NotFound: there is no such device, or the number is another one's.
    pub fn open(kernel_name: &str, dev: (u32, u32), uuid: &str) -> io::Result<Self> {
        Self::over(open(kernel_name, dev, uuid, false)?)
    }

    fn over(mut file: File) -> io::Result<Self> {
        let size = file.seek(SeekFrom::End(0))?;
        let sector = ioctl::logical_sector(file.as_fd())?;
        Ok(Self { file, size, sector })
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the logical sector size in bytes.
    pub fn sector(&self) -> u32 {
        self.sector
    }

    /// Reads exactly `buf.len()` bytes. Offset and length are multiples of the sector.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        direct::read(&self.file, offset, buf)
    }
}

/// A [`Reader`] that is open for writing too.
#[derive(Debug)]
pub struct Writer(Reader);

impl Writer {
    /// # Errors
    /// NotFound: there is no such device, or the number is another one's.
    pub fn open(kernel_name: &str, dev: (u32, u32), uuid: &str) -> io::Result<Self> {
        Reader::over(open(kernel_name, dev, uuid, true)?).map(Self)
    }

    /// Writes zeros; durable on return. Offset and length are multiples of the sector.
    ///
    /// # Errors
    /// InvalidInput: offset or length is no such multiple, or the device ends before.
    pub fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let sector = u64::from(self.0.sector);
        let is_aligned = offset.is_multiple_of(sector) && len.is_multiple_of(sector);
        let end = offset.checked_add(len);
        let fits = end.is_some_and(|end| end <= self.0.size);
        if !is_aligned || !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        direct::write_zeros(&self.0.file, offset, len)?;
        self.flush()
    }

    /// Flushes the cache of the drive below.
    pub fn flush(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }
}

fn open(kernel_name: &str, dev: (u32, u32), uuid: &str, write: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(Path::new("/dev").join(kernel_name))?;
    let facts = path::facts_of(&file)?;
    let identity = identify(Path::new("/sys"), kernel_name)?;
    let is_meant = facts.kind == path::Kind::Block
        && facts.rdev == dev
        && identity.is_some_and(|(actual, number)| actual == uuid && number == dev);
    if !is_meant {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{kernel_name} is not the device {uuid} any more"),
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn only_whole_sectors_within_the_device_become_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 16384], 0).unwrap();
        let writer = Writer(Reader {
            file,
            size: 16384,
            sector: 4096,
        });
        for (offset, len) in [(1, 4096), (0, 512), (12288, 8192), (u64::MAX - 4095, 4096)] {
            let error = writer.zero(offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
        }
        writer.zero(4096, 8192).unwrap();
        let mut bytes = [1; 16384];
        writer.0.file.read_exact_at(&mut bytes, 0).unwrap();
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!((zeros, bytes[4095], bytes[12288]), (8192, 7, 7));
    }
}
