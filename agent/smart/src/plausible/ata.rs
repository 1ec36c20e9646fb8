//! Values that an ATA drive's attributes, statistics and self-tests cannot have, and what an attribute counts.

use super::{Field, number};
use crate::facts::{
    Ata, Attribute, DEFINED_TESTS, Detail, Facts, Failed, INVALID_THRESHOLD, SelfTest,
};

/// Page and offset of the Number of Reallocated Logical Sectors, of Reported Uncorrectable Errors, of Interface CRC Errors (ACS-4, 9.5).
/// HGST, WD and Toshiba mostly lack attribute 187.
pub(super) const REALLOCATED: (u64, u64) = (3, 32);
pub(super) const UNCORRECTABLE: (u64, u64) = (4, 8);
pub(super) const INTERFACE_CRC: (u64, u64) = (6, 24);
/// Device statistics that rules read.
pub(crate) const STATISTICS: [(u64, u64); 3] = [REALLOCATED, UNCORRECTABLE, INTERFACE_CRC];

/// Words in smartctl's name for an attribute with which the number does not count errors on this drive, as on some solid state drives (198
/// for sectors read, 5 for life left, …).
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
/// For some numbers, words of which smartctl's name must have one for the number to count what it usually does, and a word that it must not
/// have: Indilinx, JMicron, Phison and OCZ use them for other things, and `Current_Pending_ECC_Cnt` of Crucial and ATP counts corrected
/// cells and flips between 0 and 1 (smartmontools ticket 1227).
const NAMED: [(u8, &[&str], &str); 6] = [
    (10, &["spin"], "\0"),
    (187, &["uncorr", "report"], "nand"),
    (188, &["timeout"], "\0"),
    (197, &["pending"], "ecc"),
    (198, &["uncorrect", "offl"], "\0"),
    (199, &["crc"], "\0"),
];
/// Models whose attribute 197 is that counter, even if smartctl's database does not have it yet.
const PENDING_IS_ECC: &str = "MX500";
/// Attributes of which smartctl prints the low 16 bits alone (5), or whose count Seagate packs with others (10, 188).
const WORDS: [u8; 3] = [5, 10, 188];
/// Raw values from this on consist of 16-bit words, with the count in the lowest.
const WORDS_FROM: u64 = 1 << 32;
/// Raw values with all bits set.
const ALL_ONES: [u64; 2] = [(1 << 48) - 1, u64::MAX];
/// Highest value of a counter of sectors or of a log, 16 bits.
pub(super) const SECTORS: u64 = u16::MAX as u64;
/// Initial normalised values of a count, by vendor. Rates of SandForce and Intel are between the first two.
const STARTS: [u64; 4] = [100, 200, 252, 253];
const RATES: std::ops::RangeInclusive<u64> = 101..=199;
/// Factor by which two counters of the same event cannot differ.
const FACTOR: u64 = 1000;
/// Number of entries with types that no standard and no vendor has, from which on a self-test log is invalid.
const UNDEFINED_TESTS: usize = 2;
/// Types that the standard leaves to vendors (ACS-4, A.14).
const VENDOR_TESTS: [std::ops::RangeInclusive<u64>; 2] = [0x40..=0x7e, 0x90..=0xff];
/// Attributes with temperatures: too hot in the past is a condition, not a failure.
const TEMPERATURES: [u8; 2] = [190, 194];

fn ata(facts: &Facts) -> Option<&Ata> {
    match &facts.detail {
        Detail::Ata(ata) => Some(ata),
        _ => None,
    }
}

/// Returns attribute `id` if it counts what its number usually stands for.
fn counting<'a>(facts: &Facts, ata: &'a Ata, id: u8) -> Option<&'a Attribute> {
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
    if id == 184 && !name.replace('_', "-").contains("end-to-end") {
        return None;
    }
    (id != 197 || !facts.model.contains(PENDING_IS_ECC)).then_some(attribute)
}

