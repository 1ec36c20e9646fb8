//! What the rules read of ATA drives.
//!
//! Attributes 1, 7 and 195 are vendor-packed and ignored, as is 196; 188 and 199 are conditions. Bit 6
//! of the exit status (error log) never counts.

use super::{
    Code,
    rule::{Hit, Input},
    statistics::{REALLOCATED, UNCORRECTABLE},
};
use crate::smart::{
    facts::{Ata, Attribute, Detail, Facts, Failed},
    history::Counter,
};

/// Attributes that hold temperatures: hot once is a condition, not a failure.
const TEMPERATURES: [u8; 2] = [190, 194];
/// Words in smartctl's name for an attribute that say that on this drive the number counts something
/// else than errors, as some solid state drives' do (198 as sectors read, 5 as life left, …).
const OTHER_MEANINGS: [&str; 13] = [
    "gib",
    "mib",
    "lba",
    "sectors_tot",
    "total_read",
    "total_write",
    "host_",
    "life",
    "temperature",
    "power",
    "wear",
    "spare",
    "not_in_use",
];
/// Of some numbers, a word that smartctl's name must have for the number to count what it is known for, and one that it
/// must not: Indilinx, JMicron, Phison and OCZ use them for other things, and `Current_Pending_ECC_Cnt` of Crucial and
/// ATP counts corrected cells and flips between 0 and 1 (smartmontools ticket 1227).
const NAMED: [(u8, &[&str], &str); 6] = [
    (10, &["spin"], "\0"),
    (187, &["uncorr", "report"], "nand"),
    (188, &["timeout"], "\0"),
    (197, &["pending"], "ecc"),
    (198, &["uncorrect", "offl"], "\0"),
    (199, &["crc"], "\0"),
];
/// Models whose attribute 197 is that counter also where smartctl's database does not know it yet.
const PENDING_IS_ECC: &str = "MX500";
/// More sectors than a solid state drive has spare blocks for: the raw value is packed, and smartctl does not know how.
const PACKED_FROM: u64 = 1 << 16;

/// Attribute `id`, when it counts what the standard meaning of its number says.
pub(in crate::smart) fn counting<'a>(facts: &Facts, ata: &'a Ata, id: u8) -> Option<&'a Attribute> {
    let attribute = ata.attribute(id)?;
    let name = attribute.name.to_lowercase();
    if OTHER_MEANINGS.iter().any(|word| name.contains(word)) {
        return None;
    }
    let named = NAMED.iter().find(|(number, ..)| *number == id);
    if let Some((_, words, not)) = named
        && !name.is_empty()
        && (name.contains(not) || !words.iter().any(|word| name.contains(word)))
    {
        return None;
    }
    if matches!(id, 197 | 198) {
        let is_packed = facts.rotational == Some(false) && attribute.raw >= PACKED_FROM;
        let is_ecc = id == 197 && facts.model.contains(PENDING_IS_ECC);
        if attribute.packed || is_packed || is_ecc {
            return None;
        }
    }
    Some(attribute)
}

/// The count of an attribute.
fn count(input: &Input<'_>, id: u8) -> Option<Hit> {
    let Detail::Ata(ata) = &input.facts.detail else {
        return None;
    };
    let attribute = counting(input.facts, ata, id)?;
    Some(Hit {
        subject: Some(format!("ata-{id}")),
        ..Hit::value(Counter::number(attribute))
    })
}

pub(super) fn reallocated(input: &Input<'_>) -> Option<Hit> {
    count(input, 5)
}

pub(super) fn spin_retries(input: &Input<'_>) -> Option<Hit> {
    count(input, 10)
}

pub(super) fn reported_uncorrect(input: &Input<'_>) -> Option<Hit> {
    count(input, 187)
}

pub(super) fn pending(input: &Input<'_>) -> Option<Hit> {
    count(input, 197)
}

pub(super) fn offline_uncorrectable(input: &Input<'_>) -> Option<Hit> {
    count(input, 198)
}

