//! The claim check: pure rules that derive all reasons against using a drive from facts, host use and probe.

use super::{reasons, system::HostUse};
use drivebay_layout::probe::{ProbeError, Probed};
use drivebay_model::{ClassConfig, DriveFacts, Label, Reject, RejectCode, Transport};

/// Everything that the rules evaluate for one drive.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub facts: &'a DriveFacts,
    /// Facts of all disks, to find duplicates and multipath.
    pub all: &'a [DriveFacts],
    /// The host's use of drives.
    pub host: &'a HostUse,
    /// Result of the probe; None if it was not run (the facts alone refuse the drive, or no worker was free).
    pub probed: Option<&'a Result<Probed, ProbeError>>,
    /// Drivebay's label, if the probe found one and it was read.
    pub label: Option<&'a Label>,
    /// Error of reading the label.
    pub label_trouble: Option<&'a str>,
}

/// Identity and rules of the node.
#[derive(Debug, Clone)]
pub struct Rules {
    pub cluster: String,
    /// The id of this node.
    pub node: String,
    /// True if loop devices count as drives (tests, demo).
    pub allow_loop: bool,
    /// Classes of the checked configuration.
    pub classes: Vec<ClassConfig>,
}

/// Result of the claim check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The drive has Drivebay's label with this cluster and node.
    Claimed,
    /// The drive may be claimed for this class.
    Available {
        /// Name of the class.
        class: String,
    },
    /// The drive must not be used.
    Rejected {
        /// The class that selects it, if exactly one does.
        class: Option<String>,
        /// All reasons, in the order of `RejectCode::ALL`.
        reasons: Vec<Reject>,
    },
}

/// True if this device counts as a drive: real ones, and loop devices if the rules allow them.
pub(super) fn is_a_disk(facts: &DriveFacts, rules: &Rules) -> bool {
    facts.virtual_kind.is_none() || (facts.transport == Transport::Loop && rules.allow_loop)
}

/// True if the facts alone show that there is nothing to probe (no disk, zero size, hidden).
pub fn skips_probe(facts: &DriveFacts, rules: &Rules) -> bool {
    !is_a_disk(facts, rules) || facts.is_partition || facts.hidden || facts.size_bytes == 0
}

/// Returns the class that selects a drive; `Ok(None)` if none does; Err with the names if several do with the highest priority.
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

/// Reasons that apply to a claimed drive too: it is not the drive that its label names, or cannot hold volumes at all. All others (mounted,
/// held, partitions) are normal for a claimed drive in use. A device with the same identity is no such reason: without Drivebay's label it
/// can take nothing from the claimed drive, and of two devices with the same label neither is claimed.
const ALSO_FOR_OURS: &[RejectCode] = &[
    RejectCode::NotADisk,
    RejectCode::Partition,
    RejectCode::Remote,
    RejectCode::HiddenPath,
    RejectCode::MultipathMember,
    RejectCode::ZeroSize,
];

/// True if a reason concerns the drive itself, or the owner of its label, so that it remains valid after a job changed the drive's content.
pub fn outlasts_contents(code: RejectCode) -> bool {
    code == RejectCode::OursElsewhere || ALSO_FOR_OURS.contains(&code)
}

/// Returns the verdict with all reasons.
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

/// True if the probe found Drivebay's label, and the label was read and names this cluster and node.
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
