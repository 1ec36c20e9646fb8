//! A directory of smartctl's outputs, judged one by one as drives that are seen for the first time:
//! `DRIVEBAY_SMART_DIR=… cargo test --test smart_outputs -- --nocapture`. Without the variable, our own.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::{collections::BTreeMap, path::PathBuf};

use drivebay_agent::smart::{
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
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/smart/fixtures"),
        PathBuf::from,
    );
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.extension().is_none_or(|kind| kind != "md"))
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
