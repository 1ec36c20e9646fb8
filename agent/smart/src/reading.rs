//! Numbers of a drive's answer, the same for every protocol, in SI units, for metrics. A value that the drive does not report is None.
//! Pure.

use super::{
    facts::{Detail, ExitStatus, Facts, Protocol, SelfTestResult},
    history::Counter,
    lifetime,
    plausible::{self, Field, number as value_of},
    rules::wear,
};

/// Length of an hour, seconds.
const HOUR: u64 = 3600;
/// Device statistics, general page: logical sectors written and read (ACS-4, 9.5.4).
const WRITTEN: (u64, u64) = (1, 24);
const READ: (u64, u64) = (1, 40);
/// Device statistics, temperature page: minutes above the specified maximum (ACS-4, 9.5.8).
const OVER_TEMPERATURE: (u64, u64) = (5, 80);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    pub protocol: Option<Protocol>,
    /// The drive's own status. True is no proof of health.
    pub passed: Option<bool>,
    /// smartctl's exit status, a bit mask.
    pub exit: ExitStatus,
    /// Rotations per minute; 0 for a drive that does not rotate.
    pub rotations_per_minute: Option<u64>,
    /// Measured temperature, degrees Celsius. From smartctl, 0 and values outside of -50 to 150 count as not measured.
    pub temperature: Option<i32>,
    /// Power-on time, seconds, from a count of hours; None also for more than thirty years, which cannot be true.
    pub power_on_seconds: Option<u64>,
    /// Number of power cycles.
    pub power_cycles: Option<u64>,
    /// Rated endurance used, percent; may pass 100.
    pub wear_percent: Option<u64>,
    /// Spare blocks that are left, percent.
    pub spare_percent: Option<u64>,
    /// NVMe: spare below which the drive warns, percent.
    pub spare_threshold_percent: Option<u64>,
    /// NVMe: bits of the critical warning byte.
    pub critical_warning: Option<u8>,
    /// Errors of the medium that were not corrected: NVMe media errors, SCSI uncorrected errors, ATA 187 or device statistics.
    pub media_errors: Option<u64>,
    /// NVMe: entries of the error log for reads whose data the medium lost (status 0x281).
    pub unrecovered_reads: Option<u64>,
    /// Bytes read by the host.
    pub read_bytes: Option<u64>,
    /// Bytes written by the host.
    pub written_bytes: Option<u64>,
    /// Sectors that were reallocated (ATA 5).
    pub reallocated: Option<u64>,
    /// Sectors that wait for a write: ATA 197, else a log of pending defects.
    pub pending: Option<u64>,
    /// Sectors that could not be read in an off-line scan (ATA 198).
    pub uncorrectable: Option<u64>,
    /// SCSI: length of the grown defect list.
    pub grown_defects: Option<u64>,
    /// Interface errors over the drive's life: ATA 199, else the device statistics.
    pub interface_errors: Option<u64>,
    /// Entries ever written to the error log.
    pub error_log_entries: Option<u64>,
    /// Number of power losses without a notice.
    pub unsafe_shutdowns: Option<u64>,
    /// Seconds above the warning temperature; ATA: above the specified maximum.
    pub warning_temperature_seconds: Option<u64>,
    /// Seconds above the critical temperature.
    pub critical_temperature_seconds: Option<u64>,
    /// True if the last test of the power loss capacitors passed.
    pub capacitor_passed: Option<bool>,
    /// Year and week of manufacture.
    pub manufactured: Option<(u16, u8)>,
    /// Sum of the errors of all SAS phys.
    pub phy_errors: Option<u64>,
    /// Drive writes per day of power-on time, in thousandths.
    pub writes_per_day: Option<u64>,
    /// Rating of the model by its vendor, in thousandths of a drive write per day.
    pub rated_writes_per_day: Option<u64>,
    /// Sectors reallocated per month of power-on time, in thousandths.
    pub reallocated_per_month: Option<u64>,
    /// Number of self-tests in the log, and of those that failed; None if the log is empty or missing.
    pub self_tests: Option<(u64, u64)>,
}

