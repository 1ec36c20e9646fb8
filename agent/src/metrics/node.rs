//! Series of the node as a whole: classes, workers, the inventory.

use std::collections::BTreeMap;

use drivebay_common::metrics::{
    Def, Families,
    families::{counter, gauge, number},
};

use super::View;
use drivebay_worker::Slot;

const CLASS: &[&str] = &["class"];

const TOTAL: Def = gauge(
    "drivebay_class_size_bytes",
    "Usable bytes on the class's claimed and available drives, without label and metadata.",
    CLASS,
);
const FREE: Def = gauge(
    "drivebay_class_free_bytes",
    "Bytes of the class available for new volumes.",
    CLASS,
);
const LARGEST: Def = gauge(
    "drivebay_class_largest_volume_bytes",
    "Size in bytes of the largest volume of the class that can be created now.",
    CLASS,
);
const SLOTS: Def = gauge(
    "drivebay_worker_slots",
    "Worker slots by state: idle (a worker process waits for jobs), busy, or stuck.",
    &["slot", "state"],
);
const WAITING: Def = gauge(
    "drivebay_worker_waiting",
    "Callers that wait for a worker slot.",
    &["slot"],
);
const LONGEST: Def = gauge(
    "drivebay_worker_longest_step_seconds",
    "Age in seconds of the oldest operation in progress.",
    &["slot"],
);
const REVISION: Def = gauge(
    "drivebay_inventory_revision",
    "Inventory revision; restarts with the agent.",
    &[],
);
const SCANNED: Def = gauge(
    "drivebay_inventory_last_scan_timestamp_seconds",
    "Unix time of the last complete drive scan; 0 if there was none yet.",
    &[],
);

const FINDING: Def = gauge(
    "drivebay_node_finding",
    "1 for each active finding on the host itself, by code.",
    &["code"],
);

const STATE_FILE: Def = gauge(
    "drivebay_state_file_trouble",
    "1 while a state file of the agent could not be saved (not-saved), could not be read and is left alone (not-read), or was damaged and lies moved aside (set-aside); by file, or directory with a file for each drive or volume.",
    &["file", "trouble"],
);

const EXPIRED: Def = counter(
    "drivebay_snapshots_expired_total",
    "Snapshots that were deleted because they reached their age limit, since the agent started.",
    &[],
);

pub(super) const DEFINITIONS: &[Def] = &[
    TOTAL, FREE, LARGEST, SLOTS, WAITING, LONGEST, REVISION, SCANNED, FINDING, STATE_FILE, EXPIRED,
];

pub(super) fn put(view: &View, into: &mut Families) {
    for (name, class) in &view.snapshot.classes {
        let labels = [name.as_str()];
        into.put(&TOTAL, &labels, number(class.total_bytes));
        into.put(&FREE, &labels, number(class.free_bytes));
        into.put(&LARGEST, &labels, number(class.largest_bytes));
    }
    for slot in Slot::ALL {
        let mut states = BTreeMap::from([("idle", 0), ("busy", 0), ("stuck", 0)]);
        let (mut waiting, mut longest) = (0, 0.0_f64);
        for status in view.slots.iter().filter(|status| status.key.slot == slot) {
            let state = match (status.stuck, &status.step) {
                (true, _) => "stuck",
                (false, Some(_)) => "busy",
                (false, None) => "idle",
            };
            *states.entry(state).or_default() += 1;
            waiting += status.waiting as u64;
            longest = longest.max(status.age.as_secs_f64());
        }
        for (state, count) in states {
            into.put(&SLOTS, &[slot.as_str(), state], number(count));
        }
        into.put(&WAITING, &[slot.as_str()], number(waiting));
        into.put(&LONGEST, &[slot.as_str()], longest);
    }
    into.put(&REVISION, &[], number(view.snapshot.revision));
    for finding in &view.snapshot.findings {
        into.put(&FINDING, &[finding.code.as_str()], 1.0);
    }
    for (trouble, kind) in view.state_files.keys() {
        into.put(&STATE_FILE, &[kind.name(), trouble.as_str()], 1.0);
    }
    into.put(&SCANNED, &[], number(view.scanned_at.unwrap_or(0)));
    into.put(&EXPIRED, &[], number(view.expired_snapshots));
}
