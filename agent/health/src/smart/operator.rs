//! Executes an operator's decision about a drive's findings: saves it durably, then publishes it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Tracked,
    persisted::{of_history, report},
};
use crate::{
    acknowledge::{
        AcknowledgeError, AcknowledgeRequest, Done, NamedFinding, Order, to_smart_finding,
    },
    slow,
};
use drivebay_evidence::now;
use drivebay_model::{
    DriveHealth, DriveId, Finding, Verdict,
    health::{SmartFinding, SmartReport},
};
use drivebay_node::context::NodeContext;
use drivebay_smart::{Acknowledgement, History, rules};
use drivebay_sys::clock::unix_seconds;

pub(super) async fn carry_out(
    node: &NodeContext,
    drives: &mut BTreeMap<DriveId, Tracked>,
    slow: &slow::Acknowledger,
    request: &AcknowledgeRequest,
) -> Result<Done, AcknowledgeError> {
    let id = &request.drive;
    let tracked = drives
        .get_mut(id)
        .ok_or_else(|| AcknowledgeError::NotMonitored(id.clone()))?;
    let inventory = node.inventory();
    let at = unix_seconds();
    let before = shown(node, id);
    let mut history = tracked.history.clone();
    let (mut acknowledged, changes) = match &request.order {
        Order::Acknowledge {
            ack,
            confirmed,
            named,
        } => {
            if tracked.history.verdict().max(before.verdict) == Verdict::Bad && !confirmed {
                return Err(AcknowledgeError::NotConfirmed { drive: id.clone() });
            }
            if !named.is_empty() {
                let findings = not_named(named, &tracked.history, &before);
                if !findings.is_empty() {
                    return Err(AcknowledgeError::NotNamed {
                        drive: id.clone(),
                        findings: findings.join("; "),
                    });
                }
            }
            let besides = inventory.health(|registry| registry.acknowledgeable(id));
            let findings = history.acknowledge(ack, at);
            let states = states(&tracked.history, &history, &besides, &before);
            if ack.takes_new_volumes && !states.is_empty() {
                return Err(AcknowledgeError::StateCounts {
                    drive: id.clone(),
                    codes: states.join(", "),
                });
            }
            let changes = !besides.is_empty() || changes(&tracked.history, &findings, ack, at);
            let trends = tracked.history.trends();
            let findings = findings.iter();
            let findings = findings.map(|finding| to_smart_finding(finding, &trends));
            (findings.collect::<Vec<SmartFinding>>(), changes)
        }
        Order::Withdraw { by } => (Vec::new(), history.withdraw(by, at)),
    };
    if !changes {
        return Ok(Done {
            nothing: true,
            acknowledged: Vec::new(),
            health: before,
            revision: inventory.current().revision,
        });
    }
    let written = tracked.file.save(history.clone()).await;
    written.map_err(|source| AcknowledgeError::Write {
        drive: id.clone(),
        source,
    })?;
    let withdraw = matches!(request.order, Order::Withdraw { .. });
    let slow_findings = slow.send(id.clone(), withdraw).await?;
    tracked.history = history;
    let mut kernel_findings = Vec::new();
    inventory.update(|state| match withdraw {
        true => state.health.withdraw(id),
        false => kernel_findings = state.health.acknowledge(id, now()),
    });
    let revision = publish(node, id, tracked);
    let of_kernel = kernel_findings.into_iter().map(|one| (one, "kernel"));
    let slow = slow_findings.into_iter().map(|one| (one, "latency"));
    acknowledged.extend(of_kernel.chain(slow).map(besides_smart));
    let health = shown(node, id);
    let (verdict, findings) = (health.shown_verdict(), acknowledged.len());
    match &request.order {
        Order::Acknowledge { ack, .. } => {
            tracing::warn!(drive = %id, by = ack.by, note = ack.note, until = ack.until, takes_new_volumes = ack.takes_new_volumes, verdict, findings, "drive findings acknowledged by operator");
        }
        Order::Withdraw { by } => {
            tracing::warn!(drive = %id, by, verdict, "drive acknowledgement withdrawn by operator");
        }
    }
    Ok(Done {
        nothing: false,
        acknowledged,
        health,
        revision,
    })
}

