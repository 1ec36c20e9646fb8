//! Every number that a rule compares with, and why it is that number.

/// The thresholds of the rules. The defaults are the reviewed ones; the numbers on growth are
/// engineering judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// ATA 197, BAD. A few pending sectors can be a power cut's torn writes; dozens are a failing medium.
    pub pending_bad: u64,
    /// ATA 197, SUSPECT. One sector that does not read is one block of somebody's data at stake.
    pub pending_suspect: u64,
    /// ATA 198, BAD. These stayed unreadable when the drive tried again by itself.
    pub offline_uncorrectable_bad: u64,
    /// ATA 198, SUSPECT. As for 197.
    pub offline_uncorrectable_suspect: u64,
    /// ATA 5, BAD when growing too. Published failures rise steeply in the hundreds, and growth says
    /// that it is not an old, settled patch.
    pub reallocated_bad: u64,
    /// ATA 5 of a turning drive, SUSPECT. Single remaps are within what drives are made for.
    pub reallocated_suspect: u64,
    /// ATA 5 of a turning drive, SUSPECT: growth in seven days. A healthy drive does not remap.
    pub reallocated_growth: u64,
    /// Polls in a row in which 5, 187, 197 or 198 grew, BAD. One step is an incident, three are a trend.
    pub growing_polls: u32,
    /// ATA 187 over what was acknowledged, SUSPECT. Each is a read that failed the host.
    pub reported_uncorrect: u64,
    /// ATA 184 where it is the end-to-end check, SUSPECT. Data was damaged inside the drive.
    pub end_to_end: u64,
    /// ATA 10 of a turning drive, SUSPECT. The spindle did not come up at once.
    pub spin_retries: u64,
    /// Pending defects by the log (ATA, SCSI), SUSPECT. As for 197.
    pub pending_defects: u64,
    /// SCSI uncorrected errors or grown defects in 24 hours, BAD. That fast is no settled patch.
    pub scsi_growth_bad: u64,
    /// SCSI uncorrected errors, SUSPECT. Each is data that was not read or not written.
    pub scsi_uncorrected: u64,
    /// SCSI grown defects, SUSPECT. A few are within what drives are made for.
    pub grown_defects: u64,
    /// SCSI grown defects, SUSPECT: growth in seven days.
    pub grown_defects_growth: u64,
    /// NVMe media errors in 24 hours, BAD.
    pub media_errors_bad: u64,
    /// NVMe media errors over what was acknowledged, SUSPECT. Each is data lost by the medium.
    pub media_errors: u64,
    /// NVMe: spare left at or under the drive's threshold divided by this, BAD. Under the threshold
    /// the drive warns by itself; at half of it there is little left to remap to.
    pub spare_divisor: u64,
    /// Timeouts in a row of a drive that used to answer, SUSPECT. One can be a busy drive.
    pub timeouts: u32,
    /// Wear in percent, for information.
    pub wear_info: u64,
    /// Wear in percent at which a replacement should be planned.
    pub wear_warn: u64,
    /// Wear in percent from which on the drive gets no new volumes: its rated endurance is used up.
    pub wear_full: u64,
    /// Degrees Celsius for a turning drive without a limit of its own: 60 is the common maximum.
    pub hot_hdd: i32,
    /// Degrees Celsius for a solid state drive without a limit of its own: 70 is the common maximum.
    pub hot_ssd: i32,
    /// Degrees Celsius for an NVMe drive without a limit of its own: they throttle from about 80 on.
    pub hot_nvme: i32,
    /// Degrees that it must have cooled by before it is no longer hot, or the condition would flap.
    pub cool_by: i32,
    /// ATA 199 in seven days: the cable, not the medium. A condition.
    pub crc_growth: u64,
    /// ATA 188 (its low 16 bits) in seven days. A condition: power, cable or controller as often as
    /// the drive, and single ones come with every reset.
    pub command_timeout_growth: u64,
    /// Clean polls before SUSPECT is left.
    pub clean_polls: u32,
    /// Seconds that the polls must have been clean before SUSPECT is left: a day has seen the
    /// drive's whole routine.
    pub clean_seconds: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            pending_bad: 40,
            pending_suspect: 1,
            offline_uncorrectable_bad: 10,
            offline_uncorrectable_suspect: 1,
            reallocated_bad: 260,
            reallocated_suspect: 16,
            reallocated_growth: 1,
            growing_polls: 3,
            reported_uncorrect: 1,
            end_to_end: 1,
            spin_retries: 1,
            pending_defects: 1,
            scsi_growth_bad: 10,
            scsi_uncorrected: 1,
            grown_defects: 10,
            grown_defects_growth: 1,
            media_errors_bad: 10,
            media_errors: 1,
            spare_divisor: 2,
            timeouts: 3,
            wear_info: 80,
            wear_warn: 90,
            wear_full: 100,
            hot_hdd: 60,
            hot_ssd: 70,
            hot_nvme: 80,
            cool_by: 5,
            crc_growth: 1,
            command_timeout_growth: 10,
            clean_polls: 3,
            clean_seconds: 24 * 3600,
        }
    }
}
