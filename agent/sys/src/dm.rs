//! Device-mapper devices: reads them from sysfs and the kernel's own table, which never accesses a drive, and removes them from the kernel.
//! `change` suspends and resumes them and swaps their tables.

use std::{collections::BTreeSet, fs, io, path::Path};

mod below;
mod change;
mod control;
mod errors;
mod reader;

use self::control::{named, remove};
pub use self::{
    below::{DriveLock, Suspended, drives_below, lock_drive, suspended},
    change::{Control, Target},
    control::{DmStatus, SnapshotStatus, has_target, is_open, snapshot_status},
    errors::{create_over, map_over, unavailable as lossy_unavailable},
    reader::{Reader, Writer},
};
use super::{
    mountinfo::parse_dev,
    sysfs::{self, attrs::Node},
};

/// An active device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmDevice {
    /// Kernel name, e.g. `dm-3`.
    pub kernel_name: String,
    pub dev: (u32, u32),
    /// Device-mapper name, for example `vg-lv`.
    pub name: String,
    /// Device-mapper uuid; `LVM-` and the uuids of VG and LV without hyphens for a logical volume.
    pub uuid: String,
    pub size_bytes: u64,
    /// Kernel names of the devices below it, without the device of errors.
    pub slaves: Vec<String>,
    /// True if all devices below were unplugged: all I/O to it fails from then on.
    pub orphaned: bool,
    /// True if I/O to it waits (`dmsetup suspend`).
    pub suspended: bool,
}

/// Returns the devices of these device-mapper uuids, and all others on the drive of this kernel name. Devices of other drives are not read,
/// so that their number does not matter. A device that is removed meanwhile is left out.
pub fn of_drive<'a>(
    sys: &Path,
    drive: &str,
    uuids: impl Iterator<Item = &'a str>,
) -> io::Result<Vec<DmDevice>> {
    let mut names = holders(sys, drive)?;
    let mut devices = Vec::new();
    let mut keep = |read: io::Result<DmDevice>| match read {
        Ok(device) => {
            devices.push(device);
            Ok(())
        }
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    };
    for named in named(sys, uuids)? {
        names.remove(&named.kernel_name);
        keep(on(sys, named))?;
    }
    for name in names {
        keep(read(sys, &name))?;
    }
    devices.sort_by(|a, b| a.kernel_name.cmp(&b.kernel_name));
    Ok(devices)
}

impl DmDevice {
    /// True if the device is directly on this drive, or was on a drive that was unplugged. A copy of a drive has LVs of the same uuids, so
    /// a device of the right uuid may be on another drive.
    pub fn stands_on(&self, drive: &str) -> bool {
        self.orphaned || self.slaves.iter().any(|slave| slave == drive)
    }

    /// True if the device is over this one alone, which was not unplugged.
    pub fn is_over(&self, kernel_name: &str) -> bool {
        !self.orphaned && self.slaves == [kernel_name]
    }
}

/// Returns the device of this uuid among those from `of_drive`, if it is on the drive: directly, or, as a snapshot is, on other devices of
/// the drive.
pub fn on_drive<'d>(devices: &'d [DmDevice], drive: &str, uuid: &str) -> Option<&'d DmDevice> {
    let device = devices.iter().find(|device| device.uuid == uuid)?;
    let below = |slave: &String| {
        let mut all = devices.iter();
        all.any(|one| one.kernel_name == *slave && one.stands_on(drive))
    };
    (device.stands_on(drive) || device.slaves.iter().any(below)).then_some(device)
}

/// Returns the device of this uuid if it is mapped over the device of this kernel name. One that was over a device that is gone is returned
/// as well: it is dead, and `orphaned`.
pub fn mapped_over(sys: &Path, kernel_name: &str, uuid: &str) -> io::Result<Option<DmDevice>> {
    let devices = of_drive(sys, kernel_name, std::iter::once(uuid))?;
    Ok(on_drive(&devices, kernel_name, uuid).cloned())
}

/// Removes the device of this uuid from the kernel; false if there is none.
///
/// # Errors
/// EBUSY while it is open.
pub fn remove_mapped(uuid: &str) -> io::Result<bool> {
    match named(Path::new("/sys"), std::iter::once(uuid))?.is_empty() {
        true => Ok(false),
        false => remove(uuid),
    }
}

