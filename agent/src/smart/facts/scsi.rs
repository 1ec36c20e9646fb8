//! What a SCSI or SAS drive says: grown defects, error counters, self-tests, endurance, why it fails.

use serde::{Deserialize, Serialize};

use super::{SelfTest, SelfTestResult};
use crate::smart::json::Node;

/// The self-test log page has 20 entries.
const SELF_TESTS: usize = 20;
/// gigabytes_processed counts in 10^9 bytes.
const GIGABYTE: f64 = 1e9;

/// Facts of a SCSI drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scsi {
    /// Additional sense code and qualifier of the informational exception, when the status failed.
    pub sense: Option<(u8, u8)>,
    /// Length of the grown defect list.
    pub grown_defects: Option<u64>,
    /// Error counters of reading.
    pub read: Option<ErrorCounter>,
    /// Error counters of writing.
    pub write: Option<ErrorCounter>,
    /// Error counters of verifying.
    pub verify: Option<ErrorCounter>,
    /// Defects that wait for a write.
    pub pending_defects: Option<u64>,
    /// Percentage used endurance indicator.
    pub endurance_used: Option<u64>,
    /// Newest first.
    pub self_tests: Vec<SelfTest>,
}

/// One error counter page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounter {
    /// Errors that were corrected.
    pub corrected: Option<u64>,
    /// Errors that were not.
    pub uncorrected: Option<u64>,
    /// Bytes processed, rounded by the drive.
    pub bytes: Option<u64>,
}

impl ErrorCounter {
    fn parse(node: Node<'_>) -> Option<Self> {
        node.is_object().then(|| Self {
            corrected: node.count("total_errors_corrected"),
            uncorrected: node.count("total_uncorrected_errors"),
            bytes: node
                .get("gigabytes_processed")
                .text(64)
                .parse::<f64>()
                .ok()
                .filter(|gigabytes| gigabytes.is_finite() && *gigabytes >= 0.0)
                // `as` holds a float at the ends of the range.
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
            self_tests: self_tests(root),
        }
    }

    /// Uncorrected errors of reading, writing and verifying together; None when no counter is there.
    pub fn uncorrected(&self) -> Option<u64> {
        [self.read, self.write, self.verify]
            .into_iter()
            .filter_map(|counter| counter?.uncorrected)
            .reduce(u64::saturating_add)
    }
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
                _ => 0,
            },
            result,
            hours: entry.path(&["power_on_time", "hours"]).u64(),
        }
    });
    tests.collect()
}
