//! Evidence that nothing writes to a block device.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::sys::stat::{major, minor};

use super::blockstat;

fn open(node: &Path, dev: (u32, u32), flags: i32) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | flags;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(node)?;
    let number = file.metadata()?.rdev();
    match (u64::from(dev.0), u64::from(dev.1)) == (major(number), minor(number)) {
        true => Ok(file),
        false => Err(io::Error::other(format!(
            "{} is another device by now",
            node.display()
        ))),
    }
}

/// Writes back what the page cache has of the device at `node`, with major and minor number `dev`, and flushes it. Errs with EBUSY, and
/// writes nothing back, while a filesystem is mounted from the device in any mount namespace or is still being unmounted, or a program has
/// it open exclusively. A program that has it open otherwise is not noticed. Blocks on the device; leaves it open nowhere.
pub fn write_back(node: &Path, dev: (u32, u32)) -> io::Result<()> {
    drop(open(node, dev, libc::O_EXCL)?);
    // Also a drive that refuses writes is read. What could not be written back is lost, and a program that waited for it has the error.
    let _ = open(node, dev, 0)?.sync_all();
    Ok(())
}

/// Returns a number that each completed write and discard of the device of this kernel name increases; None if there is no such device. Equal
/// numbers before and after: nothing was written between the two. A flush alone, which the kernel counts as a write of no bytes, leaves it
/// as it is. Does not wait for the device.
pub fn writes(name: &str) -> io::Result<Option<u64>> {
    let counted = blockstat::counters(name)?;
    Ok(counted.map(|counted| counted.writes.bytes + counted.discards))
}
