//! One damaged copy of a table is made whole from the other, loudly; two are left as they are.

use std::path::Path;

use drivebay_hwtests::{DriveSpec, MIB, Rig, digest, need, tools};

use super::helpers::{abnormal, codes, letter, print, read_letter, zero};

/// Bytes of a sector, and of a table's array of 128 entries.
const SECTOR: u64 = 512;
const SIZE: u64 = 512 * MIB;

fn is_whole(file: &Path) -> bool {
    let said = tools::run("sgdisk", &["-v", &file.display().to_string()]).unwrap_or_default();
    said.contains("No problems found")
}

#[tokio::test]
async fn a_damaged_copy_of_the_table_is_written_again_and_the_log_says_so() {
    need!(root, loop, tool "sgdisk", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    let node = rig.shelf.drives()[0].device.clone();
    let file = rig.shelf.file("a");
    for (what, at, len) in [
        ("primary", SECTOR, SECTOR),
        ("backup", SIZE - SECTOR, SECTOR),
        ("primary", 2 * SECTOR, 4 * SECTOR),
        ("backup", SIZE - 33 * SECTOR, 4 * SECTOR),
    ] {
        rig.agent.stop().unwrap();
        rig.shelf.flush().unwrap();
        let whole = digest::of(&file).unwrap();
        zero(&node, at, len);
        assert!(!is_whole(&file), "the damage at {at} is not seen");
        let logged = rig.agent.log().len();
        rig.start_again().await;
        read_letter(&rig, &volume, "kept").await;
        rig.shelf.flush().unwrap();
        assert!(is_whole(&file), "the {what} table is not whole again");
        let log = rig.agent.log()[logged..].to_owned();
        let loud = |line: &str| {
            line.contains("ERROR") && line.contains(&format!("the {what} partition table"))
        };
        assert!(log.lines().any(loud), "the log does not say so:\n{log}");
        let _ = whole;
    }
}

#[tokio::test]
async fn a_lost_protective_mbr_is_written_again() {
    need!(root, loop, tool "sgdisk", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let node = rig.shelf.drives()[0].device.clone();
    let whole = print(&rig, "a");
    zero(&node, 0, SECTOR);
    rig.start_again().await;
    rig.drive_is("a", "claimed").await;
    assert_eq!(print(&rig, "a"), whole);
    assert!(is_whole(&rig.shelf.file("a")));
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_drive_with_both_copies_damaged_is_refused_and_not_touched() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let node = rig.shelf.drives()[0].device.clone();
    zero(&node, SECTOR, SECTOR);
    zero(&node, SIZE - SECTOR, SECTOR);
    let before = print(&rig, "a");
    for _ in 0..2 {
        rig.start_again().await;
        let drive = rig.drive_is("a", "rejected").await;
        let codes = codes(&drive);
        assert!(
            codes.contains(&"OursDamaged") || codes.contains(&"GptDamaged"),
            "{codes:?}"
        );
        abnormal(&rig, &volume.id).await;
        let refused = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        assert!(refused.is_err(), "staged from a damaged drive");
        assert!(rig.csi.delete(&volume.id).await.is_err());
        assert_eq!(rig.csi.capacity().await.unwrap(), 0);
        assert_eq!(print(&rig, "a"), before);
        rig.agent.stop().unwrap();
    }
    rig.start_again().await;
}
