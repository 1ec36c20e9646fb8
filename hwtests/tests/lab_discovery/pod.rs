//! The agent in namespaces of its own, as in a pod: udevd's events and semaphores do not reach it; the kernel's events and the host's /dev,
//! /sys and /run do.

use drivebay_hwtests::{
    MIB,
    lab::{DriveSpec, LabRig, Machine, MachineSpec},
};

use super::stand::{
    BOTH, both_layouts, codes, is_used_to_its_end, named, traces, uses_both_layouts, volume_on_new,
};

/// Mounts propagate to the host, as with Bidirectional propagation in a pod.
const POD: &str = "/usr/bin/unshare --net --ipc --mount --propagation unchanged";
/// The agent is the first process of its PID namespace, as without hostPID.
const POD_OWN_PIDS: &str =
    "/usr/bin/unshare --net --ipc --mount --propagation unchanged --pid --fork --mount-proc";

async fn under(pod: &str) -> LabRig {
    let machine = Machine::restored(MachineSpec::new("node1")).unwrap();
    let lab = LabRig::tuned(machine, "partition", |settings| {
        both_layouts(settings);
        settings.under = pod.to_owned();
    })
    .await;
    is_apart(&lab);
    lab
}

fn is_apart(lab: &LabRig) {
    let namespace = |of: &str| lab.guest().run(&format!("readlink /proc/{of}/ns/net"));
    let inside = lab
        .guest()
        .run("pgrep -f '[d]rivebay-agent run' | tail -n1");
    assert_ne!(namespace(inside.trim()), namespace("1"));
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn in_a_pods_namespaces_drives_are_seen_to_come_and_go_and_both_layouts_work() {
    uses_both_layouts(&mut under(POD).await).await;
}

// Without the host's PID namespace the agent cannot read the host's mounts.
#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn without_the_hosts_pid_namespace_no_drive_is_claimed_and_those_that_are_work_on() {
    let mut lab = under(POD).await;
    let before = traces(&lab);
    let mut volumes = Vec::new();
    for (class, name) in BOTH {
        volumes.push((name, volume_on_new(&mut lab, class, name).await));
    }
    lab.agent.stop();
    lab.agent.settings_mut().under = POD_OWN_PIDS.to_owned();
    lab.start_again().await;
    is_apart(&lab);

    lab.machine.add(DriveSpec::scsi("new", 256 * MIB));
    let new = lab.drive_where_is("new", "rejected", named("new")).await;
    assert_eq!(codes(&new), ["HostUnknown"]);
    assert_eq!(
        (new.transport.as_str(), new.size_bytes),
        ("virtio", 256 * MIB)
    );
    for (name, made) in &volumes {
        is_used_to_its_end(&mut lab, name, made).await;
    }
    assert_eq!(traces(&lab), before);
    lab.machine.unplug("new");
    lab.no_drive("new", named("new")).await;
}
