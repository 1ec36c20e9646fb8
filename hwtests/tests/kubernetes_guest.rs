//! Drivebay in a real Kubernetes on a node in the lab's guest: layout `lvm`, ext4 grown online, and a drive that is unplugged
//! under a pod. Run by hwtests/kubernetes --long, which starts the cluster and builds the lab.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    GIB, MIB,
    kube::{
        Cluster, GUEST_CLASS, GuestNode, LIMIT, Scenario,
        manifest::{IDLE, claim_of, class, device, mounted, pod},
    },
    lab::{DriveSpec, progress::say},
    long_scenario,
};
use serde_json::{Value, json};

/// The guest's drives; their serial numbers.
const DRIVES: [&str; 2] = ["bay-left", "bay-right"];

type Run = fn(&mut GuestNode, &Cluster);

/// What runs on one guest, since one takes minutes to join.
const SCENARIOS: [(&str, Run); 6] = [
    ("data is kept over a pod's replacement", keeps_data),
    ("raw block", raw_block),
    ("ReadWriteOncePod", one_pod),
    ("ext4 and XFS grow online", grows_online),
    ("a drive unplugged under a pod", drive_unplugged),
    ("the agent as a unit of systemd", as_a_unit),
];

#[test]
#[ignore = "needs a cluster and the lab: hwtests/kubernetes --long"]
fn both_layouts_meet_a_kubelet() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    let drives = DRIVES.map(|name| DriveSpec::nvme(name, 4 * GIB));
    let mut node = GuestNode::join(&cluster, drives.into());
    node.install();
    say("Drivebay is installed on both nodes");
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        let from = Instant::now();
        // The others are worth knowing, too.
        let passed = catch_unwind(AssertUnwindSafe(|| scenario(&mut node, &cluster))).is_ok();
        let how = if passed { "passed" } else { "FAILED" };
        say(format!("{name}: {how}, {} s", from.elapsed().as_secs()));
        if !passed {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
    node.leave();
    say("uninstalled, nothing is left");
}

fn guest_claim(name: &str, mib: u64, mode: &str, access: &str) -> Value {
    claim_of(name, mib, GUEST_CLASS, mode, access)
}

/// The pod runs on the guest because the volume can only be made there.
fn runs_in_the_guest(it: &Scenario, pod: &str) {
    it.runs(pod);
    assert_eq!(it.get(&["pod", pod])["spec"]["nodeName"], "node-2");
}

fn keeps_data(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-claim");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    runs_in_the_guest(&it, "writer");
    let digest = it.write("writer", "/data/letter", 8);
    // The volume is one of LVM, as the host's own commands see it.
    let volumes = node.guest().run("lvs --noheadings -o lv_full_name");
    assert_eq!(volumes.lines().count(), 1, "{volumes}");
    it.delete_pod("writer");

    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    runs_in_the_guest(&it, "reader");
    assert_eq!(it.digest("reader", "/data/letter", 8), digest);
    it.end();
    let volumes = node.guest().run("lvs --noheadings -o lv_full_name");
    assert_eq!(volumes.trim(), "", "after the claim was deleted");
}

fn raw_block(_node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-block");
    it.apply(&[
        guest_claim("raw", 64, "Block", "ReadWriteOnce"),
        pod("writer", &[device("raw", "/dev/raw")], IDLE),
    ]);
    runs_in_the_guest(&it, "writer");
    let digest = it.write("writer", "/dev/raw", 8);
    it.resize("raw", 128);
    let size = || it.sh("writer", "blockdev --getsize64 /dev/raw");
    wait::until(LIMIT, "the device has grown under the pod", || {
        (size() == (128 * MIB).to_string()).then_some(())
    });
    it.delete_pod("writer");

    it.apply(&[pod("reader", &[device("raw", "/dev/raw")], IDLE)]);
    runs_in_the_guest(&it, "reader");
    assert_eq!(it.digest("reader", "/dev/raw", 8), digest);
    it.end();
}

fn one_pod(_node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-one-pod");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOncePod"),
        pod("first", &[mounted("data", "/data")], IDLE),
    ]);
    runs_in_the_guest(&it, "first");
    let digest = it.write("first", "/data/letter", 4);
    it.apply(&[pod("second", &[mounted("data", "/data")], IDLE)]);
    it.event(&["Pod/second", "FailedScheduling", "ReadWriteOncePod"]);
    it.delete_pod("first");
    runs_in_the_guest(&it, "second");
    assert_eq!(it.digest("second", "/data/letter", 4), digest);
    it.end();
}

