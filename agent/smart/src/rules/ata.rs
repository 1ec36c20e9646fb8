//! Values of ATA drives that the rules read.
//!
//! Attributes 1, 7 and 195 are packed by vendors and ignored, as is 196; 188 and 199 are conditions. Bit 6 of the exit status (error log)
//! never counts.

use super::{
    SmartCode, error_age,
    rule::{Hit, Input},
    wear,
};
use crate::{
    facts::{Ata, Attribute, Detail, Facts, Failed},
    plausible::{Cause, Field, cause, current_failure, number},
};

fn ata<'a>(input: &Input<'a>) -> Option<&'a Ata> {
    match &input.facts.detail {
        Detail::Ata(ata) => Some(ata),
        _ => None,
    }
}

fn count(input: &Input<'_>, field: Field) -> Option<Hit> {
    number(input.facts, field).map(Hit::value)
}

/// Returns a count in physical sectors, for a rotating drive. The level is the count as the drive reports it.
fn sectors(input: &Input<'_>, field: Field) -> Option<Hit> {
    let raw = number(input.facts, field)?;
    Some(Hit {
        level: Some(raw),
        ..Hit::value(raw.div_ceil(per_physical(input.facts)))
    })
}

/// Returns the number of logical sectors in a physical one.
fn ratio(facts: &Facts) -> u64 {
    match facts.sector_bytes {
        (Some(logical), Some(physical)) => physical.checked_div(logical).unwrap_or(1).max(1),
        _ => 1,
    }
}

/// Returns how many of the drive's own counts are one physical sector. Seagate's drives count logical sectors in 5, 197 and 198, others
/// physical ones. The device statistics, which count logical ones, decide.
fn per_physical(facts: &Facts) -> u64 {
    let ratio = ratio(facts);
    let nonzero = |field| number(facts, field).filter(|count| *count > 0);
    let replaced = nonzero(Field::Reallocated).zip(nonzero(Field::StatisticReallocated));
    match replaced {
        _ if facts.rotational == Some(false) => 1,
        Some((counted, logical)) if counted == logical => ratio,
        Some((counted, logical)) if counted.saturating_mul(ratio) == logical => 1,
        _ if facts.counts_physical || counts_physical(facts) => 1,
        _ => ratio,
    }
}

/// True if a count proves that the drive counts physical sectors: it is no multiple of the logical sectors in one.
pub fn counts_physical(facts: &Facts) -> bool {
    let ratio = ratio(facts);
    let counts = [
        Field::Reallocated,
        Field::PendingSectors,
        Field::OfflineUncorrectable,
    ];
    let mut counts = counts.into_iter().filter_map(|field| number(facts, field));
    counts.any(|count| !count.is_multiple_of(ratio))
}

pub(super) fn reallocated(input: &Input<'_>) -> Option<Hit> {
    sectors(input, Field::Reallocated)
}

pub(super) fn spin_retries(input: &Input<'_>) -> Option<Hit> {
    count(input, Field::SpinRetries)
}

pub(super) fn reported_uncorrect(input: &Input<'_>) -> Option<Hit> {
    count(input, Field::ReportedUncorrect)
}

pub(super) fn pending(input: &Input<'_>) -> Option<Hit> {
    sectors(input, Field::PendingSectors)
}

pub(super) fn offline_uncorrectable(input: &Input<'_>) -> Option<Hit> {
    sectors(input, Field::OfflineUncorrectable)
}

pub(super) fn end_to_end(input: &Input<'_>) -> Option<Hit> {
    count(input, Field::EndToEnd)
}

pub(super) fn pending_defects(input: &Input<'_>) -> Option<Hit> {
    count(input, Field::AtaPendingDefects)
}

/// Returns the Number of Reallocated Logical Sectors, in physical sectors, if it is more than attribute 5 has.
pub(super) fn reallocated_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let sectors = number(input.facts, Field::StatisticReallocated)? / ratio(input.facts);
    let counted = reallocated(input).map_or(0, |hit| hit.value);
    (sectors > counted).then(|| Hit::value(sectors))
}

/// Returns the Number of Reported Uncorrectable Errors, if it is more than attribute 187 has.
pub(super) fn uncorrectable_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let errors = number(input.facts, Field::StatisticUncorrectable)?;
    let counted = number(input.facts, Field::ReportedUncorrect).unwrap_or(0);
    (errors > counted).then(|| Hit::value(errors))
}

/// Returns the entries of the error log about unreadable data that are not outdated.
pub(super) fn uncorrectable_by_log(input: &Input<'_>) -> Option<Hit> {
    error_age::counting(input, ata(input)?.logged_uncorrectable.as_ref()?)
}

