//! Snapshots taken, listed and deleted, and volumes made from them, through the controller over a fake agent.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{
    csi::{
        self,
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

    // Reads see the writes at once.
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
        made(&controller, copy("cloned", source)).await.unwrap_err(),
    ];
    for refused in refusals {
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("node n1 runs an older agent"));
    }
    assert!(fake.state.lock().unwrap().calls.is_empty());
    // An empty volume is.
    assert!(made(&controller, create("empty")).await.is_ok());
}
