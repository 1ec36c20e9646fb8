//! Snapshots of several claims at one moment.

use drivebay_hwtests::kube::{
    Cluster, GuestNode, LIMIT,
    manifest::{IDLE, claim_of, class, copy_of, mounted, pod},
    wait,
};
use serde_json::json;

use super::helpers::{
    DRIVES, advances, delete, group, guest_claim, is_ready, lines, member, nothing_of_snapshots,
    writes, written,
};

const CLAIMS: [&str; 2] = ["pair-a", "pair-b"];

/// Each line of the first volume is durable before the same line of the second is written: the second's snapshot must not have a line
/// that the first's lacks.
pub(crate) fn of_two_claims(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("group");
    let mut apart = class("apart", "ext4");
    apart["parameters"] = json!({
        "class": "nvme",
        "csi.storage.k8s.io/fstype": "ext4",
        "antiAffinityPattern": "(pair)-[ab]",
        "antiAffinity": "hard",
    });
    let claim = |name| claim_of(name, 64, "apart", "Filesystem", "ReadWriteOnce");
    let [first, second] = CLAIMS.map(|name| member(claim(name), "pair"));
    let uses = [mounted(CLAIMS[0], "/a"), mounted(CLAIMS[1], "/b")];
    it.apply(&[apart, first, second, pod("writer", &uses, &writes("/a /b"))]);
    it.runs_in_the_guest("writer");
    let drives = CLAIMS.map(|claim| node.drive_of(&it.name, claim, &DRIVES));
    assert_ne!(drives[0], drives[1]);
    advances(&it, "writer", 5);

    let before = written(&it, "writer");
    it.apply(&[group("pair")]);
    it.until(
        &["volumegroupsnapshot", "pair"],
        "/status/readyToUse",
        "true",
    );
    let after = written(&it, "writer");
    advances(&it, "writer", 5);
    let members = wait::until(LIMIT, "the group has two snapshots", || {
        let all = cluster.list(&it.name, &["volumesnapshots"]);
        let of = |claim: &str| {
            let source = "/spec/source/persistentVolumeClaimName";
            let one = all
                .iter()
                .find(|it| it.pointer(source) == Some(&json!(claim)))?;
            Some(one["metadata"]["name"].as_str()?.to_owned())
        };
        Some([of(CLAIMS[0])?, of(CLAIMS[1])?])
    });
    for name in &members {
        is_ready(&it, name);
    }

    let copies = ["copy-a", "copy-b"];
    for (copy, member) in copies.iter().zip(&members) {
        let claim = guest_claim(copy, 64);
        it.apply(&[copy_of(claim, "VolumeSnapshot", member)]);
    }
    let uses = [mounted(copies[0], "/a"), mounted(copies[1], "/b")];
    it.apply(&[pod("reader", &uses, IDLE)]);
    it.runs_in_the_guest("reader");
    let [first, second] = ["/a/log", "/b/log"].map(|file| lines(&it, "reader", file));
    assert!(
        second <= first && first <= second + 1,
        "{first} lines, and {second} that were written after them"
    );
    assert!(
        (before + 1..=after + 2).contains(&second),
        "{second} lines; {before} was durable before, and {after} when it was ready"
    );
    advances(&it, "writer", 5);

    delete(&it, "volumegroupsnapshot", "pair");
    nothing_of_snapshots(node, cluster);
    for pod in ["reader", "writer"] {
        it.delete_pod(pod);
    }
    it.end();
    cluster.kubectl(&["delete", "storageclass", "apart"]);
}
