//! A drive's identity: its world-wide name, else its serial number, else only the path by which it is attached.

use std::{io, path::Path};

use super::{attach::Place, attrs::Node, vpd};
use drivebay_model::{
    DriveFacts, DriveId, Transport,
    identity::{is_unique_serial, is_unique_wwn},
};

/// Bytes of an identity; longer ones are cut and get a hash, since they are file names too (at most 255 bytes, with a suffix).
const LONGEST: usize = 180;

/// Identity that a drive reports.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) id: DriveId,
    pub(super) is_stable: bool,
    pub(super) model: String,
    pub(super) serial: String,
    pub(super) wwn: String,
    pub(super) firmware: String,
}

/// Identity attributes from a device's driver.
#[derive(Debug, Default)]
struct ReportedIdentity {
    model: String,
    serial: String,
    wwn: String,
    firmware: String,
    /// Distinguishes several disks behind one serial number (LUN, namespace).
    suffix: String,
}

/// Derives the identity of a disk from its attributes.
pub(super) fn identify(
    place: &Place,
    disk: &Node,
    transport: Transport,
    backing_file: Option<&Path>,
) -> io::Result<Identity> {
    let reported = match transport {
        Transport::Loop => ReportedIdentity::default(),
        Transport::Nvme | Transport::NvmeOf => nvme(disk)?,
        Transport::Mmc => mmc(place, disk)?,
        _ if place.passes("target") => scsi(place, disk, transport)?,
        _ => other(disk, transport)?,
    };
    let stable = match backing_file {
        Some(file) => Some(loop_id(file)),
        None => from_wwn(&reported.wwn).or_else(|| from_serial(&reported)),
    };
    let is_stable = stable.is_some();
    let id = stable.unwrap_or_else(|| {
        format!(
            "path-{}",
            sanitize(place.device_path().trim_start_matches('/'))
        )
    });
    Ok(Identity {
        id: DriveId(shorten(id)),
        is_stable,
        model: reported.model,
        serial: reported.serial,
        wwn: reported.wwn,
        firmware: reported.firmware,
    })
}

fn nvme(disk: &Node) -> io::Result<ReportedIdentity> {
    let device = |name: &str| -> io::Result<String> {
        // Under `device` is the controller, or for a head with several paths the subsystem.
        Ok(disk.child("device").text(name)?.unwrap_or_default())
    };
    let mut wwn = disk.text("wwid")?.unwrap_or_default();
    if !is_unique_wwn(&wwn) {
        // A placeholder, or derived by the kernel from vendor, serial and model: those are read themselves.
        let names = [disk.text("nguid")?, disk.text("eui")?]
            .into_iter()
            .flatten();
        let mut names = names.map(|name| format!("eui.{}", hex_only(&name)));
        wwn = names.find(|name| is_unique_wwn(name)).unwrap_or_default();
    }
    let suffix = match disk.number("nsid")? {
        None | Some(1) => String::new(),
        Some(number) => format!("_ns{number}"),
    };
    Ok(ReportedIdentity {
        model: device("model")?,
        serial: device("serial")?,
        firmware: device("firmware_rev")?,
        wwn,
        suffix,
    })
}

fn scsi(place: &Place, disk: &Node, transport: Transport) -> io::Result<ReportedIdentity> {
    let device = disk.child("device");
    let pages = device
        .bytes("vpd_pg83")?
        .map(|page| vpd::designators(&page))
        .unwrap_or_default();
    let wwid = device.text("wwid")?.filter(|wwid| from_wwn(wwid).is_some());
    let vendor = device.text("vendor")?.unwrap_or_default();
    let mut reported = ReportedIdentity {
        model: device.text("model")?.unwrap_or_default(),
        serial: device
            .bytes("vpd_pg80")?
            .and_then(|page| vpd::unit_serial(&page))
            .unwrap_or_default(),
        wwn: wwid.or(pages.wwn).unwrap_or_default(),
        firmware: device.text("rev")?.unwrap_or_default(),
        suffix: String::new(),
    };
    if vendor == "ATA" {
        // The kernel's SCSI layer reports only the last four of the firmware's eight characters.
        if let Some(firmware) = device
            .bytes("vpd_pg89")?
            .as_deref()
            .and_then(vpd::ata_firmware)
        {
            reported.firmware = firmware;
        }
        // sysfs cuts the model to 16 characters; the T10 designator has all of it.
        if let Some((model, serial)) = pages.ata {
            reported.model = model;
            if reported.serial.is_empty() {
                reported.serial = serial;
            }
        }
    }
    if transport == Transport::Usb
        && let Some(usb) = place.ancestor_with("idVendor")?
    {
        if reported.serial.is_empty() {
            reported.serial = usb.text("serial")?.unwrap_or_default();
        }
        if reported.model.is_empty() {
            reported.model = usb.text("product")?.unwrap_or_default();
        }
    }
    if let Some(lun) = place.lun().filter(|lun| *lun != 0) {
        reported.suffix = format!("_lun{lun}");
    }
    Ok(reported)
}

