//! Copied drives and drives of another node are listed and refused: it is unknown which copy is newer, and a drive of another node is not
//! this node's.

use std::{
    fs,
    time::{Duration, Instant},
};

use drivebay_hwtests::{Agent, DriveSpec, MIB, Rig, csi, need};
use tonic::Code;

use super::helpers::{abnormal, codes, letter, print, read_letter, wipe};

#[tokio::test]
async fn a_copy_and_its_original_are_both_refused_until_one_is_gone() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let volume = letter(&rig, "kept").await;
    rig.shelf.flush().unwrap();
    fs::copy(rig.shelf.file("a"), rig.shelf.file("b")).unwrap();
    rig.shelf.plug("b").unwrap();
    for round in 0..2 {
        for name in ["a", "b"] {
            let drive = rig.drive_is(name, "rejected").await;
            assert!(codes(&drive).contains(&"DuplicateIdentity"), "{drive:?}");
        }
        let before = (print(&rig, "a"), print(&rig, "b"));
        let message = abnormal(&rig, &volume.id).await;
        assert!(message.contains("loop-a.img-"), "{message}");
        assert!(message.contains("loop-b.img-"), "{message}");
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        let staged = staged.expect_err("one of two copies was staged");
        assert!(staged.message().contains("loop-b.img-"), "{staged:?}");
        assert!(rig.csi.delete(&volume.id).await.is_err());
        let grown = rig.csi.expand(&volume.id, 128 * MIB, &volume.capability);
        assert!(grown.await.is_err(), "one of two copies was grown");
        let created = rig.csi.create("other", 16 * MIB, &csi::block()).await;
        assert_eq!(created.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!((print(&rig, "a"), print(&rig, "b")), before);
        if round == 0 {
            // Detected at startup too, and not only when plugged.
            rig.agent.stop().unwrap();
            rig.start_again().await;
        }
    }
    rig.shelf.pull("b");
    rig.drive_is("a", "claimed").await;
    rig.volume_is(&volume.id, "ready").await;
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_copy_that_answers_first_is_not_believed_and_not_written_to() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    rig.shelf.flush().unwrap();
    fs::copy(rig.shelf.file("a"), rig.shelf.file("b")).unwrap();
    // The copy is present at startup, and the original comes later, shortly after a boot.
    rig.shelf.pull("a");
    rig.shelf.plug("b").unwrap();
    rig.agent
        .retune(|settings| "99999h".clone_into(&mut settings.boot_grace))
        .unwrap();
    let before = print(&rig, "b");
    rig.start_again().await;
    rig.drive_is("b", "not-scanned").await;
    let staged = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability)
        .await;
    assert_eq!(staged.unwrap_err().code(), Code::Unavailable);
    // In the short run the test of late drives covers that a deletion waits and is refused.
    if need::is_long() {
        let deleted = rig.csi.delete(&volume.id).await;
        assert_eq!(deleted.unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(rig.csi.capacity().await.unwrap(), 0);
    assert_eq!(rig.reasons(&volume).await, Vec::<String>::new());
    assert_eq!(print(&rig, "b"), before);
    rig.shelf.plug("a").unwrap();
    for name in ["a", "b"] {
        let drive = rig.drive_is(name, "rejected").await;
        assert!(codes(&drive).contains(&"DuplicateIdentity"), "{drive:?}");
    }
    rig.shelf.pull("b");
    rig.drive_is("a", "claimed").await;
    read_letter(&rig, &volume, "kept").await;
    // If the original is observed to be missing, the copy is the drive.
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
    rig.shelf.plug("b").unwrap();
    rig.drive_is("b", "claimed").await;
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_deletion_ends_beside_a_copy_and_does_not_come_back_with_it() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::tuned(vec![DriveSpec::blank("a", 512 * MIB)], |settings| {
        "16MiB".clone_into(&mut settings.erase_rate);
    })
    .await;
    let (live, gone) = (letter(&rig, "live").await, letter(&rig, "gone").await);
    rig.shelf.flush().unwrap();
    fs::copy(rig.shelf.file("a"), rig.shelf.file("b")).unwrap();
    // Erasing takes four seconds.
    rig.csi.delete(&gone.id).await.unwrap();
    rig.volume_is(&gone.id, "erasing").await;
    rig.shelf.plug("b").unwrap();
    let b = rig.drive_is("b", "rejected").await;
    // Whichever operation ends meanwhile, neither drive can be used or wiped.
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        let inventory = rig.inventory().await;
        let usable = |drive: &drivebay_proto::agent::Drive| drive.state == "claimed";
        assert!(!inventory.drives.iter().any(usable), "{inventory:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let a = rig.drive("a").await.unwrap();
    for drive in [&a, &b] {
        let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
        assert_ne!(code, Some(0), "{output}");
    }
    assert_eq!(rig.csi.ids().await.unwrap(), [live.id.as_str()]);
    rig.shelf.pull("b");
    rig.drive_is("a", "claimed").await;
    rig.erased().await;
    read_letter(&rig, &live, "live").await;
    // Again, after erasing has finished; and then the copy alone.
    rig.shelf.plug("b").unwrap();
    rig.drive_is("b", "rejected").await;
    assert_eq!(rig.csi.ids().await.unwrap(), [live.id.as_str()]);
    rig.shelf.pull("a");
    rig.drive_is("b", "claimed").await;
    rig.volume_is(&gone.id, "quarantined").await;
    assert_eq!(rig.csi.ids().await.unwrap(), [live.id.as_str()]);
    let staged = rig
        .csi
        .stage(&gone.id, &gone.staging, &gone.capability)
        .await;
    assert!(staged.is_err(), "a deleted volume was staged");
    read_letter(&rig, &live, "live").await;
}

#[tokio::test]
async fn a_drive_of_another_node_or_cluster_is_not_touched() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let home = rig.agent.settings().clone();
    let before = print(&rig, "a");
    for (node, cluster) in [("node2", "demo"), ("node1", "other")] {
        let mut settings = home.clone();
        settings.node = node.to_owned();
        settings.cluster = cluster.to_owned();
        rig.agent = Agent::start(settings).await.unwrap();
        rig.csi = rig.agent.csi().await.unwrap();
        let drive = rig.drive_is("a", "rejected").await;
        assert!(codes(&drive).contains(&"OursElsewhere"), "{drive:?}");
        let reject = &drive.rejects.iter().find(|of| of.code == "OursElsewhere");
        assert!(reject.unwrap().detail.contains("node1"), "{drive:?}");
        let created = rig.csi.create("other", 16 * MIB, &csi::block()).await;
        assert_eq!(created.unwrap_err().code(), Code::ResourceExhausted);
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        assert!(staged.is_err(), "another node's volume was staged");
        // A volume that this node does not have is deleted already, and nothing changes.
        let _ = rig.csi.delete(&volume.id).await;
        rig.agent.stop().unwrap();
        assert_eq!(print(&rig, "a"), before);
    }
    rig.agent = Agent::start(home).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    read_letter(&rig, &volume, "kept").await;
}
