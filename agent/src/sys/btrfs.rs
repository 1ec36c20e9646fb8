//! btrfs ioctls.

use std::{fs::File, io, os::fd::AsRawFd, path::Path};

nix::ioctl_none!(
    /// BTRFS_IOC_SCRUB_CANCEL.
    scrub_cancel,
    0x94,
    28
);

/// Ends the scrub of the filesystem that is mounted there, and waits until it has ended, which takes as long as the requests that are on their way. False when there is none.
pub fn cancel_scrub(at: &Path) -> io::Result<bool> {
    let file = File::open(at)?;
    // SAFETY: an ioctl without an argument, on a descriptor that is open.
    match unsafe { scrub_cancel(file.as_raw_fd()) } {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::ENOTCONN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
