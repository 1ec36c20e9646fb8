//! From facts and what is known from before to findings and conditions. Pure: the same facts, trends
//! and thresholds give the same answer. The worst finding wins.

mod ata;
mod code;
mod conditions;
mod mmc;
#[cfg(test)]
mod monotone_tests;
mod nvme;
mod scsi;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(in crate::smart) use ata::counting;
pub use code::{Acknowledging, Code, Severity};
pub use conditions::{Condition, ConditionKind, ConditionLevel, Wear, WearSource, wear};

pub use crate::model::Verdict;

use super::{
    facts::{Detail, ExitStatus, Facts, SelfTestResult},
    history::{Known, Trends},
    thresholds::Thresholds,
};

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
pub struct Finding {
    /// Stable code.
    pub code: Code,
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
    /// An operator has seen it, and it is no worse since: it does not count.
    pub acknowledged: bool,
}

/// What one poll shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The worst finding that is not acknowledged; UNKNOWN without any fact to go by.
    pub verdict: Verdict,
    /// Worst first.
    pub findings: Vec<Finding>,
    /// Wear, temperature, cable: no verdict, but worth knowing.
    pub conditions: Vec<Condition>,
}

/// What replacing a drive takes, at the end of most messages.
const MOVE: &str = "move the data off it and replace the drive";
/// For findings that may be an incident.
const WATCH: &str = "make sure that its data exists elsewhere; acknowledge this if it is known, it \
                     counts again if it grows";

/// Collects findings: the one place that builds them.
struct Found<'a> {
    known: &'a Known,
    findings: Vec<Finding>,
}

impl Found<'_> {
    fn add(
        &mut self,
        code: Code,
        subject: &str,
        value: u64,
        threshold: Option<u64>,
        message: String,
    ) {
        self.push(
            code,
            code.severity(),
            subject,
            (value, value),
            threshold,
            message,
        );
    }

    /// With another severity than the code's, or a level that does not rise with the value.
    fn push(
        &mut self,
        code: Code,
        severity: Severity,
        subject: &str,
        (value, level): (u64, u64),
        threshold: Option<u64>,
        message: String,
    ) {
        let acknowledged = code.acknowledgement() == Acknowledging::Level
            && self
                .known
                .acknowledged(subject)
                .is_some_and(|seen| level <= seen);
        self.findings.push(Finding {
            code,
            subject: subject.to_owned(),
            severity,
            value,
            threshold,
            level,
            message,
            acknowledged,
        });
    }
}

/// Judges one poll.
pub fn evaluate(
    facts: &Facts,
    trends: &Trends,
    known: &Known,
    thresholds: &Thresholds,
) -> Evaluation {
    let mut found = Found {
        known,
        findings: Vec::new(),
    };
    match &facts.detail {
        Detail::Ata(ata) => ata::judge(facts, ata, trends, thresholds, &mut found),
        Detail::Scsi(scsi) => scsi::judge(facts, scsi, trends, thresholds, &mut found),
        Detail::Nvme(nvme) => nvme::judge(facts, nvme, trends, thresholds, &mut found),
        Detail::Mmc(mmc) => mmc::judge(mmc, &mut found),
        Detail::Unknown => {}
    }
    // Each protocol has its own way of saying why; what none of them explains must not be lost.
    let explained = found.findings.iter().any(|finding| {
        matches!(
            finding.code,
            Code::StatusFailed | Code::FailurePredicted | Code::DriveWarning
        )
    }) || matches!(&facts.detail, Detail::Nvme(nvme) if nvme::explains(nvme));
    if facts.status() == Some(false) && !explained {
        found.add(
            Code::StatusFailed,
            "status",
            1,
            None,
            format!(
                "the drive's own health status is \"failed\", for a reason it does not give; {MOVE}"
            ),
        );
    }
    self_tests(facts, &mut found);
    if let Some(state) = &facts.not_running {
        found.add(
            Code::NotRunning,
            "state",
            1,
            None,
            format!("the kernel says that the drive is {state:?}, not running; see dmesg, and check its cable and slot"),
        );
    }
    let mut findings = found.findings;
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)));
    let worst = findings
        .iter()
        .filter(|finding| !finding.acknowledged)
        .map(|finding| finding.severity)
        .max();
    Evaluation {
        verdict: match worst {
            Some(severity) => severity.into(),
            None if facts.tells_health() => Verdict::Good,
            None => Verdict::Unknown,
        },
        findings,
        conditions: conditions::judge(facts, trends, known, thresholds),
    }
}

/// A failed self-test counts until a later one passes: one of its own kind, or an extended one.
fn self_tests(facts: &Facts, found: &mut Found<'_>) {
    let tests = facts.self_tests();
    let mut passed = Vec::new();
    let mut failed = None;
    for test in tests {
        match test.result {
            SelfTestResult::Passed => passed.push(test.kind),
            SelfTestResult::Failed(_)
                if !passed.contains(&test.kind)
                    && !passed.contains(&super::facts::SelfTest::EXTENDED) =>
            {
                failed = Some(test);
                break;
            }
            _ => {}
        }
    }
    // SCSI: the bit is the rule. Elsewhere it stands in for a log that was not read.
    let scsi = matches!(facts.detail, Detail::Scsi(_));
    let bit = facts.exit.has(ExitStatus::SELF_TEST) && (scsi || tests.is_empty());
    if failed.is_none() && !bit {
        return;
    }
    let hours = failed
        .or_else(|| {
            tests
                .iter()
                .find(|test| matches!(test.result, SelfTestResult::Failed(_)))
        })
        .and_then(|test| test.hours);
    found.add(
        Code::SelfTestFailed,
        "self-test",
        hours.unwrap_or(1),
        None,
        "a self-test of the drive failed, and no later one passed; run an extended self-test \
         (smartctl -t long), and replace the drive if it fails again"
            .to_owned(),
    );
}
