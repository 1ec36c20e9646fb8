//! `drivebay-agent drive ack`: what a drive says of itself is known, and counts again when it gets worse.

use std::{fmt::Write as _, path::Path};

use drivebay_common::table::printable;
use drivebay_proto::agent::{AcknowledgeDriveRequest, AcknowledgeDriveResponse};

use super::one_drive::{self, OneDriveError};

/// Acknowledges. Answers with what to print.
pub async fn run(socket: &Path, drive: &str, note: &str) -> Result<String, OneDriveError> {
    let (mut client, _, drive) = one_drive::named(socket, drive).await?;
    let request = AcknowledgeDriveRequest {
        drive: drive.id.clone(),
        by: somebody(|name| std::env::var(name).ok()),
        note: note.to_owned(),
    };
    let call = client.raw.acknowledge_drive(request);
    let answer = client.asked.answered(call).await?.into_inner();
    Ok(told(&answer))
}

/// Who types this, as far as the environment says: sudo's word first.
fn somebody(variable: impl Fn(&str) -> Option<String>) -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"]
        .into_iter()
        .filter_map(variable);
    let mut plain = names.filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
    plain.next().unwrap_or_default().chars().take(64).collect()
}

/// What was acknowledged, what still counts, and what the drive is now.
fn told(answer: &AcknowledgeDriveResponse) -> String {
    let mut text = String::new();
    if answer.acknowledged.is_empty() {
        text.push_str("there is nothing to acknowledge; nothing was changed\n");
    }
    for finding in &answer.acknowledged {
        let told = format!(
            "acknowledged: {} ({} = {}): {}",
            finding.code, finding.subject, finding.value, finding.message
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", printable(&told));
    }
    for finding in &answer.remaining {
        let told = format!("still counts: {}: {}", finding.code, finding.message);
        let _ = writeln!(text, "{}", printable(&told));
    }
    let afterwards = match answer.acknowledged.is_empty() {
        true => "",
        false => "; what was acknowledged counts again when it gets worse",
    };
    let _ = writeln!(
        text,
        "drive {} is {} now{afterwards}",
        printable(&answer.drive),
        printable(&answer.verdict)
    );
    text
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::{Finding, SmartFinding};

    use super::*;

    #[test]
    fn what_was_acknowledged_and_what_was_not_is_told() {
        let answer = AcknowledgeDriveResponse {
            drive: "wwn-a".into(),
            acknowledged: vec![SmartFinding {
                code: "PendingSectorsMany".into(),
                subject: "ata-197".into(),
                value: 48,
                message: "move the data".into(),
                ..SmartFinding::default()
            }],
            remaining: vec![Finding {
                code: "StatusFailed".into(),
                message: "it says so".into(),
                since: 0,
            }],
            verdict: "BAD".into(),
            revision: 3,
        };
        assert_eq!(
            told(&answer),
            "\
acknowledged: PendingSectorsMany (ata-197 = 48): move the data
still counts: StatusFailed: it says so
drive wwn-a is BAD now; what was acknowledged counts again when it gets worse
"
        );
        let nothing = told(&AcknowledgeDriveResponse::default());
        assert!(
            nothing.starts_with("there is nothing to acknowledge; nothing was changed\n"),
            "{nothing}"
        );
    }

    #[test]
    fn who_it_was_is_taken_from_sudo_first_and_never_with_control_characters() {
        let environment = |name: &str| match name {
            "SUDO_USER" => Some("ann".to_owned()),
            "USER" => Some("root".to_owned()),
            _ => None,
        };
        assert_eq!(somebody(environment), "ann");
        assert_eq!(
            somebody(|name| (name == "SUDO_USER").then(|| "a\nb".to_owned())),
            ""
        );
    }
}
