//! All thresholds of the rules, each with the reason for its default.

use std::ops::RangeInclusive;

macro_rules! thresholds {
    ($($(#[doc = $doc:literal])+ $name:ident, $key:literal: $type:ty = $default:expr, $range:expr;)+) => {
        /// The thresholds of the rules. The defaults are the reviewed ones; the numbers on growth are
        /// engineering judgement.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Thresholds { $($(#[doc = $doc])+ pub $name: $type,)+ }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Thresholds {
            /// The name of each in a configuration.
            pub const KEYS: &'static [&'static str] = &[$($key,)+];

            /// Returns the valid range; None if there is no threshold of this name. Excludes 0 where every drive would reach it.
            pub fn range(key: &str) -> Option<RangeInclusive<i32>> {
                match key {
                    $($key => Some($range),)+
                    _ => None,
                }
            }

            /// Returns what the threshold is compared with and the reason for its value, for the configuration reference; None if there is
            /// no threshold of this name.
            pub fn meaning(key: &str) -> Option<&'static str> {
                match key {
                    $($key => Some(concat!($($doc),+).trim()),)+
                    _ => None,
                }
            }

            /// The value of one; None when there is none of this name.
            pub fn value(&self, key: &str) -> Option<i64> {
                match key {
                    $($key => i64::try_from(self.$name).ok(),)+
                    _ => None,
                }
            }

            /// Sets one. False when there is none of this name, or the value is out of its range.
            pub fn set(&mut self, key: &str, value: i32) -> bool {
                if !Self::range(key).is_some_and(|range| range.contains(&value)) {
                    return false;
                }
                match key {
                    $($key => match value.try_into() {
                        Ok(value) => self.$name = value,
                        Err(_) => return false,
                    },)+
                    _ => return false,
                }
                true
            }
        }
    };
}

/// A count, at least 1.
const COUNT: RangeInclusive<i32> = 1..=i32::MAX;
/// Percent of the rated endurance, which a drive may exceed many times.
const PERCENT: RangeInclusive<i32> = 1..=1000;
/// Degrees Celsius that may be a drive's limit.
const DEGREES: RangeInclusive<i32> = 30..=120;

