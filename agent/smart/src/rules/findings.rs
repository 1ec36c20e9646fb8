//! All rules of findings, in the order of their execution.

use super::{
    Severity::{Bad, Suspect},
    SmartCode, ata, nvme,
    rule::{Drives, Hit, Input, Limit, Rule, Span, Test},
    scsi, self_tests,
};
use crate::history::Counter;

/// Action for a drive that must be replaced.
const MOVE: &str = "move the data off it and replace the drive";
/// Action for findings that may be a single incident.
const WATCH: &str = "make sure that its data exists elsewhere; acknowledge this if it is known, it \
                     counts again if it grows";

const ACS: &str = "ATA ACS-4, SMART and device statistics";
const DRIVE: &str = "the drive's own status or threshold";
const STUDIES: &str = "field studies: Google 2007, Backblaze; ATA SMART";
const SPC: &str = "SCSI SPC-5, informational exceptions";
const SBC: &str = "SCSI SBC-4, defect lists and log pages";
const NVM: &str = "NVMe base specification, SMART log";
/// Source of rules that are based on real outputs: how drives report, and how this project's rules judged them.
const SURVEY: &str = "ATA ACS-4; survey of 67,066 smartctl outputs, 2026";
const JEDEC: &str = "JEDEC JESD84-B51, PRE_EOL_INFO";

/// Counters whose growth in several polls in a row is a trend.
const TRENDS: &[Counter] = &[
    Counter::Reallocated,
    Counter::ReportedUncorrect,
    Counter::PendingSectors,
    Counter::OfflineUncorrectable,
];

macro_rules! rules {
    ($($code:ident $severity:ident on $drives:ident {
        field: $field:expr, subject: $subject:expr, test: $test:expr,
        meaning: $meaning:expr, action: $action:expr, source: $source:expr
        $(, unless: [$($unless:ident),+])? $(,)?
    })+) => {
        /// All rules of findings, in the order of their execution: a rule's `unless` has an effect for codes of earlier
        /// rules only.
        pub(super) static RULES: &[Rule] = &[$(Rule {
            code: SmartCode::$code,
            severity: $severity,
            drives: Drives::$drives,
            field: $field,
            subject: $subject,
            test: $test,
            meaning: $meaning,
            action: $action,
            source: $source,
            unless: &[$($(SmartCode::$unless),+)?],
        }),+];
    };
}

