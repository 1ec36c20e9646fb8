//! Dependencies of block devices: partitions on disks, dm and md devices on their slaves.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use drivebay_sys::{
    dm,
    mountinfo::parse_dev,
    sysfs::{self, attrs::Node},
};

/// All block devices by name and number.
#[derive(Debug)]
pub(super) struct Topology {
    sys: PathBuf,
    devices: BTreeMap<String, Device>,
    // For the lookup of each mount of the host.
    by_number: HashMap<(u32, u32), String>,
    by_dm_name: HashMap<String, String>,
}

#[derive(Debug)]
struct Device {
    number: Option<(u32, u32)>,
    /// The disk of a partition.
    parent: Option<String>,
    slaves: Vec<String>,
    dm_name: Option<String>,
    backing_file: Option<String>,
}

impl Topology {
    pub(super) fn read(sys: &Path) -> io::Result<Self> {
        let all = sys.join("class/block");
        let names: BTreeSet<String> = Node::at(all.clone()).list()?.into_iter().collect();
        let mut devices = BTreeMap::new();
        // Opened once for a disk and its partitions, which are sorted after it.
        let mut disk: Option<(String, Node)> = None;
        for name in &names {
            let link = all.join(name);
            let target = match std::fs::read_link(&link) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            // A partition's directory is inside that of its disk.
            let parent = target.parent().and_then(Path::file_name);
            let parent = parent.map(|parent| parent.to_string_lossy().into_owned());
            let is_partition = |disk: &String| {
                names.contains(disk) && sysfs::partition_number(disk, name).is_some()
            };
            let read = match parent {
                Some(parent) if is_partition(&parent) => {
                    let opened = match disk.take() {
                        Some((open, node)) if open == parent => Ok(node),
                        _ => Node::open(all.join(&parent)),
                    };
                    opened.and_then(|node| {
                        let read = Device::partition(&node.child(name), parent.clone());
                        disk = Some((parent, node));
                        read
                    })
                }
                parent => Node::open(link).and_then(|node| {
                    // A partition whose disk was not listed, or whose name is not derived from its disk's.
                    let read = match (parent, node.exists("partition")?) {
                        (Some(parent), true) => Device::partition(&node, parent),
                        _ => Device::whole(&node, name),
                    };
                    disk = Some((name.clone(), node));
                    read
                }),
            };
            match read {
                Ok(device) => {
                    devices.insert(name.clone(), device);
                }
                // It disappeared meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let number = |(name, device): (&String, &Device)| Some((device.number?, name.clone()));
        let dm_name = |(name, device): (&String, &Device)| {
            let dm_name = device.dm_name.clone();
            Some((dm_name?, name.clone()))
        };
        Ok(Self {
            sys: sys.to_owned(),
            by_number: devices.iter().filter_map(number).collect(),
            by_dm_name: devices.iter().filter_map(dm_name).collect(),
            devices,
        })
    }

    pub(super) fn by_number(&self, number: (u32, u32)) -> Option<String> {
        self.by_number.get(&number).cloned()
    }

    /// Returns the device of a node under /dev: by its kernel name, a dm device's name, or the target of a link.
    pub(super) fn by_node(&self, node: &str) -> Option<String> {
        let node = node.strip_suffix(" (deleted)").unwrap_or(node);
        let rest = node.strip_prefix("/dev/")?;
        let kernel_name = rest.replace('/', "!");
        if self.devices.contains_key(&kernel_name) {
            return Some(kernel_name);
        }
        if let Some(dm_name) = rest.strip_prefix("mapper/")
            && let Some(name) = self.by_dm_name.get(dm_name)
        {
            return Some(name.clone());
        }
        // A link such as /dev/disk/by-uuid/…: /dev is in memory, so resolving it accesses no drive.
        let real = Path::new(node).canonicalize().ok()?;
        let name = real.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
        self.devices.contains_key(&name).then_some(name)
    }

    /// Returns the devices of every mounted btrfs that has one of these.
    pub(super) fn btrfs_siblings(&self, names: &BTreeSet<String>) -> io::Result<BTreeSet<String>> {
        let all = Node::at(self.sys.join("fs/btrfs"));
        let mut siblings = BTreeSet::new();
        let ids = match all.list() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(siblings),
            other => other?,
        };
        for id in ids {
            // `features` is in the same directory as the filesystems and has no devices.
            match all.child(&id).child("devices").list() {
                Ok(devices) if devices.iter().any(|device| names.contains(device)) => {
                    siblings.extend(devices)
                }
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(siblings)
    }

    /// Returns the path of the file behind a loop device.
    pub(super) fn backing_file(&self, name: &str) -> Option<String> {
        self.devices.get(name)?.backing_file.clone()
    }

    /// Returns all disks below a device: virtual ones in between and those at the bottom.
    pub(super) fn whole_disks(&self, name: &str) -> io::Result<BTreeSet<String>> {
        let mut disks = BTreeSet::new();
        let mut visited = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            if !visited.insert(name.clone()) {
                continue;
            }
            let device = self.devices.get(&name).ok_or_else(|| {
                io::Error::other(format!(
                    "block device {name} disappeared while the host's use of drives was read"
                ))
            })?;
            match &device.parent {
                Some(disk) => open.push(disk.clone()),
                None => {
                    open.extend(device.slaves.iter().cloned());
                    disks.insert(name);
                }
            }
        }
        Ok(disks)
    }
}

impl Device {
    fn partition(node: &Node, disk: String) -> io::Result<Self> {
        Ok(Self {
            number: number(node)?,
            parent: Some(disk),
            slaves: Vec::new(),
            dm_name: None,
            backing_file: None,
        })
    }

    fn whole(node: &Node, kernel_name: &str) -> io::Result<Self> {
        let below = node.child("slaves");
        let listed = match below.list() {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        // A mapped device that is held open keeps the link to an unplugged drive, dangling: that drive is no disk any more, and may remain
        // so while the mount exists.
        let mut slaves = Vec::new();
        for slave in listed {
            if below.exists(&slave)? {
                slaves.push(slave);
            }
        }
        let text_if = |has: bool, name| if has { node.text(name) } else { Ok(None) };
        Ok(Self {
            number: number(node)?,
            parent: None,
            slaves,
            dm_name: text_if(dm::is_one(kernel_name), "dm/name")?,
            backing_file: text_if(kernel_name.starts_with("loop"), "loop/backing_file")?,
        })
    }
}

fn number(node: &Node) -> io::Result<Option<(u32, u32)>> {
    Ok(node.text("dev")?.as_deref().and_then(parse_dev))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A drive and a mapped device on it, as in sysfs.
    fn mapped() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let (drive, mapped) = ("devices/pci/block/nvme0n1", "devices/virtual/block/dm-0");
        for (device, number) in [(drive, "259:1"), (mapped, "252:0")] {
            let path = sys.path().join(device);
            fs::create_dir_all(path.join("slaves")).unwrap();
            fs::write(path.join("dev"), number).unwrap();
            let link = sys.path().join("class/block");
            fs::create_dir_all(&link).unwrap();
            symlink(&path, link.join(path.file_name().unwrap())).unwrap();
        }
        let slave = sys.path().join(mapped).join("slaves/nvme0n1");
        symlink(sys.path().join(drive), slave).unwrap();
        sys
    }

    fn disks(sys: &Path) -> io::Result<Vec<String>> {
        disks_below(sys, "dm-0")
    }

    fn disks_below(sys: &Path, name: &str) -> io::Result<Vec<String>> {
        let disks = Topology::read(sys)?.whole_disks(name)?;
        Ok(disks.into_iter().collect())
    }

    #[test]
    fn a_partition_stands_on_its_disk_and_a_disk_inside_of_anothers_directory_on_itself() {
        let sys = tempfile::tempdir().unwrap();
        let link = sys.path().join("class/block");
        fs::create_dir_all(&link).unwrap();
        // A memory card with boot areas, which are disks, as the kernel shows it, and one disk whose partition has an unusual name.
        for (place, number, partition) in [
            ("mmcblk0", "179:0", false),
            ("mmcblk0/mmcblk0p1", "179:1", true),
            ("mmcblk0/mmcblk0boot0", "179:8", false),
            ("odd", "8:0", false),
            ("odd/odd-first", "8:1", true),
        ] {
            let path = sys.path().join("devices/mmc0/block").join(place);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("dev"), number).unwrap();
            if partition {
                fs::write(path.join("partition"), "1").unwrap();
            }
            let name = path.file_name().unwrap();
            let target = Path::new("../../devices/mmc0/block").join(place);
            symlink(target, link.join(name)).unwrap();
        }
        for (name, disk) in [
            ("mmcblk0", "mmcblk0"),
            ("mmcblk0p1", "mmcblk0"),
            ("mmcblk0boot0", "mmcblk0boot0"),
            ("odd-first", "odd"),
        ] {
            assert_eq!(disks_below(sys.path(), name).unwrap(), [disk], "{name}");
        }
        let topology = Topology::read(sys.path()).unwrap();
        let numbers = [(179, 1), (179, 8), (8, 1)].map(|number| topology.by_number(number));
        assert_eq!(
            numbers.map(Option::unwrap),
            ["mmcblk0p1", "mmcblk0boot0", "odd-first"]
        );
    }

    #[test]
    fn a_device_that_may_be_a_partition_is_no_disk() {
        let sys = mapped();
        let unreadable = sys.path().join("devices/virtual/block/dm-0/partition");
        // A link to itself: accessing it fails, which does not prove that it is absent.
        symlink(&unreadable, &unreadable).unwrap();
        assert!(disks(sys.path()).is_err());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a directory of this test's own")]
    fn a_partition_whose_disk_was_not_listed_is_no_disk() {
        let sys = tempfile::tempdir().unwrap();
        let partition = sys.path().join("devices/block/sda/sda1");
        let link = sys.path().join("class/block");
        fs::create_dir_all(&link).unwrap();
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("dev"), "8:1").unwrap();
        fs::write(partition.join("partition"), "1").unwrap();
        symlink(&partition, link.join("sda1")).unwrap();
        assert!(disks_below(sys.path(), "sda1").is_err());
    }

    #[test]
    fn a_mapped_device_stands_on_its_slaves_while_they_exist() {
        let sys = mapped();
        assert_eq!(disks(sys.path()).unwrap(), ["dm-0", "nvme0n1"]);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a directory of this test's own")]
    fn a_drive_pulled_from_under_a_mapped_device_fails_no_scan() {
        let sys = mapped();
        fs::remove_dir_all(sys.path().join("devices/pci")).unwrap();
        fs::remove_file(sys.path().join("class/block/nvme0n1")).unwrap();
        assert_eq!(disks(sys.path()).unwrap(), ["dm-0"]);
    }

    #[test]
    fn a_slave_that_was_not_there_when_the_devices_were_listed_is_not_passed_over() {
        let sys = mapped();
        fs::remove_file(sys.path().join("class/block/nvme0n1")).unwrap();
        assert!(disks(sys.path()).is_err());
    }
}
