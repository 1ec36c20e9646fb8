//! Operations on drives: each is created as a DriveTask and waited for.

use drivebay_common::units::count;
use drivebay_objects::{
    task::{
        Acknowledge, Cordon, DriveTask, DriveTaskSpec, Empty, Evacuate, Locate, NamedFinding,
        Replace,
    },
    times::{format_time, now},
};
use drivebay_view::document::yaml;

use crate::{
    args::{AcknowledgeArgs, OrderCommand},
    cluster::{Cluster, ListedDrive},
    error::PluginError,
    wait::wait,
};

/// Creates the task of a command, and waits for it unless --no-wait is set. Returns the text to print, and the exit code.
pub(crate) async fn run(
    cluster: &Cluster,
    command: &OrderCommand,
) -> Result<(String, u8), PluginError> {
    let drive = cluster.drive(drive_of(command)).await?;
    let mut spec = DriveTaskSpec {
        drive: drive.name.clone(),
        by: cluster.user().await?,
        issued_at: format_time(now()),
        ..DriveTaskSpec::default()
    };
    let (verb, wait_args) = match command {
        OrderCommand::Cordon(args) => {
            let reason = args.reason.clone();
            spec.cordon = Some(Cordon { reason });
            ("cordon", &args.of.wait)
        }
        OrderCommand::Uncordon(args) => {
            spec.uncordon = Some(Empty {});
            ("uncordon", &args.wait)
        }
        OrderCommand::Evacuate(args) => {
            check_volumes(&drive, &args.volumes)?;
            let mut to = Vec::new();
            for name in &args.to {
                to.push(cluster.drive(name).await?.name);
            }
            spec.evacuate = Some(Evacuate {
                volumes: args.volumes.clone(),
                hold: args.hold,
                abort_on_error: args.abort_on_error,
                to,
            });
            ("evacuate", &args.of.wait)
        }
        OrderCommand::Replace(args) => {
            let with = cluster.drive(&args.new).await?.name;
            spec.replace = Some(Replace { with });
            ("replace", &args.wait)
        }
        OrderCommand::Locate(args) => {
            let on = args.light.is_on();
            spec.locate = Some(Locate { on });
            ("locate", &args.wait)
        }
        OrderCommand::Acknowledge(args) => {
            spec.acknowledge = Some(acknowledge(&drive, args)?);
            ("acknowledge", &args.of.wait)
        }
    };
    let mut task = DriveTask::new("", spec);
    task.metadata.name = None;
    task.metadata.generate_name = Some(format!("{verb}-"));
    if wait_args.print {
        return Ok((yaml(&task)?, 0));
    }
    let task = cluster.create(&task).await?;
    let name = task.metadata.name.unwrap_or_default();
    if wait_args.no_wait {
        return Ok((format!("drivetask/{name} created\n"), 0));
    }
    wait(cluster, &name, &drive).await
}

/// Returns the name of the drive as it was typed.
fn drive_of(command: &OrderCommand) -> &str {
    match command {
        OrderCommand::Cordon(args) => &args.of.drive,
        OrderCommand::Uncordon(args) => &args.drive,
        OrderCommand::Evacuate(args) => &args.of.drive,
        OrderCommand::Replace(args) => &args.old,
        OrderCommand::Locate(args) => &args.drive,
        OrderCommand::Acknowledge(args) => &args.of.drive,
    }
}

/// Errs if a volume is not on the drive, as far as its object lists them.
fn check_volumes(drive: &ListedDrive, volumes: &[String]) -> Result<(), PluginError> {
    let status = &drive.status;
    let listed = status.volumes.len() as i64;
    let has = |name: &String| status.volumes.iter().any(|one| one.name == *name);
    match volumes.iter().find(|name| !has(name)) {
        Some(volume) if status.volume_count <= listed => {
            let names: Vec<&str> = status.volumes.iter().map(|one| one.name.as_str()).collect();
            Err(PluginError::NoVolume {
                drive: drive.name.clone(),
                volume: volume.clone(),
                has: match names.is_empty() {
                    true => "none".to_owned(),
                    false => names.join(", "),
                },
            })
        }
        _ => Ok(()),
    }
}