impl Reading {
    /// Returns the numbers in an answer. `logical_sector`: size of one, bytes, as the kernel has it.
    pub fn of(facts: &Facts, logical_sector: u32) -> Self {
        let counters = Counter::read(facts);
        let counted = |wanted: Counter| {
            let mut counters = counters.iter();
            counters
                .find(|(counter, _)| *counter == wanted)
                .map(|(_, value)| *value)
        };
        let sectors = |count: u64| count.saturating_mul(u64::from(logical_sector));
        let mut reading = Self {
            protocol: facts.protocol(),
            passed: facts.status(),
            exit: facts.exit,
            rotations_per_minute: value_of(facts, Field::RotationRate),
            temperature: facts.temperature.current,
            power_on_seconds: value_of(facts, Field::PowerOnHours)
                .map(|hours| hours.saturating_mul(HOUR)),
            power_cycles: facts.power_cycles,
            wear_percent: wear(facts).map(|wear| wear.percent),
            self_tests: self_tests(facts),
            ..Self::default()
        };
        let sector = u64::from(logical_sector);
        let minutes = |minutes: u64| minutes.saturating_mul(60);
        match &facts.detail {
            Detail::Ata(ata) => {
                // All ones is the value of firmware that does not count.
                let statistic = |(page, offset)| {
                    let value = ata.statistic(page, offset);
                    value.filter(|value| *value != u64::from(u32::MAX))
                };
                reading.warning_temperature_seconds = statistic(OVER_TEMPERATURE).map(minutes);
                reading.spare_percent = lifetime::spare_percent(ata);
                reading.unsafe_shutdowns = lifetime::unsafe_shutdowns(ata);
                reading.capacitor_passed = lifetime::capacitor_passed(ata);
                reading.media_errors = counted(Counter::ReportedUncorrect);
                let transferred = |place| statistic(place).map(sectors);
                reading.read_bytes =
                    transferred(READ).or_else(|| lifetime::read(facts, ata, sector));
                reading.written_bytes =
                    transferred(WRITTEN).or_else(|| lifetime::written(facts, ata, sector));
                reading.reallocated = counted(Counter::Reallocated);
                reading.pending = counted(Counter::PendingSectors)
                    .or_else(|| value_of(facts, Field::AtaPendingDefects));
                reading.uncorrectable = counted(Counter::OfflineUncorrectable);
                reading.interface_errors = counted(Counter::InterfaceCrc);
                reading.error_log_entries = ata.error_count;
            }
            Detail::Scsi(scsi) => {
                reading.media_errors = counted(Counter::ScsiUncorrected);
                reading.read_bytes = scsi.read.and_then(|counter| counter.bytes);
                reading.written_bytes = scsi.write.and_then(|counter| counter.bytes);
                reading.pending = value_of(facts, Field::ScsiPendingDefects);
                reading.grown_defects = counted(Counter::GrownDefects);
                reading.manufactured = scsi.manufactured;
                reading.phy_errors = scsi.phy_errors;
            }
            Detail::Nvme(nvme) if plausible::is_filled_in(nvme) => {
                reading.spare_percent = value_of(facts, Field::Spare);
                reading.spare_threshold_percent = value_of(facts, Field::SpareThreshold);
                reading.critical_warning = value_of(facts, Field::CriticalWarning)
                    .and_then(|bits| u8::try_from(bits).ok());
                reading.unrecovered_reads = nvme.unrecovered_reads;
                reading.media_errors = counted(Counter::MediaErrors);
                reading.read_bytes = nvme.bytes_read;
                reading.written_bytes = nvme.bytes_written;
                reading.error_log_entries = nvme.error_log_entries;
                reading.unsafe_shutdowns = nvme.unsafe_shutdowns;
                reading.warning_temperature_seconds = nvme.warning_minutes.map(minutes);
                reading.critical_temperature_seconds = nvme.critical_minutes.map(minutes);
            }
            // Wear is all that these report.
            Detail::Nvme(_) | Detail::Mmc(_) | Detail::Unknown => {}
        }
        reading.rated_writes_per_day = lifetime::rated_writes_per_day(&facts.model);
        if let Some(hours) = value_of(facts, Field::PowerOnHours) {
            let replaced = reading.reallocated.or(reading.grown_defects);
            reading.reallocated_per_month =
                replaced.and_then(|count| lifetime::reallocated_per_month(count, hours));
            reading.writes_per_day = reading
                .written_bytes
                .zip(facts.capacity_bytes)
                .and_then(|(written, capacity)| lifetime::writes_per_day(written, capacity, hours));
        }
        reading
    }

