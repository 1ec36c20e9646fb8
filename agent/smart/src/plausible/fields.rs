//! Declarations of all numbers that a rule, a trend or a metric of errors reads.

use std::ops::RangeInclusive;

use super::{
    ata,
    declare::{Contradiction, Declared, Field},
    nvme,
};
use crate::facts::{Detail, ErrorCounter, Facts, Scsi};

/// Range of a count of errors. 2^32 and more, and all ones in 32, 48 or 64 bits, are no counts: at a hundred per second, 2^32 take longer
/// than a year.
const ERRORS: RangeInclusive<u64> = 0..=(u32::MAX as u64 - 1);
/// Range of a count of waiting sectors, 16 bits.
const SECTORS: RangeInclusive<u64> = 0..=ata::SECTORS;
/// Range of a count of logical sectors, eight to a physical one: attribute 5 has 16 bits for the physical ones.
const SPARES: RangeInclusive<u64> = 0..=(8 * ata::SECTORS);
const PERCENT: RangeInclusive<u64> = 0..=100;
const BYTE: RangeInclusive<u64> = 0..=255;
/// Range of a critical warning: all ones is what a controller that does not answer reads as.
const WARNINGS: RangeInclusive<u64> = 0..=254;
/// Range of power-on hours: thirty years.
const HOURS: RangeInclusive<u64> = 0..=262_980;
const TURNS: RangeInclusive<u64> = 0..=65_534;

const EMPTY_LOG: Contradiction = Contradiction {
    reason: "the whole log is zeros or ones: the controller does not fill it in",
    holds: nvme::is_empty_log,
};

macro_rules! fields {
    ($($field:ident $name:literal in $unit:literal: $range:expr, $read:expr, failure $failure:literal
        $(, $reason:literal if $holds:expr)* $(, and $also:ident)*;)+) => {
        /// Declarations of all numbers that a rule, a trend or a metric of errors reads, one for each `Field`.
        pub(super) static FIELDS: &[Declared] = &[$(Declared {
            field: Field::$field,
            name: $name,
            unit: $unit,
            range: $range,
            read: $read,
            is_failure: $failure,
            contradictions: &[
                $(Contradiction { reason: $reason, holds: $holds },)*
                $($also,)*
            ],
        }),+];
    };
}

fields! {
    Reallocated "ata-5" in "sectors": SECTORS, ata::count::<5>, failure true;
    SpinRetries "ata-10" in "retries": SECTORS, ata::count::<10>, failure true;
    EndToEnd "ata-184" in "errors": ERRORS, ata::count::<184>, failure true;
    ReportedUncorrect "ata-187" in "errors": ERRORS, ata::count::<187>, failure true,
        "its normalised value or its flag is that of a rate, not of a count" if ata::is_rate;
    CommandTimeout "ata-188" in "timeouts": SECTORS, ata::count::<188>, failure false;
    PendingSectors "ata-197" in "sectors": SECTORS, ata::count::<197>, failure true,
        "smartctl shows several numbers in it" if ata::is_packed::<197>,
        "it repeats the replaced blocks of 5 or 196 on a solid state drive" if ata::repeats_reallocated;
    OfflineUncorrectable "ata-198" in "sectors": SECTORS, ata::count::<198>, failure true,
        "smartctl shows several numbers in it" if ata::is_packed::<198>,
        "it repeats the replaced blocks of 5 or 196 on a solid state drive, not its errors" if ata::repeats_reallocated_198;
    InterfaceCrc "ata-199" in "errors": ERRORS, ata::count::<199>, failure false;
    StatisticReallocated "ata-statistics-3-32" in "logical sectors": SPARES, ata::reallocated_statistic, failure true;
    StatisticUncorrectable "ata-statistics-4-8" in "errors": ERRORS, ata::uncorrectable_statistic, failure true,
        "attribute 187 counts the same and is 0, and the error log has no such entry" if ata::is_denied_by_187,
        "it is more than a thousand times what attribute 187 counts" if ata::is_far_from_187,
        "more than 65535, and attribute 187 of the same drive is no count" if ata::is_beside_a_rate,
        "more than 65535 without attribute 187, while the error log has no entry" if ata::is_alone_without_log;
    StatisticInterfaceCrc "ata-statistics-6-24" in "errors": ERRORS, ata::interface_statistic, failure false;
    AtaPendingDefects "ata-pending-defects" in "entries": SECTORS, ata::pending_defects, failure false;
    RotationRate "rotation-rate" in "turns a minute": TURNS, ata::rotation_rate, failure false,
        "the attributes are those of flash memory, and none is of heads or a spindle" if ata::is_of_flash;
    PowerOnHours "power-on-hours" in "hours": HOURS, power_on_hours, failure false;
    ScsiRead "scsi-read-uncorrected" in "errors": ERRORS, scsi_read, failure true;
    ScsiWrite "scsi-write-uncorrected" in "errors": ERRORS, scsi_write, failure true;
    ScsiVerify "scsi-verify-uncorrected" in "errors": ERRORS, scsi_verify, failure true;
    GrownDefects "scsi-grown-defects" in "sectors": ERRORS, grown_defects, failure true;
    ScsiPendingDefects "scsi-pending-defects" in "entries": ERRORS, scsi_pending_defects, failure false;
    CriticalWarning "nvme-critical-warning" in "as bits": WARNINGS, nvme::critical_warning, failure true, and EMPTY_LOG;
    EnduranceGroups "nvme-endurance-groups" in "as bits": WARNINGS, nvme::endurance_groups, failure false, and EMPTY_LOG;
    Spare "nvme-spare" in "percent": PERCENT, nvme::spare, failure false, and EMPTY_LOG;
    SpareThreshold "nvme-spare-threshold" in "percent": PERCENT, nvme::spare_threshold, failure false, and EMPTY_LOG;
    PercentageUsed "nvme-percentage-used" in "percent": BYTE, nvme::percentage_used, failure false,
        "255 beside a spare or threshold of 255: all ones" if nvme::is_among_ones,
        and EMPTY_LOG;
    MediaErrors "nvme-media-errors" in "errors": ERRORS, nvme::media_errors, failure true,
        "more errors than commands" if nvme::is_more_than_commands,
        and EMPTY_LOG;
}

fn power_on_hours(facts: &Facts) -> Option<u64> {
    facts.power_on_hours
}

fn scsi(facts: &Facts) -> Option<&Scsi> {
    match &facts.detail {
        Detail::Scsi(scsi) => Some(scsi),
        _ => None,
    }
}

fn uncorrected(counter: Option<ErrorCounter>) -> Option<u64> {
    counter?.uncorrected
}

fn scsi_read(facts: &Facts) -> Option<u64> {
    uncorrected(scsi(facts)?.read)
}

fn scsi_write(facts: &Facts) -> Option<u64> {
    uncorrected(scsi(facts)?.write)
}

fn scsi_verify(facts: &Facts) -> Option<u64> {
    uncorrected(scsi(facts)?.verify)
}

fn grown_defects(facts: &Facts) -> Option<u64> {
    scsi(facts)?.grown_defects
}

fn scsi_pending_defects(facts: &Facts) -> Option<u64> {
    scsi(facts)?.pending_defects
}
