//! Snapshots taken, listed and deleted, and volumes made from them, through the controller over a fake agent.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{
    csi::{
        self,
        group_controller_server::GroupController,
        volume_content_source::{SnapshotSource, Type as Source, VolumeSource},
    },
    encoded::controller_server::Controller,
};
use drivebay_service::ControllerService;
use tonic::{Code, Request, Status};

async fn take(
    controller: &ControllerService,
    name: &str,
    volume: u128,
) -> Result<csi::Snapshot, Status> {
    let request = csi::CreateSnapshotRequest {
        name: name.into(),
        source_volume_id: common::volume(volume, "n1").id,
        parameters: [("reserve".to_owned(), "10%".to_owned())].into(),
        ..Default::default()
    };
    let answer = controller.create_snapshot(Request::new(request)).await?;
    Ok(answer.into_inner().snapshot.unwrap())
}

async fn listed(controller: &ControllerService) -> Vec<csi::Snapshot> {
    let request = Request::new(csi::ListSnapshotsRequest::default());
    let page = controller.list_snapshots(request).await.unwrap();
    let entries = page.into_inner().entries.into_iter();
    entries.map(|entry| entry.snapshot.unwrap()).collect()
}

fn copy(name: &str, source: Source) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        capacity_range: None,
        volume_content_source: Some(csi::VolumeContentSource {
            r#type: Some(source),
        }),
        ..create(name)
    }
}

async fn made(
    controller: &ControllerService,
    request: csi::CreateVolumeRequest,
) -> Result<csi::Volume, Status> {
    let answer = controller.create_volume(Request::new(request)).await?;
    Ok(answer.into_inner().volume.unwrap())
}

