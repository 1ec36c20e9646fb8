//! Drivebay in a real Kubernetes: claims and pods, their contents, and what is shown to a user. Run by hwtests/kubernetes, which starts the
//! cluster; each scenario has a namespace, and leaves no volume or data behind.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use drivebay_hwtests::kube::{
    Cluster, NAMESPACE,
    manifest::{IDLE, claim, mounted, pod},
};

#[path = "kubernetes_volumes/block.rs"]
mod block;
#[path = "kubernetes_volumes/copies.rs"]
mod copies;
#[path = "kubernetes_volumes/moving.rs"]
mod moving;
#[path = "kubernetes_volumes/pods.rs"]
mod pods;
#[path = "kubernetes_volumes/space.rs"]
mod space;

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_claim_and_its_pod_keep_data_over_the_pods_replacement() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("claim");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    it.until(&["pvc", "data"], "/status/phase", "Bound");
    let digest = it.write("writer", "/data/letter", 8);
    // As the kubelet names it.
    let agent = ["--namespace", NAMESPACE, "exec", "ds/drivebay-agent", "--"];
    let list = ["drivebay-agent", "volumes", "-o", "wide", "--no-headers"];
    let list = cluster.kubectl(&[&agent[..], &list].concat());
    assert!(list.contains("  claim/writer  "), "{list}");
    it.delete_pod("writer");

    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    it.runs("reader");
    assert_eq!(it.digest("reader", "/data/letter", 8), digest);
    it.end();
}
