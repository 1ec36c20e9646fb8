//! Verdicts on drives that earlier rules judged wrongly, as smartctl 7.3 to 7.5 print them (`fixtures/drives`).

use serde_json::{Value, json};

use super::{ConditionKind, ConditionLevel, SmartCode, Verdict, wear};
use crate::{
    Acknowledgement, Assessment, History, Outcome, Thresholds,
    fixtures::{self, drive},
    judge,
};

const NOW: u64 = 1_735_689_600;

fn judged(name: &str, changes: &[(&str, Value)]) -> Assessment {
    polled(name, changes, &mut History::default(), NOW, None)
}

fn polled(
    name: &str,
    changes: &[(&str, Value)],
    history: &mut History,
    now: u64,
    ack: Option<&Acknowledgement>,
) -> Assessment {
    let outcome = Outcome::Answered(Box::new(fixtures::changed(drive(name), changes)));
    judge(&outcome, history, now, &Thresholds::default(), ack)
}

fn codes(assessment: &Assessment) -> Vec<SmartCode> {
    assessment
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect()
}

/// Returns the conditions of the drive; dropped values have tests of their own.
fn conditions(assessment: &Assessment) -> Vec<(ConditionKind, ConditionLevel)> {
    let conditions = assessment.conditions.iter();
    let conditions = conditions.filter(|one| one.kind != ConditionKind::ImplausibleValues);
    conditions.map(|one| (one.kind, one.level)).collect()
}

fn worn(name: &str, changes: &[(&str, Value)]) -> Option<u64> {
    wear(&fixtures::changed(drive(name), changes)).map(|wear| wear.percent)
}

fn operator() -> Acknowledgement {
    Acknowledgement {
        by: "operator".to_owned(),
        ..Acknowledgement::default()
    }
}

const WORN_OUT: [(ConditionKind, ConditionLevel); 1] =
    [(ConditionKind::Wear, ConditionLevel::NoNewVolumes)];

#[test]
fn an_nvme_drive_that_warns_only_of_its_used_endurance_is_suspect_and_can_be_acknowledged() {
    const LOG: &str = "nvme_smart_health_information_log";
    let mut history = History::default();
    let assessment = polled("nvme-worn-out", &[], &mut history, NOW, None);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(codes(&assessment), [SmartCode::EnduranceExhausted]);
    assert_eq!(conditions(&assessment), WORN_OUT);
    // One more percent of wear is no change.
    let more = (format!("{LOG}.percentage_used"), json!(101));
    let after = polled(
        "nvme-worn-out",
        &[(&more.0, more.1)],
        &mut history,
        NOW + 600,
        Some(&operator()),
    );
    assert_eq!(after.verdict, Verdict::Suspect, "{after:?}");
    assert!(after.findings[0].acknowledged, "{after:?}");
    // With any other evidence the warning counts. Old media errors and a spare at its threshold are none.
    for (field, value, verdict) in [
        ("media_errors", json!(1), Verdict::Suspect),
        ("available_spare", json!(10), Verdict::Suspect),
        ("available_spare", json!(9), Verdict::Bad),
        ("percentage_used", json!(60), Verdict::Bad),
        ("critical_warning", json!(4 | 1), Verdict::Bad),
    ] {
        let place = format!("{LOG}.{field}");
        let assessment = judged("nvme-worn-out", &[(&place, value)]);
        assert_eq!(assessment.verdict, verdict, "{field}: {assessment:?}");
    }
}

#[test]
fn a_sas_drive_that_predicts_only_the_end_of_its_endurance_is_suspect() {
    let changes = [
        ("smart_status.scsi.ascq", json!(0x73)),
        ("scsi_percentage_used_endurance_indicator", json!(100)),
    ];
    let assessment = judged("scsi-prediction-test-mode", &changes);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(codes(&assessment), [SmartCode::EnduranceExhausted]);
    assert_eq!(conditions(&assessment), WORN_OUT);
}

#[test]
fn attributes_that_a_drive_does_not_fill_in_do_not_make_it_worn() {
    assert_eq!(worn("ata-sandforce-unlisted", &[]), None);
    let assessment = judged("ata-sandforce-unlisted", &[]);
    assert_eq!(assessment.verdict, Verdict::Good, "{assessment:?}");
    assert_eq!(conditions(&assessment), []);
    // smartctl's own guess derives from the same attributes.
    let guess = [("endurance_used.current_percent", json!(100))];
    assert_eq!(worn("ata-sandforce-unlisted", &guess), None);
}