pub(super) fn end_to_end(input: &Input<'_>) -> Option<Hit> {
    let name = ata(input)?.attribute(184)?.name.to_lowercase();
    let is_named_so = name.replace('_', "-").contains("end-to-end");
    count(input, 184).filter(|_| is_named_so)
}

fn ata<'a>(input: &Input<'a>) -> Option<&'a Ata> {
    match &input.facts.detail {
        Detail::Ata(ata) => Some(ata),
        _ => None,
    }
}

pub(super) fn pending_defects(input: &Input<'_>) -> Option<Hit> {
    ata(input)?.pending_defects.map(Hit::value)
}

/// Number of Reallocated Logical Sectors, in physical sectors, where it is more than attribute 5 shows.
pub(super) fn reallocated_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let logical = ata(input)?.statistic(REALLOCATED.0, REALLOCATED.1)?;
    let by_size = match input.facts.sector_bytes {
        (Some(logical), Some(physical)) => physical.checked_div(logical).unwrap_or(1).max(1),
        _ => 1,
    };
    let sectors = logical / by_size;
    let known = count(input, 5).map_or(0, |hit| hit.value);
    (sectors > known).then(|| Hit::value(sectors))
}

/// Number of Reported Uncorrectable Errors, where it is more than attribute 187 shows.
pub(super) fn uncorrectable_by_statistics(input: &Input<'_>) -> Option<Hit> {
    let errors = ata(input)?.statistic(UNCORRECTABLE.0, UNCORRECTABLE.1)?;
    let known = count(input, 187).map_or(0, |hit| hit.value);
    (errors > known).then(|| Hit::value(errors))
}

/// Uncorrectable reads in the error log, where no attribute counts them.
pub(super) fn uncorrectable_by_log(input: &Input<'_>) -> Option<Hit> {
    if count(input, 187).is_some() {
        return None;
    }
    let logged = ata(input)?.logged_uncorrectable?;
    Some(Hit {
        level: Some(logged.newest),
        ..Hit::value(logged.count)
    })
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

pub(super) fn failed_status(input: &Input<'_>) -> Vec<Hit> {
    Hit::yes(input.facts.status() == Some(false))
}

pub(super) fn fatal_self_test(input: &Input<'_>) -> Vec<Hit> {
    ata(input).map(super::self_tests::fatal).unwrap_or_default()
}

pub(super) fn prefail_now(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, Code::PrefailNow)
}

pub(super) fn prefail_past(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, Code::PrefailPast)
}

pub(super) fn old_age_now(input: &Input<'_>) -> Vec<Hit> {
    below_threshold(input, Code::OldAgeNow)
}

fn below_threshold(input: &Input<'_>, wanted: Code) -> Vec<Hit> {
    let Some(ata) = ata(input) else {
        return Vec::new();
    };
    let attributes = ata.attributes.iter().filter(|attribute| {
        let code = match (attribute.prefail, attribute.failed) {
            (true, Failed::Now) => Code::PrefailNow,
            (true, Failed::Past) => Code::PrefailPast,
            (false, Failed::Now) => Code::OldAgeNow,
            _ => return false,
        };
        code == wanted && !is_temperature(attribute)
    });
    let hits = attributes.map(|attribute| {
        // The worst value only falls: it is worse the lower it is.
        let worst = attribute.worst.or(attribute.value).unwrap_or(0);
        Hit {
            subject: Some(format!("attribute-{}", attribute.id)),
            level: Some(u64::from(u8::MAX).saturating_sub(worst)),
            threshold: attribute.thresh,
            what: format!("{} ({})", attribute.id, attribute.name),
            ..Hit::value(worst)
        }
    });
    hits.collect()
}

fn is_temperature(attribute: &Attribute) -> bool {
    let name = attribute.name.to_lowercase();
    TEMPERATURES.contains(&attribute.id) || name.contains("temperature")
}
