//! Tests of `quarantine`: what ends one, and what keeps a volume in it.

use super::*;
use crate::{
    keeper::tests::{Rig, rig, rig_with},
    state::Tombstone,
};
use drivebay_model::{RecordState, samples};

/// A node with a quarantined volume whose time is over or not, and the volume's id.
async fn quarantined(released: bool) -> (Rig, Uuid, String) {
    with_worker("exit 1", released).await
}

/// The same, with this script as the program of workers.
async fn with_worker(script: &str, released: bool) -> (Rig, Uuid, String) {
    let rig = rig_with(script, false).await;
    let placed = samples::placed(1, RecordState::New);
    let uuid = placed.record.uuid;
    let name = placed.record.name.clone();
    let contents = samples::contents(1, 1, vec![placed], 0);
    let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    let tombstone = Tombstone {
        drives: [drive.id.clone()].into(),
        name,
        deleted_at: 0,
        quarantined_seconds: 0,
        released,
    };
    rig.inventory
        .update(|state| state.tombstones.volumes.insert(uuid, tombstone));
    rig.scanned([drive]);
    let id = format!("{uuid}@{}", rig.volumes.node().config().node_id);
    (rig, uuid, id)
}

fn state(rig: &Rig, uuid: Uuid) -> VolumeState {
    rig.inventory.current().volumes[&uuid].state
}

#[tokio::test]
async fn a_restored_volume_is_live_durably_and_restoring_it_again_succeeds() {
    let (rig, uuid, id) = quarantined(false).await;
    assert_eq!(state(&rig, uuid), VolumeState::Quarantined);
    assert!(rig.volumes.find(&id).is_none());
    rig.volumes.restore(id.clone()).await.unwrap();
    assert_eq!(state(&rig, uuid), VolumeState::New);
    assert!(rig.volumes.find(&id).is_some());
    assert!(!rig.saved_tombstones().await.contains(&uuid));
    rig.volumes.restore(id).await.unwrap();
    let other = format!(
        "{}@{}",
        Uuid::from_u128(99),
        rig.volumes.node().config().node_id
    );
    let missing = rig.volumes.restore(other).await;
    assert!(matches!(missing, Err(VolumeError::NotFound { .. })));
    rig.end().await;
}

#[tokio::test]
async fn a_volume_that_was_restored_after_it_was_due_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("worker-started");
    let script = format!("touch {}; exit 1", marker.display());
    let (rig, uuid, id) = with_worker(&script, true).await;
    let drive = rig.inventory.current().volumes[&uuid].drive.clone();
    rig.volumes.restore(id).await.unwrap();
    rig.volumes.delete_quarantined(&drive, uuid).await;
    assert!(!marker.exists(), "a job was sent to the drive");
    assert_eq!(state(&rig, uuid), VolumeState::New);
    rig.end().await;
    let (rig, uuid, _) = with_worker(&script, true).await;
    let drive = rig.inventory.current().volumes[&uuid].drive.clone();
    rig.volumes.delete_quarantined(&drive, uuid).await;
    assert!(marker.exists(), "a due volume is deleted");
    rig.end().await;
}

#[tokio::test]
async fn a_volume_is_not_restored_while_its_drive_is_wiped_and_keeps_it_from_that_once_restored() {
    let (rig, uuid, id) = quarantined(false).await;
    let drive = rig.inventory.current().volumes[&uuid].drive.clone();
    let wipe = || rig.volumes.begin_wipe(&drive.0, &drive.0);
    let wiping = wipe().unwrap();
    let refused = rig.volumes.restore(id.clone()).await;
    assert!(
        matches!(refused, Err(VolumeError::Pending { .. })),
        "{refused:?}"
    );
    assert!(rig.inventory.deleted().contains(&uuid));
    drop(wiping);
    rig.volumes.restore(id).await.unwrap();
    let refused = wipe().map(drop);
    assert!(
        matches!(refused, Err(VolumeError::NotWiped { .. })),
        "{refused:?}"
    );
    rig.end().await;
}

#[tokio::test]
async fn the_snapshots_of_a_volume_go_before_it_when_its_quarantine_ends() {
    let dir = tempfile::tempdir().unwrap();
    let request = dir.path().join("request");
    let script = format!("dd bs=4096 count=1 >>{}; exit 1", request.display());
    let (rig, uuid, _) = with_worker(&script, true).await;
    rig.inventory.update(|inventory_state| {
        let drive = inventory_state.drives.values_mut().next().unwrap();
        let placed = &mut drive.contents.as_mut().unwrap().volumes[0];
        placed.snapshots = vec![samples::snapshot(7, 1)];
    });
    let drive = rig.inventory.current().volumes[&uuid].drive.clone();
    rig.volumes.delete_quarantined(&drive, uuid).await;
    let request = std::fs::read(&request).unwrap();
    let request = String::from_utf8_lossy(&request);
    assert!(request.contains("drop-snapshot"), "{request}");
    rig.end().await;
}

