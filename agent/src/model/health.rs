//! How well a drive is: a verdict, and what it rests on.

use serde::{Deserialize, Serialize};

/// What the evidence adds up to. Ordered from well to ill.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Nothing is known for or against it.
    #[default]
    Unknown,
    /// It says that it is well, and nothing speaks against it.
    Good,
    /// Something speaks against it: no new volumes.
    Suspect,
    /// It fails: no new volumes, and the data should leave it.
    Bad,
}

impl Verdict {
    /// The word in tables and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Good => "GOOD",
            Self::Suspect => "SUSPECT",
            Self::Bad => "BAD",
        }
    }

    /// Whether new volumes may be put on it.
    pub fn takes_new_volumes(self) -> bool {
        matches!(self, Self::Unknown | Self::Good)
    }
}

/// One thing that speaks against a drive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Stable, CamelCase.
    pub code: String,
    /// What it is and what to do; no timestamps, no counters.
    pub message: String,
}

/// How well a drive is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// What the findings add up to.
    pub verdict: Verdict,
    /// In a stable order.
    pub findings: Vec<Finding>,
}
