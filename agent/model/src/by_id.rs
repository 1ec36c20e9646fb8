//! Links below /dev/disk/by-id that udev makes for a drive, derived from its attributes in sysfs. Pure.
//!
//! Derived instead of read: udevd may not run here, may not have made them yet, and a link may lead to another device by then.
//! Only links that follow from identity, model and serial number are covered; udev makes others from data that it queries from the drive.

use super::{DriveFacts, Transport};

/// Directory of the links, with a trailing slash.
pub const DIR: &str = "/dev/disk/by-id/";

/// Prefixes of the names of all links that are derived.
pub const KINDS: [&str; 5] = ["ata-", "nvme-", "scsi-3", "virtio-", "wwn-"];

/// Returns the absolute paths of all links that are derived for this drive; none for a partition or a virtual device.
pub fn links(drive: &DriveFacts) -> Vec<String> {
    if drive.is_partition || drive.virtual_kind.is_some() {
        return Vec::new();
    }
    let mut names = Vec::new();
    match drive.wwn.split_once('.') {
        // Another drive has the same WWN: udev, and not the operator, decides to which one the link leads.
        Some((_, name)) if is_shared(drive, name) => {}
        Some(("naa", number)) => {
            let number = number.to_ascii_lowercase();
            names.extend([format!("wwn-0x{number}"), format!("scsi-3{number}")]);
        }
        Some(("eui" | "uuid", _)) => names.push(format!("nvme-{}", drive.wwn)),
        _ => {}
    }
    let (model, serial) = (drive.model.as_str(), drive.serial.as_str());
    if !serial.is_empty() {
        match drive.transport {
            Transport::Sata => names.push(format!("ata-{}_{}", joined(model), joined(serial))),
            Transport::Nvme if !model.is_empty() => {
                names.push(format!("nvme-{}_{}", escaped(model), escaped(serial)))
            }
            Transport::Virtio => names.push(format!("virtio-{}", escaped(serial))),
            _ => {}
        }
    }
    names
        .into_iter()
        .map(|name| format!("{DIR}{name}"))
        .collect()
}

/// True if the drive's identity has more than the name in its WWN, because another drive has the same WWN.
fn is_shared(drive: &DriveFacts, name: &str) -> bool {
    let (id, name) = (drive.id.0.as_str(), name.to_ascii_lowercase());
    id.contains(&name) && !id.ends_with(&name)
}

/// Replaces each run of white space by one underscore, as udev's ata_id does, and escapes the result.
fn joined(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    escaped(&words.join("_"))
}

/// Replaces characters that udev does not allow in a link by underscores (`string_escape=replace`).
fn escaped(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii();
    text.trim()
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn of(transport: Transport, model: &str, serial: &str, wwn: &str) -> Vec<String> {
        let drive = DriveFacts {
            transport,
            model: model.into(),
            serial: serial.into(),
            wwn: wwn.into(),
            ..samples::facts("sda")
        };
        let links = links(&drive);
        let name = |link: &String| link.strip_prefix(DIR).unwrap().to_owned();
        for link in &links {
            assert!(
                KINDS.iter().any(|kind| name(link).starts_with(kind)),
                "{link}"
            );
        }
        links.iter().map(name).collect()
    }

    #[test]
    fn links_are_spelled_as_udev_spells_them() {
        assert_eq!(
            of(
                Transport::Sata,
                "Samsung SSD 870  EVO 1TB",
                "S626NF0R123456A",
                "naa.5002538F4112ABCD"
            ),
            [
                "wwn-0x5002538f4112abcd",
                "scsi-35002538f4112abcd",
                "ata-Samsung_SSD_870_EVO_1TB_S626NF0R123456A"
            ]
        );
        assert_eq!(
            of(
                Transport::Nvme,
                "Samsung SSD 970 EVO Plus 1TB",
                "S4EWNX0R123456A",
                "eui.0025385b01b12345"
            ),
            [
                "nvme-eui.0025385b01b12345",
                "nvme-Samsung_SSD_970_EVO_Plus_1TB_S4EWNX0R123456A"
            ]
        );
        assert_eq!(of(Transport::Virtio, "virtio", "db-1", ""), ["virtio-db-1"]);
        // For a USB bridge, udev takes the names from elsewhere in sysfs.
        assert!(of(Transport::Usb, "Disk", "123", "").is_empty());
    }

    #[test]
    fn a_drive_known_by_wwn_and_serial_number_has_no_link_of_the_wwn_alone() {
        let links_of = |id: &str| {
            links(&DriveFacts {
                id: crate::DriveId(id.into()),
                transport: Transport::Sas,
                wwn: "naa.5002538F4112ABCD".into(),
                ..samples::facts("sda")
            })
            .len()
        };
        assert_eq!(links_of("wwn-0x5002538f4112abcd"), 2);
        assert_eq!(links_of("wwn-0x5002538f4112abcd_S626"), 0);
        assert_eq!(links_of("wwn-0x5002538f4112abcd.sda"), 0);
    }

    #[test]
    fn a_virtual_device_has_none() {
        let drive = DriveFacts {
            virtual_kind: Some("loop".into()),
            wwn: "naa.5002538f4112abcd".into(),
            ..samples::facts("loop0")
        };
        assert!(links(&drive).is_empty());
    }
}
