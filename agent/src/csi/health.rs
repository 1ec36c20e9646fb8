//! Health of volumes and drives, as CSI reports it. Pure.

use std::collections::BTreeMap;

use drivebay_csi::health::{self, MAX_MESSAGE_BYTES};
use drivebay_proto::csi::{
    self, StorageHealthErrorType as Storage, VolumeHealthErrorType as Kind,
    node_get_storage_health_response::StorageBackendHealth, volume_health::VolumeHealthEntry,
};

use drivebay_model::{
    Drive, DriveState, Finding, Snapshot, Verdict, VolumeState,
    condition::{Condition, Status},
};

/// Returns the volume condition of CSI 1.12 and earlier, ordered by the checks of the CSI health proposal.
pub fn condition(conditions: &[Condition]) -> csi::VolumeCondition {
    let mut ordered: Vec<&Condition> = conditions.iter().collect();
    ordered.sort_by_key(|condition| condition.reason.about());
    let entries = ordered.into_iter().map(entry).collect();
    health::legacy(&health::within_limits(entries))
}

/// Returns the health entries of CSI 1.13, worst first.
pub fn entries(conditions: &[Condition]) -> Vec<VolumeHealthEntry> {
    health::tidy(conditions.iter().map(entry).collect())
}

fn entry(condition: &Condition) -> VolumeHealthEntry {
    VolumeHealthEntry {
        status: match condition.status {
            Status::Degraded => Kind::Degraded,
            Status::Inaccessible => Kind::Inaccessible,
            Status::DataLoss => Kind::DataLoss,
        }
        .into(),
        reason: condition.reason.to_string(),
        message: condition.message.clone(),
    }
}

/// Returns the health of drives that have volumes or can have them: one entry for each status and reason, with every affected drive. Worst
/// first.
pub fn storage(snapshot: &Snapshot) -> Vec<StorageBackendHealth> {
    let mut groups: BTreeMap<(Storage, &str), Vec<String>> = BTreeMap::new();
    for drive in snapshot.drives.values() {
        let holds = || {
            let mut volumes = snapshot.volumes.values();
            volumes
                .any(|volume| volume.drive == drive.id && volume.state != VolumeState::Quarantined)
        };
        let ours = matches!(drive.state, DriveState::Claimed | DriveState::Available) || holds();
        for (status, reason, why) in conditions(drive).into_iter().filter(|_| ours) {
            let name = format!("drive {}", drive.describe());
            let description = if why.is_empty() {
                name
            } else {
                format!("{name}: {why}")
            };
            groups
                .entry((status, reason))
                .or_default()
                .push(description);
        }
    }
    let entries = groups
        .into_iter()
        .map(|((status, reason), drives)| StorageBackendHealth {
            status: status.into(),
            reason: reason.to_owned(),
            message: list_drives(&drives),
            volume_capability: None,
        });
    health::tidy(entries.collect())
}

/// Lists the drives that fit, and the number of the others, since cutting the message would hide them.
fn list_drives(drives: &[String]) -> String {
    const MORE: usize = 32;
    let mut message = String::new();
    for (index, drive) in drives.iter().enumerate() {
        let gap = if index == 0 { "" } else { "; " };
        if index > 0 && message.len() + gap.len() + drive.len() > MAX_MESSAGE_BYTES - MORE {
            return format!("{message}; and {} more", drives.len() - index);
        }
        message.push_str(gap);
        message.push_str(drive);
    }
    message
}

fn conditions(drive: &Drive) -> Vec<(Storage, &'static str, String)> {
    let mut all = Vec::new();
    if drive.state == DriveState::Missing {
        let advice = "not found on this node; plug it in again".to_owned();
        return vec![(Storage::StorageUnreachable, "DriveMissing", advice)];
    }
    if let Some(trouble) = &drive.trouble {
        let why = trouble.clone();
        all.push((Storage::StorageUnreachable, "DriveUnreachable", why));
    }
    let health = &drive.health;
    let why = |codes: &dyn Fn(&str) -> bool, findings: &[Finding]| {
        let messages = findings.iter().filter(|finding| codes(&finding.code));
        let messages: Vec<String> = messages
            .map(|finding| format!("{}: {}", finding.code, finding.message))
            .collect();
        messages.join(", ")
    };
    let counting: Vec<Finding> = health.counting().cloned().collect();
    let against = why(&|_| true, &counting);
    if health.stalled() {
        all.push((Storage::StorageUnreachable, "DriveStalled", against));
    } else {
        match health.verdict {
            _ if health.is_acknowledged() => {}
            Verdict::Bad => all.push((Storage::StorageDegraded, "DriveFailing", against)),
            Verdict::Suspect => all.push((Storage::StorageDegraded, "DriveSuspect", against)),
            Verdict::Good | Verdict::Unknown => {}
        }
    }
    if health.worn_out {
        let wear = why(&|code| code == "Wear", &health.conditions);
        all.push((Storage::StorageDegraded, "DriveWornOut", wear));
    }
    let heat = why(&|code| code == "Overheating", &health.conditions);
    if !heat.is_empty() {
        all.push((Storage::StorageDegraded, "DriveOverheating", heat));
    }
    all
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