    /// Returns the values by stable names with their units, in the order in which they are shown; unknown ones are left out.
    pub fn named(&self) -> Vec<(&'static str, i64)> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let manufactured = self
            .manufactured
            .map(|(year, week)| (year.into(), week.into()));
        let (year, week): (Option<i64>, Option<i64>) = manufactured.unzip();
        let all = [
            ("temperature-celsius", self.temperature.map(i64::from)),
            ("wear-percent", self.wear_percent.map(number)),
            ("available-spare-percent", self.spare_percent.map(number)),
            (
                "power-on-hours",
                self.power_on_seconds.map(|seconds| number(seconds / HOUR)),
            ),
            ("power-cycles", self.power_cycles.map(number)),
            ("written-bytes", self.written_bytes.map(number)),
            ("read-bytes", self.read_bytes.map(number)),
            (
                "drive-writes-per-day-thousandths",
                self.writes_per_day.map(number),
            ),
            (
                "rated-drive-writes-per-day-thousandths",
                self.rated_writes_per_day.map(number),
            ),
            ("unsafe-shutdowns", self.unsafe_shutdowns.map(number)),
            (
                "seconds-above-warning-temperature",
                self.warning_temperature_seconds.map(number),
            ),
            (
                "seconds-above-critical-temperature",
                self.critical_temperature_seconds.map(number),
            ),
            (
                "capacitor-test-passed",
                self.capacitor_passed.map(i64::from),
            ),
            (
                "reallocated-per-month-thousandths",
                self.reallocated_per_month.map(number),
            ),
            (
                "logged-unrecovered-reads",
                self.unrecovered_reads.map(number),
            ),
            ("interface-crc-errors", self.interface_errors.map(number)),
            ("phy-errors", self.phy_errors.map(number)),
            ("manufactured-year", year),
            ("manufactured-week", week),
        ];
        let values = all.into_iter();
        values
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Fills in values that only the daily, deep poll reads from the reading before.
    pub fn after(mut self, before: &Self) -> Self {
        self.wear_percent = self.wear_percent.or(before.wear_percent);
        self.read_bytes = self.read_bytes.or(before.read_bytes);
        self.written_bytes = self.written_bytes.or(before.written_bytes);
        self.pending = self.pending.or(before.pending);
        self.phy_errors = self.phy_errors.or(before.phy_errors);
        self.unrecovered_reads = self.unrecovered_reads.or(before.unrecovered_reads);
        self.writes_per_day = self.writes_per_day.or(before.writes_per_day);
        self.error_log_entries = self.error_log_entries.or(before.error_log_entries);
        self
    }
}

fn self_tests(facts: &Facts) -> Option<(u64, u64)> {
    let tests = facts.self_tests();
    let failed = tests
        .iter()
        .filter(|test| matches!(test.result, SelfTestResult::Failed(_)));
    let count = |tests: usize| u64::try_from(tests).unwrap_or(u64::MAX);
    (!tests.is_empty()).then(|| (count(tests.len()), count(failed.count())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{self, ATA_HDD, ATA_SSD, NVME, SCSI_SSD};

    fn reading(text: &str) -> Reading {
        Reading::of(&fixtures::changed(text, &[]), 512)
    }

    #[test]
    fn each_protocol_reports_its_own_and_nothing_is_made_up() {
        let hdd = reading(ATA_HDD);
        assert_eq!(hdd.protocol, Some(Protocol::Ata));
        assert_eq!(hdd.temperature, Some(34));
        assert_eq!(hdd.power_on_seconds, Some(22_334 * 3600));
        assert_eq!((hdd.power_cycles, hdd.reallocated), (Some(37), Some(0)));
        assert_eq!((hdd.pending, hdd.uncorrectable), (Some(0), Some(0)));
        assert_eq!(hdd.interface_errors, Some(12));
        assert_eq!(hdd.error_log_entries, Some(12));
        assert_eq!((hdd.exit.bits(), hdd.passed), (64, Some(true)));
        assert_eq!(hdd.self_tests, Some((3, 0)));
        assert_eq!((hdd.wear_percent, hdd.spare_percent), (None, None));
        assert_eq!((hdd.grown_defects, hdd.critical_warning), (None, None));

        let nvme = reading(NVME);
        assert_eq!(nvme.protocol, Some(Protocol::Nvme));
        assert_eq!(
            (nvme.wear_percent, nvme.spare_percent),
            (Some(4), Some(100))
        );
        assert_eq!(nvme.read_bytes, Some(1_087_990_952 * 512_000));
        assert_eq!((nvme.reallocated, nvme.pending), (None, None));
        assert_eq!(nvme.rotations_per_minute, None);

        let sas = reading(SCSI_SSD);
        assert_eq!(sas.protocol, Some(Protocol::Scsi));
        assert_eq!((sas.grown_defects, sas.media_errors), (Some(0), Some(0)));
        assert_eq!((sas.power_cycles, sas.interface_errors), (None, None));
    }

    #[test]
    fn an_attribute_that_counts_something_else_on_this_drive_is_not_shown() {
        // 198 is Host_Reads_GiB there.
        assert_eq!(reading(ATA_SSD).uncorrectable, None);
    }

    #[test]
    fn what_users_want_to_know_is_named_with_its_unit_and_absent_when_it_is_not_known() {
        let of = |name: &str| reading(fixtures::drive(name)).named();
        let value = |name: &str, key: &str| {
            let named = of(name);
            named
                .iter()
                .find(|(other, _)| *other == key)
                .map(|(_, value)| *value)
        };
        let sas = "scsi-hot";
        assert_eq!(value(sas, "manufactured-year"), Some(2014));
        assert_eq!(value(sas, "manufactured-week"), Some(34));
        assert_eq!(value(sas, "phy-errors"), Some(12 + 12 + 3));
        assert_eq!(value(sas, "written-bytes"), Some(127_551_260_000_000));
        assert_eq!(value(sas, "unsafe-shutdowns"), None);
        let nvme = "nvme-worn-out";
        assert_eq!(value(nvme, "unsafe-shutdowns"), Some(213));
        assert_eq!(value(nvme, "available-spare-percent"), Some(100));
        assert_eq!(
            value(nvme, "seconds-above-warning-temperature"),
            Some(14 * 60)
        );
        assert_eq!(
            value(nvme, "seconds-above-critical-temperature"),
            Some(2 * 60)
        );
        // 308 TB on 512 GB in 533 days.
        assert_eq!(value(nvme, "drive-writes-per-day-thousandths"), Some(1129));
        assert_eq!(value(nvme, "phy-errors"), None);
        let statistics = "ata-statistics-errors";
        assert_eq!(value(statistics, "interface-crc-errors"), Some(0));
        assert_eq!(
            value(statistics, "reallocated-per-month-thousandths"),
            Some(0)
        );
        assert_eq!(value(statistics, "capacitor-test-passed"), None);
        assert_eq!(value("ata-kc400", "written-bytes"), Some(98_877 << 30));
        let unlisted = "ata-sandforce-unlisted";
        assert_eq!(value(unlisted, "written-bytes"), None);
        assert_eq!(value(unlisted, "wear-percent"), None);
    }

    #[test]
    fn what_only_a_deep_poll_reads_is_kept_until_the_next_and_the_rest_is_not() {
        let deep = Reading {
            wear_percent: Some(6),
            written_bytes: Some(1 << 40),
            ..reading(ATA_HDD)
        };
        let cold = [("temperature", json!(null))];
        let light = Reading::of(&fixtures::changed(ATA_HDD, &cold), 512).after(&deep);
        assert_eq!(light.wear_percent, Some(6));
        assert_eq!(light.written_bytes, Some(1 << 40));
        assert_eq!(light.temperature, None);
    }
}
