//! `drivebay-agent drive ack` and `drive unack`: acknowledges a drive's findings, or withdraws that. The verdict remains.

use std::{fmt::Write as _, path::Path};

use drivebay_common::{cli::operator, printed::option, table::printable};
use drivebay_proto::agent::{
    AcknowledgeDriveRequest, AcknowledgeDriveResponse, Drive, UnacknowledgeDriveRequest,
};

use super::{
    args::AckArgs,
    one_drive::{self, DriveAction, OneDriveError},
};
use drivebay_model::{Verdict, health::day_ends};

/// Confirmation for acknowledging a BAD drive.
const ACK: DriveAction = DriveAction {
    verb: "ack",
    warning: "this drive is BAD. Acknowledging its findings silences them until they get worse; it stays BAD, and its data is at risk:",
    aim: "To acknowledge them",
};

/// Last day of an acknowledgement as typed, and the Unix time at which it expires, in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDay {
    day: String,
    ends: u64,
}

impl LastDay {
    /// Parses a day as YYYY-MM-DD.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ends = day_ends(text).ok_or("write a day as YYYY-MM-DD, such as 2030-12-31")?;
        let day = text.to_owned();
        Ok(Self { day, ends })
    }
}

/// Acknowledges the drive's findings, and returns the text to print.
pub async fn run(args: &AckArgs) -> Result<String, OneDriveError> {
    let name = &args.of.drive;
    let (mut client, inventory, drive) = one_drive::named(&args.of.at.socket, name).await?;
    let by = operator(args.of.by.as_deref()).ok_or(OneDriveError::Nobody)?;
    if is_bad(&drive) || args.confirm.is_some() {
        one_drive::confirmed(&inventory, &drive, name, args.confirm.as_deref(), &ACK).map_err(
            |error| match error {
                OneDriveError::NotConfirmed(text) => {
                    OneDriveError::NotConfirmed(text + &repeated(args))
                }
                error => error,
            },
        )?;
    }
    let request = AcknowledgeDriveRequest {
        drive: drive.id.clone(),
        by,
        note: args.note.clone(),
        confirm: args.confirm.clone().unwrap_or_default(),
        until: args.until.as_ref().map_or(0, |until| until.ends),
        takes_new_volumes: args.use_drive,
        named: Vec::new(),
    };
    let call = client.raw.acknowledge_drive(request);
    let answer = client.agent.answered(call).await?.into_inner();
    let mut text = String::new();
    if answer.nothing {
        text.push_str("there is nothing to acknowledge; nothing was changed\n");
    }
    for finding in &answer.acknowledged {
        let line = format!(
            "acknowledged: {} ({}): {}",
            finding.code, finding.reading, finding.message
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", printable(&line));
    }
    Ok(text + &outcome(&answer))
}

/// Withdraws an acknowledgement, and returns the text to print.
pub async fn withdraw(
    socket: &Path,
    name: &str,
    by: Option<&str>,
) -> Result<String, OneDriveError> {
    let (mut client, _, drive) = one_drive::named(socket, name).await?;
    let request = UnacknowledgeDriveRequest {
        drive: drive.id.clone(),
        by: operator(by).ok_or(OneDriveError::Nobody)?,
    };
    let call = client.raw.unacknowledge_drive(request);
    let answer = client.agent.answered(call).await?.into_inner();
    let text = match answer.nothing {
        true => "the drive has no acknowledgement; nothing was changed\n",
        false => "the acknowledgement is withdrawn\n",
    };
    Ok(text.to_owned() + &outcome(&answer))
}

/// True if the drive's findings need a confirmation, also if an operator's verdict hides them.
fn is_bad(drive: &Drive) -> bool {
    let health = drive.health.as_ref();
    let hidden = health.and_then(|health| health.overridden.as_ref());
    let verdicts = hidden.map(|given| given.otherwise.as_str());
    let mut verdicts = verdicts.into_iter().chain([drive.verdict.as_str()]);
    verdicts.any(|verdict| verdict == Verdict::Bad.as_str())
}

/// Returns the options to repeat with the confirmation.
fn repeated(args: &AckArgs) -> String {
    let mut options = String::new();
    if !args.note.is_empty() {
        options.push_str(&option("note", &args.note));
    }
    if let Some(by) = &args.of.by {
        options.push_str(&option("by", by));
    }
    if let Some(until) = &args.until {
        options.push_str(&option("until", &until.day));
    }
    if args.use_drive {
        options.push_str(" --use");
    }
    options
}

/// Returns the remaining findings, and the resulting verdict of the drive.
fn outcome(answer: &AcknowledgeDriveResponse) -> String {
    let mut text = String::new();
    for finding in &answer.remaining {
        let line = format!("counts: {}: {}", finding.code, finding.message);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", printable(&line));
    }
    let volumes = match answer.takes_new_volumes {
        true => "takes new volumes",
        false => "takes no new volumes",
    };
    let afterwards = match answer.acknowledged.is_empty() {
        true => "",
        false => "; what was acknowledged counts again when it gets worse",
    };
    let _ = writeln!(
        text,
        "drive {} is {} and {volumes}{afterwards}",
        printable(&answer.drive),
        printable(&answer.verdict)
    );
    text
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::{DriveHealth, Finding, Overridden, SmartFinding};

    use super::*;

    #[test]
    fn what_counts_and_whether_the_drive_takes_volumes_is_printed() {
        let answer = AcknowledgeDriveResponse {
            drive: "wwn-a".into(),
            acknowledged: vec![SmartFinding::default()],
            remaining: vec![Finding {
                code: "StatusFailed".into(),
                message: "it says so".into(),
                ..Finding::default()
            }],
            verdict: "BAD".into(),
            ..AcknowledgeDriveResponse::default()
        };
        assert_eq!(
            outcome(&answer),
            "\
counts: StatusFailed: it says so
drive wwn-a is BAD and takes no new volumes; what was acknowledged counts again when it gets worse
"
        );
        let used = AcknowledgeDriveResponse {
            drive: "wwn-a".into(),
            verdict: "BAD, acknowledged".into(),
            takes_new_volumes: true,
            ..AcknowledgeDriveResponse::default()
        };
        assert_eq!(
            outcome(&used),
            "drive wwn-a is BAD, acknowledged and takes new volumes\n"
        );
    }

    #[test]
    fn a_bad_drive_needs_a_confirmation_also_behind_an_override() {
        let drive = |verdict: &str, otherwise: Option<&str>| Drive {
            verdict: verdict.into(),
            health: Some(DriveHealth {
                overridden: otherwise.map(|otherwise| Overridden {
                    otherwise: otherwise.into(),
                    ..Overridden::default()
                }),
                ..DriveHealth::default()
            }),
            ..Drive::default()
        };
        assert!(is_bad(&drive("BAD", None)) && is_bad(&drive("GOOD", Some("BAD"))));
        assert!(!is_bad(&drive("SUSPECT", None)) && !is_bad(&drive("GOOD", Some("SUSPECT"))));
    }

    #[test]
    fn a_last_day_is_a_day() {
        let day = LastDay::parse("1970-01-01").unwrap();
        assert_eq!(day.ends, 86_400);
        assert!(LastDay::parse("tomorrow").is_err());
    }
}
