//! One damaged copy of a partition table is restored from the other and logged as an error; two damaged copies are left unchanged.

use std::{fs::File, os::unix::fs::FileExt, path::Path, process::Command, time::Duration};

use drivebay_hwtests::{
    DriveSpec, MIB, Rig, Settings, csi, digest, need, rig::Placed, tools, wait,
};

use super::helpers::{abnormal, codes, letter, print, read_letter, wipe, zero};

/// Size of a sector, bytes.
const SECTOR: u64 = 512;
const SIZE: u64 = 512 * MIB;

/// True if sgdisk reports no problem. A problem that it could repair counts too: it repairs it in memory first.
fn is_whole(file: &Path) -> bool {
    let sgdisk = tools::find("sgdisk").unwrap();
    let output = Command::new(sgdisk).arg("-v").arg(file).output().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&bytes).to_lowercase();
    let complains = ["caution", "warning", "invalid", "corrupt", "damaged"];
    printed.contains("no problems found") && !complains.iter().any(|word| printed.contains(word))
}

#[tokio::test]
async fn a_damaged_copy_of_the_table_is_written_again_and_logged() {
    need!(root, loop, layout "partition", tool "sgdisk", tool "mkfs.ext4", fs "ext4");
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
        wait::until(Duration::from_secs(20), "the same bytes again", || {
            (print(&rig, "a") == whole).then_some(())
        });
        assert!(is_whole(&file), "the {what} table is not whole again");
        let loud = |line: &str| {
            line.contains("ERROR") && line.contains(&format!("the {what} partition table"))
        };
        // Logged after the repair.
        wait::until(Duration::from_secs(20), "the log says so", || {
            rig.agent.log()[logged..].lines().any(loud).then_some(())
        });
        read_letter(&rig, &volume, "kept").await;
    }
}

#[tokio::test]
async fn a_lost_protective_mbr_is_written_again() {
    need!(root, loop, layout "partition", tool "sgdisk", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let node = rig.shelf.drives()[0].device.clone();
    let whole = print(&rig, "a");
    zero(&node, 0, SECTOR);
    rig.start_again().await;
    rig.drive_is("a", "claimed").await;
    wait::until(Duration::from_secs(20), "the same bytes again", || {
        (print(&rig, "a") == whole).then_some(())
    });
    assert!(is_whole(&rig.shelf.file("a")));
    read_letter(&rig, &volume, "kept").await;
}

/// Returns a drive with a volume whose table was lost while the agent was stopped.
async fn without_table() -> (Rig, Placed) {
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let node = rig.shelf.drives()[0].device.clone();
    zero(&node, SECTOR, SECTOR);
    zero(&node, SIZE - SECTOR, SECTOR);
    (rig, volume)
}

#[tokio::test]
async fn a_drive_with_both_copies_damaged_is_refused_and_not_touched() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume) = without_table().await;
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
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        assert_eq!(staged.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(rig.csi.capacity().await.unwrap(), 0);
        let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
        assert_eq!(code, Some(1), "wiped under a volume: {output}");
        rig.agent.stop().unwrap();
        assert_eq!(print(&rig, "a"), before);
    }
    rig.start_again().await;
}

#[tokio::test]
async fn a_damaged_drive_is_given_up_by_deleting_its_volumes_and_wiping_it() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume) = without_table().await;
    let before = print(&rig, "a");
    rig.start_again().await;
    let drive = rig.drive_is("a", "rejected").await;
    rig.csi.delete(&volume.id).await.unwrap();
    assert!(rig.csi.ids().await.unwrap().is_empty());
    assert_eq!(print(&rig, "a"), before);
    let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
    assert_eq!(code, Some(0), "{output}");
    rig.drive_is("a", "available").await;
    let next = letter(&rig, "next").await;
    read_letter(&rig, &next, "next").await;
}

#[tokio::test]
async fn a_volume_deleted_on_a_damaged_drive_is_quarantined_when_somebody_mends_it() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    rig.shelf.flush().unwrap();
    let node = rig.shelf.drives()[0].device.clone();
    let header = sector(&node, SECTOR);
    zero(&node, SECTOR, SECTOR);
    zero(&node, SIZE - SECTOR, SECTOR);
    rig.start_again().await;
    rig.drive_is("a", "rejected").await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.agent.stop().unwrap();
    let file = File::options().write(true).open(&node).unwrap();
    file.write_all_at(&header, SECTOR).unwrap();
    file.sync_all().unwrap();
    drop(file);
    rig.start_again().await;
    rig.drive_is("a", "claimed").await;
    rig.volume_is(&volume.id, "quarantined").await;
    assert!(rig.csi.ids().await.unwrap().is_empty());
}