/// Publishes the history's current report in the inventory. Returns the revision that has it.
pub(super) fn publish(node: &NodeContext, id: &DriveId, tracked: &mut Tracked) -> u64 {
    let history = &tracked.history;
    let previous = tracked.report.take().unwrap_or_default();
    let smart = previous.smart.unwrap_or_default();
    let of_history = of_history(history);
    let health = DriveHealth {
        verdict: of_history.verdict,
        findings: of_history.findings,
        acknowledged: of_history.acknowledged,
        smart: Some(SmartReport {
            asleep: smart.asleep,
            failure: smart.failure,
            readings: smart.readings,
            ..report(history)
        }),
        ..previous
    };
    tracked.report = Some(health.clone());
    let inventory = node.inventory();
    inventory.update(|state| state.health.record_report(id.clone(), health))
}

fn shown(node: &NodeContext, id: &DriveId) -> DriveHealth {
    let snapshot = node.inventory().current();
    let drive = snapshot.drives.get(id);
    drive.map(|drive| drive.health.clone()).unwrap_or_default()
}

/// Returns the codes of findings that still count after the acknowledgement that led to `history`, since the drive or its
/// state reports them now. `besides`: findings of other sources that are acknowledged with it. Pure.
fn states(
    before: &History,
    history: &History,
    besides: &[Finding],
    shown: &DriveHealth,
) -> Vec<String> {
    let standing = before.standing();
    let of_smart = |one: &Finding| standing.iter().any(|of| of.code.as_str() == one.code);
    let covered = |one: &Finding| besides.iter().any(|of| of.code == one.code);
    let others = shown.counting();
    let others = others.filter(|one| !of_smart(one) && !covered(one));
    let smart = history.standing().into_iter();
    let smart = smart.filter(|one| !one.acknowledged);
    let mut codes: Vec<String> = smart.map(|one| one.code.to_string()).collect();
    codes.extend(others.map(|one| one.code.clone()));
    codes.dedup();
    codes
}

/// Returns the findings that an operator who named these has not seen: those that count and are not named, and those that are worse than
/// named. Findings of the last poll are named with their subject and value, all others by their code. Pure.
fn not_named(named: &[NamedFinding], history: &History, shown: &DriveHealth) -> Vec<String> {
    let polled = history.findings().iter();
    let polled: Vec<_> = polled.filter(|one| !one.acknowledged).collect();
    let mut missing: Vec<String> = polled
        .iter()
        .filter_map(|one| {
            let code = one.code.as_str();
            let mut named = named.iter();
            let named = named.find(|it| it.code == code && it.subject == one.subject);
            let (subject, value) = (&one.subject, one.value);
            match named {
                None => Some(format!("{code} ({subject}: {value}) is not named")),
                Some(it) if it.value < value => {
                    let named = it.value;
                    Some(format!(
                        "{code} ({subject}) is {value}, and {named} is named"
                    ))
                }
                Some(_) => None,
            }
        })
        .collect();
    let held = history.standing().into_iter();
    let held = held.filter(|one| !one.acknowledged);
    let held = held.map(|one| one.code.as_str().to_owned());
    let mut others: BTreeSet<String> = shown.counting().map(|one| one.code.clone()).collect();
    others.extend(held);
    others.retain(|code| {
        let is_polled = polled.iter().any(|it| it.code.as_str() == code);
        !is_polled && !named.iter().any(|it| it.code == *code)
    });
    missing.extend(others.iter().map(|code| format!("{code} is not named")));
    missing
}

/// True if acknowledging `findings` at `now` (Unix time in seconds) changes anything. Pure.
fn changes(
    before: &History,
    findings: &[rules::RuleFinding],
    ack: &Acknowledgement,
    now: u64,
) -> bool {
    let Some(holds) = before.acknowledgement(now) else {
        return !findings.is_empty();
    };
    let choice = |of: &Acknowledgement| (of.until, of.takes_new_volumes);
    let standing = before.standing();
    let is_acknowledged = |one: &rules::RuleFinding| {
        let mut earlier = before.findings().iter().chain(&standing);
        earlier.any(|of| of.acknowledged && (of.code, &of.subject) == (one.code, &one.subject))
    };
    choice(&holds.given) != choice(ack) || !findings.iter().all(is_acknowledged)
}

