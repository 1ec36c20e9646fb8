//! A drive from another node is probed and left unchanged until an operator adopts it or wipes it.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use drivebay_hwtests::{
    GIB, MIB, csi, digest,
    lab::{
        DriveSpec, LabRig, Machine, MachineSpec,
        letters::{LAB_LIMIT, class_per_drive},
    },
    node::Placed,
    wait,
};
use drivebay_proto::agent as wire;

const DRIVES: [(&str, &str); 2] = [("table-drive", "partition"), ("group-drive", "lvm")];

async fn node(name: &str, drives: Vec<DriveSpec>) -> LabRig {
    let classes = DRIVES.map(|(name, layout)| (name, layout, name));
    let machine = Machine::restored(MachineSpec::new(name).with(drives)).unwrap();
    LabRig::tuned(machine, "partition", class_per_drive(&classes)).await
}

/// Moves a drive from one machine to another.
fn carry(from: &mut LabRig, to: &mut LabRig, name: &str) {
    from.machine.unplug(name);
    let drive = from.machine.take(name);
    to.machine.give(drive);
}

/// Waits until the node rejects the drive as one of the node `owner`, and returns it.
async fn is_elsewhere(lab: &LabRig, name: &str, owner: &str) -> wire::Drive {
    let what = format!("{name} is refused as {owner}'s");
    wait::until_async(LAB_LIMIT, &what, async || {
        let drive = lab.drive_named(name).await?;
        let mut reasons = drive.rejects.iter();
        let has_reason = reasons.any(|of| of.code == "OursElsewhere" && of.detail.contains(owner));
        (has_reason && drive.state == "rejected").then_some(drive)
    })
    .await
}

fn print(lab: &LabRig, name: &str) -> u64 {
    digest::of(lab.machine.drive(name).file()).unwrap()
}

/// Scans all drives twice, so that any change that the agent makes to one has been made.
async fn scan_twice(lab: &LabRig) {
    let channel = csi::channel(&lab.agent_socket).await.unwrap();
    let mut client = wire::agent_client::AgentClient::new(channel);
    for _ in 0..2 {
        client.rescan(wire::RescanRequest {}).await.unwrap();
    }
}

/// Lists the guest's partitions and device-mapper devices.
fn devices(lab: &LabRig) -> String {
    lab.guest().run("cat /proc/partitions; dmsetup ls")
}

fn renamed(volume: &Placed, from: &str, to: &str) -> Placed {
    Placed {
        id: volume.id.replace(&format!("@{from}"), &format!("@{to}")),
        ..volume.clone()
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_carried_to_another_node_is_left_alone_until_it_is_adopted_there() {
    let specs = vec![
        DriveSpec::nvme("table-drive", GIB),
        DriveSpec::scsi("group-drive", GIB),
    ];
    let mut first = node("node1", specs).await;
    first.are_available(&DRIVES.map(|(name, _)| name)).await;
    let mut second = node("node2", vec![]).await;
    for (name, _) in DRIVES {
        let volume = first
            .volume_in(name, &format!("on-{name}"), 128 * MIB, &csi::mount("ext4"))
            .await;
        first.serve(&volume).await;
        let written = first.put_letter(&volume, 2048);
        first.leave_volume(&volume).await;

        carry(&mut first, &mut second, name);
        let drive = is_elsewhere(&second, name, "node1").await;
        // The node that misses the drive reports it as well.
        first.volume_is(&volume.id, "missing").await;
        assert!(first.abnormal(&volume.id).await.unwrap().contains(name));
        let (before, had) = (print(&second, name), devices(&second));
        scan_twice(&second).await;
        let ran = second.agent.run_command(&["drive", "adopt", &drive.id]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stderr.contains("node1") && ran.stderr.contains("--confirm"),
            "{ran:?}"
        );
        let ran = second
            .agent
            .run_command(&["drive", "adopt", &drive.id, "--confirm", "other"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let here = renamed(&volume, "node1", "node2");
        for id in [&volume.id, &here.id] {
            let staged = second
                .csi
                .stage(id, &volume.staging, &volume.capability)
                .await;
            assert_eq!(staged.unwrap_err().code(), tonic::Code::NotFound);
        }
        // This node cannot report the state of the other node's volume; it has none of its own.
        let deleted = second.csi.delete(&volume.id).await;
        assert_eq!(deleted.unwrap_err().code(), tonic::Code::Unavailable);
        second.csi.delete(&here.id).await.unwrap();
        let made = second
            .try_volume_in(name, "other", 4 * MIB, &csi::block())
            .await;
        assert_eq!(made.unwrap_err().code(), tonic::Code::ResourceExhausted);
        second.agent.kill9();
        second.start_again().await;
        is_elsewhere(&second, name, "node1").await;
        assert!(second.csi.ids().await.unwrap().is_empty());
        assert_eq!(
            devices(&second),
            had,
            "something was made of a drive that is not ours"
        );
        assert_eq!(
            print(&second, name),
            before,
            "bytes of a drive that is not ours changed"
        );

        let ran = second
            .agent
            .run_command(&["drive", "adopt", &drive.id, "--confirm", &drive.id]);
        assert!(ran.ok() && ran.stdout.contains("1 volume;"), "{ran:?}");
        second.drive_named_is(name, "claimed").await;
        assert_eq!(second.csi.ids().await.unwrap(), [here.id.as_str()]);
        second.serve(&here).await;
        assert_eq!(second.letter(&here), written);
        let newer = second.put_letter(&here, 512);
        second.leave_volume(&here).await;

        // Back on the first node it is another node's drive there, and missing on the second.
        carry(&mut second, &mut first, name);
        is_elsewhere(&first, name, "node2").await;
        second.volume_is(&here.id, "missing").await;
        let before = print(&first, name);
        scan_twice(&first).await;
        let listed = first.volume_of(&volume.id).await;
        eprintln!("{name}: of the volume that went away with it, its first node says {listed:?}");
        assert!(listed.is_none_or(|of| of.state == "missing"));
        let staged = first
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        eprintln!("{name}: and to a stage call {staged:?}");
        assert!(staged.is_err());
        assert_eq!(print(&first, name), before);
        let ran = first
            .agent
            .run_command(&["drive", "adopt", name, "--confirm", name]);
        assert!(!ran.ok(), "{ran:?}");
        let ran = first
            .agent
            .run_command(&["drive", "adopt", &drive.id, "--confirm", &drive.id]);
        assert!(ran.ok(), "{ran:?}");
        first.volume_is(&volume.id, "ready").await;
        first.serve(&volume).await;
        assert_eq!(first.letter(&volume), newer);
        first.leave_volume(&volume).await;
        // The next agent finds the second node without a drive, and without persisted state of one.
        carry(&mut first, &mut second, name);
        is_elsewhere(&second, name, "node1").await;
        wait::until_async(LAB_LIMIT, "the second node's memory ends", async || {
            second.csi.ids().await.unwrap().is_empty().then_some(())
        })
        .await;
        second.machine.unplug(name);
        let drive = second.machine.take(name);
        first.machine.give(drive);
        first.volume_is(&volume.id, "ready").await;
    }
}
