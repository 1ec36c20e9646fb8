//! A device-mapper device that is read past the page cache.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use super::identify;
use crate::{direct, ioctl, path};

/// One that was checked, when it was opened, to be the one that was meant. While it is open the kernel gives its number to no other.
#[derive(Debug)]
pub struct Reader {
    file: File,
    size: u64,
    sector: u32,
}

impl Reader {
    /// # Errors
    /// NotFound: it is another device by now, or none.
    pub fn open(kernel_name: &str, dev: (u32, u32), uuid: &str) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(Path::new("/dev").join(kernel_name))?;
        let facts = path::facts_of(&file)?;
        let known = identify(Path::new("/sys"), kernel_name)?;
        let is_meant = facts.kind == path::Kind::Block
            && facts.rdev == dev
            && known.is_some_and(|(found, number)| found == uuid && number == dev);
        if !is_meant {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{kernel_name} is not the device {uuid} any more"),
            ));
        }
        let size = file.seek(SeekFrom::End(0))?;
        let sector = ioctl::logical_sector(file.as_fd())?;
        Ok(Self { file, size, sector })
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Logical sector, bytes.
    pub fn sector(&self) -> u32 {
        self.sector
    }

    /// Offset and length are multiples of the sector.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        direct::read(&self.file, offset, buf)
    }
}
