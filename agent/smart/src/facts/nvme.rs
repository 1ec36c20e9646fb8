//! Facts of an NVMe drive: health log, temperature limits, self-tests.

use serde::{Deserialize, Serialize};

use super::{LoggedPlace, SelfTest, SelfTestResult};
use crate::json::Node;

/// Size of a data unit, bytes: a thousand blocks of 512 bytes.
const DATA_UNIT: u64 = 512_000;
/// Status of a completed command: Unrecovered Read Error (NVMe base specification 2.1, figure 102), type 2 and code 0x81.
const UNRECOVERED_READ: u64 = 0x281;
/// Mask of the type and the code in a status field.
const STATUS: u64 = 0x7ff;
/// Maximum of entries of the error log that are read; smartctl prints 16 by default.
const ENTRIES: usize = 256;
/// Names of the summary of endurance groups in smartctl and nvme-cli.
const ENDURANCE_GROUPS: [&str; 2] = [
    "endurance_group_critical_warning_summary",
    "endurance_grp_critical_warning_summary",
];
/// Maximum of sensors that are kept, which is that of the specification.
const SENSORS: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nvme {
    /// Bits of the critical warning byte.
    pub critical_warning: Option<CriticalWarning>,
    /// The same bits for the endurance groups, if the controller reports them.
    #[serde(default)]
    pub endurance_groups: Option<CriticalWarning>,
    /// Spare blocks that are left, percent.
    pub available_spare: Option<u64>,
    /// Spare below which the drive warns, percent.
    pub spare_threshold: Option<u64>,
    /// Rated endurance used, percent; may pass 100.
    pub percentage_used: Option<u64>,
    /// Number of reads and writes that failed because of the medium.
    pub media_errors: Option<u64>,
    /// Number of power losses without a notice.
    #[serde(default)]
    pub unsafe_shutdowns: Option<u64>,
    /// Minutes above the warning temperature.
    #[serde(default)]
    pub warning_minutes: Option<u64>,
    /// Minutes above the critical temperature.
    #[serde(default)]
    pub critical_minutes: Option<u64>,
    /// Number of entries ever written to the error log. No sign of ill health.
    pub error_log_entries: Option<u64>,
    /// Number of commands to read and to write that hosts sent.
    #[serde(default)]
    pub host_commands: Option<u64>,
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
    /// Self-tests, the newest first.
    pub self_tests: Vec<SelfTest>,
    /// Number of reads in the error log that failed because the medium lost the data; None if the log was not read.
    #[serde(default)]
    pub unrecovered_reads: Option<u64>,
    /// Sectors of these reads.
    #[serde(default)]
    pub unreadable: Vec<LoggedPlace>,
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
    /// Mask of the bits that have a meaning.
    pub const DEFINED: u8 = 0x3f;

    /// True if one of these bits is set.
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
        let bits = |bits: u64| CriticalWarning((bits & 0xff) as u8);
        let groups = ENDURANCE_GROUPS.iter();
        let groups = groups.map(|key| log.get(key)).find_map(Node::u64);
        let commands = ["host_reads", "host_writes"].into_iter();
        let (unrecovered_reads, unreadable) = unrecovered(root.get("nvme_error_information_log"));
        Self {
            critical_warning: warning.map(bits),
            endurance_groups: groups.map(bits),
            available_spare: log.get("available_spare").u64(),
            spare_threshold: log.get("available_spare_threshold").u64(),
            percentage_used: log.get("percentage_used").u64(),
            media_errors: log.count("media_errors"),
            unsafe_shutdowns: log.count("unsafe_shutdowns"),
            warning_minutes: log.count("warning_temp_time"),
            critical_minutes: log.count("critical_comp_time"),
            error_log_entries: log.count("num_err_log_entries"),
            host_commands: commands
                .filter_map(|key| log.count(key))
                .reduce(u64::saturating_add),
            bytes_read: bytes("data_units_read"),
            bytes_written: bytes("data_units_written"),
            warning_temperature: limits.get("warning").i32(),
            critical_temperature: limits.get("critical").i32(),
            // Missing sensors are null.
            sensors: log
                .get("temperature_sensors")
                .items()
                .filter_map(Node::i32)
                .take(SENSORS)
                .collect(),
            self_tests: self_tests(root),
            unrecovered_reads,
            unreadable,
        }
    }
}

fn unrecovered(log: Node<'_>) -> (Option<u64>, Vec<LoggedPlace>) {
    let is_unrecovered = |entry: &Node<'_>| {
        let status = entry.get("status_field");
        status.get("value").u64().map(|status| status & STATUS) == Some(UNRECOVERED_READ)
    };
    let entries = log.get("table").items().take(ENTRIES);
    let entries: Vec<Node<'_>> = entries.filter(is_unrecovered).collect();
    let place = |entry: &Node<'_>| {
        Some(LoggedPlace {
            entry: entry.get("error_count").u64().unwrap_or(0),
            lba: entry.path(&["lba", "value"]).u64()?,
        })
    };
    let places = entries.iter().filter_map(place).collect();
    let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
    (
        log.is_object().then_some(count),
        LoggedPlace::newest(places),
    )
}

fn self_tests(root: Node<'_>) -> Vec<SelfTest> {
    let rows = root.path(&["nvme_self_test_log", "table"]);
    let tests = rows.items().filter_map(|row| {
        let result = match row.path(&["self_test_result", "value"]).u64()? {
            0 => SelfTestResult::Passed,
            // Ended by a command, a reset, a namespace that was removed, a format, a sanitize, or for an unknown reason.
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
