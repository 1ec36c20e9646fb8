//! How a disk is attached, derived from its place in sysfs: transport, virtual kinds, and whether it runs.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::attrs::Node;
use drivebay_model::Transport;

/// Where a disk is in sysfs.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    path: String,
    kernel_name: String,
}

impl Place {
    /// `path` begins with `/devices`, `root` is where sysfs is.
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

    /// The device that the disk belongs to, as a path: without `block/<kernel name>`, which change.
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

    /// Whether some directory on the way is `prefix` and then a digit.
    pub(super) fn passes(&self, prefix: &str) -> bool {
        self.path
            .split('/')
            .any(|part| has_number_after(part, prefix))
    }

    /// SCSI logical unit number, when it is a SCSI disk.
    pub(super) fn lun(&self) -> Option<u64> {
        self.passes("target").then_some(())?;
        self.path.split('/').rev().find_map(|part| {
            let mut numbers = part.split(':');
            let lun = numbers.clone().nth(3)?;
            (numbers.by_ref().count() == 4).then(|| lun.parse().ok())?
        })
    }

    /// The nearest directory on the way up that has this attribute (usb's `idVendor`, for one).
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

/// Drivers that show something else than a disk, wherever they put it in sysfs, by kernel name.
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

/// The kind of virtual device; None for a real disk. NVMe is none: a namespace with several paths has its
/// head under /sys/devices/virtual, and NVMe over a network is known by its transport.
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

/// How it is attached.
pub(super) fn transport(place: &Place, disk: &Node) -> io::Result<Transport> {
    if has_number_after(place.kernel_name(), "loop") {
        return Ok(Transport::Loop);
    }
    if place.is_nvme() {
        return nvme_transport(place, disk);
    }
    Ok(match () {
        // The network ones first: an HBA that offers them may itself sit behind anything.
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

/// Controllers of a namespace: its parent, or for a head with several paths all of the subsystem's.
fn nvme_controllers(disk: &Node) -> io::Result<Vec<Node>> {
    let device = disk.child("device");
    if !device.exists("subsysnqn")? || device.exists("transport")? {
        return Ok(vec![device]);
    }
    Ok(device
        .list()?
        .into_iter()
        // Controllers are nvme0; namespaces and paths (nvme0n1, nvme0c0n1) lie beside them.
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
    // No word from any controller and no PCI device above it: taken for remote, which is refused.
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

/// The state of its device when it is not the running one.
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
        // One live path is enough.
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
