//! Facts of an ATA drive: attributes, self-tests, error log, device statistics, pending defects.

use serde::{Deserialize, Serialize};

use super::{LoggedError, LoggedPlace, NAME, SelfTest, SelfTestResult, ata_errors::error_log};
use crate::json::Node;

/// Maximum of attributes (the format has room for 30) or statistics that are kept.
pub(super) const MOST: usize = 512;

/// Lowest threshold that is invalid: 254 is not defined, and 255 is "always failing", for tests of the host (SFF-8035i). Drives with a
/// garbled table of thresholds have them.
pub const INVALID_THRESHOLD: u64 = 254;
/// Mask of a self-test's type; bit 7 is set for one that occupies the drive (captive).
const TYPE: u64 = 0x7f;
/// Highest type of self-test that the standard defines: off-line, short, extended, conveyance, selective (ACS-4, A.14).
pub const DEFINED_TESTS: u64 = 4;
/// Words in the names of attributes that only a drive with heads has.
const MECHANICS: [&str; 3] = ["spin_", "seek_", "head_"];
/// Words in the names of attributes that only flash memory has.
const FLASH: [&str; 9] = [
    "wear", "ssd", "nand", "flash", "life", "erase", "reservd", "rsvd", "spare",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ata {
    /// The attribute table, in the drive's order.
    pub attributes: Vec<Attribute>,
    /// Self-tests, the newest first.
    pub self_tests: Vec<SelfTest>,
    /// Number of entries ever written to the error log.
    pub error_count: Option<u64>,
    /// Entries of the error log for data that could not be corrected; None if the entries were not read.
    #[serde(default)]
    pub logged_uncorrectable: Option<Vec<LoggedError>>,
    /// Device statistics that the drive marks as valid.
    pub statistics: Vec<Statistic>,
    /// Number of entries of the pending defects log.
    pub pending_defects: Option<u64>,
    /// Sectors at which reads in the error log failed, and the pending defects.
    #[serde(default)]
    pub unreadable: Vec<LoggedPlace>,
}

/// One row of the attribute table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Number, 1 to 255. The meaning can differ by vendor.
    pub id: u8,
    /// smartctl's name for the attribute on this drive.
    pub name: String,
    /// Normalised value, usually counting down from 100 or 200.
    pub value: Option<u64>,
    /// The lowest normalised value so far.
    pub worst: Option<u64>,
    /// Threshold: at or below it, the drive counts the attribute as failed.
    pub thresh: Option<u64>,
    /// True if failing predicts the drive's failure; false if it indicates age.
    pub prefail: bool,
    /// True if it is updated during normal operation.
    pub online: bool,
    /// True if the drive flags the value as a rate of errors, not a count of events (SFF-8035i).
    #[serde(default)]
    pub rate: bool,
    /// The vendor's raw value, usually 48 bits.
    pub raw: u64,
    /// True if smartctl shows more than one number in the raw value, such as `0/11074622` or `0 0 2`.
    #[serde(default)]
    pub packed: bool,
    /// smartctl's `when_failed`: the value is, was or never was at or below the threshold.
    pub failed: Failed,
}

/// smartctl's `when_failed` of an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failed {
    /// Neither value nor worst is at or below the threshold.
    #[default]
    Never,
    /// Worst is at or below the threshold, the value is not.
    Past,
    /// The value is at or below the threshold.
    Now,
}

/// One number of the device statistics log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistic {
    /// Page, e.g. 7 for solid state devices.
    pub page: u64,
    /// Byte offset in the page, which identifies the number.
    pub offset: u64,
    /// smartctl's name for the number.
    pub name: String,
    pub value: u64,
}

impl Attribute {
    /// Returns the low 16 bits of the raw value, which have the count if a vendor packs several numbers.
    pub fn raw16(&self) -> u64 {
        self.raw & 0xffff
    }

    /// True if the vendor has a threshold for it: 0 is none, and 254 and more are invalid.
    pub fn has_threshold(&self) -> bool {
        let is_one = |thresh: &u64| (1..INVALID_THRESHOLD).contains(thresh);
        self.thresh.as_ref().is_some_and(is_one)
    }

    fn parse(node: Node<'_>) -> Option<Self> {
        let id = node.get("id").u64().and_then(|id| u8::try_from(id).ok())?;
        let flags = node.get("flags");
        let word = flags.get("value").u64().unwrap_or(0);
        let raw = node.get("raw");
        let text = raw.get("string").text(NAME);
        let thresh = node.get("thresh").u64();
        Some(Self {
            id,
            name: node.get("name").text(NAME),
            value: node.get("value").u64(),
            worst: node.get("worst").u64(),
            thresh,
            prefail: flags.get("prefailure").bool().unwrap_or(word & 1 != 0),
            online: flags.get("updated_online").bool().unwrap_or(word & 2 != 0),
            rate: flags.get("error_rate").bool().unwrap_or(word & 8 != 0),
            raw: raw
                .count("value")
                .or_else(|| leading_number(&text))
                .unwrap_or(0),
            packed: is_packed(&text),
            failed: match node.get("when_failed").text(NAME).to_lowercase().as_str() {
                "now" | "failing_now" => Failed::Now,
                "past" | "in_the_past" => Failed::Past,
                _ => Failed::Never,
            },
        })
    }
}

