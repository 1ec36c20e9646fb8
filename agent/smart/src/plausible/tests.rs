//! All declarations on both sides of their limits, and the result for a drive whose values were dropped.

use serde_json::{Value, json};

use super::{Field, dropped, number, rows};
use crate::{
    Assessment, History, Outcome, Thresholds, Verdict,
    facts::Facts,
    fixtures::{ATA_HDD, ATA_SSD, NVME, SCSI_HDD, changed, drive},
    judge,
    rules::ConditionKind,
};

const STATISTIC_SSD: &str = include_str!("../fixtures/wanted/stat-4-8-garbage-ssd-1.json");
const STATISTIC_HDD: &str = include_str!("../fixtures/wanted/stat-4-8-against-187-1.json");
const LOG: &str = "nvme_smart_health_information_log";

fn judged(facts: Facts) -> Assessment {
    let outcome = Outcome::Answered(Box::new(facts));
    judge(
        &outcome,
        &mut History::default(),
        0,
        &Thresholds::default(),
        None,
    )
}

/// One field with one value that can be true and one that cannot.
struct Case {
    field: Field,
    text: &'static str,
    place: &'static str,
    kept: (Value, u64),
    dropped: Value,
    also: Vec<(&'static str, Value)>,
}

fn case(
    field: Field,
    text: &'static str,
    place: &'static str,
    kept: (Value, u64),
    dropped: Value,
) -> Case {
    Case {
        field,
        text,
        place,
        kept,
        dropped,
        also: Vec::new(),
    }
}

impl Case {
    fn also(mut self, place: &'static str, value: Value) -> Self {
        self.also.push((place, value));
        self
    }
}

fn same(value: u64) -> (Value, u64) {
    (json!(value), value)
}

fn cases() -> Vec<Case> {
    let most = u64::from(u32::MAX) - 1;
    let mut cases = vec![
        // The scale of a rate, and the flag of one.
        case(
            Field::ReportedUncorrect,
            ATA_SSD,
            "attr 187 value",
            (json!(100), 5000),
            json!(118),
        )
        .also("attr 187 raw", json!(5000)),
        case(
            Field::ReportedUncorrect,
            ATA_HDD,
            "attr 187 flags.error_rate",
            (json!(false), 65_536),
            json!(true),
        )
        .also("attr 187 raw", json!(65_536)),
        case(
            Field::ReportedUncorrect,
            ATA_HDD,
            "attr 187 raw",
            same(1_344_059),
            json!(u32::MAX),
        ),
        case(
            Field::ReportedUncorrect,
            ATA_HDD,
            "attr 187 raw",
            (json!(0x0002_0000_0001_u64), 1),
            json!(0xffff_ffff_ffff_u64),
        ),
        // A rotating drive whose counts may begin at 200, and one with a threshold.
        case(
            Field::ReportedUncorrect,
            ATA_HDD,
            "attr 187 thresh",
            (json!(0), 5),
            json!(50),
        )
        .also("attr 187 value", json!(118))
        .also("attr 187 raw", json!(5)),
        // A solid state drive may keep no error log.
        case(
            Field::ReportedUncorrect,
            ATA_SSD,
            "attr 187 raw",
            same(65_536),
            json!(u32::MAX),
        ),
        case(
            Field::PendingSectors,
            ATA_HDD,
            "attr 197 raw",
            same(65_535),
            json!(65_536),
        ),
        case(
            Field::PendingSectors,
            ATA_HDD,
            "attr 197 raw",
            (json!(43_727_574_728_707_u64), 3),
            json!(282_013_244),
        ),
        case(
            Field::PendingSectors,
            ATA_HDD,
            "attr 197 raw.string",
            (json!("0"), 0),
            json!("0 0 0"),
        ),
        case(
            Field::OfflineUncorrectable,
            ATA_HDD,
            "attr 198 raw",
            same(9),
            json!(23_498_636),
        ),
        // A copy of attribute 5 or 196 on a solid state drive.
        case(
            Field::PendingSectors,
            ATA_SSD,
            "attr 197 raw",
            same(19),
            json!(20),
        ),
        case(
            Field::PendingSectors,
            drive("ata-gmts400"),
            "attr 196 raw",
            (json!(6), 7),
            json!(7),
        )
        .also("attr 197 raw", json!(7)),
        case(
            Field::OfflineUncorrectable,
            drive("ata-gmts400"),
            "attr 160 raw",
            (json!(21), 21),
            json!(0),
        )
        .also("attr 196 raw", json!(21))
        .also("attr 198 raw", json!(21)),
        // Statistics that attribute 187 or the log contradicts.
        case(
            Field::StatisticUncorrectable,
            STATISTIC_HDD,
            "attr 187 raw",
            (json!(1), 4),
            json!(0),
        ),
        case(
            Field::StatisticUncorrectable,
            STATISTIC_SSD,
            "ata_device_statistics.pages.0.table.0.value",
            same(2000),
            json!(2001),
        )
        .also("attr 187 raw", json!(1)),
        case(
            Field::StatisticUncorrectable,
            STATISTIC_SSD,
            "ata_device_statistics.pages.0.table.0.value",
            same(65_535),
            json!(326_368_197),
        )
        .also("attr 187 name", json!("Unknown_Attribute")),
        case(
            Field::StatisticUncorrectable,
            STATISTIC_SSD,
            "attr 187 value",
            (json!(100), 173_870),
            json!(118),
        )
        .also("attr 187 raw", json!(173_870))
        .also(
            "ata_device_statistics.pages.0.table.0.value",
            json!(173_870),
        )
        .also("ata_smart_error_log", Value::Null),
        case(
            Field::StatisticReallocated,
            drive("ata-statistics-errors"),
            "ata_device_statistics.pages.1.table.3.value",
            same(524_280),
            json!(524_281),
        ),
        case(
            Field::RotationRate,
            include_str!("../fixtures/wanted/ssd-taken-for-hdd-1.json"),
            "ata_smart_attributes.table.0.name",
            (json!("Spin_Up_Time"), 7200),
            json!("Raw_Read_Error_Rate"),
        )
        .also("rotation_rate", json!(7200)),
        case(
            Field::PowerOnHours,
            NVME,
            "power_on_time.hours",
            same(262_980),
            json!(929_166),
        ),
        // SCSI.
        case(
            Field::GrownDefects,
            SCSI_HDD,
            "scsi_grown_defect_list",
            same(16_396),
            json!(u32::MAX),
        ),
        case(
            Field::ScsiRead,
            SCSI_HDD,
            "scsi_error_counter_log.read.total_uncorrected_errors",
            same(535),
            json!(u64::MAX),
        ),
    ];
    // NVMe.
    let in_log = [
        (Field::Spare, "available_spare", 100, json!(101)),
        (Field::Spare, "available_spare", 18, json!(127)),
        (
            Field::SpareThreshold,
            "available_spare_threshold",
            100,
            json!(255),
        ),
        (Field::CriticalWarning, "critical_warning", 8, json!(255)),
        (Field::MediaErrors, "media_errors", most, json!(1_u64 << 32)),
        (Field::MediaErrors, "media_errors", 285_002, json!(u64::MAX)),
        (
            Field::MediaErrors,
            "media_errors",
            13,
            json!(79_228_162_514_264_337_593_543_950_348.0_f64),
        ),
    ];
    for (field, key, kept, dropped) in in_log {
        let place = Box::leak(format!("{LOG}.{key}").into_boxed_str());
        cases.push(case(field, NVME, place, same(kept), dropped));
    }
    cases.push(
        case(
            Field::PercentageUsed,
            NVME,
            "nvme_smart_health_information_log.available_spare_threshold",
            (json!(10), 255),
            json!(255),
        )
        .also(
            "nvme_smart_health_information_log.percentage_used",
            json!(255),
        ),
    );
    cases.push(
        case(
            Field::MediaErrors,
            NVME,
            "nvme_smart_health_information_log.host_reads",
            (json!(1001), 1001),
            json!(1000),
        )
        .also("nvme_smart_health_information_log.host_writes", json!(0))
        .also(
            "nvme_smart_health_information_log.media_errors",
            json!(1001),
        ),
    );
    cases
}

#[test]
fn a_value_is_kept_up_to_its_limit_and_dropped_beyond_with_a_reason() {
    for case in cases() {
        let with = |value: &Value| {
            let mut changes = case.also.clone();
            changes.push((case.place, value.clone()));
            changed(case.text, &changes)
        };
        let what = format!("{:?} by {}", case.field, case.place);
        let kept = with(&case.kept.0);
        assert_eq!(number(&kept, case.field), Some(case.kept.1), "{what}: kept");
        let gone = with(&case.dropped);
        assert_eq!(number(&gone, case.field), None, "{what}: dropped");
        assert!(
            dropped(&gone).len() > dropped(&kept).len(),
            "{what}: {:?}",
            dropped(&gone)
        );
        let shown = judged(gone).conditions;
        let shown = shown
            .iter()
            .find(|one| one.kind == ConditionKind::ImplausibleValues);
        let message = &shown.unwrap_or_else(|| panic!("{what}: not shown")).message;
        assert!(message.contains("cannot be true"), "{what}: {message}");
    }
}

#[test]
fn no_fixture_of_a_healthy_drive_loses_a_counter() {
    for (name, allowed) in [
        ("ata-mx500", 0),
        ("ata-kc400", 0),
        ("ata-wd-blue", 0),
        ("ata-helium", 0),
        ("scsi-hot", 0),
        ("nvme-worn-out", 0),
        // Attribute 198 is a rate in both.
        ("ata-sandforce-packed", 1),
        ("ata-sandforce-unlisted", 1),
    ] {
        let all = dropped(&changed(drive(name), &[]));
        assert_eq!(all.len(), allowed, "{name}: {all:?}");
    }
}

#[test]
fn a_drive_whose_only_counter_was_dropped_is_unknown_with_the_reason() {
    let table = |raw: u64| {
        json!([
            {"id": 9, "name": "Power_On_Hours", "value": 90, "worst": 90, "thresh": 0, "raw": {"value": 9000}},
            {"id": 187, "name": "Uncorrectable_Error_Cnt", "value": 100, "worst": 100, "thresh": 50,
             "flags": {"prefailure": true, "error_rate": true}, "raw": {"value": raw}},
        ])
    };
    let of = |raw: u64| {
        let changes = [
            ("ata_smart_attributes.table", table(raw)),
            ("ata_device_statistics", Value::Null),
            ("ata_pending_defects_log", Value::Null),
        ];
        judged(changed(ATA_SSD, &changes))
    };
    assert_eq!(of(0).verdict, Verdict::Good);
    let assessment = of(173_870_933);
    assert_eq!(assessment.verdict, Verdict::Unknown, "{assessment:?}");
    let failure = assessment.failure.unwrap();
    assert!(
        failure.detail.contains("Reported_Uncorrect (187)"),
        "{failure}"
    );
}

#[test]
fn a_bare_passed_is_unknown_and_one_vendor_threshold_is_enough() {
    let bare = [
        ("ata_smart_attributes", Value::Null),
        ("ata_device_statistics", Value::Null),
        ("ata_pending_defects_log", Value::Null),
    ];
    let assessment = judged(changed(ATA_SSD, &bare));
    assert_eq!(assessment.verdict, Verdict::Unknown, "{assessment:?}");
    let failure = assessment.failure.unwrap();
    assert!(failure.detail.contains("no proof of health"), "{failure}");
    let table = |thresh: u64| {
        let row = json!([{"id": 232, "name": "Available_Reservd_Space", "value": 100, "worst": 100, "thresh": thresh,
            "raw": {"value": 0}}]);
        let mut changes = bare.to_vec();
        changes[0] = ("ata_smart_attributes", json!({"table": row}));
        judged(changed(ATA_SSD, &changes)).verdict
    };
    assert_eq!((table(10), table(0)), (Verdict::Good, Verdict::Unknown));
    let scsi = [
        ("scsi_grown_defect_list", Value::Null),
        ("scsi_error_counter_log", Value::Null),
    ];
    assert_eq!(judged(changed(SCSI_HDD, &scsi)).verdict, Verdict::Unknown);
    // "Failed" is a finding, whatever else is missing.
    let mut failed = bare.to_vec();
    failed.push(("smart_status.passed", json!(false)));
    assert_eq!(judged(changed(ATA_SSD, &failed)).verdict, Verdict::Bad);
}

#[test]
fn an_empty_nvme_log_is_unknown_and_one_number_in_it_is_enough() {
    let empty = include_str!("../fixtures/wanted/nvme-all-zero-1.json");
    let assessment = judged(changed(empty, &[]));
    assert_eq!(assessment.verdict, Verdict::Unknown);
    // One reason is shown once.
    let message = &assessment.conditions[0].message;
    assert_eq!(message.matches("zeros or ones").count(), 1, "{message}");
    for (key, value) in [
        ("available_spare", 100),
        ("data_units_read", 1),
        ("host_writes", 1),
    ] {
        let place = format!("{LOG}.{key}");
        let assessment = judged(changed(empty, &[(&place, json!(value))]));
        assert_eq!(assessment.verdict, Verdict::Good, "{key}");
    }
    let warning = [(
        "nvme_smart_health_information_log.critical_warning",
        json!(8),
    )];
    assert_eq!(judged(changed(empty, &warning)).verdict, Verdict::Bad);
}

#[test]
fn a_status_made_of_a_warning_of_ones_is_no_status() {
    let ones = [
        (
            "nvme_smart_health_information_log.critical_warning",
            json!(255),
        ),
        ("smart_status.passed", json!(false)),
        ("smartctl.exit_status", json!(8)),
    ];
    let assessment = judged(changed(NVME, &ones));
    assert_eq!(assessment.findings, []);
    assert_eq!(assessment.verdict, Verdict::Good, "{assessment:?}");
}

#[test]
fn the_declarations_are_those_of_the_reference() {
    let reference = include_str!("../../../../deploy/docs/reference/smart.md");
    let lines = reference
        .lines()
        .skip_while(|line| !line.starts_with("| value | unit |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut documented: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let cells = line.trim_start_matches("| ").trim_end_matches(" |");
        let cells: Vec<String> = cells
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect();
        // A row whose other cells are empty continues the one above it.
        match (cells.as_slice(), documented.last_mut()) {
            ([more], Some(row)) => row[3] = format!("{}; {more}", row[3]),
            _ => documented.push(cells),
        }
    }
    let declared: Vec<Vec<String>> = rows()
        .into_iter()
        .map(|row| {
            row.map(|cell| {
                if cell.is_empty() {
                    "-".to_owned()
                } else {
                    cell
                }
            })
            .to_vec()
        })
        .collect();
    let text: Vec<String> = declared
        .iter()
        .map(|row| format!("| {} |", row.join(" | ")))
        .collect();
    assert_eq!(documented, declared, "{}", text.join("\n"));
}
