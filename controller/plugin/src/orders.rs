//! Operations on drives: each is created as a DriveTask and waited for.

use drivebay_common::units::count;
use drivebay_objects::{
    task::{
        Acknowledge, Cordon, DriveTask, DriveTaskSpec, Empty, Evacuate, Locate, NamedFinding,
        Replace,
    },
    times::format_time,
};
use drivebay_view::{document::yaml, unix_seconds};

use crate::{
    args::{AcknowledgeArgs, Command, WaitArgs},
    cluster::{Cluster, ListedDrive},
    error::PluginError,
    wait::wait,
};

/// Creates the task of a command, and waits for it unless --no-wait is set. Returns the text to print, and the exit code.
pub(crate) async fn run(cluster: &Cluster, command: &Command) -> Result<(String, u8), PluginError> {
    let mut spec = DriveTaskSpec::default();
    let (name, wait_args): (&str, &WaitArgs) = match command {
        Command::Cordon(args) => {
            let reason = args.reason.clone();
            spec.cordon = Some(Cordon { reason });
            (&args.of.drive, &args.of.wait)
        }
        Command::Uncordon(args) => {
            spec.uncordon = Some(Empty {});
            (&args.drive, &args.wait)
        }
        Command::Evacuate(args) => {
            spec.evacuate = Some(Evacuate {
                volumes: args.volumes.clone(),
                hold: args.hold,
                to: Vec::new(),
            });
            (&args.of.drive, &args.of.wait)
        }
        Command::Replace(args) => (&args.old, &args.wait),
        Command::Locate(args) => {
            let on = args.light.is_on();
            spec.locate = Some(Locate { on });
            (&args.drive, &args.wait)
        }
        Command::Acknowledge(args) => (&args.of.drive, &args.of.wait),
        // The other commands read only.
        _ => return Ok((String::new(), 0)),
    };
    let drive = cluster.drive(name).await?;
    match command {
        Command::Evacuate(args) => {
            check_volumes(&drive, &args.volumes)?;
            for name in &args.to {
                let to = cluster.drive(name).await?.name;
                spec.evacuate.get_or_insert_default().to.push(to);
            }
        }
        Command::Replace(args) => {
            let with = cluster.drive(&args.new).await?.name;
            spec.replace = Some(Replace { with });
        }
        Command::Acknowledge(args) => spec.acknowledge = Some(acknowledge(&drive, args)?),
        _ => {}
    }
    spec.drive.clone_from(&drive.name);
    spec.by = cluster.user().await?;
    spec.issued_at = format_time(i64::try_from(unix_seconds()).unwrap_or_default());
    let verb = verb(command);
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

fn verb(command: &Command) -> &'static str {
    match command {
        Command::Cordon(_) => "cordon",
        Command::Uncordon(_) => "uncordon",
        Command::Evacuate(_) => "evacuate",
        Command::Replace(_) => "replace",
        Command::Locate(_) => "locate",
        Command::Acknowledge(_) => "acknowledge",
        _ => "task",
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
    use crate::args::Cli;

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
        let Command::Acknowledge(args) = Cli::parse_from(words).command else {
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