/// Returns the count in an attribute's raw value.
pub(super) fn count<const ID: u8>(facts: &Facts) -> Option<u64> {
    let attribute = counting(facts, ata(facts)?, ID)?;
    if ALL_ONES.contains(&attribute.raw) {
        return Some(attribute.raw);
    }
    let words = WORDS.contains(&ID) || attribute.raw >= WORDS_FROM && !is_solid_state(facts);
    match words || ID == 187 && attribute.raw >= WORDS_FROM {
        true => Some(attribute.raw16()),
        false => Some(attribute.raw),
    }
}

pub(super) fn reallocated_statistic(facts: &Facts) -> Option<u64> {
    ata(facts)?.statistic(REALLOCATED.0, REALLOCATED.1)
}

pub(super) fn uncorrectable_statistic(facts: &Facts) -> Option<u64> {
    ata(facts)?.statistic(UNCORRECTABLE.0, UNCORRECTABLE.1)
}

pub(super) fn interface_statistic(facts: &Facts) -> Option<u64> {
    ata(facts)?.statistic(INTERFACE_CRC.0, INTERFACE_CRC.1)
}

pub(super) fn pending_defects(facts: &Facts) -> Option<u64> {
    ata(facts)?.pending_defects
}

pub(super) fn rotation_rate(facts: &Facts) -> Option<u64> {
    facts.rotation_rate
}

fn is_solid_state(facts: &Facts) -> bool {
    facts.rotational == Some(false)
}

/// True if the drive claims to rotate, and `facts` has it as a solid state drive by its attributes.
pub(super) fn is_of_flash(facts: &Facts, rate: u64) -> bool {
    rate > 0 && is_solid_state(facts)
}

/// True if smartctl shows more than one number in the raw value, none of which is known to be the count.
pub(super) fn is_packed<const ID: u8>(facts: &Facts, _: u64) -> bool {
    let attribute = ata(facts).and_then(|ata| ata.attribute(ID));
    attribute.is_some_and(|attribute| attribute.packed)
}

/// True if the value is a rate. SandForce and Intel: the normalised value of a count falls from its start, usually 100, and one between 100
/// and 200 is that of a rate. A rotating drive whose counts begin at 200 has no threshold for it. The drive's flag counts as well.
pub(super) fn is_rate(facts: &Facts, _: u64) -> bool {
    let attribute = ata(facts).and_then(|ata| ata.attribute(187));
    attribute.is_some_and(|attribute| {
        let is_on_its_scale = attribute.value.is_some_and(|value| RATES.contains(&value))
            && (is_solid_state(facts) || attribute.has_threshold());
        is_on_its_scale || attribute.rate && attribute.raw > SECTORS
    })
}

/// True if nothing supports the value: there is no attribute, and no entry in a log that has every error that was reported. Some solid
/// state drives keep no log, so that an empty one does not contradict attribute 187.
pub(super) fn is_alone_without_log(facts: &Facts, value: u64) -> bool {
    let is_empty = ata(facts).and_then(|ata| ata.error_count) == Some(0);
    value > SECTORS && is_empty && number(facts, Field::ReportedUncorrect).is_none()
}

/// True if the value repeats the replaced blocks, as attribute 197 of Silicon Motion, Apacer and Micron does. On a rotating drive the
/// counts may be equal by chance.
pub(super) fn repeats_reallocated(facts: &Facts, value: u64) -> bool {
    is_solid_state(facts) && value > 0 && (is_raw(facts, 5, value) || is_raw(facts, 196, value))
}

/// True if attribute 198 does so, unless it is the drive's count of uncorrectable errors (160 on Silicon Motion's).
pub(super) fn repeats_reallocated_198(facts: &Facts, value: u64) -> bool {
    repeats_reallocated(facts, value) && !is_raw(facts, 160, value)
}

