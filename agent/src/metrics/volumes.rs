//! Series of volumes: identity, conditions, and usage at the last sample.

use std::collections::BTreeMap;

use drivebay_common::metrics::{
    Def, Families,
    families::{gauge, number, one, truth},
};

use super::View;
use drivebay_evidence::unreadable::affected_files;
use drivebay_fs::jobs::Usage;
use drivebay_model::{CreatedFor, FsType, Mode, SnapshotState, Volume, VolumeState};
use drivebay_node::inventory::assemble::is_live;

const VOLUME: &[&str] = &["volume"];

const INFO: Def = gauge(
    "drivebay_volume_info",
    "Identity of the volume, in labels; always 1. name is its CSI name; persistentvolume, persistentvolumeclaim and namespace are what it was created for, in Kubernetes, until it is deleted; device is its kernel name, as in node_exporter's metrics of disks.",
    &[
        "volume",
        "name",
        "class",
        "drive",
        "mode",
        "fs",
        "device",
        "persistentvolume",
        "persistentvolumeclaim",
        "namespace",
    ],
);
const STATE: Def = gauge(
    "drivebay_volume_state",
    "1 for the volume's current state: new, ready, copying, erasing, ambiguous, quarantined, missing or not-scanned.",
    &["volume", "state"],
);
const CONDITION: Def = gauge(
    "drivebay_volume_condition",
    "1 for each active condition of the volume, with the status and reason that CSI reports.",
    &["volume", "status", "reason"],
);
const ABNORMAL: Def = gauge(
    "drivebay_volume_abnormal",
    "1 if the volume has an abnormal condition, else 0.",
    VOLUME,
);
const IN_USE: Def = gauge(
    "drivebay_volume_in_use",
    "1 if the volume is staged or published on this node, else 0.",
    VOLUME,
);
const SIZE: Def = gauge("drivebay_volume_size_bytes", "Size of the volume.", VOLUME);
const ERASED: Def = gauge(
    "drivebay_volume_erased_bytes",
    "Bytes of the deleted volume that are already erased.",
    VOLUME,
);
const SAMPLED: Def = gauge(
    "drivebay_volume_fs_sample_timestamp_seconds",
    "Unix time of the volume's filesystem statistics; the kubelet requests them about once a minute.",
    VOLUME,
);
const FS_SIZE: Def = gauge(
    "drivebay_volume_fs_size_bytes",
    "Filesystem size in bytes.",
    VOLUME,
);
const FS_USED: Def = gauge(
    "drivebay_volume_fs_used_bytes",
    "Filesystem bytes in use.",
    VOLUME,
);
const FS_AVAILABLE: Def = gauge(
    "drivebay_volume_fs_available_bytes",
    "Filesystem bytes available to unprivileged users.",
    VOLUME,
);
const FS_INODES: Def = gauge(
    "drivebay_volume_fs_inodes",
    "Filesystem inodes in total; absent for filesystems without a fixed number.",
    VOLUME,
);
const FS_INODES_USED: Def = gauge(
    "drivebay_volume_fs_inodes_used",
    "Filesystem inodes in use.",
    VOLUME,
);

const CHECKED: Def = gauge(
    "drivebay_volume_check_timestamp_seconds",
    "Unix time of the last filesystem check with a result (outcome clean or corrupt), and of the last attempt if that had none (inconclusive or not-checkable).",
    &["volume", "outcome"],
);

const UNREADABLE: Def = gauge(
    "drivebay_volume_unreadable_bytes",
    "Bytes of the volume that do not read; absent if none are known.",
    VOLUME,
);
const AFFECTED_FILES: Def = gauge(
    "drivebay_volume_affected_files",
    "Number of files with data in bytes of the volume that do not read; absent if no such bytes are known.",
    VOLUME,
);

const SNAPSHOTS: Def = gauge(
    "drivebay_volume_snapshots",
    "Snapshots of the volume by state: creating, ready, overflowed or ambiguous; absent for a volume without.",
    &["volume", "state"],
);
const SNAPSHOT_RESERVE: Def = gauge(
    "drivebay_volume_snapshot_reserve_bytes",
    "Bytes of the drive that are reserved for what is written to the volume while it has the snapshot.",
    &["volume", "snapshot"],
);
const SNAPSHOT_USED: Def = gauge(
    "drivebay_volume_snapshot_used_bytes",
    "Bytes of the snapshot's reserve that are used; all of them once the snapshot has overflowed and is lost.",
    &["volume", "snapshot"],
);

const SNAPSHOT_EXPIRATION: Def = gauge(
    "drivebay_volume_snapshot_expiration_timestamp_seconds",
    "Unix time at which the snapshot reaches its age limit and is deleted; absent for one without an age limit.",
    &["volume", "snapshot"],
);

