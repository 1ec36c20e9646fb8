//! Layout partition: a clone has the bytes of its source and its own filesystem, and waits while the source is in use. Snapshots are
//! refused. Snapshots of layout lvm, and clones of volumes in use, are in `lab_snapshots`.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    Csi, DriveSpec, MIB, Rig, csi, digest, long_on_drives, need, rig::Placed, tools::must, wait,
};
use drivebay_proto::{
    agent::{ListCopiesRequest, VolumeCopy},
    csi::{CreateVolumeRequest, Volume, VolumeContentSource},
};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use super::{
    helpers::letter,
    moves::{client, read_letter},
};

#[path = "clones_unreadable.rs"]
mod unreadable;

/// Time limit for the copy of a small volume to begin, or to detect that its source is in use; the machine may be busy.
const SOON: Duration = Duration::from_secs(30);
/// So slow that the test observes a copy of 64 MiB in progress.
const SLOWLY: &str = "[moves]\nmax-bytes-per-second = '8MiB'\n";

/// Creates a clone and returns it with paths to use it at.
async fn cloned(rig: &Rig, of: &Placed, name: &str, bytes: u64) -> Placed {
    let source = csi::from_volume(&of.id);
    let made = rig.csi.create_from(name, bytes, &of.capability, &source);
    let made = made.await.unwrap();
    assert_eq!(made.content_source.as_ref(), Some(&source));
    assert!(made.volume_id != of.id, "{made:?}");
    rig.place(&made, name, &of.capability)
}

async fn copies(rig: &Rig) -> Vec<VolumeCopy> {
    let listed = client(rig).await.list_copies(ListCopiesRequest {}).await;
    listed.unwrap().into_inner().copies
}

/// Waits until the only copy fits.
async fn copy_is(rig: &Rig, what: &str, fits: impl Fn(&VolumeCopy) -> bool) -> VolumeCopy {
    wait::until_async(SOON, what, async || {
        let mut all = copies(rig).await;
        assert!(all.len() <= 1, "{all:?}");
        all.pop().filter(&fits)
    })
    .await
}

fn waits(copy: &VolumeCopy) -> bool {
    copy.waits_for.contains("in use")
}

fn goes_on(copy: &VolumeCopy) -> bool {
    copy.waits_for.is_empty() && copy.done_bytes > 0
}

/// Creates a clone concurrently with the test.
fn creating(
    csi: &Csi,
    of: &Placed,
    name: &'static str,
    source: VolumeContentSource,
) -> JoinHandle<Result<Volume, Status>> {
    let (csi, capability, bytes) = (csi.clone(), of.capability.clone(), of.bytes);
    tokio::spawn(async move { csi.try_create_from(name, bytes, &capability, &source).await })
}

async fn rig(more: &str) -> Rig {
    let more = more.to_owned();
    Rig::tuned(vec![DriveSpec::blank("a", 512 * MIB)], |settings| {
        settings.more = more;
    })
    .await
}

fn fs_uuid(device: &Path) -> String {
    let device = device.to_str().unwrap();
    let uuid = must("blkid", &["-p", "-s", "UUID", "-o", "value", device]);
    assert!(!uuid.trim().is_empty(), "{device} has no UUID");
    uuid.trim().to_owned()
}

