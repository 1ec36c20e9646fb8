//! Findings about drives and nodes for the page, derived from the reasons of `drivebay_view`, with commands. Pure.

use drivebay_common::state_trouble::Trouble;
use drivebay_proto::{
    agent::{self, DriveHealth},
    words::Verdict,
};
use drivebay_view::wrong::{Reason, Severity, reasons};

use crate::model::{Finding, Remedy};

/// Severity of a finding that is no problem.
const NOTE: &str = "NOTE";

/// Codes of [`reasons`] whose messages have text that users wrote, with any punctuation.
const WRITTEN_BY_USERS: [&str; 2] = ["Cordoned", "Acknowledged"];

/// Splits a message into the fact and the remedy: agents' messages end with the remedy, set off by the first semicolon.
fn split(reason: &Reason) -> (String, Option<String>) {
    let message = &reason.message;
    match message.split_once("; ") {
        Some((text, todo))
            if !text.is_empty()
                && !todo.is_empty()
                && !WRITTEN_BY_USERS.contains(&reason.code.as_str()) =>
        {
            (text.to_owned(), Some(todo.to_owned()))
        }
        _ => (message.clone(), None),
    }
}

fn finding(reason: Reason, severity: &str, acknowledged: bool) -> Finding {
    let (text, todo) = split(&reason);
    Finding {
        code: reason.code,
        severity: severity.to_owned(),
        text,
        todo,
        since: reason.since,
        acknowledged,
    }
}

/// Returns the findings about a node's host.
pub(crate) fn of_node(findings: &[agent::Finding]) -> Vec<Finding> {
    let findings = findings.iter().map(|one| {
        let severity = match Trouble::is_code(&one.code) {
            true => Severity::Warning.as_str(),
            false => NOTE,
        };
        finding(one.into(), severity, one.acknowledged)
    });
    findings.collect()
}

/// Returns all findings about a drive, worst first, each with commands. `on_host`: the reader is on the drive's node.
pub(crate) fn of_drive(drive: &agent::Drive, on_host: bool) -> Vec<Remedy> {
    let empty = DriveHealth::default();
    let health = drive.health.as_ref().unwrap_or(&empty);
    let verdict = match drive.known_verdict() {
        Some(verdict @ (Verdict::Bad | Verdict::Suspect)) => verdict.as_str(),
        _ => NOTE,
    };
    let has = |of: &[agent::Finding], code: &str| of.iter().any(|one| one.code == code);
    let mut all: Vec<Finding> = reasons(drive)
        .into_iter()
        .map(|reason| {
            let severity = match reason.code.as_str() {
                "DriveMissing" => Severity::Missing.as_str(),
                "DriveStuck" => Severity::NoAnswer.as_str(),
                "OursDamaged" => Severity::Damaged.as_str(),
                "SectorSizeChanged" => Severity::Inaccessible.as_str(),
                code if has(&health.findings, code) => verdict,
                code if has(&health.conditions, code) => Severity::Warning.as_str(),
                _ => NOTE,
            };
            finding(reason, severity, false)
        })
        .collect();
    // The reasons have neither acknowledged findings nor notes.
    let others = health.findings.iter().map(|one| (one, verdict));
    let others = others.chain(health.conditions.iter().map(|one| (one, NOTE)));
    for (one, severity) in others {
        if !all.iter().any(|other| other.code == one.code) {
            all.push(finding(one.into(), severity, one.acknowledged));
        }
    }
    all.sort_by_key(|one| {
        let severity = Severity::parse(&one.severity);
        (one.acknowledged, severity.is_none(), severity)
    });
    all.into_iter()
        .map(|finding| Remedy {
            commands: for_finding(drive, &finding, on_host),
            finding,
        })
        .collect()
}

