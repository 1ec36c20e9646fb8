//! What is remembered of a drive between polls. Pure: time comes in as an argument.
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
//! Times are seconds since 1970. Every member but `version` may be missing. A member that is added
//! later gets a default; a change of meaning raises `version`, and a version from the future is
//! refused, for guessing at it could turn BAD into GOOD.

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

/// The form that is written.
pub const VERSION: u32 = 1;
/// A larger file is not one of ours: a full history is under 64 KiB.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Reasons kept for one verdict.
const REASONS: usize = 32;

/// How the counters moved up to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trends(BTreeMap<Counter, Trend>);

impl Trends {
    /// How one of them moved; None when the drive does not have it.
    pub fn get(&self, counter: Counter) -> Option<Trend> {
        self.0.get(&counter).copied()
    }
}

impl FromIterator<(Counter, Trend)> for Trends {
    fn from_iter<T: IntoIterator<Item = (Counter, Trend)>>(trends: T) -> Self {
        Self(trends.into_iter().collect())
    }
}

/// What the rules need to know from before, besides trends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Acknowledged level by subject.
    pub levels: BTreeMap<String, u64>,
    /// Whether it was too hot the last time.
    pub overheating: bool,
}

impl Known {
    /// The level up to which findings on this subject are acknowledged.
    pub fn acknowledged(&self, subject: &str) -> Option<u64> {
        self.levels.get(subject).copied()
    }
}

/// Who the history is of, as the drive itself said it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub serial: String,
    /// World wide name.
    #[serde(default)]
    pub wwn: String,
}

impl Identity {
    /// Placeholders are left out: they name no drive.
    fn of(facts: &Facts) -> Self {
        let unique = |name: &str, is_unique: bool| match is_unique {
            true => name.to_owned(),
            false => String::new(),
        };
        let wwn = facts.wwn.trim_start_matches("0x");
        // smartctl does not say which it is. The first digit of a NAA is its format.
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

    /// Whether the two cannot be one drive. What one of them does not say is no difference.
    fn differs(&self, other: &Self) -> bool {
        let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        differ(&self.serial, &other.serial) || differ(&self.wwn, &other.wwn)
    }

    /// Whether the two name something that is the same.
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

/// An operator's word that what was shown is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub by: String,
    pub note: String,
    /// It holds before this moment, seconds since 1970; None: until it is withdrawn.
    pub until: Option<u64>,
    /// The drive takes new volumes all the same.
    pub takes_new_volumes: bool,
}

/// An acknowledgement that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Seconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub given: Acknowledgement,
    /// What: code, subject and value of each finding.
    pub findings: Vec<(SmartCode, String, u64)>,
    /// Who withdrew it, and when, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
}

/// The end of an acknowledgement by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    pub at: u64,
    pub by: String,
}

/// What is remembered of a drive.
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

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Not JSON, or not a history.
    #[error("the drive's health history is damaged; move the file aside to begin a new one")]
    Damaged(#[source] serde_json::Error),
    /// Over `MAX_BYTES`.
    #[error(
        "the drive's health history has {}, more than {}; move the file aside to begin a new one",
        size_beside(*len as u64, MAX_BYTES as u64),
        size_beside(MAX_BYTES as u64, *len as u64)
    )]
    TooLarge {
        /// Bytes.
        len: usize,
    },
    /// Written by a newer agent.
    #[error(
        "the drive's health history is of version {found}, this agent knows {VERSION}; run the newer agent, or move the file aside to begin a new one"
    )]
    Version {
        /// What the file says.
        found: u32,
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
    /// Reads what `to_json` wrote.
    pub fn from_json(bytes: &[u8]) -> Result<Self, HistoryError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        if bytes.len() > MAX_BYTES {
            return Err(HistoryError::TooLarge { len: bytes.len() });
        }
        // The version first: a newer form need not fit this one.
        let Version { version } = serde_json::from_slice(bytes).map_err(HistoryError::Damaged)?;
        if version != VERSION {
            return Err(HistoryError::Version { found: version });
        }
        serde_json::from_slice(bytes).map_err(HistoryError::Damaged)
    }

    /// The form for a file. The error is serde's; a history has nothing that cannot be written.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The verdict that is held.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Why it is held: what was found when it was entered, and since. Empty for GOOD and UNKNOWN.
    pub fn reasons(&self) -> &[RuleFinding] {
        &self.reasons
    }

    /// What the last answer showed, worst first, what is acknowledged among it.
    pub fn findings(&self) -> &[RuleFinding] {
        &self.findings
    }

    /// Wear, heat, cable and timeouts, as of the last answer that said something of them.
    pub fn conditions(&self) -> &[SmartCondition] {
        &self.conditions
    }

    /// Whether this is proven to be the history of the drive that answered so: both name the same WWN or serial number, and
    /// not a placeholder.
    pub fn is_of(&self, facts: &Facts) -> bool {
        let identity = Identity::of(facts);
        !self.identity.differs(&identity) && self.identity.agrees(&identity)
    }

    /// Since when it is held, in seconds since 1970; 0 when never judged.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// When the drive last answered, in seconds since 1970.
    pub fn answered_at(&self) -> Option<u64> {
        self.answered_at
    }

    /// How smartctl talked to the drive the last time: the `-d` for the next poll. None when it has not,
    /// or when a poll with it failed since.
    pub fn device_type(&self) -> Option<&str> {
        Some(self.device_type.as_str()).filter(|kind| !kind.is_empty())
    }

    /// The protocol of the last answer.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Failed polls by reason, since the drive was first seen.
    pub fn failures(&self) -> &BTreeMap<FailureReason, u64> {
        &self.failures
    }

    /// The acknowledgements of this drive, oldest first.
    pub fn acknowledgements(&self) -> &[Acknowledged] {
        &self.acknowledgements
    }

    /// How the counters had moved when the drive answered last.
    pub fn trends(&self) -> Trends {
        let counters = self.counters.iter();
        counters
            .map(|(counter, series)| (*counter, series.last_trend()))
            .collect()
    }

    /// What the rules need to know from before.
    pub fn known(&self) -> Known {
        Known {
            levels: self.acknowledged.clone(),
            overheating: self.overheating,
        }
    }
}
