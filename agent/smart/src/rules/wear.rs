//! Wear of a drive, by the best source that it has.

use serde::{Deserialize, Serialize};

use super::scsi::{ENDURANCE_LIMIT_MET, PREDICTION};
use crate::{
    facts::{Ata, Attribute, Detail, Facts},
    plausible::{Field, number},
};

/// Place of the endurance used in the device statistics (ACS-4, 9.5.10): page 7, first number.
pub const ENDURANCE: (u64, u64) = (7, 8);
/// Value of drives that do not measure it; the standard has no such value, and 254 is the highest that was observed.
const UNKNOWN: u64 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wear {
    /// Rated endurance used, percent; may pass 100.
    pub percent: u64,
    pub source: WearSource,
}

/// Source of the wear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WearSource {
    /// smartctl's own summary (7.5 and later); of an ATA drive, its guess by attribute.
    Smartctl,
    /// Percentage used in the NVMe SMART log.
    Nvme,
    /// Percentage used endurance indicator of SCSI; without it, 100 if the drive reports that its endurance limit is met.
    Scsi,
    /// eMMC's life time estimate, in tenths.
    Mmc,
    /// ATA device statistics, page 7.
    Statistics,
    /// An ATA attribute, by its name.
    Attribute,
}

/// Returns the wear by the best source that the drive has.
pub fn wear(facts: &Facts) -> Option<Wear> {
    let from = |source| move |percent| Wear { percent, source };
    let summary = facts.endurance_used.map(from(WearSource::Smartctl));
    match &facts.detail {
        Detail::Ata(ata) => ata
            .statistic(ENDURANCE.0, ENDURANCE.1)
            .filter(|percent| *percent < UNKNOWN)
            .map(from(WearSource::Statistics))
            .or_else(|| by_name(ata).map(from(WearSource::Attribute)))
            // smartctl derives it from the same attributes: if these are not filled in, it is no better.
            .or_else(|| summary.filter(|_| !ata.attributes.iter().any(is_of_wear))),
        // smartctl's summary is the same number.
        Detail::Nvme(nvme) if nvme.percentage_used.is_some() => {
            number(facts, Field::PercentageUsed).map(from(WearSource::Nvme))
        }
        Detail::Nvme(_) => summary,
        Detail::Scsi(scsi) => {
            let met = scsi.sense == Some((PREDICTION, ENDURANCE_LIMIT_MET));
            let used = scsi.endurance_used.or(met.then_some(100));
            summary.or(used.map(from(WearSource::Scsi)))
        }
        Detail::Mmc(mmc) => mmc.used_percent().map(from(WearSource::Mmc)),
        Detail::Unknown => summary,
    }
}

/// Meaning of an attribute for the life of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeMeaning {
    /// Percentage left: the lower of value and raw value, with the exceptions of `left`.
    Left,
    /// Percentage used: the raw value, which may exceed 100, with the exceptions of `used`.
    Used,
    /// The normalised value is the percentage left, except 0: the scale begins at 1, and 0 is not filled in.
    LeftByValue,
    /// The percentage used in hundredths, twice in the raw value.
    UsedInHundredths,
}

/// Names of attributes by their meaning, the most reliable one first: beginnings of names in smartctl's database, in lower case. By name,
/// because the numbers 169, 177, 202, 231 and 233 mean different things on different drives.
const LIFE: [(LifeMeaning, &[&str]); 4] = [
    (
        LifeMeaning::Left,
        &[
            "ssd_life_left",
            "lifetime_left",
            "lifetime_remain",
            "life_remaining",
            "remaining_life",
            "ssd_remaining_life",
            "percent_life_remain",
            "percent_lifetime_remain",
            "perc_rated_life_remain",
            "pct_life_remain",
            "drive_life_remain",
            "drivelife_remain",
        ],
    ),
    (
        LifeMeaning::Used,
        &[
            "percent_life_used",
            "percent_lifetime_used",
            "perc_rated_life_used",
            "pct_life_used",
            "drive_life_used",
            "drivelife_used",
        ],
    ),
    (LifeMeaning::UsedInHundredths, &["perc_write/erase_count"]),
    (
        LifeMeaning::LeftByValue,
        &["media_wearout_indicator", "wear_leveling_count"],
    ),
];
/// Western Digital and SanDisk have a media wearout indicator under this number that counts up.
const COUNTS_UP: u8 = 230;

/// Highest number that SandForce's flags can have.
const FLAGS: u64 = 3;

