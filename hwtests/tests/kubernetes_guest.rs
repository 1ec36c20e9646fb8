//! Drivebay in a real Kubernetes on a node in the lab's guest: layout `lvm`, ext4 grown online, and a drive that is unplugged
//! under a pod. Run by hwtests/kubernetes --long, which starts the cluster and builds the lab.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Instant;

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    GIB, MIB,
    kube::{
        Cluster, GUEST_CLASS, GuestNode, GuestScenario, LIMIT,
        manifest::{IDLE, claim_of, class, device, mounted, pod},
    },
    lab::{DriveSpec, progress::print_progress},
    long_scenario,
};
use serde_json::{Value, json};

/// Serial numbers of the guest's drives.
const DRIVES: [&str; 2] = ["bay-left", "bay-right"];

const SCENARIOS: [(&str, GuestScenario); 7] = [
    ("data is kept over a pod's replacement", keeps_data),
    ("raw block", raw_block),
    ("ReadWriteOncePod", one_pod),
    ("ext4 and XFS grow online", grows_online),
    ("encrypted by a secret that changes", encrypted),
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
    print_progress("Drivebay is installed on both nodes");
    node.run(&SCENARIOS);
    node.leave();
    print_progress("uninstalled, nothing is left");
}

fn guest_claim(name: &str, mib: u64, mode: &str, access: &str) -> Value {
    claim_of(name, mib, GUEST_CLASS, mode, access)
}

fn keeps_data(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-claim");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("writer");
    let digest = it.write("writer", "/data/letter", 8);
    // The volume is an LV, as the host's own commands report it.
    let volumes = node.guest().run("lvs --noheadings -o lv_full_name");
    assert_eq!(volumes.lines().count(), 1, "{volumes}");
    it.delete_pod("writer");

    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    it.runs_in_the_guest("reader");
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
    it.runs_in_the_guest("writer");
    let digest = it.write("writer", "/dev/raw", 8);
    it.resize("raw", 128);
    let size = || it.sh("writer", "blockdev --getsize64 /dev/raw");
    wait::until(LIMIT, "the device has grown under the pod", || {
        (size() == (128 * MIB).to_string()).then_some(())
    });
    it.delete_pod("writer");

    it.apply(&[pod("reader", &[device("raw", "/dev/raw")], IDLE)]);
    it.runs_in_the_guest("reader");
    assert_eq!(it.digest("reader", "/dev/raw", 8), digest);
    it.end();
}

fn one_pod(_node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-one-pod");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOncePod"),
        pod("first", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("first");
    let digest = it.write("first", "/data/letter", 4);
    it.apply(&[pod("second", &[mounted("data", "/data")], IDLE)]);
    it.event(&["Pod/second", "FailedScheduling", "ReadWriteOncePod"]);
    it.delete_pod("first");
    it.runs_in_the_guest("second");
    assert_eq!(it.digest("second", "/data/letter", 4), digest);
    it.end();
}

/// Expands full volumes of both filesystems in one pod, which continues to write.
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
    it.runs_in_the_guest("writer");
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