/// Attributes with the helium level, a word of their names, and their vendor's threshold: 22 on HGST's and WD's drives, 23 and 24 on
/// Toshiba's; Seagate's 200 if smartctl's database names it so. The threshold excludes other drives, which have something else there.
const HELIUM: [(u8, &str, u64); 4] = [
    (22, "helium", 25),
    (23, "helium", 75),
    (24, "helium", 75),
    (200, "pressure_limit", 1),
];

pub(super) fn helium(input: &Input<'_>) -> Option<Hit> {
    let ata = ata(input)?;
    let levels = HELIUM.iter().filter_map(|(id, word, threshold)| {
        let attribute = ata.attribute(*id)?;
        let name = attribute.name.to_lowercase();
        let unlisted = name.starts_with("unknown") && attribute.prefail && *id != 200;
        let is_helium = name.contains(word) || unlisted;
        let is_vendors = attribute.thresh == Some(*threshold);
        let value = attribute.value.filter(|value| (1..=100).contains(value))?;
        (is_helium && is_vendors).then_some((*id, value))
    });
    let (id, value) = levels.min_by_key(|(_, value)| *value)?;
    Some(Hit {
        subject: Some(format!("ata-{id}")),
        level: Some(100_u64.saturating_sub(value)),
        what: id.to_string(),
        ..Hit::value(value)
    })
}

/// Returns the attributes that are at or under their thresholds now, each with the cause.
fn failing<'a>(input: &Input<'a>) -> impl Iterator<Item = (&'a Attribute, Cause)> {
    let facts = input.facts;
    let attributes = ata(input).into_iter().flat_map(|ata| &ata.attributes);
    let failing = attributes.filter(|attribute| current_failure(attribute) == Failed::Now);
    failing.map(move |attribute| (attribute, cause(facts, attribute)))
}

/// Returns no hit if all attributes under their thresholds are about wear or the backup power, which have rules of their own.
pub(super) fn failed_status(input: &Input<'_>) -> Vec<Hit> {
    let mut causes = failing(input).map(|(_, cause)| cause).peekable();
    let is_explained = causes.peek().is_some() && causes.all(|cause| cause != Cause::Failure);
    Hit::yes(input.facts.status() == Some(false) && !is_explained)
}

pub(super) fn endurance_used(input: &Input<'_>) -> Vec<Hit> {
    let is_worn = failing(input).any(|(_, cause)| cause == Cause::Wear);
    let used = wear::wear(input.facts).map_or(100, |wear| wear.percent);
    // The wear is reported as a condition: a constant level, so that an acknowledgement stays.
    let hit = is_worn.then(|| Hit {
        level: Some(1),
        ..Hit::value(used)
    });
    hit.into_iter().collect()
}

pub(super) fn backup_failed(input: &Input<'_>) -> Vec<Hit> {
    let backup = failing(input).filter(|(_, cause)| *cause == Cause::Backup);
    backup.map(|(attribute, _)| below(attribute)).collect()
}

pub(super) fn fatal_self_test(input: &Input<'_>) -> Vec<Hit> {
    match input.facts.detail {
        Detail::Ata(_) => super::self_tests::fatal(input.facts),
        _ => Vec::new(),
    }
}

pub(super) fn prefail_now(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, SmartCode::PrefailNow)
}

pub(super) fn prefail_past(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, SmartCode::PrefailPast)
}

pub(super) fn old_age_now(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, SmartCode::OldAgeNow)
}

fn below_threshold(input: &Input<'_>, wanted: SmartCode) -> Vec<Hit> {
    let attributes = ata(input).into_iter().flat_map(|ata| &ata.attributes);
    let attributes = attributes.filter(|attribute| {
        let code = match (attribute.prefail, current_failure(attribute)) {
            (true, Failed::Now) => SmartCode::PrefailNow,
            (true, Failed::Past) => SmartCode::PrefailPast,
            (false, Failed::Now) => SmartCode::OldAgeNow,
            _ => return false,
        };
        code == wanted && cause(input.facts, attribute) == Cause::Failure
    });
    attributes.map(below).collect()
}

/// Returns the hit for an attribute: with its value if it fails now, with the worst value if it failed in the past.
fn below(attribute: &Attribute) -> Hit {
    let lowest = attribute.worst.or(attribute.value).unwrap_or(0);
    let shown = match attribute.failed {
        Failed::Now => attribute.value.unwrap_or(lowest),
        Failed::Past | Failed::Never => lowest,
    };
    Hit {
        subject: Some(format!("attribute-{}", attribute.id)),
        // The worst value only falls: a lower one is worse.
        level: Some(u64::from(u8::MAX).saturating_sub(lowest)),
        threshold: attribute.thresh,
        what: format!("{} ({})", attribute.id, attribute.name),
        ..Hit::value(shown)
    }
}
