//! The kernel's partitions of a drive: read from sysfs, changed by BLKPG.

use std::{io, os::fd::AsFd, path::Path};

use super::BlockDev;
use crate::{ioctl, sysfs};
use drivebay_model::drive::PartitionFacts;

impl BlockDev {
    /// Partitions as the kernel has them now, by number.
    pub fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        sysfs::partitions_of(Path::new("/sys"), &self.drive.kernel_name)
    }

    /// The one of this number, if the kernel has it.
    pub fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>> {
        sysfs::partition_of(Path::new("/sys"), &self.drive.kernel_name, number)
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
