//! The references in deploy/docs/reference agree with the code. After a change of the code:
//!
//!     DRIVEBAY_WRITE_REFERENCE=1 cargo test --workspace --test reference
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail loudly")]

use std::{collections::BTreeMap, env, fmt::Write, fs, path::Path};

use drivebay_common::{metrics::Def, terminal::Terminal};
use drivebay_model::RejectCode;
use drivebay_proto::condition::{NormalReason, Reason};
use drivebay_smart::{Thresholds, rules::table};

const GENERATED: &str = "Generated from the code (`hwtests/tests/reference.rs`); do not edit.";
/// Wraps the lines of the documents.
const LINES: Terminal = Terminal {
    width: Some(120),
    ..Terminal::NONE
};
/// Metrics of the library that makes histograms. Their texts are in the code that calls it.
const OF_CALLS: [(&str, &str, &str, &str); 3] = [
    (
        "drivebay_rpc_total",
        "counter",
        "method, code",
        "Completed gRPC calls by method and code.",
    ),
    (
        "drivebay_rpc_duration_seconds",
        "histogram",
        "method",
        "Duration of gRPC calls in seconds, by method.",
    ),
    (
        "drivebay_rpc_running",
        "gauge",
        "method",
        "gRPC calls in progress, by method.",
    ),
];

/// Returns the text escaped for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn conditions() -> String {
    let mut text = format!(
        "# Conditions, findings, rejections\n\n{GENERATED}\n\n## Conditions of volumes\n\n"
    );
    text.push_str(&LINES.wrapped(
        "",
        "What CSI, events, metrics, logs and commands name. The message beside a reason says what it is here, and what to do. \
         What each is found by, and when it is cleared: [agent](health.md#volume-conditions).",
    ));
    text.push_str("\n| reason | status | meaning |\n|---|---|---|\n");
    for reason in Reason::ALL {
        let (status, meaning) = (reason.status(), cell(reason.meaning()));
        writeln!(text, "| `{reason}` | {status} | {meaning} |").unwrap();
    }
    text.push_str(
        "\nNothing is wrong with a volume that has one of these: they are not abnormal and have no status.\n\n\
         | reason | meaning |\n|---|---|\n",
    );
    for reason in NormalReason::ALL {
        writeln!(text, "| `{reason}` | {} |", cell(reason.meaning())).unwrap();
    }
    text.push_str("\n## Findings about drives\n\n");
    text.push_str(&LINES.wrapped(
        "",
        "Rules on SMART data with the default thresholds; `[smart.thresholds]` changes them. The verdict of a drive is that of its worst \
         finding, acknowledged or not ([acknowledge](../drive-fails.md#acknowledge-findings)). `drivebay-agent rules -o wide` prints \
         what each rule reads and where it is from. A slow drive has the finding `Slow` ([agent](health.md#slow-drives)).",
    ));
    text.push('\n');
    text.push_str(&LINES.wrapped(
        "",
        "Of each: its verdict and the drives that it is of; what it means; when it holds; what to do; and for how long `drive ack` \
         silences it.",
    ));
    text.push('\n');
    for row in table::rows(&Thresholds::default()) {
        let words = format!(
            "`{}` ({}; {}): {}. When: {}: {}. Do: {}. `drive ack`: {}.",
            row.code,
            row.verdict,
            row.drives,
            row.meaning,
            row.field,
            row.condition,
            row.action,
            row.acknowledge
        );
        text.push_str(&LINES.wrapped("- ", &words));
    }
    text.push_str(
        "\n## Why a drive is rejected\n\n\
         Every reason that holds is shown. A drive with one of them is not claimed.\n\n| code | meaning |\n|---|---|\n",
    );
    for code in RejectCode::ALL {
        writeln!(text, "| `{code}` | {} |", cell(code.meaning())).unwrap();
    }
    text
}

fn metrics() -> String {
    let mut text = format!("# Metrics\n\n{GENERATED}\n\n");
    text.push_str(&LINES.wrapped(
        "",
        "A value that is not known has no series. How to join them with other exporters' metrics: \
         [metrics and alerts](../metrics.md#joins). Of each metric: its type and labels, and its meaning.",
    ));
    let agent = drivebay_agent::metrics::definitions();
    let controller = drivebay_controller::metrics::cluster::DEFINITIONS;
    let both = drivebay_common::metrics::DEFINITIONS;
    let section = |title: &str, definitions: &[Def], further: &[(&str, &str, &str, &str)]| {
        let mut rows = BTreeMap::new();
        for def in definitions {
            let kind = if def.counter { "counter" } else { "gauge" };
            rows.insert(def.name, (kind, def.labels.join(", "), def.help));
        }
        for (name, kind, labels, help) in further {
            rows.insert(name, (kind, (*labels).to_owned(), help));
        }
        let mut text = format!("\n## {title}\n\n");
        for (name, (kind, labels, help)) in rows {
            let of = if labels.is_empty() { "" } else { "; " };
            let words = format!("`{name}` ({kind}{of}{labels}): {help}");
            text.push_str(&LINES.wrapped("- ", &words));
        }
        text
    };
    text.push_str(&section("Of the agent", &agent, &[]));
    text.push_str(&section("Of the controller", controller, &[]));
    text.push_str(&section("Of both", both, &OF_CALLS));
    text
}

fn is_current(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy/docs/reference")
        .join(name);
    if env::var_os("DRIVEBAY_WRITE_REFERENCE").is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let actual = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == wanted,
        "{} is not what the code says; write it again with DRIVEBAY_WRITE_REFERENCE=1 cargo test --workspace --test reference",
        path.display()
    );
}

#[test]
fn the_reference_of_conditions_is_current() {
    is_current("conditions.md", &conditions());
}

#[test]
fn the_reference_of_metrics_is_current() {
    is_current("metrics.md", &metrics());
    let calls = include_str!("../../proto/common/src/metrics/rpc.rs");
    for (name, _, _, help) in OF_CALLS {
        let both = [name, help].map(|text| calls.contains(&format!("\"{text}\"")));
        assert_eq!(both, [true, true], "{name}");
    }
}