/// True for smartctl's formats raw24/raw32, raw24/raw24 and raw16: several numbers, without words.
fn is_packed(text: &str) -> bool {
    let only = |c: char| c.is_ascii_digit() || c == '/' || c == ' ';
    text.chars().all(only)
        && text
            .split(['/', ' '])
            .filter(|word| !word.is_empty())
            .count()
            > 1
}

/// Returns the number at the beginning: "32 (Min/Max 24/38)" → 32.
fn leading_number(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

impl Ata {
    pub(super) fn parse(root: Node<'_>) -> Self {
        let log = root.get("ata_smart_self_test_log");
        let tests = ["extended", "standard"]
            .map(|kind| self_tests(log.get(kind)))
            .into_iter()
            .find(|tests| !tests.is_empty());
        let (logged_uncorrectable, mut unreadable) = error_log(root);
        unreadable.extend(pending_defects(root));
        Self {
            attributes: root
                .path(&["ata_smart_attributes", "table"])
                .items()
                .filter_map(Attribute::parse)
                .take(MOST)
                .collect(),
            self_tests: tests.unwrap_or_else(|| last_self_test(root)),
            error_count: ["extended", "summary"]
                .iter()
                .find_map(|kind| root.path(&["ata_smart_error_log", kind, "count"]).u64()),
            logged_uncorrectable,
            statistics: statistics(root),
            pending_defects: root.path(&["ata_pending_defects_log", "count"]).u64(),
            unreadable,
        }
    }

    /// Returns two flags: some attribute is named after flash memory; some attribute is named after heads or a spindle.
    pub(super) fn medium(&self) -> (bool, bool) {
        let named = |words: &[&str]| {
            let attributes = self.attributes.iter();
            let mut names = attributes.map(|attribute| attribute.name.to_lowercase());
            names.any(|name| words.iter().any(|word| name.contains(word)))
        };
        (named(&FLASH), named(&MECHANICS))
    }

    /// Returns the first attribute with this number.
    pub fn attribute(&self, id: u8) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    /// Returns a device statistic by its page and offset.
    pub fn statistic(&self, page: u64, offset: u64) -> Option<u64> {
        self.statistics
            .iter()
            .find(|statistic| (statistic.page, statistic.offset) == (page, offset))
            .map(|statistic| statistic.value)
    }
}

fn pending_defects(root: Node<'_>) -> Vec<LoggedPlace> {
    let table = root.path(&["ata_pending_defects_log", "table"]);
    let places = table.items().take(MOST).filter_map(|entry| {
        Some(LoggedPlace {
            entry: entry.get("power_on_hours").u64().unwrap_or(0),
            lba: entry.get("lba").u64()?,
        })
    });
    LoggedPlace::newest(places.collect())
}

fn self_tests(log: Node<'_>) -> Vec<SelfTest> {
    let tests = log.get("table").items().map(|entry| SelfTest {
        kind: kind(entry.path(&["type", "value"]).u64().unwrap_or(0)),
        result: result(entry.get("status")),
        hours: entry.get("lifetime_hours").u64(),
        lba: entry.get("lba").u64(),
    });
    tests.take(super::MOST_TESTS).collect()
}

/// Returns a type that the standard defines without the bit for captive tests, any other one unchanged.
fn kind(value: u64) -> u64 {
    let defined = value & TYPE;
    if defined <= DEFINED_TESTS {
        defined
    } else {
        value
    }
}

/// Returns the last self-test by the status byte, for a drive whose log was not read.
fn last_self_test(root: Node<'_>) -> Vec<SelfTest> {
    let status = root.path(&["ata_smart_data", "self_test", "status"]);
    // Zero also stands for "never run".
    let test = status.get("value").u64().filter(|value| *value != 0);
    test.map(|_| SelfTest {
        kind: 0,
        result: result(status),
        hours: None,
        lba: None,
    })
    .into_iter()
    .collect()
}

/// Decodes a status: the upper four bits are the result, the lower ones how much was left.
fn result(status: Node<'_>) -> SelfTestResult {
    let code = status.get("value").u64().map(|value| (value >> 4) & 0xf);
    match (code, status.get("passed").bool()) {
        (Some(0), _) | (None, Some(true)) => SelfTestResult::Passed,
        (Some(1 | 2), _) => SelfTestResult::Aborted,
        (Some(15), _) => SelfTestResult::Running,
        (Some(code @ 3..=8), _) => SelfTestResult::Failed(code as u8),
        (_, Some(false)) => SelfTestResult::Failed(4),
        _ => SelfTestResult::Unknown,
    }
}

fn statistics(root: Node<'_>) -> Vec<Statistic> {
    let pages = root.path(&["ata_device_statistics", "pages"]);
    let rows = pages.items().flat_map(|page| {
        let number = page.get("number").u64();
        page.get("table").items().filter_map(move |row| {
            // A row without flags is from a smartctl that lists valid ones only.
            let valid = row.path(&["flags", "valid"]).bool().unwrap_or(true);
            Some(Statistic {
                page: number?,
                offset: row.get("offset").u64()?,
                name: row.get("name").text(NAME),
                value: row.count("value").filter(|_| valid)?,
            })
        })
    });
    rows.take(MOST).collect()
}