thresholds! {
    /// ATA attributes 197 and, of a rotating drive, 198, in physical sectors: BAD from this count on. A few can be writes torn by a
    /// power cut; dozens are a failing medium. The two mostly count the same sectors.
    pending_bad, "pending-bad": u64 = 40, COUNT;
    /// ATA attribute 197, pending sectors: SUSPECT from this count on. One sector that cannot be read is one block of data at stake.
    pending_suspect, "pending-suspect": u64 = 1, COUNT;
    /// ATA attribute 198, offline uncorrectable sectors: SUSPECT from this count on, as for 197.
    offline_uncorrectable_suspect, "offline-uncorrectable-suspect": u64 = 1, COUNT;
    /// ATA attribute 5, reallocated sectors: BAD from this count on, if it grows too. Published failure rates rise steeply in the
    /// hundreds, and growth says that it is not an old, settled patch.
    reallocated_bad, "reallocated-bad": u64 = 260, COUNT;
    /// ATA attribute 5, reallocated sectors of a rotating drive: SUSPECT from this count on. Drives are made to remap single sectors.
    reallocated_suspect, "reallocated-suspect": u64 = 16, COUNT;
    /// ATA attribute 5, reallocated sectors of a rotating drive: SUSPECT from this growth in seven days on. A healthy drive does not
    /// remap.
    reallocated_growth, "reallocated-growth": u64 = 1, COUNT;
    /// Polls in a row in which ATA attribute 5, 187, 197 or 198 grew: BAD from this number on. One step is an incident, three are a
    /// trend.
    growing_polls, "growing-polls": u32 = 3, COUNT;
    /// ATA attribute 187, reported uncorrectable errors since they were acknowledged: SUSPECT from this count on. Each is a read that
    /// failed for the host.
    reported_uncorrect, "reported-uncorrect": u64 = 1, COUNT;
    /// ATA attribute 187 or the device statistics, reported uncorrectable errors: BAD from this count on. Hosts read a bad sector
    /// again and again, and each time counts: hundreds can be one sector, tens of thousands are not.
    reported_uncorrect_bad, "reported-uncorrect-bad": u64 = 10_000, COUNT;
    /// Power-on hours after which an unreadable place in an ATA error log or a SCSI background scan no longer counts: one year. The log
    /// never drops it; in a year the sector was written, replaced or found again.
    uncorrectable_hours, "uncorrectable-hours": u64 = 8766, COUNT;
    /// ATA attribute 184, where it counts end-to-end errors: SUSPECT from this count on. Data was damaged inside the drive.
    end_to_end, "end-to-end": u64 = 1, COUNT;
    /// ATA attribute 10, spin retries of a rotating drive: SUSPECT from this count on. The spindle did not come up at once.
    spin_retries, "spin-retries": u64 = 1, COUNT;
    /// Entries in the pending defects log (ATA, SCSI): SUSPECT from this count on, as for 197.
    pending_defects, "pending-defects": u64 = 1, COUNT;
    /// SCSI uncorrected errors, or grown defects: BAD from this growth in 24 hours on. Growth that fast is no settled patch.
    scsi_growth_bad, "scsi-growth-bad": u64 = 10, COUNT;
    /// SCSI uncorrected errors: SUSPECT from this count on. Each is data that was not read or not written.
    scsi_uncorrected, "scsi-uncorrected": u64 = 1, COUNT;
    /// SCSI grown defects: SUSPECT from this count on. Drives are made to have a few.
    grown_defects, "grown-defects": u64 = 10, COUNT;
    /// SCSI grown defects: BAD from this count on. A drive has some thousands of spare sectors.
    grown_defects_bad, "grown-defects-bad": u64 = 1000, COUNT;
    /// SCSI grown defects: SUSPECT from this growth in seven days on.
    grown_defects_growth, "grown-defects-growth": u64 = 1, COUNT;
    /// Places that a SCSI background scan could not recover: SUSPECT from this count on. Each is data at stake, found before a host read
    /// it.
    background_errors, "background-errors": u64 = 1, COUNT;
    /// Helium level of a sealed ATA drive: SUSPECT below it. A drive that does not leak keeps 100.
    helium_level, "helium-level": u64 = 100, 1..=100;
    /// NVMe media errors: BAD from this growth in 24 hours on.
    media_errors_bad, "media-errors-bad": u64 = 10, COUNT;
    /// NVMe media errors: BAD from this count on. Linux does not repeat such a read, so that each is another one, or another attempt of
    /// an application.
    media_errors_many, "media-errors-many": u64 = 1000, COUNT;
    /// NVMe media errors since they were acknowledged: SUSPECT from this count on. Each is data that the medium lost.
    media_errors, "media-errors": u64 = 1, COUNT;
    /// NVMe available spare: BAD at or below the drive's own threshold divided by this. At its threshold the drive warns by itself; at
    /// half of it there is little left to remap to.
    spare_divisor, "spare-divisor": u64 = 2, COUNT;
    /// NVMe available spare, percent: SUSPECT below it when at most half of the lost spare is explained by wear. Blocks that fail on a
    /// drive that was hardly written are defects.
    spare_unworn, "spare-unworn": u64 = 50, 1..=100;
    /// Polls in a row that timed out, of a drive that answered before: SUSPECT from this number on. One can be a busy drive.
    timeouts, "timeouts": u32 = 3, COUNT;
    /// Percent of the rated endurance that are used: from here on it is shown.
    wear_info, "wear-info": u64 = 80, PERCENT;
    /// Percent of the rated endurance that are used: from here on a replacement should be planned.
    wear_warn, "wear-warn": u64 = 90, PERCENT;
    /// Percent of the rated endurance that are used: from here on the drive gets no new volumes.
    wear_full, "wear-full": u64 = 100, PERCENT;
    /// Degrees Celsius from which on a rotating drive is too hot, if it reports no limit of its own. 60 is the common maximum.
    hot_hdd, "hot-hdd": i32 = 60, DEGREES;
    /// Degrees Celsius from which on a SATA or SAS solid state drive is too hot, if it reports no limit of its own. 70 is the common
    /// maximum.
    hot_ssd, "hot-ssd": i32 = 70, DEGREES;
    /// Degrees Celsius from which on an NVMe drive is too hot, if it reports no limit of its own. Drives throttle from about 80 on.
    hot_nvme, "hot-nvme": i32 = 80, DEGREES;
    /// Degrees by which a drive must have cooled below its limit before it is no longer too hot, so that the condition does not flap.
    cool_by, "cool-by": i32 = 5, 0..=30;
    /// ATA attribute 199, CRC errors: a condition from this growth in seven days on. They are the cable's, not the medium's.
    crc_growth, "crc-growth": u64 = 1, COUNT;
    /// ATA attribute 188, command timeouts (its low 16 bits): a condition from this growth in seven days on. Power, cable or controller
    /// cause them as often as the drive, and every reset causes one.
    command_timeout_growth, "command-timeout-growth": u64 = 10, COUNT;
    /// Polls without a finding before SUSPECT clears.
    clean_polls, "clean-polls": u32 = 3, COUNT;
    /// Seconds without a finding before SUSPECT clears. A day has seen the drive's whole routine.
    clean_seconds, "clean-seconds": u64 = 24 * 3600, COUNT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_has_a_name_of_its_own_can_be_set_and_is_in_its_own_range() {
        let mut unique = std::collections::BTreeSet::new();
        for key in Thresholds::KEYS {
            assert!(unique.insert(key), "{key} twice");
            let mut changed = Thresholds::default();
            assert!(changed.set(key, 30), "{key}");
            assert_eq!(changed.value(key), Some(30), "{key}");
            let mut other = Thresholds::default();
            assert!(other.set(key, 29) || other.set(key, 31), "{key}");
            assert_ne!(changed, other, "{key}");
        }
        let mut thresholds = Thresholds::default();
        assert!(!thresholds.set("pending-bad", 0) && !thresholds.set("no-such", 1));
        assert!(!thresholds.set("hot-hdd", 200));
        assert_eq!(thresholds, Thresholds::default());
    }
}
