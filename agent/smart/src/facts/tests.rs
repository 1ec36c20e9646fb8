//! Parsing of the outputs of each protocol; nothing unusual in them loses a drive.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    History, Thresholds,
    collect::{of_bytes, of_facts},
    fixtures::{self, changed, document},
    judge,
    rules::uncorrected_errors,
};

#[test]
fn an_ata_drive_is_read() {
    let facts = parse(fixtures::ATA_HDD.as_bytes()).unwrap();
    assert_eq!(facts.protocol(), Some(Protocol::Ata));
    assert_eq!(
        (facts.model.as_str(), facts.serial.as_str()),
        ("EXAMPLE HD8000", "HDD00001")
    );
    assert_eq!(facts.wwn, "0x5123456123456789");
    assert_eq!(facts.rotational, Some(true));
    assert_eq!(facts.exit.bits(), ExitStatus::ERROR_LOG);
    assert_eq!(
        (facts.passed, facts.temperature.current),
        (Some(true), Some(34))
    );
    assert_eq!(
        (facts.power_on_hours, facts.power_cycles),
        (Some(22334), Some(37))
    );
    let Detail::Ata(ata) = &facts.detail else {
        panic!("not ATA");
    };
    assert_eq!(ata.attributes.len(), 16);
    let reallocated = ata.attribute(5).unwrap();
    assert!(reallocated.prefail && reallocated.online);
    assert!(!ata.attribute(198).unwrap().online);
    assert_eq!(ata.attribute(188).unwrap().raw16(), 1);
    assert_eq!(ata.attribute(190).unwrap().failed, Failed::Past);
    assert_eq!(ata.error_count, Some(12));
    let results: Vec<_> = ata.self_tests.iter().map(|test| test.result).collect();
    assert_eq!(
        results,
        [
            SelfTestResult::Running,
            SelfTestResult::Aborted,
            SelfTestResult::Passed
        ]
    );
}

#[test]
fn statistics_and_logs_of_a_deep_poll_are_read() {
    let facts = parse(fixtures::ATA_SSD.as_bytes()).unwrap();
    let Detail::Ata(ata) = &facts.detail else {
        panic!("not ATA");
    };
    assert_eq!(ata.statistic(7, 8), Some(6));
    assert_eq!(ata.pending_defects, Some(0));
    assert_eq!(facts.temperature.operating_max, Some(70));
    assert_eq!(ata.self_tests[0].kind, SelfTest::EXTENDED);
}

#[test]
fn a_scsi_drive_is_read_behind_a_line_of_text() {
    let facts = parse(fixtures::SCSI_HDD.as_bytes()).unwrap();
    assert_eq!(facts.protocol(), Some(Protocol::Scsi));
    assert_eq!(
        (facts.model.as_str(), facts.firmware.as_str()),
        ("EXAMPLE SAS4000", "C0DE")
    );
    assert_eq!(facts.wwn, "0x5000c500aabbccdd");
    assert_eq!(facts.temperature.trip, Some(60));
    let Detail::Scsi(scsi) = &facts.detail else {
        panic!("not SCSI");
    };
    assert_eq!(
        (scsi.grown_defects, uncorrected_errors(&facts)),
        (Some(3), Some(0))
    );
    assert_eq!(scsi.verify.unwrap().bytes, Some(1_525_000_000));
    assert_eq!(scsi.self_tests[0].result, SelfTestResult::Passed);
}

#[test]
fn an_nvme_drive_is_read() {
    let facts = parse(fixtures::NVME.as_bytes()).unwrap();
    let Detail::Nvme(nvme) = &facts.detail else {
        panic!("not NVMe");
    };
    assert_eq!(nvme.sensors, [42, 34]);
    assert_eq!(nvme.bytes_read, Some(1_087_990_952 * 512_000));
    assert_eq!(nvme.bytes_written, Some(u64::MAX));
    assert_eq!(nvme.error_log_entries, Some(9_007_199_254_740_993));
    assert_eq!(
        (nvme.warning_temperature, nvme.critical_temperature),
        (Some(75), Some(83))
    );
    assert_eq!(nvme.self_tests.len(), 1);
    assert_eq!(facts.rotational, Some(false));
}

#[test]
fn reads_that_an_nvme_drive_lost_are_context_with_their_places() {
    // As smartctl 7.4 prints two of them, and a command that was not valid.
    let entry = |count: u64, status: u64, lba: u64| {
        json!({"error_count": count, "submission_queue_id": 1, "command_id": 12, "nsid": 1,
            "status_field": {"value": status, "do_not_retry": true, "status_code_type": status >> 8 & 7,
                "status_code": status & 0xff},
            "lba": {"value": lba}})
    };
    let log = json!({"size": 64, "read": 16, "unread": 0,
        "table": [entry(9, 0x4281, 771), entry(8, 0x4002, 0), entry(7, 0x281, 16)]});
    let facts = changed(fixtures::NVME, &[("nvme_error_information_log", log)]);
    let Detail::Nvme(nvme) = &facts.detail else {
        panic!("not NVMe");
    };
    assert_eq!(nvme.unrecovered_reads, Some(2));
    let places = facts.logged_places();
    let places: Vec<u64> = places.iter().map(|place| place.lba).collect();
    assert_eq!(places, [771, 16]);
    // Context: the verdict is that of the counters.
    let outcome = of_facts(facts);
    let assessment = judge(
        &outcome,
        &mut History::default(),
        0,
        &Thresholds::default(),
        None,
    );
    assert_eq!(assessment.verdict.as_str(), "GOOD");
}

