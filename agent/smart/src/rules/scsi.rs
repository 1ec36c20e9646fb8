//! Values of SCSI and SAS drives that the rules read. "Passed" alone proves little: real drives report it with hundreds of uncorrected
//! writes.

use super::{
    error_age,
    rule::{Hit, Input},
};
use crate::{
    facts::{Detail, Facts, Scsi},
    plausible::{Field, number},
};

/// Additional sense code: failure prediction threshold exceeded.
pub(super) const PREDICTION: u8 = 0x5d;
/// Qualifier of PREDICTION for a test of the reporting (MRIE and TEST in the mode page): nothing failed.
const TEST_MODE: u8 = 0xff;
/// Qualifier of PREDICTION for a drive that has used up its rated endurance, and has no other fault (SPC-5).
pub(super) const ENDURANCE_LIMIT_MET: u8 = 0x73;
/// Additional sense code: warning.
const WARNING: u8 = 0x0b;
/// Qualifiers of WARNING for heat: specified temperature exceeded, high critical and high operating limit.
const HEAT: [u8; 3] = [0x01, 0x0a, 0x0c];
/// Qualifiers of WARNING that predict no failure: power loss expected, a statistics notification, cold, humidity, microcode.
const HARMLESS: [u8; 10] = [0x08, 0x09, 0x0b, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13];

fn scsi<'a>(input: &Input<'a>) -> Option<&'a Scsi> {
    match &input.facts.detail {
        Detail::Scsi(scsi) => Some(scsi),
        _ => None,
    }
}

/// Meaning of the additional sense code for the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sense {
    Fails,
    EnduranceUsed,
    Warns,
    Hot,
    Harmless,
}

fn sense(facts: &Facts) -> Option<(Sense, u8)> {
    let Detail::Scsi(scsi) = &facts.detail else {
        return None;
    };
    let (code, qualifier) = scsi.sense?;
    let failed = facts.status() == Some(false);
    let sense = match (code, qualifier) {
        (PREDICTION, TEST_MODE) => Sense::Harmless,
        (PREDICTION, ENDURANCE_LIMIT_MET) if failed => Sense::EnduranceUsed,
        (PREDICTION, _) if failed => Sense::Fails,
        (WARNING, heat) if HEAT.contains(&heat) => Sense::Hot,
        (WARNING, harmless) if HARMLESS.contains(&harmless) => Sense::Harmless,
        (WARNING, _) => Sense::Warns,
        _ => return None,
    };
    Some((sense, qualifier))
}

/// True if the drive warns that it is too hot.
pub(super) fn is_hot(facts: &Facts) -> bool {
    matches!(sense(facts), Some((Sense::Hot, _)))
}

/// True if the reason of a failed status predicts no failure.
pub(super) fn explains(facts: &Facts) -> bool {
    matches!(sense(facts), Some((Sense::Hot | Sense::Harmless, _)))
}

fn sensed(input: &Input<'_>, wanted: Sense) -> Vec<Hit> {
    let matching = sense(input.facts).filter(|(sense, _)| *sense == wanted);
    matching
        .map(|(_, qualifier)| Hit::value(u64::from(qualifier)))
        .into_iter()
        .collect()
}

pub(super) fn prediction(input: &Input<'_>) -> Vec<Hit> {
    sensed(input, Sense::Fails)
}

/// The wear is reported as a condition: a constant level, so that an acknowledgement stays.
pub(super) fn endurance_used(input: &Input<'_>) -> Vec<Hit> {
    let mut hits = sensed(input, Sense::EnduranceUsed);
    for hit in &mut hits {
        hit.level = Some(1);
    }
    hits
}

pub(super) fn warning(input: &Input<'_>) -> Vec<Hit> {
    sensed(input, Sense::Warns)
}

/// Returns the sum of the uncorrected errors of reading, writing and verifying; None without any of these counters.
pub fn uncorrected_errors(facts: &Facts) -> Option<u64> {
    [Field::ScsiRead, Field::ScsiWrite, Field::ScsiVerify]
        .into_iter()
        .filter_map(|field| number(facts, field))
        .reduce(u64::saturating_add)
}

pub(super) fn uncorrected(input: &Input<'_>) -> Option<Hit> {
    uncorrected_errors(input.facts).map(Hit::value)
}

pub(super) fn grown_defects(input: &Input<'_>) -> Option<Hit> {
    number(input.facts, Field::GrownDefects).map(Hit::value)
}

pub(super) fn pending_defects(input: &Input<'_>) -> Option<Hit> {
    number(input.facts, Field::ScsiPendingDefects).map(Hit::value)
}

/// Matches if a fatal error halted the background scan (SBC-4, table of the background scan status).
pub(super) fn scan_halted(input: &Input<'_>) -> Vec<Hit> {
    scan_status(input, 3)
}

/// Matches if a vendor-specific pattern of errors halted the background scan.
pub(super) fn scan_halted_by_errors(input: &Input<'_>) -> Vec<Hit> {
    scan_status(input, 4)
}

fn scan_status(input: &Input<'_>, wanted: u64) -> Vec<Hit> {
    let status = scsi(input).and_then(|scsi| scsi.background_status);
    let matching = status.filter(|status| *status == wanted);
    matching.map(Hit::value).into_iter().collect()
}

pub(super) fn scan_errors(input: &Input<'_>) -> Option<Hit> {
    error_age::counting(input, scsi(input)?.background_errors.as_ref()?)
}
