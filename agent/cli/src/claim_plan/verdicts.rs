//! What blank drives say of their health: the agent puts no volume on one that is SUSPECT or BAD, and a plan that called it
//! claimable would be wrong.

use std::collections::BTreeMap;

use drivebay_config::HealthConfig;
use drivebay_discovery::{claim::Judgement, scan::Scanned};
use drivebay_model::{DriveId, Verdict};
use drivebay_smart::{History, Poll, judge, poll};
use drivebay_sys::clock::unix_seconds;
use tokio::task::JoinSet;

/// A drive by one poll of its SMART data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    pub verdict: Verdict,
    /// Codes of what it rests on.
    pub findings: Vec<String>,
}

/// Verdicts of drives that were polled.
#[derive(Debug, Default)]
pub struct Verdicts(BTreeMap<DriveId, Polled>);

/// Whether a class selects the drive and nothing is on it.
pub(super) fn is_blank(drive: &Scanned) -> bool {
    matches!(drive.judgement, Judgement::Available { .. })
}

impl Verdicts {
    /// Polls all of them at the same time, each within smartctl's deadline. What gives no answer is UNKNOWN, as for the agent, which
    /// uses such a drive. A drive that sleeps is left asleep. No growth of a counter is seen: that takes an agent.
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
            // One whose thread ended otherwise is not known of.
            verdicts.extend(polled.ok());
        }
        for given in &config.overrides {
            if let Some(polled) = verdicts.get_mut(&given.drive) {
                polled.verdict = given.verdict;
            }
        }
        Self(verdicts)
    }

    /// Of a drive that was polled.
    pub fn of(&self, drive: &Scanned) -> Option<&Polled> {
        self.0.get(&drive.facts.id)
    }

    /// Whether the drive gets no volumes because of it.
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
