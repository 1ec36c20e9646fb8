//! A copied drive and another node's drive are shown and refused: nobody can tell which copy is the
//! newer one, and nobody's drive is somebody else's.

use std::fs;

use drivebay_hwtests::{Agent, DriveSpec, MIB, Rig, csi, need};
use tonic::Code;

use super::helpers::{abnormal, codes, letter, print, read_letter};

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
            // Found at the start too, and not only as it comes.
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
        let said = &drive.rejects.iter().find(|of| of.code == "OursElsewhere");
        assert!(said.unwrap().detail.contains("node1"), "{drive:?}");
        let created = rig.csi.create("other", 16 * MIB, &csi::block()).await;
        assert_eq!(created.unwrap_err().code(), Code::ResourceExhausted);
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        assert!(staged.is_err(), "another node's volume was staged");
        // Deleting what this node does not have is done already, and touches nothing.
        let _ = rig.csi.delete(&volume.id).await;
        rig.agent.stop().unwrap();
        assert_eq!(print(&rig, "a"), before);
    }
    rig.agent = Agent::start(home).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    read_letter(&rig, &volume, "kept").await;
}
