//! Requests that cannot be served: one row per rule.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{
    csi::{
        self,
        group_controller_server::GroupController,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
        volume_content_source::{SnapshotSource, Type as Source, VolumeSource},
    },
    encoded::controller_server::Controller,
};
use tonic::{Code, Request};

type Edit = fn(&mut csi::CreateVolumeRequest);

#[tokio::test]
async fn a_create_request_outside_the_rules_gets_the_code_of_its_rule() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    let rows: &[(&str, Code, Edit)] = &[
        ("as it is", Code::Ok, |_| {}),
        ("no name", Code::InvalidArgument, |r| r.name.clear()),
        ("128 bytes", Code::Ok, |r| r.name = "ü".repeat(64)),
        ("129 bytes", Code::InvalidArgument, |r| {
            r.name = "a".repeat(129)
        }),
        ("any Unicode", Code::Ok, |r| {
            r.name = "-ü 卷 '\"$(x)/../".into()
        }),
        ("newline", Code::InvalidArgument, |r| r.name = "a\nb".into()),
        ("NUL", Code::InvalidArgument, |r| r.name = "a\0b".into()),
        ("C1 control", Code::InvalidArgument, |r| {
            r.name = "a\u{85}b".into()
        }),
        ("no capability", Code::InvalidArgument, |r| {
            r.volume_capabilities.clear()
        }),
        ("no access type", Code::InvalidArgument, |r| {
            r.volume_capabilities[0].access_type = None;
        }),
        ("no access mode", Code::InvalidArgument, |r| {
            r.volume_capabilities[0].access_mode = None
        }),
        ("access mode 0", Code::InvalidArgument, |r| {
            r.volume_capabilities[0].access_mode = Some(AccessMode { mode: 0 });
        }),
        ("access mode of the future", Code::InvalidArgument, |r| {
            r.volume_capabilities[0].access_mode = Some(AccessMode { mode: 99 });
        }),
        ("block and mount", Code::InvalidArgument, |r| {
            r.volume_capabilities.push(block())
        }),
        ("two filesystems", Code::InvalidArgument, |r| {
            r.volume_capabilities = vec![mount("ext4"), mount("xfs")];
        }),
        ("one filesystem, twice", Code::Ok, |r| {
            r.volume_capabilities = vec![mount("ext4"), mount(""), mount("ext4")];
        }),
        ("unknown filesystem", Code::InvalidArgument, |r| {
            r.volume_capabilities = vec![mount("zfs")]
        }),
        ("filesystem in capitals", Code::InvalidArgument, |r| {
            r.volume_capabilities = vec![mount("XFS")]
        }),
        ("filesystem parameter", Code::Ok, |r| {
            r.parameters.insert("fsType".into(), "btrfs".into());
        }),
        ("unknown filesystem parameter", Code::InvalidArgument, |r| {
            r.parameters.insert("fsType".into(), "ntfs".into());
        }),
        ("mount group", Code::InvalidArgument, |r| {
            let mount = MountVolume {
                volume_mount_group: "1".into(),
                ..MountVolume::default()
            };
            r.volume_capabilities =
                vec![capability(AccessType::Mount(mount), Mode::SingleNodeWriter)];
        }),
        ("mount flags of 5 KiB", Code::InvalidArgument, |r| {
            let mount = MountVolume {
                mount_flags: vec!["x".repeat(1024); 5],
                ..MountVolume::default()
            };
            r.volume_capabilities =
                vec![capability(AccessType::Mount(mount), Mode::SingleNodeWriter)];
        }),
        (
            "control character in a mount flag",
            Code::InvalidArgument,
            |r| {
                let mount = MountVolume {
                    mount_flags: vec!["no\u{7}atime".into()],
                    ..MountVolume::default()
                };
                r.volume_capabilities =
                    vec![capability(AccessType::Mount(mount), Mode::SingleNodeWriter)];
            },
        ),
        ("unknown parameter", Code::InvalidArgument, |r| {
            r.parameters.insert("clas".into(), "hdd".into());
        }),
        ("unprefixed fstype", Code::InvalidArgument, |r| {
            r.parameters.insert("fstype".into(), "xfs".into());
        }),
        ("metadata", Code::Ok, |r| {
            r.parameters
                .insert("csi.storage.k8s.io/pvc/name".into(), "p".into());
            r.parameters
                .insert("csi.storage.k8s.io/pvc/namespace".into(), "p".into());
            r.parameters
                .insert("csi.storage.k8s.io/pv/name".into(), "p".into());
            r.parameters
                .insert("csi.storage.k8s.io/fstype".into(), "xfs".into());
        }),
        ("unknown reserved key", Code::InvalidArgument, |r| {
            r.parameters
                .insert("csi.storage.k8s.io/new".into(), "x".into());
        }),
        ("5 KiB of parameters", Code::InvalidArgument, |r| {
            r.parameters.insert("mountOptions".into(), "x".repeat(5000));
        }),
        ("mkfs options", Code::Ok, |r| {
            r.parameters
                .insert("mkfsOptions".into(), "-m 0 -O ^has_journal".into());
        }),
        ("another device for mkfs", Code::InvalidArgument, |r| {
            r.parameters
                .insert("mkfsOptions".into(), "-F /dev/sda".into());
        }),
        ("a plain word for mkfs", Code::InvalidArgument, |r| {
            r.parameters
                .insert("mkfsOptions".into(), "-i 512 sda".into());
        }),
        ("a command line of mount", Code::InvalidArgument, |r| {
            r.parameters
                .insert("mountOptions".into(), "-o noatime".into());
        }),
        ("the class", Code::Ok, |r| {
            r.parameters.insert("class".into(), "hdd".into());
        }),
        ("unknown class", Code::InvalidArgument, |r| {
            r.parameters.insert("class".into(), "tape".into());
        }),
        ("mutable parameters", Code::InvalidArgument, |r| {
            r.mutable_parameters
                .insert("XXX_FakeKey".into(), "x".into());
        }),
        ("content source", Code::InvalidArgument, |r| {
            r.volume_content_source = Some(csi::VolumeContentSource::default());
        }),
        ("unknown source snapshot", Code::NotFound, |r| {
            let snapshot_id = "non-existing-snapshot-id".into();
            let source = SnapshotSource { snapshot_id };
            r.volume_content_source = Some(csi::VolumeContentSource {
                r#type: Some(Source::Snapshot(source)),
            });
        }),
        ("unknown source volume", Code::NotFound, |r| {
            let volume_id = volume(7, "n1").id;
            r.volume_content_source = Some(csi::VolumeContentSource {
                r#type: Some(Source::Volume(VolumeSource { volume_id })),
            });
        }),
        ("no range", Code::Ok, |r| r.capacity_range = None),
        ("range of zeros", Code::Ok, |r| {
            r.capacity_range = range(0, 0)
        }),
        ("negative size", Code::InvalidArgument, |r| {
            r.capacity_range = range(-1, 0)
        }),
        ("negative limit", Code::InvalidArgument, |r| {
            r.capacity_range = range(0, i64::MIN)
        }),
        ("limit below size", Code::InvalidArgument, |r| {
            r.capacity_range = range(2 << 30, 1 << 30)
        }),
        ("limit below any filesystem", Code::OutOfRange, |r| {
            r.capacity_range = range(1, 1 << 20)
        }),
        ("rounding over the limit", Code::OutOfRange, |r| {
            r.capacity_range = range((1 << 30) + 1, (1 << 30) + 2);
        }),
        ("absurd size", Code::OutOfRange, |r| {
            r.capacity_range = range(i64::MAX, 0)
        }),
        ("more than there is", Code::ResourceExhausted, |r| {
            r.capacity_range = range(1 << 50, 0)
        }),
        ("foreign topology", Code::ResourceExhausted, |r| {
            let segments = [("zone".to_owned(), "z".to_owned())].into();
            let requisite = vec![csi::Topology { segments }];
            r.accessibility_requirements = Some(csi::TopologyRequirement {
                requisite,
                preferred: vec![],
            });
        }),
    ];
    for (i, (what, expected, edit)) in rows.iter().enumerate() {
        let mut request = create(&format!("row-{i}"));
        edit(&mut request);
        let got = controller.create_volume(Request::new(request)).await;
        assert_eq!(code(got), *expected, "{what}");
    }
}

