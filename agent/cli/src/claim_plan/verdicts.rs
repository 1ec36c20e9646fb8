//! Verdicts of blank drives: the agent places no volume on one that is SUSPECT or BAD, so the plan must not call it claimable.

use std::collections::BTreeMap;

use drivebay_config::HealthConfig;
use drivebay_discovery::{claim::Judgement, scan::Scanned};
use drivebay_model::{DriveId, Verdict};
use drivebay_smart::{History, Poll, judge, poll};
use drivebay_sys::clock::unix_seconds;
use tokio::task::JoinSet;

/// Result of one poll of a drive's SMART data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    pub verdict: Verdict,
    /// Codes of the findings behind the verdict.
    pub findings: Vec<String>,
}

/// Verdicts of drives that were polled.
#[derive(Debug, Default)]
pub struct Verdicts(BTreeMap<DriveId, Polled>);

/// True if a class selects the drive and it is blank.
pub(super) fn is_blank(drive: &Scanned) -> bool {
    matches!(drive.judgement, Judgement::Available { .. })
}

impl Verdicts {
    /// Polls all drives at the same time, each within smartctl's deadline. A drive without SMART data is UNKNOWN, as in the agent, which
    /// uses such a drive. A sleeping drive is not woken. Growth of counters is not evaluated: that needs an agent.
    pub async fn poll(config: &HealthConfig, drives: impl Iterator<Item = &Scanned>) -> Self {
        let mut polls = JoinSet::new();
        for drive in drives {
            let id = drive.facts.id.clone();
            let given = config.device_type(&drive.facts);
            let question = Poll {
                smartctl: config.smartctl.clone(),
                ..Poll::of(&drive.facts, &History::default(), given, false)
            };
            let thresholds = config.thresholds.clone();
            polls.spawn_blocking(move || {
                let outcome = poll(&question).outcome;
                let mut history = History::default();
                let judged = judge(&outcome, &mut history, unix_seconds(), &thresholds, None);
                let findings = judged.reasons.iter().map(|one| one.subject.clone());
                let findings = findings.collect();
                (
                    id,
                    Polled {
                        verdict: judged.verdict,
                        findings,
                    },
                )
            });
        }
        let mut verdicts: BTreeMap<DriveId, Polled> = BTreeMap::new();
        while let Some(polled) = polls.join_next().await {
            // A drive whose thread panicked has no verdict.
            verdicts.extend(polled.ok());
        }
        for given in &config.overrides {
            if let Some(polled) = verdicts.get_mut(&given.drive) {
                polled.verdict = given.verdict;
            }
        }
        Self(verdicts)
    }

    /// Returns the result of a drive that was polled.
    pub fn of(&self, drive: &Scanned) -> Option<&Polled> {
        self.0.get(&drive.facts.id)
    }

    /// True if the verdict keeps volumes off the drive.
    pub fn keep_volumes_off(&self, drive: &Scanned) -> bool {
        let polled = self.of(drive);
        polled.is_some_and(|polled| !polled.verdict.takes_new_volumes())
    }
}

#[cfg(test)]
impl FromIterator<(DriveId, Polled)> for Verdicts {
    fn from_iter<I: IntoIterator<Item = (DriveId, Polled)>>(of: I) -> Self {
        Self(of.into_iter().collect())
    }
}
