use drivebay_proto::csi::{
    VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume},
};

use super::*;

const MIB: u64 = 1 << 20;

fn capability(access_type: AccessType) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: 1 }),
        access_type: Some(access_type),
    }
}

fn mount(fs_type: &str, flag: &str) -> VolumeCapability {
    capability(AccessType::Mount(MountVolume {
        fs_type: fs_type.into(),
        mount_flags: vec![flag.into()],
        ..MountVolume::default()
    }))
}

fn csi_request(capabilities: Vec<VolumeCapability>) -> csi::CreateVolumeRequest {
    let parameters = [
        ("class", "hdd"),
        ("mkfsOptions", "-m  reflink=1"),
        ("mountOptions", "nodiratime, discard,"),
        ("antiAffinityPattern", "data-(db)-[0-9]"),
        (names::CLAIM_NAME, "data-db-0"),
        (names::CLAIM_NAMESPACE, "prod"),
    ];
    csi::CreateVolumeRequest {
        name: "pvc-1".into(),
        capacity_range: Some(csi::CapacityRange {
            required_bytes: 5,
            limit_bytes: 1 << 40,
        }),
        volume_capabilities: capabilities,
        parameters: parameters
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..csi::CreateVolumeRequest::default()
    }
}

#[test]
fn an_agent_parses_from_the_controllers_request_what_the_controller_parsed() {
    let mounted = vec![mount("", "noatime"), mount("xfs", "nodev")];
    for (capabilities, content) in [
        (
            mounted,
            Content::Mount {
                fs_type: Some("xfs"),
                mkfs_options: vec!["-m".into(), "reflink=1".into()],
                mount_options: vec!["nodiratime".into(), "discard".into()],
                mount_flags: vec!["noatime".into(), "nodev".into()],
            },
        ),
        (
            vec![capability(AccessType::Block(BlockVolume {}))],
            Content::Block,
        ),
    ] {
        let requested = NewVolume::try_from(csi_request(capabilities)).unwrap();
        assert_eq!(requested.content, content);
        assert_eq!(
            requested.parameters[names::KEPT_ANTI_AFFINITY_GROUP],
            "prod/db"
        );
        assert_eq!(requested.created_for.claim, "data-db-0");
        let wire = requested.agent_request("hdd", 300 * MIB);
        let exact = NewVolume {
            range: SizeRange {
                required: 300 * MIB,
                ..requested.range
            },
            ..requested
        };
        assert_eq!(NewVolume::try_from(wire), Ok(exact));
    }
}

