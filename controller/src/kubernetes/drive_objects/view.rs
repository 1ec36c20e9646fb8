//! The status of a drive's object from what its agent reports. Pure.

use drivebay_common::units::{count, human_size};
use drivebay_objects::{
    drive::{Condition, DriveStatus, Finding, FindingCount, Observed, VolumeOnDrive},
    times::format_time,
};
use drivebay_proto::{
    agent::{Drive, Volume},
    words::{DriveState, Transport, Verdict},
};
use drivebay_service::peer_log::{printable, printable_sentence};
use drivebay_view::{
    drives::{codes, is_noise},
    wrong::{Reason, reasons, wrong_drives},
};

use super::watched::Transition;

/// Most findings in a status.
const MAX_FINDINGS: usize = 16;
/// Most volumes in a status.
pub(super) const MAX_VOLUMES: usize = 32;
/// Most further nodes in a status.
pub(super) const MAX_OTHERS: usize = 8;
/// Type of the condition that is False while the node's agent is not connected.
pub(super) const AGENT_CONNECTED: &str = "AgentConnected";
/// Reason of that condition.
pub(super) const DISCONNECTED: &str = "AgentDisconnected";

/// Reason and message of the conditions of a drive that is in the persisted state alone.
const NOT_SCANNED: (&str, &str) = (
    "NotScanned",
    "the agent has started and not scanned the drive yet",
);

/// Use of a drive by a node, as its agent reports it; the strongest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kubernetes) enum DriveUse {
    /// The drive was seen before and is not present.
    Remembered,
    /// The drive is present and not used.
    Present,
    /// The drive is claimed, or available to be claimed.
    Used,
}

impl DriveUse {
    pub(in crate::kubernetes) fn of(drive: &Drive) -> Self {
        match drive.known_state() {
            Some(DriveState::Missing | DriveState::NotScanned) => Self::Remembered,
            Some(DriveState::Claimed | DriveState::Available) => Self::Used,
            Some(DriveState::Rejected | DriveState::Unprobed) | None => Self::Present,
        }
    }
}

/// A further node that has a drive of the same identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OtherNode {
    pub(super) node: Box<str>,
    /// None: its agent is not connected to this controller; the object names the node.
    pub(super) usage: Option<DriveUse>,
}

/// The volumes of a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Volumes {
    listed: Vec<VolumeOnDrive>,
    count: usize,
}

impl Volumes {
    /// `claim`: as NAMESPACE/NAME; empty if there is none.
    pub(super) fn add(&mut self, volume: &Volume, claim: &str) {
        let abnormal = volume.conditions.iter().filter(|one| one.abnormal);
        let reasons: Vec<&str> = abnormal.map(|one| one.reason.as_str()).collect();
        self.count += 1;
        self.listed.push(VolumeOnDrive {
            name: printable(&volume.name),
            claim: printable(claim),
            size: human_size(volume.size_bytes),
            state: printable(&volume.state),
            reason: printable(&reasons.join(", ")),
        });
        // Entries beyond twice the bound are dropped early: the number of volumes is not bounded.
        if self.listed.len() >= 2 * MAX_VOLUMES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let key = |one: &VolumeOnDrive| (one.reason.is_empty(), one.name.clone());
        self.listed.sort_by_key(key);
        self.listed.truncate(MAX_VOLUMES);
    }
}

/// True if drives like this one have objects: not parts of drives, virtual devices, or loop devices that no class selects.
pub(in crate::kubernetes) fn is_shown(drive: &Drive) -> bool {
    let is_loop = drive.known_transport() == Some(Transport::Loop);
    let is_unused_loop = is_loop && drive.known_state() == Some(DriveState::Rejected);
    !(is_noise(drive) || is_unused_loop)
}

/// True if there is something to report: a problem, a finding, an operator's decision, or a further node that sees the drive.
pub(super) fn has_findings(drive: &Drive, others: &[OtherNode]) -> bool {
    let health = drive.health.as_ref();
    let is_found = health.is_some_and(|it| !it.findings.is_empty() || !it.conditions.is_empty());
    let is_wrong = !wrong_drives(std::slice::from_ref(drive), &[]).is_empty();
    is_found || is_wrong || drive.cordon.is_some() || !others.is_empty()
}

