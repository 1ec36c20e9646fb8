//! Makes the golden files of layout `lvm`: the first release's agent in the lab's guest, whose kernel has device-mapper.

use std::{fs, io::Read, os::unix::fs::FileExt, path::PathBuf};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig, Machine, MachineSpec, letters::LAB_LIMIT},
    wait,
};

use crate::files::{hex, sectors};

/// The block that begins with the magic of a note of erasing, and where it is.
fn note_of_erasing(file: &std::path::Path) -> (u64, Vec<u8>) {
    let mut image = fs::File::open(file).unwrap();
    let mut piece = vec![0; MIB as usize];
    let mut at = 0;
    while image.read_exact(&mut piece).is_ok() {
        for (n, block) in piece.chunks(4096).enumerate() {
            if block.starts_with(b"DRVBAYER") {
                return (at + n as u64 * 4096, block.to_vec());
            }
        }
        at += MIB;
    }
    panic!("there is no note of erasing");
}

/// The newest copy of LVM's metadata that the agent keeps (agent/src/carve/lvm/backup.rs): the text.
fn metadata(file: &std::path::Path) -> Vec<u8> {
    let image = fs::File::open(file).unwrap();
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        image.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let half = 5 * MIB / 2 / 4096 * 4096;
    let copies = [3 * MIB, 3 * MIB + half].map(|at| (at, read(at, 4096)));
    let seqno = |header: &[u8]| u64::from_le_bytes(header[16..24].try_into().unwrap());
    let newest = copies.iter().max_by_key(|(_, header)| seqno(header));
    let (at, header) = newest.unwrap();
    assert!(header.starts_with(b"DRVBAYMD"));
    let len = u32::from_le_bytes(header[12..16].try_into().unwrap()) as usize;
    read(at + 4096, len)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the golden files, in the lab: hwtests/golden"]
async fn the_first_releases_logical_volumes_are_recorded() {
    let out = PathBuf::from(std::env::var_os("DRIVEBAY_GOLDEN_OUT").expect("hwtests/golden"));
    let out = out.join("agent/lvm");
    fs::create_dir_all(&out).unwrap();
    let drives = vec![DriveSpec::scsi("group", 8 * GIB)];
    let machine = Machine::restored(MachineSpec::new("golden0").with(drives)).unwrap();
    let mut lab = LabRig::tuned(machine, "lvm", |settings| {
        settings.placement.clear();
        settings.cluster = "golden".to_owned();
        settings.erase_rate = "96MiB".to_owned();
    })
    .await;
    let erasing = lab.volume("pvc-erasing", 3 * GIB, &csi::block()).await;
    let block = lab.volume("pvc-block", 128 * MIB, &csi::block()).await;
    let mounted = lab
        .volume("pvc mounted:=é", 128 * MIB, &csi::mount("ext4"))
        .await;
    lab.volume("pvc-new", 320 * MIB, &csi::mount("xfs")).await;
    for volume in [&mounted, &block] {
        lab.use_volume(volume).await;
    }
    lab.csi
        .expand(&mounted.id, 192 * MIB, &mounted.capability)
        .await
        .unwrap();
    for volume in [&mounted, &block] {
        lab.leave_volume(volume).await;
    }
    lab.csi.delete(&erasing.id).await.unwrap();
    wait::until_async(LAB_LIMIT, "a note of erasing is on the drive", async || {
        let volume = lab.volume_of(&erasing.id).await?;
        (volume.erased_bytes > GIB + 256 * MIB).then_some(())
    })
    .await;
    let volumes = lab.agent.ask(&["volumes", "-o", "json"]);
    fs::write(out.join("volumes.json"), volumes.stdout).unwrap();
    lab.agent.kill9();
    let known = lab
        .guest()
        .read(&lab.agent.settings().dir.join("state/known.json"));
    fs::write(out.join("known.json"), known).unwrap();
    let reported = "vgs --noheadings -o vg_tags; lvs -a --noheadings --separator '|' -o lv_name,lv_size,lv_tags";
    fs::write(out.join("report.txt"), lab.guest().run(reported)).unwrap();
    lab.guest()
        .run("sync; for lv in $(dmsetup ls | awk '{print $1}'); do dmsetup remove $lv; done; sync");
    lab.machine.unplug("group");
    let drive = lab.machine.take("group");
    let (at, note) = note_of_erasing(drive.file());
    fs::write(out.join("note.hex"), format!("{at} {}\n", hex(&note))).unwrap();
    fs::write(out.join("metadata.txt"), metadata(drive.file())).unwrap();
    let text = sectors(drive.file(), &[(0, 16 * MIB)]);
    fs::write(out.join("group.hex"), text).unwrap();
}
