//! Foreign VGs: one with the name of one of Drivebay's on another drive, one with a drive missing, one in use. All are refused, none of
//! their bytes changes, and Drivebay's VG works beside them.

use drivebay_hwtests::{
    MIB, csi,
    lab::{DriveSpec, LabRig, Machine, MachineSpec},
    long,
};

use super::helpers::{drive_is, host, node, print};

const SIZE: u64 = 256 * MIB;
const EVENT_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn other_vgs_also_partial_ones_and_namesakes_are_refused_and_left_byte_for_byte() {
    long!();
    let names = ["mine", "foreign", "spread-1", "spread-2"];
    let drives = names.map(|name| DriveSpec::scsi(name, SIZE));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives.into())).unwrap();
    let guest = machine.guest().clone();
    let [_, foreign, spread, other] = names.map(|name| node(&guest, name));
    guest.run(&format!(
        "set -e; vgcreate -q theirs {foreign}; lvcreate -q -Wn -L 64m -n data theirs; mkfs.ext4 -q /dev/theirs/data
         mkdir /mnt/theirs; mount /dev/theirs/data /mnt/theirs; echo dear >/mnt/theirs/letter
         umount /mnt/theirs; vgchange -q -an theirs
         vgcreate -q spread {spread} {other}; lvcreate -q -Wn -i 2 -L 64m -n wide spread; vgchange -q -an spread"
    ));
    let mut lab = LabRig::on(machine, "lvm").await;
    lab.machine.unplug("spread-2");
    let ours = lab.volume("first", 32 * MIB, &csi::mount("ext4")).await;
    // A drive that arrives with a VG of the same name as Drivebay's; LVM creates none while /dev has a directory of that name.
    let rows = host(&guest, "vgs", "vg_name,vg_tags");
    let tagged = |row: &&serde_json::Value| row["vg_tags"].as_str().unwrap().contains("drivebay.");
    let row = rows
        .iter()
        .find(tagged)
        .unwrap_or_else(|| panic!("no VG of ours: {rows:?}"));
    let name = row["vg_name"].as_str().unwrap();
    lab.machine.add(DriveSpec::scsi("namesake", SIZE));
    let twin = node(&guest, "namesake");
    guest.run(&format!("rm -r /dev/{name}"));
    // The agent or udevd may be probing the new drive at this moment.
    guest.wait_until(EVENT_LIMIT, "the namesake is made", |guest| {
        let made = guest.ran(&format!("vgcreate -q --devices {twin} {name} {twin}"));
        made.ok().then_some(())
    });
    guest.run(&format!(
        "set -e; lvcreate -q --devices {twin} -an -Zn -Wn -l 4 -n first {name}
         sync {twin}; udevadm trigger --settle {twin}"
    ));
    let others = [
        ("foreign", &foreign),
        ("spread-1", &spread),
        ("namesake", &twin),
    ];
    for (serial, _) in others {
        let drive = drive_is(&lab, serial, "rejected").await;
        let codes: Vec<_> = drive.rejects.iter().map(|of| of.code.as_str()).collect();
        assert!(codes.contains(&"LvmPv"), "{serial}: {drive:?}");
    }
    let before = others.map(|(_, node)| print(&guest, node));

    for round in 0..2 {
        lab.use_volume(&ours).await;
        let letter = ours.target.join(format!("letter-{round}"));
        guest.write(&letter, b"dear reader");
        let size = (48 + 16 * round) * MIB;
        lab.csi
            .expand(&ours.id, size, &ours.capability)
            .await
            .unwrap();
        lab.csi
            .node_expand(&ours.id, &ours.target, size)
            .await
            .unwrap();
        assert_eq!(guest.read(&letter), b"dear reader");
        lab.leave_volume(&ours).await;
        let short = lab.volume("short", 32 * MIB, &csi::block()).await;
        lab.use_volume(&short).await;
        lab.leave_volume(&short).await;
        lab.csi.delete(&short.id).await.unwrap();
        lab.erased().await;
        let too_much = lab
            .csi
            .create("too much", SIZE - 32 * MIB, &csi::block())
            .await;
        assert_eq!(too_much.unwrap_err().code(), tonic::Code::ResourceExhausted);
        lab.agent.kill9();
        lab.start_again().await;
    }
    assert_eq!(others.map(|(_, node)| print(&guest, node)), before);
    // The partial VG is complete again, and still foreign.
    lab.machine.plug("spread-2");
    drive_is(&lab, "spread-2", "rejected").await;
    guest.run("vgchange -q -ay spread && vgchange -q -an spread");
    lab.use_volume(&ours).await;
    lab.leave_volume(&ours).await;
}
