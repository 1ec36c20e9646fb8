//! What the rules read of NVMe drives, and of eMMC. The number of error log entries and of unsafe shutdowns does not
//! count.

use super::rule::{Hit, Input};
use crate::smart::facts::{CriticalWarning, Detail, Facts, Mmc, Nvme};

fn nvme<'a>(input: &Input<'a>) -> Option<&'a Nvme> {
    match &input.facts.detail {
        Detail::Nvme(nvme) => Some(nvme),
        _ => None,
    }
}

/// Whether the critical warning says why the status failed.
pub(super) fn explains(facts: &Facts) -> bool {
    matches!(&facts.detail, Detail::Nvme(nvme)
        if nvme.critical_warning.is_some_and(|warning| warning.has(CriticalWarning::KNOWN)))
}

fn warns(input: &Input<'_>, bit: u8) -> Vec<Hit> {
    let warning = nvme(input).and_then(|nvme| nvme.critical_warning);
    let set = warning.filter(|warning| warning.has(bit));
    set.map(|warning| Hit::value(u64::from(warning.0)))
        .into_iter()
        .collect()
}

pub(super) fn spare_low(input: &Input<'_>) -> Vec<Hit> {
    warns(input, CriticalWarning::SPARE)
}

pub(super) fn read_only(input: &Input<'_>) -> Vec<Hit> {
    warns(input, CriticalWarning::READ_ONLY)
}

pub(super) fn backup_failed(input: &Input<'_>) -> Vec<Hit> {
    warns(input, CriticalWarning::BACKUP)
}

pub(super) fn pmr_unreliable(input: &Input<'_>) -> Vec<Hit> {
    warns(input, CriticalWarning::PMR)
}

/// Some firmware (Samsung's among it) sets the bit when the rated endurance is used up, and nothing else is wrong.
fn warns_of_endurance_only(nvme: &Nvme) -> bool {
    let spare = nvme.available_spare > nvme.spare_threshold && nvme.available_spare > Some(0);
    nvme.percentage_used >= Some(100) && spare && nvme.media_errors == Some(0)
}

pub(super) fn reliability_degraded(input: &Input<'_>) -> Vec<Hit> {
    match nvme(input) {
        Some(nvme) if !warns_of_endurance_only(nvme) => warns(input, CriticalWarning::RELIABILITY),
        _ => Vec::new(),
    }
}

/// The wear is the condition's: a level that stays, so that an acknowledgement does.
pub(super) fn endurance_used(input: &Input<'_>) -> Vec<Hit> {
    match nvme(input) {
        Some(nvme) if warns_of_endurance_only(nvme) => {
            let mut hits = warns(input, CriticalWarning::RELIABILITY);
            for hit in &mut hits {
                hit.value = nvme.percentage_used.unwrap_or(100);
                hit.level = Some(1);
            }
            hits
        }
        _ => Vec::new(),
    }
}

pub(super) fn spare_exhausted(input: &Input<'_>) -> Vec<Hit> {
    let Some(nvme) = nvme(input) else {
        return Vec::new();
    };
    let Some(spare) = nvme.available_spare else {
        return Vec::new();
    };
    // Neither is reported: an emulated drive says nothing of its spare blocks, and one that has used them up warns.
    if spare == 0 && nvme.spare_threshold.unwrap_or(0) == 0 {
        return Vec::new();
    }
    let limit = nvme.spare_threshold.unwrap_or(0) / input.limits.spare_divisor.max(1);
    if spare > limit {
        return Vec::new();
    }
    vec![Hit {
        level: Some(100_u64.saturating_sub(spare)),
        threshold: Some(limit),
        ..Hit::value(spare)
    }]
}

pub(super) fn media_errors(input: &Input<'_>) -> Option<Hit> {
    nvme(input)?.media_errors.map(Hit::value)
}

fn mmc<'a>(input: &Input<'a>) -> Option<&'a Mmc> {
    match &input.facts.detail {
        Detail::Mmc(mmc) => Some(mmc),
        _ => None,
    }
}

fn pre_eol(input: &Input<'_>, wanted: u8) -> Vec<Hit> {
    let found = mmc(input).and_then(|mmc| mmc.pre_eol);
    let found = found.filter(|state| *state == wanted).map(u64::from);
    let hit = |state| Hit {
        threshold: Some(state),
        ..Hit::value(state)
    };
    found.map(hit).into_iter().collect()
}

pub(super) fn mmc_spare_low(input: &Input<'_>) -> Vec<Hit> {
    pre_eol(input, 2)
}

pub(super) fn mmc_spare_exhausted(input: &Input<'_>) -> Vec<Hit> {
    pre_eol(input, 3)
}
