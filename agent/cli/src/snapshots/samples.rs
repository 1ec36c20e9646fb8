//! Snapshots of volumes for tests.

use drivebay_proto::agent::{InventoryUpdate, SnapshotGroup, Volume, VolumeSnapshot};

fn snapshot(name: &str) -> VolumeSnapshot {
    VolumeSnapshot {
        id: format!("uuid-{name}@n"),
        name: name.into(),
        size_bytes: 10 << 30,
        reserve_bytes: 2 << 30,
        state: "ready".into(),
        ..VolumeSnapshot::default()
    }
}

/// Volumes web with snapshot w-1, db with d-1 and d-10, and log with none.
pub(super) fn inventory() -> InventoryUpdate {
    let volume = |name: &str, snapshots: &[&str]| Volume {
        id: format!("uuid-{name}@n"),
        name: name.into(),
        state: "ready".into(),
        snapshots: snapshots.iter().map(|name| snapshot(name)).collect(),
        ..Volume::default()
    };
    InventoryUpdate {
        node_id: "node7".into(),
        ready: true,
        volumes: vec![
            volume("web", &["w-1"]),
            volume("db", &["d-1", "d-10"]),
            volume("log", &[]),
        ],
        ..InventoryUpdate::default()
    }
}

/// Makes these snapshots a group.
pub(super) fn in_group(inventory: &mut InventoryUpdate, names: &[&str], group: &str) {
    let group = SnapshotGroup {
        id: format!("uuid-{group}@n"),
        name: group.into(),
        members: u32::try_from(names.len()).unwrap(),
    };
    for volume in &mut inventory.volumes {
        for snapshot in &mut volume.snapshots {
            if names.contains(&snapshot.name.as_str()) {
                snapshot.group = Some(group.clone());
            }
        }
    }
}
