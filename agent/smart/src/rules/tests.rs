//! All rules on both sides of their thresholds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ConditionKind, ConditionLevel, Severity, SmartCode, Verdict, WearSource, wear};
use crate::{
    Acknowledgement, Assessment, Failure, FailureReason, History, Outcome, Thresholds,
    fixtures::{ATA_HDD, ATA_SSD, NVME, SCSI_HDD, SCSI_SSD, changed, drive},
    judge,
};

/// Polls in which the value at `place` changes, ten minutes apart; the last one is judged.
struct Case {
    code: SmartCode,
    severity: Severity,
    text: &'static str,
    place: &'static str,
    below: Vec<Value>,
    at: Vec<Value>,
    /// The same in all polls.
    also: Vec<(&'static str, Value)>,
}

/// Codes whose findings are BAD. The status of an ATA drive is BAD, too, and that of others is not.
const BAD: &[SmartCode] = &[
    SmartCode::PrefailNow,
    SmartCode::SelfTestFatal,
    SmartCode::PendingSectorsMany,
    SmartCode::OfflineUncorrectableMany,
    SmartCode::ReportedUncorrectMany,
    SmartCode::MediaErrorsMany,
    SmartCode::ErrorsGrowing,
    SmartCode::ReallocatedManyGrowing,
    SmartCode::FailurePredicted,
    SmartCode::UncorrectedErrorsFast,
    SmartCode::GrownDefectsFast,
    SmartCode::GrownDefectsMany,
    SmartCode::BackgroundScanHalted,
    SmartCode::ReliabilityDegraded,
    SmartCode::MediumReadOnly,
    SmartCode::SpareExhausted,
    SmartCode::MediaErrorsFast,
];

fn case(
    code: SmartCode,
    text: &'static str,
    place: &'static str,
    below: &[i64],
    at: &[i64],
) -> Case {
    let values = |numbers: &[i64]| numbers.iter().map(|number| json!(number)).collect();
    Case {
        code,
        severity: if BAD.contains(&code) {
            Severity::Bad
        } else {
            Severity::Suspect
        },
        text,
        place,
        below: values(below),
        at: values(at),
        also: Vec::new(),
    }
}

fn words(
    code: SmartCode,
    text: &'static str,
    place: &'static str,
    below: Value,
    at: Value,
) -> Case {
    Case {
        below: vec![below],
        at: vec![at],
        ..case(code, text, place, &[], &[])
    }
}

impl Case {
    fn also(mut self, place: &'static str, value: Value) -> Self {
        self.also.push((place, value));
        self
    }

    fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// An entry of an ATA self-test log; the status has the result in its upper four bits.
fn ata_test(kind: u64, result: u64, hours: u64) -> Value {
    json!({"type": {"value": kind}, "status": {"value": result << 4, "passed": result == 0}, "lifetime_hours": hours})
}

fn ata_tests(tests: &[(u64, u64)]) -> Value {
    let table: Vec<Value> = tests
        .iter()
        .enumerate()
        .map(|(index, (kind, result))| ata_test(*kind, *result, 1000 - index as u64))
        .collect();
    json!(table)
}

const ATA_TESTS: &str = "ata_smart_self_test_log.standard.table";
const READ: &str = "scsi_error_counter_log.read.total_uncorrected_errors";
const WARNING: &str = "nvme_smart_health_information_log.critical_warning";
const MEDIA: &str = "nvme_smart_health_information_log.media_errors";
const SPARE: &str = "nvme_smart_health_information_log.available_spare";
const STATUS: &str = "smart_status.passed";
const PHYSICAL: &str = "physical_block_size";
const GROUPS: &str = "nvme_smart_health_information_log.endurance_group_critical_warning_summary";
const WORN_SSD: &str = include_str!("../fixtures/wanted/wear-status-bad-3.json");

fn cases() -> Vec<Case> {
    vec![
        // ATA
        words(
            SmartCode::StatusFailed,
            ATA_HDD,
            STATUS,
            json!(true),
            json!(false),
        )
        .severity(Severity::Bad),
        case(
            SmartCode::StatusFailed,
            ATA_HDD,
            "smartctl.exit_status",
            &[0],
            &[8],
        )
        .also("smart_status", Value::Null)
        .severity(Severity::Bad),
        words(
            SmartCode::PrefailNow,
            ATA_HDD,
            "attr 5 when_failed",
            json!(""),
            json!("now"),
        ),
        words(
            SmartCode::PrefailNow,
            ATA_HDD,
            "attr 9 when_failed",
            json!("now"),
            json!("now"),
        )
        .below_is(vec![json!("past")])
        .also("ata_smart_attributes.table.4.flags.prefailure", json!(true)),
        words(
            SmartCode::OldAgeNow,
            ATA_HDD,
            "attr 9 when_failed",
            json!("past"),
            json!("now"),
        ),
        words(
            SmartCode::PrefailPast,
            ATA_HDD,
            "attr 5 when_failed",
            json!(""),
            json!("past"),
        ),
        words(
            SmartCode::SelfTestFatal,
            ATA_HDD,
            ATA_TESTS,
            ata_tests(&[(1, 4)]),
            ata_tests(&[(1, 5)]),
        ),
        words(
            SmartCode::SelfTestFatal,
            ATA_HDD,
            ATA_TESTS,
            ata_tests(&[(1, 0), (1, 6)]),
            ata_tests(&[(1, 1), (1, 6)]),
        ),
        words(
            SmartCode::SelfTestFailed,
            ATA_HDD,
            ATA_TESTS,
            ata_tests(&[(2, 0), (1, 7)]),
            ata_tests(&[(1, 0), (2, 7)]),
        ),
        words(
            SmartCode::SelfTestFailed,
            ATA_HDD,
            ATA_TESTS,
            ata_tests(&[(1, 1), (1, 15)]),
            ata_tests(&[(1, 3)]),
        ),
        case(
            SmartCode::PendingSectorsMany,
            ATA_HDD,
            "attr 197 raw",
            &[39],
            &[40],
        )
        .also(PHYSICAL, json!(512)),
        case(
            SmartCode::PendingSectors,
            ATA_HDD,
            "attr 197 raw",
            &[0],
            &[1],
        ),
        case(
            SmartCode::PendingSectors,
            ATA_HDD,
            "attr 197 raw",
            &[40],
            &[39],
        )
        .also(PHYSICAL, json!(512)),
        case(
            SmartCode::OfflineUncorrectableMany,
            ATA_HDD,
            "attr 198 raw",
            &[39],
            &[40],
        )
        .also(PHYSICAL, json!(512)),
        // Logical sectors, eight to a physical one.
        case(
            SmartCode::PendingSectorsMany,
            ATA_HDD,
            "attr 197 raw",
            &[312],
            &[320],
        )
        .also(PHYSICAL, json!(4096)),
        case(
            SmartCode::OfflineUncorrectableMany,
            ATA_HDD,
            "attr 198 raw",
            &[312],
            &[320],
        )
        .also(PHYSICAL, json!(4096)),
        case(
            SmartCode::ReallocatedSectors,
            ATA_HDD,
            "attr 5 raw",
            &[120],
            &[128],
        )
        .also(PHYSICAL, json!(4096)),
        // A count that is no multiple of eight is in physical sectors.
        case(
            SmartCode::ReallocatedSectors,
            ATA_HDD,
            "attr 5 raw",
            &[15],
            &[17],
        )
        .also(PHYSICAL, json!(4096)),
        case(
            SmartCode::ReportedUncorrectMany,
            ATA_HDD,
            "attr 187 raw",
            &[9999],
            &[10_000],
        ),
        case(
            SmartCode::ReportedUncorrectMany,
            drive("ata-statistics-errors"),
            "ata_device_statistics.pages.2.table.0.value",
            &[9999],
            &[10_000],
        ),
        words(
            SmartCode::EnduranceExhausted,
            WORN_SSD,
            "attr 202 when_failed",
            json!(""),
            json!("now"),
        )
        .also(STATUS, json!(true)),
        words(
            SmartCode::BackupFailed,
            ATA_SSD,
            "attr 202 when_failed",
            json!(""),
            json!("now"),
        ),
        words(
            SmartCode::BackupFailed,
            ATA_SSD,
            "attr 177 name",
            json!("Program_Fail_Count_Chip"),
            json!("Power_Loss_Cap_Test"),
        )
        .also("attr 177 when_failed", json!("now")),
        // Recovering from 1 to the start value without a count: it was never set.
        case(SmartCode::PrefailPast, ATA_HDD, "attr 5 worst", &[1], &[2])
            .also("attr 5 when_failed", json!("past")),
        words(
            SmartCode::PrefailPast,
            ATA_HDD,
            "attr 5 raw",
            json!("0"),
            json!("1"),
        )
        .also("attr 5 when_failed", json!("past"))
        .also("attr 5 worst", json!(1)),
        // A threshold at the value of a new drive.
        case(
            SmartCode::OldAgeNow,
            ATA_HDD,
            "attr 9 thresh",
            &[100],
            &[99],
        )
        .also("attr 9 when_failed", json!("now"))
        .also("attr 9 value", json!(100))
        .also("attr 9 worst", json!(100)),
        case(
            SmartCode::OfflineUncorrectable,
            ATA_HDD,
            "attr 198 raw",
            &[0],
            &[1],
        ),
        case(
            SmartCode::ErrorsGrowing,
            ATA_HDD,
            "attr 5 raw",
            &[0, 1, 2, 2, 3],
            &[0, 1, 2, 3],
        ),
        case(
            SmartCode::ErrorsGrowing,
            ATA_HDD,
            "attr 187 raw",
            &[0, 1, 2],
            &[0, 1, 2, 3],
        ),
        case(
            SmartCode::ErrorsGrowing,
            ATA_HDD,
            "attr 197 raw",
            &[0, 1, 2],
            &[0, 1, 2, 3],
        ),
        case(
            SmartCode::ErrorsGrowing,
            ATA_SSD,
            "attr 197 raw",
            &[3, 2, 1, 0],
            &[0, 1, 2, 3],
        ),
        case(
            SmartCode::ErrorsGrowing,
            ATA_HDD,
            "attr 198 raw",
            &[0, 1, 2],
            &[0, 1, 2, 3],
        ),
        case(
            SmartCode::ReallocatedManyGrowing,
            ATA_HDD,
            "attr 5 raw",
            &[258, 259],
            &[259, 260],
        ),
        case(
            SmartCode::ReallocatedManyGrowing,
            ATA_SSD,
            "attr 5 raw",
            &[260, 260],
            &[259, 260],
        ),
        case(
            SmartCode::ReallocatedSectors,
            ATA_HDD,
            "attr 5 raw",
            &[15],
            &[16],
        )
        .also(PHYSICAL, json!(512)),
        case(
            SmartCode::ReallocatedSectors,
            ATA_HDD,
            "attr 5 raw",
            &[0x0001_0000],
            &[0x0001_0010],
        )
        .also(PHYSICAL, json!(512)),
        case(
            SmartCode::ReallocatedGrew,
            ATA_HDD,
            "attr 5 raw",
            &[3, 3],
            &[3, 4],
        ),
        case(
            SmartCode::ReportedUncorrect,
            ATA_HDD,
            "attr 187 raw",
            &[0],
            &[1],
        ),
        case(
            SmartCode::EndToEndErrors,
            ATA_HDD,
            "attr 184 raw",
            &[0],
            &[1],
        ),
        case(SmartCode::SpinRetries, ATA_HDD, "attr 10 raw", &[0], &[1]),
        case(
            SmartCode::PendingDefects,
            ATA_SSD,
            "ata_pending_defects_log.count",
            &[0],
            &[1],
        ),
        // SCSI
        words(
            SmartCode::StatusFailed,
            SCSI_HDD,
            STATUS,
            json!(true),
            json!(false),
        ),
        case(
            SmartCode::FailurePredicted,
            SCSI_HDD,
            "smart_status.scsi.asc",
            &[0x5c],
            &[0x5d],
        )
        .also(STATUS, json!(false)),
        case(
            SmartCode::DriveWarning,
            SCSI_HDD,
            "smart_status.scsi.asc",
            &[0x0c],
            &[0x0b],
        )
        .also(STATUS, json!(false)),
        case(
            SmartCode::UncorrectedErrorsFast,
            SCSI_HDD,
            READ,
            &[5, 14],
            &[5, 15],
        ),
        case(SmartCode::UncorrectedErrors, SCSI_HDD, READ, &[0], &[1]),
        case(
            SmartCode::UncorrectedErrors,
            SCSI_SSD,
            "scsi_error_counter_log.verify.total_uncorrected_errors",
            &[0],
            &[1],
        ),
        case(
            SmartCode::GrownDefectsFast,
            SCSI_HDD,
            "scsi_grown_defect_list",
            &[0, 9],
            &[0, 10],
        ),
        case(
            SmartCode::GrownDefects,
            SCSI_HDD,
            "scsi_grown_defect_list",
            &[9],
            &[10],
        ),
        case(
            SmartCode::GrownDefectsMany,
            SCSI_HDD,
            "scsi_grown_defect_list",
            &[999],
            &[1000],
        ),
        case(
            SmartCode::BackgroundScanHalted,
            SCSI_HDD,
            "scsi_background_scan.status.value",
            &[8],
            &[3],
        ),
        case(
            SmartCode::BackgroundScanErrors,
            SCSI_HDD,
            "scsi_background_scan.result_1.sense_key.value",
            &[1],
            &[3],
        ),
        words(
            SmartCode::BackgroundScanErrors,
            SCSI_HDD,
            "scsi_background_scan.result_1.reassign_status",
            json!("Recovered via rewrite in-place"),
            json!("Require Write or Reassign Blocks command"),
        )
        .also("scsi_background_scan.result_1.sense_key.value", json!(3)),
        case(
            SmartCode::BackgroundScanErrors,
            SCSI_HDD,
            "scsi_background_scan.status.value",
            &[5],
            &[4],
        ),
        case(
            SmartCode::EnduranceExhausted,
            SCSI_HDD,
            "smart_status.scsi.ascq",
            &[0],
            &[0x73],
        )
        .also("smart_status.scsi.asc", json!(0x5d))
        .also(STATUS, json!(false)),
        case(
            SmartCode::EnduranceExhausted,
            NVME,
            "nvme_smart_health_information_log.percentage_used",
            &[99],
            &[100],
        )
        .also(WARNING, json!(4))
        .also(STATUS, json!(false)),
        case(
            SmartCode::HeliumLow,
            drive("ata-helium"),
            "attr 22 value",
            &[100],
            &[99],
        ),
        case(
            SmartCode::GrownDefectsGrew,
            SCSI_HDD,
            "scsi_grown_defect_list",
            &[3, 3],
            &[3, 4],
        ),
        case(
            SmartCode::PendingDefects,
            SCSI_HDD,
            "scsi_pending_defects.count",
            &[0],
            &[1],
        ),
        case(
            SmartCode::SelfTestFailed,
            SCSI_HDD,
            "scsi_self_test_0.result.value",
            &[2],
            &[3],
        ),
        case(
            SmartCode::SelfTestFailed,
            SCSI_SSD,
            "smartctl.exit_status",
            &[64],
            &[128],
        ),
        // NVMe
        words(
            SmartCode::StatusFailed,
            NVME,
            STATUS,
            json!(true),
            json!(false),
        ),
        case(SmartCode::SpareLow, NVME, SPARE, &[10], &[9]),
        case(SmartCode::SpareLowUnworn, NVME, SPARE, &[50], &[49]),
        case(
            SmartCode::SpareLowUnworn,
            NVME,
            "nvme_smart_health_information_log.percentage_used",
            &[42],
            &[41],
        )
        .also(SPARE, json!(18)),
        case(SmartCode::MediaErrorsMany, NVME, MEDIA, &[999], &[1000]),
        case(SmartCode::SpareLow, NVME, GROUPS, &[2], &[1]),
        case(SmartCode::ReliabilityDegraded, NVME, GROUPS, &[8], &[4]),
        case(SmartCode::MediumReadOnly, NVME, GROUPS, &[4], &[8]),
        case(
            SmartCode::EnduranceExhausted,
            NVME,
            WARNING,
            &[4 | 16],
            &[4],
        )
        .also(
            "nvme_smart_health_information_log.percentage_used",
            json!(128),
        )
        .also(MEDIA, json!(13))
        .also(STATUS, json!(false)),
        case(
            SmartCode::ReliabilityDegraded,
            NVME,
            MEDIA,
            &[13, 13],
            &[13, 14],
        )
        .also(
            "nvme_smart_health_information_log.percentage_used",
            json!(128),
        )
        .also(WARNING, json!(4)),
        case(SmartCode::ReliabilityDegraded, NVME, SPARE, &[10], &[9])
            .also(
                "nvme_smart_health_information_log.percentage_used",
                json!(128),
            )
            .also(WARNING, json!(4)),
        case(SmartCode::SpareLow, NVME, WARNING, &[2], &[1]),
        case(SmartCode::ReliabilityDegraded, NVME, WARNING, &[2], &[4]),
        case(SmartCode::MediumReadOnly, NVME, WARNING, &[4], &[8]),
        case(SmartCode::BackupFailed, NVME, WARNING, &[8], &[16]),
        case(SmartCode::PmrUnreliable, NVME, WARNING, &[16], &[32]),
        case(SmartCode::SpareExhausted, NVME, SPARE, &[6], &[5]),
        case(SmartCode::SpareExhausted, NVME, SPARE, &[1], &[0]).also(
            "nvme_smart_health_information_log.available_spare_threshold",
            json!(1),
        ),
        case(SmartCode::MediaErrorsFast, NVME, MEDIA, &[7, 16], &[7, 17]),
        case(SmartCode::MediaErrors, NVME, MEDIA, &[0], &[1]),
        case(
            SmartCode::SelfTestFailed,
            NVME,
            "nvme_self_test_log.table.0.self_test_result.value",
            &[8],
            &[7],
        ),
    ]
}

impl Case {
    fn below_is(mut self, below: Vec<Value>) -> Self {
        self.below = below;
        self
    }

