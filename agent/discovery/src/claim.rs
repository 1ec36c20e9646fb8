//! The claim check: pure rules from facts, host use and probe to all reasons against a drive.

use super::{reasons, system::HostUse};
use drivebay_layout::probe::{ProbeError, Probed};
use drivebay_model::{ClassConfig, DriveFacts, Label, Reject, RejectCode, Transport};

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

/// Whether this virtual device counts as a drive here: loop devices do where the rules allow them.
pub(super) fn is_a_disk(facts: &DriveFacts, rules: &Rules) -> bool {
    facts.virtual_kind.is_none() || (facts.transport == Transport::Loop && rules.allow_loop)
}

/// Whether the facts alone show that there is nothing to probe (not a disk at all, zero size, hidden).
pub fn skips_probe(facts: &DriveFacts, rules: &Rules) -> bool {
    !is_a_disk(facts, rules) || facts.is_partition || facts.hidden || facts.size_bytes == 0
}

/// The class that selects a drive: `Ok(None)` when none does, the names when several do and no priority decides.
pub fn class_of<'a>(
    facts: &DriveFacts,
    rules: &'a Rules,
) -> Result<Option<&'a ClassConfig>, Vec<&'a str>> {
    let selecting = || {
        rules
            .classes
            .iter()
            .filter(|class| class.select.selects(facts))
    };
    let Some(top) = selecting().map(|class| class.priority).max() else {
        return Ok(None);
    };
    let best: Vec<&ClassConfig> = selecting().filter(|class| class.priority == top).collect();
    match best.as_slice() {
        [one] => Ok(Some(one)),
        several => Err(several.iter().map(|class| class.name.as_str()).collect()),
    }
}

/// Reasons that hold for a claimed drive too: it is not the one drive that its label is about, or no
/// place to have volumes at all. Everything else (mounted, held, partitions) is what a claimed drive
/// looks like when it is in use. A device with the same identity is none: without our label it can take nothing from
/// the drive that has it, and of two devices with the same label neither is claimed.
const ALSO_FOR_OURS: &[RejectCode] = &[
    RejectCode::NotADisk,
    RejectCode::Partition,
    RejectCode::Remote,
    RejectCode::HiddenPath,
    RejectCode::MultipathMember,
    RejectCode::ZeroSize,
];

/// Whether a reason is about the drive itself, or about whose its label is, so that a job of ours which changed what is on the
/// drive does not make it out of date.
pub fn outlasts_contents(code: RejectCode) -> bool {
    code == RejectCode::OursElsewhere || ALSO_FOR_OURS.contains(&code)
}

/// The verdict, with all reasons.
pub fn judge(evidence: &Evidence<'_>, rules: &Rules) -> Judgement {
    let selected = class_of(evidence.facts, rules);
    let class = selected.as_ref().ok().copied().flatten();
    let mut reasons = reasons::of_facts(evidence, rules, class);
    reasons.extend(reasons::of_host(evidence));
    reasons.extend(reasons::of_probe(evidence, rules, class));
    reasons.extend(reasons::of_selection(&selected));
    if is_ours_here(evidence, rules) {
        reasons.retain(|reason| ALSO_FOR_OURS.contains(&reason.code));
        if reasons.is_empty() {
            return Judgement::Claimed;
        }
    }
    reasons.sort_by_key(|reason| reason.code);
    match class {
        Some(class) if reasons.is_empty() => Judgement::Available {
            class: class.name.clone(),
        },
        _ => Judgement::Rejected {
            class: class.map(|class| class.name.clone()),
            reasons,
        },
    }
}

/// Probed, carries our label, the label was read and names this cluster and node.
fn is_ours_here(evidence: &Evidence<'_>, rules: &Rules) -> bool {
    evidence
        .probed
        .is_some_and(|probed| probed.as_ref().is_ok_and(|probed| probed.ours.is_some()))
        && evidence
            .label
            .is_some_and(|label| label.cluster == rules.cluster && label.node == rules.node)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
