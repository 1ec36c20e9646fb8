//! Requests that are refused, and the errors in Kubernetes' objects.

use drivebay_hwtests::kube::{
    Cluster, GuestNode,
    manifest::{IDLE, claim, copy_of, mounted, pod, snapshot},
};
use drivebay_hwtests::lab::progress::print_progress;

use super::helpers::{
    delete, error_of, group, guest_claim, is_ready, member, nothing_of_snapshots,
};

/// A claim whose class has drives only on the host's node, from a snapshot in the guest: the scheduler does not exclude it.
pub(crate) fn on_another_node(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("another-node");
    it.apply(&[
        guest_claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("writer");
    it.write("writer", "/data/letter", 4);
    it.apply(&[snapshot("moment", "data")]);
    is_ready(&it, "moment");

    it.apply(&[
        copy_of(claim("restored", 64), "VolumeSnapshot", "moment"),
        pod("reader", &[mounted("restored", "/data")], IDLE),
    ]);
    // The code on which the scheduler chooses another node.
    let event = it.event(&[
        "PersistentVolumeClaim/restored ProvisioningFailed",
        "ResourceExhausted",
        "has to be on node node-2",
    ]);
    print_progress(format!("the claim: {event}"));
    it.until(&["pvc", "restored"], "/status/phase", "Pending");
    it.delete_pod("reader");
    delete(&it, "pvc", "restored");
    delete(&it, "volumesnapshot", "moment");
    nothing_of_snapshots(node, cluster);
    it.end();
}

pub(crate) fn of_a_partition(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("partition");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    it.apply(&[snapshot("moment", "data")]);
    let error = error_of(
        &it,
        &["volumesnapshot", "moment"],
        &["snapshots need layout lvm"],
    );
    print_progress(format!("the snapshot: {error}"));
    delete(&it, "volumesnapshot", "moment");
    nothing_of_snapshots(node, cluster);
    it.end();
}

pub(crate) fn over_two_nodes(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("two-nodes");
    it.apply(&[
        member(claim("here", 64), "both"),
        member(guest_claim("there", 64), "both"),
        pod("host", &[mounted("here", "/data")], IDLE),
        pod("guest", &[mounted("there", "/data")], IDLE),
    ]);
    it.runs("host");
    it.runs_in_the_guest("guest");
    it.apply(&[group("both")]);
    let error = error_of(
        &it,
        &["volumegroupsnapshot", "both"],
        &["of volumes of one node", "on node node-1", "on node node-2"],
    );
    print_progress(format!("the group: {error}"));
    delete(&it, "volumegroupsnapshot", "both");
    nothing_of_snapshots(node, cluster);
    it.end();
}
