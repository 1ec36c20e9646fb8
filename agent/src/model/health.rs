//! How well a drive is: a verdict, and what it rests on.

use std::fmt;

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
    /// Every verdict there is.
    pub const ALL: [Self; 4] = [Self::Good, Self::Suspect, Self::Bad, Self::Unknown];

    /// How much it speaks against the drive; not knowing does not.
    pub fn weight(self) -> u8 {
        match self {
            Self::Good | Self::Unknown => 0,
            Self::Suspect => 1,
            Self::Bad => 2,
        }
    }

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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    /// What speaks against it, in a stable order.
    pub findings: Vec<Finding>,
    /// What a person should know besides: wear, heat, cables, why it cannot be asked.
    #[serde(default)]
    pub conditions: Vec<Finding>,
    /// Its rated endurance is used up.
    #[serde(default)]
    pub worn_out: bool,
}

impl DriveHealth {
    /// Whether new volumes may be put on it.
    pub fn takes_new_volumes(&self) -> bool {
        self.verdict.takes_new_volumes() && !self.worn_out
    }
}
