//! What smartctl (of an eMMC: the kernel) said of a drive, typed by protocol. From bytes, bounded, and tolerant of what real
//! drives and versions of smartctl write; no judgement here.
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

/// Longest name or other short text kept, in characters.
const NAME: usize = 64;
/// Self-tests kept; a log has 21 entries as a rule, an extended one 19 a sector.
const MOST_TESTS: usize = 64;

/// Errors kept of one log, the newest.
const MOST_ERRORS: usize = 256;

/// Places kept of one log of unreadable ones: each is read, which may take seconds.
const MOST_PLACES: usize = 32;

/// Everything smartctl said of a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// smartctl's name for how it talked to the drive; good for `-d` next time.
    pub device_type: String,
    /// As the drive says it.
    pub model: String,
    /// As the drive says it.
    pub serial: String,
    /// As the drive says it.
    pub firmware: String,
    /// `0x…`, or empty.
    pub wwn: String,
    /// Bytes.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a logical and of a physical sector.
    #[serde(default)]
    pub sector_bytes: (Option<u64>, Option<u64>),
    /// Whether smartctl's database has the drive: its names for attributes are the vendor's then.
    #[serde(default)]
    pub listed: Option<bool>,
    /// Whether it turns; from its rotation rate, else from its attributes.
    pub rotational: Option<bool>,
    /// Turns a minute; 0 for a drive that does not turn.
    pub rotation_rate: Option<u64>,
    /// Whether the drive has SMART at all.
    pub smart_available: Option<bool>,
    /// Whether it is switched on.
    pub smart_enabled: Option<bool>,
    /// What the drive says of itself. True is no proof of health.
    pub passed: Option<bool>,
    /// Temperatures.
    pub temperature: Temperature,
    /// Hours with power.
    pub power_on_hours: Option<u64>,
    /// Times it was switched on.
    pub power_cycles: Option<u64>,
    /// Rated endurance used in percent, as smartctl 7.5 and later sum it up.
    pub endurance_used: Option<u64>,
    /// `ACTIVE`, `STANDBY`, …; empty when smartctl did not ask.
    pub power_mode: String,
    /// smartctl's exit status.
    pub exit: ExitStatus,
    /// What smartctl had to say besides.
    pub messages: Vec<Message>,
    /// State of the NVMe controller or SCSI device in sysfs when it is not the running one. Not from
    /// smartctl: whoever polls puts it in.
    pub not_running: Option<String>,
    /// An earlier answer proved that attributes 5, 197 and 198 count physical sectors. Not from smartctl: the history
    /// puts it in.
    #[serde(default)]
    pub counts_physical: bool,
    /// What only drives of its protocol say.
    pub detail: Detail,
}

/// Facts by protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// ATA or SATA, directly or behind a translation.
    Ata(Ata),
    /// SCSI or SAS.
    Scsi(Scsi),
    /// NVMe.
    Nvme(Nvme),
    /// eMMC, by sysfs.
    Mmc(Mmc),
    /// smartctl did not say, and nothing else gives it away.
    #[default]
    Unknown,
}

/// A drive's command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// ATA.
    Ata,
    /// SCSI.
    Scsi,
    /// NVMe.
    Nvme,
    /// eMMC.
    Mmc,
}

impl Protocol {
    /// The word in tables and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ata => "ata",
            Self::Scsi => "scsi",
            Self::Nvme => "nvme",
            Self::Mmc => "mmc",
        }
    }
}

/// Degrees Celsius.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature {
    /// Now.
    pub current: Option<i32>,
    /// Highest for operation, as the drive says.
    pub operating_max: Option<i32>,
    /// Beyond it the drive is in danger, as it says.
    pub critical_max: Option<i32>,
    /// At which a SCSI drive reports an exception.
    pub trip: Option<i32>,
}

/// A message of smartctl's.
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
    /// `SHORT`, `EXTENDED` or another of the protocol's numbers; 0 when unknown.
    pub kind: u64,
    /// How it ended.
    pub result: SelfTestResult,
    /// Power-on hours when it ended. ATA and SCSI count to 65535 and begin again.
    pub hours: Option<u64>,
    /// The first sector that it could not read, in logical sectors.
    #[serde(default)]
    pub lba: Option<u64>,
}

impl SelfTest {
    /// A quick one of the electronics and a little of the medium.
    pub const SHORT: u64 = 1;
    /// One of the whole medium.
    pub const EXTENDED: u64 = 2;
}

/// How a self-test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelfTestResult {
    /// Without an error.
    Passed,
    /// Somebody or something ended it: says nothing about the drive.
    Aborted,
    /// Still at it.
    Running,
    /// With an error; the protocol's code.
    Failed(u8),
    /// A code nobody knows.
    Unknown,
}

/// An entry of a log about data that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoggedError {
    /// Grows with each new entry: its number, or its time.
    pub number: u64,
    /// Power-on hours when it happened. ATA counts to 65535 and begins again.
    pub hours: Option<u64>,
}

impl LoggedError {
    /// The newest entries of one log, the newest first.
    fn newest(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(MOST_ERRORS);
        all
    }
}

/// A sector that a log of the drive has as unreadable. A log is history: it may have been written since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoggedPlace {
    /// Grows with each entry of the log: its number or its time.
    pub entry: u64,
    /// In logical sectors.
    pub lba: u64,
}

impl LoggedPlace {
    /// The newest entries of one log, of each sector one.
    fn newest(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut known = BTreeSet::new();
        all.retain(|place| known.insert(place.lba));
        all.truncate(MOST_PLACES);
        all
    }
}

impl Facts {
    /// The protocol, when it is known.
    pub fn protocol(&self) -> Option<Protocol> {
        match self.detail {
            Detail::Ata(_) => Some(Protocol::Ata),
            Detail::Scsi(_) => Some(Protocol::Scsi),
            Detail::Nvme(_) => Some(Protocol::Nvme),
            Detail::Mmc(_) => Some(Protocol::Mmc),
            Detail::Unknown => None,
        }
    }

    /// The drive's word on itself; an exit status of "failing" counts where the word itself is missing. None where it is
    /// made of a value that cannot be true.
    pub fn status(&self) -> Option<bool> {
        if plausible::status_is_void(self) {
            return None;
        }
        let failing = self.exit.has(ExitStatus::FAILING).then_some(false);
        self.passed.or(failing)
    }

    /// Whether a sleeping drive was left alone.
    pub fn asleep(&self) -> bool {
        let mode = self.power_mode.to_uppercase();
        mode.starts_with("STANDBY") || mode.starts_with("SLEEP")
    }

    /// Whether there is anything that a verdict could be made of. A status of "passed" alone is no proof of health.
    pub fn tells_health(&self) -> bool {
        plausible::tells_health(self)
    }

    /// The newest self-test first.
    pub fn self_tests(&self) -> &[SelfTest] {
        match &self.detail {
            Detail::Ata(ata) => &ata.self_tests,
            Detail::Scsi(scsi) => &scsi.self_tests,
            Detail::Nvme(nvme) => &nvme.self_tests,
            Detail::Mmc(_) | Detail::Unknown => &[],
        }
    }

    /// Where the drive's logs say that it could not read: failed self-tests, errors, background scans, pending defects.
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
