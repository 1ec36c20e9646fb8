//! Volumes of pods that are created and deleted: StatefulSets, one pod at a time, ephemeral volumes, ownership of files.

use std::collections::BTreeSet;

use drivebay_hwtests::{
    kube::{
        CLASS, Cluster, Scenario,
        manifest::{IDLE, claim, claim_of, ephemeral, mounted, pod, pod_spec, stateful_set},
    },
    long_scenario,
};
use serde_json::json;

const PODS: [&str; 3] = ["db-0", "db-1", "db-2"];
const FILES: [&str; 2] = ["/data/letter", "/log/letter"];

/// Waits until all pods run, and returns the digest of each file of each.
fn digests(it: &Scenario, of: impl Fn(&str, &str) -> String) -> Vec<String> {
    for pod in PODS {
        it.runs(pod);
    }
    let both = |pod| FILES.map(|file| of(pod, file));
    PODS.into_iter().flat_map(both).collect()
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn pods_of_a_stateful_set_keep_their_own_data_over_deletion_and_scaling() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("stateful-set");
    it.apply(&[stateful_set(
        "db",
        3,
        &[claim("data", 64), claim("log", 64)],
        &[mounted("data", "/data"), mounted("log", "/log")],
        IDLE,
    )]);
    let written = digests(&it, |pod, file| it.write(pod, file, 4));
    for pod in PODS {
        for template in ["data", "log"] {
            let claim = format!("{template}-{pod}");
            it.until(&["pvc", &claim], "/status/phase", "Bound");
        }
    }
    assert_eq!(written.iter().collect::<BTreeSet<_>>().len(), 6);
    let read = || digests(&it, |pod, file| it.digest(pod, file, 4));

    it.kubectl(&["delete", "pod", "--selector", "set=db", "--timeout=120s"]);
    assert_eq!(read(), written, "after all pods were deleted");

    it.kubectl(&["scale", "statefulset", "db", "--replicas=0"]);
    it.has_no_pods();
    it.kubectl(&["scale", "statefulset", "db", "--replicas=3"]);
    assert_eq!(read(), written, "after scaling to 0 and back");
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pod_with_a_read_write_once_pod_claim_survives_a_kubelet_restart_and_an_update() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("one-pod");
    it.apply(&[stateful_set(
        "db",
        1,
        &[claim_of(
            "data",
            64,
            CLASS,
            "Filesystem",
            "ReadWriteOncePod",
        )],
        &[mounted("data", "/data").sub_path("var/db")],
        IDLE,
    )]);
    it.runs("db-0");
    let digest = it.write("db-0", "/data/letter", 4);

    // No other pod may use it meanwhile.
    it.apply(&[pod("second", &[mounted("data-db-0", "/data")], IDLE)]);
    it.event(&[
        "Pod/second FailedScheduling",
        "ReadWriteOncePod access mode",
    ]);
    it.until(&["pod", "second"], "/status/phase", "Pending");
    it.delete_pod("second");

    // The kubelet publishes an already published target again, with its own bind mount of the subPath beside it. A container that exits
    // afterwards is restarted only if that succeeded.
    it.restart_kubelet("db-0");
    it.restart_container("db-0");
    assert_eq!(it.digest("db-0", "/data/letter", 4), digest);

    let before = it.uid("db-0");
    it.kubectl(&["set", "env", "statefulset/db", "RELEASE=2"]);
    it.kubectl(&["rollout", "status", "statefulset/db", "--timeout=120s"]);
    assert_ne!(it.uid("db-0"), before);
    assert_eq!(it.sh("db-0", "echo $RELEASE"), "2");
    assert_eq!(it.digest("db-0", "/data/letter", 4), digest);
    it.had_no_failed_call();
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_ephemeral_volume_is_made_with_its_pod_and_deleted_with_it() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("ephemeral");
    it.apply(&[pod(
        "build",
        &[ephemeral(&claim("scratch", 64), "/scratch")],
        IDLE,
    )]);
    it.runs("build");
    it.until(&["pvc", "build-scratch"], "/status/phase", "Bound");
    let digest = it.write("build", "/scratch/letter", 4);
    assert_eq!(it.digest("build", "/scratch/letter", 4), digest);
    it.delete_pod("build");
    it.has_no_claims();
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pods_fs_group_owns_its_volume() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("fs-group");
    let mut spec = pod_spec(&[mounted("data", "/data")], IDLE);
    spec["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000});
    it.apply(&[
        claim("data", 64),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": spec}),
    ]);
    it.runs("app");
    assert_eq!(it.sh("app", "stat -c '%g' /data"), "2000");
    it.sh("app", "echo hello >/data/letter");
    assert_eq!(it.sh("app", "stat -c '%u %g' /data/letter"), "1000 2000");
    it.end();
}
