//! What a rule can find: stable codes, how bad each is, and what acknowledging it does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Severity {
    /// The drive may be failing.
    Suspect,
    /// The drive fails, or says that it will.
    Bad,
}

/// What an operator's acknowledgement does to a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledging {
    /// It counts again when it gets worse than what was acknowledged.
    Level,
    /// It counts again when there is growth after the acknowledgement.
    Growth,
    /// Nothing: it is what the drive says of its state now.
    Never,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $severity:ident, $ack:ident;)+) => {
        /// What was found. The names are stable: they appear in tables, JSON, metrics and alerts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// How bad it is as a rule; only the one on the status of an ATA drive is worse.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)+ }
            }

            /// What an operator's acknowledgement does to it.
            pub fn acknowledgement(self) -> Acknowledging {
                match self { $(Self::$name => Acknowledging::$ack,)+ }
            }
        }
    };
}

codes! {
    /// The drive's own status says failing (ATA: BAD; elsewhere without a reason that is known: SUSPECT).
    StatusFailed: Suspect, Never;
    /// ATA: a prefail attribute is at or under its threshold now.
    PrefailNow: Bad, Never;
    /// ATA: an old-age attribute other than a temperature is at or under its threshold now.
    OldAgeNow: Suspect, Level;
    /// ATA: a prefail attribute was at or under its threshold in the past.
    PrefailPast: Suspect, Level;
    /// ATA: the last self-test ended with an electrical or a mechanical failure.
    SelfTestFatal: Bad, Never;
    /// A failed self-test that no later one outdates.
    SelfTestFailed: Suspect, Level;
    /// ATA 197: many sectors wait to be read or rewritten.
    PendingSectorsMany: Bad, Level;
    /// ATA 197: sectors wait to be read or rewritten.
    PendingSectors: Suspect, Level;
    /// ATA 198: many sectors cannot be read.
    OfflineUncorrectableMany: Bad, Level;
    /// ATA 198: sectors cannot be read.
    OfflineUncorrectable: Suspect, Level;
    /// ATA 5, 187, 197 or 198 grew in several polls in a row.
    ErrorsGrowing: Bad, Growth;
    /// ATA 5: many sectors were replaced, and the number grows.
    ReallocatedManyGrowing: Bad, Growth;
    /// ATA 5 or the device statistics of a turning drive: sectors were replaced.
    ReallocatedSectors: Suspect, Level;
    /// ATA 5 of a turning drive: sectors were replaced lately.
    ReallocatedGrew: Suspect, Growth;
    /// ATA 187, the device statistics or the error log: reads failed the host.
    ReportedUncorrect: Suspect, Level;
    /// ATA 184, where it is named so: data was damaged inside the drive.
    EndToEndErrors: Suspect, Level;
    /// ATA 10 of a turning drive: it did not spin up at once.
    SpinRetries: Suspect, Level;
    /// ATA 22, 23, 24: a helium drive loses it.
    HeliumLow: Suspect, Level;
    /// The pending defects log of ATA or SCSI has entries.
    PendingDefects: Suspect, Level;
    /// SCSI: failure prediction threshold exceeded (ASC 0x5D).
    FailurePredicted: Bad, Never;
    /// SCSI, NVMe: a warning that only says that the rated endurance is used up.
    EnduranceExhausted: Suspect, Level;
    /// SCSI: a warning (ASC 0x0B), other than of heat.
    DriveWarning: Suspect, Never;
    /// SCSI: many uncorrected errors within a day.
    UncorrectedErrorsFast: Bad, Growth;
    /// SCSI: uncorrected errors.
    UncorrectedErrors: Suspect, Level;
    /// SCSI: many grown defects within a day.
    GrownDefectsFast: Bad, Growth;
    /// SCSI: a thousand grown defects or more.
    GrownDefectsMany: Bad, Level;
    /// SCSI: grown defects.
    GrownDefects: Suspect, Level;
    /// SCSI: grown defects lately.
    GrownDefectsGrew: Suspect, Growth;
    /// SCSI: a fatal error ended the background scan.
    BackgroundScanHalted: Bad, Level;
    /// SCSI: the background scan found what it could not recover.
    BackgroundScanErrors: Suspect, Level;
    /// NVMe, eMMC: the drive warns that its spare is low.
    SpareLow: Suspect, Never;
    /// NVMe: the drive says that its reliability is degraded.
    ReliabilityDegraded: Bad, Never;
    /// NVMe: the medium went read-only.
    MediumReadOnly: Bad, Never;
    /// NVMe: the volatile memory's backup failed.
    BackupFailed: Suspect, Never;
    /// NVMe: the persistent memory region is read-only or unreliable.
    PmrUnreliable: Suspect, Never;
    /// NVMe, eMMC: hardly any spare left.
    SpareExhausted: Bad, Level;
    /// NVMe: many media errors within a day.
    MediaErrorsFast: Bad, Growth;
    /// NVMe: media errors.
    MediaErrors: Suspect, Level;
    /// The controller's or device's state in sysfs is not the running one.
    NotRunning: Suspect, Never;
    /// The drive used to answer, and does not any more.
    ProbeHang: Suspect, Never;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
