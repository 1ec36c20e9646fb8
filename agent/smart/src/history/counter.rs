//! Counters whose growth matters, and the fields from which each is read.

use serde::{Deserialize, Serialize};

use super::super::{
    facts::Facts,
    plausible::{Field, number},
    rules::uncorrected_errors,
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $subject:literal, $what:literal;)+) => {
        /// A counter that only a failing drive moves, whatever its protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Counter { $($(#[doc = $doc])+ $name,)+ }

        impl Counter {
            /// Every counter there is.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Stable name; also the subject of findings on its level.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $subject,)+ }
            }

            /// Returns what the counter counts, in words.
            pub fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }
        }
    };
}

counters! {
    /// ATA 5, else the device statistics.
    Reallocated = "ata-5", "replaced sectors";
    /// ATA 187, else the device statistics.
    ReportedUncorrect = "ata-187", "uncorrected errors";
    /// Commands that timed out: ATA 188, its low 16 bits.
    CommandTimeout = "ata-188", "command timeouts";
    /// Sectors that wait to be read or rewritten: ATA 197.
    PendingSectors = "ata-197", "pending sectors";
    /// Sectors that could not be read in an off-line scan: ATA 198.
    OfflineUncorrectable = "ata-198", "unreadable sectors";
    /// ATA 199, else the device statistics.
    InterfaceCrc = "ata-199", "checksum errors on the cable";
    /// SCSI uncorrected errors of reading, writing and verifying.
    ScsiUncorrected = "scsi-uncorrected", "uncorrected errors";
    /// Length of the SCSI grown defect list.
    GrownDefects = "scsi-grown-defects", "grown defects";
    /// Media errors in the NVMe SMART log.
    MediaErrors = "nvme-media-errors", "media errors";
}

impl Counter {
    /// Returns the fields with the counter; the first one that the drive has is used.
    fn fields(self) -> &'static [Field] {
        match self {
            Self::Reallocated => &[Field::Reallocated, Field::StatisticReallocated],
            Self::ReportedUncorrect => &[Field::ReportedUncorrect, Field::StatisticUncorrectable],
            Self::CommandTimeout => &[Field::CommandTimeout],
            Self::PendingSectors => &[Field::PendingSectors],
            Self::OfflineUncorrectable => &[Field::OfflineUncorrectable],
            Self::InterfaceCrc => &[Field::InterfaceCrc, Field::StatisticInterfaceCrc],
            // The sum of three fields.
            Self::ScsiUncorrected => &[],
            Self::GrownDefects => &[Field::GrownDefects],
            Self::MediaErrors => &[Field::MediaErrors],
        }
    }

    /// Returns the counters in these facts, without values that cannot be true.
    pub fn read(facts: &Facts) -> Vec<(Self, u64)> {
        let value = |counter: Self| match counter {
            Self::ScsiUncorrected => uncorrected_errors(facts),
            _ => counter
                .fields()
                .iter()
                .find_map(|field| number(facts, *field)),
        };
        let all = Self::ALL.iter();
        all.filter_map(|counter| Some((*counter, value(*counter)?)))
            .collect()
    }
}
