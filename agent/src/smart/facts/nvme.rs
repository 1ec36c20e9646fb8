//! What an NVMe drive says: its health log, its temperature limits, its self-tests.

use serde::{Deserialize, Serialize};

use super::{SelfTest, SelfTestResult};
use crate::smart::json::Node;

/// A data unit is a thousand blocks of 512 bytes.
const DATA_UNIT: u64 = 512_000;
/// A byte of which every bit is set.
const ALL_ONES: u64 = 0xff;
/// More sensors than the specification has room for are not kept.
const SENSORS: usize = 8;

/// Facts of an NVMe drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nvme {
    /// Bits of the critical warning byte.
    pub critical_warning: Option<CriticalWarning>,
    /// Spare blocks left, percent.
    pub available_spare: Option<u64>,
    /// Below it the drive warns, percent.
    pub spare_threshold: Option<u64>,
    /// Rated endurance used, percent; may pass 100.
    pub percentage_used: Option<u64>,
    /// Reads and writes that could not be completed because of the medium.
    pub media_errors: Option<u64>,
    /// Times that power went without a notice.
    #[serde(default)]
    pub unsafe_shutdowns: Option<u64>,
    /// Minutes above the warning temperature.
    #[serde(default)]
    pub warning_minutes: Option<u64>,
    /// Minutes above the critical temperature.
    #[serde(default)]
    pub critical_minutes: Option<u64>,
    /// Entries ever written to the error log. Not a sign of ill health.
    pub error_log_entries: Option<u64>,
    /// Bytes read by the host.
    pub bytes_read: Option<u64>,
    /// Bytes written by the host.
    pub bytes_written: Option<u64>,
    /// Degrees Celsius at which the drive warns.
    pub warning_temperature: Option<i32>,
    /// Degrees Celsius at which the drive is in danger.
    pub critical_temperature: Option<i32>,
    /// Degrees Celsius of the sensors that have a value.
    pub sensors: Vec<i32>,
    /// Newest first.
    pub self_tests: Vec<SelfTest>,
}

/// The critical warning byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CriticalWarning(pub u8);

impl CriticalWarning {
    /// Bit 0: fewer spare blocks than the threshold.
    pub const SPARE: u8 = 1;
    /// Bit 1: outside a temperature threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Bit 2: reliability degraded by media or internal errors.
    pub const RELIABILITY: u8 = 1 << 2;
    /// Bit 3: the medium is read-only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// Bit 4: the volatile memory's backup failed.
    pub const BACKUP: u8 = 1 << 4;
    /// Bit 5: the persistent memory region is read-only or unreliable.
    pub const PMR: u8 = 1 << 5;
    /// The bits that have a meaning.
    pub const KNOWN: u8 = 0x3f;

    /// Whether one of these bits is set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

impl Nvme {
    pub(super) fn parse(root: Node<'_>) -> Self {
        let log = root.get("nvme_smart_health_information_log");
        let warning = log
            .get("critical_warning")
            .u64()
            .or_else(|| root.path(&["smart_status", "nvme", "value"]).u64());
        let limits = root.get("nvme_composite_temperature_threshold");
        let bytes = |key| Some(log.count(key)?.saturating_mul(DATA_UNIT));
        let spare = log.get("available_spare").u64();
        if warning == Some(ALL_ONES) && spare.is_none_or(|spare| spare > 100) {
            // What a controller that does not answer reads as.
            return Self {
                self_tests: self_tests(root),
                ..Self::default()
            };
        }
        Self {
            critical_warning: warning.map(|bits| CriticalWarning((bits & 0xff) as u8)),
            available_spare: spare,
            spare_threshold: log.get("available_spare_threshold").u64(),
            percentage_used: log.get("percentage_used").u64(),
            media_errors: log.count("media_errors"),
            unsafe_shutdowns: log.count("unsafe_shutdowns"),
            warning_minutes: log.count("warning_temp_time"),
            critical_minutes: log.count("critical_comp_time"),
            error_log_entries: log.count("num_err_log_entries"),
            bytes_read: bytes("data_units_read"),
            bytes_written: bytes("data_units_written"),
            warning_temperature: limits.get("warning").i32(),
            critical_temperature: limits.get("critical").i32(),
            // Sensors that are not there come as null.
            sensors: log
                .get("temperature_sensors")
                .items()
                .filter_map(Node::i32)
                .take(SENSORS)
                .collect(),
            self_tests: self_tests(root),
        }
    }
}

fn self_tests(root: Node<'_>) -> Vec<SelfTest> {
    let rows = root.path(&["nvme_self_test_log", "table"]);
    let tests = rows.items().filter_map(|row| {
        let result = match row.path(&["self_test_result", "value"]).u64()? {
            0 => SelfTestResult::Passed,
            // Ended by a command, a reset, a namespace that went, a format, a sanitize, or unsaid.
            1..=4 | 8 | 9 => SelfTestResult::Aborted,
            code @ 5..=7 => SelfTestResult::Failed(code as u8),
            // An unused entry.
            15 => return None,
            _ => SelfTestResult::Unknown,
        };
        Some(SelfTest {
            kind: row.path(&["self_test_code", "value"]).u64().unwrap_or(0),
            result,
            hours: row.get("power_on_hours").u64(),
            lba: row.get("lba").u64(),
        })
    });
    tests.take(super::MOST_TESTS).collect()
}
