//! Snapshots that are lost or expire: the claim of their volume gets an event, since no sidecar checks a VolumeSnapshot again once it
//! was ready.

use drivebay_hwtests::kube::{
    Cluster, GuestNode,
    manifest::{IDLE, copy_of, mounted, pod},
};
use drivebay_hwtests::lab::progress::print_progress;

use super::helpers::{delete, guest_claim, is_ready, nothing_of_snapshots, snapshot_of_class};

pub(crate) fn lost_and_expired(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("ends");
    it.apply(&[
        guest_claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("writer");
    it.apply(&[
        snapshot_of_class("small", "data", "small"),
        snapshot_of_class("brief", "data", "brief"),
    ]);
    for name in ["small", "brief"] {
        is_ready(&it, name);
    }
    let letter = it.write("writer", "/data/letter", 32);
    let event = it.event(&[
        "PersistentVolumeClaim/data SnapshotLost",
        "The volume is not affected",
    ]);
    print_progress(format!("the claim: {event}"));
    assert_eq!(it.digest("writer", "/data/letter", 32), letter);

    it.apply(&[
        copy_of(guest_claim("never", 64), "VolumeSnapshot", "small"),
        pod("reader", &[mounted("never", "/data")], IDLE),
    ]);
    let event = it.event(&[
        "PersistentVolumeClaim/never ProvisioningFailed",
        "FailedPrecondition",
        "it is overflowed",
    ]);
    print_progress(format!("a claim from the lost one: {event}"));
    it.delete_pod("reader");
    delete(&it, "pvc", "never");

    let event = it.event(&[
        "PersistentVolumeClaim/data SnapshotExpired",
        "its age limit",
    ]);
    print_progress(format!("the claim: {event}"));
    for name in ["small", "brief"] {
        delete(&it, "volumesnapshot", name);
    }
    nothing_of_snapshots(node, cluster);
    it.delete_pod("writer");
    it.end();
}
