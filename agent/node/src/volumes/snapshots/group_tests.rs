//! Tests of `group`: requests that are refused before a drive is accessed, and the answer without one.

use super::*;
use crate::keeper::tests::{Rig, rig};
use drivebay_csi::new_snapshot::{NewSnapshot, Reserve};
use drivebay_model::{
    CopySource, DriveState, Layout, Peer, PlaceState, Placed, RecordState, VolumeState, samples,
};
use drivebay_worker::RunError;

fn id(number: u128) -> String {
    format!("{}@node7", Uuid::from_u128(number))
}

fn request(name: &str, volumes: &[u128]) -> NewGroupSnapshot {
    NewGroupSnapshot {
        name: name.into(),
        volume_ids: volumes.iter().copied().map(id).collect(),
        reserve: Reserve::default(),
        max_age: None,
    }
}

/// Snapshot with ten times the number of its volume, of the group 77, named "g", of two.
fn member(volume: u128) -> PlacedSnapshot {
    let mut one = samples::snapshot(10 * volume, volume);
    one.record.name = format!("g-{volume}");
    one.record.group = Some(SnapshotGroup {
        uuid: Uuid::from_u128(77),
        name: "g".into(),
        members: 2,
    });
    one
}

/// A node whose workers end at once, with one drive that has these volumes.
async fn node(layout: Layout, volumes: Vec<Placed>) -> Rig {
    node_with("exit 1", layout, volumes).await
}

/// The same with workers that are this script.
async fn node_with(worker: &str, layout: Layout, volumes: Vec<Placed>) -> Rig {
    let rig = rig(worker).await;
    let mut contents = samples::contents(1, 1, volumes, 0);
    contents.layout = layout;
    let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    rig.scanned([drive]);
    assert_eq!(rig.volumes.node().config().node_id, "node7");
    rig
}

fn volume(number: u128) -> Placed {
    samples::placed(number, RecordState::Block)
}

fn with_member(number: u128) -> Placed {
    Placed {
        snapshots: vec![member(number)],
        ..volume(number)
    }
}

fn is_any_guarded(rig: &Rig) -> bool {
    let current = rig.inventory.current();
    current
        .volumes
        .keys()
        .any(|uuid| rig.volumes.is_changing(*uuid))
}

#[tokio::test]
async fn each_volume_that_cannot_have_a_snapshot_is_named_with_the_reason() {
    let rig = node(Layout::Partition, vec![volume(1), volume(2)]).await;
    let refused = rig.volumes.take_group(request("a", &[1, 2])).await;
    let (name, why) = match refused {
        Err(VolumeError::GroupNotTaken { name, why }) => (name, why),
        other => panic!("{other:?}"),
    };
    assert_eq!((name.as_str(), why.len()), ("a", 2));
    for (number, why) in [1, 2].into_iter().zip(why) {
        let uuid = Uuid::from_u128(number).to_string();
        assert!(why.contains(&uuid) && why.contains("layout lvm"), "{why}");
    }
    let mut elsewhere = request("a", &[1]);
    elsewhere
        .volume_ids
        .push(format!("{}@b", Uuid::from_u128(9)));
    let refused = rig.volumes.take_group(elsewhere).await.unwrap_err();
    assert!(refused.to_string().contains("is on node b"), "{refused}");
    let unknown = rig.volumes.take_group(request("a", &[1, 3])).await;
    assert!(matches!(unknown, Err(VolumeError::NotFound { .. })));
    assert!(!is_any_guarded(&rig));
    rig.end().await;
}

#[tokio::test]
async fn a_member_that_another_call_holds_is_answered_with_try_again_and_the_others_are_let_go() {
    let rig = node(Layout::Lvm, vec![volume(1), volume(2)]).await;
    let second = Uuid::from_u128(2);
    let held = rig.volumes.guard_volume(second, "v", Caller::Mover);
    let held = held.unwrap();
    let pending = rig.volumes.take_group(request("a", &[1, 2])).await;
    assert!(
        matches!(pending, Err(VolumeError::Pending { .. })),
        "{pending:?}"
    );
    assert!(!rig.volumes.is_changing(Uuid::from_u128(1)));
    drop(held);
    // Now the drive is accessed, which does not answer.
    let answer = rig.volumes.take_group(request("a", &[1, 2])).await;
    assert!(matches!(answer, Err(VolumeError::Layout(_))), "{answer:?}");
    assert!(!is_any_guarded(&rig));
    rig.end().await;
}

#[tokio::test]
async fn a_group_that_is_whole_is_the_answer_to_its_own_volumes_alone() {
    let volumes = vec![with_member(1), with_member(2), volume(3)];
    let rig = node(Layout::Lvm, volumes).await;
    let taken = rig.volumes.take_group(request("g", &[2, 1])).await.unwrap();
    assert_eq!(taken.group.uuid, Uuid::from_u128(77));
    let snapshots = taken.members.values().map(|one| one.record.uuid.as_u128());
    assert_eq!(snapshots.collect::<Vec<_>>(), [10, 20]);
    let other = rig.volumes.take_group(request("g", &[1, 3])).await;
    let other = other.unwrap_err();
    let volumes = [1, 2].map(Uuid::from_u128);
    assert!(matches!(other, VolumeError::GroupExists { .. }));
    for uuid in volumes {
        assert!(other.to_string().contains(&uuid.to_string()), "{other}");
    }
    // A single snapshot is a different object, also by the name of a member.
    let alone = NewSnapshot {
        name: "g-1".into(),
        volume_id: id(1),
        reserve: Reserve::default(),
        max_age: None,
    };
    let alone = rig.volumes.take_snapshot(alone).await;
    assert!(matches!(alone, Err(VolumeError::SnapshotExists { .. })));
    rig.end().await;
}