/// Inputs of a status besides the drive.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) node: &'a str,
    pub(super) others: &'a [OtherNode],
    pub(super) volumes: Volumes,
    pub(super) observed: Observed,
    /// Conditions of the existing object. One whose status does not change keeps its time.
    pub(super) transitions: &'a [Transition],
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Returns the status of a drive's object. Bounded in entries and bytes, whatever the agent reports.
pub(super) fn status(drive: &Drive, context: Context<'_>) -> DriveStatus {
    let Context {
        node,
        others,
        mut volumes,
        observed,
        transitions,
        now,
    } = context;
    volumes.cut();
    let reasons = reasons(drive);
    let takes = drive.takes_new_volumes();
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let other_nodes = others.iter().take(MAX_OTHERS);
    DriveStatus {
        node: node.to_owned(),
        other_nodes: other_nodes.map(|other| other.node.to_string()).collect(),
        drive: printable(&drive.id),
        device: printable(&drive.kernel_name),
        bay: printable(&drive.bay()),
        model: printable(&drive.model),
        serial: printable(&drive.serial),
        firmware: printable(&drive.firmware),
        media: printable(&drive.media),
        transport: printable(&drive.transport),
        state: printable(&drive.state),
        class: printable(&drive.class),
        health: match drive.is_acknowledged() {
            true => format!("{} (ack)", printable(&drive.verdict)),
            false => printable(&drive.verdict),
        },
        reason: printable(&codes(drive)),
        size: human_size(drive.size_bytes),
        free: match takes {
            true => human_size(drive.free_bytes),
            false => String::new(),
        },
        size_bytes: signed(drive.size_bytes),
        usable_bytes: signed(drive.usable_bytes),
        free_bytes: signed(drive.free_bytes),
        largest_free_bytes: signed(drive.largest_free_bytes),
        cordon: drive
            .cordon
            .as_ref()
            .map(|it| printable_sentence(&it.describe()))
            .unwrap_or_default(),
        more_findings: signed(reasons.len().saturating_sub(MAX_FINDINGS) as u64),
        findings: reasons.iter().take(MAX_FINDINGS).map(finding).collect(),
        counts: counts(drive),
        volumes: volumes.listed,
        volume_count: signed(volumes.count as u64),
        conditions: carry(conditions(node, drive, &reasons, others), transitions, now),
        updated: format_time(now),
        observed,
    }
}

fn counts(drive: &Drive) -> Vec<FindingCount> {
    let named = drive.nameable_findings().into_iter().take(MAX_FINDINGS);
    let counts = named.map(|one| FindingCount {
        code: printable(&one.code),
        subject: printable(&one.subject),
        value: i64::try_from(one.value).unwrap_or(i64::MAX),
    });
    counts.collect()
}

fn finding(reason: &Reason) -> Finding {
    let since = reason.since.and_then(|since| i64::try_from(since).ok());
    Finding {
        code: printable(&reason.code),
        message: printable_sentence(&reason.message),
        since: since.map(format_time).unwrap_or_default(),
    }
}

/// Sets the time of each condition: of an unchanged status that of the object, else `now`.
pub(super) fn carry(
    mut conditions: Vec<Condition>,
    transitions: &[Transition],
    now: i64,
) -> Vec<Condition> {
    for condition in &mut conditions {
        let mut before = transitions.iter();
        let before = before.find(|one| *one.type_ == condition.type_);
        let kept = before.filter(|one| *one.status == condition.status && !one.at.is_empty());
        condition.last_transition_time = match kept {
            Some(one) => one.at.to_string(),
            None => format_time(now),
        };
    }
    conditions
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: camel_case(reason),
        message: printable_sentence(message),
        last_transition_time: String::new(),
    }
}

/// Returns the word if Kubernetes would accept it as the reason of a condition; "Other" for any other text of an agent.
fn camel_case(reason: &str) -> String {
    let plain = reason.chars().all(|c| c.is_ascii_alphanumeric());
    let begins = reason.starts_with(|c: char| c.is_ascii_alphabetic());
    match plain && begins && reason.len() <= 64 {
        true => reason.to_owned(),
        false => "Other".to_owned(),
    }
}

