//! System calls of block devices that std does not have.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);
nix::ioctl_read!(blkgetdiskseq, 0x12, 128, u64);
// BLKROGET is _IO(0x12, 94) although it writes an int.
nix::ioctl_read_bad!(blkroget, 0x125e, libc::c_int);
nix::ioctl_read_bad!(blksszget, 0x1268, libc::c_int);
nix::ioctl_write_ptr_bad!(blkzeroout, 0x127f, [u64; 2]);
nix::ioctl_readwrite_bad!(blkpg, 0x1269, BlkpgIoctlArg);

/// `struct blkpg_ioctl_arg` of linux/blkpg.h.
#[repr(C)]
pub(super) struct BlkpgIoctlArg {
    op: libc::c_int,
    flags: libc::c_int,
    datalen: libc::c_int,
    data: *mut BlkpgPartition,
}

/// `struct blkpg_partition` of linux/blkpg.h; the names are unused by the kernel.
#[repr(C)]
struct BlkpgPartition {
    start: libc::c_longlong,
    length: libc::c_longlong,
    pno: libc::c_int,
    devname: [u8; 64],
    volname: [u8; 64],
}

/// Operation on a kernel partition (linux/blkpg.h).
#[derive(Clone, Copy)]
pub(super) enum Blkpg {
    /// BLKPG_ADD_PARTITION; EBUSY if it overlaps another partition.
    Add = 1,
    /// BLKPG_DEL_PARTITION; EBUSY while the partition is open or mounted.
    Del = 2,
    /// BLKPG_RESIZE_PARTITION, also while the partition is in use.
    Resize = 3,
}

/// Sends BLKPG to a whole disk; start and length in bytes.
pub(super) fn partition(
    fd: BorrowedFd<'_>,
    op: Blkpg,
    number: u32,
    start: u64,
    len: u64,
) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut data = BlkpgPartition {
        start: start.try_into().map_err(invalid)?,
        length: len.try_into().map_err(invalid)?,
        pno: number.try_into().map_err(invalid)?,
        devname: [0; 64],
        volname: [0; 64],
    };
    let mut arg = BlkpgIoctlArg {
        op: op as libc::c_int,
        flags: 0,
        datalen: size_of::<BlkpgPartition>() as libc::c_int,
        data: &raw mut data,
    };
    // SAFETY: both structs are laid out as the kernel's and outlive the call.
    unsafe { blkpg(fd.as_raw_fd(), &raw mut arg) }?;
    Ok(())
}

/// Returns the size in bytes (BLKGETSIZE64).
pub(super) fn size_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: u64 = 0;
    // SAFETY: the kernel writes a u64 there; size_t is only part of the ioctl's number.
    unsafe { blkgetsize64(fd.as_raw_fd(), (&raw mut bytes).cast::<usize>()) }?;
    Ok(bytes)
}

/// Returns the disk sequence number (BLKGETDISKSEQ, Linux 5.15).
pub(super) fn diskseq(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut seq = 0;
    // SAFETY: the kernel writes a u64 there.
    unsafe { blkgetdiskseq(fd.as_raw_fd(), &raw mut seq) }?;
    Ok(seq)
}

/// True if the kernel allows no writes to the device (BLKROGET).
pub(super) fn read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut flag: libc::c_int = 0;
    // SAFETY: the kernel writes an int there.
    unsafe { blkroget(fd.as_raw_fd(), &raw mut flag) }?;
    Ok(flag != 0)
}

/// Returns the logical sector size in bytes (BLKSSZGET). Errs unless it is 512, 1024, 2048 or 4096.
pub(super) fn logical_sector(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut sector: libc::c_int = 0;
    // SAFETY: the kernel writes an int there.
    unsafe { blksszget(fd.as_raw_fd(), &raw mut sector) }?;
    match u32::try_from(sector) {
        Ok(sector @ (512 | 1024 | 2048 | 4096)) => Ok(sector),
        _ => Err(io::Error::other(format!(
            "logical sector size {sector} is not supported"
        ))),
    }
}

/// Zeroes a run, in bytes (BLKZEROOUT).
pub(super) fn zeroout(fd: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<()> {
    let range = [start, len];
    // SAFETY: the kernel reads two u64 from there.
    unsafe { blkzeroout(fd.as_raw_fd(), &raw const range) }?;
    Ok(())
}

/// Punches a hole, start and length in bytes: fallocate(PUNCH_HOLE|KEEP_SIZE).
pub(super) fn punch(fd: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    fallocate(
        fd,
        FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
        start.try_into().map_err(invalid)?,
        len.try_into().map_err(invalid)?,
    )?;
    Ok(())
}

/// Takes flock(LOCK_EX|LOCK_NB), or LOCK_SH; false if another open file holds a conflicting lock. Released when the descriptor closes.
pub(super) fn try_flock(fd: BorrowedFd<'_>, exclusive: bool) -> io::Result<bool> {
    let how = if exclusive {
        libc::LOCK_EX
    } else {
        libc::LOCK_SH
    };
    // SAFETY: no memory is passed.
    if unsafe { libc::flock(fd.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EINTR)) => Ok(false),
        error => Err(error),
    }
}

/// Takes F_OFD_SETLK(F_RDLCK) on these bytes. Released when the last descriptor of this open file closes: for a killed process, after it
/// has left the kernel.
pub(super) fn hold(fd: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<()> {
    let lock = byte_range(libc::F_RDLCK, start, len)?;
    // SAFETY: the kernel reads a flock from there.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns bytes (start and length) in this range that another open file has locked by `hold` (F_OFD_GETLK); None if there are none.
pub(super) fn held(fd: BorrowedFd<'_>, start: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    let mut lock = byte_range(libc::F_WRLCK, start, len)?;
    // SAFETY: the kernel reads and writes a flock there.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = |n: libc::off_t| u64::try_from(n).map_err(io::Error::other);
    Ok(match i32::from(lock.l_type) {
        libc::F_UNLCK => None,
        _ => Some((bytes(lock.l_start)?, bytes(lock.l_len)?)),
    })
}

fn byte_range(kind: libc::c_int, start: u64, len: u64) -> io::Result<libc::flock> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start.try_into().map_err(invalid)?,
        l_len: len.try_into().map_err(invalid)?,
        l_pid: 0,
    })
}
