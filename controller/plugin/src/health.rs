//! `kubectl drivebay health`: problems, worst first, as the programs' own `health` shows them.

use std::collections::BTreeSet;

use drivebay_common::{
    cli::{NOT_POLLED, UNKNOWN, WRONG},
    terminal::Terminal,
};
use drivebay_objects::{drive::VolumeOnDrive, times::parse_time};
use drivebay_proto::{condition, words::Status};
use drivebay_view::{
    args::Format,
    unix_seconds,
    wrong::{Health, Kind, Problem, Reason, Severity},
};

use crate::{
    args::HealthArgs,
    cluster::{Cluster, ListedDrive},
    error::PluginError,
    tables::reported,
};

/// Returns the result and the exit code.
pub(crate) async fn run(
    cluster: &Cluster,
    args: &HealthArgs,
    terminal: Terminal,
) -> Result<(String, u8), PluginError> {
    let drives = cluster.drives(&args.nodes).await?;
    let health = of_drives(&drives);
    let code = match (health.well, health.awaits_polls()) {
        _ if drives.is_empty() => UNKNOWN,
        (true, _) => 0,
        (false, true) => NOT_POLLED,
        (false, false) => WRONG,
    };
    let text = match args.output.document() {
        Some(document) => document.write(&health)?,
        None if drives.is_empty() => {
            "no drive has an object, so nothing is known: the controller's logs say why. With driveObjects: findings in the chart's values, only drives with a problem have one\n"
                .to_owned()
        }
        None => {
            let wide = args.output == Format::Wide;
            health.text("the cluster", true, wide, unix_seconds(), terminal)
        }
    };
    Ok((text, code))
}

/// True if something is wrong with the drive itself.
pub(crate) fn is_abnormal(drive: &ListedDrive) -> bool {
    severity(drive).is_some()
}

/// True for a drive that volumes are on, or could be.
fn is_ours(drive: &ListedDrive) -> bool {
    drive.status.state != "rejected" || drive.status.volume_count > 0
}

/// Returns the severity of a drive's problem; None without one. The drives of a disconnected node are as last reported, and have none.
fn severity(drive: &ListedDrive) -> Option<Severity> {
    if !is_ours(drive) || drive.has("AgentConnected", "False") {
        return None;
    }
    let reason = |type_: &str| {
        let mut conditions = drive.status.conditions.iter();
        let it = conditions.find(|one| one.type_ == type_);
        it.map_or("", |one| one.reason.as_str())
    };
    match drive.status.health.as_str() {
        _ if drive.has("Present", "False") => Some(Severity::Missing),
        _ if reason("Healthy") == "DriveStuck" => Some(Severity::NoAnswer),
        "BAD" => Some(Severity::Bad),
        "SUSPECT" => Some(Severity::Suspect),
        _ if drive.has("Conflict", "True") => Some(Severity::Warning),
        // Whatever else the controller calls unhealthy, except verdicts that were acknowledged.
        health if drive.has("Healthy", "False") && !health.ends_with(" (ack)") => {
            Some(Severity::Warning)
        }
        _ => None,
    }
}

/// Returns the severity of the worst condition of a volume; None if its conditions are only those of its drive, or if there are none.
fn volume_severity(volume: &VolumeOnDrive) -> Option<Severity> {
    let reasons = volume.reason.split(", ").filter(|code| !code.is_empty());
    let severities = reasons.filter_map(|code| match condition::Reason::parse(code) {
        Some(reason) if reason.is_of_drive() => None,
        Some(reason) => match reason.status() {
            Status::DataLoss => Some(Severity::DataLoss),
            Status::Inaccessible => Some(Severity::Inaccessible),
            _ => Some(Severity::Degraded),
        },
        None => Some(Severity::Degraded),
    });
    severities.min()
}

