//! Nodes for tests, as their agents reported them. Calls reach none of them.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use drivebay_csi::topology::TopologyKey;
use drivebay_proto::agent::{Class, InventoryUpdate, SnapshotGroup, Volume, VolumeSnapshot};
use tokio::sync::watch;

use crate::{
    agents::{Agents, Facts, ForgottenNodes},
    notes::Notes,
};

pub(super) const GIB: u64 = 1 << 30;

pub(super) fn key() -> TopologyKey {
    TopologyKey::new("d")
}

/// An id of this number: of a volume or of a snapshot.
pub(super) fn id(n: u128, node: &str) -> String {
    format!("{}@{node}", uuid::Uuid::from_u128(n))
}

/// A volume of 2 GiB with ext4, of class `hdd`, named after its number.
pub(super) fn volume(n: u128, node: &str, snapshots: Vec<VolumeSnapshot>) -> Volume {
    Volume {
        id: id(n, node),
        name: format!("v{n}"),
        class: "hdd".into(),
        size_bytes: 2 * GIB,
        mode: "mount".into(),
        fs_type: "ext4".into(),
        state: "ready".into(),
        snapshots,
        ..Volume::default()
    }
}

/// A snapshot of 1 GiB, named after its number.
pub(super) fn snapshot(n: u128, node: &str, state: &str) -> VolumeSnapshot {
    VolumeSnapshot {
        id: id(n, node),
        name: format!("s{n}"),
        created_at: 1_800_000_000,
        size_bytes: GIB,
        state: state.into(),
        ..VolumeSnapshot::default()
    }
}

/// A snapshot in the group named `g{group}`, which was taken with `members` snapshots.
pub(super) fn member(
    n: u128,
    node: &str,
    state: &str,
    group: u128,
    members: u32,
) -> VolumeSnapshot {
    VolumeSnapshot {
        group: Some(SnapshotGroup {
            id: id(group, node),
            name: format!("g{group}"),
            members,
        }),
        ..snapshot(n, node, state)
    }
}

/// No nodes yet, of which `n9` was forgotten.
pub(super) fn agents() -> Agents {
    let forgotten = ForgottenNodes::from([("n9".to_owned(), 1)]);
    let forgotten = watch::Sender::new(forgotten).subscribe();
    Agents::with_away_grace(forgotten, Notes::in_memory(), Duration::ZERO)
}

/// A node that reported these volumes before it was disconnected.
pub(super) fn disconnected(agents: &Agents, node: &str, volumes: Vec<Volume>) {
    let facts = Facts {
        node: node.into(),
        identity: None,
        instance: "i".into(),
        machine_id: String::new(),
        version: String::new(),
        address: String::new(),
        copies: false,
    };
    agents.recall(facts, report(volumes)).unwrap();
}

/// A node whose inventory is followed. It has no session, so that each call to it fails.
pub(super) fn followed(agents: &Agents, node: &str, volumes: Vec<Volume>) {
    disconnected(agents, node, Vec::new());
    let agent = agents.get(node).unwrap();
    agent.inventory_for_test(|inventory| {
        inventory.apply(report(volumes), agents.catalog()).unwrap();
    });
}

fn report(volumes: Vec<Volume>) -> InventoryUpdate {
    InventoryUpdate {
        instance: "i".into(),
        revision: 1,
        full: true,
        ready: true,
        volumes,
        classes: vec![Class {
            name: "hdd".into(),
            largest_volume_bytes: 100 * GIB,
            smallest_volume_bytes: 1 << 20,
            extent_bytes: 1 << 20,
            fs_type: "xfs".into(),
            ..Class::default()
        }],
        ..InventoryUpdate::default()
    }
}
