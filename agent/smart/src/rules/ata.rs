//! What the rules read of ATA drives.
//!
//! Attributes 1, 7 and 195 are vendor-packed and ignored, as is 196; 188 and 199 are conditions. Bit 6
//! of the exit status (error log) never counts.

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

/// A count of sectors of a rotating drive in physical ones; the level stays as the drive counts.
fn sectors(input: &Input<'_>, field: Field) -> Option<Hit> {
    let raw = number(input.facts, field)?;
    Some(Hit {
        level: Some(raw),
        ..Hit::value(raw.div_ceil(per_physical(input.facts)))
    })
}

/// Logical sectors to a physical one.
fn ratio(facts: &Facts) -> u64 {
    match facts.sector_bytes {
        (Some(logical), Some(physical)) => physical.checked_div(logical).unwrap_or(1).max(1),
        _ => 1,
    }
}

/// How many of its own counts are a physical sector. Seagate's drives count logical sectors in 5, 197 and 198, others
/// physical ones. The device statistics, which count logical ones, decide.
fn per_physical(facts: &Facts) -> u64 {
    let ratio = ratio(facts);
    let known = |field| number(facts, field).filter(|count| *count > 0);
    let replaced = known(Field::Reallocated).zip(known(Field::StatisticReallocated));
    match replaced {
        _ if facts.rotational == Some(false) => 1,
        Some((counted, logical)) if counted == logical => ratio,
        Some((counted, logical)) if counted.saturating_mul(ratio) == logical => 1,
        _ if facts.counts_physical || counts_physical(facts) => 1,
        _ => ratio,
    }
}

/// Whether it is proven that the drive counts physical sectors: one count is no multiple of the logical sectors in one.
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

/// Number of Reallocated Logical Sectors, in physical sectors, where it is more than attribute 5 shows.
pub(super) fn reallocated_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let sectors = number(input.facts, Field::StatisticReallocated)? / ratio(input.facts);
    let known = reallocated(input).map_or(0, |hit| hit.value);
    (sectors > known).then(|| Hit::value(sectors))
}

/// Number of Reported Uncorrectable Errors, where it is more than attribute 187 shows.
pub(super) fn uncorrectable_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let errors = number(input.facts, Field::StatisticUncorrectable)?;
    let known = number(input.facts, Field::ReportedUncorrect).unwrap_or(0);
    (errors > known).then(|| Hit::value(errors))
}

/// Data in the error log that could not be read, as long as it is not outdated.
pub(super) fn uncorrectable_by_log(input: &Input<'_>) -> Option<Hit> {
    error_age::counting(input, ata(input)?.logged_uncorrectable.as_ref()?)
}

/// Below which helium drives lose it: 22 on HGST's and WD's, 23 and 24 on Toshiba's; Seagate's 200 where the database
/// names it so. The vendor's threshold keeps apart what other drives have there.
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

/// The attributes that are at or under their thresholds now, each with the reason.
fn failing<'a>(input: &Input<'a>) -> impl Iterator<Item = (&'a Attribute, Cause)> {
    let facts = input.facts;
    let attributes = ata(input).into_iter().flat_map(|ata| &ata.attributes);
    let failing = attributes.filter(|attribute| current_failure(attribute) == Failed::Now);
    failing.map(move |attribute| (attribute, cause(facts, attribute)))
}

/// Not where each attribute under its threshold is about wear or the backup power: these have rules of their own.
pub(super) fn failed_status(input: &Input<'_>) -> Vec<Hit> {
    let mut causes = failing(input).map(|(_, cause)| cause).peekable();
    let is_explained = causes.peek().is_some() && causes.all(|cause| cause != Cause::Failure);
    Hit::yes(input.facts.status() == Some(false) && !is_explained)
}

pub(super) fn endurance_used(input: &Input<'_>) -> Vec<Hit> {
    let is_worn = failing(input).any(|(_, cause)| cause == Cause::Wear);
    let used = wear::wear(input.facts).map_or(100, |wear| wear.percent);
    // The wear is the condition's: a level that stays, so that an acknowledgement does.
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

/// A finding of now shows the value, one of the past the worst.
fn below(attribute: &Attribute) -> Hit {
    let lowest = attribute.worst.or(attribute.value).unwrap_or(0);
    let shown = match attribute.failed {
        Failed::Now => attribute.value.unwrap_or(lowest),
        Failed::Past | Failed::Never => lowest,
    };
    Hit {
        subject: Some(format!("attribute-{}", attribute.id)),
        // The worst value only falls: it is worse the lower it is.
        level: Some(u64::from(u8::MAX).saturating_sub(lowest)),
        threshold: attribute.thresh,
        what: format!("{} ({})", attribute.id, attribute.name),
        ..Hit::value(shown)
    }
}