#[tokio::test]
async fn only_modes_of_a_single_node_are_served() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    for (mode, expected) in [
        (Mode::SingleNodeWriter, Code::Ok),
        (Mode::SingleNodeReaderOnly, Code::Ok),
        (Mode::SingleNodeSingleWriter, Code::Ok),
        (Mode::SingleNodeMultiWriter, Code::Ok),
        (Mode::MultiNodeReaderOnly, Code::InvalidArgument),
        (Mode::MultiNodeSingleWriter, Code::InvalidArgument),
        (Mode::MultiNodeMultiWriter, Code::InvalidArgument),
    ] {
        let mut request = create(mode.as_str_name());
        request.volume_capabilities = vec![capability(AccessType::Block(BlockVolume {}), mode)];
        let got = controller.create_volume(Request::new(request)).await;
        assert_eq!(code(got), expected, "{mode:?}");
    }
}

#[tokio::test]
async fn a_message_names_what_there_is_to_choose_from() {
    let fake = Fake::new("n1");
    let two = |state: &mut State| {
        state.classes.insert("nvme".into(), class("nvme", GIB));
    };
    let controller = fake.with(two).controller(HealthApi::Legacy).await;
    let message_of = async |edit: Edit| {
        let mut request = create("v");
        edit(&mut request);
        let status = controller
            .create_volume(Request::new(request))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    let classes = message_of(|_| {}).await;
    assert!(classes.contains("hdd, nvme"), "{classes}");
    let classes = message_of(|r| {
        r.parameters.insert("class".into(), "tape".into());
    })
    .await;
    assert!(
        classes.contains("tape") && classes.contains("hdd, nvme"),
        "{classes}"
    );
    let parameters = message_of(|r| {
        r.parameters.insert("typo".into(), "x".into());
    })
    .await;
    assert!(
        parameters.contains("typo") && parameters.contains("mkfsOptions"),
        "{parameters}"
    );
    let filesystems = message_of(|r| r.volume_capabilities = vec![mount("zfs")]).await;
    assert!(filesystems.contains("ext4, xfs, btrfs"), "{filesystems}");
}

#[tokio::test]
async fn ids_are_required_and_unknown_ones_are_unknown() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    let never_made = volume(7, "n1").id;
    let other_node = volume(7, "n2").id;
    for (id, delete, read) in [
        ("", Code::InvalidArgument, Code::InvalidArgument),
        ("fake-vol-id", Code::Ok, Code::NotFound),
        ("a\0b\n", Code::Ok, Code::NotFound),
        (&"x".repeat(5000), Code::Ok, Code::NotFound),
        (&never_made, Code::Ok, Code::NotFound),
        // A node whose agent never connected has unknown contents, so no absence is claimed.
        (&other_node, Code::Unavailable, Code::Unavailable),
    ] {
        let request = csi::DeleteVolumeRequest {
            volume_id: id.into(),
            ..Default::default()
        };
        let got = controller.delete_volume(Request::new(request)).await;
        assert_eq!(code(got), delete, "delete {id:?}");
        let request = csi::ControllerGetVolumeRequest {
            volume_id: id.into(),
        };
        let got = controller
            .controller_get_volume(Request::new(request))
            .await;
        assert_eq!(code(got), read, "get {id:?}");
        let request = csi::ControllerGetVolumeHealthRequest {
            volume_id: id.into(),
            ..Default::default()
        };
        let got = controller
            .controller_get_volume_health(Request::new(request))
            .await;
        assert_eq!(code(got), read, "health {id:?}");
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: id.into(),
            volume_capabilities: vec![mount("")],
            ..Default::default()
        };
        let got = controller
            .validate_volume_capabilities(Request::new(request))
            .await;
        assert_eq!(code(got), read, "validate {id:?}");
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: id.into(),
            capacity_range: range(2 << 30, 0),
            ..Default::default()
        };
        let got = controller
            .controller_expand_volume(Request::new(request))
            .await;
        assert_eq!(code(got), read, "expand {id:?}");
        let request = csi::DeleteSnapshotRequest {
            snapshot_id: id.into(),
            ..Default::default()
        };
        let got = controller.delete_snapshot(Request::new(request)).await;
        assert_eq!(code(got), delete, "delete snapshot {id:?}");
        let request = csi::GetSnapshotRequest {
            snapshot_id: id.into(),
            ..Default::default()
        };
        let got = controller.get_snapshot(Request::new(request)).await;
        assert_eq!(code(got), read, "get snapshot {id:?}");
        let request = csi::CreateSnapshotRequest {
            name: "s".into(),
            source_volume_id: id.into(),
            ..Default::default()
        };
        let got = controller.create_snapshot(Request::new(request)).await;
        assert_eq!(code(got), read, "snapshot of {id:?}");
        let request = csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.into(),
            ..Default::default()
        };
        let got = controller.delete_volume_group_snapshot(Request::new(request));
        assert_eq!(code(got.await), delete, "delete group {id:?}");
        let request = csi::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id.into(),
            ..Default::default()
        };
        let got = controller.get_volume_group_snapshot(Request::new(request));
        assert_eq!(code(got.await), read, "get group {id:?}");
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: "g".into(),
            source_volume_ids: vec![id.into()],
            ..Default::default()
        };
        let got = controller.create_volume_group_snapshot(Request::new(request));
        assert_eq!(code(got.await), read, "group of {id:?}");
    }
}

