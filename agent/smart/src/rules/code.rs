//! Stable codes of findings, and the effect of acknowledging each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Severity {
    /// The drive may be failing.
    Suspect,
    /// The drive fails, or reports that it will.
    Bad,
}

/// Effect of an operator's acknowledgement on a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledging {
    /// The finding counts again when it gets worse than what was acknowledged.
    Level,
    /// The finding counts again when there is growth after the acknowledgement.
    Growth,
    /// No effect: the finding is the drive's own statement about its current state.
    Never,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $ack:ident;)+) => {
        /// Code of a finding. The names are stable: they appear in tables, JSON, metrics and alerts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum SmartCode { $($(#[doc = $doc])+ $name,)+ }

        impl SmartCode {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Returns the effect of an operator's acknowledgement.
            pub fn acknowledgement(self) -> Acknowledging {
                match self { $(Self::$name => Acknowledging::$ack,)+ }
            }
        }
    };
}

codes! {
    /// The drive's own status says failing (ATA: BAD; elsewhere without a reason that is known: SUSPECT).
    StatusFailed: Never;
    /// ATA: a prefail attribute is at or under its threshold now.
    PrefailNow: Never;
    /// ATA: an old-age attribute other than a temperature is at or under its threshold now.
    OldAgeNow: Level;
    /// ATA: a prefail attribute was at or under its threshold in the past.
    PrefailPast: Level;
    /// ATA: the last self-test ended with an electrical or a mechanical failure.
    SelfTestFatal: Never;
    /// A failed self-test that no later one outdates.
    SelfTestFailed: Level;
    /// ATA 197: many sectors wait to be read or rewritten.
    PendingSectorsMany: Level;
    /// ATA 197: sectors wait to be read or rewritten.
    PendingSectors: Level;
    /// ATA 198 of a rotating drive: many sectors cannot be read.
    OfflineUncorrectableMany: Level;
    /// ATA 198: sectors cannot be read.
    OfflineUncorrectable: Level;
    /// ATA 5, 187, 197 or 198 grew in several polls in a row.
    ErrorsGrowing: Growth;
    /// ATA 5: many sectors were replaced, and the number grows.
    ReallocatedManyGrowing: Growth;
    /// ATA 5 or the device statistics of a rotating drive: sectors were replaced.
    ReallocatedSectors: Level;
    /// ATA 5 of a rotating drive: sectors were replaced lately.
    ReallocatedGrew: Growth;
    /// ATA 187 or the device statistics: thousands of reads failed the host.
    ReportedUncorrectMany: Level;
    /// ATA 187, the device statistics or the error log: reads failed the host.
    ReportedUncorrect: Level;
    /// ATA 184, where it is named so: data was damaged inside the drive.
    EndToEndErrors: Level;
    /// ATA 10 of a rotating drive: it did not spin up at once.
    SpinRetries: Level;
    /// ATA 22, 23, 24: a helium drive leaks.
    HeliumLow: Level;
    /// The pending defects log of ATA or SCSI has entries.
    PendingDefects: Level;
    /// SCSI: failure prediction threshold exceeded (ASC 0x5D).
    FailurePredicted: Never;
    /// A warning that only says that the rated endurance is used up.
    EnduranceExhausted: Level;
    /// SCSI: a warning (ASC 0x0B), other than of heat.
    DriveWarning: Never;
    /// SCSI: many uncorrected errors within a day.
    UncorrectedErrorsFast: Growth;
    /// SCSI: uncorrected errors of reading, writing and verifying, `scsi-uncorrected` or more in total.
    UncorrectedErrors: Level;
    /// SCSI: many grown defects within a day.
    GrownDefectsFast: Growth;
    /// SCSI: a thousand grown defects or more.
    GrownDefectsMany: Level;
    /// SCSI: `grown-defects` or more grown defects, and too few for `GrownDefectsMany`.
    GrownDefects: Level;
    /// SCSI: grown defects lately.
    GrownDefectsGrew: Growth;
    /// SCSI: a fatal error ended the background scan.
    BackgroundScanHalted: Never;
    /// SCSI: the background scan found what it could not recover.
    BackgroundScanErrors: Level;
    /// NVMe, eMMC: the spare is below the drive's own threshold.
    SpareLow: Never;
    /// NVMe: the drive says that its reliability is degraded.
    ReliabilityDegraded: Never;
    /// NVMe: the medium went read-only.
    MediumReadOnly: Never;
    /// NVMe, ATA: the backup of the volatile memory for a power loss failed.
    BackupFailed: Never;
    /// NVMe: the persistent memory region is read-only or unreliable.
    PmrUnreliable: Never;
    /// NVMe, eMMC: hardly any spare left.
    SpareExhausted: Never;
    /// NVMe: spare blocks were used up without wear.
    SpareLowUnworn: Level;
    /// NVMe: many media errors within a day.
    MediaErrorsFast: Growth;
    /// NVMe: a thousand media errors or more.
    MediaErrorsMany: Level;
    /// NVMe: `media-errors` or more media errors, and too few for `MediaErrorsMany`.
    MediaErrors: Level;
    /// The state of the controller or device in sysfs is not the running one.
    NotRunning: Never;
    /// The drive used to answer, and does not any more.
    ProbeHang: Never;
}

impl fmt::Display for SmartCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
