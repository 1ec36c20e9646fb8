//! Output of smartctl (of an eMMC: of the kernel) for a drive, typed by protocol. Parsing is bounded and tolerates the output of real
//! drives and of all versions of smartctl; it judges nothing.
//!
//! The protocol is `device.protocol`, never `device.type`: an NVMe drive behind a USB bridge is an
//! NVMe drive, a SAS drive behind a RAID controller a SCSI drive.

mod ata;
mod ata_errors;
mod documents;
mod exit;
mod mmc;
mod nvme;
mod parse;
mod scsi;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::plausible;

pub use ata::{Ata, Attribute, Failed, Statistic};
pub use ata::{DEFINED_TESTS, INVALID_THRESHOLD};
pub use documents::documents;
pub use exit::ExitStatus;
pub use mmc::Mmc;
pub use nvme::{CriticalWarning, Nvme};
pub use parse::sleeping;
pub use parse::{MAX_BYTES, ParseError, parse};
pub use scsi::{ErrorCounter, Scsi};

/// Longest name or other short text that is kept, characters.
const NAME: usize = 64;
/// Maximum of self-tests that are kept; a log usually has 21 entries, an extended one 19 per sector.
const MOST_TESTS: usize = 64;

/// Maximum of errors that are kept of one log, the newest.
const MOST_ERRORS: usize = 256;

/// Maximum of sectors that are kept of one log of unreadable ones: each is read, which may take seconds.
const MOST_PLACES: usize = 32;

/// All data that smartctl reported for a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// smartctl's name for the device type, which `-d` takes at the next poll.
    pub device_type: String,
    pub model: String,
    pub serial: String,
    pub firmware: String,
    /// World-wide name as `0x` and hexadecimal digits, else smartctl's `logical_unit_id`; empty if it reports neither.
    pub wwn: String,
    pub capacity_bytes: Option<u64>,
    /// Sizes of a logical and of a physical sector, bytes.
    #[serde(default)]
    pub sector_bytes: (Option<u64>, Option<u64>),
    /// True if smartctl's database has the drive, so that names of attributes are the vendor's.
    #[serde(default)]
    pub listed: Option<bool>,
    /// True if it rotates; by its rotation rate, else by its attributes.
    pub rotational: Option<bool>,
    /// Rotations per minute; 0 for a drive that does not rotate.
    pub rotation_rate: Option<u64>,
    /// True if the drive supports SMART.
    pub smart_available: Option<bool>,
    /// True if SMART is enabled in the drive.
    pub smart_enabled: Option<bool>,
    /// The drive's own status. True is no proof of health.
    pub passed: Option<bool>,
    pub temperature: Temperature,
    pub power_on_hours: Option<u64>,
    /// Number of power cycles.
    pub power_cycles: Option<u64>,
    /// Rated endurance used, percent, as summed up by smartctl 7.5 and later.
    pub endurance_used: Option<u64>,
    /// `ACTIVE`, `STANDBY`, …; empty if smartctl did not read it.
    pub power_mode: String,
    pub exit: ExitStatus,
    /// Further messages of smartctl.
    pub messages: Vec<Message>,
    /// State of the NVMe controller or SCSI device in sysfs unless it is the running one. Not from smartctl: the poll sets it.
    pub not_running: Option<String>,
    /// True if an answer proved that attributes 5, 197 and 198 count physical sectors. Not from smartctl: the history sets it.
    #[serde(default)]
    pub counts_physical: bool,
    /// Data that only drives of its protocol report.
    pub detail: Detail,
}

/// Data that only drives of one protocol report. The variant is the drive's protocol (`Facts::protocol`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// ATA or SATA, directly or behind a translation.
    Ata(Ata),
    Scsi(Scsi),
    Nvme(Nvme),
    /// eMMC: read from sysfs, because smartctl does not support it.
    Mmc(Mmc),
    /// The output does not name the protocol, and has no section of one.
    #[default]
    Unknown,
}

/// A drive's command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Ata,
    Scsi,
    Nvme,
    Mmc,
}

impl Protocol {
    /// Returns the word in tables and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ata => "ata",
            Self::Scsi => "scsi",
            Self::Nvme => "nvme",
            Self::Mmc => "mmc",
        }
    }
}

/// Temperature and its limits, degrees Celsius.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature {
    pub current: Option<i32>,
    /// Highest temperature for operation, as the drive reports it.
    pub operating_max: Option<i32>,
    /// Temperature above which the drive is in danger, as it reports it.
    pub critical_max: Option<i32>,
    /// Temperature at which a SCSI drive reports an exception.
    pub trip: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `information`, `warning` or `error`.
    pub severity: String,
    /// Bounded, without control characters.
    pub text: String,
}

