//! Devices that are suspended, and the drives below devices: from sysfs, which waits for no I/O.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    time::Duration,
};

use super::{errors, is_gone, is_one};
use crate::{busy, ioctl, sysfs::attrs::Node};

/// A suspended device-mapper device: all I/O to it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspended {
    pub kernel_name: String,
    /// Device-mapper name, as in `dm/name` of sysfs.
    pub name: String,
    /// Device-mapper uuid; empty if it has none.
    pub uuid: String,
    /// Device-mapper name of the only device below it besides that of errors, if that is a device-mapper device, too.
    pub on: Option<String>,
}

/// Returns the device-mapper devices that are suspended. One that is removed meanwhile is left out.
pub fn suspended(sys: &Path) -> io::Result<Vec<Suspended>> {
    let block = sys.join("class/block");
    let mut devices = Vec::new();
    for kernel_name in Node::at(block.clone()).list()? {
        if !is_one(&kernel_name) {
            continue;
        }
        let read = || -> io::Result<Option<Suspended>> {
            let node = Node::open(block.join(&kernel_name))?;
            if node.strictly("dm/suspended")? != "1" {
                return Ok(None);
            }
            let mut below = node.child("slaves").list()?;
            if below.len() > 1 {
                below.retain(|name| !errors::is_it(sys, name));
            }
            let on = match below.as_slice() {
                [below] if is_one(below) => {
                    Some(Node::open(block.join(below))?.strictly("dm/name")?)
                }
                _ => None,
            };
            Ok(Some(Suspended {
                on,
                name: node.strictly("dm/name")?,
                uuid: node.strictly("dm/uuid")?,
                kernel_name: kernel_name.clone(),
            }))
        };
        match read() {
            Ok(device) => devices.extend(device),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(devices)
}

/// Returns the kernel names of the drives (or partitions) below a device-mapper device, through all layers in between. An unplugged one is
/// included.
pub fn drives_below(sys: &Path, kernel_name: &str) -> io::Result<BTreeSet<String>> {
    let mut drives = BTreeSet::new();
    let mut left = vec![kernel_name.to_owned()];
    while let Some(name) = left.pop() {
        let slaves = sys.join("class/block").join(name).join("slaves");
        for slave in Node::at(slaves).list()? {
            if is_one(&slave) {
                left.push(slave);
            } else {
                drives.insert(slave);
            }
        }
    }
    Ok(drives)
}

/// Holds the flock of a drive (`BlockDev::lock`) until dropped. The identity of the drive is not checked.
#[derive(Debug)]
pub struct DriveLock {
    _file: File,
}

/// Takes the flock of the drive of this kernel name, waiting `limit` at most. None: another process held it all the time.
///
/// # Errors
/// NotFound, ENXIO, ENODEV: there is no such drive.
pub fn lock_drive(kernel_name: &str, limit: Duration) -> io::Result<Option<DriveLock>> {
    lock(&Path::new("/dev").join(kernel_name), limit)
}

fn lock(node: &Path, limit: Duration) -> io::Result<Option<DriveLock>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(node)?;
    let attempt = || match ioctl::try_flock(file.as_fd(), true)? {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    };
    match busy::retry(limit, attempt) {
        Ok(()) => Ok(Some(DriveLock { _file: file })),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn suspended_devices_are_listed_and_one_that_goes_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let block = dir.path().join("class/block");
        for (kernel_name, suspended) in [("dm-1", "1\n"), ("dm-2", "0\n"), ("sda", "1\n")] {
            let dm = block.join(kernel_name).join("dm");
            fs::create_dir_all(&dm).unwrap();
            fs::write(dm.join("suspended"), suspended).unwrap();
            fs::write(dm.join("name"), format!("vg-{kernel_name}\n")).unwrap();
            fs::write(dm.join("uuid"), format!("LVM-{kernel_name}\n")).unwrap();
        }
        fs::create_dir_all(block.join("dm-1/slaves/dm-2")).unwrap();
        // As if it were removed between the listing and the reading.
        fs::create_dir_all(block.join("dm-3")).unwrap();
        let devices = suspended(dir.path()).unwrap();
        let expected = Suspended {
            kernel_name: "dm-1".into(),
            name: "vg-dm-1".into(),
            uuid: "LVM-dm-1".into(),
            on: Some("vg-dm-2".into()),
        };
        assert_eq!(devices, [expected]);
    }

    #[test]
    fn the_drives_below_a_device_are_found_through_all_that_lies_between() {
        let dir = tempfile::tempdir().unwrap();
        for (device, below) in [
            ("dm-1", &["dm-2"][..]),
            ("dm-2", &["sda"][..]),
            ("dm-3", &["dm-2", "dm-4"][..]),
            ("dm-4", &["sdb"][..]),
        ] {
            for slave in below {
                let slave = format!("class/block/{device}/slaves/{slave}");
                fs::create_dir_all(dir.path().join(slave)).unwrap();
            }
        }
        let below = |name| Vec::from_iter(drives_below(dir.path(), name).unwrap());
        assert_eq!(below("dm-1"), ["sda"]);
        assert_eq!(below("dm-3"), ["sda", "sdb"]);
        assert!(drives_below(dir.path(), "dm-9").is_err());
    }

    #[test]
    fn a_lock_is_had_by_one_at_a_time_and_only_of_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join("sda");
        let take = || lock(&node, Duration::from_millis(20));
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&node, "").unwrap();
        let held = take().unwrap().unwrap();
        assert!(take().unwrap().is_none());
        drop(held);
        assert!(take().unwrap().is_some());
    }
}
