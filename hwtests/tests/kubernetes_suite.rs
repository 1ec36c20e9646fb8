//! Kubernetes' own External Storage suite against Drivebay. Run by hwtests/kubernetes --long.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fs;

use drivebay_hwtests::{
    kube::{Cluster, DRIVER, Install},
    lab::progress::say,
    long_scenario,
};
use serde_json::{Value, json};

/// Specs that are left out, by what their names have, and why.
const LEFT_OUT: [(&str, &str); 4] = [
    (
        r"\[Disruptive\]",
        "restarts kubelets over ssh; hwtests/kubernetes kills and starts them itself (life, volumes)",
    ),
    (
        r"\[Feature:.*(Snapshot|Windows|SELinux|VolumeSourceXFS|VolumeAttributesClass)",
        "snapshots, Windows nodes, SELinux hosts and VolumeAttributesClasses are not there",
    ),
    (
        r"Inline-volume|Pre-provisioned PV|CSI Ephemeral-volume",
        "volumes that a driver makes without a claim; Drivebay has none",
    ),
    (
        "any volume data source",
        "fills volumes with hello-populator and volume-data-source-validator, whose images cannot be had here",
    ),
];

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_external_storage_suite_passes() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    // XFS, since this machine may not grow a mounted ext4 (CAP_SYS_RESOURCE); the lab's guest does.
    let mut class = json!({"name": "loop", "layout": "partition", "fs": "xfs"});
    class["select"] = json!({"path": [cluster.drives_pattern()]});
    cluster.uninstall_if_installed();
    cluster.install(&Install::with(json!({"classes": [class]})));
    let free = cluster.free();

    let report = cluster.dir().join("suite.json");
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/driver.yaml");
    let skip: Vec<&str> = LEFT_OUT.iter().map(|(pattern, _)| *pattern).collect();
    let words = [
        "suite".to_owned(),
        "--kubectl-path=kubectl".to_owned(),
        format!(
            "--kubeconfig={}/auth/admin.kubeconfig",
            cluster.dir().display()
        ),
        format!("--storage.testdriver={driver}"),
        format!(r"--ginkgo.focus=\[Driver: {DRIVER}\]"),
        format!("--ginkgo.skip={}", skip.join("|")),
        format!("--ginkgo.json-report={}", report.display()),
        "--ginkgo.timeout=3h".to_owned(),
        "--ginkgo.no-color".to_owned(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    say("External Storage suite: begun; it takes 25 minutes and more");
    let said = cluster.inside(&words);
    let report = fs::read_to_string(&report).unwrap_or_else(|_| panic!("{said:?}"));
    let counts = Counts::of(&serde_json::from_str(&report).unwrap());
    say(counts.table());
    assert!(
        said.is_ok() && counts.failed.is_empty(),
        "{:#?}",
        counts.failed
    );
    assert!(counts.passed > 0, "no spec was run");
    cluster.nothing_is_unclaimed();
    assert_eq!(cluster.free(), free);
    cluster.uninstall();
}

#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: Vec<String>,
    // Specs that were chosen, and left themselves out: with their reasons.
    skipped: Vec<(String, String)>,
    left_out: [usize; LEFT_OUT.len()],
}

impl Counts {
    fn of(report: &Value) -> Self {
        let mut counts = Self::default();
        let specs = report[0]["SpecReports"].as_array().unwrap();
        for spec in specs.iter().filter(|spec| spec["LeafNodeType"] == "It") {
            let name = name(spec);
            match spec["State"].as_str().unwrap_or_default() {
                "passed" => counts.passed += 1,
                "skipped" => match spec["Failure"]["Message"].as_str() {
                    Some(reason) if !reason.is_empty() => {
                        counts.skipped.push((name, reason.to_owned()));
                    }
                    _ => counts.count_left_out(&name),
                },
                "pending" => counts.skipped.push((name, "pending".to_owned())),
                _ => counts
                    .failed
                    .push(format!("{name}: {}", spec["Failure"]["Message"])),
            }
        }
        counts
    }

    fn count_left_out(&mut self, name: &str) {
        let words = [
            &["[Disruptive]"][..],
            &["[Feature:"],
            &[
                "Inline-volume",
                "Pre-provisioned PV",
                "CSI Ephemeral-volume",
            ],
            &["any volume data source"],
        ];
        let at = words
            .iter()
            .position(|words| words.iter().any(|word| name.contains(word)));
        if let Some(at) = at {
            self.left_out[at] += 1;
        }
    }

    fn table(&self) -> String {
        let mut lines = vec![format!(
            "External Storage suite: {} passed, {} failed, {} skipped by themselves",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        )];
        for ((pattern, why), count) in LEFT_OUT.iter().zip(self.left_out) {
            lines.push(format!("left out {count}: {pattern}: {why}"));
        }
        let mut reasons: Vec<&str> = self.skipped.iter().map(|(_, why)| why.as_str()).collect();
        reasons.sort_unstable();
        for group in reasons.chunk_by(|a, b| a == b) {
            lines.push(format!("skipped {}: {}", group.len(), group[0]));
        }
        lines.join("\n")
    }
}

fn name(spec: &Value) -> String {
    let texts = spec["ContainerHierarchyTexts"]
        .as_array()
        .into_iter()
        .flatten();
    let texts = texts.chain([&spec["LeafNodeText"]]);
    texts
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}