#[test]
fn an_endurance_statistic_of_255_is_unknown() {
    const USED: &str = "ata_device_statistics.pages.2.table.0.value";
    assert_eq!(worn("ata-statistics-255", &[]), None);
    assert_eq!(conditions(&judged("ata-statistics-255", &[])), []);
    assert_eq!(worn("ata-statistics-255", &[(USED, json!(254))]), Some(254));
}

#[test]
fn the_statistics_win_over_smartctls_guess_on_an_ata_drive() {
    let guess = [
        ("ata_device_statistics.pages.2.table.0.value", json!(12)),
        ("endurance_used.current_percent", json!(88)),
    ];
    assert_eq!(worn("ata-statistics-255", &guess), Some(12));
}

#[test]
fn attribute_230_of_wd_counts_up_and_its_raw_value_is_in_hundredths() {
    assert_eq!(worn("ata-wd-blue", &[]), Some(1));
    assert_eq!(worn("ata-wd-green", &[]), Some(47));
    for (value, raw, used) in [
        (1, 0x0026_0014_0026_u64, Some(1)),
        (100, 0x6400_0014_6400, Some(100)),
        (100, 0x0140_0014_0140, Some(1)),
        (48, 0x2f24_0014_2f24, Some(48)),
        (3, 0, Some(3)),
        (100, 0, None),
    ] {
        let changes = [
            ("attr 230 value", json!(value)),
            ("attr 230 raw", json!(raw)),
        ];
        assert_eq!(worn("ata-wd-blue", &changes), used, "{value} {raw:#x}");
    }
}

#[test]
fn life_left_is_the_lower_of_value_and_raw_where_the_value_stays_at_100() {
    assert_eq!(worn("ata-kc400", &[]), Some(26));
    assert_eq!(worn("ata-gmts400", &[]), Some(4));
    // Micron counts the used percent in the raw value.
    assert_eq!(worn("ata-mx500", &[]), Some(6));
    // SandForce has another number there.
    assert_eq!(worn("ata-sandforce-packed", &[]), Some(3));
    // A raw value of 0 is a drive that does not fill it in, unless its blocks are erased as often as they may be.
    let empty = ("attr 169 raw", json!(0));
    assert_eq!(worn("ata-gmts400", std::slice::from_ref(&empty)), Some(0));
    let erased = ("attr 167 raw", json!(3100));
    assert_eq!(worn("ata-gmts400", &[empty, erased]), Some(100));
}

#[test]
fn every_vendors_name_for_the_life_left_or_used_is_known_and_zero_is_real() {
    for name in [
        "SSD_Life_Left",
        "SSD_Life_Left_Perc",
        "Lifetime_Left",
        "Lifetime_Remaining%",
        "Perc_Rated_Life_Remain",
        "Remaining_Life",
        "Remaining_Lifetime_Perc",
        "SSD_Remaining_Life_Perc",
        "Life_Remaining_Percent",
        "PCT_Life_Remaining",
        "Percent_Life_Remaining",
        "Percent_Lifetime_Remain",
        "DriveLife_Remaining%",
        "Drive_Life_Remaining%",
    ] {
        let at = |value: u64, raw: u64| {
            let changes = [
                ("attr 231 name", json!(name)),
                ("attr 231 value", json!(value)),
                ("attr 231 raw", json!(raw)),
            ];
            worn("ata-kc400", &changes)
        };
        assert_eq!(at(0, 0), Some(100), "{name}");
        assert_eq!(at(38, 38), Some(62), "{name}");
    }
    for name in [
        "Perc_Rated_Life_Used",
        "Percent_Lifetime_Used",
        "Percent_Life_Used",
        "PCT_Life_Used",
        "Drive_Life_Used%",
        "DriveLife_Used%",
    ] {
        let at = |value: u64, raw: u64| {
            let changes = [
                ("attr 231 name", json!(name)),
                ("attr 231 value", json!(value)),
                ("attr 231 raw", json!(raw)),
            ];
            worn("ata-kc400", &changes)
        };
        assert_eq!(at(96, 4), Some(4), "{name}");
        assert_eq!(at(100, 74), Some(74), "{name}");
        assert_eq!(at(0, 112), Some(112), "{name}");
        assert_eq!(at(100, 0), Some(0), "{name}");
    }
    // These names have the word, and are not about the drive's life.
    for name in [
        "Capacitor_Life",
        "Life_Curve_Status",
        "Drv_Life_Protect_Status",
    ] {
        let changes = [("attr 231 name", json!(name)), ("attr 231 value", json!(1))];
        assert_eq!(worn("ata-kc400", &changes), None, "{name}");
    }
}

