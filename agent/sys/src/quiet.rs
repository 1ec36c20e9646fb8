//! Evidence that nothing writes to a block device.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
};

use super::{blockstat, path};

fn open(name: &str, dev: (u32, u32), flags: i32) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | flags;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags)
        .open(path::node(name))?;
    match path::facts_of(&file)?.rdev == dev {
        true => Ok(file),
        false => Err(io::Error::other(format!("{name} is another device by now"))),
    }
}

/// Writes back what the page cache has of the device of this kernel name, with major and minor number `dev`, and flushes it. Errs with EBUSY, and
/// writes nothing back, while a filesystem is mounted from the device in any mount namespace or is still being unmounted, or a program has
/// it open exclusively. A program that has it open otherwise is not noticed. Blocks on the device; leaves it open nowhere.
pub fn write_back(name: &str, dev: (u32, u32)) -> io::Result<()> {
    drop(open(name, dev, libc::O_EXCL)?);
    // Also a drive that refuses writes is read. What could not be written back is lost, and a program that waited for it has the error.
    let _ = open(name, dev, 0)?.sync_all();
    Ok(())
}

/// Returns a number that each completed write and discard of the device of this kernel name increases; None if there is no such device. Equal
/// numbers before and after: nothing was written between the two. A flush alone, which the kernel counts as a write of no bytes, leaves it
/// as it is. Does not wait for the device.
pub fn writes(name: &str) -> io::Result<Option<u64>> {
    let counted = blockstat::counters(name)?;
    Ok(counted.map(|counted| counted.writes.bytes + counted.discards))
}