#[tokio::test]
async fn an_expand_request_outside_the_rules_gets_the_code_of_its_rule() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    let gib = GIB as i64;
    for (what, given, capability, expected) in [
        ("no range", None, None, Code::InvalidArgument),
        ("empty range", range(0, 0), None, Code::InvalidArgument),
        ("negative", range(-5, 0), None, Code::InvalidArgument),
        (
            "limit below size",
            range(2 * gib, gib),
            None,
            Code::InvalidArgument,
        ),
        (
            "limit below current",
            range(0, gib / 2),
            None,
            Code::OutOfRange,
        ),
        (
            "rounding over the limit",
            range(gib + 1, gib + 2),
            None,
            Code::OutOfRange,
        ),
        ("absurd", range(i64::MAX, 0), None, Code::OutOfRange),
        (
            "as block",
            range(2 * gib, 0),
            Some(block()),
            Code::InvalidArgument,
        ),
        (
            "bad capability",
            range(2 * gib, 0),
            Some(Default::default()),
            Code::InvalidArgument,
        ),
        ("already large enough", range(gib / 2, 0), None, Code::Ok),
        (
            "larger",
            range(2 * gib, 2 * gib),
            Some(mount("ext4")),
            Code::Ok,
        ),
    ] {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume(1, "n1").id,
            capacity_range: given,
            volume_capability: capability,
            ..Default::default()
        };
        let got = controller
            .controller_expand_volume(Request::new(request))
            .await;
        assert_eq!(code(got), expected, "{what}");
    }
}