#[test]
fn a_count_of_corrected_cells_is_not_a_pending_sector() {
    let assessment = judged("ata-mx500", &[]);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    // Older databases of smartctl name it as on any drive.
    let older = [("attr 197 name", json!("Current_Pending_Sector"))];
    assert_eq!(judged("ata-mx500", &older).verdict, Verdict::Good);
    let other = [
        ("attr 197 name", json!("Current_Pending_Sector")),
        ("model_name", json!("EXAMPLE SSD")),
    ];
    assert_eq!(judged("ata-mx500", &other).verdict, Verdict::Suspect);
}

#[test]
fn a_thousand_grown_defects_or_a_halted_scan_are_bad() {
    let assessment = judged("scsi-grown-defects", &[]);
    assert_eq!(assessment.verdict, Verdict::Bad, "{assessment:?}");
    assert!(codes(&assessment).contains(&SmartCode::GrownDefectsMany));
    assert!(codes(&assessment).contains(&SmartCode::BackgroundScanHalted));
    let none = ("scsi_background_scan", Value::Null);
    let many = |count: u64| {
        let changes = [none.clone(), ("scsi_grown_defect_list", json!(count))];
        judged("scsi-grown-defects", &changes).verdict
    };
    assert_eq!((many(999), many(1000)), (Verdict::Suspect, Verdict::Bad));
    // The scan alone, and by its words if smartctl gives no number.
    for status in [
        json!({"value": 3, "string": "halted due to fatal error"}),
        json!({"string": "halted due to fatal error"}),
    ] {
        let changes = [
            ("scsi_grown_defect_list", json!(0)),
            ("scsi_background_scan.status", status),
            ("scsi_background_scan.result_2", Value::Null),
        ];
        let assessment = judged("scsi-grown-defects", &changes);
        assert_eq!(codes(&assessment), [SmartCode::BackgroundScanHalted]);
        assert_eq!(assessment.verdict, Verdict::Bad);
    }
}

#[test]
fn what_a_background_scan_could_not_read_is_suspect_and_what_it_recovered_is_not() {
    let assessment = judged("scsi-background-errors", &[]);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(codes(&assessment), [SmartCode::BackgroundScanErrors]);
    assert_eq!(assessment.findings[0].value, 2);
    let recovered = [
        ("scsi_background_scan.result_2", Value::Null),
        ("scsi_background_scan.result_3", Value::Null),
    ];
    let assessment = judged("scsi-background-errors", &recovered);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    for result in [&recovered[..1], &recovered[1..]] {
        let assessment = judged("scsi-background-errors", result);
        assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    }
}

#[test]
fn errors_in_the_error_log_count_where_no_attribute_counts_them() {
    let assessment = judged("ata-error-log", &[]);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(codes(&assessment), [SmartCode::ReportedUncorrect]);
    // Errors of other kinds are of the host or the cable.
    let aborted = json!([{
        "error_number": 2, "lifetime_hours": 23011,
        "completion_registers": {"error": 4, "status": 65, "count": 8, "lba": 0, "device": 64},
        "error_description": "Error: ABRT",
    }]);
    let changes = [("ata_smart_error_log.summary.table", aborted)];
    assert_eq!(judged("ata-error-log", &changes).verdict, Verdict::Good);
    // By the register if smartctl does not describe it.
    let plain = json!([{
        "error_number": 2, "lifetime_hours": 23011,
        "completion_registers": {"error": 64, "status": 65, "count": 8, "lba": 1, "device": 64},
        "previous_commands": [{"registers": {"command": 0x60}}],
    }]);
    let changes = [("ata_smart_error_log.summary.table", plain)];
    assert_eq!(judged("ata-error-log", &changes).verdict, Verdict::Suspect);
    let bare = json!([{"completion_registers": {"error": 64, "status": 65}}]);
    let changes = [("ata_smart_error_log.summary.table", bare)];
    assert_eq!(judged("ata-error-log", &changes).verdict, Verdict::Suspect);
    // Attribute 187 is 0 on some drives that have such entries; where it counts, its finding is enough.
    let table = fixtures::document(drive("ata-error-log"))["ata_smart_error_log"].clone();
    let counted = ("ata_smart_error_log", table);
    let assessment = judged("ata-mx500", std::slice::from_ref(&counted));
    assert_eq!(codes(&assessment), [SmartCode::ReportedUncorrect]);
    let assessment = judged("ata-mx500", &[counted, ("attr 187 raw", json!(2))]);
    let subjects: Vec<&str> = assessment
        .findings
        .iter()
        .map(|finding| finding.subject.as_str())
        .collect();
    assert_eq!(subjects, ["ata-187"]);
}

