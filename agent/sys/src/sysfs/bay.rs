//! Physical location of a drive: its slot in an SES enclosure, and its PCIe slot. Read from attributes that the kernel keeps in memory:
//! those for which it queries the enclosure (`status`, `fault`, `locate`) are not read.

use std::{fs, io, path::Path};

use super::{attach::Place, attrs::Node};
use drivebay_model::Bay;

/// Prefix of the link from a SCSI device to its slot in an enclosure (drivers/misc/enclosure.c).
const ENCLOSURE_LINK: &str = "enclosure_device:";

/// Reads the location of a disk; unknown fields are empty.
pub(super) fn bay(root: &Path, place: &Place, disk: &Node) -> io::Result<Bay> {
    let mut bay = Bay {
        pcie_slot: pcie_slot(root, place)?,
        ..Bay::default()
    };
    if let Some(component) = component(disk)? {
        bay.slot = match component.text("slot")? {
            Some(number) => number,
            None => component.name(),
        };
        let enclosure = component.parent();
        let id = enclosure.text("id")?.filter(|id| !id.is_empty());
        bay.enclosure = id.unwrap_or_else(|| enclosure.name());
    }
    Ok(bay)
}

/// Returns the sysfs directory of the disk's slot in an enclosure; None if the kernel has none.
pub(crate) fn component(disk: &Node) -> io::Result<Option<Node>> {
    let device = disk.child("device");
    if !disk.exists("device")? {
        return Ok(None);
    }
    let names = device.list()?;
    let link = names.iter().find(|name| name.starts_with(ENCLOSURE_LINK));
    link.map(|link| device.resolved(link)).transpose()
}

/// Returns the PCI functions above the disk, the nearest first, as 0000:3b:00.0.
pub(crate) fn pci_functions(path: &str) -> Vec<&str> {
    // DOMAIN:BUS:DEVICE.FUNCTION; domains of VMD have more digits.
    let is_hex = |text: &str, len: usize| {
        text.len() >= len && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_function = |part: &&str| {
        let mut fields = part.split([':', '.']);
        let of = |len: usize| fields.next().is_some_and(|field| is_hex(field, len));
        [4, 2, 2, 1].into_iter().all(of) && part.split([':', '.']).count() == 4
    };
    path.split('/').rev().filter(is_function).collect()
}

/// Returns the name of the nearest PCIe slot; empty if the host names none.
fn pcie_slot(root: &Path, place: &Place) -> io::Result<String> {
    let functions = pci_functions(place.path());
    if functions.is_empty() {
        return Ok(String::new());
    }
    let slots = root.join("bus/pci/slots");
    let mut named: Vec<(String, String)> = Vec::new();
    match fs::read_dir(&slots) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        entries => {
            for entry in entries? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let address = Node::at(slots.join(&name)).text("address")?;
                named.extend(address.map(|address| (address, name)));
            }
        }
    }
    // A slot's address has no function: 0000:3b:00.
    let slot_of = |function: &&str| {
        let address = function
            .rsplit_once('.')
            .map_or(*function, |(address, _)| address);
        let mut named = named.iter();
        named
            .find(|(of, _)| of == address)
            .map(|(_, name)| name.clone())
    };
    Ok(functions.iter().find_map(slot_of).unwrap_or_default())
}
