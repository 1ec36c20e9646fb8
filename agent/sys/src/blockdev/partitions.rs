//! The kernel's partitions of a drive: read from sysfs, changed by BLKPG.

use std::{io, os::fd::AsFd, path::Path};

use super::BlockDev;
use crate::{ioctl, sysfs};
use drivebay_model::drive::PartitionFacts;

impl BlockDev {
    /// Reads the kernel's current partitions of the drive from sysfs.
    pub fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        sysfs::partitions_of(Path::new("/sys"), &self.drive.kernel_name)
    }

    /// Reads one partition; None if the kernel has none of this number.
    pub fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>> {
        sysfs::partition_of(Path::new("/sys"), &self.drive.kernel_name, number)
    }

    /// Adds a partition to the kernel. Start and length in bytes. EBUSY if it overlaps another one.
    pub fn add_partition(&self, number: u32, start: u64, len: u64) -> io::Result<()> {
        ioctl::partition(self.reader.as_fd(), ioctl::Blkpg::Add, number, start, len)
    }

    /// Removes a partition from the kernel. EBUSY while it is open or mounted.
    pub fn del_partition(&self, number: u32) -> io::Result<()> {
        ioctl::partition(self.reader.as_fd(), ioctl::Blkpg::Del, number, 0, 0)
    }

    /// Changes the length of a partition, also while it is in use. Start and length in bytes.
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