#[test]
fn pending_sectors_of_a_drive_whose_values_begin_at_200_count() {
    // Western Digital: 199 after some hundred sectors.
    let changes = [
        ("attr 197 value", json!(199)),
        ("attr 197 worst", json!(199)),
        ("attr 197 raw", json!(291)),
    ];
    let assessment = judged("ata-error-log-extended", &changes);
    assert!(
        codes(&assessment).contains(&SmartCode::PendingSectorsMany),
        "{assessment:?}"
    );
}

/// An entry of the error log at this hour, with the words for it, the error register and the command.
fn logged(hours: u64, words: &str, error: u64, command: u64) -> Value {
    json!([{
        "error_number": 1, "lifetime_hours": hours,
        "completion_registers": {"error": error, "status": 81},
        "error_description": words,
        "previous_commands": [{"registers": {"command": command}}],
    }])
}

#[test]
fn what_was_not_read_counts_by_every_name_that_it_has() {
    let of = |words: &str, error: u64, command: u64| {
        let table = logged(24_000, words, error, command);
        let changes = [("ata_smart_error_log.summary.table", table)];
        judged("ata-error-log", &changes).verdict
    };
    for (words, error, command, verdict) in [
        ("Error: UNC at LBA = 0x01 = 1", 64, 0x60, Verdict::Suspect),
        (
            "Error: AMNF 8 sectors at LBA = 0x01 = 1",
            1,
            0xc8,
            Verdict::Suspect,
        ),
        ("Error: WP at LBA = 0x01 = 1", 64, 0x61, Verdict::Suspect),
        // A medium that is write-protected.
        ("Error: WP at LBA = 0x01 = 1", 64, 0x35, Verdict::Good),
        (
            "Error: ICRC, ABRT at LBA = 0x01 = 1",
            132,
            0x60,
            Verdict::Good,
        ),
        ("Error: IDNF at LBA = 0x01 = 1", 16, 0x60, Verdict::Good),
        // Without words, by the registers.
        ("", 64, 0x61, Verdict::Suspect),
        ("", 1, 0xc8, Verdict::Suspect),
        ("", 1, 0x61, Verdict::Good),
        ("", 64, 0xb0, Verdict::Good),
    ] {
        assert_eq!(
            of(words, error, command),
            verdict,
            "{words:?} {error} {command:#x}"
        );
    }
}

#[test]
fn an_unreadable_place_in_a_log_counts_until_it_is_outdated() {
    let ata = |hours: u64, power_on: u64, tests: Value, limit: Option<i32>| {
        let words = "Error: UNC at LBA = 0x01 = 1";
        let changes = [
            (
                "ata_smart_error_log.summary.table",
                logged(hours, words, 64, 0x60),
            ),
            ("ata_smart_self_test_log.standard.table", tests),
            ("power_on_time.hours", json!(power_on)),
        ];
        let outcome = Outcome::Answered(Box::new(fixtures::changed(
            drive("ata-error-log"),
            &changes,
        )));
        let mut limits = Thresholds::default();
        if let Some(limit) = limit {
            assert!(limits.set("uncorrectable-hours", limit));
        }
        judge(&outcome, &mut History::default(), NOW, &limits, None).verdict
    };
    let test = |kind: u64, result: u64, hours: u64| json!([{"type": {"value": kind}, "status": {"value": result << 4, "passed": result == 0}, "lifetime_hours": hours}]);
    let none = || json!([]);
    // A year of power-on time, and as it is configured.
    assert_eq!(ata(1000, 9766, none(), None), Verdict::Suspect);
    assert_eq!(ata(1000, 9767, none(), None), Verdict::Good);
    assert_eq!(ata(1000, 9767, none(), Some(20_000)), Verdict::Suspect);
    assert_eq!(ata(1000, 1101, none(), Some(100)), Verdict::Good);
    // The log counts in 16 bits: hour 464 is 66,000.
    assert_eq!(ata(464, 66_001, none(), None), Verdict::Suspect);
    assert_eq!(ata(464, 76_000, none(), None), Verdict::Good);
    // An hour that the drive has not reached, or none at all, has no age.
    assert_eq!(ata(60_000, 20_000, none(), None), Verdict::Suspect);
    // A later extended test that passed read everything; a short one, an earlier one, and one that failed did not.
    assert_eq!(ata(1000, 2000, test(2, 0, 1001), None), Verdict::Good);
    assert_eq!(ata(1000, 2000, test(2, 0, 1000), None), Verdict::Suspect);
    assert_eq!(ata(1000, 2000, test(1, 0, 1500), None), Verdict::Suspect);
    assert_eq!(ata(1000, 2000, test(2, 7, 1500), None), Verdict::Suspect);
    // The same for entries of a SAS drive's background scan.
    let sas = |hours: u64| {
        let changes = [("power_on_time.hours", json!(hours))];
        judged("scsi-background-errors", &changes).verdict
    };
    assert_eq!(
        (sas(38_022), sas(38_023)),
        (Verdict::Suspect, Verdict::Good)
    );
}

