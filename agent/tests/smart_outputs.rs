//! A directory of smartctl's outputs, judged one by one as drives that are seen for the first time:
//! `DRIVEBAY_SMART_DIR=… cargo test --test smart_outputs -- --nocapture`. Without the variable, our own.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::{collections::BTreeMap, path::PathBuf};

use drivebay_smart::{
    Assessment, History, Outcome, Thresholds, collect::of_bytes, judge, rules::wear,
};

fn line(outcome: &Outcome, assessment: &Assessment) -> String {
    let drive = match outcome {
        Outcome::Answered(facts) => format!(
            "{} [{}] exit {}",
            facts.model,
            facts
                .protocol()
                .map_or("unknown", |protocol| protocol.as_str()),
            facts.exit
        ),
        Outcome::Standby => "asleep".to_owned(),
        Outcome::Failed(_) => "no answer".to_owned(),
    };
    let worn = match outcome {
        Outcome::Answered(facts) => wear(facts),
        _ => None,
    };
    let mut text = format!("{} · {drive}", assessment.verdict);
    if let Some(worn) = worn {
        text += &format!(" · wear {} % ({:?})", worn.percent, worn.source);
    }
    for finding in &assessment.findings {
        text += &format!(
            "\n    {:?} {} ({}) = {}: {}",
            finding.severity, finding.code, finding.subject, finding.value, finding.message
        );
    }
    for condition in &assessment.conditions {
        text += &format!(
            "\n    condition {:?} {:?} = {}: {}",
            condition.kind, condition.level, condition.value, condition.message
        );
    }
    if let Some(failure) = &assessment.failure {
        text += &format!("\n    {failure}");
    }
    text
}

#[test]
fn every_output_in_a_directory_gives_a_verdict_that_is_explained() {
    let given = std::env::var_os("DRIVEBAY_SMART_DIR");
    let dir = given.map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("smart/src/fixtures"),
        PathBuf::from,
    );
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.is_file()
                && path
                    .extension()
                    .is_none_or(|kind| kind != "md" && kind != "tsv")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &files {
        let outcome = of_bytes(&std::fs::read(path).unwrap());
        let mut history = History::default();
        let limits = Thresholds::default();
        let assessment = judge(&outcome, &mut history, 1_700_000_000, &limits, None);
        println!(
            "{}: {}",
            path.file_name().unwrap().to_string_lossy(),
            line(&outcome, &assessment)
        );
        *count.entry(assessment.verdict.as_str()).or_default() += 1;
        let explained = match assessment.verdict.as_str() {
            "GOOD" => true,
            "UNKNOWN" => assessment.failure.is_some() || assessment.standby,
            _ => !assessment.reasons.is_empty(),
        };
        assert!(explained, "{}: {assessment:?}", path.display());
    }
    println!("{} outputs: {count:?}", files.len());
    assert_eq!(count.values().sum::<usize>(), files.len());
}

/// One row of `fixtures/verdicts.tsv`.
struct Row<'a> {
    file: &'a str,
    before: &'a str,
    right: &'a str,
    reason: &'a str,
}

/// Outputs that are judged otherwise than the reader who collected them did, with the verdict and the reason.
const DISAGREEMENTS: &[(&str, &str, &str)] = &[];

fn rows(table: &str) -> Vec<Row<'_>> {
    table
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [file, before, right, reason] = cells[..] else {
                panic!("{line}");
            };
            Row {
                file,
                before,
                right,
                reason,
            }
        })
        .collect()
}

fn class(outcome: &Outcome) -> &'static str {
    let Outcome::Answered(facts) = outcome else {
        return "no answer";
    };
    match (
        facts.protocol().map(|protocol| protocol.as_str()),
        facts.rotational,
    ) {
        (Some("ata"), Some(false)) => "SATA SSD",
        (Some("ata"), _) => "SATA HDD",
        (Some("scsi"), _) => "SAS",
        (Some("nvme"), _) => "NVMe",
        _ => "unknown",
    }
}

/// `cargo test --test smart_outputs -- --nocapture alarms`: the alarms of earlier rules and of these, by class of drive.
/// `before` is the verdict of the rules of November 2026 (commit ba7caba), `right` the verdict of a reviewer of the output, or of
/// those rules where no reviewer objected; each change has its reason.
#[test]
fn alarms_before_and_now_by_class_of_drive_and_each_change_has_a_reason() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("smart/src/fixtures");
    let table = std::fs::read_to_string(fixtures.join("verdicts.tsv")).unwrap();
    let rows = rows(&table);
    let on_disk = ["", "drives", "wanted"].map(|dir| {
        let files = std::fs::read_dir(fixtures.join(dir)).unwrap();
        let is_output = |path: &PathBuf| {
            let kind = path.extension().and_then(|kind| kind.to_str());
            path.is_file() && matches!(kind, Some("json" | "txt"))
        };
        files
            .map(|entry| entry.unwrap().path())
            .filter(is_output)
            .count()
    });
    assert_eq!(rows.len(), on_disk.iter().sum::<usize>(), "{on_disk:?}");
    let mut counts: BTreeMap<&str, [usize; 7]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in &rows {
        let outcome = of_bytes(&std::fs::read(fixtures.join(row.file)).unwrap());
        let limits = Thresholds::default();
        let mut history = History::default();
        let now = judge(&outcome, &mut history, 1_700_000_000, &limits, None).verdict;
        let now = now.as_str();
        let verdicts = ["SUSPECT", "BAD", "UNKNOWN"];
        let count = counts.entry(class(&outcome)).or_default();
        count[0] += 1;
        for (index, verdict) in verdicts.iter().enumerate() {
            count[1 + index] += usize::from(row.before == *verdict);
            count[4 + index] += usize::from(now == *verdict);
        }
        assert!(
            row.before == row.right || !row.reason.is_empty(),
            "{}: a change without a reason",
            row.file
        );
        let mut disagreements = DISAGREEMENTS.iter();
        let expected = disagreements.find(|(file, ..)| *file == row.file);
        let expected = expected.map_or(row.right, |(_, verdict, _)| verdict);
        if now != expected {
            wrong.push(format!(
                "{}: {now}, not {expected} ({})",
                row.file, row.reason
            ));
        }
    }
    println!("class      outputs   before: SUSPECT BAD UNKNOWN   now: SUSPECT BAD UNKNOWN");
    for (
        class,
        [
            all,
            suspect,
            bad,
            unknown,
            now_suspect,
            now_bad,
            now_unknown,
        ],
    ) in &counts
    {
        println!(
            "{class:<10} {all:>7}{suspect:>18}{bad:>4}{unknown:>8}{now_suspect:>15}{now_bad:>4}{now_unknown:>8}"
        );
    }
    for (file, verdict, reason) in DISAGREEMENTS {
        println!("{file}: {verdict}, for {reason}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
