//! Persisted state of a drive between polls. Pure: time is an argument.
//!
//! # On disk
//!
//! One JSON object per drive, written by `History::to_json` and read by `History::from_json`:
//!
//! ```json
//! {
//!   "version": 1,
//!   "identity": {"model": "…", "serial": "…", "wwn": "0x…"},
//!   "protocol": "ata", "device_type": "sat",
//!   "verdict": "SUSPECT", "since": 1700000000, "reasons": [ …findings… ],
//!   "clean_polls": 0, "clean_since": null,
//!   "answered_at": 1700000000, "findings": [ …findings of the last answer… ], "conditions": [ …of the last answer… ],
//!   "counters": {"PendingSectors": {"value": 1, "at": 1700000000, "polls": 0, "points": [[1699999200, 1]]}},
//!   "acknowledged": {"ata-187": 3},
//!   "acknowledgements": [{"at": 1700000000, "by": "…", "note": "…", "until": null, "takes_new_volumes": false,
//!     "findings": [["ReportedUncorrect", "ata-187", 3]], "withdrawn": {"at": 1700000000, "by": "…"}}],
//!   "remembered": {"pending_defects": 0, …},
//!   "overheating": false, "hanging": false, "timeouts": 0, "failures": {"Timeout": 2}
//! }
//! ```
//!
//! Times are seconds since 1970. Every member but `version` may be missing. A member that is added later gets a default; a change of
//! meaning raises `version`. A later version is refused, because misreading it could turn BAD into GOOD.

mod acknowledgement;
mod counter;
mod remembered;
mod series;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use drivebay_model::{
    identity::{is_unique_serial, is_unique_wwn},
    units::size_beside,
};

pub use counter::Counter;
pub use series::{Series, Trend};

use self::remembered::Remembered;
use super::{
    facts::{Facts, Protocol},
    outcome::FailureReason,
    rules::{RuleFinding, SmartCode, SmartCondition, Verdict},
};

/// Version of the format that is written.
pub const VERSION: u32 = 1;
/// Largest file that is read, bytes: a full history is under 64 KiB.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Maximum of reasons that are kept for one verdict.
const REASONS: usize = 32;

/// Times and values of counters, as [`History::counter_points`] returns them.
pub type CounterPoints = Vec<(Counter, Vec<(u64, u64)>)>;

/// Growth of the counters up to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trends(BTreeMap<Counter, Trend>);

impl Trends {
    /// Returns the trend of a counter; None if the drive does not have it.
    pub fn get(&self, counter: Counter) -> Option<Trend> {
        self.0.get(&counter).copied()
    }
}

impl FromIterator<(Counter, Trend)> for Trends {
    fn from_iter<T: IntoIterator<Item = (Counter, Trend)>>(trends: T) -> Self {
        Self(trends.into_iter().collect())
    }
}

/// State from earlier polls that the rules need besides trends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierPolls {
    /// Acknowledged level by subject.
    pub levels: BTreeMap<String, u64>,
    /// True if the drive was too hot at the last poll.
    pub overheating: bool,
}

impl EarlierPolls {
    /// Returns the level up to which findings on this subject are acknowledged.
    pub fn acknowledged(&self, subject: &str) -> Option<u64> {
        self.levels.get(subject).copied()
    }
}

/// Identity of the drive that the history is of, as the drive itself reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub serial: String,
    /// World-wide name (`Facts::wwn`); empty if the drive reports none, or a placeholder that identifies no drive.
    #[serde(default)]
    pub wwn: String,
}

impl Identity {
    /// Returns the identity without placeholders, which identify no drive.
    fn of(facts: &Facts) -> Self {
        let unique = |name: &str, is_unique: bool| match is_unique {
            true => name.to_owned(),
            false => String::new(),
        };
        let wwn = facts.wwn.trim_start_matches("0x");
        // smartctl does not report the kind. The first digit of a NAA is its format.
        let kind = match wwn.starts_with(['1', '2', '3', '5', '6']) {
            true => "naa",
            false => "eui",
        };
        Self {
            model: facts.model.clone(),
            serial: unique(&facts.serial, is_unique_serial(&facts.serial)),
            wwn: unique(&facts.wwn, is_unique_wwn(&format!("{kind}.{wwn}"))),
        }
    }

