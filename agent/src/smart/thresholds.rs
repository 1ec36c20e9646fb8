//! Every number that a rule compares with, and why it is that number.

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

            /// What it may be set to; None when there is none of this name. 0 of something would be found
            /// on every drive there is.
            pub fn range(key: &str) -> Option<RangeInclusive<i32>> {
                match key {
                    $($key => Some($range),)+
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

/// Something to count: at least one.
const COUNT: RangeInclusive<i32> = 1..=i32::MAX;
/// Percent of the rated endurance, which a drive may outlive many times.
const PERCENT: RangeInclusive<i32> = 1..=1000;
/// Degrees Celsius that can be a drive's limit.
const DEGREES: RangeInclusive<i32> = 30..=120;

thresholds! {
    /// ATA 197, BAD. A few pending sectors can be a power cut's torn writes; dozens are a failing medium.
    pending_bad, "pending-bad": u64 = 40, COUNT;
    /// ATA 197, SUSPECT. One sector that does not read is one block of somebody's data at stake.
    pending_suspect, "pending-suspect": u64 = 1, COUNT;
    /// ATA 198, BAD. These stayed unreadable when the drive tried again by itself.
    offline_uncorrectable_bad, "offline-uncorrectable-bad": u64 = 10, COUNT;
    /// ATA 198, SUSPECT. As for 197.
    offline_uncorrectable_suspect, "offline-uncorrectable-suspect": u64 = 1, COUNT;
    /// ATA 5, BAD when growing too. Published failures rise steeply in the hundreds, and growth says
    /// that it is not an old, settled patch.
    reallocated_bad, "reallocated-bad": u64 = 260, COUNT;
    /// ATA 5 of a turning drive, SUSPECT. Single remaps are within what drives are made for.
    reallocated_suspect, "reallocated-suspect": u64 = 16, COUNT;
    /// ATA 5 of a turning drive, SUSPECT: growth in seven days. A healthy drive does not remap.
    reallocated_growth, "reallocated-growth": u64 = 1, COUNT;
    /// Polls in a row in which 5, 187, 197 or 198 grew, BAD. One step is an incident, three are a trend.
    growing_polls, "growing-polls": u32 = 3, COUNT;
    /// ATA 187 over what was acknowledged, SUSPECT. Each is a read that failed the host.
    reported_uncorrect, "reported-uncorrect": u64 = 1, COUNT;
    /// ATA 184 where it is the end-to-end check, SUSPECT. Data was damaged inside the drive.
    end_to_end, "end-to-end": u64 = 1, COUNT;
    /// ATA 10 of a turning drive, SUSPECT. The spindle did not come up at once.
    spin_retries, "spin-retries": u64 = 1, COUNT;
    /// Pending defects by the log (ATA, SCSI), SUSPECT. As for 197.
    pending_defects, "pending-defects": u64 = 1, COUNT;
    /// SCSI uncorrected errors or grown defects in 24 hours, BAD. That fast is no settled patch.
    scsi_growth_bad, "scsi-growth-bad": u64 = 10, COUNT;
    /// SCSI uncorrected errors, SUSPECT. Each is data that was not read or not written.
    scsi_uncorrected, "scsi-uncorrected": u64 = 1, COUNT;
    /// SCSI grown defects, SUSPECT. A few are within what drives are made for.
    grown_defects, "grown-defects": u64 = 10, COUNT;
    /// SCSI grown defects, BAD. The spare sectors of a drive are in the thousands.
    grown_defects_bad, "grown-defects-bad": u64 = 1000, COUNT;
    /// SCSI grown defects, SUSPECT: growth in seven days.
    grown_defects_growth, "grown-defects-growth": u64 = 1, COUNT;
    /// Places that a SCSI background scan could not recover, SUSPECT. Each is data at stake, found before a host read it.
    background_errors, "background-errors": u64 = 1, COUNT;
    /// Helium level of an ATA drive below which it is SUSPECT. A sealed drive keeps 100.
    helium_level, "helium-level": u64 = 100, 1..=100;
    /// NVMe media errors in 24 hours, BAD.
    media_errors_bad, "media-errors-bad": u64 = 10, COUNT;
    /// NVMe media errors over what was acknowledged, SUSPECT. Each is data lost by the medium.
    media_errors, "media-errors": u64 = 1, COUNT;
    /// NVMe: spare left at or under the drive's threshold divided by this, BAD. Under the threshold
    /// the drive warns by itself; at half of it there is little left to remap to.
    spare_divisor, "spare-divisor": u64 = 2, COUNT;
    /// Timeouts in a row of a drive that used to answer, SUSPECT. One can be a busy drive.
    timeouts, "timeouts": u32 = 3, COUNT;
    /// Wear in percent, for information.
    wear_info, "wear-info": u64 = 80, PERCENT;
    /// Wear in percent at which a replacement should be planned.
    wear_warn, "wear-warn": u64 = 90, PERCENT;
    /// Wear in percent from which on the drive gets no new volumes: its rated endurance is used up.
    wear_full, "wear-full": u64 = 100, PERCENT;
    /// Degrees Celsius for a turning drive without a limit of its own: 60 is the common maximum.
    hot_hdd, "hot-hdd": i32 = 60, DEGREES;
    /// Degrees Celsius for a solid state drive without a limit of its own: 70 is the common maximum.
    hot_ssd, "hot-ssd": i32 = 70, DEGREES;
    /// Degrees Celsius for an NVMe drive without a limit of its own: they throttle from about 80 on.
    hot_nvme, "hot-nvme": i32 = 80, DEGREES;
    /// Degrees that it must have cooled by before it is no longer hot, or the condition would flap.
    cool_by, "cool-by": i32 = 5, 0..=30;
    /// ATA 199 in seven days: the cable, not the medium. A condition.
    crc_growth, "crc-growth": u64 = 1, COUNT;
    /// ATA 188 (its low 16 bits) in seven days. A condition: power, cable or controller as often as
    /// the drive, and single ones come with every reset.
    command_timeout_growth, "command-timeout-growth": u64 = 10, COUNT;
    /// Clean polls before SUSPECT is left.
    clean_polls, "clean-polls": u32 = 3, COUNT;
    /// Seconds that the polls must have been clean before SUSPECT is left: a day has seen the
    /// drive's whole routine.
    clean_seconds, "clean-seconds": u64 = 24 * 3600, COUNT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_has_a_name_of_its_own_can_be_set_and_is_in_its_own_range() {
        let mut seen = std::collections::BTreeSet::new();
        for key in Thresholds::KEYS {
            assert!(seen.insert(key), "{key} twice");
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