fn besides_smart((finding, subject): (Finding, &str)) -> SmartFinding {
    SmartFinding {
        code: finding.code,
        subject: subject.to_owned(),
        value: 1,
        threshold: None,
        reading: subject.to_owned(),
        message: finding.message,
        acknowledged: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::finding::Code;
    use drivebay_smart::{Thresholds, collect, judge};

    const DRIVES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../smart/src/fixtures/drives");

    fn ack() -> Acknowledgement {
        Acknowledgement {
            by: "ann".to_owned(),
            ..Acknowledgement::default()
        }
    }

    fn history() -> History {
        let bytes = std::fs::read(format!("{DRIVES}/scsi-grown-defects.json")).unwrap();
        let mut history = History::default();
        judge(
            &collect::of_bytes(&bytes),
            &mut history,
            1,
            &Thresholds::default(),
            None,
        );
        history
    }

    #[test]
    fn an_acknowledgement_that_changes_nothing_is_distinguished_from_one_that_does() {
        let mut nothing = History::default();
        let findings = nothing.acknowledge(&ack(), 1);
        assert!(!changes(&History::default(), &findings, &ack(), 1));
        let before = history();
        let mut acknowledged = before.clone();
        let findings = acknowledged.acknowledge(&ack(), 2);
        assert!(!findings.is_empty());
        assert!(changes(&before, &findings, &ack(), 2));
        // Repeated by another operator with another note.
        let other = Acknowledgement {
            by: "bob".to_owned(),
            note: "again".to_owned(),
            ..ack()
        };
        let again = acknowledged.clone().acknowledge(&other, 3);
        assert!(!changes(&acknowledged, &again, &other, 3));
        for choice in [
            Acknowledgement {
                takes_new_volumes: true,
                ..ack()
            },
            Acknowledgement {
                until: Some(99),
                ..ack()
            },
        ] {
            assert!(changes(&acknowledged, &again, &choice, 3), "{choice:?}");
        }
    }

    #[test]
    fn findings_that_are_not_named_or_worse_than_named_are_not_acknowledged() {
        let history = history();
        let shown = DriveHealth {
            findings: vec![Finding::new(Code::KernelIoError, "")],
            ..DriveHealth::default()
        };
        let smart = history.findings().iter().map(|one| NamedFinding {
            code: one.code.as_str().to_owned(),
            subject: one.subject.clone(),
            value: one.value,
        });
        let mut named: Vec<NamedFinding> = smart.collect();
        assert!(!named.is_empty());
        let missing = not_named(&named, &history, &shown);
        assert_eq!(missing, ["KernelIoError is not named"]);
        named.push(NamedFinding {
            code: "KernelIoError".to_owned(),
            subject: String::new(),
            value: 0,
        });
        assert!(not_named(&named, &history, &shown).is_empty());
        let worse = named[0].value;
        named[0].value -= 1;
        let missing = not_named(&named, &history, &shown);
        let text = missing.join("");
        assert!(
            text.contains(&format!("is {worse}, and {} is named", worse - 1)),
            "{text}"
        );
        let other = named.split_off(1);
        let missing = not_named(&other, &history, &shown).join("");
        assert!(
            missing.contains(&format!(": {worse}) is not named")),
            "{missing}"
        );
        // Only states of the drive, which are not silenced, have to be named again.
        let mut acknowledged = history.clone();
        acknowledged.acknowledge(&ack(), 2);
        let missing = not_named(&[], &acknowledged, &DriveHealth::default());
        assert_eq!(
            missing,
            ["BackgroundScanHalted (background-scan: 3) is not named"]
        );
    }

    #[test]
    fn what_is_a_state_stays_in_the_way_of_use() {
        let before = history();
        let mut after = before.clone();
        after.acknowledge(&ack(), 2);
        let of = |codes: &[Code]| DriveHealth {
            findings: codes.iter().map(|code| Finding::new(code, "")).collect(),
            ..DriveHealth::default()
        };
        let io = [Finding::new(Code::KernelIoError, "")];
        let health = of(&[Code::KernelIoError]);
        let smart = states(&before, &after, &io, &health);
        let stalled = of(&[Code::KernelIoError, Code::IoStalled]);
        let both = states(&before, &after, &io, &stalled);
        assert_eq!(both.last().unwrap(), "IoStalled");
        assert_eq!(both.len(), smart.len() + 1);
    }
}