/// Removes the device of this uuid from the kernel if it is on this drive; false if there is none on it.
///
/// # Errors
/// EBUSY while it is open.
pub fn remove_from(sys: &Path, drive: &str, uuid: &str) -> io::Result<bool> {
    let devices = of_drive(sys, drive, std::iter::once(uuid))?;
    match on_drive(&devices, drive, uuid) {
        Some(_) => remove(uuid),
        None => Ok(false),
    }
}

/// Returns the kernel names of the device-mapper devices directly on a drive.
fn holders(sys: &Path, drive: &str) -> io::Result<BTreeSet<String>> {
    let names = Node::at(sys.join("class/block").join(drive).join("holders")).list()?;
    Ok(names.into_iter().filter(|name| is_one(name)).collect())
}

/// True if this is a kernel name of a device-mapper device.
pub fn is_one(kernel_name: &str) -> bool {
    kernel_name.starts_with("dm-")
}

/// Returns the device-mapper uuid and the number of a device; None if it was removed.
pub fn identify(sys: &Path, kernel_name: &str) -> io::Result<Option<(String, (u32, u32))>> {
    let device = Node::at(sys.join("class/block").join(kernel_name));
    let (uuid, number) = (device.text("dm/uuid")?, device.text("dev")?);
    Ok(uuid.zip(number.as_deref().and_then(parse_dev)))
}

/// Returns the number of the device of this device-mapper name; None if there is none. `node` is its node: where udevd created it, a link
/// to the node of the kernel name.
pub fn number_of(sys: &Path, node: &Path, name: &str) -> Option<(u32, u32)> {
    let is_named = |kernel_name: &str| {
        let device = Node::at(sys.join("class/block").join(kernel_name));
        let actual = device.text("dm/name").ok()??;
        (actual == name).then(|| parse_dev(&device.text("dev").ok()??))?
    };
    let linked = fs::read_link(node).ok();
    let linked = linked.as_deref().and_then(|to| to.file_name()?.to_str());
    // The link may be late, or the node may be no link.
    linked.and_then(is_named).or_else(|| {
        let all = Node::at(sys.join("class/block")).list().ok()?;
        all.iter()
            .filter(|name| is_one(name))
            .find_map(|name| is_named(name))
    })
}

/// Reads the device of this kernel name.
pub fn read(sys: &Path, kernel_name: &str) -> io::Result<DmDevice> {
    let node = Node::open(sys.join("class/block").join(kernel_name))?;
    let number = node.strictly("dev")?;
    let named = DmStatus {
        kernel_name: kernel_name.to_owned(),
        dev: parse_dev(&number).ok_or_else(|| invalid(&node, "dev"))?,
        name: node.strictly("dm/name")?,
        // The uuid may be empty.
        uuid: node.strictly("dm/uuid")?,
        suspended: node.strictly("dm/suspended")? == "1",
    };
    standing(sys, &node, named)
}

/// Completes the status of a device from sysfs. NotFound if its kernel name belongs to another device meanwhile.
fn on(sys: &Path, named: DmStatus) -> io::Result<DmDevice> {
    let node = Node::open(sys.join("class/block").join(&named.kernel_name))?;
    if node.strictly("dm/uuid")? != named.uuid {
        return Err(io::ErrorKind::NotFound.into());
    }
    standing(sys, &node, named)
}

/// Adds size, devices below and `orphaned` to the status of a device.
fn standing(sys: &Path, node: &Node, named: DmStatus) -> io::Result<DmDevice> {
    let below = node.child("slaves");
    let mut slaves = below.list()?;
    slaves.sort();
    if slaves.len() > 1 {
        slaves.retain(|slave| !errors::is_it(sys, slave));
    }
    // The links remain until the device is removed; their targets are gone with the drive.
    let gone = |name: &String| below.exists(name).map(|is| !is);
    let gone = slaves.iter().map(gone).collect::<io::Result<Vec<_>>>()?;
    if let [under] = slaves.as_slice()
        && is_one(under)
        && real_of(sys, under).is_some_and(|origin| origin == named.uuid)
    {
        // While it has a snapshot, it is on a device of its own (`-real`): the devices below that one count.
        let real = read(sys, under)?;
        return Ok(DmDevice {
            suspended: named.suspended || real.suspended,
            kernel_name: named.kernel_name,
            dev: named.dev,
            name: named.name,
            uuid: named.uuid,
            ..real
        });
    }
    let sectors: u64 = node
        .strictly("size")?
        .parse()
        .map_err(|_| invalid(node, "size"))?;
    Ok(DmDevice {
        kernel_name: named.kernel_name,
        dev: named.dev,
        name: named.name,
        uuid: named.uuid,
        size_bytes: sectors.saturating_mul(512),
        orphaned: !slaves.is_empty() && gone.iter().all(|gone| *gone),
        slaves,
        suspended: named.suspended,
    })
}

