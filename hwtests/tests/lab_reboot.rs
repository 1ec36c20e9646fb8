//! Drives are recognised by their identity: after a boot with other kernel names, with some unplugged, and with volumes deleted meanwhile.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;

use drivebay_hwtests::{
    GIB, MIB, csi, digest,
    lab::{DriveSpec, Kind, LabRig, Machine, MachineSpec, letters::class_per_drive},
    node::Placed,
};
use tonic::Code;

/// A drive of each kind in each layout; the one in the middle of each bus is not the first in its order.
const DRIVES: [(Kind, &str, &str); 8] = [
    (Kind::Nvme, "nvme-table", "partition"),
    (Kind::Nvme, "nvme-vg", "lvm"),
    (Kind::Scsi, "scsi-table", "partition"),
    (Kind::Scsi, "scsi-vg", "lvm"),
    (Kind::Sata, "sata-table", "partition"),
    (Kind::Sata, "sata-vg", "lvm"),
    (Kind::Virtio, "virtio-table", "partition"),
    (Kind::Virtio, "virtio-vg", "lvm"),
];
/// Unplugged after the first boot: one of each layout.
const AWAY: [&str; 2] = ["nvme-vg", "scsi-table"];

/// Returns the kernel name of each drive that is present, by identity.
async fn names(lab: &LabRig) -> BTreeMap<String, String> {
    let drives = lab.inventory().await.drives.into_iter();
    let here = drives.filter(|drive| !drive.kernel_name.is_empty());
    here.map(|drive| (drive.id, drive.kernel_name)).collect()
}

async fn is_found_again(lab: &LabRig, volume: &Placed, written: &str) {
    lab.volume_is(&volume.id, "ready").await;
    assert_eq!(lab.abnormal(&volume.id).await, None, "{}", volume.id);
    lab.serve(volume).await;
    assert_eq!(lab.letter(volume), written, "{}", volume.id);
    lab.leave_volume(volume).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn after_a_boot_with_drives_in_another_order_and_some_away_each_volume_is_found_or_missed() {
    let specs = DRIVES.map(|(kind, name, _)| DriveSpec::new(kind, name, GIB));
    let machine = Machine::boot(MachineSpec::new("node1").with(specs.into())).unwrap();
    let classes = DRIVES.map(|(_, name, layout)| (name, layout, name));
    let mut lab = LabRig::tuned(machine, "partition", class_per_drive(&classes)).await;
    lab.are_available(&DRIVES.map(|(_, name, _)| name)).await;
    let mut kept = BTreeMap::new();
    let mut gone = Vec::new();
    for (_, name, _) in DRIVES {
        let volume = lab
            .volume_in(name, &format!("kept-{name}"), 64 * MIB, &csi::mount("ext4"))
            .await;
        lab.serve(&volume).await;
        let written = lab.put_letter(&volume, 1024);
        if AWAY.contains(&name) {
            let marked = lab
                .volume_in(name, &format!("gone-{name}"), 16 * MIB, &csi::block())
                .await;
            lab.serve(&marked).await;
            let (mark, target) = (format!("deleted-from-{name}"), marked.target.display());
            lab.guest().run(&format!(
                "printf {mark} | dd of={target} bs=4096 conv=notrunc,fsync"
            ));
            lab.leave_volume(&marked).await;
            gone.push((name, marked, mark));
        }
        lab.leave_volume(&volume).await;
        kept.insert(name, (volume, written));
    }
    let before = names(&lab).await;

    let mut order: Vec<&str> = DRIVES.iter().map(|(_, name, _)| *name).rev().collect();
    order.retain(|name| !AWAY.contains(name));
    lab.agent.stop();
    lab.machine.power_cycle(&order).unwrap();
    lab.start_again().await;
    let after = names(&lab).await;
    let moved = after
        .iter()
        .filter(|(id, name)| before[*id] != **name)
        .count();
    assert!(
        moved >= 2,
        "the test moved {moved} names: {before:?} {after:?}"
    );
    eprintln!("{moved} of {} drives have another name", after.len());
    for name in &order {
        let (volume, written) = &kept[name];
        is_found_again(&lab, volume, written).await;
    }
    let mut words = BTreeMap::new();
    for name in AWAY {
        let id = &kept[name].0.id;
        lab.volume_is(id, "missing").await;
        let message = lab.abnormal(id).await.unwrap();
        assert!(
            message.contains(name) && message.contains("not found on this node"),
            "{message}"
        );
        words.insert(name, message);
        let refused = lab
            .csi
            .stage(id, &kept[name].0.staging, &kept[name].0.capability)
            .await;
        assert_eq!(refused.unwrap_err().code(), Code::Unavailable);
    }

    // Deleted while the drive is missing: not listed any more, also by the restarted agent, whose messages are the same.
    for (_, volume, _) in &gone {
        lab.csi.delete(&volume.id).await.unwrap();
    }
    lab.agent.kill9();
    lab.start_again().await;
    let ids = lab.csi.ids().await.unwrap();
    for (name, volume, _) in &gone {
        assert!(!ids.contains(&volume.id));
        assert_eq!(
            lab.abnormal(&kept[name].0.id).await.as_ref(),
            Some(&words[name])
        );
    }
    for (name, volume, mark) in &gone {
        lab.machine.plug(name);
        lab.drive_named_is(name, "claimed").await;
        is_found_again(&lab, &kept[name].0, &kept[name].1).await;
        lab.volume_is(&volume.id, "quarantined").await;
        let refused = lab
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        assert_eq!(refused.unwrap_err().code(), Code::NotFound);
        assert!(!lab.csi.ids().await.unwrap().contains(&volume.id));
        // The data still exists, and its device is not served.
        let medium = lab.machine.drive(name).file().to_owned();
        assert!(
            !digest::find(&medium, mark.as_bytes()).unwrap().is_empty(),
            "{name}"
        );
    }
    // Another boot with all drives plugged in: the same again.
    let all: Vec<&str> = DRIVES.iter().map(|(_, name, _)| *name).collect();
    lab.agent.stop();
    lab.machine.power_cycle(&all).unwrap();
    lab.start_again().await;
    for (volume, written) in kept.values() {
        is_found_again(&lab, volume, written).await;
    }
    for (name, volume, mark) in &gone {
        lab.volume_is(&volume.id, "quarantined").await;
        let medium = lab.machine.drive(name).file().to_owned();
        assert!(
            !digest::find(&medium, mark.as_bytes()).unwrap().is_empty(),
            "{name}"
        );
    }
}