/// Uses a filesystem and a raw volume that a secret opens, grows one without a secret, and changes the secret.
fn encrypted(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-encrypted");
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": data});
    let mut class = class("nvme-encrypted", "ext4");
    class["parameters"] = json!({
        "class": "nvme",
        "encryption": "luks2",
        "csi.storage.k8s.io/node-stage-secret-name": "key",
        "csi.storage.k8s.io/node-stage-secret-namespace": it.name,
    });
    it.apply(&[class, secret(json!({"passphrase": "first"}))]);
    let claim =
        |name: &str, mode: &str| claim_of(name, 64, "nvme-encrypted", mode, "ReadWriteOnce");
    it.apply(&[claim("files", "Filesystem"), claim("raw", "Block")]);
    let uses = [mounted("files", "/files"), device("raw", "/dev/raw")];
    it.apply(&[pod("first", &uses, IDLE)]);
    it.runs_in_the_guest("first");
    let paths = ["/files/letter", "/dev/raw"];
    let digests = paths.map(|path| it.write("first", path, 8));
    let mapped = || node.guest().run("dmsetup ls --target crypt");
    assert_eq!(
        mapped().matches("drivebay-crypt-").count(),
        2,
        "{}",
        mapped()
    );
    it.resize("files", 256);
    it.until(&["pvc", "files"], "/status/capacity/storage", "256Mi");
    it.delete_pod("first");
    wait::until(LIMIT, "both volumes are closed", || {
        (!mapped().contains("drivebay-crypt-")).then_some(())
    });

    // The kubelet repeats the stage until the secret is right.
    it.apply(&[secret(json!({"passphrase": "second"}))]);
    it.apply(&[pod("second", &uses, IDLE)]);
    it.event(&["Pod/second", "FailedMount", "does not open volume"]);
    let both = json!({"passphrase": "second", "previousPassphrase": "first"});
    it.apply(&[secret(both)]);
    it.runs_in_the_guest("second");
    for (path, digest) in paths.iter().zip(&digests) {
        assert_eq!(it.digest("second", path, 8), *digest, "{path}");
    }
    it.delete_pod("second");
    it.end();
    cluster.kubectl(&["delete", "storageclass", "nvme-encrypted"]);
}

fn drive_unplugged(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-unplugged");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("db", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("db");
    let digest = it.write("db", "/data/letter", 8);
    assert_eq!(it.health_message("db"), None);
    let drive = node.drive_of(&it.name, "data", &DRIVES);

    node.machine.unplug(drive);
    let from = Instant::now();
    // Users of the volume get I/O errors first, which are reported as such; the missing drive is reported afterwards.
    let message = wait::until(
        LIMIT,
        "the pod has an event about the missing drive",
        || {
            it.health_message("db").filter(|message| {
                message.contains("DriveMissing") || message.contains("DeviceGone")
            })
        },
    );
    print_progress(format!(
        "the pod, after {} s: {message}",
        from.elapsed().as_secs()
    ));
    let event = it.event(&[
        "PersistentVolumeClaim/data",
        "VolumeConditionAbnormal",
        "DriveMissing",
    ]);
    print_progress(format!(
        "the claim, after {} s: {event}",
        from.elapsed().as_secs()
    ));

    node.machine.plug(drive);
    // The pod's mount is of the removed device: only a new pod can use the volume again.
    it.delete_pod("db");
    it.apply(&[pod("db", &[mounted("data", "/data")], IDLE)]);
    it.runs_in_the_guest("db");
    assert_eq!(it.digest("db", "/data/letter", 8), digest);
    // The failed requests keep the drive SUSPECT until an operator acknowledges them.
    node.acknowledge(drive);
    it.event(&["PersistentVolumeClaim/data", "VolumeConditionNormal"]);
    if cluster.version() >= (1, 37) {
        wait::until(LIMIT, "the new pod has no event", || {
            it.health_message("db").is_none().then_some(())
        });
    }
    it.write("db", "/data/letter", 8);
    it.end();
}

/// A volume created by a pod of the DaemonSet is used by an agent that systemd runs beside the same kubelet.
fn as_a_unit(node: &mut GuestNode, cluster: &Cluster) {
    let it = cluster.scenario("guest-unit");
    it.apply(&[
        guest_claim("data", 64, "Filesystem", "ReadWriteOnce"),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs_in_the_guest("writer");
    let digest = it.write("writer", "/data/letter", 4);
    it.delete_pod("writer");

    node.run_unit();
    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    it.runs_in_the_guest("reader");
    assert_eq!(it.digest("reader", "/data/letter", 4), digest);
    node.restart_unit();
    assert_eq!(it.digest("reader", "/data/letter", 4), digest);
    it.delete_pod("reader");
    node.end_unit();
    it.end();
}
