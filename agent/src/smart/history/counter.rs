//! The counters whose growth matters, and where each is read.

use serde::{Deserialize, Serialize};

use super::super::{
    facts::{Attribute, Detail, Facts},
    rules::{counting, statistics},
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

            /// What it counts, in words.
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
    /// ATA 188.
    CommandTimeout = "ata-188", "command timeouts";
    /// ATA 197.
    PendingSectors = "ata-197", "pending sectors";
    /// ATA 198.
    OfflineUncorrectable = "ata-198", "unreadable sectors";
    /// ATA 199, else the device statistics.
    InterfaceCrc = "ata-199", "checksum errors on the cable";
    /// SCSI uncorrected errors of reading, writing and verifying.
    ScsiUncorrected = "scsi-uncorrected", "uncorrected errors";
    /// SCSI grown defects.
    GrownDefects = "scsi-grown-defects", "grown defects";
    /// NVMe media errors.
    MediaErrors = "nvme-media-errors", "media errors";
}

/// The ATA counters by attribute.
const ATA: [(u8, Counter); 6] = [
    (5, Counter::Reallocated),
    (187, Counter::ReportedUncorrect),
    (188, Counter::CommandTimeout),
    (197, Counter::PendingSectors),
    (198, Counter::OfflineUncorrectable),
    (199, Counter::InterfaceCrc),
];
/// Attributes whose raw value can hold several numbers of 16 bits, the count lowest.
const PACKED: [u8; 4] = [5, 10, 187, 188];

impl Counter {
    /// The count in an attribute's raw value.
    pub fn number(attribute: &Attribute) -> u64 {
        if PACKED.contains(&attribute.id) {
            attribute.raw16()
        } else {
            attribute.raw
        }
    }

    /// The counters that these facts hold.
    pub fn read(facts: &Facts) -> Vec<(Self, u64)> {
        match &facts.detail {
            Detail::Ata(ata) => ATA
                .into_iter()
                .filter_map(|(id, counter)| {
                    let attribute = counting(facts, ata, id).map(Self::number);
                    let statistic = || {
                        let places = statistics::COUNTERS.iter();
                        let mut places = places.filter(|(known, _)| *known == counter);
                        let (_, (page, offset)) = places.next()?;
                        ata.statistic(*page, *offset)
                    };
                    Some((counter, attribute.or_else(statistic)?))
                })
                .collect(),
            Detail::Scsi(scsi) => [
                (Self::ScsiUncorrected, scsi.uncorrected()),
                (Self::GrownDefects, scsi.grown_defects),
            ]
            .into_iter()
            .filter_map(|(counter, value)| Some((counter, value?)))
            .collect(),
            Detail::Nvme(nvme) => nvme
                .media_errors
                .map(|errors| (Self::MediaErrors, errors))
                .into_iter()
                .collect(),
            Detail::Mmc(_) | Detail::Unknown => Vec::new(),
        }
    }
}