#[test]
fn a_self_test_that_no_drive_has_or_of_the_future_does_not_count() {
    let table = |tests: &[(u64, u64, u64)]| {
        let entry = |(kind, result, hours): &(u64, u64, u64)| json!({"type": {"value": kind}, "status": {"value": result << 4}, "lifetime_hours": hours, "lba": 77});
        json!(tests.iter().map(entry).collect::<Vec<Value>>())
    };
    let of = |tests: &[(u64, u64, u64)]| {
        let changes = [
            ("ata_smart_error_log", Value::Null),
            ("ata_smart_self_test_log.standard.table", table(tests)),
        ];
        (
            judged("ata-error-log", &changes).verdict,
            fixtures::changed(drive("ata-error-log"), &changes)
                .logged_places()
                .len(),
        )
    };
    // Short, captive extended, selective.
    for kind in [1, 0x82, 4] {
        assert_eq!(of(&[(kind, 7, 24_000)]), (Verdict::Suspect, 1), "{kind:#x}");
    }
    // Failures of the electronics, by every type that exists.
    assert_eq!(of(&[(2, 5, 24_000)]).0, Verdict::Bad);
    // A vendor's, a reserved one.
    for kind in [0xb0, 0x41, 0xff, 0x31] {
        assert_eq!(of(&[(kind, 5, 24_000)]), (Verdict::Good, 0), "{kind:#x}");
    }
    // A log of types that do not exist has no entry that counts.
    let garbage = [(5, 0, 516), (0x2c, 0, 4688), (2, 5, 3104)];
    assert_eq!(of(&garbage), (Verdict::Good, 0));
    assert_eq!(of(&garbage[1..]), (Verdict::Bad, 1));
    // The drive is 24,144 hours old.
    assert_eq!(of(&[(1, 7, 24_244)]).0, Verdict::Suspect);
    assert_eq!(of(&[(1, 7, 24_245)]), (Verdict::Good, 0));
}

#[test]
fn a_drive_that_once_counted_physical_sectors_goes_on_to() {
    // 512 bytes to 4096: 128 logical sectors are 16.
    let replaced = |raw: u64| [("attr 5 raw", json!(raw))];
    let reallocated = |history: &mut History, raw: u64| {
        let assessment = polled("ata-error-log-extended", &replaced(raw), history, NOW, None);
        let mut findings = assessment.findings.iter();
        let finding = findings.find(|finding| finding.code == SmartCode::ReallocatedSectors);
        finding.map(|finding| (finding.value, finding.level))
    };
    let mut logical = History::default();
    assert_eq!(reallocated(&mut logical, 120), None);
    assert_eq!(reallocated(&mut logical, 128), Some((16, 128)));
    let mut physical = History::default();
    assert_eq!(reallocated(&mut physical, 17), Some((17, 17)));
    assert_eq!(reallocated(&mut physical, 24), Some((24, 24)));
}

#[test]
fn a_status_that_failed_by_wear_or_backup_power_alone_is_suspect() {
    let worn = |changes: &[(&str, Value)]| {
        let text = include_str!("../fixtures/wanted/wear-status-bad-3.json");
        let outcome = Outcome::Answered(Box::new(fixtures::changed(text, changes)));
        judge(
            &outcome,
            &mut History::default(),
            NOW,
            &Thresholds::default(),
            None,
        )
    };
    assert_eq!(codes(&worn(&[])), [SmartCode::EnduranceExhausted]);
    // By its number and the percentage if smartctl has no name for it.
    let unnamed = ("attr 202 name", json!("Unknown_SSD_Attribute"));
    assert_eq!(
        worn(std::slice::from_ref(&unnamed)).verdict,
        Verdict::Suspect
    );
    let other = [
        unnamed,
        ("attr 202 raw", json!(5)),
        ("ata_device_statistics", Value::Null),
        ("attr 173 name", json!("Unknown_Attribute")),
    ];
    assert_eq!(worn(&other).verdict, Verdict::Bad);
    // With another attribute under its threshold, or none, the status counts.
    let more = [("attr 5 when_failed", json!("now"))];
    assert_eq!(worn(&more).verdict, Verdict::Bad);
    let none = [("attr 202 when_failed", json!(""))];
    assert_eq!(worn(&none).verdict, Verdict::Bad);
    let backup = [("attr 202 name", json!("Exception_Mode_Status"))];
    let assessment = worn(&backup);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Suspect, vec![SmartCode::BackupFailed])
    );
}