rules! {
    StatusFailed Bad on Ata {
        field: "smart_status.passed", subject: "status",
        test: Test::Says("false, not by wear or backup power alone", ata::failed_status),
        meaning: "the drive's own health status is \"failed\": it expects to fail soon",
        action: MOVE, source: DRIVE,
    }
    PrefailNow Bad on Ata {
        field: "any prefail attribute, value", subject: "",
        test: Test::Says("at or below the vendor's threshold now", ata::prefail_now),
        meaning: "SMART attribute {what} is at or under the vendor's threshold, which predicts failure",
        action: MOVE, source: DRIVE,
    }
    PrefailPast Suspect on Ata {
        field: "any prefail attribute, worst", subject: "",
        test: Test::Says("was at or below the vendor's threshold", ata::prefail_past),
        meaning: "SMART attribute {what} once was at or under the vendor's threshold, which predicted failure",
        action: WATCH, source: DRIVE,
    }
    OldAgeNow Suspect on Ata {
        field: "any old-age attribute, value", subject: "",
        test: Test::Says("at or below the vendor's threshold now; not temperatures", ata::old_age_now),
        meaning: "SMART attribute {what} is at or under the vendor's threshold, a sign of age",
        action: WATCH, source: DRIVE,
    }
    EnduranceExhausted Suspect on Ata {
        field: "wear attribute (173, 177, 202, 231, …)", subject: "endurance",
        test: Test::Says("at or below the vendor's threshold now", ata::endurance_used),
        meaning: "the drive warns only that its rated endurance is used up",
        action: "plan its replacement; acknowledge this until then",
        source: "smartmontools' database: names; as SPC-5 0x5D, 0x73",
    }
    BackupFailed Suspect on Ata {
        field: "175; Samsung 201, 202", subject: "",
        test: Test::Says("at or below the vendor's threshold now", ata::backup_failed),
        meaning: "SMART {what}: the drive's backup power failed: a power cut may lose what was written",
        action: "replace the drive", source: "smartmontools' database: Power_Loss_Cap_Test, Supercap_Status",
    }
    SelfTestFatal Bad on Ata {
        field: "self-test log", subject: "self-test",
        test: Test::Says("electrical (5) or mechanical (6) failure since the last pass", ata::fatal_self_test),
        meaning: "the drive's last self-test failed in its {what}",
        action: MOVE, source: ACS,
    }
    PendingSectorsMany Bad on Ata {
        field: "197 Current_Pending_Sector", subject: "ata-197",
        test: Test::AtLeast(ata::pending, Limit("pending-bad")),
        meaning: "SMART 197: {limit} or more physical sectors wait to be read or rewritten",
        action: MOVE, source: STUDIES,
    }
    PendingSectors Suspect on Ata {
        field: "197 Current_Pending_Sector", subject: "ata-197",
        test: Test::AtLeast(ata::pending, Limit("pending-suspect")),
        meaning: "SMART 197: {limit} or more sectors wait to be read or rewritten",
        action: WATCH, source: STUDIES, unless: [PendingSectorsMany],
    }
    OfflineUncorrectableMany Bad on AtaHdd {
        field: "198 Offline_Uncorrectable", subject: "ata-198",
        test: Test::AtLeast(ata::offline_uncorrectable, Limit("pending-bad")),
        meaning: "SMART 198: {limit} or more physical sectors cannot be read",
        action: MOVE, source: SURVEY,
    }
    OfflineUncorrectable Suspect on Ata {
        field: "198 Offline_Uncorrectable", subject: "ata-198",
        test: Test::AtLeast(ata::offline_uncorrectable, Limit("offline-uncorrectable-suspect")),
        meaning: "SMART 198: {limit} or more sectors cannot be read",
        action: WATCH, source: STUDIES, unless: [OfflineUncorrectableMany],
    }
    ReportedUncorrectMany Bad on Ata {
        field: "187 Reported_Uncorrect", subject: "ata-187",
        test: Test::AtLeast(ata::reported_uncorrect, Limit("reported-uncorrect-bad")),
        meaning: "SMART 187: {limit} or more errors that could not be corrected were reported",
        action: MOVE, source: SURVEY,
    }
    ReportedUncorrectMany Bad on Ata {
        field: "statistics page 4, offset 8", subject: "ata-statistics-4-8",
        test: Test::AtLeast(ata::uncorrectable_by_statistics, Limit("reported-uncorrect-bad")),
        meaning: "device statistics: {limit} or more errors that could not be corrected were reported",
        action: MOVE, source: SURVEY, unless: [ReportedUncorrectMany],
    }
    ReportedUncorrect Suspect on Ata {
        field: "187 Reported_Uncorrect", subject: "ata-187",
        test: Test::AtLeast(ata::reported_uncorrect, Limit("reported-uncorrect")),
        meaning: "SMART 187: {limit} or more errors that could not be corrected were reported",
        action: WATCH, source: STUDIES, unless: [ReportedUncorrectMany],
    }
    ReportedUncorrect Suspect on Ata {
        field: "statistics page 4, offset 8", subject: "ata-statistics-4-8",
        test: Test::AtLeast(ata::uncorrectable_by_statistics, Limit("reported-uncorrect")),
        meaning: "device statistics: {limit} or more errors that could not be corrected were reported",
        action: WATCH, source: ACS, unless: [ReportedUncorrectMany],
    }
    ReportedUncorrect Suspect on Ata {
        field: "error log: UNC, AMNF, WP, not outdated", subject: "ata-error-log",
        test: Test::AtLeast(ata::uncorrectable_by_log, Limit("reported-uncorrect")),
        meaning: "error log: {limit} or more times data could not be read, and nothing outdates it",
        action: WATCH, source: SURVEY, unless: [ReportedUncorrect, ReportedUncorrectMany],
    }
    EndToEndErrors Suspect on Ata {
        field: "184 End-to-End_Error", subject: "ata-184",
        test: Test::AtLeast(ata::end_to_end, Limit("end-to-end")),
        meaning: "SMART 184: {limit} or more times data was damaged inside the drive",
        action: WATCH, source: STUDIES,
    }
    SpinRetries Suspect on AtaHdd {
        field: "10 Spin_Retry_Count", subject: "ata-10",
        test: Test::AtLeast(ata::spin_retries, Limit("spin-retries")),
        meaning: "SMART 10: {limit} or more retries to spin up",
        action: WATCH, source: STUDIES,
    }
    ReallocatedSectors Suspect on AtaHdd {
        field: "5 Reallocated_Sector_Ct", subject: "ata-5",
        test: Test::AtLeast(ata::reallocated, Limit("reallocated-suspect")),
        meaning: "SMART 5: {limit} or more physical sectors were replaced",
        action: WATCH, source: SURVEY,
    }
    ReallocatedSectors Suspect on AtaHdd {
        field: "statistics page 3, offset 32", subject: "ata-statistics-3-32",
        test: Test::AtLeast(ata::reallocated_by_statistics, Limit("reallocated-suspect")),
        meaning: "device statistics: {limit} or more physical sectors were replaced",
        action: WATCH, source: ACS,
    }
    HeliumLow Suspect on AtaHdd {
        field: "22, 23, 24 Helium; 200 Pressure_Limit", subject: "",
        test: Test::Below(ata::helium, Limit("helium-level")),
        meaning: "SMART {what}: the drive loses the helium that its heads fly in",
        action: "plan its replacement, and make sure that its data exists elsewhere",
        source: "HGST, WD and Toshiba: 100 until it leaks",
    }
    PendingDefects Suspect on Ata {
        field: "pending defects log", subject: "pending-defects",
        test: Test::AtLeast(ata::pending_defects, Limit("pending-defects")),
        meaning: "the drive's pending defects log has entries",
        action: WATCH, source: ACS,
    }
    ErrorsGrowing Bad on Ata {
        field: "5, 187, 197, 198", subject: "",
        test: Test::GrewInPolls(TRENDS, Limit("growing-polls")),
        meaning: "SMART: the number of {what} grew in {limit} polls or more in a row",
        action: MOVE, source: "judgement: one step is an incident, three are a trend",
    }
    ReallocatedManyGrowing Bad on Ata {
        field: "5 Reallocated_Sector_Ct", subject: "ata-5-growing",
        test: Test::AtLeast(reallocated_and_growing, Limit("reallocated-bad")),
        meaning: "SMART 5: {limit} or more physical sectors were replaced, more of them within seven days",
        action: MOVE, source: SURVEY,
    }
    ReallocatedGrew Suspect on AtaHdd {
        field: "5 Reallocated_Sector_Ct", subject: "ata-5-week",
        test: Test::Grew(Counter::Reallocated, Span::Week, Limit("reallocated-growth")),
        meaning: "SMART 5: {limit} or more sectors were replaced within seven days",
        action: WATCH, source: STUDIES,
    }
    FailurePredicted Bad on Scsi {
        field: "smart_status.scsi asc 0x5D", subject: "sense",
        test: Test::Says("status failed; not qualifier 0x73 or 0xFF", scsi::prediction),
        meaning: "the drive predicts that it will fail (ASC 0x5D)",
        action: MOVE, source: SPC,
    }
    EnduranceExhausted Suspect on Scsi {
        field: "smart_status.scsi asc 0x5D, 0x73", subject: "endurance",
        test: Test::Says("status failed", scsi::endurance_used),
        meaning: "the drive warns only that its rated endurance is used up",
        action: "plan its replacement; acknowledge this until then", source: SPC,
    }
    DriveWarning Suspect on Scsi {
        field: "smart_status.scsi asc 0x0B", subject: "sense",
        test: Test::Says("a qualifier of the drive's condition, not of heat", scsi::warning),
        meaning: "the drive warns of its condition (ASC 0x0B)",
        action: "see smartctl -H for which, and check its temperature and power first", source: SPC,
    }
    UncorrectedErrorsFast Bad on Scsi {
        field: "total_uncorrected_errors", subject: "scsi-uncorrected-day",
        test: Test::Grew(Counter::ScsiUncorrected, Span::Day, Limit("scsi-growth-bad")),
        meaning: "{limit} or more new uncorrected errors within 24 hours",
        action: MOVE, source: "judgement: that fast is no settled patch",
    }
    GrownDefectsFast Bad on Scsi {
        field: "scsi_grown_defect_list", subject: "scsi-grown-defects-day",
        test: Test::Grew(Counter::GrownDefects, Span::Day, Limit("scsi-growth-bad")),
        meaning: "{limit} or more new grown defects within 24 hours",
        action: MOVE, source: "judgement: that fast is no settled patch",
    }
    UncorrectedErrors Suspect on Scsi {
        field: "total_uncorrected_errors", subject: "scsi-uncorrected",
        test: Test::AtLeast(scsi::uncorrected, Limit("scsi-uncorrected")),
        meaning: "the drive counts {limit} or more uncorrected errors",
        action: WATCH, source: SBC,
    }
    GrownDefectsMany Bad on Scsi {
        field: "scsi_grown_defect_list", subject: "scsi-grown-defects",
        test: Test::AtLeast(scsi::grown_defects, Limit("grown-defects-bad")),
        meaning: "the drive counts {limit} or more grown defects",
        action: MOVE, source: SBC,
    }
    GrownDefects Suspect on Scsi {
        field: "scsi_grown_defect_list", subject: "scsi-grown-defects",
        test: Test::AtLeast(scsi::grown_defects, Limit("grown-defects")),
        meaning: "the drive counts {limit} or more grown defects",
        action: WATCH, source: SBC, unless: [GrownDefectsMany],
    }
    PendingDefects Suspect on Scsi {
        field: "scsi_pending_defects.count", subject: "pending-defects",
        test: Test::AtLeast(scsi::pending_defects, Limit("pending-defects")),
        meaning: "the drive counts {limit} or more pending defects",
        action: WATCH, source: SBC,
    }
    GrownDefectsGrew Suspect on Scsi {
        field: "scsi_grown_defect_list", subject: "scsi-grown-defects-week",
        test: Test::Grew(Counter::GrownDefects, Span::Week, Limit("grown-defects-growth")),
        meaning: "{limit} or more new grown defects within seven days",
        action: WATCH, source: SBC,
    }
    BackgroundScanHalted Bad on Scsi {
        field: "scsi_background_scan.status", subject: "background-scan",
        test: Test::Says("3, halted due to fatal error", scsi::scan_halted),
        meaning: "a fatal error ended the drive's scan of its own medium",
        action: MOVE, source: SBC,
    }
    BackgroundScanErrors Suspect on Scsi {
        field: "scsi_background_scan.result_N, not outdated", subject: "background-scan-errors",
        test: Test::AtLeast(scsi::scan_errors, Limit("background-errors")),
        meaning: "the drive's scan of its own medium found {limit} or more places that it could not recover (sense key 3 or 4)",
        action: WATCH, source: SBC,
    }
    BackgroundScanErrors Suspect on Scsi {
        field: "scsi_background_scan.status", subject: "background-scan",
        test: Test::Says("4, halted by a pattern of errors", scsi::scan_halted_by_errors),
        meaning: "a pattern of errors ended the drive's scan of its own medium",
        action: WATCH, source: SBC,
    }
    SpareLow Suspect on Nvme {
        field: "critical_warning bit 0", subject: "critical-warning",
        test: Test::Says("set", nvme::spare_low),
        meaning: "the drive warns that its spare blocks run out",
        action: "plan its replacement", source: NVM,
    }
    SpareLow Suspect on Nvme {
        field: "endurance group warning, bit 0", subject: "endurance-groups",
        test: Test::Says("set", nvme::group_spare_low),
        meaning: "an endurance group of the drive warns that its spare blocks run out",
        action: "plan its replacement", source: NVM, unless: [SpareLow],
    }
    ReliabilityDegraded Bad on Nvme {
        field: "critical_warning bit 2", subject: "critical-warning",
        test: Test::Says("set, with other evidence than 100 % used", nvme::reliability_degraded),
        meaning: "the drive says that its reliability is degraded by errors",
        action: MOVE, source: NVM,
    }
    ReliabilityDegraded Bad on Nvme {
        field: "endurance group warning, bit 2", subject: "endurance-groups",
        test: Test::Says("set, with other evidence than 100 % used", nvme::group_degraded),
        meaning: "an endurance group of the drive says that its reliability is degraded by errors",
        action: MOVE, source: NVM, unless: [ReliabilityDegraded],
    }
    EnduranceExhausted Suspect on Nvme {
        field: "critical_warning bit 2", subject: "endurance",
        test: Test::Says("set; 100 % used, spare not below its threshold, media errors do not grow, no other bit but heat", nvme::endurance_used),
        meaning: "the drive warns only that its rated endurance is used up",
        action: "plan its replacement; acknowledge this until then",
        source: "Samsung's firmware; NVMe base specification",
    }
    MediumReadOnly Bad on Nvme {
        field: "critical_warning bit 3", subject: "critical-warning",
        test: Test::Says("set", nvme::read_only),
        meaning: "the drive's medium went read-only",
        action: MOVE, source: NVM,
    }
    MediumReadOnly Bad on Nvme {
        field: "endurance group warning, bit 3", subject: "endurance-groups",
        test: Test::Says("set", nvme::group_read_only),
        meaning: "an endurance group of the drive went read-only",
        action: MOVE, source: NVM, unless: [MediumReadOnly],
    }
    BackupFailed Suspect on Nvme {
        field: "critical_warning bit 4", subject: "critical-warning",
        test: Test::Says("set", nvme::backup_failed),
        meaning: "the backup of the drive's volatile memory failed: a power cut may lose what was written",
        action: "replace the drive", source: NVM,
    }
    PmrUnreliable Suspect on Nvme {
        field: "critical_warning bit 5", subject: "critical-warning",
        test: Test::Says("set", nvme::pmr_unreliable),
        meaning: "the drive's persistent memory region is read-only or unreliable",
        action: "replace the drive", source: NVM,
    }
    SpareExhausted Bad on Nvme {
        field: "available_spare", subject: "nvme-spare",
        test: Test::Says("at most half of the drive's threshold (spare-divisor)", nvme::spare_exhausted),
        meaning: "the drive has {limit} % of its spare blocks left, or less",
        action: MOVE, source: NVM,
    }
    SpareLow Suspect on Nvme {
        field: "available_spare", subject: "nvme-spare",
        test: Test::Says("below the drive's threshold, without the warning", nvme::spare_below_threshold),
        meaning: "the drive has less than {limit} % of its spare blocks left, its own threshold",
        action: "plan its replacement", source: NVM, unless: [SpareLow, SpareExhausted],
    }
    SpareLowUnworn Suspect on Nvme {
        field: "available_spare, percentage_used", subject: "nvme-spare-unworn",
        test: Test::Below(nvme::spare_without_wear, Limit("spare-unworn")),
        meaning: "the drive has less than {limit} % of its spare blocks left, and wear does not explain it",
        action: WATCH, source: "judgement: blocks that fail without wear are defects",
        unless: [SpareLow, SpareExhausted],
    }
    MediaErrorsFast Bad on Nvme {
        field: "media_errors", subject: "nvme-media-errors-day",
        test: Test::Grew(Counter::MediaErrors, Span::Day, Limit("media-errors-bad")),
        meaning: "{limit} or more new media errors within 24 hours",
        action: MOVE, source: "judgement: that fast is no settled patch",
    }
    MediaErrorsMany Bad on Nvme {
        field: "media_errors", subject: "nvme-media-errors",
        test: Test::AtLeast(nvme::media_errors, Limit("media-errors-many")),
        meaning: "the drive counts {limit} or more media errors: reads or writes that failed",
        action: MOVE, source: "judgement: Linux does not repeat such reads",
    }
    MediaErrors Suspect on Nvme {
        field: "media_errors", subject: "nvme-media-errors",
        test: Test::AtLeast(nvme::media_errors, Limit("media-errors")),
        meaning: "the drive counts {limit} or more media errors: reads or writes that failed",
        action: WATCH, source: NVM, unless: [MediaErrorsMany],
    }
    SpareLow Suspect on Mmc {
        field: "pre_eol_info", subject: "mmc-pre-eol",
        test: Test::Says("2", nvme::mmc_spare_low),
        meaning: "the drive says that four fifths of its reserved blocks are used up",
        action: "plan its replacement", source: JEDEC,
    }
    SpareExhausted Bad on Mmc {
        field: "pre_eol_info", subject: "mmc-pre-eol",
        test: Test::Says("3", nvme::mmc_spare_exhausted),
        meaning: "the drive says that nine tenths of its reserved blocks are used up",
        action: MOVE, source: JEDEC,
    }
    StatusFailed Suspect on NotAta {
        field: "smart_status.passed", subject: "status",
        test: Test::Says("false, and nothing else says why", failed_status_alone),
        meaning: "the drive's own health status is \"failed\", for a reason it does not give",
        action: MOVE, source: DRIVE,
        unless: [FailurePredicted, DriveWarning, EnduranceExhausted],
    }
    SelfTestFailed Suspect on All {
        field: "self-test log", subject: "self-test",
        test: Test::Says("failed; outdated by a pass of its kind, an extended one, or on SCSI five of any", self_tests::failed),
        meaning: "a self-test of the drive failed, and no later one passed",
        action: "run an extended self-test (smartctl -t long), and replace the drive if it fails again",
        source: "ATA ACS-4, SCSI SPC-5 and NVMe: self-test logs",
    }
    NotRunning Suspect on All {
        field: "state in sysfs", subject: "state",
        test: Test::Says("not running or live", not_running),
        meaning: "the kernel says that the drive is {what}, not running",
        action: "see dmesg, and check its cable and slot", source: "Linux: sysfs",
    }
    ProbeHang Suspect on All {
        field: "SMART poll", subject: "probe",
        test: Test::TimedOut(Limit("timeouts")),
        meaning: "the drive used to answer health queries, and {limit} or more in a row timed out",
        action: "see dmesg, make sure that its data exists elsewhere, and reseat or replace it",
        source: "judgement: one can be a busy drive",
    }
}

fn reallocated_and_growing(input: &Input<'_>) -> Option<Hit> {
    let grown = input.trends.get(Counter::Reallocated)?.week.unwrap_or(0);
    let limit = Limit("reallocated-growth").of(input.limits);
    let replaced = ata::reallocated(input).or_else(|| ata::reallocated_by_statistics(input));
    replaced.filter(|_| grown >= limit)
}

/// Matches a failed status that neither an NVMe critical warning nor a SCSI sense code explains, so that it is not lost.
fn failed_status_alone(input: &Input<'_>) -> Vec<Hit> {
    let explained = nvme::explains(input.facts) || scsi::explains(input.facts);
    Hit::yes(input.facts.status() == Some(false) && !explained)
}

fn not_running(input: &Input<'_>) -> Vec<Hit> {
    let state = input.facts.not_running.iter();
    let hit = |state: &String| Hit {
        what: format!("{state:?}"),
        ..Hit::value(1)
    };
    state.map(hit).collect()
}
