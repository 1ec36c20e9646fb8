//! Volumes created, listed, expanded and deleted through the controller, over a fake agent.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{agent::Condition, csi, encoded::controller_server::Controller, names};
use prost::Message;
use tonic::{Code, Request};

fn listing() -> Request<csi::ListVolumesRequest> {
    Request::new(csi::ListVolumesRequest::default())
}

#[tokio::test]
async fn a_volume_is_made_shown_found_again_and_deleted() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    let made = async |request| {
        let answer = controller.create_volume(Request::new(request)).await;
        answer.map(|answer| answer.into_inner().volume.unwrap())
    };
    let mut request = create("v");
    request.capacity_range = range(GIB as i64, GIB as i64);
    let first = made(request.clone()).await.unwrap();
    assert_eq!(first.capacity_bytes, GIB as i64);
    let topology = [("csi.drivebay.io/node".to_owned(), "n1".to_owned())].into();
    assert_eq!(
        first.accessible_topology,
        [csi::Topology { segments: topology }]
    );
    assert_eq!(first.volume_context["class"], "hdd");
    assert_eq!(made(request.clone()).await.unwrap(), first);
    request.capacity_range = range(2 * GIB as i64, 2 * GIB as i64);
    assert_eq!(made(request).await.unwrap_err().code(), Code::AlreadyExists);

    // Reads reflect the writes at once.
    let listed = controller
        .list_volumes(listing())
        .await
        .unwrap()
        .into_inner()
        .decode_entries()
        .unwrap();
    assert_eq!(listed.entries.len(), 1);
    assert_eq!(listed.entries[0].volume.as_ref(), Some(&first));
    let delete = csi::DeleteVolumeRequest {
        volume_id: first.volume_id,
        ..Default::default()
    };
    for _ in 0..2 {
        controller
            .delete_volume(Request::new(delete.clone()))
            .await
            .unwrap();
        let listed = controller
            .list_volumes(listing())
            .await
            .unwrap()
            .into_inner()
            .decode_entries()
            .unwrap();
        assert!(
            listed.entries.is_empty(),
            "a volume being erased is deleted"
        );
    }
    let again = made(create("v")).await.unwrap();
    assert_ne!(again.volume_id, delete.volume_id);
}

#[tokio::test]
async fn the_agents_own_words_are_passed_on() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    for refusal in [
        Code::InvalidArgument,
        Code::AlreadyExists,
        Code::ResourceExhausted,
        Code::OutOfRange,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::Internal,
        Code::Unavailable,
    ] {
        fake.trouble(Trouble::Refuse(refusal));
        let got = controller.create_volume(Request::new(create("v"))).await;
        assert!(
            got.as_ref()
                .is_err_and(|status| status.message().contains("refused with"))
        );
        assert_eq!(code(got), refusal);
        fake.trouble(Trouble::Refuse(refusal));
        let request = csi::DeleteVolumeRequest {
            volume_id: volume(1, "n1").id,
            ..Default::default()
        };
        assert_eq!(
            code(controller.delete_volume(Request::new(request)).await),
            refusal
        );
        fake.trouble(Trouble::Refuse(refusal));
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume(1, "n1").id,
            capacity_range: range(2 * GIB as i64, 0),
            ..Default::default()
        };
        let got = code(
            controller
                .controller_expand_volume(Request::new(request))
                .await,
        );
        // For the resizer, RESOURCE_EXHAUSTED would mean "may succeed yet".
        let expected = if refusal == Code::ResourceExhausted {
            Code::OutOfRange
        } else {
            refusal
        };
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a_volume_grows_to_exactly_the_requested_size() {
    let fake = Fake::new("n1");
    let mut raw = volume(2, "n1");
    raw.mode = "block".into();
    fake.put(volume(1, "n1"));
    fake.put(raw);
    let controller = fake.controller(HealthApi::Legacy).await;
    for (uuid, required, expected, on_node) in [
        (1, 3 * GIB, 3 * GIB, true),
        (1, 2 * GIB, 3 * GIB, true),
        (1, 4 * GIB - 7, 4 * GIB, true),
        (2, 2 * GIB, 2 * GIB, false),
    ] {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume(uuid, "n1").id,
            capacity_range: range(required as i64, 0),
            ..Default::default()
        };
        let got = controller
            .controller_expand_volume(Request::new(request))
            .await
            .unwrap();
        let got = got.into_inner();
        assert_eq!(
            (got.capacity_bytes, got.node_expansion_required),
            (expected as i64, on_node)
        );
    }
}

