//! The numbers of a drive's answer, the same for every protocol, in SI units: for metrics. What the drive did not
//! tell is None. Pure.

use super::{
    facts::{Detail, ExitStatus, Facts, Protocol, SelfTestResult},
    history::Counter,
    rules::wear,
};

/// Seconds of an hour.
const HOUR: u64 = 3600;
/// Device statistics, general page: logical sectors written and read (ACS-4, 9.5.4).
const WRITTEN: (u64, u64) = (1, 24);
const READ: (u64, u64) = (1, 40);

/// The values of one SMART poll.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its command set.
    pub protocol: Option<Protocol>,
    /// Its word on itself. True is no proof of health.
    pub passed: Option<bool>,
    /// smartctl's exit status, a bit mask.
    pub exit: ExitStatus,
    /// Turns a minute; 0 for a drive that does not turn.
    pub rotations_per_minute: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<i32>,
    /// Seconds with power.
    pub power_on_seconds: Option<u64>,
    /// Times it was switched on.
    pub power_cycles: Option<u64>,
    /// Rated endurance used, percent; may pass 100.
    pub wear_percent: Option<u64>,
    /// NVMe: spare blocks left, percent.
    pub spare_percent: Option<u64>,
    /// NVMe: below it the drive warns, percent.
    pub spare_threshold_percent: Option<u64>,
    /// NVMe: bits of the critical warning byte.
    pub critical_warning: Option<u8>,
    /// Errors that the medium caused and nothing corrected: NVMe media errors, SCSI uncorrected errors, ATA 187.
    pub media_errors: Option<u64>,
    /// Bytes read by the host.
    pub read_bytes: Option<u64>,
    /// Bytes written by the host.
    pub written_bytes: Option<u64>,
    /// ATA 5.
    pub reallocated: Option<u64>,
    /// Sectors that wait for a write: ATA 197, else a log of pending defects.
    pub pending: Option<u64>,
    /// ATA 198.
    pub uncorrectable: Option<u64>,
    /// SCSI.
    pub grown_defects: Option<u64>,
    /// ATA 199.
    pub interface_errors: Option<u64>,
    /// Entries ever written to the error log.
    pub error_log_entries: Option<u64>,
    /// Self-tests in the log, and those of them that failed; None when the log is empty or not there.
    pub self_tests: Option<(u64, u64)>,
}

impl Reading {
    /// The numbers in an answer. `logical_sector`: bytes of one, as the kernel has it.
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
            rotations_per_minute: facts.rotation_rate,
            temperature: facts.temperature.current,
            power_on_seconds: facts.power_on_hours.map(|hours| hours.saturating_mul(HOUR)),
            power_cycles: facts.power_cycles,
            wear_percent: wear(facts).map(|wear| wear.percent),
            self_tests: self_tests(facts),
            ..Self::default()
        };
        match &facts.detail {
            Detail::Ata(ata) => {
                let statistic = |(page, offset)| ata.statistic(page, offset).map(sectors);
                reading.media_errors = counted(Counter::ReportedUncorrect);
                reading.read_bytes = statistic(READ);
                reading.written_bytes = statistic(WRITTEN);
                reading.reallocated = counted(Counter::Reallocated);
                reading.pending = counted(Counter::PendingSectors).or(ata.pending_defects);
                reading.uncorrectable = counted(Counter::OfflineUncorrectable);
                reading.interface_errors = counted(Counter::InterfaceCrc);
                reading.error_log_entries = ata.error_count;
            }
            Detail::Scsi(scsi) => {
                reading.media_errors = counted(Counter::ScsiUncorrected);
                reading.read_bytes = scsi.read.and_then(|counter| counter.bytes);
                reading.written_bytes = scsi.write.and_then(|counter| counter.bytes);
                reading.pending = scsi.pending_defects;
                reading.grown_defects = counted(Counter::GrownDefects);
            }
            Detail::Nvme(nvme) => {
                reading.spare_percent = nvme.available_spare;
                reading.spare_threshold_percent = nvme.spare_threshold;
                reading.critical_warning = nvme.critical_warning.map(|warning| warning.0);
                reading.media_errors = counted(Counter::MediaErrors);
                reading.read_bytes = nvme.bytes_read;
                reading.written_bytes = nvme.bytes_written;
                reading.error_log_entries = nvme.error_log_entries;
            }
            // Its wear is all there is.
            Detail::Mmc(_) | Detail::Unknown => {}
        }
        reading
    }

    /// This one, with what only the daily, deep poll asks for kept from the one before.
    pub fn after(mut self, before: &Self) -> Self {
        self.wear_percent = self.wear_percent.or(before.wear_percent);
        self.read_bytes = self.read_bytes.or(before.read_bytes);
        self.written_bytes = self.written_bytes.or(before.written_bytes);
        self.pending = self.pending.or(before.pending);
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
    use crate::smart::fixtures::{self, ATA_HDD, ATA_SSD, NVME, SCSI_SSD};

    fn reading(text: &str) -> Reading {
        Reading::of(&fixtures::changed(text, &[]), 512)
    }

    #[test]
    fn each_protocol_tells_its_own_and_nothing_is_made_up() {
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
    fn what_only_a_deep_poll_tells_is_kept_until_the_next_and_the_rest_is_not() {
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
