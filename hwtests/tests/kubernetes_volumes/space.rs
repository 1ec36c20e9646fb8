//! Space: volumes that grow while they are used, and claims that do not fit.

use drivebay_hwtests::{
    GIB, MIB,
    kube::{
        Cluster, LIMIT, Scenario,
        manifest::{IDLE, block_claim, claim_of, class, device, mounted, pod},
    },
    long_scenario, wait,
};
use serde_json::Value;

/// A pod with a volume of 512 MiB, which it writes to all the while, and how it measures the volume.
fn grows(it: &Scenario, claim: &Value, pod: &Value, size: &str, bytes: &str) {
    let (claim_name, pod_name) = (&claim["metadata"]["name"], &pod["metadata"]["name"]);
    let (claim_name, pod_name) = (claim_name.as_str().unwrap(), pod_name.as_str().unwrap());
    it.apply(&[claim.clone(), pod.clone()]);
    it.runs(pod_name);
    let number = |script: &str| it.sh(pod_name, script).parse::<u64>().unwrap();
    let before = number(size);
    assert!(before <= 512 * MIB, "{before}");

    it.resize(claim_name, 1024);
    it.until(&["pvc", claim_name], "/status/capacity/storage", "1Gi");
    let after = wait::poll(LIMIT, || Some(number(size)).filter(|now| *now > 900 * MIB));
    assert!(after.is_some(), "{} bytes", number(size));

    let count = number(bytes);
    let more = wait::poll(LIMIT, || (number(bytes) > count).then_some(()));
    assert!(more.is_some(), "the writer of {pod_name} does not write");
    assert_eq!(it.restarts(pod_name), 0, "its writes failed");
    it.had_no_failed_call();
    it.delete_pod(pod_name);
    it.kubectl(&["delete", "pvc", claim_name, "--timeout=120s"]);
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn volumes_grow_under_a_running_writer() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("growing");
    // A write that fails ends the container. ext4 cannot be grown online where root lacks CAP_SYS_RESOURCE.
    let writes = "while :; do dd if=/dev/urandom bs=4k count=1 2>/dev/null >>/data/log; sync; sleep 0.1; done";
    for filesystem in ["xfs", "btrfs"] {
        let name = format!("growing-{filesystem}");
        it.apply(&[class(&name, filesystem)]);
        grows(
            &it,
            &claim_of(filesystem, 512, &name, "Filesystem", "ReadWriteOnce"),
            &pod(filesystem, &[mounted(filesystem, "/data")], writes),
            "stat -f -c '%b %S' /data | { read -r blocks size; echo $((blocks * size)); }",
            "stat -c %s /data/log",
        );
        cluster.kubectl(&["delete", "storageclass", &name]);
    }
    // It counts its writes in the device itself.
    let writes = "at=0; while :; do at=$((at + 1))
        printf '%-512s' $at | dd of=/dev/raw conv=notrunc,fsync 2>/dev/null; sleep 0.1; done";
    grows(
        &it,
        &block_claim("raw", 512),
        &pod("raw", &[device("raw", "/dev/raw")], writes),
        "blockdev --getsize64 /dev/raw",
        "dd if=/dev/raw bs=512 count=1 2>/dev/null | tr -d ' '",
    );
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pod_whose_claim_fits_no_drive_waits_until_one_has_room() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("no-room");
    // Each drive has 6 GiB.
    let names = ["one", "two", "three", "four"];
    for name in names {
        it.apply(&[
            block_claim(name, 4096),
            pod(name, &[device(name, "/dev/raw")], IDLE),
        ]);
    }
    for name in names {
        it.runs(name);
    }
    wait::until(LIMIT, "the published capacity is below 4 GiB", || {
        (cluster.largest_volume()? < 4 * GIB).then_some(())
    });

    it.apply(&[
        block_claim("late", 4096),
        pod("late", &[device("late", "/dev/raw")], IDLE),
    ]);
    it.event(&[
        "Pod/late FailedScheduling",
        "did not have enough free storage",
    ]);
    it.until(&["pvc", "late"], "/status/phase", "Pending");

    it.delete_pod("two");
    it.kubectl(&["delete", "pvc", "two", "--timeout=120s"]);
    it.runs("late");
    it.until(&["pvc", "late"], "/status/phase", "Bound");
    it.end();
}
