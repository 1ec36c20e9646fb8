//! What a drive did in its life, by the attributes that vendors have for it. By name: a number such as 241 counts sectors
//! on one drive and GiB on the next. What is not known is None, never 0. Pure.

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
/// A rate over a shorter life says nothing.
const SETTLED_HOURS: u64 = 24 * 7;

/// What `Total_LBAs_…` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes(u64),
    Sectors,
}

/// Names of smartctl's database for what hosts wrote, in lower case, and the unit of each.
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
/// The same for what they read.
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
/// Power that went without a notice; Samsung counts the recoveries from it.
const UNSAFE_SHUTDOWNS: [&str; 6] = [
    "unsafe_shutdown_count",
    "unexpect_power_loss_ct",
    "unexpect_power_loss",
    "unexpected_power_loss",
    "unclean_shutdown",
    "por_recovery_count",
];
/// Spare blocks left, as the normalised value in percent.
const SPARE: [&str; 4] = [
    "available_reservd_space",
    "perc_avail_resrvd_space",
    "reserved_block_pct",
    "spares_remaining_perc",
];
/// Intel's and Solidigm's test of the capacitors that keep the drive writing when power goes.
const CAPACITOR_TEST: &str = "power_loss_cap_test";
/// Its value for a test at an excessive temperature, which says nothing.
const NOT_JUDGED: u64 = 11;

fn named<'a>(ata: &'a Ata, beginning: &str) -> Option<&'a Attribute> {
    ata.attributes
        .iter()
        .find(|attribute| attribute.name.to_lowercase().starts_with(beginning))
}

fn bytes(facts: &Facts, ata: &Ata, names: &[(&str, Unit)], sector: u64) -> Option<u64> {
    let of = |(name, unit): &(&str, Unit)| {
        let attribute = named(ata, name)?;
        // smartctl's default name, on a drive that it does not know and that may count in anything.
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

/// Bytes written by hosts. `sector`: bytes of a logical sector.
pub(super) fn written(facts: &Facts, ata: &Ata, sector: u64) -> Option<u64> {
    bytes(facts, ata, &WRITTEN, sector)
}

/// Bytes read by hosts.
pub(super) fn read(facts: &Facts, ata: &Ata, sector: u64) -> Option<u64> {
    bytes(facts, ata, &READ, sector)
}

/// Times that power went without a notice.
pub(super) fn unsafe_shutdowns(ata: &Ata) -> Option<u64> {
    let mut names = UNSAFE_SHUTDOWNS.iter();
    let attribute = names.find_map(|name| named(ata, name))?;
    (!attribute.packed).then_some(attribute.raw)
}

/// Spare blocks left, percent.
pub(super) fn spare_percent(ata: &Ata) -> Option<u64> {
    let mut names = SPARE.iter();
    let value = names.find_map(|name| named(ata, name))?.value;
    value.filter(|value| (1..=100).contains(value))
}

/// Whether the last test of the capacitors passed.
pub(super) fn capacitor_passed(ata: &Ata) -> Option<bool> {
    let test = named(ata, CAPACITOR_TEST)?;
    let value = test
        .value
        .filter(|value| *value != NOT_JUDGED && *value <= 100)?;
    Some(current_failure(test) != Failed::Now && value > test.thresh.unwrap_or(0).max(1))
}

/// A rate over the drive's life in thousandths: `count` in a time of `hours`, by periods of `period` hours.
fn thousandths(count: u128, hours: u64, period: u64) -> Option<u64> {
    if hours < SETTLED_HOURS {
        return None;
    }
    let rate = count.checked_mul(1000)?.checked_mul(u128::from(period))?;
    u64::try_from(rate.checked_div(u128::from(hours))?).ok()
}

/// Sectors replaced per month of power-on time, in thousandths.
pub(super) fn reallocated_per_month(count: u64, hours: u64) -> Option<u64> {
    thousandths(u128::from(count), hours, HOURS_OF_A_MONTH)
}

/// How often the drive's capacity was written per day of power-on time, in thousandths.
pub(super) fn writes_per_day(written: u64, capacity: u64, hours: u64) -> Option<u64> {
    let per_day = thousandths(u128::from(written), hours, HOURS_OF_A_DAY)?;
    per_day.checked_div(capacity)
}

/// Drive writes per day over five years that the vendor rates a series for, in thousandths, by the beginning of the model
/// and a part of the rest. From the vendors' product briefs; only series in which every capacity has the same rating.
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

/// What the vendor rates the model for, in thousandths of a drive write per day.
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
        // A drive that smartctl does not know counts in what it likes.
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
    fn the_capacitor_test_passed_failed_or_says_nothing() {
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