#[test]
fn a_drive_rotates_by_its_rate_unless_all_its_attributes_are_of_flash_memory() {
    let of = |rate: Value, names: [&str; 2]| {
        let changes = [
            ("rotation_rate", rate),
            ("attr 5 name", json!(names[0])),
            ("attr 9 name", json!(names[1])),
            ("attr 177 name", json!("Unknown_Attribute")),
            ("attr 202 name", json!("Unknown_Attribute")),
        ];
        changed(fixtures::ATA_SSD, &changes).rotational
    };
    const FLASH: &str = "Available_Reservd_Space";
    const HEADS: &str = "Head_Flying_Hours";
    let plain = ["Reallocated_Sector_Ct", "Power_On_Hours"];
    assert_eq!(of(json!(7200), [FLASH, "Power_On_Hours"]), Some(false));
    assert_eq!(of(json!(7200), [FLASH, HEADS]), Some(true));
    assert_eq!(of(json!(7200), plain), Some(true));
    assert_eq!(of(json!(0), plain), Some(false));
    assert_eq!(of(Value::Null, [FLASH, "Power_On_Hours"]), Some(false));
    assert_eq!(of(Value::Null, [HEADS, "Power_On_Hours"]), Some(true));
    assert_eq!(of(Value::Null, plain), None);
}

#[test]
fn the_protocol_is_the_drives_not_the_bridges() {
    for (name, protocol, kind) in [
        ("nvme-usb", Protocol::Nvme, "sntasmedia"),
        ("ata-megaraid", Protocol::Ata, "sat+megaraid,3"),
    ] {
        let text = fixtures::ALL
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .unwrap()
            .1;
        let facts = parse(text.as_bytes()).unwrap();
        assert_eq!(
            (facts.protocol(), facts.device_type.as_str()),
            (Some(protocol), kind)
        );
    }
}

#[test]
fn without_a_protocol_the_sections_give_it_away() {
    for (text, protocol) in [
        (fixtures::ATA_HDD, Protocol::Ata),
        (fixtures::SCSI_SSD, Protocol::Scsi),
        (fixtures::NVME, Protocol::Nvme),
    ] {
        let facts = changed(text, &[("device", Value::Null)]);
        assert_eq!(facts.protocol(), Some(protocol));
    }
}

#[test]
fn a_status_that_is_missing_is_taken_from_the_exit_status() {
    let facts = changed(
        fixtures::ATA_HDD,
        &[
            ("smart_status", Value::Null),
            ("smartctl.exit_status", json!(8)),
        ],
    );
    assert_eq!(facts.status(), Some(false));
}

#[test]
fn each_broken_output_has_its_own_error() {
    assert_eq!(parse(b" \n"), Err(ParseError::Empty));
    assert_eq!(
        parse(&vec![b' '; MAX_BYTES + 1]),
        Err(ParseError::TooLarge { len: MAX_BYTES + 1 })
    );
    let cut = &fixtures::NVME.as_bytes()[..fixtures::NVME.len() / 2];
    assert_eq!(parse(cut), Err(ParseError::Truncated { len: cut.len() }));
    for garbage in [
        "Segmentation fault",
        "[1, 2]",
        "{\"error\": \"no\"}",
        "smartctl 6.6 2016-05-31 r4324\n=== START ===\n{oops}",
    ] {
        let error = parse(garbage.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ParseError::NotJson { .. }),
            "{garbage}: {error}"
        );
        assert!(error.to_string().contains("it begins"), "{error}");
    }
}

#[test]
fn text_around_the_json_and_odd_bytes_in_it_lose_nothing() {
    let plain = parse(fixtures::NVME.as_bytes()).unwrap();
    let text = fixtures::NVME;
    for odd in [
        format!("{{oops}} some line\n{text}"),
        format!("some text {text}\nmore text {{}}"),
        text.replace("\n  ", "\u{0}\n\t"),
    ] {
        assert_eq!(parse(odd.as_bytes()).unwrap(), plain);
    }
    let mut bytes = text
        .replace("EXAMPLE NV1920", "EXAMPLE\u{1}NV!")
        .into_bytes();
    let bang = bytes.iter().position(|byte| *byte == b'!').unwrap();
    bytes[bang] = 0xff;
    assert_eq!(parse(&bytes).unwrap().model, "EXAMPLE NV\u{fffd}");
}