/// The results of `wipefs` and a partition tool's "zap", and of a longer `dd`, in a class that takes drives with raw data: neither makes a
/// drive without volumes.
#[tokio::test]
async fn a_drive_whose_marks_were_wiped_is_not_offered_while_its_volumes_are_known() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let tune = |settings: &mut Settings| settings.class = "claim = \"signature-free\"".into();
    for (what, wiped) in [
        ("tables only", vec![(0, 34 * SECTOR), (SIZE - MIB, MIB)]),
        ("all marks", vec![(0, 8 * MIB), (SIZE - MIB, MIB)]),
    ] {
        for state_is_lost in [false, true] {
            if state_is_lost && what == "all marks" {
                // No trace of Drivebay is left, and the class takes such drives.
                continue;
            }
            let what = format!("{what}, state directory lost: {state_is_lost}");
            let mut rig = Rig::tuned(vec![DriveSpec::blank("a", SIZE)], tune).await;
            let volume = letter(&rig, "kept").await;
            rig.agent.stop().unwrap();
            let node = rig.shelf.drives()[0].device.clone();
            for &(at, len) in &wiped {
                zero(&node, at, len);
            }
            if state_is_lost {
                std::fs::remove_file(rig.agent.settings().dir.join("state/known.json")).unwrap();
            }
            let before = print(&rig, "a");
            rig.start_again().await;
            let drive = rig.drive_is("a", "rejected").await;
            assert!(codes(&drive).contains(&"OursDamaged"), "{what}: {drive:?}");
            let refused = rig.csi.create("next", 64 * MIB, &csi::mount("ext4")).await;
            assert!(refused.is_err(), "{what}: claimed again");
            assert_eq!(print(&rig, "a"), before, "{what}");
            if state_is_lost {
                // The volume is unknown now, and no answer states that it does not exist.
                let deleted = rig.csi.delete(&volume.id).await;
                assert!(deleted.is_err(), "{what}: {deleted:?}");
                continue;
            }
            abnormal(&rig, &volume.id).await;
            let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
            assert_eq!(code, Some(1), "wiped under a volume: {output}");
            rig.csi.delete(&volume.id).await.unwrap();
            let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
            assert_eq!(code, Some(0), "{output}");
            rig.drive_is("a", "available").await;
            let next = letter(&rig, "next").await;
            read_letter(&rig, &next, "next").await;
        }
    }
}

fn sector(node: &Path, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SECTOR).unwrap()];
    let file = File::open(node).unwrap();
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// A drive behind a USB dock or another HBA. Its volumes stay known, nothing is written, and no message advises to wipe it.
#[tokio::test]
async fn a_drive_attached_with_other_sectors_is_refused_with_both_sizes_and_whole_when_it_is_back()
{
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    for (written, now) in [(4096, 512), (512, 4096)] {
        let mut rig = Rig::with(vec![DriveSpec::blank("a", SIZE).sector(written)]).await;
        let volume = letter(&rig, "kept").await;
        rig.shelf.pull("a");
        rig.drive_is("a", "missing").await;
        let before = digest::of(&rig.shelf.file("a")).unwrap();
        rig.shelf.plug_with_sector("a", now).unwrap();
        let drive = rig.drive_is("a", "rejected").await;
        let codes: Vec<&str> = drive.rejects.iter().map(|one| one.code.as_str()).collect();
        assert!(codes.contains(&"SectorSizeChanged"), "{codes:?}");
        assert!(!codes.contains(&"OursDamaged"), "{codes:?}");
        let all: String = drive
            .rejects
            .iter()
            .map(|one| one.detail.as_str())
            .collect();
        for part in [
            format!("sectors of {written} bytes"),
            format!("sectors of {now} bytes now"),
        ] {
            assert!(all.contains(&part), "{all}");
        }
        assert!(!all.contains("wipe"), "{all}");
        assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
        let deleted = rig.csi.delete(&volume.id).await.unwrap_err();
        assert_eq!(deleted.code(), tonic::Code::Unavailable, "{deleted:?}");
        rig.agent.stop().unwrap();
        rig.start_again().await;
        rig.drive_is("a", "rejected").await;
        assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
        rig.shelf.pull("a");
        assert_eq!(digest::of(&rig.shelf.file("a")).unwrap(), before);
        rig.shelf.plug_with_sector("a", written).unwrap();
        rig.drive_is("a", "claimed").await;
        read_letter(&rig, &volume, "kept").await;
    }
}
