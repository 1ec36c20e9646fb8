//! Tests of snapshots that are not in the inventory while a drive is missing, and of names whose volume another call guards.

use super::*;
use crate::{
    keeper::tests::{Rig, rig},
    state::Tombstone,
};
use drivebay_csi::{
    Content, NewVolume, new_group_snapshot::NewGroupSnapshot, source::Source, validate::SizeRange,
};
use drivebay_model::{DriveState, GIB, RecordState, samples, volume_snapshot::SnapshotGroup};

fn id(number: u128) -> String {
    format!("{}@node7", Uuid::from_u128(number))
}

/// A node with one lvm drive: snapshot 10 is of volume 1, and snapshot 20 of volume 2 is the only member of group 77.
async fn node() -> Rig {
    let rig = rig("exit 1").await;
    let mut volumes: Vec<_> = [1, 2]
        .map(|number| samples::placed(number, RecordState::Block))
        .into();
    volumes[0].snapshots = vec![samples::snapshot(10, 1)];
    let mut member = samples::snapshot(20, 2);
    member.record.group = Some(SnapshotGroup {
        uuid: Uuid::from_u128(77),
        name: "g".into(),
        members: 1,
    });
    volumes[1].snapshots = vec![member];
    let mut contents = samples::contents(1, 1, volumes, 0);
    contents.layout = Layout::Lvm;
    let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    rig.scanned([drive]);
    rig
}

fn pull(rig: &Rig) {
    rig.inventory.update(|state| state.drives.clear());
}

/// Returns a request to create a volume from this snapshot.
fn restore(snapshot: u128) -> NewVolume {
    NewVolume {
        name: "restored".into(),
        class: Some("bulk".into()),
        content: Content::Block,
        range: SizeRange {
            required: GIB,
            limit: None,
        },
        parameters: Default::default(),
        created_for: Default::default(),
        manual: false,
        source: Some(Source::Snapshot(id(snapshot))),
    }
}

fn is_in_doubt<T: std::fmt::Debug>(answer: &Result<T, VolumeError>) -> bool {
    let text = match answer {
        Err(error @ VolumeError::CannotTell { .. }) => error.to_string(),
        _ => return false,
    };
    text.contains("wwn-sda") && text.contains("delete")
}

#[tokio::test]
async fn a_snapshot_on_a_missing_drive_is_neither_deleted_nor_unknown_until_its_volumes_are_deleted()
 {
    let rig = node().await;
    // All drives were read, and none holds them.
    assert!(rig.volumes.delete_snapshot(&id(11)).await.is_ok());
    assert!(rig.volumes.delete_group(&id(78)).await.is_ok());
    let unknown = rig.volumes.create(restore(11)).await;
    assert!(
        matches!(unknown, Err(VolumeError::NoSource { .. })),
        "{unknown:?}"
    );
    pull(&rig);
    let deleted = rig.volumes.delete_snapshot(&id(10)).await;
    assert!(is_in_doubt(&deleted), "{deleted:?}");
    let deleted = rig.volumes.delete_group(&id(77)).await;
    assert!(is_in_doubt(&deleted), "{deleted:?}");
    let restored = rig.volumes.create(restore(10)).await;
    assert!(is_in_doubt(&restored), "{restored:?}");
    rig.inventory.update(|state| {
        for number in [1, 2] {
            let tombstone = Tombstone {
                drives: state.remembered.drives.keys().cloned().collect(),
                name: format!("pvc-{number}"),
                deleted_at: 1,
                quarantined_seconds: 0,
                released: false,
            };
            let deleted = &mut state.tombstones.volumes;
            deleted.insert(Uuid::from_u128(number), tombstone);
        }
    });
    assert!(rig.volumes.delete_snapshot(&id(10)).await.is_ok());
    assert!(rig.volumes.delete_group(&id(77)).await.is_ok());
    rig.end().await;
}

#[tokio::test]
async fn what_has_a_name_is_searched_for_when_no_other_call_changes_its_volume() {
    let rig = node().await;
    let alone = || {
        rig.volumes.take_snapshot(NewSnapshot {
            name: "snapshot-10".into(),
            volume_id: id(1),
            reserve: Reserve::default(),
            max_age: None,
        })
    };
    let group = || {
        rig.volumes.take_group(NewGroupSnapshot {
            name: "g".into(),
            volume_ids: vec![id(2)],
            reserve: Reserve::default(),
            max_age: None,
        })
    };
    let guard = |number| {
        let uuid = Uuid::from_u128(number);
        rig.volumes.guard_volume(uuid, "v", Caller::Mover).unwrap()
    };
    let held = [guard(1), guard(2)];
    let pending = alone().await;
    assert!(
        matches!(pending, Err(VolumeError::Pending { .. })),
        "{pending:?}"
    );
    let pending = group().await;
    assert!(
        matches!(pending, Err(VolumeError::Pending { .. })),
        "{pending:?}"
    );
    drop(held);
    assert!(alone().await.is_ok() && group().await.is_ok());
    rig.end().await;
}