#[test]
fn packed_raw_values_are_not_counts() {
    let assessment = judged("ata-sandforce-packed", &[]);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    // The same drive if it is not in smartctl's database.
    let plain = [
        ("attr 198 name", json!("Offline_Uncorrectable")),
        ("attr 198 raw.string", json!("11074622")),
    ];
    assert_eq!(
        judged("ata-sandforce-packed", &plain).verdict,
        Verdict::Good
    );
    let counted = [("attr 187 raw", json!(0x0002_0000_0001_u64))];
    let assessment = judged("ata-sandforce-packed", &counted);
    assert_eq!(assessment.verdict, Verdict::Suspect);
    assert_eq!(assessment.findings[0].value, 1);
}

#[test]
fn device_statistics_count_what_the_attributes_do_not_show() {
    const REALLOCATED: &str = "ata_device_statistics.pages.1.table.3.value";
    const UNCORRECTABLE: &str = "ata_device_statistics.pages.2.table.0.value";
    let assessment = judged("ata-statistics-errors", &[]);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(
        codes(&assessment),
        [SmartCode::ReallocatedSectors, SmartCode::ReportedUncorrect]
    );
    let with = |reallocated: u64, uncorrectable: u64| {
        let changes = [
            (REALLOCATED, json!(reallocated)),
            (UNCORRECTABLE, json!(uncorrectable)),
        ];
        judged("ata-statistics-errors", &changes).verdict
    };
    assert_eq!(with(1200, 0), Verdict::Suspect);
    assert_eq!(with(0, 1), Verdict::Suspect);
    assert_eq!(with(0, 0), Verdict::Good);
    // They count logical sectors, eight to a physical one here.
    assert_eq!(with(15 * 8, 0), Verdict::Good);
    assert_eq!(with(16 * 8, 0), Verdict::Suspect);
    // All ones is no count.
    let ones = u64::from(u32::MAX);
    assert_eq!(with(ones, ones), Verdict::Good);
    // The drive does not mark the value as valid.
    let invalid = [
        (
            "ata_device_statistics.pages.1.table.3.flags.valid",
            json!(false),
        ),
        (
            "ata_device_statistics.pages.2.table.0.flags.valid",
            json!(false),
        ),
    ];
    assert_eq!(
        judged("ata-statistics-errors", &invalid).verdict,
        Verdict::Good
    );
}

#[test]
fn a_failed_self_test_of_a_sas_drive_is_outdated_by_later_ones() {
    let assessment = judged("scsi-self-test-outdated", &[]);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    // Short ones outdate a long one when they are many, over a long time.
    let short = |index: usize| (format!("scsi_self_test_{index}.code.value"), json!(1));
    let all_short: Vec<(String, Value)> = (0..6).map(short).collect();
    let mut changes: Vec<(&str, Value)> = all_short
        .iter()
        .map(|(place, value)| (place.as_str(), value.clone()))
        .collect();
    let assessment = judged("scsi-self-test-outdated", &changes);
    assert_eq!(assessment.verdict, Verdict::Good, "{assessment:?}");
    changes.push(("scsi_self_test_0.power_on_time.hours", json!(1900)));
    let assessment = judged("scsi-self-test-outdated", &changes);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    let last = [("scsi_self_test_0.result.value", json!(5))];
    let assessment = judged("scsi-self-test-outdated", &last);
    assert_eq!(assessment.verdict, Verdict::Suspect);
}

