//! Alert rules and what they refer to: every alert has its paragraph, every metric name exists.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use drivebay_hwtests::{need, scrape};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// Returns the rest of every line that begins with this word.
fn after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix(word))
        .map(str::trim)
        .collect()
}

fn rules() -> String {
    read("deploy/alerts/drivebay.rules.yaml")
}

fn alerts() -> Vec<String> {
    let rules = rules();
    let alerts = after(&rules, "- alert:");
    alerts.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_alert_has_a_paragraph_and_every_paragraph_an_alert() {
    let alerts = alerts();
    assert!(alerts.len() > 20, "{alerts:?}");
    let page = read("deploy/alerts/README.md");
    assert_eq!(alerts, after(&page, "### "), "in the same order, too");
    for part in page.split("\n### ").skip(1) {
        let (name, text) = part.split_once('\n').unwrap();
        assert!(text.trim().len() > 100, "{name} says too little");
    }
}

#[test]
fn every_alert_names_its_own_paragraph_and_links_to_nothing() {
    let rules = rules();
    let expected: Vec<String> = alerts()
        .iter()
        .map(|alert| format!("deploy/alerts/README.md#{}", alert.to_lowercase()))
        .collect();
    assert_eq!(after(&rules, "runbook:"), expected);
    // A path is not a URL: a link in an alert would lead nowhere. The chart sets links if the base URL is configured.
    assert!(after(&rules, "runbook_url:").is_empty());
}

#[test]
fn every_alert_describes_by_itself_what_is_wrong() {
    let rules = rules();
    for part in rules.split("- alert: ").skip(1) {
        let name = part.lines().next().unwrap();
        for annotation in ["summary:", "description:"] {
            let texts = after(part, annotation);
            assert!(texts.len() == 1 && texts[0].len() > 15, "{name}: {texts:?}");
        }
    }
}

#[test]
fn every_alert_is_tested() {
    let tests: String = ["drives", "volumes", "programs"]
        .map(|name| read(&format!("deploy/alerts/tests/{name}.yaml")))
        .concat();
    for alert in alerts() {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "{alert} is never seen to fire");
    }
}

#[test]
fn alerts_and_their_tests_name_only_metrics_and_labels_that_there_are() {
    let mut texts = vec![rules(), read("deploy/alerts/README.md")];
    for name in ["drives", "volumes", "programs"] {
        texts.push(read(&format!("deploy/alerts/tests/{name}.yaml")));
    }
    assert_eq!(scrape::unknown_metrics(&texts.concat()), BTreeSet::new());
}

#[test]
fn promtool_takes_the_rules_and_their_tests_pass() {
    need!(promtool);
    let run = |args: &[&str]| {
        let output = Command::new(need::promtool().unwrap())
            .args(args)
            .current_dir(repository())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "promtool {args:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(&["check", "rules", "deploy/alerts/drivebay.rules.yaml"]);
    for name in ["drives", "volumes", "programs"] {
        let file = format!("deploy/alerts/tests/{name}.yaml");
        run(&["test", "rules", &file]);
    }
}