#[test]
fn a_drive_that_sleeps_is_distinguished_from_one_that_cannot_be_opened() {
    use crate::{FailureReason, Outcome};
    let outcome = |name: &str| {
        let text = fixtures::ALL
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .unwrap()
            .1;
        of_bytes(text.as_bytes())
    };
    assert_eq!(outcome("standby-message"), Outcome::Standby);
    assert_eq!(outcome("standby-power-mode"), Outcome::Standby);
    for (name, reason, detail) in [
        ("open-failed", FailureReason::OpenFailed, "No such device"),
        (
            "unknown-bridge",
            FailureReason::Unsupported,
            "Unknown USB bridge",
        ),
    ] {
        let Outcome::Failed(failure) = outcome(name) else {
            panic!("{name} did not fail");
        };
        assert_eq!(failure.reason, reason);
        assert!(failure.detail.contains(detail), "{failure}");
    }
    // Health data in the answer counts, with bit 1 and a message too.
    let answer = changed(
        fixtures::ATA_HDD,
        &[
            ("smartctl.exit_status", json!(2)),
            ("power_mode", json!({"ata_string": "STANDBY"})),
        ],
    );
    assert!(matches!(of_facts(answer), Outcome::Answered(_)));
}

/// Returns every position in a document, as a JSON pointer.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                places(
                    member,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    into,
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), into);
            }
        }
        _ => {}
    }
}

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!(1e300)),
        Just(json!("18446744073709551616")),
        Just(json!("")),
        Just(json!("now")),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {"value": {}}])),
        Just(json!(true)),
        any::<u64>().prop_map(|number| json!(number)),
        any::<i64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(|text| json!(text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_document_makes_it_panic_or_loses_what_was_known(
        which in 0..fixtures::ALL.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), odd()), 1..8),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut document = document(fixtures::ALL[which].1);
        for (index, value) in changes {
            let mut all = Vec::new();
            places(&document, "", &mut all);
            let place = index.get(&all);
            // Except the document as a whole.
            if !place.is_empty() && let Some(at) = document.pointer_mut(place) {
                *at = value;
            }
        }
        let mut bytes = serde_json::to_vec(&document).unwrap();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let outcome = of_bytes(&bytes);
        let mut history = History::default();
        for poll in 0..3 {
            let assessment = judge(&outcome, &mut history, poll * 600, &Thresholds::default(), None);
            prop_assert_eq!(assessment.reasons.is_empty(), assessment.verdict.weight() == 0);
            // A stale assessment has a failure, unless the drive is in standby.
            prop_assert_eq!(
                assessment.stale,
                assessment.failure.is_some() || assessment.standby
            );
        }
        let written = history.to_json().unwrap();
        prop_assert_eq!(History::from_json(&written).unwrap(), history);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), brace in any::<bool>()) {
        let mut bytes = bytes;
        if brace {
            bytes.insert(0, b'{');
        }
        let _ = of_bytes(&bytes);
    }
}

#[test]
fn the_logs_of_a_drive_have_the_sectors_that_it_could_not_read() {
    let places = |name: &str, changes: &[(&str, Value)]| -> Vec<(u64, u64)> {
        let all = changed(fixtures::drive(name), changes).logged_places();
        all.iter().map(|place| (place.entry, place.lba)).collect()
    };
    // The newest entry of each sector, and none of a cable fault; for a short command, four bits are in the device register. Then the
    // pending defect.
    assert_eq!(
        places("ata-error-log-extended", &[]),
        [
            (9, 19_221_133_456),
            (8, 19_221_133_440),
            (7, 19_221_133_441),
            (4, 0x548ccba),
            (23_980, 19_221_133_440),
        ]
    );
    assert_eq!(
        places("ata-error-log", &[]),
        [(2, 122_334_455), (1, 122_334_448)]
    );
    // The addresses of the log end there.
    let beyond = json!("Error: UNC at LBA = 0x0fffffff = 268435455");
    let place = "ata_smart_error_log.summary.table.0.error_description";
    assert_eq!(
        places("ata-error-log", &[(place, beyond)]),
        [(1, 122_334_448)]
    );
    // Of the self-tests those that failed, then the sectors that the background scan could not read, or that wait for a write.
    assert_eq!(
        places("scsi-self-test-failed", &[]),
        [(28_790, 2_930_277_168), (28_788, 2_930_277_176)]
    );
    assert_eq!(
        places("scsi-background-errors", &[]),
        [(1_755_331, 4_411_223_344)]
    );
    assert_eq!(places("scsi-self-test-outdated", &[]), []);
}

#[test]
fn places_of_a_long_log_are_bounded() {
    let result = |at: u64| {
        let name = format!("scsi_background_scan.result_{at}");
        let medium = json!({"lba": at * 1000, "sense_key": {"value": 3}, "accumulated_power_on": {"minutes": at}});
        (name, medium)
    };
    let results: Vec<(String, Value)> = (1..2000).map(result).collect();
    let changes: Vec<(&str, Value)> = results
        .iter()
        .map(|(place, value)| (place.as_str(), value.clone()))
        .collect();
    let places = changed(fixtures::drive("scsi-hot"), &changes).logged_places();
    assert_eq!(places.len(), MOST_PLACES);
    assert_eq!((places[0].entry, places[0].lba), (1999, 1_999_000));
}