#[tokio::test]
async fn a_listing_begins_only_with_a_token_that_was_given_out() {
    let controller = Fake::new("n1").controller(HealthApi::Both).await;
    for (max_entries, token, expected) in [
        (0, "", Code::Ok),
        (-1, "", Code::InvalidArgument),
        (0, "invalid-token", Code::Aborted),
        (5, "after:nothing", Code::Aborted),
        (i32::MAX, "", Code::Ok),
    ] {
        let starting_token = token.to_owned();
        let request = csi::ListVolumesRequest {
            max_entries,
            starting_token,
        };
        assert_eq!(
            code(controller.list_volumes(Request::new(request)).await),
            expected
        );
        let request = csi::ControllerListVolumeHealthRequest {
            max_entries,
            starting_token: token.into(),
            ..Default::default()
        };
        let got = controller
            .controller_list_volume_health(Request::new(request))
            .await;
        assert_eq!(code(got), expected, "{token} {max_entries}");
        let request = csi::ListSnapshotsRequest {
            max_entries,
            starting_token: token.into(),
            ..Default::default()
        };
        let got = controller.list_snapshots(Request::new(request)).await;
        assert_eq!(code(got), expected, "{token} {max_entries}");
    }
}

#[tokio::test]
async fn what_is_not_advertised_is_unimplemented_with_a_reason() {
    let controller = Fake::new("n1").controller(HealthApi::None).await;
    macro_rules! unimplemented {
        ($($rpc:ident),+) => {
            $(assert_eq!(code(controller.$rpc(Request::new(Default::default())).await), Code::Unimplemented);)+
        };
    }
    unimplemented!(
        controller_publish_volume,
        controller_unpublish_volume,
        controller_modify_volume
    );
}
