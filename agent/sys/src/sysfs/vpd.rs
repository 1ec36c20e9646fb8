//! SCSI vital product data from sysfs: the identity of a logical unit. Bridges and controllers violate the format in many ways, so no
//! length is trusted.

use super::identity::from_wwn;

/// Designators of the logical unit from a device identification page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Designators {
    /// The best world-wide name, as sysfs spells it.
    pub wwn: Option<String>,
    /// Model and serial of an ATA disk, from SAT's T10 designator.
    pub ata: Option<(String, String)>,
}

/// Parses VPD page 0x83 (SPC), a list of designators.
pub fn designators(page: &[u8]) -> Designators {
    let mut result = Designators::default();
    let mut best = 0;
    let Some((header, mut rest)) = page.split_at_checked(4) else {
        return result;
    };
    rest = &rest[..rest
        .len()
        .min(usize::from(u16::from_be_bytes([header[2], header[3]])))];
    while let Some((head, body)) = rest.split_at_checked(4) {
        let Some((value, next)) = body.split_at_checked(usize::from(head[3])) else {
            break;
        };
        rest = next;
        let (association, kind) = (head[1] >> 4 & 3, head[1] & 0xf);
        if association != 0 {
            continue; // of the port or target, not of the logical unit
        }
        let hex = || {
            value
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let (rank, wwn) = match kind {
            3 => (3, Some(format!("naa.{}", hex()))),
            2 => (2, Some(format!("eui.{}", hex()))),
            1 if value.len() >= 68 && value.starts_with(b"ATA     ") => {
                let text = |range: &[u8]| String::from_utf8_lossy(range).trim().to_owned();
                result.ata = Some((text(&value[8..48]), text(&value[48..68])));
                (0, None)
            }
            _ => (0, None),
        };
        if rank > best && wwn.as_deref().is_some_and(|wwn| from_wwn(wwn).is_some()) {
            best = rank;
            result.wwn = wwn;
        }
    }
    result
}

/// Parses VPD page 0x80 (SPC), the unit's serial number; None if it is empty or cut off.
pub fn unit_serial(page: &[u8]) -> Option<String> {
    let (header, rest) = page.split_at_checked(4)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let serial = String::from_utf8_lossy(&rest[..rest.len().min(len)])
        .trim_matches(|c: char| c.is_whitespace() || c.is_control())
        .to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// Returns the firmware revision from VPD page 0x89 (SAT), which holds an ATA disk's IDENTIFY data from byte 60 on; words 23 to 26 have the
/// revision, two characters each, swapped.
pub fn ata_firmware(page: &[u8]) -> Option<String> {
    let words = page.get(60 + 46..60 + 54)?;
    let swapped: Vec<u8> = words
        .chunks(2)
        .flat_map(|word| word.iter().rev().copied())
        .collect();
    let text = String::from_utf8_lossy(&swapped)
        .trim_matches(|c: char| c.is_whitespace() || c.is_control())
        .to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_an_ata_disk_give_wwn_model_and_serial() {
        let mut t10 = vec![2, 1, 0, 68];
        t10.extend(b"ATA     ");
        t10.extend(
            format!(
                "{:<40}{:>20}",
                "SAMSUNG MZ7LH960HAJR-00005", "S45NNA0M123456"
            )
            .bytes(),
        );
        let naa = [1, 3, 0, 8, 0x50, 0x02, 0x53, 0x8e, 0x30, 0x00, 0x00, 0x01];
        let port = [1, 0x13, 0, 8, 0x50, 0, 0, 0, 0, 0, 0, 2];
        let mut page = vec![0, 0x83, 0, 0];
        for part in [&port[..], &t10, &naa] {
            page.extend(part);
        }
        let len = u16::try_from(page.len() - 4).unwrap().to_be_bytes();
        page[2..4].copy_from_slice(&len);
        assert_eq!(
            designators(&page),
            Designators {
                wwn: Some("naa.5002538e30000001".to_owned()),
                ata: Some((
                    "SAMSUNG MZ7LH960HAJR-00005".to_owned(),
                    "S45NNA0M123456".to_owned()
                )),
            }
        );
        for cut in 0..page.len() {
            designators(&page[..cut]); // must not panic, whatever a bridge hands over
        }
    }

    #[test]
    fn a_serial_page_is_trimmed_and_bounded() {
        assert_eq!(
            unit_serial(b"\0\x80\0\x08  ZC1234").as_deref(),
            Some("ZC1234")
        );
        assert_eq!(unit_serial(b"\0\x80\0\x40AB").as_deref(), Some("AB"));
        assert_eq!(unit_serial(b"\0\x80\0\x04    "), None);
        assert_eq!(unit_serial(b"\0"), None);
    }

    #[test]
    fn the_firmware_of_an_ata_disk_is_unswapped_and_whole() {
        let mut page = vec![0; 572];
        page[106..114].copy_from_slice(b"WF.7 1  ");
        assert_eq!(ata_firmware(&page).as_deref(), Some("FW7.1"));
        page[106..114].copy_from_slice(b"XH5T4Q02");
        assert_eq!(ata_firmware(&page).as_deref(), Some("HXT5Q420"));
        assert_eq!(ata_firmware(&page[..113]), None);
        page[106..114].fill(b' ');
        assert_eq!(ata_firmware(&page), None);
    }
}
