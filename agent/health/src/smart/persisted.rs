//! Persisted SMART data, one file per drive, and its conversion for the inventory.

use std::{collections::BTreeMap, path::Path, time::Duration};

use crate::acknowledge::to_smart_finding;
use drivebay_model::{
    DriveHealth, DriveId, Finding, PollState,
    health::{Acknowledged, SmartReport},
};
use drivebay_node::{context::NodeContext, state::StateKind};
use drivebay_smart::{
    self as smart, History,
    rules::{self, ConditionLevel},
};
use drivebay_sys::{offload::offload, statefile};

/// Limit of histories that are read at the start; a node has a hundred drives at most, and keeps those of earlier ones.
const HISTORIES: usize = 4096;
/// Limit of reading all of them.
const FILE_DEADLINE: Duration = Duration::from_secs(10);

/// Restores the last report of each drive from an earlier agent into the inventory, so that it counts as soon as the drive
/// is scanned. A history that cannot be used is handled when its drive appears.
pub async fn restore(node: &NodeContext) {
    let dir = node.state_dir().path_of(StateKind::Smart);
    let wanted = dir.clone();
    let read = offload("smart-read", FILE_DEADLINE, move || read_all(&wanted)).await;
    match read.and_then(|read| read) {
        Ok(reports) => {
            let inventory = node.inventory();
            inventory.update(|state| state.health.restore_reports(reports));
        }
        Err(error) => {
            tracing::error!(path = %dir.display(), %error, "cannot read drive health histories; drives take no new volumes before their first SMART poll");
        }
    }
}

fn read_all(dir: &Path) -> std::io::Result<BTreeMap<DriveId, DriveHealth>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut reports = BTreeMap::new();
    for entry in entries.take(HISTORIES) {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(id) = name.and_then(|name| name.strip_suffix(".json")) else {
            continue;
        };
        let bytes = statefile::read(&path, smart::history::MAX_BYTES as u64);
        let history = bytes.ok().and_then(|bytes| History::from_json(&bytes).ok());
        reports.extend(
            history.and_then(|history| Some((DriveId(id.to_owned()), last_known(&history)?))),
        );
    }
    Ok(reports)
}

/// Returns the report of a drive before its next poll; None if it was never polled successfully. Pure.
fn last_known(history: &History) -> Option<DriveHealth> {
    history.answered_at()?;
    Some(DriveHealth {
        poll: PollState::LastKnown,
        smart: Some(report(history)),
        ..of_history(history)
    })
}

/// Converts verdict, findings, conditions and acknowledgement for the inventory. Pure.
pub(super) fn of_history(history: &History) -> DriveHealth {
    let conditions = history.conditions();
    let shown = conditions.iter();
    let shown = shown.map(|one| Finding::new(one.kind.as_str(), &one.message));
    let mut levels = conditions.iter().map(|one| one.level);
    // Readers of the inventory decide whether it has expired.
    let given = history.acknowledgements().last();
    let given = given.filter(|last| last.withdrawn.is_none());
    DriveHealth {
        verdict: history.verdict(),
        findings: to_findings(&history.standing()),
        conditions: shown.collect(),
        worn_out: levels.any(|level| level == ConditionLevel::NoNewVolumes),
        acknowledged: given.map(|last| Acknowledged {
            at: last.at,
            by: last.given.by.clone(),
            note: last.given.note.clone(),
            until: last.given.until,
            takes_new_volumes: last.given.takes_new_volumes,
        }),
        ..DriveHealth::default()
    }
}

/// Returns the report that the history contains. Pure.
pub(super) fn report(history: &History) -> SmartReport {
    let trends = history.trends();
    let findings = history.findings().iter();
    SmartReport {
        answered_at: history.answered_at().unwrap_or(0),
        verdict_since: history.since(),
        device_type: history.device_type().unwrap_or_default().to_owned(),
        findings: findings
            .map(|finding| to_smart_finding(finding, &trends))
            .collect(),
        ..SmartReport::default()
    }
}

/// Converts findings for the inventory. Pure.
fn to_findings(standing: &[rules::RuleFinding]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = standing
        .iter()
        .map(|finding| Finding {
            acknowledged: finding.acknowledged,
            ..Finding::new(finding.code, &finding.message)
        })
        .collect();
    findings.dedup();
    findings
}