#[tokio::test]
async fn a_member_is_not_deleted_alone_and_a_group_not_while_one_is_copied() {
    let mut copy = volume(3);
    copy.record.place = PlaceState::Incoming {
        generation: 1,
        from: Peer {
            label: Uuid::from_u128(1),
            drive: DriveId("wwn-sda".into()),
        },
    };
    CopySource::Snapshot(Uuid::from_u128(20)).keep(&mut copy.record.parameters);
    let volumes = vec![with_member(1), with_member(2), copy];
    let rig = node(Layout::Lvm, volumes).await;
    let alone = rig.volumes.delete_snapshot(&id(10)).await.unwrap_err();
    let text = alone.to_string();
    assert!(text.contains("\"g\"") && text.contains(&id(77)), "{text}");
    let current = rig.inventory.current();
    let copying = &current.volumes[&Uuid::from_u128(3)];
    assert_eq!(copying.state, VolumeState::Copying);
    let copied = rig.volumes.delete_group(&id(77)).await;
    assert!(
        matches!(copied, Err(VolumeError::SnapshotCopied { .. })),
        "{copied:?}"
    );
    // Neither is known here.
    for unknown in [id(78), format!("{}@b", Uuid::from_u128(77)), "x".into()] {
        assert!(rig.volumes.delete_group(&unknown).await.is_ok());
    }
    rig.end().await;
}

#[tokio::test]
async fn all_members_are_deleted_or_the_answer_is_an_error() {
    let rig = node(Layout::Lvm, vec![with_member(1), with_member(2)]).await;
    let deleted = rig.volumes.delete_group(&id(77)).await;
    assert!(
        matches!(deleted, Err(VolumeError::Layout(_))),
        "{deleted:?}"
    );
    assert!(!is_any_guarded(&rig));
    assert_eq!(both(Ok(3), Ok(2)).unwrap(), 3);
    let stopping = || Err(VolumeError::Stopping);
    assert!(both(stopping(), Ok(2)).is_err() && both(Ok(2), stopping()).is_err());
    rig.end().await;
}

#[test]
fn a_members_name_is_a_csi_name_and_has_its_number_whatever_the_groups_name() {
    assert_eq!(member_name("nightly", 1), "nightly-1");
    let longest = "a".repeat(128);
    assert_eq!(member_name(&longest, 32), format!("{}-32", "a".repeat(125)));
    // Two bytes each: 126 fit, and then 124.
    let wide = "ä".repeat(64);
    assert_eq!(member_name(&wide, 9), format!("{}-9", "ä".repeat(63)));
    assert_eq!(member_name(&wide, 10), format!("{}-10", "ä".repeat(62)));
}

#[tokio::test]
async fn the_answer_of_a_failed_group_does_not_wait_for_a_drive_that_does_not_answer() {
    // As of a drive that does not answer for a while.
    let rig = node_with("sleep 10; exit 1", Layout::Lvm, vec![with_member(1)]).await;
    let uuid = Uuid::from_u128(1);
    let held = rig.volumes.guard_volume(uuid, "v", Caller::Mover).unwrap();
    let volume = rig.inventory.current().volumes[&uuid].clone();
    let begun = vec![(held, volume, Uuid::from_u128(10))];
    let started = tokio::time::Instant::now();
    rig.volumes.clean_up("g".into(), begun).await;
    assert!(started.elapsed() < CLEAN_UP + Duration::from_secs(4));
    assert!(rig.volumes.is_changing(uuid), "it goes on");
    assert!(rig.volumes.drain(Duration::from_secs(20)).await);
    assert!(!rig.volumes.is_changing(uuid));
    rig.end().await;
}

#[tokio::test]
async fn no_volume_is_suspended_once_the_agent_stops() {
    let rig = node(Layout::Lvm, vec![volume(1)]).await;
    let begun = || {
        let group = Uuid::from_u128(77);
        rig.volumes.suspend_together(group, Vec::new(), Vec::new())
    };
    let suspends = rig.volumes.inner.snapshots.suspending.token();
    assert!(rig.volumes.drain(Duration::from_secs(5)).await);
    let refused = begun().await;
    assert!(
        matches!(refused, Err(VolumeError::Layout(RunError::Stopping))),
        "{refused:?}"
    );
    let moment = Duration::from_millis(20);
    assert!(!rig.volumes.until_resumed(moment).await);
    drop(suspends);
    assert!(rig.volumes.until_resumed(moment).await);
    rig.end().await;
}

#[tokio::test]
async fn resuming_is_repeated_until_it_succeeds_or_the_agent_stops() {
    let rig = node_with("echo x >> \"$0.log\"; exit 1", Layout::Lvm, Vec::new()).await;
    let log = rig.volumes.node().config().state_dir.join("worker.log");
    let attempts = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    let group = Uuid::from_u128(77);
    let died = rig.volumes.suspend_together(group, Vec::new(), Vec::new());
    assert!(matches!(died.await, Err(VolumeError::Layout(_))));
    // The group itself, resuming in its place, and resuming beside it.
    let before = attempts();
    assert_eq!(before, 3);
    assert!(rig.volumes.drain(Duration::from_secs(5)).await);
    let two_attempts = Duration::from_secs(7);
    assert!(!rig.volumes.until_resumed(two_attempts).await);
    assert!(attempts() > before, "only tried once");
    rig.volumes.node().pool().shutdown(Duration::ZERO).await;
    assert!(rig.volumes.until_resumed(3 * two_attempts).await);
    rig.end().await;
}