#[test]
fn a_helium_drive_that_loses_it_is_suspect() {
    let assessment = judged("ata-helium", &[]);
    assert_eq!(assessment.verdict, Verdict::Suspect, "{assessment:?}");
    assert_eq!(codes(&assessment), [SmartCode::HeliumLow]);
    let at = |value: u64| judged("ata-helium", &[("attr 22 value", json!(value))]).verdict;
    assert_eq!((at(99), at(100)), (Verdict::Suspect, Verdict::Good));
    let unlisted = [("attr 22 name", json!("Unknown_Attribute"))];
    assert_eq!(judged("ata-helium", &unlisted).verdict, Verdict::Suspect);

    let assessment = judged("ata-helium-toshiba", &[]);
    assert_eq!(codes(&assessment), [SmartCode::HeliumLow], "{assessment:?}");
    let upper = [("attr 23 value", json!(100)), ("attr 24 value", json!(99))];
    assert_eq!(
        codes(&judged("ata-helium-toshiba", &upper)),
        [SmartCode::HeliumLow]
    );
    let well = [("attr 23 value", json!(100))];
    assert_eq!(judged("ata-helium-toshiba", &well).verdict, Verdict::Good);
}

#[test]
fn a_sas_warning_of_heat_is_a_condition_and_a_test_of_the_warning_is_nothing() {
    let overheating = [(ConditionKind::Overheating, ConditionLevel::Warning)];
    let assessment = judged("scsi-warning-temperature", &[]);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    assert_eq!(conditions(&assessment), overheating);
    // The drive's own report counts at any temperature.
    let cool = [("temperature.current", json!(41))];
    let assessment = judged("scsi-warning-temperature", &cool);
    assert_eq!(conditions(&assessment), overheating);

    let assessment = judged("scsi-prediction-test-mode", &[]);
    assert_eq!(
        (assessment.verdict, codes(&assessment)),
        (Verdict::Good, vec![])
    );
    assert_eq!(conditions(&assessment), []);

    let ascq = |asc: u8, ascq: u8| {
        let changes = [
            ("smart_status.scsi.asc", json!(asc)),
            ("smart_status.scsi.ascq", json!(ascq)),
        ];
        judged("scsi-prediction-test-mode", &changes).verdict
    };
    // Other warnings are failures of the drive, or predict none.
    assert_eq!(ascq(0x0b, 0x05), Verdict::Suspect);
    assert_eq!(ascq(0x0b, 0x09), Verdict::Good);
    assert_eq!(ascq(0x5d, 0x00), Verdict::Bad);
    assert_eq!(ascq(0x5d, 0x32), Verdict::Bad);
}

#[test]
fn the_temperature_limit_of_a_drive_is_never_above_that_of_its_kind() {
    let overheating = [(ConditionKind::Overheating, ConditionLevel::Warning)];
    let assessment = judged("scsi-hot", &[]);
    assert_eq!(conditions(&assessment), overheating, "{assessment:?}");
    assert_eq!(assessment.conditions[0].threshold, 60);
    // The same for the critical limit of an ATA drive.
    let hot = [
        ("temperature.current", json!(66)),
        ("temperature.limit_max", json!(85)),
    ];
    let assessment = judged("ata-error-log", &hot);
    assert_eq!(conditions(&assessment), overheating, "{assessment:?}");
}

#[test]
fn a_temperature_of_zero_is_unknown() {
    for name in ["ata-mx500", "scsi-hot", "nvme-worn-out"] {
        let places = [
            "temperature.current",
            "nvme_smart_health_information_log.temperature",
        ];
        for value in [0, -273] {
            let changes = places.map(|place| (place, json!(value)));
            let facts = fixtures::changed(drive(name), &changes);
            assert_eq!(facts.temperature.current, None, "{name} {value}");
        }
        let cold = places.map(|place| (place, json!(-5)));
        let facts = fixtures::changed(drive(name), &cold);
        assert_eq!(facts.temperature.current, Some(-5), "{name}");
    }
}

#[test]
fn gigabytes_are_read_in_every_locale() {
    let facts = fixtures::changed(drive("scsi-hot"), &[]);
    let crate::facts::Detail::Scsi(scsi) = &facts.detail else {
        panic!("not SCSI");
    };
    assert_eq!(scsi.read.unwrap().bytes, Some(162_438_759_000_000));
    assert_eq!(scsi.verify.unwrap().bytes, Some(1_525_000_000));
}

#[test]
fn thresholds_that_no_value_can_reach_are_not_thresholds() {
    let bogus = [
        ("attr 232 when_failed", json!("now")),
        ("attr 232 thresh", json!(255)),
    ];
    assert_eq!(judged("ata-wd-blue", &bogus).verdict, Verdict::Good);
    let assessment = judged("ata-wd-blue", &bogus);
    assert_eq!(
        assessment.conditions[0].kind,
        ConditionKind::ImplausibleValues
    );
    let real = [("attr 232 when_failed", json!("now"))];
    assert_eq!(judged("ata-wd-blue", &real).verdict, Verdict::Bad);
}