fn mmc(place: &Place, disk: &Node) -> io::Result<ReportedIdentity> {
    let device = disk.child("device");
    let text = |name: &str| -> io::Result<String> { Ok(device.text(name)?.unwrap_or_default()) };
    // eMMC's boot and replay areas are disks of their own, with the same CID.
    let name = place.kernel_name();
    let suffix = ["boot", "rpmb", "gp"]
        .iter()
        .find_map(|area| name.find(area).map(|at| format!("_{}", &name[at..])))
        .unwrap_or_default();
    Ok(ReportedIdentity {
        model: text("name")?,
        serial: text("cid")?,
        firmware: text("fwrev")?,
        wwn: String::new(),
        suffix,
    })
}

fn other(disk: &Node, transport: Transport) -> io::Result<ReportedIdentity> {
    let serial = disk
        .text("serial")?
        .or(disk.text("device/serial")?)
        .unwrap_or_default();
    let model = disk.text("device/model")?.unwrap_or_default();
    let model = if model.is_empty() && transport == Transport::Virtio {
        "virtio".to_owned()
    } else {
        model
    };
    Ok(ReportedIdentity {
        model,
        serial,
        ..ReportedIdentity::default()
    })
}

/// Returns the identity for a WWN as sysfs spells it; None if it is not unique.
pub fn from_wwn(wwn: &str) -> Option<String> {
    let (kind, value) = wwn.split_once('.').filter(|_| is_unique_wwn(wwn))?;
    let value = value.trim().to_ascii_lowercase();
    match kind {
        "naa" => Some(format!("wwn-0x{value}")),
        // An EUI-64 has 16 digits; the kernel spells an NGUID the same way with 32.
        "eui" if value.len() > 16 => Some(format!("nguid-{value}")),
        "eui" => Some(format!("eui-{value}")),
        "uuid" => Some(format!("uuid-{}", sanitize(&value))),
        _ => None,
    }
}

/// Returns the identity, including the serial number, of a drive that shares its WWN with another one. None without a unique WWN or serial
/// number.
pub fn with_serial(wwn: &str, serial: &str) -> Option<DriveId> {
    let base = from_wwn(wwn).filter(|_| is_unique_serial(serial))?;
    Some(DriveId(shorten(format!("{base}_{}", sanitize(serial)))))
}

/// Returns the identity of a drive that only its kernel name distinguishes from another attached one.
pub fn with_name(id: &DriveId, kernel_name: &str) -> DriveId {
    DriveId(format!("{id}.{kernel_name}"))
}

/// Returns the identity that a drive has if no other one shares it.
pub fn alone(facts: &DriveFacts) -> DriveId {
    if with_serial(&facts.wwn, &facts.serial).is_some_and(|id| id == facts.id)
        && let Some(id) = from_wwn(&facts.wwn)
    {
        return DriveId(id);
    }
    let suffix = format!(".{}", facts.kernel_name);
    let id = facts.id.0.strip_suffix(&suffix).unwrap_or(&facts.id.0);
    DriveId(id.to_owned())
}

fn from_serial(reported: &ReportedIdentity) -> Option<String> {
    if !is_unique_serial(&reported.serial) {
        return None;
    }
    Some(format!(
        "serial-{}_{}{}",
        sanitize(&reported.model),
        sanitize(&reported.serial),
        reported.suffix
    ))
}

fn hex_only(text: &str) -> String {
    text.chars().filter(char::is_ascii_hexdigit).collect()
}

fn loop_id(file: &Path) -> String {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let hash = crc32fast::hash(file.as_os_str().as_encoded_bytes());
    let mut name = sanitize(&name);
    name.truncate(LONGEST - 20);
    format!("loop-{name}-{hash:08x}")
}

/// Replaces characters that a `DriveId` may not have: `/` by a hyphen, runs of others by one underscore.
fn sanitize(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | ':' | '-' => clean.push(c),
            '/' => clean.push('-'),
            _ if clean.ends_with('_') => {}
            _ => clean.push('_'),
        }
    }
    clean
}

fn shorten(mut id: String) -> String {
    if id.len() > LONGEST {
        let hash = crc32fast::hash(id.as_bytes());
        id.truncate(LONGEST);
        id.push_str(&format!("-{hash:08x}"));
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_only_safe_characters() {
        assert_eq!(sanitize(" ST4000 NM/0025\t(x)é"), "ST4000_NM-0025_x_");
        assert_eq!(shorten("a".repeat(400)).len(), LONGEST + 9);
    }

    #[test]
    fn a_placeholder_gives_no_identity() {
        for wwn in [
            "naa.0000000000000000",
            "naa.5000000000000001",
            "eui.0100000000000000",
            "eui.",
            "uuid.00000000-0000-0000-0000-000000000000",
            "t10.ATA x",
            "nvme.1-2-3",
        ] {
            assert_eq!(from_wwn(wwn), None, "{wwn}");
        }
        assert_eq!(
            from_wwn("eui.0025385b71b00001").as_deref(),
            Some("eui-0025385b71b00001")
        );
        assert_eq!(
            from_wwn("eui.36483331545001390025384100000001").as_deref(),
            Some("nguid-36483331545001390025384100000001")
        );
    }
}
