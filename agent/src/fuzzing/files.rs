//! Persisted state of the agent, and its configuration: files changed by a power failure, a later version or an operator.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{Target, seeds};
use drivebay_config::{self as config, HostFacts};
use drivebay_fs::kernel_options::OptionsCheck;
use drivebay_health::memory;
use drivebay_model::Checked;
use drivebay_node::state::{self, LastKnown, Tombstones, merge};
use drivebay_smart::History;
use drivebay_worker::notes::Note;

const KNOWN_DRIVES: &str = include_str!("../../node/tests/golden/known.json");
const TOMBSTONES: &str = include_str!("../../node/tests/golden/tombstones.json");
const HEALTH: &str = include_str!("../../health/tests/golden/health.json");
const HISTORY: &str = include_str!("../../smart/tests/golden/smart.json");
const CHECKED: &str = include_str!("../../node/tests/golden/check.json");
const NOTE: &str = include_str!("../../worker/tests/golden/worker-note.json");
const CONFIG: &str = include_str!("../../drivebay.example.toml");

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "state",
            run: state,
            seeds: || seeds([KNOWN_DRIVES, TOMBSTONES, HEALTH, HISTORY, CHECKED, NOTE]),
            replays: 500,
        },
        Target {
            name: "config",
            run: config,
            seeds: || {
                seeds([
                    CONFIG,
                    "[[class]]\nname = \"a\"\nmedia = [\"hdd\"]\nmin_size = \"1.5 TiB\"\n[checks]\nevery = \"7d\"\n",
                ])
            },
            replays: 300,
        },
    ]
}

/// Asserts that a value is equal after being written and read again.
fn again<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_vec(value).unwrap();
    assert_eq!(&serde_json::from_slice::<T>(&text).unwrap(), value);
}

fn state(data: &[u8]) {
    let last_known = state::parse::<LastKnown>(data).unwrap_or_default();
    let tombstones = state::parse::<Tombstones>(data).unwrap_or_default();
    again(&last_known);
    again(&tombstones);
    // No drive is attached: all known drives and volumes are missing or were deleted.
    let (day, none) = (Duration::from_secs(86400), BTreeMap::new());
    let merged = merge::merge(&last_known, &tombstones, &none, u64::MAX, day, day);
    assert!(merged.missing_drives.len() <= last_known.drives.len());
    assert!(merged.due.is_empty(), "nothing is erased that is not here");
    if let Ok(remembered) = serde_json::from_slice::<memory::Remembered>(data) {
        again(&remembered);
        let (notes, ..) = memory::recall(remembered, "another boot", day, u64::MAX);
        again(&notes);
    }
    if let Ok(history) = History::from_json(data) {
        again(&history);
    }
    if let Ok(checked) = serde_json::from_slice::<Checked>(data) {
        again(&checked);
    }
    if let Ok(note) = serde_json::from_slice::<Note>(data) {
        again(&note);
    }
}

fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let host = HostFacts {
        hostname: "h".into(),
        has_dir: |_| false,
        check_mount_options: |_, _| OptionsCheck::Accepted,
    };
    if let Err(problems) = config::parse(&text, &host) {
        let listing = config::listed(Path::new("agent.toml"), &problems);
        assert!(!problems.is_empty() && !listing.is_empty());
    }
    for word in text.split(['"', '\n']) {
        let _ = (
            drivebay_common::sizes::parse_size(word),
            drivebay_common::durations::parse_duration(word),
        );
    }
}
