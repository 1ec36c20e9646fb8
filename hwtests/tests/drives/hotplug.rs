//! Drives come and go while the agent runs; their volumes are neither lost nor forgotten.

use std::time::Duration;

use drivebay_hwtests::{DriveSpec, MIB, Rig, digest, need, tree, wait};

use super::helpers::{abnormal, letter, read_letter};

#[tokio::test]
async fn a_plugged_drive_appears_by_its_event_and_a_pulled_one_goes() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 128 * MIB)]).await;
    let one = rig.csi.capacity().await.unwrap();
    rig.shelf.add(DriveSpec::blank("b", 128 * MIB)).unwrap();
    rig.drive_is("b", "available").await;
    assert_eq!(rig.csi.capacity().await.unwrap(), 2 * one);
    rig.shelf.pull("b");
    wait::until_async(Duration::from_secs(30), "drive b is gone", async || {
        rig.drive("b").await.is_none().then_some(())
    })
    .await;
    assert_eq!(rig.csi.capacity().await.unwrap(), one);
}

#[tokio::test]
async fn volumes_of_a_pulled_drive_are_listed_as_missing_and_are_back_with_it() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let volume = letter(&rig, "kept").await;
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
    let away = rig.volume_is(&volume.id, "missing").await;
    assert_eq!(away.conditions[0].reason, "DriveMissing", "{away:?}");
    let message = abnormal(&rig, &volume.id).await;
    assert!(message.contains("loop-a.img-"), "{message}");
    let refused = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    assert_eq!(rig.csi.capacity().await.unwrap(), 0);

    // Persisted across restarts of the agent.
    rig.agent.kill9();
    rig.start_again().await;
    rig.volume_is(&volume.id, "missing").await;

    let drive = rig.shelf.plug("a").unwrap();
    rig.drive_is("a", "claimed").await;
    rig.volume_is(&volume.id, "ready").await;
    wait::until(Duration::from_secs(30), "the volume is back", || {
        let back = !tree::partitions(&drive.kernel_name).is_empty()
            || !tree::mapped(&drive.kernel_name).is_empty();
        back.then_some(())
    });
    read_letter(&rig, &volume, "kept").await;
    let entries = rig.csi.list().await.unwrap();
    let condition = entries[0].status.as_ref().unwrap().volume_condition.clone();
    assert!(!condition.unwrap().abnormal);
}

#[tokio::test]
async fn a_volume_deleted_while_its_drive_was_away_is_quarantined_and_then_erased() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let gone = letter(&rig, "gone").await;
    let kept = letter(&rig, "kept").await;
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
    rig.csi.delete(&gone.id).await.unwrap();
    assert_eq!(rig.csi.ids().await.unwrap(), [kept.id.as_str()]);
    rig.csi.delete(&gone.id).await.unwrap();
    rig.agent.stop().unwrap();
    rig.start_again().await;
    assert_eq!(rig.csi.ids().await.unwrap(), [kept.id.as_str()]);

    rig.shelf.plug("a").unwrap();
    rig.drive_is("a", "claimed").await;
    rig.volume_is(&gone.id, "quarantined").await;
    rig.volume_is(&kept.id, "ready").await;
    assert_eq!(rig.csi.ids().await.unwrap(), [kept.id.as_str()]);
    let refused = rig
        .csi
        .stage(&gone.id, &gone.staging, &gone.capability)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound, "{refused:?}");
    rig.shelf.flush().unwrap();
    let file = rig.shelf.file("a");
    assert_eq!(digest::find(&file, b"gone").unwrap().len().min(1), 1);
    rig.agent.stop().unwrap();

    // The same with a short quarantine.
    let mut settings = rig.agent.settings().clone();
    settings.quarantine = "1s".to_owned();
    rig.agent = drivebay_hwtests::Agent::start(settings).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    wait::until_async(
        Duration::from_secs(60),
        "the volume is erased",
        async || rig.volume_of(&gone.id).await.is_none().then_some(()),
    )
    .await;
    read_letter(&rig, &kept, "kept").await;
    // The deletion has finished and its tombstone is kept, since a copy of the drive may appear.
    let tombstones = rig.dir().join("state/tombstones.json");
    let uuid = gone.id.split('@').next().unwrap().to_owned();
    wait::until(Duration::from_secs(10), "the deletion is over", || {
        let text = std::fs::read_to_string(&tombstones).ok()?;
        let kept: serde_json::Value = serde_json::from_str(&text).ok()?;
        let drives = kept["volumes"][&uuid]["drives"].as_array()?;
        drives.is_empty().then_some(())
    });
}

#[tokio::test]
async fn a_drive_that_returns_under_another_identity_brings_its_volumes_and_their_deletions() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let gone = letter(&rig, "gone").await;
    let kept = letter(&rig, "kept").await;
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
    rig.csi.delete(&gone.id).await.unwrap();
    // Behind another controller a drive may have another name; here the loop drive's file has.
    std::fs::rename(rig.shelf.file("a"), rig.shelf.file("moved")).unwrap();
    rig.shelf.plug("moved").unwrap();
    rig.drive_is("moved", "claimed").await;
    let back = rig.volume_is(&kept.id, "ready").await;
    assert!(back.drive.starts_with("loop-moved.img-"), "{back:?}");
    rig.volume_is(&gone.id, "quarantined").await;
    assert!(
        rig.drive("a").await.is_none(),
        "the old name is still missed"
    );
    assert_eq!(rig.csi.ids().await.unwrap(), [kept.id.as_str()]);
    read_letter(&rig, &kept, "kept").await;
    // The name of a quarantined volume can be used again; its space cannot.
    let again = letter(&rig, "gone").await;
    assert_ne!(again.id, gone.id);
    rig.volume_is(&gone.id, "quarantined").await;
    read_letter(&rig, &again, "gone").await;
}
