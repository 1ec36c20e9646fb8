//! Tests of `guard`: one change at a time, and none by an orchestrator to a volume that an operator uses.

use std::{
    path::PathBuf,
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::*;
use crate::{
    keeper::tests::{Rig, rig},
    volumes::{publish::PublishRequest, stage::StageRequest},
};
use drivebay_model::{DriveState, Mode, RecordState, Volume, VolumeState, samples};

const AT: &str = "/srv/db";

#[test]
fn a_second_caller_is_refused_until_the_first_is_done() {
    let guards = Guards::default();
    let first = guards.take(Key::Name("a".into()));
    assert!(first.is_some());
    assert!(guards.take(Key::Name("a".into())).is_none());
    assert!(guards.take(Key::Name("b".into())).is_some());
    drop(first);
    assert!(guards.take(Key::Name("a".into())).is_some());
}

#[tokio::test]
async fn a_call_waits_for_a_change_in_the_background_and_for_no_other() {
    let (rig, volume, _) = with_volume().await;
    let mut unwoken = Context::from_waker(Waker::noop());
    let volumes = rig.volumes.clone();
    let background = volumes
        .guard_volume(volume.uuid, "v", Caller::Background)
        .unwrap();
    let mut call = pin!(volumes.guard_for_call(volume.uuid, "v", Caller::CsiDelete));
    assert!(
        call.as_mut().poll(&mut unwoken).is_pending(),
        "the call was answered meanwhile"
    );
    drop(background);
    let held = call.await.unwrap();

    // The holder is a call now.
    let mut second = pin!(volumes.guard_for_call(volume.uuid, "v", Caller::Csi));
    let answer = second.as_mut().poll(&mut unwoken);
    assert!(
        matches!(answer, Poll::Ready(Err(VolumeError::Pending { .. }))),
        "{answer:?}"
    );
    drop(held);
    rig.end().await;
}

/// A node with one volume, and its id.
async fn with_volume() -> (Rig, Volume, String) {
    let rig = rig("exit 1").await;
    let placed = samples::placed(1, RecordState::New);
    let uuid = placed.record.uuid;
    let contents = samples::contents(1, 1, vec![placed], 0);
    let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    rig.scanned([drive]);
    let volume = rig.inventory.current().volumes[&uuid].clone();
    let id = format!("{uuid}@{}", rig.volumes.node().config().node_id);
    (rig, volume, id)
}

async fn persist(rig: &Rig, volume: &Volume) {
    let mount = HandMount {
        volume: volume.uuid,
        name: volume.placed.record.name.clone(),
        path: AT.into(),
        block: false,
        flags: Vec::new(),
        read_only: false,
        persist: true,
        key_file: None,
    };
    rig.volumes.inner.hand_mounts.put(mount).await.unwrap();
}

/// Returns the answer to each call of an orchestrator that changes a volume.
async fn all_of_csi(rig: &Rig, volume: &Volume, id: &str) -> Vec<(&'static str, VolumeError)> {
    let volumes = &rig.volumes;
    let mode = volume.placed.record.mode;
    let stage = StageRequest {
        secrets: None,
        id: id.into(),
        path: PathBuf::from("/var/lib/kubelet/s"),
        mode,
        fs_type: None,
        flags: Vec::new(),
        read_only: false,
    };
    let publish = PublishRequest {
        id: id.into(),
        staging: PathBuf::from("/var/lib/kubelet/s"),
        target: PathBuf::from("/var/lib/kubelet/t"),
        mode: Mode::Mount,
        fs_type: None,
        flags: Vec::new(),
        read_only: false,
        exclusive: false,
        pod: None,
    };
    let delete = |quarantine| volumes.delete(id.into(), quarantine, Caller::CsiDelete);
    vec![
        ("delete", delete(false).await.unwrap_err()),
        (
            "delete of a forgotten node",
            delete(true).await.unwrap_err(),
        ),
        (
            "delete of a duplicate",
            volumes
                .delete_unused(id.into(), &volume.placed.record.name)
                .await
                .unwrap_err(),
        ),
        (
            "controller expand",
            volumes
                .expand(id.into(), 1 << 40, 0, Caller::Csi)
                .await
                .unwrap_err(),
        ),
        (
            "node expand",
            volumes
                .grow(id.into(), AT.into(), Caller::Csi)
                .await
                .unwrap_err(),
        ),
        ("stage", volumes.stage(stage).await.unwrap_err()),
        ("publish", volumes.publish(publish).await.unwrap_err()),
        (
            "unmount",
            volumes
                .unmount(id.into(), AT.into(), false)
                .await
                .unwrap_err(),
        ),
    ]
}

#[tokio::test]
async fn a_volume_that_is_persisted_by_hand_and_not_mounted_is_refused_to_each_call_of_csi() {
    let (rig, volume, id) = with_volume().await;
    persist(&rig, &volume).await;
    for (call, error) in all_of_csi(&rig, &volume, &id).await {
        assert!(
            matches!(error, VolumeError::MountedManually { .. }),
            "{call}: {error}"
        );
    }
    // Nothing of it was run, recorded or removed.
    assert!(rig.inventory.current().volumes[&volume.uuid] == volume);
    assert!(rig.volumes.inner.hand_mounts.of(volume.uuid).is_some());
    assert!(!rig.volumes.is_changing(volume.uuid));

    // Mounts that an orchestrator made elsewhere are its own, and an operator may do all of it.
    let elsewhere = rig
        .volumes
        .unmount(id.clone(), "/var/lib/kubelet/t".into(), true);
    assert!(!is_refused(&elsewhere.await));
    let expanded = rig
        .volumes
        .expand(id.clone(), 1 << 40, 0, Caller::Manual)
        .await;
    assert!(!is_refused(&expanded));
    let deleted = rig.volumes.delete(id, false, Caller::Manual).await;
    assert!(!is_refused(&deleted));
    rig.end().await;
}

#[tokio::test]
async fn a_duplicate_is_deleted_by_its_own_name_and_noted_for_no_later_time() {
    let (rig, volume, id) = with_volume().await;
    let delete = |name: &str| {
        let (volumes, id, name) = (rig.volumes.clone(), id.clone(), name.to_owned());
        async move { volumes.delete_unused(id, &name).await }
    };
    let other = delete("another").await;
    assert!(
        matches!(other, Err(VolumeError::Invalid { .. })),
        "{other:?}"
    );
    // Its drive is missing: an unguarded deletion would leave a tombstone.
    rig.inventory.update(|state| {
        let missing = samples::drive("sda", DriveState::Missing, None);
        state.drives.insert(volume.drive.clone(), missing.into());
    });
    let name = &volume.placed.record.name;
    assert!(delete(name).await.is_err());
    let tombstones = rig.inventory.current();
    let states = tombstones.volumes.values().map(|one| one.state);
    assert!(
        states
            .clone()
            .all(|state| state != VolumeState::Quarantined)
    );
    let ids = [format!("{}@other", Uuid::from_u128(9)), "x".to_owned()];
    for id in ids {
        let gone = rig.volumes.delete_unused(id, name).await;
        assert!(gone.is_ok(), "{gone:?}");
    }
    rig.end().await;
}

#[tokio::test]
async fn the_agent_itself_erases_no_volume_that_a_person_uses() {
    let (rig, volume, _) = with_volume().await;
    persist(&rig, &volume).await;
    let guard = rig.volumes.guard_volume(volume.uuid, "x", Caller::Agent);
    assert!(matches!(guard, Err(VolumeError::MountedManually { .. })));
    rig.end().await;
}

#[tokio::test]
async fn while_the_list_of_manual_mounts_is_not_known_an_orchestrator_deletes_nothing() {
    let (rig, volume, id) = with_volume().await;
    std::fs::create_dir(
        rig.volumes
            .node()
            .config()
            .state_dir
            .join("hand-mounts.json"),
    )
    .unwrap();
    rig.volumes.load_hand_mounts().await;
    for quarantine in [false, true] {
        let deleted = rig
            .volumes
            .delete(id.clone(), quarantine, Caller::CsiDelete);
        assert!(matches!(
            deleted.await,
            Err(VolumeError::HandMountsUnread { .. })
        ));
    }
    // What can be undone goes on for a volume that CSI made.
    assert!(
        rig.volumes
            .guard_volume(volume.uuid, &id, Caller::Csi)
            .is_ok()
    );
    rig.end().await;
}

#[tokio::test]
async fn creating_a_name_whose_volume_is_being_deleted_is_aborted() {
    let (rig, volume, id) = with_volume().await;
    let record = &volume.placed.record;
    let request = || drivebay_csi::NewVolume {
        name: record.name.clone(),
        class: Some(record.class.clone()),
        content: drivebay_csi::Content::mount(record.fs_type.map(drivebay_model::FsType::as_str)),
        range: drivebay_csi::validate::SizeRange {
            required: record.extent.len,
            limit: None,
        },
        parameters: record.parameters.clone(),
        created_for: Default::default(),
        manual: false,
        source: None,
    };
    let made = rig.volumes.create(request()).await;
    assert_eq!(made.unwrap().0.uuid, volume.uuid);
    let deleting = rig
        .volumes
        .guard_volume(volume.uuid, &id, Caller::CsiDelete)
        .unwrap();
    let made = rig.volumes.create(request()).await;
    assert!(matches!(made, Err(VolumeError::Pending { .. })), "{made:?}");
    drop(deleting);
    assert!(rig.volumes.create(request()).await.is_ok());
    rig.end().await;
}

fn is_refused<T>(done: &Result<T, VolumeError>) -> bool {
    matches!(done, Err(VolumeError::MountedManually { .. }))
}

#[tokio::test]
async fn a_copy_is_out_of_date_once_somebody_may_write_the_volume_and_not_before() {
    let (rig, volume, _) = with_volume().await;
    let touched_by = |caller: Caller<'_>| {
        let before = rig.volumes.inner.moves.touches(volume.uuid);
        let held = rig.volumes.guard_volume(volume.uuid, "v", caller);
        drop(held.unwrap());
        rig.volumes.inner.moves.touches(volume.uuid) > before
    };
    for caller in [Caller::Csi, Caller::CsiDelete, Caller::Manual] {
        assert!(touched_by(caller), "{caller:?}");
    }
    for caller in [Caller::Agent, Caller::Mover, Caller::Background] {
        assert!(!touched_by(caller), "{caller:?}");
    }
}
