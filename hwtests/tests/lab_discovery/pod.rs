//! The agent in namespaces of its own, as in a pod: udevd's events and semaphores do not reach it, the kernel's events,
//! /dev, /sys and /run of the host do.

use drivebay_hwtests::lab::{LabRig, Machine, MachineSpec};

use super::stand::{both_layouts, uses_both_layouts};

/// Mounts go to the host, as through a pod's Bidirectional mount.
const POD: &str = "/usr/bin/unshare --net --ipc --mount --propagation unchanged";
/// The agent is the first process of its pid namespace: without hostPID.
const POD_OWN_PIDS: &str =
    "/usr/bin/unshare --net --ipc --mount --propagation unchanged --pid --fork --mount-proc";

async fn works_under(pod: &str) {
    let machine = Machine::restored(MachineSpec::new("node1")).unwrap();
    let mut lab = LabRig::tuned(machine, "partition", |settings| {
        both_layouts(settings);
        settings.under = pod.to_owned();
    })
    .await;
    let namespace = |of: &str| lab.guest().run(&format!("readlink /proc/{of}/ns/net"));
    let inside = lab
        .guest()
        .run("pgrep -f '[d]rivebay-agent run' | tail -n1");
    assert_ne!(namespace(inside.trim()), namespace("1"));
    uses_both_layouts(&mut lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn in_a_pods_namespaces_drives_are_seen_to_come_and_go_and_both_layouts_work() {
    works_under(POD).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn without_the_hosts_pid_namespace_both_layouts_work_too() {
    works_under(POD_OWN_PIDS).await;
}
