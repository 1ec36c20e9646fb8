//! The agent's read-only root, and `helm test`.

use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, NAMESPACE,
        manifest::{IDLE, claim_of, class, mounted, pod},
    },
    long_scenario,
};

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_agent_that_cannot_write_to_its_root_makes_each_kind_of_filesystem() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let exec = ["--namespace", NAMESPACE, "exec", "ds/drivebay-agent", "--"];
    let refused = cluster
        .try_kubectl(&[&exec[..], &["touch", "/etc/written"]].concat())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("Read-only file system"), "{refused}");

    let it = cluster.scenario("root");
    for filesystem in ["ext4", "xfs", "btrfs"] {
        let name = format!("root-{filesystem}");
        cluster.apply("default", &[class(&name, filesystem)]);
        it.apply(&[
            claim_of(filesystem, 512, &name, "Filesystem", "ReadWriteOnce"),
            pod(filesystem, &[mounted(filesystem, "/data")], IDLE),
        ]);
    }
    for filesystem in ["ext4", "xfs", "btrfs"] {
        it.runs(filesystem);
        let made = it.sh(filesystem, "grep ' /data ' /proc/mounts | cut -d' ' -f3");
        assert_eq!(made, filesystem);
    }
    it.had_no_failed_call();
    it.end();
    for filesystem in ["ext4", "xfs", "btrfs"] {
        cluster.kubectl(&["delete", "storageclass", &format!("root-{filesystem}")]);
    }
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn helm_test_writes_a_volume_of_the_class_and_leaves_nothing() {
    let cluster = Cluster::running();
    cluster.installed();
    let free = cluster.free();
    let output = cluster.helm(&["test", "drivebay", "--namespace", NAMESPACE]);
    assert!(
        output.contains("test-drivebay-loop")
            && output.contains("Phase:")
            && output.contains("Succeeded"),
        "{output}"
    );
    drivebay_hwtests::kube::wait::until(
        drivebay_hwtests::kube::LIMIT,
        "its volume is gone",
        || {
            let volumes = cluster.get("default", &["pv"]).to_string();
            (!volumes.contains(DRIVER) && cluster.free() == free).then_some(())
        },
    );
    cluster.nothing_is_unclaimed();
}