fn conditions(
    node: &str,
    drive: &Drive,
    reasons: &[Reason],
    others: &[OtherNode],
) -> Vec<Condition> {
    vec![
        present(drive),
        healthy(drive, reasons),
        accepting(drive, reasons),
        condition(
            AGENT_CONNECTED,
            "True",
            "AgentConnected",
            "the agent of the node is connected",
        ),
        conflict(node, drive, others),
    ]
}

fn present(drive: &Drive) -> Condition {
    let (status, reason, message) = match drive.known_state() {
        Some(DriveState::Missing) => (
            "False",
            "DriveMissing",
            "the node does not see the drive; plug it in again",
        ),
        Some(DriveState::NotScanned) => {
            let (reason, message) = NOT_SCANNED;
            ("Unknown", reason, message)
        }
        _ => ("True", "Present", "the node sees the drive"),
    };
    condition("Present", status, reason, message)
}

fn healthy(drive: &Drive, reasons: &[Reason]) -> Condition {
    let first = reasons.iter().find(|one| !one.code.is_empty());
    let of_first = |status: &str, otherwise: &str| {
        let (reason, message) = first.map_or((otherwise, ""), |one| (&one.code, &one.message));
        condition("Healthy", status, reason, message)
    };
    let is = |state| drive.known_state() == Some(state);
    match drive.known_verdict() {
        _ if is(DriveState::Missing) => of_first("Unknown", "DriveMissing"),
        _ if is(DriveState::NotScanned) => {
            let (reason, message) = NOT_SCANNED;
            condition("Healthy", "Unknown", reason, message)
        }
        _ if !drive.trouble.is_empty() => of_first("False", "DriveStuck"),
        Some(Verdict::Bad) => of_first("False", "Bad"),
        Some(Verdict::Suspect) => of_first("False", "Suspect"),
        // Problems without an effect on the verdict are in the findings.
        Some(Verdict::Good) => condition("Healthy", "True", "Good", "the verdict is GOOD"),
        Some(Verdict::Unknown) => condition(
            "Healthy",
            "Unknown",
            "NotKnown",
            "the drive's health is not known",
        ),
        None => condition("Healthy", "False", "Other", "a verdict of a newer agent"),
    }
}

fn accepting(drive: &Drive, reasons: &[Reason]) -> Condition {
    if drive.takes_new_volumes() {
        let message = "new volumes can be placed on the drive, as far as they fit";
        return condition("AcceptingVolumes", "True", "Accepting", message);
    }
    let (reason, message) = match (&drive.cordon, reasons.first()) {
        (Some(cordon), _) => ("Cordoned", cordon.describe()),
        (None, Some(first)) => (first.code.as_str(), first.message.clone()),
        (None, None) => ("NotOffered", "the drive takes no new volumes".to_owned()),
    };
    condition("AcceptingVolumes", "False", reason, &message)
}

fn conflict(node: &str, drive: &Drive, others: &[OtherNode]) -> Condition {
    let names = |wanted: &dyn Fn(Option<DriveUse>) -> bool| {
        let all = others.iter().filter(|other| wanted(other.usage));
        let mut names: Vec<&str> = all.map(|other| &*other.node).collect();
        let more = names.len().saturating_sub(MAX_OTHERS);
        names.truncate(MAX_OTHERS);
        match more {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    };
    let using = names(&|usage| usage == Some(DriveUse::Used));
    if !using.is_empty() && DriveUse::of(drive) == DriveUse::Used {
        let message = format!(
            "nodes {node} and {using} each report this drive as their own: a copied drive, or two drives with one identity. The object shows that of {node}"
        );
        return condition("Conflict", "True", "ClaimedByTwoNodes", &message);
    }
    let disconnected = names(&|usage| usage.is_none());
    if !disconnected.is_empty() {
        let message = format!(
            "the agents of {disconnected} last reported this drive, too, and are not connected"
        );
        return condition("Conflict", "Unknown", "OtherNodeDisconnected", &message);
    }
    match others.len() {
        0 => condition("Conflict", "False", "OneNode", "one node reports the drive"),
        nodes => {
            let other = names(&|_| true);
            let message = format!(
                "{} besides, which do not use it: {other}",
                count(nodes, "node")
            );
            condition("Conflict", "False", "SeenByOtherNode", &message)
        }
    }
}