#[tokio::test]
async fn a_deletion_that_a_controller_noted_is_noted_also_if_no_drive_has_the_volume() {
    let rig = rig("exit 1").await;
    rig.inventory
        .update(|inventory_state| inventory_state.ready = true);
    let uuid = Uuid::from_u128(42);
    let id = format!("{uuid}@{}", rig.volumes.node().config().node_id);
    for (quarantine, is_noted) in [(false, false), (true, true)] {
        let deleted = rig
            .volumes
            .delete(id.clone(), quarantine, Caller::CsiDelete);
        deleted.await.unwrap();
        assert_eq!(rig.saved_tombstones().await.contains(&uuid), is_noted);
    }
    // Whatever drive appears with it.
    let placed = samples::placed(42, RecordState::New);
    let contents = samples::contents(1, 1, vec![placed], 0);
    let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    rig.inventory.update(|inventory_state| {
        let id = drive.id.clone();
        inventory_state.drives.insert(id, drive.into())
    });
    assert_eq!(state(&rig, uuid), VolumeState::Quarantined);
    rig.end().await;
}

#[tokio::test]
async fn a_volume_whose_name_another_one_has_by_now_is_not_restored() {
    let (rig, uuid, id) = quarantined(false).await;
    rig.inventory.update(|inventory_state| {
        let drive = inventory_state.drives.values_mut().next().unwrap();
        let contents = drive.contents.as_mut().unwrap();
        let mut again = samples::placed(2, RecordState::New);
        again.record.name = contents.volumes[0].record.name.clone();
        contents.volumes.push(again);
    });
    let refused = rig.volumes.restore(id).await;
    assert!(matches!(refused, Err(VolumeError::Invalid { .. })));
    assert_eq!(state(&rig, uuid), VolumeState::Quarantined);
    rig.end().await;
}

#[tokio::test]
async fn erasing_now_uses_the_drive_for_a_quarantined_volume_and_never_for_a_live_one() {
    let (rig, uuid, id) = quarantined(false).await;
    // Its worker dies: it was asked.
    let answer = rig.volumes.erase_quarantined(id.clone()).await;
    assert!(matches!(answer, Err(VolumeError::Layout(_))), "{answer:?}");
    rig.volumes.restore(id.clone()).await.unwrap();
    let live = rig.volumes.erase_quarantined(id).await;
    assert!(matches!(live, Err(VolumeError::Invalid { .. })), "{live:?}");
    let gone = format!(
        "{}@{}",
        Uuid::from_u128(99),
        rig.volumes.node().config().node_id
    );
    assert!(rig.volumes.erase_quarantined(gone).await.is_ok());
    assert_eq!(state(&rig, uuid), VolumeState::New);
    rig.end().await;
}

#[tokio::test]
async fn one_that_a_person_uses_stays_when_its_time_is_over_and_is_a_finding() {
    let (rig, uuid, _) = quarantined(false).await;
    let findings = |rig: &Rig| {
        let reported = rig.inventory.current().findings.clone();
        let codes = reported.into_iter().map(|one| one.code);
        // The class of this node says nothing of its layout.
        codes
            .filter(|code| code != "LayoutNotSet")
            .collect::<Vec<_>>()
    };
    let drive = rig.inventory.current().volumes[&uuid].drive.clone();
    let mount = crate::state::hand_mounts::HandMount {
        volume: uuid,
        name: "db".into(),
        path: "/srv/db".into(),
        block: false,
        flags: Vec::new(),
        read_only: false,
        persist: true,
        key_file: None,
    };
    rig.volumes.inner.hand_mounts.put(mount).await.unwrap();
    for _ in 0..2 {
        rig.volumes.delete_quarantined(&drive, uuid).await;
        assert_eq!(findings(&rig), ["QuarantinedInUse"]);
    }
    assert!(!rig.volumes.is_changing(uuid));
    rig.volumes.inner.hand_mounts.remove(uuid).await.unwrap();
    rig.volumes.delete_quarantined(&drive, uuid).await;
    assert!(findings(&rig).is_empty());
    rig.end().await;
}