#[test]
fn a_health_log_of_ones_is_no_health_log() {
    const LOG: &str = "nvme_smart_health_information_log";
    let ones = [
        ("critical_warning", 255),
        ("available_spare", 255),
        ("available_spare_threshold", 255),
        ("percentage_used", 255),
    ]
    .map(|(field, value)| (format!("{LOG}.{field}"), json!(value)));
    let mut changes: Vec<(&str, Value)> = ones
        .iter()
        .map(|(place, value)| (place.as_str(), value.clone()))
        .collect();
    changes.push(("smart_status", Value::Null));
    changes.push(("smartctl.exit_status", json!(4)));
    let media = format!("{LOG}.media_errors");
    changes.push((&media, json!(u64::MAX)));
    let assessment = judged("nvme-worn-out", &changes);
    assert_eq!(assessment.verdict, Verdict::Unknown, "{assessment:?}");
    assert_eq!(conditions(&assessment), []);
}

#[test]
fn what_only_a_deep_poll_shows_holds_until_the_next_one() {
    for (name, deep, light) in [
        ("ata-error-log", vec![], "ata_smart_error_log"),
        ("scsi-background-errors", vec![], "scsi_background_scan"),
        ("scsi-grown-defects", vec![], "scsi_background_scan"),
        ("ata-statistics-errors", vec![], "ata_device_statistics"),
        // More than the log would have counted: the log is of the deep poll, too.
        (
            "ata-statistics-errors",
            vec![("ata_device_statistics.pages.2.table.0.value", json!(70_000))],
            "ata_smart_error_log",
        ),
        (
            "ata-statistics-255",
            vec![("ata_device_statistics.pages.2.table.0.value", json!(88))],
            "ata_device_statistics",
        ),
    ] {
        let mut history = History::default();
        let first = polled(name, &deep, &mut history, NOW, None);
        let mut without = deep.clone();
        without.push((light, Value::Null));
        let second = polled(name, &without, &mut history, NOW + 600, None);
        assert_eq!(codes(&first), codes(&second), "{name}");
        assert_eq!(first.conditions, second.conditions, "{name}");
        assert!(!first.findings.is_empty() || !first.conditions.is_empty());
    }
}

/// An ATA drive whose log has one failed self-test, at this hour.
fn failed_at(hours: u64, power_on: u64) -> Vec<(&'static str, Value)> {
    let test = json!([{
        "type": {"value": 1, "string": "Short offline"},
        "status": {"value": 121, "string": "Completed: read failure", "remaining_percent": 90, "passed": false},
        "lifetime_hours": hours,
    }]);
    vec![
        ("ata_smart_self_test_log.standard.table", test),
        ("power_on_time.hours", json!(power_on)),
    ]
}

#[test]
fn an_acknowledged_self_test_stays_so_and_a_new_one_counts_after_the_hours_wrap() {
    const DRIVE: &str = "ata-error-log";
    let clean = ("ata_smart_error_log", Value::Null);
    let mut history = History::default();
    let mut at = |hours: u64, power_on: u64, now: u64, ack: Option<&Acknowledgement>| {
        let mut changes = failed_at(hours, power_on);
        changes.push(clean.clone());
        let assessment = polled(DRIVE, &changes, &mut history, now, ack);
        assessment.findings[0].acknowledged
    };
    assert!(!at(64_000, 64_010, NOW, None));
    let ack = operator();
    assert!(at(64_000, 64_020, NOW + 600, Some(&ack)));
    // The same entry, when the drive's own count has passed 65,535.
    assert!(at(64_000, 66_000, NOW + 1200, None));
    // A new one: its hour is 66,000, which the log has as 464.
    assert!(!at(464, 66_001, NOW + 1800, None));
    // An entry of hour 1,000 that is still there after the count has passed 66,536 is the same one.
    let mut history = History::default();
    let mut at = |hours: u64, power_on: u64, now: u64, ack: Option<&Acknowledgement>| {
        let mut changes = failed_at(hours, power_on);
        changes.push(clean.clone());
        let assessment = polled(DRIVE, &changes, &mut history, now, ack);
        assessment.findings[0].acknowledged
    };
    assert!(!at(1000, 1001, NOW, None));
    assert!(at(1000, 1002, NOW + 600, Some(&ack)));
    assert!(at(1000, 70_000, NOW + 1200, None));
    assert!(!at(4464, 70_001, NOW + 1800, None));
}
