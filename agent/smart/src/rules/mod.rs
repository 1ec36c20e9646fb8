//! Derives findings and conditions from facts and history. Pure: the same facts, trends and thresholds give the same result. The worst
//! finding decides.
//!
//! The rules are data (`findings`, `conditions`): the judge executes the same table that `table` prints.

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
    history::{EarlierPolls, Trends},
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

/// Conclusion that rules derive from evidence about a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFinding {
    pub code: SmartCode,
    /// Attribute or field that it is about, e.g. `ata-197`; distinguishes findings of one code.
    pub subject: String,
    pub severity: Severity,
    /// Value that was read. It may change while the message stays the same.
    pub value: u64,
    /// Value that it was compared with, if any.
    pub threshold: Option<u64>,
    /// Increases as the finding gets worse, even if `value` falls; an acknowledgement covers levels up to the acknowledged one.
    pub level: u64,
    /// Meaning and action. Stays the same as long as the finding does.
    pub message: String,
    /// True if an operator acknowledged it and it has not become worse since. It still counts for the verdict, and raises no alert.
    pub acknowledged: bool,
}

/// Result of judging one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Verdict of the worst finding, acknowledged or not; UNKNOWN without any health data.
    pub verdict: Verdict,
    /// Findings, by severity with BAD first, then by code; empty if no rule matches.
    pub findings: Vec<RuleFinding>,
    /// Wear, temperature and cable, which do not affect the verdict.
    pub conditions: Vec<SmartCondition>,
}

/// Judges one poll. A rule is skipped if an earlier finding has a code in its `unless`.
pub fn evaluate(
    facts: &Facts,
    trends: &Trends,
    earlier: &EarlierPolls,
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
            .any(|finding| rule.unless.contains(&finding.code))
        {
            continue;
        }
        let hits = rule.hits(&input).into_iter();
        findings.extend(hits.map(|(hit, threshold)| finding(rule, hit, threshold, earlier)));
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)));
    let worst = findings.iter().map(|finding| finding.severity).max();
    Evaluation {
        verdict: match worst {
            Some(severity) => severity.into(),
            None if !findings.is_empty() || facts.has_health_data() => Verdict::Good,
            None => Verdict::Unknown,
        },
        findings,
        conditions: conditions::judge(&input, earlier),
    }
}

fn finding(rule: &Rule, hit: Hit, threshold: Option<u64>, earlier: &EarlierPolls) -> RuleFinding {
    let message = rule.message(threshold, &hit.what);
    let subject = hit.subject.unwrap_or_else(|| rule.subject.to_owned());
    let level = hit.level.unwrap_or(hit.value);
    let covered = |acknowledged_level| match rule.code {
        SmartCode::SelfTestFailed => {
            level <= acknowledged_level || self_tests::is_same(level, acknowledged_level)
        }
        _ => level <= acknowledged_level,
    };
    let acknowledged = rule.code.acknowledgement() == Acknowledging::Level
        && earlier.acknowledged(&subject).is_some_and(covered);
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

/// Returns the finding of a drive that does not answer any more. The history raises it, because it counts the timeouts.
pub fn unresponsive(limits: &Thresholds) -> Option<RuleFinding> {
    RULES.iter().find_map(|rule| match rule.test {
        Test::TimedOut(limit) => {
            let limit = limit.of(limits);
            Some(finding(
                rule,
                Hit::value(limit),
                Some(limit),
                &EarlierPolls::default(),
            ))
        }
        _ => None,
    })
}