    /// True if the two cannot be one drive. A name that one of them does not have is no difference.
    fn differs(&self, other: &Self) -> bool {
        let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        differ(&self.serial, &other.serial) || differ(&self.wwn, &other.wwn)
    }

    /// True if the two have a name in common.
    fn agrees(&self, other: &Self) -> bool {
        let agree = |a: &str, b: &str| !a.is_empty() && a == b;
        agree(&self.serial, &other.serial) || agree(&self.wwn, &other.wwn)
    }

    fn fill_from(&mut self, other: Self) {
        for (mine, other) in [
            (&mut self.model, other.model),
            (&mut self.serial, other.serial),
            (&mut self.wwn, other.wwn),
        ] {
            if !other.is_empty() {
                *mine = other;
            }
        }
    }
}

/// An operator's statement that the findings shown are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub by: String,
    pub note: String,
    /// Time from which on it no longer holds, seconds since 1970; None: it holds until it is withdrawn.
    pub until: Option<u64>,
    /// True if the drive takes new volumes in spite of the findings.
    pub takes_new_volumes: bool,
}

/// An acknowledgement as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Time at which it was given, seconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub given: Acknowledgement,
    /// Code, subject and value of each finding that it covers.
    pub findings: Vec<(SmartCode, String, u64)>,
    /// The withdrawal, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
}

/// Withdrawal of an acknowledgement by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    pub at: u64,
    pub by: String,
}

/// State of one drive between polls, in the format that the module's documentation shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    version: u32,
    #[serde(default)]
    identity: Identity,
    #[serde(default)]
    protocol: Option<Protocol>,
    #[serde(default)]
    device_type: String,
    #[serde(default = "unknown")]
    verdict: Verdict,
    #[serde(default)]
    since: u64,
    #[serde(default)]
    reasons: Vec<RuleFinding>,
    #[serde(default)]
    clean_polls: u32,
    #[serde(default)]
    clean_since: Option<u64>,
    #[serde(default)]
    answered_at: Option<u64>,
    #[serde(default)]
    findings: Vec<RuleFinding>,
    #[serde(default)]
    conditions: Vec<SmartCondition>,
    #[serde(default)]
    counters: BTreeMap<Counter, Series>,
    #[serde(default)]
    acknowledged: BTreeMap<String, u64>,
    #[serde(default)]
    acknowledgements: Vec<Acknowledged>,
    #[serde(default)]
    remembered: Remembered,
    #[serde(default)]
    overheating: bool,
    #[serde(default)]
    hanging: bool,
    #[serde(default)]
    timeouts: u32,
    #[serde(default)]
    failures: BTreeMap<FailureReason, u64>,
}

fn unknown() -> Verdict {
    Verdict::Unknown
}

/// Reason why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Not JSON, or not a history.
    #[error("the drive's health history is damaged; move the file aside to begin a new one")]
    Damaged(#[source] serde_json::Error),
    /// The file has more than `MAX_BYTES`. It is not parsed.
    #[error(
        "the drive's health history has {}, more than {}; move the file aside to begin a new one",
        size_beside(*len as u64, MAX_BYTES as u64),
        size_beside(MAX_BYTES as u64, *len as u64)
    )]
    TooLarge {
        /// Length of the file, bytes.
        len: usize,
    },
    /// Written by a newer agent.
    #[error(
        "the drive's health history is of version {version}, this agent knows {VERSION}; run the newer agent, or move the file aside to begin a new one"
    )]
    Version {
        /// Version in the file.
        version: u32,
    },
}