#[tokio::test]
async fn a_snapshot_is_taken_found_again_listed_and_deleted() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    fake.put(volume(2, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let first = take(&controller, "s", 1).await.unwrap();
    assert!(first.ready_to_use && first.creation_time.is_some());
    assert_eq!(first.size_bytes, GIB as i64);
    assert_eq!(first.source_volume_id, volume(1, "n1").id);
    let node = [("csi.drivebay.io/node".to_owned(), "n1".to_owned())].into();
    assert_eq!(
        first.accessible_topology,
        [csi::Topology { segments: node }]
    );
    assert_eq!(take(&controller, "s", 1).await.unwrap(), first);
    let other = take(&controller, "s", 2).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    assert_eq!(
        fake.state.lock().unwrap().calls,
        ["snapshot s reserve 10%"; 2]
    );

    // Reads reflect the writes at once.
    assert_eq!(listed(&controller).await, std::slice::from_ref(&first));
    let get = csi::GetSnapshotRequest {
        snapshot_id: first.snapshot_id.clone(),
        ..Default::default()
    };
    let got = controller.get_snapshot(Request::new(get)).await.unwrap();
    assert_eq!(got.into_inner().snapshot, Some(first.clone()));
    for _ in 0..2 {
        let delete = csi::DeleteSnapshotRequest {
            snapshot_id: first.snapshot_id.clone(),
            ..Default::default()
        };
        let deleted = controller.delete_snapshot(Request::new(delete)).await;
        assert_eq!(code(deleted), Code::Ok);
        assert!(listed(&controller).await.is_empty());
    }
}

async fn take_group(
    controller: &ControllerService,
    name: &str,
    volumes: &[u128],
) -> Result<csi::VolumeGroupSnapshot, Status> {
    let ids = volumes.iter().map(|n| common::volume(*n, "n1").id);
    let request = csi::CreateVolumeGroupSnapshotRequest {
        name: name.into(),
        source_volume_ids: ids.collect(),
        parameters: [("maxAge".to_owned(), "36h".to_owned())].into(),
        ..Default::default()
    };
    let request = Request::new(request);
    let answer = controller.create_volume_group_snapshot(request).await?;
    Ok(answer.into_inner().group_snapshot.unwrap())
}

#[tokio::test]
async fn a_group_is_taken_found_again_listed_and_deleted_as_a_whole() {
    let fake = Fake::new("n1");
    for n in 1..=3 {
        fake.put(volume(n, "n1"));
    }
    let controller = fake.controller(HealthApi::Legacy).await;
    let group = take_group(&controller, "g", &[2, 1]).await.unwrap();
    assert!(group.ready_to_use && group.creation_time.is_some());
    let id = group.group_snapshot_id.clone();
    let sources = group.snapshots.iter().map(|one| &one.source_volume_id);
    assert_eq!(
        sources.collect::<Vec<_>>(),
        [&volume(1, "n1").id, &volume(2, "n1").id]
    );
    for one in &group.snapshots {
        assert_eq!(one.group_snapshot_id, id);
        assert!(one.ready_to_use);
    }
    assert_eq!(take_group(&controller, "g", &[2, 1]).await.unwrap(), group);
    for others in [&[1, 3][..], &[1], &[1, 2, 3]] {
        let refused = take_group(&controller, "g", others).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{others:?}");
    }
    let first = fake.state.lock().unwrap().calls[0].clone();
    assert_eq!(first, "group snapshot g of 2, age limit Some(129600)");

    // Reads reflect the writes at once.
    let alone = take(&controller, "s", 3).await.unwrap();
    assert_eq!(alone.group_snapshot_id, "");
    let mut all = group.snapshots.clone();
    all.push(alone.clone());
    all.sort_by(|a, b| a.snapshot_id.cmp(&b.snapshot_id));
    assert_eq!(listed(&controller).await, all);
    let member = group.snapshots[0].snapshot_id.clone();
    let get = csi::GetSnapshotRequest {
        snapshot_id: member.clone(),
        ..Default::default()
    };
    let got = controller.get_snapshot(Request::new(get)).await.unwrap();
    assert_eq!(
        got.into_inner().snapshot.as_ref(),
        Some(&group.snapshots[0])
    );
    let delete = csi::DeleteSnapshotRequest {
        snapshot_id: member,
        ..Default::default()
    };
    let refused = controller.delete_snapshot(Request::new(delete)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains(&id), "{refused}");

    let ids: Vec<String> = group
        .snapshots
        .iter()
        .map(|one| one.snapshot_id.clone())
        .collect();
    let get = |snapshot_ids: Vec<String>| csi::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        snapshot_ids,
        ..Default::default()
    };
    let got = controller.get_volume_group_snapshot(Request::new(get(ids.clone())));
    let mut got = got.await.unwrap().into_inner().group_snapshot.unwrap();
    // In the order of ids.
    let by_id = |one: &csi::Snapshot| one.snapshot_id.clone();
    got.snapshots.sort_by_key(by_id);
    let mut expected = group.clone();
    expected.snapshots.sort_by_key(by_id);
    assert_eq!(got, expected);
    let delete = |snapshot_ids: &[String]| {
        Request::new(csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.clone(),
            snapshot_ids: snapshot_ids.to_vec(),
            ..Default::default()
        })
    };
    for wrong in [&ids[..1], std::slice::from_ref(&alone.snapshot_id)] {
        let got = controller.get_volume_group_snapshot(Request::new(get(wrong.to_vec())));
        assert_eq!(code(got.await), Code::InvalidArgument);
        let deleted = controller.delete_volume_group_snapshot(delete(wrong));
        assert_eq!(code(deleted.await), Code::InvalidArgument);
    }
    for _ in 0..2 {
        let deleted = controller.delete_volume_group_snapshot(delete(&ids));
        assert_eq!(code(deleted.await), Code::Ok);
        assert_eq!(listed(&controller).await, std::slice::from_ref(&alone));
    }
    let got = controller.get_volume_group_snapshot(Request::new(get(ids)));
    assert_eq!(code(got.await), Code::NotFound);
}