    fn polled(&self, values: &[Value]) -> Assessment {
        let mut history = History::default();
        let mut last = None;
        for (poll, value) in (0_u64..).zip(values) {
            let mut changes = self.also.clone();
            changes.push((self.place, value.clone()));
            let outcome = Outcome::Answered(Box::new(changed(self.text, &changes)));
            let now = 1_700_000_000 + poll * 600;
            last = Some(judge(
                &outcome,
                &mut history,
                now,
                &Thresholds::default(),
                None,
            ));
        }
        last.unwrap()
    }
}

#[test]
fn every_json_rule_fires_at_its_threshold_and_not_below() {
    for case in cases() {
        let what = format!("{} by {}", case.code, case.place);
        let finding_in = |assessment: &Assessment| {
            let mut findings = assessment.findings.iter();
            findings.find(|finding| finding.code == case.code).cloned()
        };
        assert_eq!(finding_in(&case.polled(&case.below)), None, "{what}: below");
        let assessment = case.polled(&case.at);
        let finding = finding_in(&assessment).unwrap_or_else(|| panic!("{what}: at"));
        assert_eq!(finding.severity, case.severity, "{what}");
        assert!(
            assessment.verdict.weight() >= Verdict::from(case.severity).weight(),
            "{what}: {assessment:?}"
        );
        assert!(finding.message.len() <= 300, "{what}: {}", finding.message);
    }
}

fn timeouts(count: usize, answers_first: bool) -> Assessment {
    let mut history = History::default();
    let judge = |outcome: &Outcome, history: &mut History| {
        judge(
            outcome,
            history,
            1_700_000_000,
            &Thresholds::default(),
            None,
        )
    };
    if answers_first {
        judge(
            &Outcome::Answered(Box::new(changed(NVME, &[]))),
            &mut history,
        );
    }
    let timeout = Outcome::Failed(Failure {
        reason: FailureReason::Timeout,
        detail: "no answer".to_owned(),
    });
    let mut last = None;
    for _ in 0..count {
        last = Some(judge(&timeout, &mut history));
    }
    last.unwrap()
}

fn hangs(assessment: &Assessment) -> bool {
    assessment.verdict == Verdict::Suspect
        && assessment
            .reasons
            .iter()
            .any(|reason| reason.code == SmartCode::ProbeHang)
}

#[test]
fn three_timeouts_of_a_drive_that_used_to_answer_are_a_hang() {
    assert!(!hangs(&timeouts(2, true)));
    assert!(hangs(&timeouts(3, true)));
    assert_eq!(timeouts(5, false).verdict, Verdict::Unknown);
}

#[test]
fn a_state_other_than_running_is_suspect() {
    let with = |state: Option<&str>| {
        let mut facts = changed(NVME, &[]);
        facts.not_running = state.map(str::to_owned);
        let outcome = Outcome::Answered(Box::new(facts));
        judge(
            &outcome,
            &mut History::default(),
            0,
            &Thresholds::default(),
            None,
        )
    };
    assert_eq!(with(None).verdict, Verdict::Good);
    let resetting = with(Some("resetting"));
    assert_eq!(resetting.verdict, Verdict::Suspect);
    assert_eq!(resetting.findings[0].code, SmartCode::NotRunning);
}

#[test]
fn every_code_has_a_case() {
    let mut covered: BTreeSet<SmartCode> = cases().iter().map(|case| case.code).collect();
    // These do not come from JSON; the two tests above cover them.
    covered.extend([SmartCode::ProbeHang, SmartCode::NotRunning]);
    for code in SmartCode::ALL {
        assert!(covered.contains(code), "no case for {code}");
    }
}

#[test]
fn messages_do_not_move_with_the_number() {
    // Eight logical sectors more are one physical sector more.
    let counts_logical = |case: &Case| case.also.contains(&(PHYSICAL, json!(4096)));
    let cases = cases().into_iter();
    for case in cases.filter(|case| case.at.len() == 1 && !counts_logical(case)) {
        let Some(number) = case.at[0]
            .as_u64()
            .filter(|_| case.place.starts_with("attr") || case.place == MEDIA)
        else {
            continue;
        };
        let message = |values: Vec<Value>| {
            let assessment = case.polled(&values);
            let mut findings = assessment.findings.iter();
            let finding = findings.find(|finding| finding.code == case.code);
            finding.map(|finding| (finding.message.clone(), finding.value))
        };
        let now = message(case.at.clone()).unwrap();
        // One more, where that is still the same rule.
        if let Some(later) = message(vec![json!(number + 1)]) {
            assert_eq!(now.0, later.0);
            assert_eq!(now.1 + 1, later.1);
        }
    }
}

#[test]
fn what_means_nothing_is_ignored() {
    for (text, place, value) in [
        (ATA_HDD, "attr 1 raw", json!(999_999)),
        (ATA_HDD, "attr 7 raw", json!(999_999)),
        (ATA_HDD, "attr 195 raw", json!(999_999)),
        (ATA_HDD, "attr 188 raw", json!(999_999_999_999_u64)),
        (ATA_HDD, "attr 199 raw", json!(999_999)),
        (ATA_HDD, "smartctl.exit_status", json!(64 | 32 | 4)),
        (ATA_HDD, "attr 190 when_failed", json!("now")),
        (ATA_HDD, "attr 194 when_failed", json!("now")),
        // A solid state drive replaces blocks, and does not spin.
        (ATA_SSD, "attr 5 raw", json!(200)),
        // By this name it is no end-to-end check, and 198 counts gigabytes.
        (ATA_HDD, "attr 184 name", json!("Later_Bad_Block")),
        (ATA_SSD, "attr 198 raw", json!(88_124)),
        (
            NVME,
            "nvme_smart_health_information_log.num_err_log_entries",
            json!(5000),
        ),
        (
            NVME,
            "nvme_smart_health_information_log.unsafe_shutdowns",
            json!(5000),
        ),
        (
            SCSI_HDD,
            "scsi_error_counter_log.read.total_errors_corrected",
            json!(99_999_999),
        ),
    ] {
        let changes = [(place, value), ("attr 184 raw", json!(3))];
        let changes = if place.starts_with("attr 184") {
            &changes[..]
        } else {
            &changes[..1]
        };
        let outcome = Outcome::Answered(Box::new(changed(text, changes)));
        let assessment = judge(
            &outcome,
            &mut History::default(),
            0,
            &Thresholds::default(),
            None,
        );
        assert_eq!(assessment.verdict, Verdict::Good, "{place}: {assessment:?}");
        assert_eq!(assessment.findings, []);
    }
}

#[test]
fn a_drive_without_status_and_counters_is_unknown_with_the_reason() {
    for (changes, text, detail) in [
        (
            vec![("ata_smart_attributes", Value::Null)],
            ATA_HDD,
            "without a status",
        ),
        (
            vec![
                ("scsi_grown_defect_list", Value::Null),
                ("scsi_error_counter_log", Value::Null),
            ],
            SCSI_HDD,
            "without a status",
        ),
        (
            vec![("nvme_smart_health_information_log", Value::Null)],
            NVME,
            "without a status",
        ),
        (
            vec![
                ("ata_smart_attributes", Value::Null),
                ("smart_support.enabled", json!(false)),
            ],
            ATA_HDD,
            "switched off",
        ),
    ] {
        let mut changes = changes;
        changes.push(("smart_status", Value::Null));
        let outcome = Outcome::Answered(Box::new(changed(text, &changes)));
        let assessment = judge(
            &outcome,
            &mut History::default(),
            0,
            &Thresholds::default(),
            None,
        );
        assert_eq!(assessment.verdict, Verdict::Unknown);
        let failure = assessment.failure.unwrap();
        assert_eq!(failure.reason, FailureReason::NoData);
        assert!(failure.detail.contains(detail), "{failure}");
    }
}

fn condition(case: &Case, values: &[Value]) -> Option<(ConditionKind, ConditionLevel)> {
    let assessment = case.polled(values);
    assert_eq!(assessment.verdict, Verdict::Good, "{assessment:?}");
    let condition = assessment.conditions.first()?;
    Some((condition.kind, condition.level))
}

#[test]
fn every_condition_begins_at_its_threshold() {
    use ConditionKind::{CableErrors, CommandTimeouts, ImplausibleValues, Overheating, Wear};
    use ConditionLevel::{Info, NoNewVolumes, Warning};
    const HEAT: &str = "temperature.current";
    let any = SmartCode::StatusFailed;
    let mut kinds = BTreeSet::new();
    for (case, kind, level) in [
        (
            case(
                any,
                NVME,
                "nvme_smart_health_information_log.percentage_used",
                &[79],
                &[80],
            ),
            Wear,
            Info,
        ),
        (
            case(
                any,
                SCSI_SSD,
                "scsi_percentage_used_endurance_indicator",
                &[79],
                &[90],
            ),
            Wear,
            Warning,
        ),
        (
            case(
                any,
                ATA_SSD,
                "ata_device_statistics.pages.2.table.0.value",
                &[79],
                &[100],
            ),
            Wear,
            NoNewVolumes,
        ),
        (
            case(any, ATA_HDD, "endurance_used.current_percent", &[79], &[89]),
            Wear,
            Info,
        ),
        (
            case(any, ATA_SSD, "attr 177 value", &[21], &[20])
                .also("ata_device_statistics", Value::Null),
            Wear,
            Info,
        ),
        (case(any, ATA_HDD, HEAT, &[59], &[60]), Overheating, Warning),
        (
            case(any, ATA_SSD, HEAT, &[69], &[70])
                .also("temperature.op_limit_max", Value::Null)
                .also("ata_device_statistics", Value::Null),
            Overheating,
            Warning,
        ),
        (
            case(any, ATA_SSD, HEAT, &[64], &[65]).also("temperature.op_limit_max", json!(65)),
            Overheating,
            Warning,
        ),
        (case(any, NVME, HEAT, &[74], &[75]), Overheating, Warning),
        (
            case(any, NVME, HEAT, &[79], &[80])
                .also(
                    "nvme_composite_temperature_threshold",
                    json!({"warning": 0, "critical": 0}),
                )
                .also("temperature.op_limit_max", json!(0))
                .also("temperature.critical_limit_max", Value::Null),
            Overheating,
            Warning,
        ),
        (
            case(any, SCSI_HDD, HEAT, &[59], &[60]).also("temperature.drive_trip", json!(68)),
            Overheating,
            Warning,
        ),
        (case(any, NVME, WARNING, &[0], &[2]), Overheating, Warning),
        (
            case(any, ATA_HDD, "attr 199 raw", &[12, 12], &[12, 13]),
            CableErrors,
            Warning,
        ),
        (
            case(
                any,
                ATA_HDD,
                "attr 188 raw",
                &[0x0001_0001_0001, 0x0001_0001_000a],
                &[0x0001_0001_0001, 0x0001_0001_000b],
            ),
            CommandTimeouts,
            Warning,
        ),
        (
            case(any, ATA_HDD, "attr 198 raw", &[0], &[65_536]),
            ImplausibleValues,
            Info,
        ),
    ] {
        assert_eq!(condition(&case, &case.below), None, "{}", case.place);
        assert_eq!(
            condition(&case, &case.at),
            Some((kind, level)),
            "{}",
            case.place
        );
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), ConditionKind::ALL.len());
}

#[test]
fn a_status_that_failed_for_the_heat_alone_is_no_verdict() {
    let facts = changed(NVME, &[(WARNING, json!(2)), (STATUS, json!(false))]);
    let outcome = Outcome::Answered(Box::new(facts));
    let limits = Thresholds::default();
    let assessment = judge(&outcome, &mut History::default(), 0, &limits, None);
    assert_eq!(assessment.verdict, Verdict::Good);
    assert_eq!(assessment.conditions[0].kind, ConditionKind::Overheating);
}

#[test]
fn heat_ends_five_degrees_lower() {
    let mut history = History::default();
    let mut hot = |degrees: i64| {
        let facts = changed(ATA_HDD, &[("temperature.current", json!(degrees))]);
        let outcome = Outcome::Answered(Box::new(facts));
        let assessment = judge(&outcome, &mut history, 0, &Thresholds::default(), None);
        !assessment.conditions.is_empty()
    };
    assert_eq!(
        [59, 60, 59, 56, 55, 59, 60].map(&mut hot),
        [false, true, true, true, false, false, true]
    );
}

#[test]
fn wear_comes_from_the_best_source() {
    let worn = changed(ATA_SSD, &[]);
    assert_eq!(
        wear(&worn).map(|wear| (wear.percent, wear.source)),
        Some((6, WearSource::Statistics))
    );
    let worn = changed(ATA_SSD, &[("endurance_used.current_percent", json!(7))]);
    assert_eq!(
        wear(&worn).map(|wear| (wear.percent, wear.source)),
        Some((6, WearSource::Statistics))
    );
    let worn = changed(ATA_SSD, &[("ata_device_statistics", Value::Null)]);
    assert_eq!(
        wear(&worn).map(|wear| (wear.percent, wear.source)),
        Some((7, WearSource::Attribute))
    );
    // The number 177 alone has no meaning.
    let worn = changed(
        ATA_SSD,
        &[
            ("ata_device_statistics", Value::Null),
            ("attr 177 name", json!("Unknown_Attribute")),
        ],
    );
    assert_eq!(wear(&worn), None);
}

#[test]
fn a_real_combination_is_reported_whole() {
    // Passed, and yet hundreds of writes that were lost.
    let facts = changed(
        SCSI_HDD,
        &[
            (
                "scsi_error_counter_log.write.total_uncorrected_errors",
                json!(535),
            ),
            (READ, json!(1)),
            ("scsi_grown_defect_list", json!(260)),
        ],
    );
    let outcome = Outcome::Answered(Box::new(facts));
    let mut history = History::default();
    let limits = Thresholds::default();
    let assessment = judge(&outcome, &mut history, 0, &limits, None);
    assert_eq!(assessment.verdict, Verdict::Suspect);
    let findings: Vec<_> = assessment
        .findings
        .iter()
        .map(|f| (f.code, f.value))
        .collect();
    assert_eq!(
        findings,
        [
            (SmartCode::UncorrectedErrors, 536),
            (SmartCode::GrownDefects, 260)
        ]
    );
    let ack = Acknowledgement {
        by: "operator".to_owned(),
        note: "old".to_owned(),
        ..Acknowledgement::default()
    };
    let assessment = judge(&outcome, &mut history, 600, &limits, Some(&ack));
    assert_eq!(assessment.verdict, Verdict::Suspect);
    assert!(
        assessment
            .findings
            .iter()
            .all(|finding| finding.acknowledged)
    );
}
