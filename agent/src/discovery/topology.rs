//! Which block device stands on which: partitions on disks, dm and md on their slaves.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use super::attrs::Node;

/// All block devices by name and number.
#[derive(Debug)]
pub(super) struct Topology {
    sys: PathBuf,
    devices: BTreeMap<String, Device>,
}

#[derive(Debug)]
struct Device {
    number: Option<(u32, u32)>,
    /// The disk, for a partition.
    parent: Option<String>,
    slaves: Vec<String>,
    dm_name: Option<String>,
    backing_file: Option<String>,
}

impl Topology {
    pub(super) fn read(sys: &Path) -> io::Result<Self> {
        let mut devices = BTreeMap::new();
        for name in Node::at(sys.join("class/block")).list()? {
            if let Some(device) = Device::read(&sys.join("class/block").join(&name))? {
                devices.insert(name, device);
            }
        }
        Ok(Self {
            sys: sys.to_owned(),
            devices,
        })
    }

    pub(super) fn by_number(&self, number: (u32, u32)) -> Option<String> {
        self.devices
            .iter()
            .find(|(_, device)| device.number == Some(number))
            .map(|(name, _)| name.clone())
    }

    /// The device of a node under /dev: by its kernel name, a dm device's name, or what a link resolves to.
    pub(super) fn by_node(&self, node: &str) -> Option<String> {
        let node = node.strip_suffix(" (deleted)").unwrap_or(node);
        let rest = node.strip_prefix("/dev/")?;
        let kernel_name = rest.replace('/', "!");
        if self.devices.contains_key(&kernel_name) {
            return Some(kernel_name);
        }
        if let Some(dm_name) = rest.strip_prefix("mapper/") {
            let found = self
                .devices
                .iter()
                .find(|(_, device)| device.dm_name.as_deref() == Some(dm_name));
            if let Some((name, _)) = found {
                return Some(name.clone());
            }
        }
        // A link such as /dev/disk/by-uuid/…: /dev is in memory, resolving it asks no drive.
        let real = Path::new(node).canonicalize().ok()?;
        let name = real.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
        self.devices.contains_key(&name).then_some(name)
    }

    /// The devices of every mounted btrfs that one of these belongs to.
    pub(super) fn btrfs_siblings(&self, names: &BTreeSet<String>) -> io::Result<BTreeSet<String>> {
        let all = Node::at(self.sys.join("fs/btrfs"));
        let mut siblings = BTreeSet::new();
        let ids = match all.list() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(siblings),
            other => other?,
        };
        for id in ids {
            // `features` lies beside the filesystems and has no devices.
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

    /// The file behind a loop device.
    pub(super) fn backing_file(&self, name: &str) -> Option<String> {
        self.devices.get(name)?.backing_file.clone()
    }

    /// Every disk on the way down from a device: the virtual ones it passes and those at the bottom.
    pub(super) fn whole_disks(&self, name: &str) -> io::Result<BTreeSet<String>> {
        let mut disks = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let device = self.devices.get(&name).ok_or_else(|| {
                io::Error::other(format!(
                    "block device {name} went away while the host's use of drives was read"
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
    /// None when it vanished.
    fn read(link: &Path) -> io::Result<Option<Self>> {
        let real = match link.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let parent = real
            .parent()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned());
        let node = Node::at(real);
        let slaves = match node.child("slaves").list() {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        Ok(Some(Self {
            number: node.text("dev")?.and_then(|text| {
                let (major, minor) = text.split_once(':')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            }),
            parent: parent.filter(|_| node.exists("partition").unwrap_or(false)),
            slaves,
            dm_name: node.text("dm/name")?,
            backing_file: node.text("loop/backing_file")?,
        }))
    }
}