/// Returns the word as one word of a shell; None if a terminal could be made to do something else with it.
fn shell_word(word: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+/=".contains(&byte);
    if word.is_empty() || word.starts_with('-') || word.chars().any(|one| !one.is_ascii_graphic()) {
        return None;
    }
    match word.bytes().all(is_plain) {
        true => Some(word.to_owned()),
        false => Some(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

fn program(on_host: bool) -> &'static str {
    match on_host {
        true => "drivebay-agent",
        false => "drivebay-controller",
    }
}

/// Returns commands that fit any drive.
pub(crate) fn commands(drive: &agent::Drive, node: &str, on_host: bool) -> Vec<String> {
    let (Some(id), Some(node)) = (shell_word(&drive.id), shell_word(node)) else {
        return Vec::new();
    };
    let program = program(on_host);
    let at = match on_host {
        true => String::new(),
        false => format!(" --node {node}"),
    };
    vec![
        format!("{program} drive show {id}{at} -o wide"),
        format!("{program} drive locate {id} on{at}"),
    ]
}

fn for_finding(drive: &agent::Drive, finding: &Finding, on_host: bool) -> Vec<String> {
    let Some(id) = shell_word(&drive.id) else {
        return Vec::new();
    };
    let program = program(on_host);
    match finding.severity.as_str() {
        "BAD" | "SUSPECT" if !finding.acknowledged => vec![
            format!("{program} drive evacuate {id} --plan"),
            format!("{program} drive evacuate {id} --by NAME"),
            // On the drive's node, also in a cluster.
            format!("drivebay-agent drive ack {id} --by NAME --note REASON"),
        ],
        "BAD" | "SUSPECT" => vec![format!("drivebay-agent drive unack {id} --by NAME")],
        "NOTE" if finding.code == "Cordoned" => {
            vec![format!("{program} drive uncordon {id} --by NAME")]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::{Acknowledged, Cordon, Drive};

    use super::*;

    fn bad() -> Drive {
        let finding = |code: &str, acknowledged| agent::Finding {
            code: code.into(),
            message: format!("{code} was read; replace the drive; soon"),
            since: 7,
            acknowledged,
        };
        Drive {
            id: "wwn-0x1".into(),
            state: "claimed".into(),
            verdict: "BAD".into(),
            health: Some(DriveHealth {
                findings: vec![
                    finding("PendingSectors", true),
                    finding("StatusFailed", false),
                ],
                conditions: vec![
                    finding("Overheating", false),
                    finding("ImplausibleValues", false),
                ],
                ..DriveHealth::default()
            }),
            ..Drive::default()
        }
    }

    #[test]
    fn findings_are_worst_first_with_what_to_do_and_acknowledged_ones_last() {
        let remedies = of_drive(&bad(), true);
        let shown: Vec<(&str, &str, bool)> = remedies
            .iter()
            .map(|one| &one.finding)
            .map(|one| (one.code.as_str(), one.severity.as_str(), one.acknowledged))
            .collect();
        assert_eq!(
            shown,
            [
                ("StatusFailed", "BAD", false),
                ("Overheating", "WARNING", false),
                ("ImplausibleValues", "NOTE", false),
                ("PendingSectors", "BAD", true),
            ]
        );
        let first = &remedies[0].finding;
        assert_eq!(first.text, "StatusFailed was read");
        assert_eq!(first.todo.as_deref(), Some("replace the drive; soon"));
        assert_eq!(first.since, Some(7));
        let command = "drivebay-agent drive evacuate wwn-0x1 --plan";
        assert_eq!(
            remedies[0].commands.first().map(String::as_str),
            Some(command)
        );
    }

    #[test]
    fn text_that_users_wrote_is_not_split_at_a_semicolon() {
        let mut drive = bad();
        drive.cordon = Some(Cordon {
            by: "ann".into(),
            reason: "noisy; swap it on Friday".into(),
            ..Cordon::default()
        });
        if let Some(health) = &mut drive.health {
            health.findings.retain(|one| one.acknowledged);
            health.acknowledged = Some(Acknowledged {
                by: "bob".into(),
                note: "ordered; do not touch".into(),
                ..Acknowledged::default()
            });
        }
        let remedies = of_drive(&drive, true);
        for (code, text) in [
            ("Cordoned", "noisy; swap it on Friday"),
            ("Acknowledged", "ordered; do not touch"),
        ] {
            let mut findings = remedies.iter().map(|one| &one.finding);
            let finding = findings.find(|one| one.code == code).unwrap();
            assert!(finding.text.contains(text), "{}", finding.text);
            assert_eq!(finding.todo, None, "{code}");
        }
    }

    #[test]
    fn a_command_for_a_cluster_names_the_node() {
        let commands = commands(&bad(), "n1", false);
        assert!(
            commands.contains(&"drivebay-controller drive locate wwn-0x1 on --node n1".to_owned())
        );
    }

    #[test]
    fn no_identity_breaks_out_of_a_command() {
        assert_eq!(shell_word("wwn-0x5000c5").as_deref(), Some("wwn-0x5000c5"));
        assert_eq!(shell_word("a;b$(c)").as_deref(), Some("'a;b$(c)'"));
        assert_eq!(shell_word("it's").as_deref(), Some(r"'it'\''s'"));
        for word in ["", "-rf", "a b", "a\nb", "a\u{1b}[2J", "\u{202e}a"] {
            assert_eq!(shell_word(word), None, "{word:?}");
        }
        let hostile = Drive {
            id: "a\nrm -rf /".into(),
            ..bad()
        };
        assert!(commands(&hostile, "n1", true).is_empty());
        assert!(
            of_drive(&hostile, true)
                .iter()
                .all(|one| one.commands.is_empty())
        );
    }
}