#[tokio::test]
async fn capabilities_are_confirmed_or_refused_with_a_reason() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let validate = async |edit: fn(&mut csi::ValidateVolumeCapabilitiesRequest)| {
        let mut request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: volume(1, "n1").id,
            volume_context: [
                ("class".into(), "hdd".into()),
                (
                    "storage.kubernetes.io/csiProvisionerIdentity".into(),
                    "x".into(),
                ),
            ]
            .into(),
            volume_capabilities: vec![mount("")],
            parameters: [("class".into(), "hdd".into())].into(),
            ..Default::default()
        };
        edit(&mut request);
        let answer = controller
            .validate_volume_capabilities(Request::new(request.clone()))
            .await;
        (request, answer.map(tonic::Response::into_inner))
    };
    let good: [fn(&mut csi::ValidateVolumeCapabilitiesRequest); 3] = [
        |_| {},
        |r| r.volume_capabilities = vec![mount("ext4"), mount("")],
        |r| r.parameters.clear(),
    ];
    for edit in good {
        let (request, answer) = validate(edit).await;
        let confirmed = answer.unwrap().confirmed.unwrap();
        assert_eq!(confirmed.volume_capabilities, request.volume_capabilities);
        assert_eq!(confirmed.volume_context, request.volume_context);
        assert_eq!(confirmed.parameters, request.parameters);
    }
    let unsupported: [fn(&mut csi::ValidateVolumeCapabilitiesRequest); 8] = [
        |r| r.volume_capabilities = vec![block()],
        |r| r.volume_capabilities = vec![mount("xfs")],
        |r| r.volume_capabilities = vec![mount("zfs")],
        |r| r.volume_capabilities[0].access_mode.as_mut().unwrap().mode = 5,
        |r| drop(r.parameters.insert("class".into(), "nvme".into())),
        |r| drop(r.parameters.insert("mkfsOptions".into(), "-m 9".into())),
        |r| drop(r.volume_context.insert("class".into(), "nvme".into())),
        |r| drop(r.mutable_parameters.insert("a".into(), "b".into())),
    ];
    for edit in unsupported {
        let (request, answer) = validate(edit).await;
        let answer = answer.unwrap();
        assert!(
            answer.confirmed.is_none() && !answer.message.is_empty(),
            "{request:?}"
        );
    }
    let malformed: [fn(&mut csi::ValidateVolumeCapabilitiesRequest); 3] = [
        |r| r.volume_capabilities.clear(),
        |r| r.volume_capabilities[0].access_mode = None,
        |r| r.volume_capabilities[0].access_type = None,
    ];
    for edit in malformed {
        assert_eq!(
            validate(edit).await.1.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
}

fn troubled(uuid: u128) -> drivebay_proto::agent::Volume {
    let mut volume = volume(uuid, "n1");
    volume.name = format!("{uuid:0>128}");
    volume.published = true;
    volume.conditions = (0..3)
        .map(|i| Condition {
            abnormal: true,
            status: "DEGRADED".into(),
            reason: format!("Reason{i}{}", "r".repeat(240)),
            message: "m".repeat(500),
            since: 0,
        })
        .collect();
    volume
}

#[tokio::test]
async fn no_page_is_too_large_for_a_go_client_and_none_is_lost() {
    let fake = Fake::new("n1").with(|state| {
        for uuid in 0..20_000 {
            let volume = troubled(uuid);
            state.volumes.insert(volume.id.clone(), volume);
        }
    });
    let controller = fake.controller(HealthApi::Both).await;
    let (mut ids, mut pages, mut token) = (BTreeSet::new(), 0, String::new());
    loop {
        let request = csi::ListVolumesRequest {
            max_entries: 0,
            starting_token: token,
        };
        let page = controller
            .list_volumes(Request::new(request))
            .await
            .unwrap()
            .into_inner()
            .decode_entries()
            .unwrap();
        assert!(
            page.encoded_len() <= (2 << 20) + 1024,
            "{} bytes",
            page.encoded_len()
        );
        assert!((1..=1000).contains(&page.entries.len()));
        for entry in &page.entries {
            assert_eq!(entry.status.as_ref().unwrap().published_node_ids, ["n1"]);
            ids.insert(entry.volume.as_ref().unwrap().volume_id.clone());
        }
        pages += 1;
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(ids.len(), 20_000);
    assert!(pages >= 20);
    let (mut count, mut pages, mut token) = (0, 0, String::new());
    loop {
        let request = csi::ControllerListVolumeHealthRequest {
            starting_token: token,
            ..Default::default()
        };
        let page = controller
            .controller_list_volume_health(Request::new(request))
            .await
            .unwrap();
        let page = page.into_inner();
        assert!(
            page.encoded_len() <= (2 << 20) + 1024,
            "{} bytes",
            page.encoded_len()
        );
        count += page.entries.len();
        pages += 1;
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(count, 20_000);
    assert!(pages > 20, "bytes, not entries, end these pages");
}

#[tokio::test]
async fn both_health_apis_report_the_same_trouble() {
    let fake = Fake::new("n1");
    let mut missing = volume(2, "n1");
    missing.state = "missing".into();
    let mut deleted = volume(3, "n1");
    deleted.state = "quarantined".into();
    fake.put(volume(1, "n1"));
    fake.put(missing.clone());
    fake.put(deleted.clone());
    for api in [
        HealthApi::Legacy,
        HealthApi::V1_13,
        HealthApi::Both,
        HealthApi::None,
    ] {
        let controller = fake.controller(api).await;
        let listed = controller
            .list_volumes(listing())
            .await
            .unwrap()
            .into_inner()
            .decode_entries()
            .unwrap()
            .entries;
        assert_eq!(
            listed.len(),
            2,
            "a missing volume is listed, a deleted one is not"
        );
        let conditions: Vec<_> = listed
            .into_iter()
            .map(|entry| entry.status.unwrap().volume_condition)
            .collect();
        if matches!(api, HealthApi::Legacy | HealthApi::Both) {
            assert!(!conditions[0].as_ref().unwrap().abnormal);
            let condition = conditions[1].as_ref().unwrap();
            assert!(
                condition.abnormal && condition.message.contains("DriveMissing"),
                "{condition:?}"
            );
        } else {
            assert_eq!(conditions, [None, None]);
        }
        // The RPCs of 1.13 answer regardless of the advertised API.
        let troubled = controller
            .controller_list_volume_health(Request::new(Default::default()))
            .await
            .unwrap();
        let troubled = troubled.into_inner().entries;
        assert_eq!(troubled.len(), 1);
        assert_eq!(troubled[0].volume_id, missing.id);
        let get = async |id: &str| {
            let request = csi::ControllerGetVolumeHealthRequest {
                volume_id: id.into(),
                ..Default::default()
            };
            controller
                .controller_get_volume_health(Request::new(request))
                .await
        };
        let healthy = get(&volume(1, "n1").id)
            .await
            .unwrap()
            .into_inner()
            .volume_health
            .unwrap();
        assert!(healthy.health_statuses.is_empty());
        let same = get(&missing.id)
            .await
            .unwrap()
            .into_inner()
            .volume_health
            .unwrap();
        assert_eq!(same, troubled[0]);
        assert_eq!(code(get(&deleted.id).await), Code::NotFound);
    }
}

#[tokio::test]
async fn only_what_is_chosen_is_advertised() {
    for (api, extra) in [
        (HealthApi::Legacy, vec![11]),
        (HealthApi::V1_13, vec![16, 17]),
        (HealthApi::Both, vec![11, 16, 17]),
        (HealthApi::None, vec![]),
    ] {
        let controller = Fake::new("n1").controller(api).await;
        let answer = controller
            .controller_get_capabilities(Request::new(Default::default()))
            .await
            .unwrap();
        let mut got: Vec<i32> = Vec::new();
        for capability in answer.into_inner().capabilities {
            let Some(csi::controller_service_capability::Type::Rpc(rpc)) = capability.r#type else {
                continue;
            };
            got.push(rpc.r#type);
        }
        // Volumes, capacity, snapshots, clones, and the lookup of each by id.
        let always = [1, 3, 4, 5, 6, 7, 9, 12, 13, 15];
        let expected: BTreeSet<i32> = always.into_iter().chain(extra).collect();
        assert_eq!(got.len(), expected.len());
        assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn capacity_is_what_can_be_had_and_never_an_error() {
    let fake = Fake::new("n1").with(|state| {
        state.classes.insert("nvme".into(), class("nvme", 10 * GIB));
        state.classes.insert("full".into(), class("full", 20 * MIB));
    });
    let controller = fake.controller(HealthApi::Legacy).await;
    let gib = |n: u64| (n * GIB) as i64;
    type Edit = fn(&mut csi::GetCapacityRequest);
    fn class_of(request: &mut csi::GetCapacityRequest, class: &str) {
        request
            .parameters
            .insert(names::PARAM_CLASS.into(), class.into());
    }
    fn node(key: &str, value: &str) -> Option<csi::Topology> {
        Some(csi::Topology {
            segments: [(key.to_owned(), value.to_owned())].into(),
        })
    }
    let everything = gib(110) + 20 * MIB as i64;
    let rows: &[(&str, Edit, (i64, i64))] = &[
        ("nothing said", |_| {}, (everything, gib(50))),
        ("class", |r| class_of(r, "nvme"), (gib(10), gib(5))),
        ("unknown class", |r| class_of(r, "tape"), (0, 0)),
        (
            "nothing fits the filesystem",
            |r| {
                class_of(r, "full");
                r.parameters
                    .insert("csi.storage.k8s.io/fstype".into(), "xfs".into());
            },
            (20 * MIB as i64, 0),
        ),
        (
            "block is smaller",
            |r| {
                class_of(r, "full");
                r.volume_capabilities = vec![block()];
            },
            (20 * MIB as i64, 10 * MIB as i64),
        ),
        (
            "secret names",
            |r| {
                class_of(r, "nvme");
                r.parameters.insert(
                    "csi.storage.k8s.io/node-stage-secret-name".into(),
                    "s".into(),
                );
            },
            (gib(10), gib(5)),
        ),
        (
            "encrypted: without the header",
            |r| {
                class_of(r, "nvme");
                r.parameters.insert("encryption".into(), "luks2".into());
            },
            (gib(10) - (16 << 20), gib(5) - (16 << 20)),
        ),
        (
            "this node",
            |r| {
                r.accessible_topology = node("csi.drivebay.io/node", "n1");
            },
            (everything, gib(50)),
        ),
        (
            "another node",
            |r| {
                r.accessible_topology = node("csi.drivebay.io/node", "n2");
            },
            (0, 0),
        ),
        (
            "foreign topology",
            |r| r.accessible_topology = node("zone", "z"),
            (0, 0),
        ),
        (
            "bad capability",
            |r| r.volume_capabilities = vec![Default::default()],
            (0, 0),
        ),
        (
            "unknown filesystem",
            |r| {
                r.parameters.insert("fsType".into(), "zfs".into());
            },
            (0, 0),
        ),
    ];
    for (what, edit, expected) in rows {
        let mut request = csi::GetCapacityRequest::default();
        edit(&mut request);
        let got = controller
            .get_capacity(Request::new(request))
            .await
            .unwrap()
            .into_inner();
        let got = (got.available_capacity, got.maximum_volume_size.unwrap());
        assert_eq!(got, *expected, "{what}");
    }
}
