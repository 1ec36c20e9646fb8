//! Values over a drive's life, by the attributes that vendors have for them. By name, because a number such as 241 counts sectors on one
//! drive and GiB on the next. An unknown value is None, never 0. Pure.

use super::{
    facts::{Ata, Attribute, Facts, Failed},
    plausible::current_failure,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;
const HOURS_OF_A_DAY: u64 = 24;
/// 365.25 days / 12.
const HOURS_OF_A_MONTH: u64 = 730;
/// Power-on hours from which on a rate is meaningful.
const SETTLED_HOURS: u64 = 24 * 7;

/// Unit of a count of transferred data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes(u64),
    Sectors,
}

/// Names in smartctl's database for data that hosts wrote, in lower case, with the unit of each.
const WRITTEN: [(&str, Unit); 11] = [
    ("host_writes_32mib", Unit::Bytes(32 * MIB)),
    ("host_writes_mib", Unit::Bytes(MIB)),
    ("host_writes_gib", Unit::Bytes(GIB)),
    ("lifetime_writes_gib", Unit::Bytes(GIB)),
    ("total_writes_gib", Unit::Bytes(GIB)),
    ("total_writes_gb", Unit::Bytes(GB)),
    ("lifetime_wts_frm_hst_gb", Unit::Bytes(GB)),
    ("total_lbas_written", Unit::Sectors),
    ("total_host_lba_written", Unit::Sectors),
    ("host_writes_lba", Unit::Sectors),
    ("sectors_written_to_ssd", Unit::Sectors),
];
/// Names for data that hosts read, alike.
const READ: [(&str, Unit); 11] = [
    ("host_reads_32mib", Unit::Bytes(32 * MIB)),
    ("host_reads_mib", Unit::Bytes(MIB)),
    ("host_reads_gib", Unit::Bytes(GIB)),
    ("lifetime_reads_gib", Unit::Bytes(GIB)),
    ("total_reads_gib", Unit::Bytes(GIB)),
    ("total_reads_gb", Unit::Bytes(GB)),
    ("lifetime_rds_frm_hst_gb", Unit::Bytes(GB)),
    ("total_lbas_read", Unit::Sectors),
    ("total_host_lba_read", Unit::Sectors),
    ("host_reads_lba", Unit::Sectors),
    ("sectors_read_from_ssd", Unit::Sectors),
];
/// Names for power losses without a notice; Samsung counts the recoveries from them.
const UNSAFE_SHUTDOWNS: [&str; 6] = [
    "unsafe_shutdown_count",
    "unexpect_power_loss_ct",
    "unexpect_power_loss",
    "unexpected_power_loss",
    "unclean_shutdown",
    "por_recovery_count",
];
/// Names for the spare blocks that are left, whose normalised value is in percent.
const SPARE: [&str; 4] = [
    "available_reservd_space",
    "perc_avail_resrvd_space",
    "reserved_block_pct",
    "spares_remaining_perc",
];
/// Name of Intel's and Solidigm's test of the capacitors that keep the drive writing after a power loss.
const CAPACITOR_TEST: &str = "power_loss_cap_test";
/// Normalised value after a test at an excessive temperature, which has no result.
const NOT_JUDGED: u64 = 11;

fn named<'a>(ata: &'a Ata, beginning: &str) -> Option<&'a Attribute> {
    ata.attributes
        .iter()
        .find(|attribute| attribute.name.to_lowercase().starts_with(beginning))
}

fn bytes(facts: &Facts, ata: &Ata, names: &[(&str, Unit)], sector: u64) -> Option<u64> {
    let of = |(name, unit): &(&str, Unit)| {
        let attribute = named(ata, name)?;
        // smartctl's default name, on a drive that is not in its database and may count in any unit.
        let is_guess = facts.listed == Some(false) && facts.rotational == Some(false);
        let unit = match unit {
            Unit::Sectors if is_guess => return None,
            Unit::Sectors => sector,
            Unit::Bytes(bytes) => *bytes,
        };
        (!attribute.packed).then(|| attribute.raw.saturating_mul(unit))
    };
    names.iter().find_map(of)
}

/// Returns the bytes written by hosts. `sector`: size of a logical sector, bytes.
pub(super) fn written(facts: &Facts, ata: &Ata, sector: u64) -> Option<u64> {
    bytes(facts, ata, &WRITTEN, sector)
}

/// Returns the bytes read by hosts. `sector`: size of a logical sector, bytes.
pub(super) fn read(facts: &Facts, ata: &Ata, sector: u64) -> Option<u64> {
    bytes(facts, ata, &READ, sector)
}

/// Returns the number of power losses without a notice.
pub(super) fn unsafe_shutdowns(ata: &Ata) -> Option<u64> {
    let mut names = UNSAFE_SHUTDOWNS.iter();
    let attribute = names.find_map(|name| named(ata, name))?;
    (!attribute.packed).then_some(attribute.raw)
}

/// Returns the spare blocks that are left, percent.
pub(super) fn spare_percent(ata: &Ata) -> Option<u64> {
    let mut names = SPARE.iter();
    let value = names.find_map(|name| named(ata, name))?.value;
    value.filter(|value| (1..=100).contains(value))
}

/// Returns whether the last test of the capacitors passed; None without a test or a result.
pub(super) fn capacitor_passed(ata: &Ata) -> Option<bool> {
    let test = named(ata, CAPACITOR_TEST)?;
    let value = test
        .value
        .filter(|value| *value != NOT_JUDGED && *value <= 100)?;
    Some(current_failure(test) != Failed::Now && value > test.thresh.unwrap_or(0).max(1))
}

