//! Decides which names identify a single drive. Pure.
//!
//! Makers leave names out, or give every drive of a batch the same one: `0x5000000000000001` of USB bridges and portable SSDs,
//! `0x0000000000000000` of SATA SSDs, `eui.0100000000000000` of NVMe. The kernel has a list of such NVMe drives only by their PCI ids
//! (`NVME_QUIRK_BOGUS_NID`), so the names themselves are judged here. A real name that is taken for a placeholder costs little: the drive
//! is then identified by its serial number. A placeholder that is accepted makes two drives one.

/// Words that firmware and bridges give instead of a serial number, reduced to lower-case letters and digits.
const WORDS: [&str; 14] = [
    "default",
    "defaultstring",
    "tobefilledbyoem",
    "none",
    "na",
    "null",
    "unknown",
    "notavailable",
    "notspecified",
    "serialnumber",
    "systemserialnumber",
    "invalid",
    "empty",
    "sn",
];
/// Length of an organisation's number (OUI), hexadecimal digits.
const OUI: usize = 6;

/// True if a world-wide name, as sysfs spells it (`naa.…`, `eui.…`, `uuid.…`), can belong to a single drive. False for any other kind of
/// name.
pub fn is_unique_wwn(wwn: &str) -> bool {
    let Some((kind, value)) = wwn.split_once('.') else {
        return false;
    };
    let value = value.trim().to_ascii_lowercase();
    if kind == "uuid" {
        return !is_filler(&value);
    }
    if value.is_empty() || !value.chars().all(|c| c.is_ascii_hexdigit()) || is_filler(&value) {
        return false;
    }
    match (kind, value.len()) {
        ("naa", _) => is_unique_naa(&value),
        ("eui", 16) => is_assigned(&value),
        // The last 16 digits have the form of an EUI-64; some makers put the EUI-64 into the first 16.
        ("eui", 32) => {
            let (first, last) = value.split_at(16);
            is_assigned(last) || is_assigned(first)
        }
        ("eui", _) => true,
        _ => false,
    }
}

/// True if a serial number can belong to a single drive among those of its model.
pub fn is_unique_serial(serial: &str) -> bool {
    let letters = alphanumeric(serial);
    !is_filler(&letters) && !is_sequence(&letters) && !WORDS.contains(&letters.as_str())
}

/// True if a name can belong to a single drive. The first digit is the format of the rest (SPC: NAA formats 1, 2, 3, 5 and 6); 0: there is
/// no name.
fn is_unique_naa(value: &str) -> bool {
    let (format, rest) = value.split_at(1);
    match (format, value.len()) {
        ("0", _) => false,
        ("5", 16) => is_assigned(rest),
        // The maker's own number, and an extension of it: either may distinguish drives.
        ("6", 32) => {
            let (oui, own) = rest.split_at(OUI);
            !is_zero(oui) && !is_zero_or_one(own)
        }
        // A name given here, and older formats, with the OUI elsewhere.
        _ => !is_zero_or_one(rest),
    }
}

/// True for an OUI and a number that its owner assigned. Neither may be missing; 0, 1 and one repeated digit do not count as assigned.
fn is_assigned(text: &str) -> bool {
    let (oui, own) = text.split_at(OUI);
    !is_zero(oui) && !is_zero_or_one(own) && !is_same(own)
}

fn is_zero(text: &str) -> bool {
    text.chars().all(|c| c == '0')
}

fn is_zero_or_one(text: &str) -> bool {
    is_zero(text.strip_suffix('1').unwrap_or(text))
}

/// True for a text that, by its letters and digits alone, is empty, one repeated character, or at least 6 characters that begin with 0 and
/// have at most two that are not 0.
fn is_filler(text: &str) -> bool {
    let letters = alphanumeric(text);
    let others = letters.chars().filter(|c| *c != '0').count();
    is_same(&letters) || (letters.len() >= 6 && others <= 2 && letters.starts_with('0'))
}

fn is_same(text: &str) -> bool {
    let mut letters = text.chars();
    let first = letters.next();
    letters.all(|c| Some(c) == first)
}

/// True for at least 6 digits in their order, from 0 or 1 on: `123456789`, `0123456789ABCDEF`, `12345678901234567890`.
fn is_sequence(letters: &str) -> bool {
    let orders = ["0123456789".repeat(4), "0123456789abcdef".repeat(3)];
    let starts = letters.starts_with('0') || letters.starts_with('1');
    starts && letters.len() >= 6 && orders.iter().any(|order| order.contains(letters))
}

fn alphanumeric(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_no_world_wide_name() {
        for wwn in [
            "naa.0000000000000000",
            "naa.5000000000000000",
            "naa.5000000000000001",
            "naa.5000000000001234",
            "naa.5000c50000000000",
            "naa.5000c50000000001",
            "naa.5000c50fffffffff",
            "naa.ffffffffffffffff",
            "naa.0123456789abcdef",
            "naa.60000000000000000000000000000001",
            "naa.60014050000000000000000000000001",
            "naa.",
            "eui.0000000000000000",
            "eui.0000000000000001",
            "eui.0100000000000000",
            "eui.0025380000000000",
            "eui.ffffffffffffffff",
            "eui.00000000000000000000000000000000",
            "eui.01000000010000000000000000000000",
            "eui.00000000000000000025380000000001",
            "uuid.00000000-0000-0000-0000-000000000000",
            "uuid.ffffffff-ffff-ffff-ffff-ffffffffffff",
            "uuid.00000000-0000-0000-0000-000000000001",
            "t10.ATA x",
            "nvme.1-2-3",
            "",
        ] {
            assert!(!is_unique_wwn(wwn), "{wwn}");
        }
        for wwn in [
            "naa.5000c500a1b2c3d4",
            "naa.5002538E30000001",
            "naa.600508b1001c57fe14cf3e577b87be3f",
            "naa.60014051234567890000000000000000",
            "naa.3333333000001234",
            "naa.2000000c50a1b2c3",
            "eui.0025385b71b00001",
            "eui.36483331545001390025384100000001",
            "eui.0100000001000000e4d25c8051695501",
            "eui.0025385b71b000010000000000000000",
            "uuid.6d4e5c1a-b0c8-4f5e-9d1b-1f2e44524956",
        ] {
            assert!(is_unique_wwn(wwn), "{wwn}");
        }
    }

    #[test]
    fn a_placeholder_is_no_serial_number() {
        for serial in [
            "",
            " ",
            "0",
            "0000000000000000",
            "00000000000000000001",
            "FFFFFFFF",
            "XXXX",
            "----",
            "123456789",
            "1234567890",
            "0123456789ABCDEF",
            "12345678901234567890",
            "Default string",
            "To be filled by O.E.M.",
            "N/A",
            "None",
            "Serial Number",
        ] {
            assert!(!is_unique_serial(serial), "{serial}");
        }
        for serial in [
            "ZC1234",
            "QM00001",
            "S45NNA0M123456",
            "AA000000000000001234",
            "000000004BA8",
            "12345688ACF4",
            "1235",
            "50026B768",
        ] {
            assert!(is_unique_serial(serial), "{serial}");
        }
    }
}
