//! Snapshots, claims that are restored from them or cloned, and groups of snapshots: with the real snapshot-controller, csi-snapshotter,
//! csi-provisioner and kubelet, on a node in the lab's guest (layout `lvm`). Run by hwtests/kubernetes --long.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use drivebay_hwtests::{
    GIB,
    kube::{
        Cluster, GuestNode, GuestScenario, merge,
        suite::{LeftOut, Specs},
    },
    lab::{DriveSpec, progress::print_progress},
    long_scenario,
};
use serde_json::{Value, json};

mod kubernetes_snapshots {
    pub(crate) mod copied;
    pub(crate) mod ends;
    pub(crate) mod group;
    pub(crate) mod helpers;
    pub(crate) mod refused;
}

use kubernetes_snapshots::{copied, ends, group, helpers, refused};

const SCENARIOS: [(&str, GuestScenario); 7] = [
    (
        "a larger claim restored from a snapshot of one in use",
        copied::restored,
    ),
    ("a clone of a claim in use", copied::cloned),
    ("a group of two claims on two drives", group::of_two_claims),
    ("a snapshot of another node", refused::on_another_node),
    ("a snapshot of a partition", refused::of_a_partition),
    ("a group over two nodes", refused::over_two_nodes),
    (
        "a snapshot that is lost and one that expires",
        ends::lost_and_expired,
    ),
];

const SPECS: Specs = Specs {
    driver: "driver-lvm.yaml",
    only: &[
        "[Feature:VolumeSnapshotDataSource]",
        "pvc data source",
        "volume and its clone from pods",
    ],
    left_out: &[
        LeftOut {
            names: &["pvc data source in parallel"],
            why: "five clones of one volume; kubernetes_suite runs it on this machine's drives",
        },
        LeftOut {
            names: &["(filesystem volmode)"],
            why: "the class makes ext4, so that this is the same as Dynamic PV (ext4)",
        },
    ],
};

/// Joins the guest as a node, and installs Drivebay with csi-snapshotter and these values.
fn joined(cluster: &Cluster, more: &Value) -> GuestNode {
    cluster.uninstall_if_installed();
    let drives = helpers::DRIVES.map(|name| DriveSpec::nvme(name, 6 * GIB));
    let node = GuestNode::join(cluster, drives.into());
    let mut values = json!({
        "snapshots": {"enabled": true},
        // After a failed restore the provisioner releases the VolumeSnapshot in its next sweep, by default every five minutes.
        "provisioner": {"extraArgs": ["--capacity-poll-interval=5s", "--snapshot-orphan-sweep-interval=5s"]},
    });
    merge(&mut values, more);
    node.install_with(&values);
    print_progress("Drivebay is installed on both nodes");
    node
}

#[test]
#[ignore = "needs a cluster and the lab: hwtests/kubernetes --long"]
fn snapshots_restores_clones_and_groups_work_with_the_real_sidecars() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    let values = json!({
        "snapshots": {
            "classes": [
                {"name": "usual", "default": true, "reserve": "50%"},
                {"name": "small", "reserve": "1%", "mostReserve": "8MiB"},
                {"name": "brief", "reserve": "100%", "maxAge": "1m"},
            ],
            "groups": {
                "enabled": true,
                "classes": [{"name": "usual", "default": true, "reserve": "50%"}],
            },
        },
        // Slow enough to observe the progress of a copy of 256 MiB.
        "agent": {"config": {"moves": {"max-bytes-per-second": "8MiB"}}},
    });
    let mut node = joined(&cluster, &values);
    node.run(&SCENARIOS);
    node.leave();
}

#[test]
#[ignore = "needs a cluster and the lab: hwtests/kubernetes --long"]
fn the_storage_suites_specs_of_snapshots_and_clones_pass_on_layout_lvm() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    let node = joined(&cluster, &json!({}));
    let free = cluster.free();
    print_progress("specs of snapshots and clones: begun; they take about an hour");
    cluster.passes(&SPECS);
    cluster.nothing_is_unclaimed();
    helpers::nothing_of_snapshots(&node, &cluster);
    cluster.until_free(free);
    node.leave();
}