/// Returns the acknowledgement of all findings that the drive's object has now. One that comes after this is not covered by it.
fn acknowledge(drive: &ListedDrive, args: &AcknowledgeArgs) -> Result<Acknowledge, PluginError> {
    let status = &drive.status;
    if status.counts.is_empty() {
        return Err(PluginError::NothingToAcknowledge(drive.name.clone()));
    }
    if status.health == "BAD" && args.confirm.as_deref() != Some(&status.drive) {
        let findings = status.findings.iter().filter(|one| {
            let mut counts = status.counts.iter();
            counts.any(|it| it.code == one.code)
        });
        let findings: Vec<String> = findings
            .map(|one| format!("  {}: {}", one.code, one.message))
            .collect();
        let text = format!(
            "It stays BAD, and its data is at risk; {}:\n{}",
            count(status.counts.len() as u64, "finding"),
            findings.join("\n")
        );
        return Err(PluginError::NotConfirmed(status.drive.clone(), text));
    }
    let findings = status.counts.iter().map(|one| NamedFinding {
        code: one.code.clone(),
        subject: one.subject.clone(),
        value: one.value,
    });
    Ok(Acknowledge {
        findings: findings.collect(),
        note: args.note.clone(),
        until: args.until.clone(),
        takes_new_volumes: args.use_drive,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_objects::drive::{DriveStatus, FindingCount, VolumeOnDrive};

    use super::*;
    use crate::args::{Cli, Command};

    fn drive(health: &str) -> ListedDrive {
        ListedDrive {
            name: "wwn-1".to_owned(),
            place: String::new(),
            status: DriveStatus {
                drive: "wwn-1".to_owned(),
                health: health.to_owned(),
                counts: vec![FindingCount {
                    code: "PendingSectors".to_owned(),
                    subject: "ata-197".to_owned(),
                    value: 3,
                }],
                volumes: vec![VolumeOnDrive {
                    name: "pvc-a".to_owned(),
                    ..VolumeOnDrive::default()
                }],
                volume_count: 1,
                ..DriveStatus::default()
            },
        }
    }

    fn acknowledged(drive: &ListedDrive, options: &[&str]) -> Result<Acknowledge, PluginError> {
        let words = [&["kubectl-drivebay", "acknowledge", "wwn-1"], options].concat();
        let Command::Order(OrderCommand::Acknowledge(args)) = Cli::parse_from(words).command else {
            panic!("another command");
        };
        acknowledge(drive, &args)
    }

    #[test]
    fn findings_are_named_as_they_were_shown_and_those_of_a_bad_drive_confirmed() {
        let named = acknowledged(&drive("SUSPECT"), &["--note", "seen"]).unwrap();
        assert_eq!(named.note, "seen");
        let [one] = named.findings.as_slice() else {
            panic!("{:?}", named.findings);
        };
        assert_eq!(
            (one.code.as_str(), one.subject.as_str(), one.value),
            ("PendingSectors", "ata-197", 3)
        );
        let error = acknowledged(&drive("BAD"), &[]).unwrap_err();
        assert_eq!(error.code(), drivebay_common::cli::USAGE);
        assert!(acknowledged(&drive("BAD"), &["--confirm", "wwn-2"]).is_err());
        assert!(acknowledged(&drive("BAD"), &["--confirm", "wwn-1"]).is_ok());
        let mut none = drive("GOOD");
        none.status.counts.clear();
        assert!(matches!(
            acknowledged(&none, &[]),
            Err(PluginError::NothingToAcknowledge(_))
        ));
    }

    #[test]
    fn a_volume_that_the_drive_does_not_have_is_refused_unless_its_list_is_cut() {
        let mut drive = drive("GOOD");
        assert!(check_volumes(&drive, &["pvc-a".to_owned()]).is_ok());
        let error = check_volumes(&drive, &["pvc-b".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("it has pvc-a"), "{error}");
        drive.status.volume_count = 40;
        assert!(check_volumes(&drive, &["pvc-b".to_owned()]).is_ok());
    }

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
