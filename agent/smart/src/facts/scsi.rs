//! Facts of a SCSI or SAS drive: grown defects, error counters, self-tests, endurance, sense codes.

use serde::{Deserialize, Serialize};

use super::{LoggedError, LoggedPlace, NAME, SelfTest, SelfTestResult};
use crate::json::{Node, decimal};

/// Number of entries of the self-test log page.
const SELF_TESTS: usize = 20;
/// Unit of gigabytes_processed, bytes.
const GIGABYTE: f64 = 1e9;

/// Maximum of results of a background scan that are read, which is that of the standard.
const RESULTS: usize = 2048;
/// Sense key: the medium could not be read.
const MEDIUM_ERROR: u64 = 3;
/// Sense key: the drive's electronics or mechanics failed.
const HARDWARE_ERROR: u64 = 4;
/// Reassign status of a sector that was recovered by writing it again in the same place, and smartctl's words for it.
const RECOVERED: u64 = 5;
const RECOVERED_WORDS: &str = "recovered via rewrite in-place";
/// smartctl's words for the states of a background scan that matter.
const BACKGROUND_WORDS: [(u64, &str); 2] = [
    (3, "halted due to fatal error"),
    (4, "halted due to a vendor specific pattern of error"),
];
/// Maximum of ports that are read: a SAS drive has two.
const PORTS: usize = 8;
/// Counters of a phy that only errors increment (SPL-4, protocol specific port log page).
const PHY_ERRORS: [&str; 4] = [
    "invalid_dword_count",
    "running_disparity_error_count",
    "loss_of_dword_synchronization_count",
    "phy_reset_problem_count",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scsi {
    /// Additional sense code and qualifier of the informational exception, if the status failed.
    pub sense: Option<(u8, u8)>,
    pub grown_defects: Option<u64>,
    /// Error counters of reading.
    pub read: Option<ErrorCounter>,
    /// Error counters of writing.
    pub write: Option<ErrorCounter>,
    /// Error counters of verifying.
    pub verify: Option<ErrorCounter>,
    /// Number of defects that wait for a write.
    pub pending_defects: Option<u64>,
    /// Rated endurance used, percent.
    pub endurance_used: Option<u64>,
    /// State of the background scan (SBC-4, log page 0x15): 3 is halted by a fatal error.
    #[serde(default)]
    pub background_status: Option<u64>,
    /// Errors that the background scan did not recover: sense keys 3 (medium) and 4 (hardware).
    #[serde(default)]
    pub background_errors: Option<Vec<LoggedError>>,
    /// Year and week of manufacture.
    #[serde(default)]
    pub manufactured: Option<(u16, u8)>,
    /// Errors of all its SAS phys: invalid dwords, running disparity, lost synchronisation, failed resets.
    #[serde(default)]
    pub phy_errors: Option<u64>,
    /// Self-tests, the newest first.
    pub self_tests: Vec<SelfTest>,
    /// Sectors that background scans could not read, and the pending defects.
    #[serde(default)]
    pub unreadable: Vec<LoggedPlace>,
}

/// One error counter page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounter {
    /// Number of errors that were corrected.
    pub corrected: Option<u64>,
    /// Number of errors that were not corrected.
    pub uncorrected: Option<u64>,
    /// Bytes processed, rounded by the drive.
    pub bytes: Option<u64>,
}

impl ErrorCounter {
    fn parse(node: Node<'_>) -> Option<Self> {
        node.is_object().then(|| Self {
            corrected: node.count("total_errors_corrected"),
            uncorrected: node.count("total_uncorrected_errors"),
            bytes: decimal(&node.get("gigabytes_processed").text(NAME))
                .filter(|gigabytes| gigabytes.is_finite() && *gigabytes >= 0.0)
                // `as` saturates a float.
                .map(|gigabytes| (gigabytes * GIGABYTE) as u64),
        })
    }
}

impl Scsi {
    pub(super) fn parse(root: Node<'_>) -> Self {
        let sense = root.path(&["smart_status", "scsi"]);
        let byte = |key| {
            sense
                .get(key)
                .u64()
                .and_then(|code| u8::try_from(code).ok())
        };
        let counters = root.get("scsi_error_counter_log");
        let endurance = root.get("scsi_percentage_used_endurance_indicator");
        let (background_errors, mut unreadable) =
            background_errors(root.get("scsi_background_scan"));
        unreadable.extend(pending_defects(root.get("scsi_pending_defects")));
        Self {
            sense: byte("asc").map(|asc| (asc, byte("ascq").unwrap_or(0))),
            grown_defects: root.count("scsi_grown_defect_list"),
            read: ErrorCounter::parse(counters.get("read")),
            write: ErrorCounter::parse(counters.get("write")),
            verify: ErrorCounter::parse(counters.get("verify")),
            pending_defects: root
                .path(&["scsi_pending_defects", "count"])
                .u64()
                .or_else(|| root.get("scsi_pending_defects").u64()),
            endurance_used: endurance
                .u64()
                .or_else(|| endurance.get("percentage_used_endurance_indicator").u64()),
            background_status: background_status(root.path(&["scsi_background_scan", "status"])),
            background_errors,
            manufactured: manufactured(root.get("scsi_start_stop_cycle_counter")),
            phy_errors: phy_errors(root),
            self_tests: self_tests(root),
            unreadable,
        }
    }
}