/// Full volumes of both filesystems in one pod, which goes on writing.
fn grows_online(_node: &mut GuestNode, cluster: &Cluster) {
    let filesystems = ["ext4", "xfs"];
    let it = cluster.scenario("guest-growing");
    for filesystem in filesystems {
        let mut class = class(&format!("nvme-{filesystem}"), filesystem);
        class["parameters"]["class"] = json!("nvme");
        it.apply(&[class]);
        let class = format!("nvme-{filesystem}");
        it.apply(&[claim_of(
            filesystem,
            320,
            &class,
            "Filesystem",
            "ReadWriteOnce",
        )]);
    }
    let uses = filesystems.map(|name| mounted(name, &format!("/{name}")));
    it.apply(&[pod("writer", &uses, IDLE)]);
    runs_in_the_guest(&it, "writer");
    let kib = |filesystem: &str| {
        let script = format!("df -k /{filesystem} | tail -n 1 | awk '{{print $2}}'");
        it.sh("writer", &script).parse::<u64>().unwrap()
    };
    for filesystem in filesystems {
        let digest = it.write("writer", &format!("/{filesystem}/letter"), 4);
        let fill = format!("dd if=/dev/zero of=/{filesystem}/full bs=1M || true");
        it.sh("writer", &fill);
        let before = kib(filesystem);
        it.resize(filesystem, 640);
        it.until(&["pvc", filesystem], "/status/capacity/storage", "640Mi");
        let grown = wait::poll(LIMIT, || {
            Some(kib(filesystem)).filter(|now| *now > before + 250 * 1024)
        });
        assert!(grown.is_some(), "{filesystem}: {} KiB", kib(filesystem));
        it.sh(
            "writer",
            &format!("dd if=/dev/zero of=/{filesystem}/more bs=1M count=64 conv=fsync"),
        );
        assert_eq!(
            it.digest("writer", &format!("/{filesystem}/letter"), 4),
            digest
        );
    }
    let restarts =
        it.get(&["pod", "writer"])["status"]["containerStatuses"][0]["restartCount"].clone();
    assert_eq!(restarts, 0);
    it.delete_pod("writer");
    it.end();
    for filesystem in filesystems {
        cluster.kubectl(&["delete", "storageclass", &format!("nvme-{filesystem}")]);
    }
}

fn drive_unplugged(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-unplugged");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("db", &[mounted("data", "/data")], IDLE),
    ]);
    runs_in_the_guest(&it, "db");
    let digest = it.write("db", "/data/letter", 8);
    assert_eq!(it.told_of_health("db"), None);
    let drive = node.drive_of(&it.name, "data", &DRIVES);

    node.machine.unplug(drive);
    let from = Instant::now();
    // Whoever uses it gets errors first, which are told as what they are; that the drive is gone follows.
    let told = wait::until(LIMIT, "the pod is told of the missing drive", || {
        it.told_of_health("db")
            .filter(|told| told.contains("DriveMissing") || told.contains("DeviceGone"))
    });
    say(format!(
        "the pod, after {} s: {told}",
        from.elapsed().as_secs()
    ));
    let told = it.event(&[
        "PersistentVolumeClaim/data",
        "VolumeConditionAbnormal",
        "DriveMissing",
    ]);
    say(format!(
        "the claim, after {} s: {told}",
        from.elapsed().as_secs()
    ));

    node.machine.plug(drive);
    // The pod's mount is of the device that is gone: only a new pod has the volume again.
    it.delete_pod("db");
    it.apply(&[pod("db", &[mounted("data", "/data")], IDLE)]);
    runs_in_the_guest(&it, "db");
    assert_eq!(it.digest("db", "/data/letter", 8), digest);
    // Its failed requests stay a reason for suspicion until an operator has seen them.
    node.acknowledge(drive);
    it.event(&["PersistentVolumeClaim/data", "VolumeConditionNormal"]);
    if cluster.version() >= (1, 37) {
        wait::until(LIMIT, "the new pod is told of nothing", || {
            it.told_of_health("db").is_none().then_some(())
        });
    }
    it.write("db", "/data/letter", 8);
    it.end();
}

/// What a pod of the DaemonSet made is used by an agent that systemd runs beside the same kubelet.
fn as_a_unit(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-unit");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    runs_in_the_guest(&it, "writer");
    let digest = it.write("writer", "/data/letter", 4);
    it.delete_pod("writer");

    node.run_unit();
    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    runs_in_the_guest(&it, "reader");
    assert_eq!(it.digest("reader", "/data/letter", 4), digest);
    node.restart_unit();
    assert_eq!(it.digest("reader", "/data/letter", 4), digest);
    it.delete_pod("reader");
    node.end_unit();
    it.end();
}