#[tokio::test]
async fn a_clone_of_each_filesystem_has_its_bytes_and_a_uuid_of_its_own_and_is_mounted_beside_it() {
    need!(root, loop, layout "partition", tool "blkid", tool "mkfs.ext4", fs "ext4", tool "mkfs.xfs", fs "xfs", tool "mkfs.btrfs", fs "btrfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 3072 * MIB)]).await;
    let text = vec![b'x'; 3 << 20];
    for (fs_type, mib) in [("ext4", 64), ("xfs", 320), ("btrfs", 320)] {
        let how = csi::mount(fs_type);
        let first = rig.volume(&format!("{fs_type}-1"), mib * MIB, &how).await;
        rig.use_volume(&first).await;
        fs::write(first.target.join("letter"), &text).unwrap();
        rig.leave_volume(&first).await;
        // Larger by half: the filesystem grows with it. Growing a mounted ext4 is tested in the lab.
        let bytes = match fs_type {
            "xfs" => mib * MIB * 3 / 2,
            _ => mib * MIB,
        };
        let second = cloned(&rig, &first, &format!("{fs_type}-2"), bytes).await;
        assert!(second.bytes >= bytes, "{second:?}");
        for volume in [&first, &second] {
            rig.use_volume(volume).await;
            let letter = fs::read(volume.target.join("letter")).unwrap();
            assert!(letter == text, "{fs_type}: another letter");
            assert_eq!(rig.reasons(volume).await, [""; 0], "{fs_type}");
        }
        let devices = [rig.device(&first).await, rig.device(&second).await];
        let [one, other] = devices.each_ref().map(|device| fs_uuid(device));
        assert_ne!(one, other, "{fs_type}: two filesystems of one UUID");
        if fs_type == "xfs" {
            let total = async |volume: &Placed| {
                let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
                stats.usage[0].total
            };
            let (small, large) = (total(&first).await, total(&second).await);
            assert!(large > small, "{large} of a larger volume, and {small}");
        }
        // The two are independent.
        fs::write(second.target.join("letter"), "of the second").unwrap();
        for volume in [&first, &second] {
            rig.leave_volume(volume).await;
            rig.use_volume(volume).await;
        }
        assert!(fs::read(first.target.join("letter")).unwrap() == text);
        let letter = fs::read(second.target.join("letter")).unwrap();
        assert_eq!(letter, b"of the second");
        for volume in [&first, &second] {
            rig.leave_volume(volume).await;
        }
        // The agent reports its source. A repeated request returns it; one with another source, or without one, is refused.
        let source = csi::from_volume(&first.id);
        let name = format!("{fs_type}-2");
        let again = rig.csi.create_from(&name, bytes, &how, &source).await;
        assert_eq!(again.unwrap().volume_id, second.id);
        let reported = rig.volume_of(&second.id).await.unwrap();
        assert_eq!(reported.source_volume, first.id);
        for other in [None, Some(csi::from_volume(&second.id))] {
            let refused = rig.csi.create_with(CreateVolumeRequest {
                name: name.clone(),
                capacity_range: Some(csi::bytes(bytes)),
                volume_capabilities: vec![how.clone()],
                volume_content_source: other,
                ..Default::default()
            });
            let refused = refused.await.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        }
        // The source can be deleted.
        rig.csi.delete(&first.id).await.unwrap();
        rig.use_volume(&second).await;
        rig.leave_volume(&second).await;
        rig.csi.delete(&second.id).await.unwrap();
        rig.erased().await;
    }
}

#[tokio::test]
async fn a_clone_of_a_raw_volume_has_its_bytes_and_zeros_behind_them() {
    need!(root, loop, layout "partition");
    let rig = rig("").await;
    let how = csi::block();
    let first = rig.volume("first", 48 * MIB, &how).await;
    rig.use_volume(&first).await;
    let node = File::options().write(true).open(&first.target).unwrap();
    let random: Vec<u8> = (0..MIB).map(|_| fastrand::u8(..)).collect();
    for at in [0, 20 * MIB + 512, 47 * MIB] {
        node.write_all_at(&random, at).unwrap();
    }
    node.sync_all().unwrap();
    drop(node);
    let written = digest::of(&first.target).unwrap();
    rig.leave_volume(&first).await;
    // A hole and zeros have the same digest: that of a larger volume is the same if the rest is zeros.
    let second = cloned(&rig, &first, "second", 64 * MIB).await;
    assert_eq!(second.bytes, 64 * MIB);
    for volume in [&first, &second] {
        rig.use_volume(volume).await;
        assert_eq!(digest::of(&volume.target).unwrap(), written, "{volume:?}");
    }
    for volume in [&first, &second] {
        rig.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn a_clone_whose_end_takes_several_steps_to_zero_is_completed() {
    need!(root, loop, layout "partition");
    let rig = rig("[moves]\nmax-bytes-per-second = '32MiB'\n").await;
    let first = rig.volume("first", 16 * MIB, &csi::block()).await;
    rig.use_volume(&first).await;
    let node = File::options().write(true).open(&first.target).unwrap();
    let random: Vec<u8> = (0..MIB).map(|_| fastrand::u8(..)).collect();
    node.write_all_at(&random, 15 * MIB).unwrap();
    node.sync_all().unwrap();
    drop(node);
    let written = digest::of(&first.target).unwrap();
    rig.leave_volume(&first).await;
    // Three times the size that is zeroed in one step.
    let second = cloned(&rig, &first, "second", 208 * MIB).await;
    rig.use_volume(&second).await;
    assert_eq!(digest::of(&second.target).unwrap(), written);
    rig.leave_volume(&second).await;
}

#[tokio::test]
async fn a_clone_waits_while_its_original_is_staged_and_has_what_was_written_last() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let rig = rig(SLOWLY).await;
    let first = letter(&rig, "first").await;
    rig.use_volume(&first).await;
    let source = csi::from_volume(&first.id);
    let begun = creating(&rig.csi, &first, "second", source.clone());
    copy_is(&rig, "it waits", waits).await;
    // The volume that is being copied is not listed.
    assert_eq!(rig.csi.ids().await.unwrap(), [first.id.as_str()]);
    rig.leave_volume(&first).await;
    copy_is(&rig, "it is copied", goes_on).await;
    // A stage takes precedence at once.
    let begin = Instant::now();
    rig.use_volume(&first).await;
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    fs::write(first.target.join("letter"), "written since").unwrap();
    copy_is(&rig, "it waits again", waits).await;
    let answer = begun.await.unwrap().unwrap_err();
    assert_eq!(answer.code(), Code::Aborted, "{answer}");
    rig.leave_volume(&first).await;
    let second = cloned(&rig, &first, "second", first.bytes).await;
    read_letter(&rig, &second, "written since").await;
    read_letter(&rig, &first, "written since").await;
}

#[tokio::test]
async fn a_clone_that_is_not_complete_is_neither_staged_nor_listed_and_can_be_deleted() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let rig = rig(SLOWLY).await;
    let first = letter(&rig, "first").await;
    rig.erased().await;
    let free = rig.drive("a").await.unwrap().free_bytes;
    let source = csi::from_volume(&first.id);
    let begun = creating(&rig.csi, &first, "second", source);
    let copy = copy_is(&rig, "it is copied", goes_on).await;
    assert_eq!(
        rig.volume_of(&copy.volume_id).await.unwrap().state,
        "copying"
    );
    assert_eq!(rig.csi.ids().await.unwrap(), [first.id.as_str()]);
    let staging = rig.dir().join("kubelet/staging/second");
    let staged = rig.csi.stage(&copy.volume_id, &staging, &first.capability);
    assert_eq!(staged.await.unwrap_err().code(), Code::Aborted);
    rig.csi.delete(&copy.volume_id).await.unwrap();
    wait::until_async(SOON, "all its space is free", async || {
        let drive = rig.drive("a").await?;
        (drive.free_bytes == free && copies(&rig).await.is_empty()).then_some(())
    })
    .await;
    assert!(begun.await.unwrap().is_err());
    assert!(rig.volume_of(&copy.volume_id).await.is_none());
    read_letter(&rig, &first, "first").await;
}

#[tokio::test]
async fn a_clone_goes_on_after_the_agent_was_killed() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    long_on_drives!();
    let mut rig = rig(SLOWLY).await;
    let first = letter(&rig, "first").await;
    let source = csi::from_volume(&first.id);
    let begun = creating(&rig.csi, &first, "second", source);
    let copy = copy_is(&rig, "it is copied", goes_on).await;
    rig.agent.kill9();
    begun.await.unwrap().unwrap_err();
    rig.start_again().await;
    let second = cloned(&rig, &first, "second", first.bytes).await;
    assert_eq!(second.id, copy.volume_id);
    read_letter(&rig, &second, "first").await;
}

#[tokio::test]
async fn a_snapshot_is_refused_with_the_reason() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let rig = rig("").await;
    let volume = letter(&rig, "first").await;
    let refused = rig.csi.create_snapshot("s", &volume.id, &[]).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for word in ["layout partition", "lvm"] {
        assert!(refused.message().contains(word), "{refused}");
    }
    assert!(rig.csi.list_snapshots("").await.unwrap().is_empty());
    read_letter(&rig, &volume, "first").await;
}
