//! Rendering of one output, and errors for invalid ones.

use drivebay_common::cli::chain;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::*;
use drivebay_smart::collect::DeviceType;

const DRIVES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../smart/src/fixtures/drives");
const OUTPUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../smart/src/fixtures");

fn args(source: impl Into<PathBuf>) -> ExplainArgs {
    ExplainArgs {
        source: source.into(),
        device_type: None,
        output: Format::Table,
    }
}

fn explained(file: &str) -> Explanations {
    run(&args(file)).unwrap()
}

#[test]
fn each_finding_is_shown_with_its_rule_and_every_line_fits_80_columns() {
    let explanations = explained(&format!("{DRIVES}/scsi-grown-defects.json"));
    assert_eq!(explanations.verdict(), Verdict::Bad);
    let text = explanations.render(Format::Table).unwrap();
    for part in [
        "verdict      BAD\n",
        "GrownDefectsMany: Elements in grown defect list: 16396, limit 1000\n",
        "BackgroundScanHalted: background-scan: 3\n",
        "rule: scsi_grown_defect_list: 1000 or more",
        "  Year Of Manufacture                     2014\n",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    for dir in [DRIVES, OUTPUTS] {
        for file in std::fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            if !path
                .extension()
                .is_some_and(|kind| kind == "json" || kind == "txt")
            {
                continue;
            }
            let explanations = run(&args(&path)).unwrap();
            let text = explanations.render(Format::Table).unwrap();
            for line in text.lines() {
                assert!(line.width() <= WIDTH, "{}: {line}", path.display());
            }
            let lines = explanations.0.iter();
            let lines = lines.flat_map(|one| one.findings().into_iter().chain(one.conditions()));
            for line in lines {
                assert!(line.rule.is_some(), "{}: {}", path.display(), line.message);
            }
        }
    }
}

#[test]
fn the_json_has_facts_findings_conditions_and_rules() {
    let explanations = explained(&format!("{DRIVES}/nvme-worn-out.json"));
    let json: Value = serde_json::from_str(&explanations.render(Format::Json).unwrap()).unwrap();
    assert_eq!(json["verdict"], "SUSPECT");
    assert_eq!(json["facts"]["unsafe-shutdowns"], 213);
    assert_eq!(json["findings"][0]["rule"]["code"], "EnduranceExhausted");
    assert_eq!(
        json["findings"][0]["rule"]["field"],
        "critical_warning bit 2"
    );
    assert_eq!(json["conditions"][0]["verdict"], "no new volumes");
    assert_eq!(json["unknown_because"], Value::Null);
    // Missing facts are not invented.
    assert!(json["facts"].get("phy-errors").is_none());
}

/// Outputs of smartctl, in one text.
fn of_text(text: &str) -> Result<Explanations, ExplainError> {
    Explanations::read(text.as_bytes(), "dump")
}

#[test]
fn each_of_several_answers_is_judged_and_the_worst_decides() {
    let read = |file: &str| std::fs::read_to_string(format!("{OUTPUTS}/{file}")).unwrap();
    let good = read("drives/ata-kc400.json");
    let (bad, unknown) = (
        read("drives/scsi-grown-defects.json"),
        read("open-failed.json"),
    );
    for (text, verdict, count) in [
        (format!("{good}{good}"), Verdict::Good, 2),
        (format!("{good}{bad}"), Verdict::Bad, 2),
        (format!("{bad}\n{good}"), Verdict::Bad, 2),
        (format!("[{good}, {bad}, {good}]"), Verdict::Bad, 3),
        (format!("[{good}]"), Verdict::Good, 1),
        (format!("{good}\n{unknown}"), Verdict::Unknown, 2),
        (format!("{unknown}{bad}"), Verdict::Bad, 2),
    ] {
        let explanations = of_text(&text).unwrap();
        assert_eq!(
            (explanations.verdict(), explanations.0.len()),
            (verdict, count)
        );
        let shown = explanations.render(Format::Table).unwrap();
        assert_eq!(shown.matches("\nverdict ").count(), count, "{shown}");
        let json: Value =
            serde_json::from_str(&explanations.render(Format::Json).unwrap()).unwrap();
        assert_eq!(json.as_array().map_or(1, Vec::len), count);
    }
    // An invalid one is not skipped.
    let error = of_text(&format!("{good}{{\"smartctl\": ")).unwrap_err();
    assert!(
        error.to_string().starts_with("answer 2 in dump is not"),
        "{error}"
    );
}

#[test]
fn texts_have_the_values_and_not_the_limits_in_their_place() {
    let text = explained(&format!("{DRIVES}/scsi-grown-defects.json"));
    let text = text.render(Format::Table).unwrap();
    assert!(
        text.contains("the drive counts 16396 grown defects"),
        "{text}"
    );
    assert!(!text.contains("the drive counts 1000"), "{text}");
}

