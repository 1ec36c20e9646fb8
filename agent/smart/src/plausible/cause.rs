//! Cause of an attribute under its threshold: wear, the backup power, or the drive itself. By smartctl's name for it.

use crate::{
    facts::{Attribute, Facts},
    rules::wear,
};

/// Cause of an attribute under its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The rated endurance is used up.
    Wear,
    /// The backup power, which keeps the drive writing after a power loss, does not work.
    Backup,
    /// The drive itself fails.
    Failure,
}

/// Words in the names of attributes for wear.
const WEAR: [&str; 8] = [
    "wear",
    "erase_c",
    "lifetime",
    "life_left",
    "life_remain",
    "life_used",
    "remaining_life",
    "drivelife",
];
/// Numbers of attributes for wear on a solid state drive for which smartctl has no names.
const WEAR_NUMBERS: [u8; 5] = [173, 177, 202, 231, 233];
/// Words in the names of attributes about the backup power: 175 of Intel, Solidigm and Kingston, 201 and 202 of Samsung
/// (smartmontools' database).
const BACKUP: [&str; 4] = ["power_loss_cap", "supercap", "exception_mode", "capacitor"];
const BACKUP_NUMBERS: [u8; 2] = [201, 202];

/// Returns the cause of an attribute at or under its threshold.
pub(crate) fn cause(facts: &Facts, attribute: &Attribute) -> Cause {
    let name = attribute.name.to_lowercase().replace('-', "_");
    let named = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is_unnamed = name.starts_with("unknown") && facts.rotational == Some(false);
    if named(&BACKUP) {
        return Cause::Backup;
    }
    if is_unnamed
        && BACKUP_NUMBERS.contains(&attribute.id)
        && facts.model.to_uppercase().contains("SAMSUNG")
    {
        return Cause::Backup;
    }
    let is_percent = || {
        attribute
            .value
            .map(|value| value.saturating_add(attribute.raw))
            == Some(100)
    };
    let is_worn = || wear(facts).is_some_and(|wear| wear.percent >= 100);
    let is_wear = named(&WEAR)
        || is_unnamed && WEAR_NUMBERS.contains(&attribute.id) && (is_percent() || is_worn());
    match is_wear {
        true => Cause::Wear,
        false => Cause::Failure,
    }
}