fn is_raw(facts: &Facts, id: u8, value: u64) -> bool {
    let attribute = ata(facts).and_then(|ata| ata.attribute(id));
    attribute.is_some_and(|attribute| attribute.raw16() == value || attribute.raw == value)
}

/// True if attribute 187, which counts the same event, has never counted one, and the log has no entry of one.
pub(super) fn is_denied_by_187(facts: &Facts, value: u64) -> bool {
    let logged = ata(facts).and_then(|ata| ata.logged_uncorrectable.as_ref());
    value > 0
        && number(facts, Field::ReportedUncorrect) == Some(0)
        && logged.is_none_or(Vec::is_empty)
}

/// True if the value is far from attribute 187. A counter that may have stopped at 16 bits contradicts nothing.
pub(super) fn is_far_from_187(facts: &Facts, value: u64) -> bool {
    let counted = number(facts, Field::ReportedUncorrect).filter(|counted| *counted < SECTORS);
    counted.is_some_and(|counted| value > FACTOR.saturating_mul(counted.saturating_add(1)))
}

/// True for a value above 16 bits of a drive whose attribute 187 was dropped: SandForce fills both from the same register.
pub(super) fn is_beside_a_rate(facts: &Facts, value: u64) -> bool {
    value > SECTORS
        && count::<187>(facts).is_some()
        && number(facts, Field::ReportedUncorrect).is_none()
}

/// Returns the reason why an entry of the self-test log is invalid by its type.
pub(super) fn objection_to_type(log: &[SelfTest], test: &SelfTest) -> Option<&'static str> {
    let is_vendors = |kind: u64| VENDOR_TESTS.iter().any(|kinds| kinds.contains(&kind));
    let is_undefined = |test: &&SelfTest| test.kind > DEFINED_TESTS && !is_vendors(test.kind);
    if log.iter().filter(is_undefined).count() >= UNDEFINED_TESTS {
        return Some("the log has types of self-test that do not exist: it is not a self-test log");
    }
    (test.kind > DEFINED_TESTS)
        .then_some("its type is not defined by the standard, and neither is its result")
}

/// Returns whether an attribute is or was at or under its threshold; Never for a temperature, and if the threshold or the worst value is
/// invalid.
pub(crate) fn current_failure(attribute: &Attribute) -> Failed {
    let name = attribute.name.to_lowercase();
    if TEMPERATURES.contains(&attribute.id) || name.contains("temperature") {
        return Failed::Never;
    }
    match objection_to_threshold(attribute) {
        Some(_) => Failed::Never,
        None => attribute.failed,
    }
}

fn objection_to_threshold(attribute: &Attribute) -> Option<&'static str> {
    if attribute.failed != Failed::Never && attribute.thresh >= Some(INVALID_THRESHOLD) {
        return Some("254 is not defined, and 255 is for tests of the host: always failing");
    }
    let value = attribute.value?;
    let worst = attribute.worst?;
    match attribute.failed {
        Failed::Never => None,
        Failed::Now => {
            let is_new = STARTS.contains(&value) && value == worst;
            (is_new && attribute.thresh >= Some(value))
                .then_some("the threshold is not below the value that a new drive has")
        }
        Failed::Past => {
            // A count of events does not recover; a rate does.
            let is_unused = STARTS.contains(&value) && attribute.raw == 0 && !attribute.rate;
            (worst <= 1 && is_unused)
                .then_some("the worst value was never set: nothing was counted")
        }
    }
}

pub(super) fn dropped_threshold(attribute: &Attribute) -> Option<super::Dropped> {
    let reason = objection_to_threshold(attribute)?;
    let is_worst = attribute.failed == Failed::Past && attribute.thresh < Some(INVALID_THRESHOLD);
    let (what, value) = match is_worst {
        true => ("worst", attribute.worst),
        false => ("threshold", attribute.thresh),
    };
    Some(super::Dropped {
        field: format!("attribute-{}-{what}", attribute.id),
        value: value.unwrap_or(0),
        reason: reason.to_owned(),
    })
}
