//! Space: volumes that are expanded while in use, and claims that do not fit.

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    GIB, MIB,
    kube::{
        Cluster, LIMIT, Scenario,
        manifest::{IDLE, block_claim, claim, claim_of, class, device, mounted, pod},
    },
    long_scenario,
};
use serde_json::Value;

/// A claim and a pod of one name, and the scripts that print the volume's size in bytes and the number of the pod's writes.
struct Grown<'a> {
    name: &'a str,
    size: &'a str,
    written: &'a str,
}

impl Grown<'_> {
    fn number(&self, it: &Scenario, script: &str) -> u64 {
        it.sh(self.name, script).parse().unwrap()
    }
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn volumes_grow_under_a_running_writer() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("growing");
    // Two of them do not fit one drive of 6 GiB, so that each can be expanded.
    let (before, after) = (4096, 5120);
    // A failed write ends its container. No ext4: expanding it online needs CAP_SYS_RESOURCE, which root may lack here.
    let appends = "while :; do dd if=/dev/urandom bs=4k count=1 2>/dev/null >>/data/log; sync; sleep 0.1; done";
    let of_filesystem = |name| {
        let class_name = format!("growing-{name}");
        it.apply(&[
            class(&class_name, name),
            claim_of(name, before, &class_name, "Filesystem", "ReadWriteOnce"),
            pod(name, &[mounted(name, "/data")], appends),
        ]);
        Grown {
            name,
            size: "stat -f -c '%b %S' /data | { read -r blocks size; echo $((blocks * size)); }",
            written: "stat -c %s /data/log",
        }
    };
    // The number of writes is stored in the device itself.
    let counts = "at=0; while :; do at=$((at + 1))
        printf '%-512s' $at | dd of=/dev/raw conv=notrunc,fsync 2>/dev/null; sleep 0.1; done";
    it.apply(&[
        block_claim("raw", before),
        pod("raw", &[device("raw", "/dev/raw")], counts),
    ]);
    let all = [
        of_filesystem("xfs"),
        of_filesystem("btrfs"),
        Grown {
            name: "raw",
            size: "blockdev --getsize64 /dev/raw",
            written: "dd if=/dev/raw bs=512 count=1 2>/dev/null | tr -d ' '",
        },
    ];
    for one in &all {
        it.runs(one.name);
        assert!(one.number(&it, one.size) <= before * MIB);
        it.resize(one.name, after);
    }
    // The kubelet begins with its next sync of the pod, within about a minute.
    for one in &all {
        it.until(&["pvc", one.name], "/status/capacity/storage", "5Gi");
        let size = one.number(&it, one.size);
        assert!(size > (before + after) / 2 * MIB, "{}: {size}", one.name);
        let written = one.number(&it, one.written);
        let more = wait::poll(LIMIT, || {
            (one.number(&it, one.written) > written).then_some(())
        });
        assert!(more.is_some(), "{}: nothing more is written", one.name);
        assert_eq!(it.restarts(one.name), 0, "{}: a write failed", one.name);
    }
    it.had_no_failed_call();
    cluster.kubectl(&["delete", "storageclass", "growing-xfs", "growing-btrfs"]);
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

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_full_filesystem_is_a_condition_of_its_pod_and_of_its_claim_until_it_has_room() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("full");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    assert_eq!(it.health_message("writer"), None);
    it.sh(
        "writer",
        "! dd if=/dev/zero of=/data/full bs=64k 2>/dev/null && sync",
    );

    let message = wait::until(LIMIT, "the pod has an event about its full volume", || {
        it.health_message("writer")
            .filter(|message| message.contains("VolumeFull"))
    });
    println!("the pod: {message}");
    let event = it.event(&["PersistentVolumeClaim/data", "VolumeConditionAbnormal"]);
    assert!(event.contains("VolumeFull"), "{event}");
    println!("the claim: {event}");
    if cluster.version() >= (1, 37) {
        let conditions = it.volume_health("writer");
        assert_eq!(conditions.len(), 1, "{conditions:#?}");
        assert_eq!(conditions[0]["status"], "Degraded");
        assert_eq!(conditions[0]["reason"], "VolumeFull");
        // A full volume is no fault of its drive.
        assert_eq!(cluster.storage_health("node-1"), [Value::Null; 0]);
        // No program of Kubernetes 1.37.2 and no sidecar of the chart writes this.
        assert_eq!(
            it.get(&["pvc", "data"])["status"]["healthStatus"],
            Value::Null
        );
        // The kubelet does not write events about it either.
        let of_pod = "Pod/writer VolumeCondition";
        let events = cluster.events(&it.name);
        assert!(
            !events.iter().any(|event| event.starts_with(of_pod)),
            "{events:#?}"
        );
    }

    it.sh("writer", "rm /data/full");
    if cluster.version() >= (1, 37) {
        wait::until(LIMIT, "the pod has no event", || {
            it.health_message("writer").is_none().then_some(())
        });
    }
    it.event(&["PersistentVolumeClaim/data", "VolumeConditionNormal"]);
    it.end();
}