/// Returns a rate over the drive's life, in thousandths: `count` within `hours`, per `period` hours. None for a life that is too short.
fn thousandths(count: u128, hours: u64, period: u64) -> Option<u64> {
    if hours < SETTLED_HOURS {
        return None;
    }
    let rate = count.checked_mul(1000)?.checked_mul(u128::from(period))?;
    u64::try_from(rate.checked_div(u128::from(hours))?).ok()
}

/// Returns the sectors that were replaced per month of power-on time, in thousandths.
pub(super) fn reallocated_per_month(count: u64, hours: u64) -> Option<u64> {
    thousandths(u128::from(count), hours, HOURS_OF_A_MONTH)
}

/// Returns how often the drive's capacity was written per day of power-on time, in thousandths.
pub(super) fn writes_per_day(written: u64, capacity: u64, hours: u64) -> Option<u64> {
    let per_day = thousandths(u128::from(written), hours, HOURS_OF_A_DAY)?;
    per_day.checked_div(capacity)
}

/// Ratings of series by their vendors, in thousandths of a drive write per day over five years, by the beginning of the model and a part of
/// the rest. From the vendors' product briefs; only series in which every capacity has the same rating.
const RATED: [(&str, &str, u64); 9] = [
    ("KINGSTON SEDC500R", "", 500),
    ("KINGSTON SEDC500M", "", 1300),
    ("KINGSTON SEDC600M", "", 1000),
    ("INTEL SSDSC2BB", "G4", 300),
    ("INTEL SSDSC2BA", "G3", 10_000),
    ("INTEL SSDSC2BA", "G4", 10_000),
    ("SAMSUNG MZ7KH", "", 3000),
    ("SAMSUNG MZ7L3", "HC", 1000),
    ("SAMSUNG MZQL2", "", 1000),
];

/// Returns the rating of the model by its vendor, in thousandths of a drive write per day; None if it is unknown.
pub(super) fn rated_writes_per_day(model: &str) -> Option<u64> {
    let of = |(beginning, part, _): &&(&str, &str, u64)| {
        let rest = model.strip_prefix(beginning);
        rest.is_some_and(|rest| rest.contains(part))
    };
    RATED.iter().find(of).map(|(.., rated)| *rated)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        facts::Detail,
        fixtures::{changed, drive},
    };

    fn of<T>(name: &str, changes: &[(&str, Value)], read: impl Fn(&Facts, &Ata) -> T) -> T {
        let facts = changed(drive(name), changes);
        let Detail::Ata(ata) = &facts.detail else {
            panic!("not ATA");
        };
        read(&facts, ata)
    }

    #[test]
    fn bytes_are_counted_in_the_unit_of_the_attributes_name() {
        let written_bytes = |name: &str| of(name, &[], |facts, ata| written(facts, ata, 512));
        assert_eq!(written_bytes("ata-kc400"), Some(98_877 * GIB));
        assert_eq!(written_bytes("ata-gmts400"), Some(176_220 * 32 * MIB));
        assert_eq!(written_bytes("ata-mx500"), Some(28_104_412_233 * 512));
        // A drive that is not in smartctl's database may count in any unit.
        assert_eq!(written_bytes("ata-sandforce-unlisted"), None);
        let read_bytes = of("ata-wd-blue", &[], |facts, ata| read(facts, ata, 512));
        assert_eq!(read_bytes, Some(2204 * GIB));
    }

    #[test]
    fn unsafe_shutdowns_and_spare_blocks_are_known_by_name() {
        let shutdowns = |name: &str| of(name, &[], |_, ata| unsafe_shutdowns(ata));
        assert_eq!(shutdowns("ata-kc400"), Some(88));
        assert_eq!(shutdowns("ata-wd-blue"), Some(21));
        assert_eq!(shutdowns("ata-helium"), None);
        let spare = |value: u64| {
            let changes = [("attr 232 value", json!(value))];
            of("ata-wd-blue", &changes, |_, ata| spare_percent(ata))
        };
        assert_eq!((spare(97), spare(0), spare(253)), (Some(97), None, None));
    }

    #[test]
    fn the_capacitor_test_passed_failed_or_has_no_result() {
        let test = |value: u64, failed: &str| {
            let changes = [
                ("attr 232 name", json!("Power_Loss_Cap_Test")),
                ("attr 232 thresh", json!(10)),
                ("attr 232 value", json!(value)),
                ("attr 232 when_failed", json!(failed)),
            ];
            of("ata-wd-blue", &changes, |_, ata| capacitor_passed(ata))
        };
        assert_eq!(test(100, ""), Some(true));
        assert_eq!(test(1, "now"), Some(false));
        assert_eq!(test(11, ""), None);
        assert_eq!(of("ata-wd-blue", &[], |_, ata| capacitor_passed(ata)), None);
    }

    #[test]
    fn rates_are_of_the_whole_life_and_not_of_its_first_days() {
        // 960 GB written once a day for 100 days.
        let written = 960_000_000_000 * 100;
        assert_eq!(writes_per_day(written, 960_000_000_000, 2400), Some(1000));
        assert_eq!(writes_per_day(written, 960_000_000_000, 24), None);
        assert_eq!(writes_per_day(written, 0, 2400), None);
        assert_eq!(reallocated_per_month(15, 7300), Some(1500));
        assert_eq!(rated_writes_per_day("INTEL SSDSC2BA400G3"), Some(10_000));
        assert_eq!(rated_writes_per_day("INTEL SSDSC2BB480G6"), None);
        assert_eq!(rated_writes_per_day("CT1000MX500SSD1"), None);
    }
}