#[tokio::test]
async fn a_group_is_requested_again_after_its_answer_was_lost() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.trouble(Trouble::Refuse(Code::ResourceExhausted));
    let refused = take_group(&controller, "g", &[1]).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    fake.trouble(Trouble::LoseAnswer);
    let lost = take_group(&controller, "g", &[1]).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    let repeated = async {
        loop {
            match take_group(&controller, "g", &[1]).await {
                Ok(group) => return group,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let group = tokio::time::timeout(Duration::from_secs(20), repeated).await;
    let group = group.unwrap();
    assert_eq!(group.snapshots.len(), 1);
    assert_eq!(listed(&controller).await, group.snapshots);
}

#[tokio::test]
async fn a_copy_is_answered_with_aborted_and_is_nowhere_until_it_is_complete() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let snapshot = take(&controller, "s", 1).await.unwrap();
    let sources = [
        Source::Snapshot(SnapshotSource {
            snapshot_id: snapshot.snapshot_id,
        }),
        Source::Volume(VolumeSource {
            volume_id: volume(1, "n1").id,
        }),
    ];
    for (name, source) in ["restored", "cloned"].into_iter().zip(sources) {
        fake.change(|state| state.copying = true);
        let request = copy(name, source);
        for _ in 0..2 {
            let refused = made(&controller, request.clone()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Aborted);
        }
        let id = fake.change(|state| {
            let mut volumes = state.volumes.values();
            volumes
                .find(|volume| volume.name == name)
                .unwrap()
                .id
                .clone()
        });
        let get = csi::ControllerGetVolumeRequest {
            volume_id: id.clone(),
        };
        let got = controller.controller_get_volume(Request::new(get)).await;
        assert_eq!(code(got), Code::NotFound);
        let list = Request::new(csi::ListVolumesRequest::default());
        let list = controller.list_volumes(list).await.unwrap().into_inner();
        let entries = list.decode_entries().unwrap().entries;
        let ids = entries
            .into_iter()
            .map(|entry| entry.volume.unwrap().volume_id);
        assert!(ids.into_iter().all(|listed| listed != id));

        fake.change(|state| state.copying = false);
        let copy = made(&controller, request.clone()).await.unwrap();
        assert_eq!(copy.volume_id, id);
        assert_eq!(copy.content_source, request.volume_content_source);
        assert_eq!(copy.capacity_bytes, GIB as i64);
        assert_eq!(made(&controller, request).await.unwrap(), copy);
    }
    let other = Source::Volume(VolumeSource {
        volume_id: volume(1, "n1").id,
    });
    let refused = made(&controller, copy("restored", other))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn a_copy_that_is_being_made_can_be_deleted() {
    let fake = Fake::new("n1").with(|state| state.copying = true);
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let source = Source::Volume(VolumeSource {
        volume_id: volume(1, "n1").id,
    });
    made(&controller, copy("cloned", source)).await.unwrap_err();
    let volume_id = fake.change(|state| {
        let mut volumes = state.volumes.values();
        volumes
            .find(|volume| volume.state == "copying")
            .unwrap()
            .id
            .clone()
    });
    let delete = csi::DeleteVolumeRequest {
        volume_id: volume_id.clone(),
        ..Default::default()
    };
    let deleted = controller.delete_volume(Request::new(delete)).await;
    assert_eq!(code(deleted), Code::Ok);
    assert_eq!(
        fake.state.lock().unwrap().volumes[&volume_id].state,
        "erasing"
    );
}

#[tokio::test]
async fn an_older_agent_is_sent_neither_snapshots_nor_copies() {
    let fake = Fake::new("n1").with(|state| state.copies = false);
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let source = Source::Volume(VolumeSource {
        volume_id: volume(1, "n1").id,
    });
    let refusals = [
        take(&controller, "s", 1).await.unwrap_err(),
        take_group(&controller, "g", &[1]).await.unwrap_err(),
        made(&controller, copy("cloned", source)).await.unwrap_err(),
    ];
    for refused in refusals {
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("node n1 runs an older agent"));
    }
    assert!(fake.state.lock().unwrap().calls.is_empty());
    // An empty volume can be made.
    assert!(made(&controller, create("empty")).await.is_ok());
}