pub(super) const DEFINITIONS: &[Def] = &[
    INFO,
    STATE,
    CONDITION,
    ABNORMAL,
    IN_USE,
    SIZE,
    ERASED,
    SAMPLED,
    FS_SIZE,
    FS_USED,
    FS_AVAILABLE,
    FS_INODES,
    FS_INODES_USED,
    CHECKED,
    UNREADABLE,
    AFFECTED_FILES,
    SNAPSHOTS,
    SNAPSHOT_RESERVE,
    SNAPSHOT_USED,
    SNAPSHOT_EXPIRATION,
];

pub(super) fn put(view: &View, into: &mut Families) {
    for (uuid, volume) in &view.snapshot.volumes {
        let id = uuid.to_string();
        one_volume(&id, volume, into);
        // The last sample of a volume that is no longer in use is outdated.
        if volume.in_use
            && volume.placed.record.mode == Mode::Mount
            && let Some((usage, age)) = view.samples.get(uuid)
        {
            let at = view.now.saturating_sub(age.as_secs());
            filesystem(&id, usage, at, into);
        }
    }
}

fn one_volume(id: &str, volume: &Volume, into: &mut Families) {
    let record = &volume.placed.record;
    let labels = [id];
    let fs = match record.mode {
        Mode::Mount => record.fs_type.map_or("", FsType::as_str),
        Mode::Block => "",
    };
    // No PVC label for a deleted volume: the PVC may already have a new one.
    let created_for = if is_live(volume.state) {
        CreatedFor::of(record)
    } else {
        CreatedFor::default()
    };
    let info = [
        id,
        &record.name,
        &record.class,
        &volume.drive.0,
        record.mode.as_str(),
        fs,
        volume.placed.device.as_deref().unwrap_or_default(),
        &created_for.persistent_volume,
        &created_for.claim,
        &created_for.namespace,
    ];
    into.put(&INFO, &info, one());
    into.put(&STATE, &[id, volume.state.as_str()], one());
    for condition in &volume.conditions {
        into.put(
            &CONDITION,
            &[id, condition.status.as_str(), condition.reason.as_str()],
            one(),
        );
    }
    if volume.state != VolumeState::NotScanned {
        into.put(&ABNORMAL, &labels, truth(!volume.conditions.is_empty()));
        into.put(&IN_USE, &labels, truth(volume.in_use));
    }
    into.put(&SIZE, &labels, number(record.size_bytes()));
    for check in &volume.checks {
        into.put(
            &CHECKED,
            &[id, check.outcome.result().as_str()],
            number(check.at),
        );
    }
    if !volume.unreadable.is_empty() {
        let bytes = volume.unreadable.iter().map(|range| range.extent.len);
        into.put(&UNREADABLE, &labels, number(bytes.sum()));
        let files = affected_files(&volume.unreadable) as u64;
        into.put(&AFFECTED_FILES, &labels, number(files));
    }
    let mut states: BTreeMap<SnapshotState, u64> = BTreeMap::new();
    for snapshot in &volume.placed.snapshots {
        *states.entry(snapshot.state()).or_default() += 1;
        let uuid = snapshot.record.uuid;
        let of = [id, &uuid.to_string()];
        into.put(&SNAPSHOT_RESERVE, &of, number(snapshot.reserve_bytes));
        let used = match snapshot.is_overflowed {
            true => Some(snapshot.reserve_bytes),
            false => volume.snapshot_usage.get(&uuid).copied(),
        };
        into.put_known(&SNAPSHOT_USED, &of, used.map(number));
        let expires = snapshot.record.expires_at.map(number);
        into.put_known(&SNAPSHOT_EXPIRATION, &of, expires);
    }
    for (state, count) in states {
        into.put(&SNAPSHOTS, &[id, state.as_str()], number(count));
    }
    let erased = volume.erasing.map(|erasing| number(erasing.done_bytes));
    into.put_known(&ERASED, &labels, erased);
}

fn filesystem(id: &str, usage: &Usage, at: u64, into: &mut Families) {
    let labels = [id];
    into.put(&SAMPLED, &labels, number(at));
    into.put(&FS_SIZE, &labels, number(usage.total_bytes));
    into.put(&FS_USED, &labels, number(usage.used_bytes));
    into.put(&FS_AVAILABLE, &labels, number(usage.available_bytes));
    if let Some((total, _, used)) = usage.inodes {
        into.put(&FS_INODES, &labels, number(total));
        into.put(&FS_INODES_USED, &labels, number(used));
    }
}
