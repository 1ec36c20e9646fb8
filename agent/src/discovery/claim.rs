//! The claim check: pure rules from facts, host use and probe to all reasons against a drive.

use super::{probe::{ProbeError, Probed}, system::HostUse};
use crate::model::{ClassConfig, DriveFacts, Label, Reject};

/// Everything the rules look at for one drive.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// sysfs facts.
    pub facts: &'a DriveFacts,
    /// Facts of all disks, to find duplicates and multipath.
    pub all: &'a [DriveFacts],
    /// What the host uses.
    pub host: &'a HostUse,
    /// The probe: None when it was not run (the facts alone refuse it, or no worker was free).
    pub probed: Option<&'a Result<Probed, ProbeError>>,
    /// Our label, when the probe says it is ours and it was read.
    pub label: Option<&'a Label>,
    /// Why our label could not be read.
    pub label_trouble: Option<&'a str>,
}

/// What the node is and allows.
#[derive(Debug, Clone)]
pub struct Rules {
    /// This cluster.
    pub cluster: String,
    /// This node id.
    pub node: String,
    /// Loop devices count as drives (tests, demo).
    pub allow_loop: bool,
    /// The classes, checked.
    pub classes: Vec<ClassConfig>,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Carries our label for this cluster and node.
    Claimed,
    /// May be claimed for this class.
    Available {
        /// Class name.
        class: String,
    },
    /// May not be used.
    Rejected {
        /// The class that selects it, when exactly one does.
        class: Option<String>,
        /// Every reason, in the order of `RejectCode::ALL`.
        reasons: Vec<Reject>,
    },
}

/// Whether the facts alone show that there is nothing to probe (not a disk at all, zero size, hidden).
pub fn skips_probe(facts: &DriveFacts, rules: &Rules) -> bool {
    let _ = (facts, rules);
    todo!()
}

/// The class that selects a drive: `Ok(None)` when none does, the names when several do and no priority decides.
pub fn class_of<'a>(facts: &DriveFacts, rules: &'a Rules) -> Result<Option<&'a ClassConfig>, Vec<&'a str>> {
    let _ = (facts, rules);
    todo!()
}

/// The verdict, with all reasons.
pub fn judge(evidence: &Evidence<'_>, rules: &Rules) -> Judgement {
    let _ = (evidence, rules);
    todo!()
}
