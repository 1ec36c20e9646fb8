//! The rules for NVMe drives. The number of error log entries and of unsafe shutdowns does not count.

use super::{Code, Found, MOVE, WATCH};
use crate::smart::{
    facts::{CriticalWarning, Facts, Nvme},
    history::{Counter, Trends},
    thresholds::Thresholds,
};

/// Bits of the critical warning that are verdicts; the temperature's is a condition.
const BITS: [(u8, Code, &str); 5] = [
    (
        CriticalWarning::SPARE,
        Code::SpareLow,
        "the drive warns that its spare blocks run out; plan its replacement",
    ),
    (
        CriticalWarning::RELIABILITY,
        Code::ReliabilityDegraded,
        "the drive says that its reliability is degraded by errors; move the data off it and replace the drive",
    ),
    (
        CriticalWarning::READ_ONLY,
        Code::MediumReadOnly,
        "the drive's medium went read-only; move the data off it and replace the drive",
    ),
    (
        CriticalWarning::BACKUP,
        Code::BackupFailed,
        "the backup of the drive's volatile memory failed: a power cut may lose what was written; replace the drive",
    ),
    (
        CriticalWarning::PMR,
        Code::PmrUnreliable,
        "the drive's persistent memory region is read-only or unreliable; replace the drive",
    ),
];

/// Whether the critical warning says why the status failed.
pub(super) fn explains(nvme: &Nvme) -> bool {
    nvme.critical_warning
        .is_some_and(|warning| warning.has(CriticalWarning::KNOWN))
}

pub(super) fn judge(
    _: &Facts,
    nvme: &Nvme,
    trends: &Trends,
    limits: &Thresholds,
    found: &mut Found<'_>,
) {
    let warning = nvme.critical_warning.unwrap_or_default();
    for (bit, code, message) in BITS {
        if warning.has(bit) {
            found.add(
                code,
                "critical-warning",
                u64::from(warning.0),
                None,
                message.to_owned(),
            );
        }
    }
    spare(nvme, limits, found);
    let grown = trends
        .get(Counter::MediaErrors)
        .and_then(|trend| trend.day)
        .unwrap_or(0);
    if grown >= limits.media_errors_bad {
        found.add(
            Code::MediaErrorsFast,
            "nvme-media-errors-day",
            grown,
            Some(limits.media_errors_bad),
            format!(
                "{} or more new media errors within 24 hours; {MOVE}",
                limits.media_errors_bad
            ),
        );
    }
    if let Some(errors) = nvme
        .media_errors
        .filter(|errors| *errors >= limits.media_errors)
    {
        found.add(
            Code::MediaErrors,
            "nvme-media-errors",
            errors,
            Some(limits.media_errors),
            format!(
                "the drive counts {} or more media errors: reads or writes that failed; {WATCH}",
                limits.media_errors
            ),
        );
    }
}

fn spare(nvme: &Nvme, limits: &Thresholds, found: &mut Found<'_>) {
    let Some(spare) = nvme.available_spare else {
        return;
    };
    // Neither is reported: an emulated drive says nothing of its spare blocks, and one that has used them up warns.
    if spare == 0 && nvme.spare_threshold.unwrap_or(0) == 0 {
        return;
    }
    let limit = nvme.spare_threshold.unwrap_or(0) / limits.spare_divisor.max(1);
    if spare > limit {
        return;
    }
    found.push(
        Code::SpareExhausted,
        Code::SpareExhausted.severity(),
        "nvme-spare",
        (spare, 100_u64.saturating_sub(spare)),
        Some(limit),
        format!("the drive has {limit} % of its spare blocks left, or less; {MOVE}"),
    );
}
