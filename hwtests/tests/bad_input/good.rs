//! Unusual valid input, and secrets in every RPC that carries them.

use std::{collections::HashMap, fs, path::Path};

use drivebay_hwtests::{MIB, Rig, csi};
use drivebay_proto::csi::{self as wire, CapacityRange};

/// Contained in every secret.
pub(crate) const CANARY: &str = "canary-8d20f6b4-do-not-print";

/// Uses a new volume, to show that the agent still works after all invalid requests.
pub(crate) async fn still_works(rig: &Rig) {
    let volume = rig.volume("after all", 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("letter"), "still here").unwrap();
    rig.leave_volume(&volume).await;
    rig.csi.delete(&volume.id).await.unwrap();
}

/// Creates volumes with names of any Unicode except control characters, up to 128 bytes.
pub(crate) async fn odd_names(rig: &Rig) {
    let names = [
        "x".repeat(128),
        "ünïcödé 体积 том 🦀".to_owned(),
        "\u{202e}right to left".to_owned(),
        "-o loop".to_owned(),
        "../../../etc/passwd".to_owned(),
        "%00%2f %s {}".to_owned(),
        "a'b\"c`d$(e)".to_owned(),
        " ".to_owned(),
    ];
    for name in names {
        let capability = csi::mount("ext4");
        let first = rig.csi.create(&name, 32 * MIB, &capability).await;
        let first = first.unwrap_or_else(|status| panic!("name {name:?}: {status:?}"));
        let again = rig.csi.create(&name, 32 * MIB, &capability).await.unwrap();
        assert_eq!(first.volume_id, again.volume_id, "{name:?}");
        assert!(first.volume_id.len() <= 128, "{name:?}");
        let inventory = rig.inventory().await;
        let shown = inventory
            .volumes
            .iter()
            .find(|volume| volume.id == first.volume_id);
        assert_eq!(
            shown.map(|volume| volume.name.as_str()),
            Some(name.as_str())
        );
        rig.csi.delete(&first.volume_id).await.unwrap();
    }
}

/// Uses paths longer than 128 bytes, which must be accepted.
pub(crate) async fn long_paths(rig: &Rig) {
    let mut volume = rig.volume("deep", 32 * MIB, &csi::mount("ext4")).await;
    let deep = "a long directory name, with spaces/".repeat(8);
    volume.staging = rig.dir().join("kubelet").join(&deep).join("staging");
    volume.target = rig.dir().join("kubelet").join(&deep).join("target");
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("x"), "x").unwrap();
    rig.leave_volume(&volume).await;
    rig.csi.delete(&volume.id).await.unwrap();
}

/// Creates volumes with absent or partial sizes.
pub(crate) async fn sizes(rig: &Rig) {
    let ranges = [
        None,
        Some(CapacityRange::default()),
        Some(CapacityRange {
            required_bytes: 1,
            limit_bytes: 0,
        }),
        Some(CapacityRange {
            required_bytes: 32 << 20,
            limit_bytes: 32 << 20,
        }),
        Some(CapacityRange {
            required_bytes: 0,
            limit_bytes: 512 << 20,
        }),
    ];
    for (at, capacity_range) in ranges.into_iter().enumerate() {
        let volume = rig
            .csi
            .create_with(wire::CreateVolumeRequest {
                name: format!("size {at}"),
                capacity_range,
                volume_capabilities: vec![csi::mount("ext4")],
                ..Default::default()
            })
            .await
            .unwrap_or_else(|status| panic!("{capacity_range:?}: {status:?}"));
        let range = capacity_range.unwrap_or_default();
        assert!(volume.capacity_bytes >= range.required_bytes.max(1));
        assert!(range.limit_bytes == 0 || volume.capacity_bytes <= range.limit_bytes);
        rig.csi.delete(&volume.volume_id).await.unwrap();
        rig.erased().await;
    }
}