fn background_status(status: Node<'_>) -> Option<u64> {
    let by_words = || {
        let words = status.get("string").text(NAME).to_lowercase();
        BACKGROUND_WORDS
            .iter()
            .find(|(_, beginning)| words.starts_with(beginning))
            .map(|(value, _)| *value)
    };
    let number = status.get("value").u64().or_else(|| status.u64());
    number.or_else(by_words)
}

fn background_errors(scan: Node<'_>) -> (Option<Vec<LoggedError>>, Vec<LoggedPlace>) {
    let (mut errors, mut places) = (Vec::new(), Vec::new());
    let results = scan.members().filter(|(key, _)| key.starts_with("result_"));
    for (_, result) in results.take(RESULTS) {
        let sense_key = result.get("sense_key");
        let sense_key = sense_key.get("value").u64().or_else(|| sense_key.u64());
        let is_error = matches!(sense_key, Some(MEDIUM_ERROR | HARDWARE_ERROR));
        if is_error && !is_recovered(result.get("reassign_status")) {
            let minutes = result.path(&["accumulated_power_on", "minutes"]).u64();
            errors.push(LoggedError {
                number: minutes.unwrap_or(0),
                hours: minutes.map(|minutes| minutes / 60),
            });
            if sense_key == Some(MEDIUM_ERROR) {
                let entry = minutes.unwrap_or(0);
                let lba = result.get("lba").u64();
                places.extend(lba.map(|lba| LoggedPlace { entry, lba }));
            }
        }
    }
    let errors = LoggedError::newest(errors);
    (
        scan.is_object().then_some(errors),
        LoggedPlace::newest(places),
    )
}

/// True if the scan read the data in the end and wrote it again (SBC-4, reassign status 5).
fn is_recovered(status: Node<'_>) -> bool {
    let number = status.get("value").u64().or_else(|| status.u64());
    let words = [status.get("string"), status].map(|node| node.text(NAME).to_lowercase());
    number == Some(RECOVERED) || words.iter().any(|words| words.starts_with(RECOVERED_WORDS))
}

/// Returns the pending defects; the members of the log are their count and, by number, the defects.
fn pending_defects(log: Node<'_>) -> Vec<LoggedPlace> {
    let places = log.members().take(RESULTS).filter_map(|(_, defect)| {
        Some(LoggedPlace {
            entry: defect.get("accum_power_on_hours").u64().unwrap_or(0),
            lba: defect.get("LBA").u64()?,
        })
    });
    LoggedPlace::newest(places.collect())
}

fn manufactured(page: Node<'_>) -> Option<(u16, u8)> {
    let number = |key| page.get(key).u64();
    let year = u16::try_from(number("year_of_manufacture")?).ok()?;
    let week = u8::try_from(number("week_of_manufacture")?).ok()?;
    // Blanks and zeros if the vendor does not report it.
    ((1990..=2100).contains(&year) && (1..=53).contains(&week)).then_some((year, week))
}

fn phy_errors(root: Node<'_>) -> Option<u64> {
    let ports = (0..PORTS).map(|port| root.get(&format!("scsi_sas_port_{port}")));
    let phys = ports.flat_map(|port| {
        let phys = port.members();
        phys.filter(|(key, _)| key.starts_with("phy_"))
    });
    let counts = phys.flat_map(|(_, phy)| PHY_ERRORS.map(|key| phy.count(key)));
    counts.flatten().reduce(u64::saturating_add)
}

fn self_tests(root: Node<'_>) -> Vec<SelfTest> {
    let entries = (0..SELF_TESTS).map(|index| root.get(&format!("scsi_self_test_{index}")));
    let tests = entries.filter(|entry| entry.is_object()).map(|entry| {
        let result = match entry.path(&["result", "value"]).u64() {
            Some(0) => SelfTestResult::Passed,
            Some(1 | 2) => SelfTestResult::Aborted,
            Some(code @ 3..=7) => SelfTestResult::Failed(code as u8),
            Some(15) => SelfTestResult::Running,
            _ => SelfTestResult::Unknown,
        };
        SelfTest {
            // 1 and 2 are the short and the extended background test, 5 and 6 the foreground ones.
            kind: match entry.path(&["code", "value"]).u64() {
                Some(1 | 5) => SelfTest::SHORT,
                Some(2 | 6) => SelfTest::EXTENDED,
                Some(_) => 0,
                None => by_words(&entry.path(&["code", "string"]).text(NAME)),
            },
            result,
            hours: entry.path(&["power_on_time", "hours"]).u64(),
            lba: entry.path(&["lba_first_failure", "value"]).u64(),
        }
    });
    tests.collect()
}

fn by_words(code: &str) -> u64 {
    let code = code.to_lowercase();
    if code.contains("short") {
        SelfTest::SHORT
    } else if code.contains("long") || code.contains("extended") {
        SelfTest::EXTENDED
    } else {
        0
    }
}
