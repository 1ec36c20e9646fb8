//! Values that an NVMe health log cannot have.

use crate::facts::{CriticalWarning, Detail, Facts, Nvme};

/// A byte of which every bit is set.
const ALL_ONES: u64 = 0xff;

fn nvme(facts: &Facts) -> Option<&Nvme> {
    match &facts.detail {
        Detail::Nvme(nvme) => Some(nvme),
        _ => None,
    }
}

pub(super) fn critical_warning(facts: &Facts) -> Option<u64> {
    nvme(facts)?
        .critical_warning
        .map(|warning| u64::from(warning.0))
}

pub(super) fn endurance_groups(facts: &Facts) -> Option<u64> {
    nvme(facts)?
        .endurance_groups
        .map(|warning| u64::from(warning.0))
}

pub(super) fn spare(facts: &Facts) -> Option<u64> {
    nvme(facts)?.available_spare
}

pub(super) fn spare_threshold(facts: &Facts) -> Option<u64> {
    nvme(facts)?.spare_threshold
}

pub(super) fn percentage_used(facts: &Facts) -> Option<u64> {
    nvme(facts)?.percentage_used
}

pub(super) fn media_errors(facts: &Facts) -> Option<u64> {
    nvme(facts)?.media_errors
}

/// True if the controller filled in its health log: not all zeros, which bridges and RAID controllers report, and not all ones, which a
/// controller that does not answer reads as.
pub(crate) fn is_filled_in(nvme: &Nvme) -> bool {
    let Nvme {
        critical_warning,
        available_spare,
        spare_threshold,
        percentage_used,
        media_errors,
        ..
    } = nvme;
    let numbers = [
        critical_warning.map(|CriticalWarning(bits)| u64::from(bits)),
        *available_spare,
        *spare_threshold,
        *percentage_used,
        *media_errors,
        nvme.host_commands,
        nvme.bytes_read,
        nvme.bytes_written,
    ];
    let mut reported = numbers.into_iter().flatten();
    let is_ones = numbers[0] == Some(ALL_ONES) && available_spare.is_none_or(|spare| spare > 100);
    reported.any(|number| number > 0) && !is_ones
}

/// True for each number of a log that the controller did not fill in.
pub(super) fn is_empty_log(facts: &Facts, _: u64) -> bool {
    nvme(facts).is_some_and(|nvme| !is_filled_in(nvme))
}

/// True for 255 beside other bytes of ones; otherwise it stands for more than 254 percent.
pub(super) fn is_among_ones(facts: &Facts, value: u64) -> bool {
    let ones = Some(ALL_ONES);
    value == ALL_ONES && (spare(facts) == ones || spare_threshold(facts) == ones)
}

pub(super) fn is_more_than_commands(facts: &Facts, value: u64) -> bool {
    let commands = nvme(facts).and_then(|nvme| nvme.host_commands);
    commands.is_some_and(|commands| commands > 0 && value > commands)
}
