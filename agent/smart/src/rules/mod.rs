//! From facts and what is known from before to findings and conditions. Pure: the same facts, trends
//! and thresholds give the same answer. The worst finding wins.
//!
//! The rules are data (`findings`, `conditions`): the judge executes the table that `table` prints.

mod ata;
mod code;
mod conditions;
#[cfg(test)]
mod drives_tests;
mod error_age;
mod findings;
#[cfg(test)]
mod monotone_tests;
mod nvme;
mod reading;
mod rule;
mod scsi;
mod self_tests;
pub mod table;
#[cfg(test)]
mod tests;
mod wear;

use serde::{Deserialize, Serialize};

pub use ata::counts_physical;
pub use code::{Acknowledging, Severity, SmartCode};
pub use conditions::{ConditionKind, ConditionLevel, SmartCondition};
pub use scsi::uncorrected_errors;
pub use wear::ENDURANCE;
pub use wear::{Wear, WearSource, wear};

pub use drivebay_model::Verdict;

use super::{
    facts::Facts,
    history::{Known, Trends},
    thresholds::Thresholds,
};
use findings::RULES;
use rule::{Hit, Input, Rule, Test};

impl From<Severity> for Verdict {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Suspect => Self::Suspect,
            Severity::Bad => Self::Bad,
        }
    }
}

/// What rules derive from evidence about a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFinding {
    /// Stable code.
    pub code: SmartCode,
    /// What it is about, e.g. `ata-197`: two findings of one code differ in it.
    pub subject: String,
    /// How bad.
    pub severity: Severity,
    /// What was read: the moving number that the message does not hold.
    pub value: u64,
    /// What it was compared with.
    pub threshold: Option<u64>,
    /// Grows as it gets worse, also where `value` falls; an acknowledgement is measured by it.
    pub level: u64,
    /// What it means and what to do. The same for as long as the finding is the same.
    pub message: String,
    /// An operator has seen it, and it is no worse since: it makes up the verdict in silence.
    pub acknowledged: bool,
}

/// What one poll shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The worst finding, acknowledged or not; UNKNOWN without any fact to go by.
    pub verdict: Verdict,
    /// Worst first.
    pub findings: Vec<RuleFinding>,
    /// Wear, temperature, cable: no verdict, but worth knowing.
    pub conditions: Vec<SmartCondition>,
}

/// Judges one poll.
pub fn evaluate(
    facts: &Facts,
    trends: &Trends,
    known: &Known,
    thresholds: &Thresholds,
) -> Evaluation {
    let input = Input {
        facts,
        trends,
        limits: thresholds,
    };
    let mut findings: Vec<RuleFinding> = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.drives.includes(facts)) {
        if findings
            .iter()
            .any(|found| rule.unless.contains(&found.code))
        {
            continue;
        }
        let hits = rule.hits(&input).into_iter();
        findings.extend(hits.map(|(hit, threshold)| finding(rule, hit, threshold, known)));
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)));
    let worst = findings.iter().map(|finding| finding.severity).max();
    Evaluation {
        verdict: match worst {
            Some(severity) => severity.into(),
            None if !findings.is_empty() || facts.tells_health() => Verdict::Good,
            None => Verdict::Unknown,
        },
        findings,
        conditions: conditions::judge(&input, known),
    }
}

fn finding(rule: &Rule, hit: Hit, threshold: Option<u64>, known: &Known) -> RuleFinding {
    let message = rule.message(threshold, &hit.what);
    let subject = hit.subject.unwrap_or_else(|| rule.subject.to_owned());
    let level = hit.level.unwrap_or(hit.value);
    let covered = |seen| match rule.code {
        SmartCode::SelfTestFailed => level <= seen || self_tests::is_same(level, seen),
        _ => level <= seen,
    };
    let acknowledged = rule.code.acknowledgement() == Acknowledging::Level
        && known.acknowledged(&subject).is_some_and(covered);
    RuleFinding {
        code: rule.code,
        subject,
        severity: rule.severity,
        value: hit.value,
        threshold,
        level,
        message,
        acknowledged,
    }
}

/// A drive that does not answer any more: found by the history, which counts the timeouts.
pub fn unresponsive(limits: &Thresholds) -> Option<RuleFinding> {
    RULES.iter().find_map(|rule| match rule.test {
        Test::TimedOut(limit) => {
            let limit = limit.of(limits);
            Some(finding(
                rule,
                Hit::value(limit),
                Some(limit),
                &Known::default(),
            ))
        }
        _ => None,
    })
}