#[test]
fn the_exit_code_is_the_verdicts() {
    let codes: Vec<u8> = Verdict::ALL.iter().copied().map(exit_code).collect();
    let distinct: std::collections::BTreeSet<u8> = codes.iter().copied().collect();
    assert_eq!(distinct.len(), codes.len());
    // 1 and 2 are failures of the command.
    assert!(!distinct.contains(&1) && !distinct.contains(&2));
    for (file, code) in [
        ("drives/ata-kc400.json", 0),
        ("drives/ata-helium.json", 10),
        ("drives/scsi-grown-defects.json", 20),
        ("open-failed.json", 30),
        ("standby-message.json", 30),
        ("scsi-hdd-text-before.txt", 0),
    ] {
        let explanations = explained(&format!("{OUTPUTS}/{file}"));
        assert_eq!(exit_code(explanations.verdict()), code, "{file}");
    }
}

#[test]
fn rates_are_fractions_and_bytes_have_a_unit() {
    let text = explained(&format!("{DRIVES}/nvme-worn-out.json"));
    let text = text.render(Format::Table).unwrap();
    for line in [
        "  Data Units Written                      280 TiB\n",
        "  Drive Writes Per Day                    1.129\n",
        "  Unsafe Shutdowns                        213\n",
    ] {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
    // A level longer than a verdict.
    assert!(text.contains("\n  no new volumes Wear: "), "{text}");
}

#[test]
fn an_unknown_verdict_has_its_reason() {
    let text = explained(&format!("{OUTPUTS}/open-failed.json"));
    let text = text.render(Format::Table).unwrap();
    assert!(text.contains("verdict      UNKNOWN\n"), "{text}");
    assert!(text.contains("/dev/sdz failed"), "{text}");
    let text = explained(&format!("{OUTPUTS}/standby-message.json"));
    let text = text.render(Format::Table).unwrap();
    assert!(text.contains("asleep"), "{text}");
}

#[test]
fn what_is_not_smartctls_json_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let message = |content: &str| {
        let path = dir.path().join("dump");
        std::fs::write(&path, content).unwrap();
        let error = run(&args(&path)).unwrap_err();
        chain(&error).replace(&path.display().to_string(), "FILE")
    };
    for (content, part) in [
        ("", "smartctl wrote nothing"),
        ("Disk is fine", "it begins: \"Disk is fine\""),
        ("{\"a\": 1}", "it is not smartctl's"),
        ("{\"smartctl\": {\"version\": [7,", "ends in the middle"),
    ] {
        let error = message(content);
        assert!(
            error.starts_with("FILE is not smartctl's JSON: "),
            "{error}"
        );
        assert!(error.contains(part), "{content:?}: {error}");
        assert!(
            error.ends_with("Make it with: smartctl --json -x DEVICE > FILE"),
            "{error}"
        );
    }
    let missing = run(&args(dir.path().join("missing"))).unwrap_err();
    let missing = chain(&missing);
    assert!(
        missing.contains("cannot read ") && missing.contains("No such file"),
        "{missing}"
    );
    let directory = chain(&run(&args(dir.path())).unwrap_err());
    assert!(directory.contains("cannot read "), "{directory}");
}

#[test]
fn a_type_of_device_is_for_a_device() {
    let with_type = ExplainArgs {
        device_type: Some(DeviceType::parse("sat").unwrap()),
        ..args(format!("{DRIVES}/ata-kc400.json"))
    };
    let error = run(&with_type).unwrap_err();
    assert!(matches!(error, ExplainError::NotADevice { .. }), "{error}");
}

/// Polls with a smartctl that prints this file and exits with this code. The device exists on every machine.
fn poll_with(file: &str, code: u8) -> Result<Outcome, ExplainError> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let smartctl = dir.path().join("smartctl");
    let script = format!("#!/bin/sh\n/bin/cat '{file}'\nexit {code}\n");
    std::fs::write(&smartctl, script).unwrap();
    std::fs::set_permissions(&smartctl, std::fs::Permissions::from_mode(0o755)).unwrap();
    poll_device(Path::new("/dev/null"), None, Some(smartctl))
}

#[test]
fn a_device_is_polled_and_what_hinders_it_is_named() {
    assert!(input::is_device(Path::new("/dev/null")));
    let outcome = poll_with(&format!("{DRIVES}/scsi-grown-defects.json"), 0).unwrap();
    assert_eq!(Explained::of(outcome).verdict(), Verdict::Bad);
    // A failure of the drive, not of the command.
    let outcome = poll_with(&format!("{OUTPUTS}/open-failed.json"), 2).unwrap();
    assert_eq!(Explained::of(outcome).verdict(), Verdict::Unknown);

    let dir = tempfile::tempdir().unwrap();
    let denied = dir.path().join("denied.json");
    let text = std::fs::read_to_string(format!("{OUTPUTS}/open-failed.json")).unwrap();
    let text = text.replace("No such device or address", "Permission denied");
    assert!(text.contains("Permission denied"));
    std::fs::write(&denied, text).unwrap();
    let error = poll_with(&denied.display().to_string(), 2).unwrap_err();
    assert!(matches!(error, ExplainError::Permission { .. }), "{error}");
    assert!(error.to_string().contains("run as root"), "{error}");

    let missing = dir.path().join("no-smartctl-here/smartctl");
    let error = poll_device(Path::new("/dev/null"), None, Some(missing)).unwrap_err();
    assert!(matches!(error, ExplainError::NotAsked { .. }), "{error}");
    assert!(
        error.to_string().contains("install smartmontools"),
        "{error}"
    );
}
