//! CSI requests of the sidecars, answered by the real service over a disconnected node.

use std::{cell::RefCell, time::Duration};

use drivebay_proto::{
    csi::{group_controller_server::GroupController, *},
    encoded::controller_server::Controller,
};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use super::{Target, agents};
use drivebay_csi::health::HealthApi;
use drivebay_service::{
    csi::{ControllerConfig, ControllerService},
    page,
};

/// Timeout of a request. None has to wait, since the only node is disconnected.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest error message that gRPC can send as a header, bytes.
const MOST_MESSAGE: usize = 16 << 10;

pub(super) fn targets() -> Vec<Target> {
    vec![Target {
        name: "csi-controller",
        run: csi_controller,
        seeds: requests,
        replays: 500,
    }]
}

/// Each seed is a byte that selects the request, then the request's bytes.
fn requests() -> Vec<Vec<u8>> {
    use volume_capability::{AccessMode, AccessType, MountVolume};
    let id = "a18c6218-0908-4fae-a836-f09eda5e3990@golden0".to_owned();
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: 1 }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".into(),
            mount_flags: vec!["noatime".into()],
            volume_mount_group: String::new(),
        })),
    };
    let texts = |list: &[(&str, &str)]| {
        let owned = list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        owned.collect::<std::collections::HashMap<_, _>>()
    };
    let range = CapacityRange {
        required_bytes: 1 << 30,
        limit_bytes: 1 << 40,
    };
    let topology = Topology {
        segments: texts(&[("topology.csi.drivebay.io/node", "golden0")]),
    };
    let create = CreateVolumeRequest {
        name: "pvc-1".into(),
        capacity_range: Some(range),
        volume_capabilities: vec![capability.clone()],
        parameters: texts(&[("class", "demo")]),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology.clone()],
        }),
        ..Default::default()
    };
    let expand = ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(range),
        ..Default::default()
    };
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: vec![capability.clone()],
        ..Default::default()
    };
    let capacity = GetCapacityRequest {
        volume_capabilities: vec![capability],
        parameters: texts(&[("class", "demo")]),
        accessible_topology: Some(topology),
    };
    let list = ListVolumesRequest {
        max_entries: 1,
        starting_token: format!("after:{id}"),
    };
    let delete = DeleteVolumeRequest {
        volume_id: id.clone(),
        ..Default::default()
    };
    let get = ControllerGetVolumeRequest {
        volume_id: id.clone(),
    };
    let group = CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: vec![id.clone()],
        parameters: texts(&[("reserve", "20%"), ("maxAge", "36h")]),
        ..Default::default()
    };
    let of_group = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        snapshot_ids: vec![id],
        ..Default::default()
    };
    [
        create.encode_to_vec(),
        delete.encode_to_vec(),
        expand.encode_to_vec(),
        validate.encode_to_vec(),
        capacity.encode_to_vec(),
        list.encode_to_vec(),
        get.encode_to_vec(),
        group.encode_to_vec(),
        of_group.encode_to_vec(),
    ]
    .into_iter()
    .zip(0_u8..)
    .map(|(bytes, kind)| [&[kind], bytes.as_slice()].concat())
    .collect()
}

fn fine<T: Message>(answer: Result<Response<T>, Status>) {
    match answer {
        Ok(answer) => assert!(answer.get_ref().encoded_len() <= 2 * page::MAX_BYTES),
        Err(status) => {
            let text = status.message();
            assert!(
                !matches!(status.code(), Code::Ok | Code::Internal | Code::Unknown),
                "{status}"
            );
            assert!(
                !text.is_empty() && text.len() <= MOST_MESSAGE,
                "{} bytes",
                text.len()
            );
        }
    }
}

async fn answered(service: &ControllerService, kind: u8, data: &[u8]) {
    macro_rules! send {
        ($call:ident) => {
            if let Ok(request) = Message::decode(data) {
                fine(service.$call(Request::new(request)).await);
            }
        };
    }
    match kind % 9 {
        0 => send!(create_volume),
        1 => send!(delete_volume),
        2 => send!(controller_expand_volume),
        3 => send!(validate_volume_capabilities),
        4 => send!(get_capacity),
        5 => send!(list_volumes),
        6 => send!(controller_get_volume),
        7 => send!(create_volume_group_snapshot),
        _ => send!(get_volume_group_snapshot),
    }
}

fn csi_controller(data: &[u8]) {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        );
    }
    let Some((kind, request)) = data.split_first() else {
        return;
    };
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let (_keep, agents) = agents::with_node(Some(agents::golden()));
            let config = ControllerConfig {
                driver_name: "csi.drivebay.io".into(),
                health_api: HealthApi::Legacy,
                attach: false,
            };
            let service = ControllerService::new(config, agents);
            let answer = answered(&service, *kind, request);
            tokio::time::timeout(LIMIT, answer).await.unwrap();
        });
    });
}