/// Returns the meaning of an attribute for the drive's life; None if it has none.
fn life_meaning(attribute: &Attribute) -> Option<LifeMeaning> {
    let name = attribute.name.to_lowercase().replace('-', "_");
    let (meaning, _) = LIFE
        .iter()
        .find(|(_, names)| names.iter().any(|prefix| name.starts_with(prefix)))?;
    match meaning {
        LifeMeaning::LeftByValue if attribute.id == COUNTS_UP => {
            Some(LifeMeaning::UsedInHundredths)
        }
        other => Some(*other),
    }
}

fn is_of_wear(attribute: &Attribute) -> bool {
    life_meaning(attribute).is_some()
}

fn by_name(ata: &Ata) -> Option<u64> {
    let in_order = [
        LifeMeaning::Left,
        LifeMeaning::Used,
        LifeMeaning::UsedInHundredths,
        LifeMeaning::LeftByValue,
    ];
    in_order.into_iter().find_map(|wanted| {
        let attributes = ata.attributes.iter();
        let mut of_kind = attributes.filter(|attribute| life_meaning(attribute) == Some(wanted));
        of_kind.find_map(|attribute| match wanted {
            LifeMeaning::Left => left(attribute, ata).map(|left| 100 - left),
            LifeMeaning::Used => used(attribute),
            LifeMeaning::UsedInHundredths => in_hundredths(attribute),
            LifeMeaning::LeftByValue => percent(attribute)
                .filter(|left| *left > 0)
                .map(|left| 100 - left),
        })
    })
}

/// Returns the normalised value if it is a percentage: above 100 it is on another scale.
fn percent(attribute: &Attribute) -> Option<u64> {
    attribute.value.filter(|value| *value <= 100)
}

/// Returns the percentage left: the lower of value and raw value, because on Phison's and Silicon Motion's drives the value stays at 100.
/// The raw value does not count if the two add up to 100 (Micron, Marvell: it is the percentage used), nor if it is very low for a prefail
/// attribute (SandForce: flags).
fn left(attribute: &Attribute, ata: &Ata) -> Option<u64> {
    let value = percent(attribute);
    let raw = attribute.raw;
    let is_flags = attribute.prefail && raw <= FLAGS;
    let counts = (1..=100).contains(&raw) && !attribute.packed && !is_flags;
    match value {
        Some(value) if counts && value + raw == 100 => Some(value),
        Some(value) if counts => Some(value.min(raw)),
        None => counts.then_some(raw),
        // 0 % and not filled in look the same: the erase count of the blocks decides.
        Some(100) if raw == 0 && is_erased_as_rated(ata) => Some(0),
        value => value,
    }
}

/// True if the average block was erased as often as the flash memory is specified for (Silicon Motion).
fn is_erased_as_rated(ata: &Ata) -> bool {
    let number = |name: &str| {
        let mut attributes = ata.attributes.iter();
        let attribute = attributes.find(|attribute| attribute.name.eq_ignore_ascii_case(name));
        attribute
            .map(|attribute| attribute.raw)
            .filter(|raw| *raw > 0)
    };
    let rated = number("Max_Erase_Count_of_Spec");
    let erased = number("Average_Erase_Count");
    rated.is_some_and(|rated| erased >= Some(rated))
}

/// Returns the percentage used: the raw value, which may exceed 100.
fn used(attribute: &Attribute) -> Option<u64> {
    let value = percent(attribute);
    let filled_in = attribute.raw > 0 || value.is_none_or(|value| value == 0 || value == 100);
    if !attribute.packed && attribute.raw < UNKNOWN && filled_in {
        return Some(attribute.raw);
    }
    value.map(|left| 100 - left)
}

/// Returns the percentage used from, e.g., 0x2f24_0014_2f24: 47.36 %, in the low word and again in the high one, bytes before and after the
/// point. The value rounds it up, or stays at 100.
fn in_hundredths(attribute: &Attribute) -> Option<u64> {
    let (low, high) = (attribute.raw16(), attribute.raw >> 32);
    let value = percent(attribute).filter(|value| (1..100).contains(value));
    let is_wearout = life_meaning(attribute) == Some(LifeMeaning::UsedInHundredths)
        && attribute.name.to_lowercase().starts_with("media_wearout");
    if attribute.raw == 0 {
        return value.filter(|_| is_wearout);
    }
    // Other firmware under SanDisk's name has another number there.
    if !is_wearout && low != high {
        return None;
    }
    let whole = low >> 8;
    let rounds_it = |value: &u64| value.abs_diff(whole) <= 1;
    Some(
        value
            .filter(rounds_it)
            .map_or(whole, |value| value.max(whole)),
    )
}
