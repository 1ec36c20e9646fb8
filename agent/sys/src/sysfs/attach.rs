//! Attachment of a disk, derived from its path in sysfs: transport, virtual kinds, and device state.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::attrs::Node;
use drivebay_model::Transport;

/// Path of a disk in sysfs.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    path: String,
    kernel_name: String,
}

impl Place {
    /// `path` begins with `/devices`; `root` is the directory of sysfs.
    pub(super) fn new(root: &Path, path: String, kernel_name: &str) -> Self {
        Self {
            root: root.to_owned(),
            path,
            kernel_name: kernel_name.to_owned(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Returns the path of the disk's device, without `block/<kernel name>`, which changes.
    pub(super) fn device_path(&self) -> &str {
        let parent = self.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if self.is_virtual() {
            &self.path
        } else {
            parent.strip_suffix("/block").unwrap_or(&self.path)
        }
    }

    pub(super) fn is_nvme(&self) -> bool {
        has_number_after(&self.kernel_name, "nvme")
    }

    fn is_virtual(&self) -> bool {
        self.path.starts_with("/devices/virtual/")
    }

    /// True if a directory of the path is `prefix` followed by a digit.
    pub(super) fn passes(&self, prefix: &str) -> bool {
        self.path
            .split('/')
            .any(|part| has_number_after(part, prefix))
    }

    /// Returns the SCSI logical unit number; None if it is no SCSI disk.
    pub(super) fn lun(&self) -> Option<u64> {
        self.passes("target").then_some(())?;
        self.path.split('/').rev().find_map(|part| {
            let mut numbers = part.split(':');
            let lun = numbers.clone().nth(3)?;
            (numbers.by_ref().count() == 4).then(|| lun.parse().ok())?
        })
    }

    /// Returns the nearest parent directory that has this attribute (for example usb's `idVendor`).
    pub(super) fn ancestor_with(&self, attribute: &str) -> io::Result<Option<Node>> {
        let mut path = Path::new(&self.path).parent();
        while let Some(here) = path.filter(|here| here.components().count() > 2) {
            let node = Node::at(self.root.join(here.strip_prefix("/").unwrap_or(here)));
            if node.exists(attribute)? {
                return Ok(Some(node));
            }
            path = here.parent();
        }
        Ok(None)
    }
}

fn has_number_after(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .and_then(|rest| rest.chars().next())
        .is_some_and(|c| c.is_ascii_digit())
}

/// Prefixes of kernel names, with their kinds, of drivers whose devices are no disks, wherever they are in sysfs.
const NOT_DISKS: &[(&str, &str)] = &[
    ("loop", "loop"),
    ("ram", "ram"),
    ("zram", "zram"),
    ("dm-", "dm"),
    ("md", "md"),
    ("md_d", "md"),
    ("nbd", "nbd"),
    ("rbd", "rbd"),
    ("zd", "zd"),
    ("drbd", "drbd"),
    ("mtdblock", "mtd"),
    ("bcache", "bcache"),
    ("fd", "fd"),
    ("sr", "sr"),
    ("scd", "sr"),
    ("ublkb", "ublk"),
    ("nullb", "null"),
];

/// Returns the kind of a virtual device; None for a real disk. NVMe is real: a namespace with several paths has its head under
/// /sys/devices/virtual, and NVMe over a network has a transport of its own.
pub(super) fn virtual_kind(place: &Place) -> Option<String> {
    let name = place.kernel_name();
    if let Some((_, kind)) = NOT_DISKS
        .iter()
        .find(|(prefix, _)| has_number_after(name, prefix))
    {
        return Some((*kind).to_owned());
    }
    // A named md array (md_home) has no number.
    if name.starts_with("md_") {
        return Some("md".to_owned());
    }
    (place.is_virtual() && !place.is_nvme()).then(|| {
        name.trim_end_matches(|c: char| c.is_ascii_digit())
            .to_owned()
    })
}

/// Derives the transport of a disk.
pub(super) fn transport(place: &Place, disk: &Node) -> io::Result<Transport> {
    if has_number_after(place.kernel_name(), "loop") {
        return Ok(Transport::Loop);
    }
    if place.is_nvme() {
        return nvme_transport(place, disk);
    }
    Ok(match () {
        // Network transports first: their HBA may be behind any other transport.
        () if place.passes("session") => Transport::Iscsi,
        () if place.passes("rport-") => Transport::Fc,
        () if place.passes("usb") => Transport::Usb,
        () if place.passes("end_device-") => Transport::Sas,
        () if place.passes("ata") => Transport::Sata,
        () if place.passes("virtio") => Transport::Virtio,
        () if place.passes("mmc") => Transport::Mmc,
        () if place.passes("target") => Transport::Scsi,
        () => Transport::Unknown,
    })
}

/// Returns the controllers of a namespace: its parent, or for a head with several paths all of the subsystem's.
fn nvme_controllers(disk: &Node) -> io::Result<Vec<Node>> {
    let device = disk.child("device");
    if !device.exists("subsysnqn")? || device.exists("transport")? {
        return Ok(vec![device]);
    }
    Ok(device
        .list()?
        .into_iter()
        // Controllers are nvme0; namespaces and paths (nvme0n1, nvme0c0n1) are in the same directory.
        .filter(|name| {
            name.strip_prefix("nvme")
                .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
        })
        .map(|name| device.child(&name))
        .collect())
}

fn nvme_transport(place: &Place, disk: &Node) -> io::Result<Transport> {
    let mut transports = Vec::new();
    for controller in nvme_controllers(disk)? {
        transports.extend(controller.text("transport")?);
    }
    let through_pci = place.path().starts_with("/devices/pci");
    // No controller reports a transport and there is no PCI device above: treated as remote, which is refused.
    Ok(
        match transports
            .iter()
            .all(|transport| transport == "pcie" || transport == "apple-nvme")
        {
            true if through_pci || !transports.is_empty() => Transport::Nvme,
            _ => Transport::NvmeOf,
        },
    )
}

/// Returns the state of the device if it is not running.
pub(super) fn not_running(place: &Place, disk: &Node) -> io::Result<Option<String>> {
    if place.is_nvme() {
        let mut states = Vec::new();
        for controller in nvme_controllers(disk)? {
            states.push(
                controller
                    .text("state")?
                    .unwrap_or_else(|| "unknown".to_owned()),
            );
        }
        // One live path suffices.
        return Ok(match states.iter().any(|state| state == "live") {
            true => None,
            false => Some(
                states
                    .first()
                    .map_or_else(|| "no controller".to_owned(), Clone::clone),
            ),
        });
    }
    if place.passes("target") {
        let state = disk
            .text("device/state")?
            .unwrap_or_else(|| "unknown".to_owned());
        return Ok((state != "running").then_some(state));
    }
    Ok(disk.flag("dm/suspended")?.then(|| "suspended".to_owned()))
}