impl Default for History {
    fn default() -> Self {
        Self {
            version: VERSION,
            identity: Identity::default(),
            protocol: None,
            device_type: String::new(),
            verdict: Verdict::Unknown,
            since: 0,
            reasons: Vec::new(),
            clean_polls: 0,
            clean_since: None,
            answered_at: None,
            findings: Vec::new(),
            conditions: Vec::new(),
            counters: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            acknowledgements: Vec::new(),
            remembered: Remembered::default(),
            overheating: false,
            hanging: false,
            timeouts: 0,
            failures: BTreeMap::new(),
        }
    }
}

impl History {
    /// Parses the format that `to_json` writes. Errs if it is damaged, larger than `MAX_BYTES`, or of another version.
    pub fn from_json(bytes: &[u8]) -> Result<Self, HistoryError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        if bytes.len() > MAX_BYTES {
            return Err(HistoryError::TooLarge { len: bytes.len() });
        }
        // The version first: a newer format may not parse as this one.
        let Version { version } = serde_json::from_slice(bytes).map_err(HistoryError::Damaged)?;
        if version != VERSION {
            return Err(HistoryError::Version { version });
        }
        serde_json::from_slice(bytes).map_err(HistoryError::Damaged)
    }

    /// Returns the format for a file. The error is serde's; a history has nothing that cannot be written.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Returns the verdict that is held.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the findings for which the verdict is held: those when it was entered, and since. Empty for GOOD and UNKNOWN.
    pub fn reasons(&self) -> &[RuleFinding] {
        &self.reasons
    }

    /// Returns the findings of the last answer, worst first, with the acknowledged ones.
    pub fn findings(&self) -> &[RuleFinding] {
        &self.findings
    }

    /// Returns wear, temperature, cable and timeouts, as of the last answer with health data.
    pub fn conditions(&self) -> &[SmartCondition] {
        &self.conditions
    }

    /// True if this is proven to be the history of the drive that gave the answer: both have the same WWN or serial number, which is no
    /// placeholder.
    pub fn is_of(&self, facts: &Facts) -> bool {
        let identity = Identity::of(facts);
        !self.identity.differs(&identity) && self.identity.agrees(&identity)
    }

    /// Returns the time since which the verdict is held, seconds since 1970; 0 if there was none.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Returns the time of the last answer, seconds since 1970.
    pub fn answered_at(&self) -> Option<u64> {
        self.answered_at
    }

    /// Returns the device type with which smartctl last reached the drive: the `-d` for the next poll. None if it has not, or if a poll
    /// failed since in a way that the type may have caused.
    pub fn device_type(&self) -> Option<&str> {
        Some(self.device_type.as_str()).filter(|kind| !kind.is_empty())
    }

    /// Returns the protocol of the last answer.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns the number of failed polls by reason, since the drive was first polled.
    pub fn failures(&self) -> &BTreeMap<FailureReason, u64> {
        &self.failures
    }

    /// Returns the acknowledgements that are kept, oldest first.
    pub fn acknowledgements(&self) -> &[Acknowledged] {
        &self.acknowledgements
    }

    /// Returns the counters' values in the seven days before the last answer: times (seconds since 1970) and values, oldest first. A value
    /// holds until the next one.
    pub fn counter_points(&self) -> CounterPoints {
        let counters = self.counters.iter();
        counters
            .map(|(counter, series)| (*counter, series.points()))
            .collect()
    }

    /// Returns the growth of the counters as of the last answer.
    pub fn trends(&self) -> Trends {
        let counters = self.counters.iter();
        counters
            .map(|(counter, series)| (*counter, series.last_trend()))
            .collect()
    }

    /// Returns the state from earlier polls that the rules need.
    pub fn earlier_polls(&self) -> EarlierPolls {
        EarlierPolls {
            levels: self.acknowledged.clone(),
            overheating: self.overheating,
        }
    }
}