/// Returns the problems of these drives, of their volumes, and of nodes whose agent is not connected. Pure.
fn of_drives(drives: &[ListedDrive]) -> Health {
    let mut health = Health::default();
    let mut disconnected: BTreeSet<&str> = BTreeSet::new();
    for drive in drives.iter().filter(|drive| is_ours(drive)) {
        let status = &drive.status;
        health.add_drive(&reported(status));
        health.volumes += u64::try_from(status.volume_count).unwrap_or_default();
        if drive.has("AgentConnected", "False") {
            disconnected.insert(&status.node);
            continue;
        }
        let name = [status.device.as_str(), &status.model, &status.bay];
        let name: Vec<&str> = name.into_iter().filter(|word| !word.is_empty()).collect();
        if let Some(severity) = severity(drive) {
            let findings = status.findings.iter().map(|one| Reason {
                code: one.code.clone(),
                message: one.message.clone(),
                since: parse_time(&one.since).and_then(|since| u64::try_from(since).ok()),
            });
            let conflict = status.conditions.iter();
            let conflict = conflict.filter(|one| one.type_ == "Conflict" && one.status == "True");
            let conflict = conflict.map(|one| Reason {
                code: one.reason.clone(),
                message: one.message.clone(),
                since: None,
            });
            health.problems.push(Problem {
                severity,
                kind: Kind::Drive,
                node: status.node.clone(),
                id: drive.name.clone(),
                name: name.join(", "),
                claim: String::new(),
                reasons: findings.chain(conflict).collect(),
                volumes: status.volumes.iter().map(|one| one.name.clone()).collect(),
            });
        }
        for volume in &status.volumes {
            let Some(severity) = volume_severity(volume) else {
                continue;
            };
            health.problems.push(Problem {
                severity,
                kind: Kind::Volume,
                node: status.node.clone(),
                id: volume.name.clone(),
                name: volume.name.clone(),
                claim: volume.claim.clone(),
                reasons: vec![Reason {
                    code: volume.reason.clone(),
                    message: "the events of its claim and the pod's volume condition say more"
                        .to_owned(),
                    since: None,
                }],
                volumes: Vec::new(),
            });
        }
    }
    for node in disconnected {
        health.problems.push(Problem {
            severity: Severity::Away,
            kind: Kind::Node,
            node: node.to_owned(),
            id: node.to_owned(),
            name: String::new(),
            claim: String::new(),
            reasons: vec![Reason {
                code: "AgentDisconnected".to_owned(),
                message: "its agent is not connected; its drives are as it last reported them"
                    .to_owned(),
                since: None,
            }],
            volumes: Vec::new(),
        });
    }
    let mut health = health.done();
    // Without objects nothing is known to be well.
    health.well &= !drives.is_empty();
    health
}

#[cfg(test)]
mod tests {
    use drivebay_objects::drive::{Condition, DriveStatus, Finding};

    use super::*;

    fn drive(name: &str, health: &str, conditions: &[(&str, &str, &str)]) -> ListedDrive {
        let conditions = conditions.iter().map(|(type_, status, reason)| Condition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            ..Condition::default()
        });
        ListedDrive {
            name: name.to_owned(),
            place: String::new(),
            status: DriveStatus {
                node: "n1".to_owned(),
                drive: name.to_owned(),
                state: "claimed".to_owned(),
                health: health.to_owned(),
                conditions: conditions.collect(),
                ..DriveStatus::default()
            },
        }
    }

    #[test]
    fn problems_are_those_of_the_programs_and_the_worst_first() {
        let mut suspect = drive(
            "wwn-2",
            "SUSPECT",
            &[("Healthy", "False", "PendingSectors")],
        );
        suspect.status.findings = vec![Finding {
            code: "PendingSectors".to_owned(),
            message: "3 sectors".to_owned(),
            since: String::new(),
        }];
        let mut damaged = drive("wwn-3", "GOOD", &[("Healthy", "True", "Good")]);
        let volume = |name: &str, reason: &str| VolumeOnDrive {
            name: name.to_owned(),
            reason: reason.to_owned(),
            ..VolumeOnDrive::default()
        };
        damaged.status.volumes = vec![
            volume("pvc-a", "FilesystemCorrupted"),
            volume("pvc-b", "DriveSuspect"),
        ];
        let health = of_drives(&[
            drive("wwn-1", "GOOD", &[("Healthy", "True", "Good")]),
            suspect,
            damaged,
            drive("wwn-4", "BAD", &[("Present", "False", "DriveMissing")]),
            drive("wwn-5", "BAD (ack)", &[("Healthy", "False", "Bad")]),
            drive("wwn-6", "GOOD", &[("Healthy", "False", "DriveStuck")]),
        ]);
        let ids: Vec<(&str, &str)> = health
            .problems
            .iter()
            .map(|one| (one.severity.as_str(), one.id.as_str()))
            .collect();
        assert_eq!(ids.len(), 4, "{ids:?}");
        assert_eq!(ids[0].1, "pvc-a");
        assert_eq!(
            &ids[1..],
            [
                ("MISSING", "wwn-4"),
                ("NO_ANSWER", "wwn-6"),
                ("SUSPECT", "wwn-2")
            ]
        );
        let text = health.text("the cluster", true, false, 0, Terminal::NONE);
        assert!(text.contains("PendingSectors: 3 sectors"), "{text}");
    }

    #[test]
    fn nothing_is_well_without_objects() {
        assert!(!of_drives(&[]).well);
        assert!(of_drives(&[drive("wwn-1", "GOOD", &[])]).well);
    }

    #[test]
    fn a_disconnected_node_is_one_problem_and_its_drives_are_none() {
        let away = [("AgentConnected", "False", "AgentDisconnected")];
        let health = of_drives(&[drive("wwn-1", "BAD", &away), drive("wwn-2", "GOOD", &away)]);
        let [problem] = health.problems.as_slice() else {
            panic!("{:?}", health.problems);
        };
        assert_eq!((problem.kind, problem.id.as_str()), (Kind::Node, "n1"));
    }
}
