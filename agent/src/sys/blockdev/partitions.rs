//! The kernel's partitions of a drive: read from sysfs, changed by BLKPG.

use std::{fs, io, os::fd::AsFd, path::Path};

use super::{BlockDev, sysfs_dir};
use crate::{
    model::drive::PartitionFacts,
    sys::{attribute, ioctl, sysfs},
};

impl BlockDev {
    /// Partitions as the kernel has them now, by number.
    pub fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(sysfs_dir(&self.drive))? {
            let entry = entry?;
            let name = entry.file_name();
            if !sysfs::is_partition_name(&self.drive.kernel_name, &name.to_string_lossy()) {
                continue;
            }
            match read_partition(&entry.path()) {
                Ok(Some(facts)) => found.push(facts),
                Ok(None) => {}
                // It went away while we looked.
                Err(error) if gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|facts| facts.number);
        Ok(found)
    }

    /// Tells the kernel of a partition. EBUSY when it overlaps one that the kernel has.
    pub fn add_partition(&self, number: u32, start: u64, len: u64) -> io::Result<()> {
        ioctl::partition(self.reader.as_fd(), ioctl::Blkpg::Add, number, start, len)
    }

    /// Takes a partition from the kernel. EBUSY while anybody has it open or mounted.
    pub fn del_partition(&self, number: u32) -> io::Result<()> {
        ioctl::partition(self.reader.as_fd(), ioctl::Blkpg::Del, number, 0, 0)
    }

    /// Gives a partition a new length, in use or not.
    pub fn resize_partition(&self, number: u32, start: u64, len: u64) -> io::Result<()> {
        ioctl::partition(
            self.reader.as_fd(),
            ioctl::Blkpg::Resize,
            number,
            start,
            len,
        )
    }
}

fn gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO)
    )
}

fn read_partition(dir: &Path) -> io::Result<Option<PartitionFacts>> {
    let read = |name: &str| attribute::read_text(&dir.join(name));
    let number = |text: &str| text.trim().parse::<u64>().map_err(io::Error::other);
    let index = match read("partition") {
        Ok(text) => number(&text)?,
        Err(error) if gone(&error) || error.raw_os_error() == Some(libc::ENOTDIR) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let dev = read("dev")?;
    let (major, minor) = dev
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| io::Error::other(format!("device number {dev:?}")))?;
    Ok(Some(PartitionFacts {
        kernel_name: dir
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        number: u32::try_from(index).map_err(io::Error::other)?,
        // sysfs counts in 512 bytes whatever the sector size is.
        start_bytes: number(&read("start")?)? * 512,
        size_bytes: number(&read("size")?)? * 512,
        major,
        minor,
    }))
}