/// Calls every RPC that carries secrets, once successfully and once with an error.
pub(crate) async fn secrets(rig: &Rig) {
    let secrets = HashMap::from([
        ("key".to_owned(), CANARY.to_owned()),
        (CANARY.to_owned(), "value".to_owned()),
    ]);
    let (mut controller, mut node) = (rig.csi.controller(), rig.csi.node());
    let mut groups = rig.csi.group_controller();
    for capability in [csi::mount("ext4"), csi::mount("ntfs")] {
        let created = controller
            .create_volume(wire::CreateVolumeRequest {
                name: "secretive".to_owned(),
                capacity_range: Some(csi::bytes(64 * MIB)),
                volume_capabilities: vec![capability],
                secrets: secrets.clone(),
                ..Default::default()
            })
            .await;
        quiet(&created);
    }
    let id = rig.csi.ids().await.unwrap().remove(0);
    let volume = rig.place(
        &wire::Volume {
            volume_id: id.clone(),
            ..Default::default()
        },
        "secretive",
        &csi::mount("ext4"),
    );
    fs::create_dir_all(&volume.staging).unwrap();
    fs::create_dir_all(volume.target.parent().unwrap()).unwrap();
    for id in [id.as_str(), "fake-vol-id"] {
        quiet(
            &controller
                .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
                    volume_id: id.to_owned(),
                    volume_capabilities: vec![csi::mount("ext4")],
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &node
                .node_stage_volume(wire::NodeStageVolumeRequest {
                    volume_id: id.to_owned(),
                    staging_target_path: csi::text(&volume.staging),
                    volume_capability: Some(csi::mount("ext4")),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &node
                .node_publish_volume(wire::NodePublishVolumeRequest {
                    volume_id: id.to_owned(),
                    staging_target_path: csi::text(&volume.staging),
                    target_path: csi::text(&volume.target),
                    volume_capability: Some(csi::mount("ext4")),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &controller
                .controller_expand_volume(wire::ControllerExpandVolumeRequest {
                    volume_id: id.to_owned(),
                    capacity_range: Some(csi::bytes(128 * MIB)),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &node
                .node_expand_volume(wire::NodeExpandVolumeRequest {
                    volume_id: id.to_owned(),
                    volume_path: csi::text(&volume.target),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &controller
                .controller_get_volume_health(wire::ControllerGetVolumeHealthRequest {
                    volume_id: id.to_owned(),
                    secrets: secrets.clone(),
                })
                .await,
        );
        quiet(
            &controller
                .controller_modify_volume(wire::ControllerModifyVolumeRequest {
                    volume_id: id.to_owned(),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &controller
                .controller_publish_volume(wire::ControllerPublishVolumeRequest {
                    volume_id: id.to_owned(),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &controller
                .controller_unpublish_volume(wire::ControllerUnpublishVolumeRequest {
                    volume_id: id.to_owned(),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &controller
                .create_snapshot(wire::CreateSnapshotRequest {
                    source_volume_id: id.to_owned(),
                    name: "snap".to_owned(),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
        quiet(
            &groups
                .create_volume_group_snapshot(wire::CreateVolumeGroupSnapshotRequest {
                    source_volume_ids: vec![id.to_owned()],
                    name: "group".to_owned(),
                    secrets: secrets.clone(),
                    ..Default::default()
                })
                .await,
        );
    }
    quiet(
        &groups
            .get_volume_group_snapshot(wire::GetVolumeGroupSnapshotRequest {
                group_snapshot_id: "group".to_owned(),
                secrets: secrets.clone(),
                ..Default::default()
            })
            .await,
    );
    quiet(
        &groups
            .delete_volume_group_snapshot(wire::DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: "group".to_owned(),
                secrets: secrets.clone(),
                ..Default::default()
            })
            .await,
    );
    quiet(
        &controller
            .delete_snapshot(wire::DeleteSnapshotRequest {
                snapshot_id: "snap".to_owned(),
                secrets: secrets.clone(),
            })
            .await,
    );
    quiet(
        &controller
            .list_snapshots(wire::ListSnapshotsRequest {
                secrets: secrets.clone(),
                ..Default::default()
            })
            .await,
    );
    quiet(
        &controller
            .get_snapshot(wire::GetSnapshotRequest {
                snapshot_id: "snap".to_owned(),
                secrets: secrets.clone(),
            })
            .await,
    );
    quiet(
        &controller
            .controller_list_volume_health(wire::ControllerListVolumeHealthRequest {
                secrets: secrets.clone(),
                ..Default::default()
            })
            .await,
    );
    quiet(
        &node
            .node_get_storage_health(wire::NodeGetStorageHealthRequest {
                secrets: secrets.clone(),
            })
            .await,
    );
    rig.leave_volume(&volume).await;
    for id in [id.as_str(), "fake-vol-id", ""] {
        quiet(
            &controller
                .delete_volume(wire::DeleteVolumeRequest {
                    volume_id: id.to_owned(),
                    secrets: secrets.clone(),
                })
                .await,
        );
    }
}

/// Asserts that neither a response nor an error repeats the secret.
fn quiet<T: std::fmt::Debug>(answer: &Result<tonic::Response<T>, tonic::Status>) {
    no_canary("an answer", format!("{answer:?}").as_bytes());
}

/// Panics if the bytes contain the secret.
pub(crate) fn no_canary(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(!text.contains(CANARY), "{what} shows a secret: {text}");
}

/// Panics if a file below the directory contains the secret.
pub(crate) fn no_canary_below(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            no_canary_below(&path);
        } else if path.is_file() {
            no_canary(&path.display().to_string(), &fs::read(&path).unwrap());
        }
    }
}
