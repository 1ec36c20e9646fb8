//! Values of NVMe drives and eMMC that the rules read. The numbers of error log entries and of unsafe shutdowns do not count.

use super::rule::{Hit, Input};
use crate::{
    facts::{CriticalWarning, Detail, Facts, Mmc},
    history::Counter,
    plausible::{Field, number},
};

/// Returns the critical warning of the controller, or of its endurance groups.
fn warning(facts: &Facts, field: Field) -> CriticalWarning {
    let bits = number(facts, field).and_then(|bits| u8::try_from(bits).ok());
    CriticalWarning(bits.unwrap_or(0))
}

/// True if the critical warning reports that the drive is too hot.
pub(super) fn is_hot(facts: &Facts) -> bool {
    warning(facts, Field::CriticalWarning).has(CriticalWarning::TEMPERATURE)
}

/// True if the critical warning explains why the status failed.
pub(super) fn explains(facts: &Facts) -> bool {
    warning(facts, Field::CriticalWarning).has(CriticalWarning::DEFINED)
}

fn warns(input: &Input<'_>, field: Field, bit: u8) -> Vec<Hit> {
    let warning = warning(input.facts, field);
    let hit = warning.has(bit).then(|| Hit::value(u64::from(warning.0)));
    hit.into_iter().collect()
}

fn drive_warns(input: &Input<'_>, bit: u8) -> Vec<Hit> {
    warns(input, Field::CriticalWarning, bit)
}

fn group_warns(input: &Input<'_>, bit: u8) -> Vec<Hit> {
    warns(input, Field::EnduranceGroups, bit)
}

pub(super) fn spare_low(input: &Input<'_>) -> Vec<Hit> {
    drive_warns(input, CriticalWarning::SPARE)
}

pub(super) fn read_only(input: &Input<'_>) -> Vec<Hit> {
    drive_warns(input, CriticalWarning::READ_ONLY)
}

pub(super) fn backup_failed(input: &Input<'_>) -> Vec<Hit> {
    drive_warns(input, CriticalWarning::BACKUP)
}

pub(super) fn pmr_unreliable(input: &Input<'_>) -> Vec<Hit> {
    drive_warns(input, CriticalWarning::PMR)
}

pub(super) fn group_spare_low(input: &Input<'_>) -> Vec<Hit> {
    group_warns(input, CriticalWarning::SPARE)
}

pub(super) fn group_read_only(input: &Input<'_>) -> Vec<Hit> {
    group_warns(input, CriticalWarning::READ_ONLY)
}

/// True if endurance is the only reason for the warning: some firmware (e.g. Samsung's) sets the reliability bit when the rated endurance
/// is used up and nothing else is wrong. Heat is no other fault.
fn warns_of_endurance_only(input: &Input<'_>) -> bool {
    const OTHERS: u8 =
        CriticalWarning::DEFINED & !(CriticalWarning::RELIABILITY | CriticalWarning::TEMPERATURE);
    let value = |field| number(input.facts, field);
    let spare = value(Field::Spare).filter(|spare| *spare > 0);
    let is_left = spare.is_some() && spare >= value(Field::SpareThreshold);
    let grows = input
        .trends
        .get(Counter::MediaErrors)
        .is_some_and(|trend| trend.week.is_some_and(|grown| grown > 0) || trend.polls > 0);
    let warns = |field| warning(input.facts, field).has(OTHERS);
    value(Field::PercentageUsed) >= Some(100)
        && is_left
        && !grows
        && !warns(Field::CriticalWarning)
        && !warns(Field::EnduranceGroups)
}

fn degraded(input: &Input<'_>, field: Field) -> Vec<Hit> {
    match warns_of_endurance_only(input) {
        true => Vec::new(),
        false => warns(input, field, CriticalWarning::RELIABILITY),
    }
}

pub(super) fn reliability_degraded(input: &Input<'_>) -> Vec<Hit> {
    degraded(input, Field::CriticalWarning)
}

pub(super) fn group_degraded(input: &Input<'_>) -> Vec<Hit> {
    degraded(input, Field::EnduranceGroups)
}

/// The wear is reported as a condition: a constant level, so that an acknowledgement stays.
pub(super) fn endurance_used(input: &Input<'_>) -> Vec<Hit> {
    let fields = [Field::CriticalWarning, Field::EnduranceGroups];
    let is_set = |field| warning(input.facts, field).has(CriticalWarning::RELIABILITY);
    if !warns_of_endurance_only(input) || !fields.into_iter().any(is_set) {
        return Vec::new();
    }
    let used = number(input.facts, Field::PercentageUsed);
    vec![Hit {
        level: Some(1),
        ..Hit::value(used.unwrap_or(100))
    }]
}

/// Returns a hit whose level increases as the spare falls.
fn spare(value: u64, threshold: Option<u64>) -> Hit {
    Hit {
        level: Some(100_u64.saturating_sub(value)),
        threshold,
        ..Hit::value(value)
    }
}

pub(super) fn spare_exhausted(input: &Input<'_>) -> Vec<Hit> {
    let Some(left) = number(input.facts, Field::Spare) else {
        return Vec::new();
    };
    let threshold = number(input.facts, Field::SpareThreshold).unwrap_or(0);
    // Neither value is reported: an emulated drive has no spare blocks, and a real one that has used them up warns.
    if left == 0 && threshold == 0 {
        return Vec::new();
    }
    let limit = threshold / input.limits.spare_divisor.max(1);
    if left > limit {
        return Vec::new();
    }
    vec![spare(left, Some(limit))]
}

pub(super) fn spare_below_threshold(input: &Input<'_>) -> Vec<Hit> {
    let left = number(input.facts, Field::Spare);
    let threshold = number(input.facts, Field::SpareThreshold);
    let below = left
        .zip(threshold)
        .filter(|(left, threshold)| left < threshold);
    below
        .map(|(left, threshold)| spare(left, Some(threshold)))
        .into_iter()
        .collect()
}

/// Returns the spare if it fell at least twice as fast as the endurance, and so not by wear. None for a drive that reports neither spare
/// nor threshold.
pub(super) fn spare_without_wear(input: &Input<'_>) -> Option<Hit> {
    let left = number(input.facts, Field::Spare)?;
    let used = number(input.facts, Field::PercentageUsed)?;
    let is_reported = left > 0 || number(input.facts, Field::SpareThreshold)? > 0;
    let by_wear = used.saturating_mul(2) > 100_u64.saturating_sub(left);
    (is_reported && !by_wear).then(|| spare(left, None))
}

pub(super) fn media_errors(input: &Input<'_>) -> Option<Hit> {
    number(input.facts, Field::MediaErrors).map(Hit::value)
}

fn mmc<'a>(input: &Input<'a>) -> Option<&'a Mmc> {
    match &input.facts.detail {
        Detail::Mmc(mmc) => Some(mmc),
        _ => None,
    }
}

fn pre_eol(input: &Input<'_>, wanted: u8) -> Vec<Hit> {
    let state = mmc(input).and_then(|mmc| mmc.pre_eol);
    let state = state.filter(|state| *state == wanted).map(u64::from);
    let hit = |state| Hit {
        threshold: Some(state),
        ..Hit::value(state)
    };
    state.map(hit).into_iter().collect()
}

pub(super) fn mmc_spare_low(input: &Input<'_>) -> Vec<Hit> {
    pre_eol(input, 2)
}

pub(super) fn mmc_spare_exhausted(input: &Input<'_>) -> Vec<Hit> {
    pre_eol(input, 3)
}
