//! Conditions of volumes and storage in both generations of CSI's health API, within Kubernetes' limits.

use std::collections::BTreeSet;

use drivebay_common::text::{acts, escaped};
use drivebay_proto::{
    agent, csi,
    words::{Status, VolumeState},
};

use csi::{
    VolumeHealthErrorType as Kind, node_get_storage_health_response::StorageBackendHealth,
    volume_health::VolumeHealthEntry,
};

/// Largest number of conditions of one volume that Kubernetes accepts.
pub const MAX_CONDITIONS: usize = 16;
/// Longest reason that Kubernetes accepts, bytes.
pub const MAX_REASON_BYTES: usize = 256;
/// Longest message that Kubernetes accepts, bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// Reason for volumes of a node whose agent is disconnected.
pub const NODE_UNREACHABLE: &str = "NodeUnreachable";

/// Reason for a volume whose drive was moved to another node.
pub const VOLUME_MOVED: &str = "VolumeMoved";

/// Node of a volume, compared with the node in its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts<'a> {
    /// On the node in its id, whose agent is connected.
    Here,
    /// On the node in its id by the last report of an agent that is disconnected.
    Away,
    /// On another node than the one in its id.
    Moved {
        /// Node in the id.
        from: &'a str,
        /// Node that has the volume.
        now: &'a str,
    },
}

/// Message without a condition; CSI requires one in either case.
pub const HEALTHY: &str = "no trouble is known";

/// Returns the conditions of a volume, worst first, each (status, reason) once, within Kubernetes' limits.
///
/// MISSING and AMBIGUOUS give a condition even if the agent reported none. A volume on a disconnected or another node gets a further
/// condition, since its last report may be outdated.
pub fn entries(volume: &agent::Volume, at: Whereabouts<'_>) -> Vec<VolumeHealthEntry> {
    let mut all: Vec<VolumeHealthEntry> = entries_of(&volume.conditions);
    let mut add = |reason: &str, message: String| {
        all.push(VolumeHealthEntry {
            status: Kind::Inaccessible.into(),
            reason: reason.to_owned(),
            message,
        });
    };
    match at {
        Whereabouts::Here => {}
        Whereabouts::Away => {
            let node = volume.id.rsplit_once('@').map_or("", |(_, node)| node);
            add(
                NODE_UNREACHABLE,
                format!(
                    "the agent of node {node} is not connected; the volume cannot be used until it reconnects"
                ),
            );
        }
        Whereabouts::Moved { from, now } => add(
            VOLUME_MOVED,
            format!(
                "its drive was moved from node {from} to node {now}; `volume pv` prints the PersistentVolume that makes it usable there"
            ),
        ),
    }
    if volume
        .conditions
        .iter()
        .all(|condition| !condition.abnormal)
    {
        match volume.known_state() {
            Some(VolumeState::Missing) => add(
                "DriveMissing",
                format!("its drive {} is missing; reconnect it", volume.drive),
            ),
            Some(VolumeState::Ambiguous) => add(
                "VolumeAmbiguous",
                format!(
                    "its record and the partition table of drive {} disagree; it is not touched until that is settled",
                    volume.drive
                ),
            ),
            _ => {}
        }
    }
    tidy(all)
}