/// One entry of a self-test log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// `SHORT`, `EXTENDED` or another of the protocol's numbers; 0 if unknown.
    pub kind: u64,
    pub result: SelfTestResult,
    /// Power-on hours at its end. ATA and SCSI count to 65535 and start again.
    pub hours: Option<u64>,
    /// First sector that could not be read, in logical sectors.
    #[serde(default)]
    pub lba: Option<u64>,
}

impl SelfTest {
    /// A short test of the electronics and a small part of the medium.
    pub const SHORT: u64 = 1;
    /// A test of the whole medium.
    pub const EXTENDED: u64 = 2;
}

/// Result of a self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelfTestResult {
    /// The test ended without an error.
    Passed,
    /// The test was ended from outside, and has no result.
    Aborted,
    /// The test has not ended.
    Running,
    /// The test ended with an error; the protocol's code.
    Failed(u8),
    /// The code has no known meaning.
    Unknown,
}

/// An entry of a log for data that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoggedError {
    /// Increases with each new entry: its number, or its time.
    pub number: u64,
    /// Power-on hours of the event. ATA counts to 65535 and starts again.
    pub hours: Option<u64>,
}

impl LoggedError {
    /// Returns the newest entries of one log, the newest first; at most `MOST_ERRORS`.
    fn newest(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(MOST_ERRORS);
        all
    }
}

/// A sector that a log of the drive has as unreadable. It may have been written since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoggedPlace {
    /// Increases with each entry of the log: its number or its time.
    pub entry: u64,
    /// Address in logical sectors.
    pub lba: u64,
}

impl LoggedPlace {
    /// Returns the newest entries of one log, one for each sector, the newest first; at most `MOST_PLACES`.
    fn newest(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut lbas = BTreeSet::new();
        all.retain(|place| lbas.insert(place.lba));
        all.truncate(MOST_PLACES);
        all
    }
}

impl Facts {
    /// Returns the protocol, if it is known.
    pub fn protocol(&self) -> Option<Protocol> {
        match self.detail {
            Detail::Ata(_) => Some(Protocol::Ata),
            Detail::Scsi(_) => Some(Protocol::Scsi),
            Detail::Nvme(_) => Some(Protocol::Nvme),
            Detail::Mmc(_) => Some(Protocol::Mmc),
            Detail::Unknown => None,
        }
    }

    /// Returns the drive's own status; without one, an exit status of "failing" counts. None if the status derives from a value that cannot
    /// be true.
    pub fn status(&self) -> Option<bool> {
        if plausible::status_is_void(self) {
            return None;
        }
        let failing = self.exit.has(ExitStatus::FAILING).then_some(false);
        self.passed.or(failing)
    }

    /// True if the drive is in standby or sleeps.
    pub fn asleep(&self) -> bool {
        let mode = self.power_mode.to_uppercase();
        mode.starts_with("STANDBY") || mode.starts_with("SLEEP")
    }

    /// True if there is data from which a verdict can be derived. A status of "passed" alone is no proof of health.
    pub fn has_health_data(&self) -> bool {
        plausible::has_health_data(self)
    }

    /// Returns the self-tests, the newest first.
    pub fn self_tests(&self) -> &[SelfTest] {
        match &self.detail {
            Detail::Ata(ata) => &ata.self_tests,
            Detail::Scsi(scsi) => &scsi.self_tests,
            Detail::Nvme(nvme) => &nvme.self_tests,
            Detail::Mmc(_) | Detail::Unknown => &[],
        }
    }

    /// Returns the sectors that the drive's logs have as unreadable: failed self-tests, errors, background scans, pending defects.
    pub fn logged_places(&self) -> Vec<LoggedPlace> {
        let tests = plausible::self_tests(self);
        let tests = tests.into_iter().filter_map(|test| match test {
            SelfTest {
                result: SelfTestResult::Failed(_),
                lba: Some(lba),
                hours,
                ..
            } => Some(LoggedPlace {
                entry: hours.unwrap_or(0),
                lba: *lba,
            }),
            _ => None,
        });
        let logged = match &self.detail {
            Detail::Ata(ata) => ata.unreadable.as_slice(),
            Detail::Scsi(scsi) => scsi.unreadable.as_slice(),
            Detail::Nvme(nvme) => nvme.unreadable.as_slice(),
            Detail::Mmc(_) | Detail::Unknown => &[],
        };
        let mut all = LoggedPlace::newest(tests.collect());
        all.extend_from_slice(logged);
        all
    }
}
