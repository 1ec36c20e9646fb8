//! The operator chooses which health API is advertised; all of them are served in any case.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::collections::BTreeSet;

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need};
use drivebay_proto::csi::{
    self as wire, controller_service_capability as controller, node_service_capability as node,
};

async fn advertised(rig: &Rig) -> (BTreeSet<String>, BTreeSet<String>) {
    let answer = rig
        .csi
        .controller()
        .controller_get_capabilities(wire::ControllerGetCapabilitiesRequest {})
        .await
        .unwrap()
        .into_inner();
    let controller = answer
        .capabilities
        .into_iter()
        .filter_map(|capability| capability.r#type)
        .map(|controller::Type::Rpc(rpc)| rpc.r#type().as_str_name().to_owned())
        .collect();
    let answer = rig
        .csi
        .node()
        .node_get_capabilities(wire::NodeGetCapabilitiesRequest {})
        .await
        .unwrap()
        .into_inner();
    let node = answer
        .capabilities
        .into_iter()
        .filter_map(|capability| capability.r#type)
        .map(|node::Type::Rpc(rpc)| rpc.r#type().as_str_name().to_owned())
        .collect();
    (controller, node)
}

fn has(set: &BTreeSet<String>, names: &[&str]) -> bool {
    names.iter().all(|name| set.contains(*name))
}

fn lacks(set: &BTreeSet<String>, names: &[&str]) -> bool {
    names.iter().all(|name| !set.contains(*name))
}

#[tokio::test]
async fn the_advertised_health_api_is_the_chosen_one_and_all_of_it_is_served() {
    need!(root, loop);
    let old = ["VOLUME_CONDITION"];
    let (new_controller, new_node) = (
        ["GET_VOLUME_HEALTH", "LIST_VOLUME_HEALTH"],
        ["GET_VOLUME_HEALTH", "GET_STORAGE_HEALTH"],
    );
    for (choice, legacy, v1_13) in [
        (None, true, false),
        (Some("legacy"), true, false),
        (Some("v1.13"), false, true),
        (Some("both"), true, true),
        (Some("none"), false, false),
    ] {
        let rig = Rig::tuned(vec![DriveSpec::blank("a", GIB)], |settings| {
            settings.health_api = choice.map(str::to_owned);
        })
        .await;
        let (controller, node) = advertised(&rig).await;
        let right = |set: &BTreeSet<String>, names: &[&str], wanted: bool| match wanted {
            true => has(set, names),
            false => lacks(set, names),
        };
        assert!(
            right(&controller, &old, legacy),
            "{choice:?} {controller:?}"
        );
        assert!(right(&node, &old, legacy), "{choice:?} {node:?}");
        assert!(
            right(&controller, &new_controller, v1_13),
            "{choice:?} {controller:?}"
        );
        assert!(right(&node, &new_node, v1_13), "{choice:?} {node:?}");

        let volume = rig.volume("v", 64 * MIB, &csi::block()).await;
        rig.use_volume(&volume).await;
        let health = rig
            .csi
            .node()
            .node_get_volume_health(wire::NodeGetVolumeHealthRequest {
                volume_id: volume.id.clone(),
                ..Default::default()
            })
            .await
            .unwrap()
            .into_inner()
            .volume_health
            .unwrap();
        assert_eq!(health.volume_id, volume.id);
        assert!(health.health_statuses.is_empty(), "{health:?}");
        let storage = rig
            .csi
            .node()
            .node_get_storage_health(wire::NodeGetStorageHealthRequest::default())
            .await
            .unwrap()
            .into_inner();
        assert!(storage.backend_health.is_empty(), "{storage:?}");
        let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
        assert_eq!(stats.volume_condition.is_some(), legacy, "{choice:?}");
        if let Some(condition) = stats.volume_condition {
            assert!(!condition.abnormal, "{condition:?}");
        }
        rig.leave_volume(&volume).await;
    }
}
