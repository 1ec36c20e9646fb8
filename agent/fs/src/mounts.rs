//! Matches mounts and devices.

use super::{device::source_number, kind};
use drivebay_sys::mountinfo::MountEntry;

/// True if a mount is of this device: by number, and for btrfs (whose mounts have numbers of their own) by the number of its
/// source's name. A source that is missing in sysfs matches no device.
pub fn is_mount_of(entry: &MountEntry, dev: (u32, u32)) -> bool {
    entry.dev == dev
        || (kind::has_anonymous_device(&entry.fs_type) && source_number(entry) == Some(dev))
}