#[test]
fn a_source_reaches_the_agent_and_two_sources_are_refused() {
    use csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let with = |kind: Option<Type>| {
        let mut request = csi_request(vec![mount("xfs", "noatime")]);
        request.volume_content_source = Some(csi::VolumeContentSource { r#type: kind });
        NewVolume::try_from(request)
    };
    let snapshot_id = "s@n".to_owned();
    let volume_id = "v@n".to_owned();
    for (kind, source) in [
        (
            Type::Snapshot(SnapshotSource { snapshot_id }),
            Source::Snapshot("s@n".into()),
        ),
        (
            Type::Volume(VolumeSource { volume_id }),
            Source::Volume("v@n".into()),
        ),
    ] {
        let requested = with(Some(kind)).unwrap();
        assert_eq!(requested.source, Some(source.clone()));
        let mut wire = requested.agent_request("hdd", 300 * MIB);
        let parsed = NewVolume::try_from(wire.clone());
        assert_eq!(parsed.map(|parsed| parsed.source), Ok(Some(source)));
        wire.source_snapshot = "s@n".into();
        wire.source_volume = "v@n".into();
        let refused = NewVolume::try_from(wire).unwrap_err();
        assert_eq!(refused.field, "source_volume");
    }
    assert!(matches!(with(None), Err(InvalidRequest::Missing { .. })));
}

#[test]
fn what_becomes_of_unreadable_blocks_reaches_the_agent_and_is_fail_unless_it_is_zeros() {
    let with = |value: Option<&str>, capability| {
        let mut request = csi_request(vec![capability]);
        let value = value.map(|value| ("copyUnreadable".to_owned(), value.to_owned()));
        request.parameters.extend(value);
        NewVolume::try_from(request)
    };
    for (value, expected) in [
        (None, CopyUnreadable::Fail),
        (Some("fail"), CopyUnreadable::Fail),
        (Some("zeros"), CopyUnreadable::Zeros),
    ] {
        for how in [
            mount("xfs", "noatime"),
            capability(AccessType::Block(BlockVolume {})),
        ] {
            let requested = with(value, how).unwrap();
            assert_eq!(CopyUnreadable::of(&requested.parameters), expected);
            // It is kept like any other parameter, and compared if the request is repeated.
            let kept = requested.parameters.get(names::PARAM_COPY_UNREADABLE);
            assert_eq!(kept.map(String::as_str), value);
            let wire = requested.agent_request("hdd", 300 * MIB);
            let parsed = NewVolume::try_from(wire).unwrap();
            assert_eq!(CopyUnreadable::of(&parsed.parameters), expected);
        }
    }
    for value in ["", "zero", "Fail", "true"] {
        let refused = with(Some(value), mount("xfs", "noatime")).unwrap_err();
        let text = refused.to_string();
        let expected = "copyUnreadable is not usable: write fail";
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn what_drivebay_keeps_with_a_volume_is_no_parameter_of_a_request() {
    for key in [
        names::KEPT_SOURCE_SNAPSHOT,
        names::KEPT_SOURCE_VOLUME,
        names::KEPT_COPIED_FS,
        names::KEPT_COPIED_HEADER,
        names::KEPT_UNREADABLE_BYTES,
        names::KEPT_MANUAL,
        names::KEPT_CREATED_AT,
    ] {
        let mut request = csi_request(vec![mount("xfs", "noatime")]);
        request.parameters.insert(key.into(), "x".into());
        let refused = NewVolume::try_from(request);
        let expected = InvalidRequest::UnknownParameter { key: key.into() };
        assert_eq!(refused, Err(expected));
    }
}

#[test]
fn the_capability_and_the_parameters_name_one_filesystem() {
    let with = |fs_type: &str| {
        let mut request = csi_request(vec![mount("xfs", "noatime")]);
        request.parameters.insert("fsType".into(), fs_type.into());
        NewVolume::try_from(request)
    };
    assert!(with("xfs").is_ok());
    assert!(matches!(
        with("ext4"),
        Err(InvalidRequest::MixedFilesystems { .. })
    ));
}

#[test]
fn an_agent_refuses_a_field_in_the_words_of_its_own_protocol() {
    type Change = fn(&mut agent::CreateVolumeRequest);
    let rows: [(&str, Change); 17] = [
        ("name: must have 1 to 128 bytes", |r| r.name.clear()),
        ("name: must have 1 to 128 bytes", |r| {
            r.name = "a".repeat(129)
        }),
        ("name: holds control characters", |r| r.name = "a\nb".into()),
        ("mode: \"\" is neither mount nor block", |r| r.mode.clear()),
        (
            "fs_type: filesystem \"ntfs\" is not known; there are ext4, xfs, btrfs",
            |r| r.fs_type = "ntfs".into(),
        ),
        (
            "required_bytes: must be a multiple of 1 MiB above 0, got 0 bytes",
            |r| r.required_bytes = 0,
        ),
        (
            "required_bytes: must be a multiple of 1 MiB above 0, got 67108865 bytes",
            |r| r.required_bytes += 1,
        ),
        ("limit_bytes: 1 B is less than required_bytes 64 MiB", |r| {
            r.limit_bytes = 1
        }),
        (
            "mkfsOptions: need a filesystem: name one with fsType",
            |r| {
                r.fs_type.clear();
                r.mkfs_options = "-m 0".into();
            },
        ),
        (
            "mountOptions: option \"bind\" is refused: it changes what is mounted or where",
            |r| r.mount_options = "noatime, bind".into(),
        ),
        (
            "volume_capabilities: option \"loop\" is refused: it changes what is mounted or where",
            |r| r.mount_flags = vec!["loop".into()],
        ),
        // Also for a raw volume.
        (
            "mountOptions: option \"bind\" is refused: it changes what is mounted or where",
            |r| {
                r.mode = "block".into();
                r.mount_options = "bind".into();
            },
        ),
        ("encryption: \"luks1\" is not luks2", |r| {
            let bad = ("encryption".to_owned(), "luks1".to_owned());
            r.parameters.extend([bad]);
        }),
        ("copyUnreadable: \"Zeros\" is neither fail nor zeros", |r| {
            let bad = ("copyUnreadable".to_owned(), "Zeros".to_owned());
            r.parameters.extend([bad]);
        }),
        // Of two mistakes the first one is reported.
        ("name: must have 1 to 128 bytes", |r| {
            r.name.clear();
            r.mode.clear();
        }),
        ("mode: \"x\" is neither mount nor block", |r| {
            r.mode = "x".into();
            r.required_bytes = 0;
        }),
        (
            "required_bytes: must be a multiple of 1 MiB above 0, got 0 bytes",
            |r| {
                r.required_bytes = 0;
                r.mount_options = "bind".into();
            },
        ),
    ];
    let good = agent::CreateVolumeRequest {
        name: "v".into(),
        class: "hdd".into(),
        required_bytes: 64 * MIB,
        mode: "mount".into(),
        fs_type: "ext4".into(),
        ..agent::CreateVolumeRequest::default()
    };
    assert!(NewVolume::try_from(good.clone()).is_ok());
    for (text, change) in rows {
        let mut request = good.clone();
        change(&mut request);
        let refused = NewVolume::try_from(request).unwrap_err();
        assert_eq!(refused.to_string(), text);
    }
}
