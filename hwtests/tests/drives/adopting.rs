//! A drive of another node is adopted with its volumes after its identity is confirmed, and never otherwise.

use drivebay_hwtests::{Agent, DriveSpec, MIB, Rig, csi, need};

use super::helpers::{codes, drive_command, letter, print, read_letter};

/// Returns a rig whose agent has another node name than the one that made the volume.
async fn moved() -> (Rig, drivebay_hwtests::rig::Placed) {
    let mut rig = Rig::with(vec![
        DriveSpec::blank("a", 256 * MIB),
        DriveSpec::blank("b", 256 * MIB),
    ])
    .await;
    let volume = letter(&rig, "kept").await;
    rig.agent.stop().unwrap();
    let mut settings = rig.agent.settings().clone();
    settings.node = "node2".to_owned();
    rig.agent = Agent::start(settings).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    (rig, volume)
}

#[tokio::test]
async fn an_adopted_drive_brings_its_volumes_to_this_node() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, mut volume) = moved().await;
    let name = rig.holding("OursElsewhere").await;
    let drive = rig.drive_is(&name, "rejected").await;
    assert!(rig.csi.ids().await.unwrap().is_empty());
    let before = print(&rig, &name);

    let (code, output) = drive_command(&rig, "adopt", &[&drive.kernel_name]);
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("node1") && output.contains("--confirm"),
        "{output}"
    );
    let (code, output) = drive_command(&rig, "adopt", &[&drive.id, "--confirm", "loop-other"]);
    assert_eq!(code, Some(2), "{output}");
    assert_eq!(print(&rig, &name), before, "nothing was confirmed");

    let (code, output) =
        drive_command(&rig, "adopt", &[&drive.kernel_name, "--confirm", &drive.id]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("1 volume;"), "{output}");
    let adopted = rig.drive_is(&name, "claimed").await;
    assert!(adopted.rejects.is_empty(), "{adopted:?}");
    volume.id = volume.id.replace("@node1", "@node2");
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    read_letter(&rig, &volume, "kept").await;
    // The drive is this node's after a restart too, and space on it can be allocated.
    rig.agent.stop().unwrap();
    rig.start_again().await;
    read_letter(&rig, &volume, "kept").await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.erased().await;
    rig.volume("next", 64 * MIB, &csi::block()).await;
}

#[tokio::test]
async fn a_drive_without_another_nodes_label_is_not_adopted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, _volume) = moved().await;
    let elsewhere = rig.holding("OursElsewhere").await;
    let blank = if elsewhere == "a" { "b" } else { "a" };
    let drive = rig.drive_is(blank, "available").await;
    assert!(codes(&drive).is_empty());
    let before = print(&rig, blank);
    let (code, output) = drive_command(&rig, "adopt", &[&drive.id, "--confirm", &drive.id]);
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("carries no label of another node"),
        "{output}"
    );
    assert_eq!(print(&rig, blank), before);
}
