//! A claim interrupted before it wrote the label is finished by the next one; a label missing from a drive with volumes is damage, not an
//! empty drive.

use std::{fs::File, os::unix::fs::FileExt};

use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need, settings, tools};
use tonic::Code;

use super::helpers::{abnormal, codes, letter, print, read_letter, zero};

#[tokio::test]
async fn a_claim_cut_off_before_its_label_counts_as_blank_and_is_finished_by_the_next() {
    // For layout lvm, a test of the agent itself covers such a claim, since it can stop in the middle.
    need!(root, loop, layout "partition", tool "sgdisk", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let free = rig.csi.capacity().await.unwrap();
    let first = rig.volume("first", 64 * MIB, &csi::block()).await;
    rig.csi.delete(&first.id).await.unwrap();
    rig.erased().await;
    rig.agent.stop().unwrap();
    zero(&rig.shelf.drives()[0].device, MIB, 4 * MIB);
    let before = print(&rig, "a");

    rig.start_again().await;
    rig.drive_is("a", "available").await;
    assert_eq!(rig.csi.capacity().await.unwrap(), free);
    assert_eq!(print(&rig, "a"), before, "looking changed bytes");
    let second = letter(&rig, "second").await;
    rig.drive_is("a", "claimed").await;
    read_letter(&rig, &second, "second").await;
    rig.shelf.flush().unwrap();
    let file = rig.shelf.file("a").display().to_string();
    let output = tools::run("sgdisk", &["-v", &file]).unwrap();
    assert!(output.contains("No problems found"), "{output}");
}

#[tokio::test]
async fn a_claim_cut_off_before_its_label_is_not_finished_over_what_was_put_on_the_drive_since() {
    need!(root, loop, layout "partition");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let first = rig.volume("first", 64 * MIB, &csi::block()).await;
    rig.csi.delete(&first.id).await.unwrap();
    rig.erased().await;
    rig.agent.stop().unwrap();
    let device = rig.shelf.drives()[0].device.clone();
    zero(&device, MIB, 4 * MIB);
    // An array's superblock of version 1.2 lies in the first copy of the table. The second copy is still ours.
    let drive = File::options().write(true).open(&device).unwrap();
    drive
        .write_all_at(&0xa92b_4efc_u32.to_le_bytes(), 4096)
        .unwrap();
    drive.sync_all().unwrap();
    drop(drive);
    let before = print(&rig, "a");
    rig.start_again().await;
    let created = rig.csi.create("other", 16 * MIB, &csi::block()).await;
    assert!(created.is_err(), "{created:?}");
    assert_eq!(print(&rig, "a"), before);
}

#[tokio::test]
async fn a_drive_with_volumes_and_no_label_is_never_claimed() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    // The volumes' records, and all signatures of Drivebay except in the first sectors.
    let (at, len) = match settings::layout().as_str() {
        "lvm" => (4096, 3 * MIB - 4096),
        _ => (MIB, 4 * MIB),
    };
    zero(&rig.shelf.drives()[0].device, at, len);
    let before = print(&rig, "a");
    for forgetful in [false, true] {
        if forgetful {
            std::fs::remove_dir_all(rig.dir().join("state")).unwrap();
        }
        rig.start_again().await;
        let drive = rig.drive_is("a", "rejected").await;
        assert!(codes(&drive).contains(&"OursDamaged"), "{drive:?}");
        let created = rig.csi.create("other", 16 * MIB, &csi::block()).await;
        assert_eq!(created.unwrap_err().code(), Code::ResourceExhausted);
        if !forgetful {
            abnormal(&rig, &volume.id).await;
        }
        assert_eq!(rig.csi.capacity().await.unwrap(), 0);
        rig.agent.stop().unwrap();
        assert_eq!(print(&rig, "a"), before);
    }
    rig.start_again().await;
}
