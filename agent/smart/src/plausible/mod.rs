//! Decides which of a drive's numbers can be true. Each number that rules read is declared once, in `fields`: its unit, its range, and what
//! contradicts it, for all protocols. A value that its declaration excludes is dropped: no rule, trend or metric reads it, and it is shown
//! with the reason. Pure.

mod ata;
mod cause;
mod declare;
mod fields;
mod nvme;
#[cfg(test)]
mod tests;

use super::facts::{Attribute, Detail, Facts, SelfTest, SelfTestResult};
#[cfg(test)]
use declare::Declared;
use drivebay_model::smart_names::label;
use fields::FIELDS;

pub(crate) use ata::{STATISTICS, current_failure};
pub(crate) use cause::{Cause, cause};
pub(crate) use declare::Field;
pub(crate) use nvme::is_filled_in;

/// Hours by which a log may be ahead of the drive's own count, which some drives update rarely.
pub(crate) const AHEAD: u64 = 100;
/// Number of hours that the logs of ATA and SCSI can count, in 16 bits.
pub(crate) const WRAP: u64 = 1 << 16;

/// A value that cannot be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Name of the field, as in findings.
    pub field: String,
    /// Value that the drive reported.
    pub value: u64,
    /// Reason why it cannot be true.
    pub reason: String,
}

/// Returns the value of a field; None if the drive does not report it, or reports one that cannot be true.
pub(crate) fn number(facts: &Facts, field: Field) -> Option<u64> {
    let declared = FIELDS.iter().find(|declared| declared.field == field)?;
    declared.value(facts)
}

/// Returns all values that were dropped, in the order of the declarations.
pub(crate) fn dropped(facts: &Facts) -> Vec<Dropped> {
    let mut all: Vec<Dropped> = FIELDS
        .iter()
        .filter_map(|declared| declared.dropped(facts))
        .collect();
    if let Detail::Ata(ata) = &facts.detail {
        all.extend(ata.attributes.iter().filter_map(ata::dropped_threshold));
    }
    let tests = facts.self_tests().iter();
    let failed = tests.filter(|test| matches!(test.result, SelfTestResult::Failed(_)));
    let failed = failed.filter_map(|test| {
        Some(Dropped {
            field: "self-test".to_owned(),
            value: test.hours.unwrap_or(0),
            reason: objection_to_test(facts, test)?.to_owned(),
        })
    });
    // A log of garbage has many of them: one is enough.
    all.extend(failed.take(1));
    all
}

/// Returns the number of values that were dropped, and a text with their names by reason. The text has no values: they change, and the
/// message must not.
pub(crate) fn summary(facts: &Facts) -> Option<(usize, String)> {
    let all = dropped(facts);
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for Dropped { field, reason, .. } in &all {
        match by_reason.iter_mut().find(|(listed, _)| listed == reason) {
            Some((_, fields)) => fields.push(field),
            None => by_reason.push((reason, vec![field])),
        }
    }
    let texts = by_reason.iter();
    let texts = texts.map(|(reason, fields)| {
        let labels: Vec<&str> = fields.iter().map(|field| label(field)).collect();
        format!("{} ({reason})", labels.join(", "))
    });
    let text = texts.collect::<Vec<String>>().join("; ");
    (!all.is_empty()).then_some((all.len(), text))
}

/// True if any data is left that could be evidence of a failure: a counter of failures, or a vendor's threshold. A threshold is not enough
/// if counters were dropped: the drive would be GOOD by omission.
pub(crate) fn has_health_data(facts: &Facts) -> bool {
    let failures = || FIELDS.iter().filter(|declared| declared.is_failure);
    if facts.status() == Some(false) || failures().any(|field| field.value(facts).is_some()) {
        return true;
    }
    match &facts.detail {
        Detail::Ata(ata) => {
            failures().all(|field| field.dropped(facts).is_none())
                && ata.attributes.iter().any(Attribute::has_threshold)
        }
        Detail::Mmc(mmc) => mmc.pre_eol.is_some() || mmc.life_time.is_some(),
        Detail::Scsi(_) | Detail::Nvme(_) | Detail::Unknown => false,
    }
}

/// True if the drive's status derives from a value that cannot be true: smartctl derives that of an NVMe drive from its critical warning.
pub(crate) fn status_is_void(facts: &Facts) -> bool {
    let warning = FIELDS
        .iter()
        .find(|declared| declared.field == Field::CriticalWarning);
    warning.is_some_and(|warning| warning.dropped(facts).is_some())
}

/// Returns the entries of the self-test log that can be true, the newest first.
pub(crate) fn self_tests(facts: &Facts) -> Vec<&SelfTest> {
    let tests = facts.self_tests().iter();
    tests
        .filter(|test| objection_to_test(facts, test).is_none())
        .collect()
}

/// Returns the reason why an entry of the self-test log is invalid.
fn objection_to_test(facts: &Facts, test: &SelfTest) -> Option<&'static str> {
    if matches!(facts.detail, Detail::Ata(_))
        && let Some(objection) = ata::objection_to_type(facts.self_tests(), test)
    {
        return Some(objection);
    }
    let power_on = number(facts, Field::PowerOnHours)?;
    let wraps = matches!(facts.detail, Detail::Ata(_) | Detail::Scsi(_));
    let latest = match wraps && power_on.saturating_add(AHEAD) >= WRAP {
        true => WRAP,
        false => power_on.saturating_add(AHEAD),
    };
    (test.hours > Some(latest))
        .then_some("it is of an hour that the drive has not reached: no such test was run")
}

/// Returns the declarations for documents: name, unit, range, contradictions.
#[cfg(test)]
fn rows() -> Vec<[String; 4]> {
    FIELDS.iter().map(Declared::row).collect()
}
