//! The rules for SCSI and SAS drives. "Passed" alone is worth little: real drives say it with
//! hundreds of uncorrected writes.

use super::{Code, Found, MOVE, WATCH};
use crate::smart::{
    facts::{Facts, Scsi},
    history::{Counter, Trends},
    thresholds::Thresholds,
};

/// Additional sense code: failure prediction threshold exceeded.
const PREDICTION: u8 = 0x5d;
/// Additional sense code: warning.
const WARNING: u8 = 0x0b;

pub(super) fn judge(
    facts: &Facts,
    scsi: &Scsi,
    trends: &Trends,
    limits: &Thresholds,
    found: &mut Found<'_>,
) {
    let failed = facts.status() == Some(false);
    match scsi.sense {
        Some((PREDICTION, qualifier)) if failed => found.add(
            Code::FailurePredicted,
            "sense",
            u64::from(qualifier),
            None,
            format!("the drive predicts that it will fail (ASC 0x5D); {MOVE}"),
        ),
        Some((WARNING, qualifier)) => found.add(
            Code::DriveWarning,
            "sense",
            u64::from(qualifier),
            None,
            "the drive warns of its condition (ASC 0x0B); see smartctl -H for which, and check its \
             temperature and power first"
                .to_owned(),
        ),
        _ => {}
    }
    for (counter, code, what) in [
        (
            Counter::ScsiUncorrected,
            Code::UncorrectedErrorsFast,
            "uncorrected errors",
        ),
        (
            Counter::GrownDefects,
            Code::GrownDefectsFast,
            "grown defects",
        ),
    ] {
        let grown = trends.get(counter).and_then(|trend| trend.day).unwrap_or(0);
        if grown >= limits.scsi_growth_bad {
            found.add(
                code,
                &format!("{}-day", counter.as_str()),
                grown,
                Some(limits.scsi_growth_bad),
                format!(
                    "{} or more new {what} within 24 hours; {MOVE}",
                    limits.scsi_growth_bad
                ),
            );
        }
    }
    let levels = [
        (
            scsi.uncorrected(),
            Code::UncorrectedErrors,
            "scsi-uncorrected",
            limits.scsi_uncorrected,
            "uncorrected errors",
        ),
        (
            scsi.grown_defects,
            Code::GrownDefects,
            "scsi-grown-defects",
            limits.grown_defects,
            "grown defects",
        ),
        (
            scsi.pending_defects,
            Code::PendingDefects,
            "pending-defects",
            limits.pending_defects,
            "pending defects",
        ),
    ];
    for (value, code, subject, limit, what) in levels {
        if let Some(value) = value.filter(|value| *value >= limit) {
            let message = format!("the drive counts {limit} or more {what}; {WATCH}");
            found.add(code, subject, value, Some(limit), message);
        }
    }
    let grown = trends
        .get(Counter::GrownDefects)
        .and_then(|trend| trend.week)
        .unwrap_or(0);
    if grown >= limits.grown_defects_growth.max(1) {
        found.add(
            Code::GrownDefectsGrew,
            "scsi-grown-defects-week",
            grown,
            Some(limits.grown_defects_growth),
            format!(
                "{} or more new grown defects within seven days; {WATCH}",
                limits.grown_defects_growth
            ),
        );
    }
}
