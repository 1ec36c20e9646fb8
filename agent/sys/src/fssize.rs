//! Size of a mounted filesystem, by the ioctls of XFS and btrfs.

use std::{io, os::fd::AsFd, os::fd::AsRawFd};

/// `_IOR('X', 126, struct xfs_fsop_geom)`, xfs_fs.h; the struct has 256 bytes. In Linux 5.2 and later.
const XFS_IOC_FSGEOMETRY: libc::c_ulong = 0x8100_587E;
/// `_IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args)`, linux/btrfs.h; the struct has 4096 bytes.
const BTRFS_IOC_DEV_INFO: libc::c_ulong = 0xD000_941E;

/// Geometry of an XFS, as far as growing needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XfsGeometry {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks of an allocation group.
    pub ag_blocks: u64,
    /// Blocks of the data section: its size.
    pub data_blocks: u64,
}

fn u32_at(buffer: &[u8], at: usize) -> u64 {
    buffer
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, |b| u64::from(u32::from_ne_bytes(b)))
}

fn u64_at(buffer: &[u8], at: usize) -> u64 {
    buffer
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}

/// Returns the geometry of a mounted XFS by any descriptor on it.
pub fn xfs_geometry(fd: impl AsFd) -> io::Result<XfsGeometry> {
    let mut buffer = [0_u8; 256];
    // SAFETY: the kernel writes exactly the 256 bytes that the request number names.
    if unsafe {
        libc::ioctl(
            fd.as_fd().as_raw_fd(),
            XFS_IOC_FSGEOMETRY as _,
            buffer.as_mut_ptr(),
        )
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(XfsGeometry {
        block_size: u32_at(&buffer, 0),
        ag_blocks: u32_at(&buffer, 8),
        data_blocks: u64_at(&buffer, 32),
    })
}

/// Returns the bytes that a mounted btrfs uses of its first device (devid 1; Drivebay creates no other).
pub fn btrfs_device_bytes(fd: impl AsFd) -> io::Result<u64> {
    let mut buffer = [0_u8; 4096];
    buffer[..8].copy_from_slice(&1_u64.to_ne_bytes());
    // SAFETY: the kernel reads and writes exactly the 4096 bytes that the request number names.
    if unsafe {
        libc::ioctl(
            fd.as_fd().as_raw_fd(),
            BTRFS_IOC_DEV_INFO as _,
            buffer.as_mut_ptr(),
        )
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(u64_at(&buffer, 32))
}