/// Like [`entries`], for conditions alone.
pub fn entries_of(conditions: &[agent::Condition]) -> Vec<VolumeHealthEntry> {
    let abnormal = conditions.iter().filter(|condition| condition.abnormal);
    tidy(
        abnormal
            .map(|condition| VolumeHealthEntry {
                // A status of a newer agent counts as degraded.
                status: match condition.known_status() {
                    Some(Status::DataLoss) => Kind::DataLoss,
                    Some(Status::Inaccessible) => Kind::Inaccessible,
                    Some(Status::Degraded) | None => Kind::Degraded,
                }
                .into(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            })
            .collect(),
    )
}

/// Sorts conditions worst first, so that truncation drops the least severe, and applies [`within_limits`].
pub fn tidy<E: Entry>(mut all: Vec<E>) -> Vec<E> {
    all.sort_by(|a, b| {
        (b.weight(), a.reason(), a.message()).cmp(&(a.weight(), b.reason(), b.message()))
    });
    within_limits(all)
}

/// Applies Kubernetes' limits, keeping the order: each (status, reason) once, and limited number and lengths; escapes control characters.
pub fn within_limits<E: Entry>(mut all: Vec<E>) -> Vec<E> {
    let mut unique = BTreeSet::new();
    for entry in &mut all {
        let (reason, message) = entry.texts();
        if reason.is_empty() {
            "Abnormal".clone_into(reason);
        }
        for (text, most) in [(reason, MAX_REASON_BYTES), (message, MAX_MESSAGE_BYTES)] {
            // Texts may come from a drive or another node.
            if text.chars().any(acts) {
                *text = escaped(text);
            }
            text.truncate(text.floor_char_boundary(most));
        }
    }
    all.retain(|entry| unique.insert((entry.weight(), entry.reason().to_owned())));
    all.truncate(MAX_CONDITIONS);
    all
}

/// One condition of CSI 1.13, of a volume or of storage.
pub trait Entry {
    /// Returns the severity: the numbers of both enums increase with it.
    fn weight(&self) -> i32;
    /// Returns the reason, in CamelCase.
    fn reason(&self) -> &str;
    /// Returns the message for users.
    fn message(&self) -> &str;
    /// Returns reason and message, to be shortened.
    fn texts(&mut self) -> (&mut String, &mut String);
}

impl Entry for VolumeHealthEntry {
    fn weight(&self) -> i32 {
        self.status
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn texts(&mut self) -> (&mut String, &mut String) {
        (&mut self.reason, &mut self.message)
    }
}

impl Entry for StorageBackendHealth {
    fn weight(&self) -> i32 {
        self.status
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn texts(&mut self) -> (&mut String, &mut String) {
        (&mut self.reason, &mut self.message)
    }
}

/// Returns the condition of CSI 1.12 and earlier: one message, at most [`MAX_MESSAGE_BYTES`], that depends only on `entries`.
pub fn legacy(entries: &[VolumeHealthEntry]) -> csi::VolumeCondition {
    if entries.is_empty() {
        return csi::VolumeCondition {
            abnormal: false,
            message: HEALTHY.to_owned(),
        };
    }
    let mut message = String::new();
    for entry in entries {
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(&entry.reason);
        if !entry.message.is_empty() {
            message.push_str(": ");
            message.push_str(&entry.message);
        }
    }
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    csi::VolumeCondition {
        abnormal: true,
        message,
    }
}

/// Generation of CSI's volume-health API whose capabilities are advertised. All its RPCs are served regardless.
///
/// Callers differ: external-health-monitor 0.18 exits unless the older one is advertised, and csi-sanity up to 5.5 fails on capabilities
/// that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum HealthApi {
    /// VOLUME_CONDITION, of CSI 1.12 and earlier
    #[default]
    #[value(name = "legacy")]
    Legacy,
    /// GET_VOLUME_HEALTH and LIST_VOLUME_HEALTH, of CSI 1.13
    #[value(name = "v1.13")]
    V1_13,
    /// Both generations
    #[value(name = "both")]
    Both,
    /// Neither
    #[value(name = "none")]
    None,
}

impl HealthApi {
    /// True if VOLUME_CONDITION is advertised and filled in.
    pub fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }

    /// True if the capabilities of CSI 1.13 are advertised.
    pub fn v1_13(self) -> bool {
        matches!(self, Self::V1_13 | Self::Both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(status: &str, reason: &str, message: &str) -> agent::Condition {
        agent::Condition {
            abnormal: true,
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            since: 0,
        }
    }

    #[test]
    fn the_order_in_which_an_agent_reports_changes_nothing() {
        let one = condition("DEGRADED", "MediaErrors", "sda has unreadable sectors");
        let two = condition("DATA_LOSS", "FilesystemDamaged", "run xfs_repair");
        let forth = legacy(&entries_of(&[one.clone(), two.clone()]));
        let back = legacy(&entries_of(&[two, one]));
        assert_eq!(forth, back);
        assert_eq!(
            forth.message,
            "FilesystemDamaged: run xfs_repair; MediaErrors: sda has unreadable sectors"
        );
    }

    #[test]
    fn conditions_stay_within_what_kubernetes_takes() {
        let many: Vec<_> = (0..40)
            .map(|i| {
                condition(
                    "DEGRADED",
                    &format!("{i}{}", "r".repeat(400)),
                    &"ü".repeat(2000),
                )
            })
            .collect();
        let entries = entries_of(&many);
        assert_eq!(entries.len(), MAX_CONDITIONS);
        assert!(entries.iter().all(|entry| {
            entry.reason.len() <= MAX_REASON_BYTES && entry.message.len() <= MAX_MESSAGE_BYTES
        }));
        assert!(legacy(&entries).message.len() <= MAX_MESSAGE_BYTES);
    }

    #[test]
    fn storage_has_the_same_limits_as_volumes() {
        let many: Vec<_> = (0..40)
            .map(|i| StorageBackendHealth {
                status: 1 + i % 2,
                reason: format!("{}{}", i / 2, "r".repeat(400)),
                message: "ü".repeat(2000),
                volume_capability: None,
            })
            .collect();
        let tidied = tidy(many.into_iter().rev().collect());
        assert_eq!(tidied.len(), MAX_CONDITIONS);
        assert!(tidied.iter().all(|entry| entry.status == 2), "worst first");
        assert!(tidied.iter().all(|entry| {
            entry.reason.len() <= MAX_REASON_BYTES && entry.message.len() <= MAX_MESSAGE_BYTES
        }));
    }

    #[test]
    fn a_status_and_reason_are_reported_once_and_normal_conditions_not_at_all() {
        let mut normal = condition("DEGRADED", "Fine", "");
        normal.abnormal = false;
        let twice = condition("INACCESSIBLE", "DriveMissing", "x");
        let entries = entries_of(&[normal, twice.clone(), twice]);
        assert_eq!(entries.len(), 1);
        assert!(!legacy(&[]).abnormal && !legacy(&[]).message.is_empty());
    }

    #[test]
    fn a_volume_that_cannot_be_used_is_abnormal_even_if_the_agent_adds_nothing() {
        for state in ["missing", "ambiguous"] {
            let volume = agent::Volume {
                state: state.into(),
                ..agent::Volume::default()
            };
            assert_eq!(entries(&volume, Whereabouts::Here).len(), 1, "{state}");
        }
        let fine = agent::Volume {
            id: "x@n".into(),
            state: "ready".into(),
            ..agent::Volume::default()
        };
        assert!(entries(&fine, Whereabouts::Here).is_empty());
        assert_eq!(
            entries(&fine, Whereabouts::Away)[0].reason,
            NODE_UNREACHABLE
        );
        let moved = Whereabouts::Moved {
            from: "a",
            now: "b",
        };
        assert_eq!(entries(&fine, moved)[0].reason, VOLUME_MOVED);
    }
}
