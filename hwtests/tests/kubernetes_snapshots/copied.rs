//! Claims that are created from a snapshot, or from another claim.

use drivebay_hwtests::kube::{
    Cluster, GuestNode, Scenario,
    manifest::{IDLE, claim_of, class, copy_of, mounted, pod, snapshot},
};
use drivebay_hwtests::{MIB, lab::progress::print_progress};
use serde_json::json;

use super::helpers::{
    advances, delete, guest_claim, is_ready, lines, nothing_of_snapshots, writes, written,
};

fn filesystem_bytes(it: &Scenario, pod: &str, path: &str) -> u64 {
    let script =
        format!("stat -f -c '%b %S' {path} | {{ read -r blocks size; echo $((blocks * size)); }}");
    it.sh(pod, &script).parse().unwrap()
}

pub(crate) fn restored(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("restored");
    it.apply(&[
        guest_claim("data", 256),
        pod("writer", &[mounted("data", "/data")], &writes("/data")),
    ]);
    it.runs_in_the_guest("writer");
    let letter = it.write("writer", "/data/letter", 16);
    advances(&it, "writer", 5);

    let before = written(&it, "writer");
    it.apply(&[snapshot("moment", "data")]);
    is_ready(&it, "moment");
    let after = written(&it, "writer");
    let newer = it.write("writer", "/data/letter", 16);

    // Mounted beside its source, which has the same filesystem and is still written to.
    it.apply(&[
        copy_of(guest_claim("restored", 512), "VolumeSnapshot", "moment"),
        pod(
            "reader",
            &[mounted("data", "/data"), mounted("restored", "/restored")],
            IDLE,
        ),
    ]);
    let event = it.event(&[
        "PersistentVolumeClaim/restored ProvisioningFailed",
        "Aborted",
        "is being copied",
        "% of",
    ]);
    print_progress(format!("while it is copied: {event}"));
    it.runs_in_the_guest("reader");
    it.until(&["pvc", "restored"], "/status/capacity/storage", "512Mi");
    assert_eq!(it.digest("reader", "/restored/letter", 16), letter);
    assert_eq!(it.digest("reader", "/data/letter", 16), newer);
    let count = lines(&it, "reader", "/restored/log");
    // Plus the line that was durable and not yet counted.
    assert!(
        (before + 1..=after + 2).contains(&count),
        "{count} lines; {before} was durable before, and {after} when it was ready"
    );
    let sizes = ["/data", "/restored"].map(|path| filesystem_bytes(&it, "reader", path));
    assert!(sizes[1] > sizes[0] + 200 * MIB, "{sizes:?}");
    advances(&it, "writer", 5);

    for pod in ["reader", "writer"] {
        it.delete_pod(pod);
    }
    let claim = it.get(&["pvc", "data"]);
    let volume = claim["spec"]["volumeName"].as_str().unwrap();
    delete(&it, "pvc", "data");
    let event = cluster.event(
        "default",
        &[
            &format!("PersistentVolume/{volume} VolumeFailedDelete"),
            "has 1 snapshot",
        ],
    );
    print_progress(format!("deleted before its snapshot: {event}"));
    delete(&it, "volumesnapshot", "moment");
    nothing_of_snapshots(node, cluster);
    it.end();
}

/// XFS: the kernel does not mount two filesystems with one UUID.
pub(crate) fn cloned(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("cloned");
    let mut xfs = class("cloned-xfs", "xfs");
    xfs["parameters"]["class"] = json!("nvme");
    let claim = |name| claim_of(name, 320, "cloned-xfs", "Filesystem", "ReadWriteOnce");
    it.apply(&[
        xfs,
        claim("data"),
        pod("writer", &[mounted("data", "/data")], &writes("/data")),
    ]);
    it.runs_in_the_guest("writer");
    let letter = it.write("writer", "/data/letter", 16);
    advances(&it, "writer", 5);

    let before = written(&it, "writer");
    it.apply(&[
        copy_of(claim("clone"), "PersistentVolumeClaim", "data"),
        pod(
            "reader",
            &[mounted("data", "/data"), mounted("clone", "/clone")],
            IDLE,
        ),
    ]);
    it.runs_in_the_guest("reader");
    let after = written(&it, "writer");
    assert_eq!(it.digest("reader", "/clone/letter", 16), letter);
    let count = lines(&it, "reader", "/clone/log");
    assert!(
        (before + 1..=after + 2).contains(&count),
        "{count} lines; {before} was durable before, and {after} afterwards"
    );
    advances(&it, "writer", 5);
    // The snapshot that it was copied from is deleted.
    nothing_of_snapshots(node, cluster);
    for pod in ["reader", "writer"] {
        it.delete_pod(pod);
    }
    it.end();
    cluster.kubectl(&["delete", "storageclass", "cloned-xfs"]);
}