fn invalid(node: &Node, what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{node} has an unexpected {what}"),
    )
}

/// Returns the uuid of the LV whose data this device holds while the LV has snapshots: LVM names it `<uuid>-real`. None for other devices.
fn real_of(sys: &Path, kernel_name: &str) -> Option<String> {
    let uuid = sysfs::dm_uuid(sys, kernel_name).ok()??;
    uuid.strip_suffix("-real").map(str::to_owned)
}

/// True if the device was removed. Device-mapper's own attributes give EINVAL while their device is being removed.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_snapshot_stands_on_the_drive_of_the_devices_below_it() {
        let device = |name: &str, slaves: &[&str]| DmDevice {
            kernel_name: name.to_owned(),
            dev: (253, 0),
            name: name.to_owned(),
            uuid: format!("LVM-{name}"),
            size_bytes: 1,
            slaves: slaves.iter().map(|slave| (*slave).to_owned()).collect(),
            orphaned: false,
            suspended: false,
        };
        let devices = [
            device("dm-1", &["sda"]),
            device("dm-2", &["sda"]),
            device("dm-3", &["dm-1", "dm-2"]),
            device("dm-4", &["sdb"]),
            device("dm-5", &["dm-9"]),
        ];
        for (name, expected) in [
            ("dm-1", true),
            ("dm-3", true),
            ("dm-4", false),
            ("dm-5", false),
        ] {
            let uuid = format!("LVM-{name}");
            assert_eq!(
                on_drive(&devices, "sda", &uuid).is_some(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_device_is_found_by_its_name_with_a_link_that_is_right_and_without() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        for (kernel_name, name, dev) in [("dm-3", "vg-a", "253:3"), ("dm-4", "vg-b", "253:4")] {
            let at = sys.join("class/block").join(kernel_name);
            fs::create_dir_all(at.join("dm")).unwrap();
            fs::write(at.join("dm/name"), format!("{name}\n")).unwrap();
            fs::write(at.join("dev"), format!("{dev}\n")).unwrap();
        }
        let link = |to: &str| {
            let node = sys.join(to);
            symlink(format!("../{to}"), &node).unwrap();
            node
        };
        // Link to the device, link to another one, no link.
        for node in [link("dm-4"), link("dm-3"), sys.join("none")] {
            assert_eq!(number_of(sys, &node, "vg-b"), Some((253, 4)), "{node:?}");
            assert_eq!(number_of(sys, &node, "vg-c"), None, "{node:?}");
        }
    }

    #[test]
    fn a_device_on_a_drive_that_cannot_be_read_is_an_error_and_one_that_went_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let block = dir.path().join("class/block");
        let on_it = || of_drive(dir.path(), "sda", std::iter::empty());
        fs::create_dir_all(block.join("sda/holders/dm-3")).unwrap();
        assert_eq!(on_it().unwrap(), []);
        let device = block.join("dm-3");
        fs::create_dir_all(device.join("slaves")).unwrap();
        fs::create_dir_all(device.join("dm")).unwrap();
        for (file, text) in [
            ("dev", "253:3"),
            ("dm/name", "a"),
            ("dm/uuid", ""),
            ("dm/suspended", "0"),
        ] {
            fs::write(device.join(file), text).unwrap();
        }
        // A directory cannot be read as a file.
        fs::create_dir(device.join("size")).unwrap();
        assert!(on_it().is_err());
        fs::remove_dir(device.join("size")).unwrap();
        fs::write(device.join("size"), "8").unwrap();
        assert_eq!(on_it().unwrap()[0].size_bytes, 4096);
    }
}
