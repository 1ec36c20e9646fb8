//! Rows for the Controller service (and Identity, whose requests carry nothing).

use std::collections::HashMap;

use drivebay_hwtests::{GIB, MIB, csi};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use tonic::Code;

use super::table::{Ground, UNKNOWN, control_strings, hostile_flags};

const INVALID: &[Code] = &[Code::InvalidArgument];
const UNAVAILABLE: &[Code] = &[Code::Unavailable];
const NOT_FOUND: &[Code] = &[Code::NotFound];
/// The specification leaves open which of the two a range that makes no sense is.
const RANGE: &[Code] = &[Code::InvalidArgument, Code::OutOfRange];
/// More than there is, or more than there can be.
const TOO_MUCH: &[Code] = &[Code::ResourceExhausted, Code::OutOfRange];

pub(crate) async fn rows(ground: &mut Ground) {
    identity(ground).await;
    names(ground).await;
    sizes(ground).await;
    capabilities(ground).await;
    parameters(ground).await;
    sources(ground).await;
    by_id(ground).await;
    lists(ground).await;
    expand(ground).await;
}

async fn identity(ground: &mut Ground) {
    let mut client = ground.csi.identity();
    let info = client.get_plugin_info(wire::GetPluginInfoRequest {}).await;
    ground.fine("GetPluginInfo", "nothing", info);
    let capabilities = client
        .get_plugin_capabilities(wire::GetPluginCapabilitiesRequest {})
        .await;
    ground.fine("GetPluginCapabilities", "nothing", capabilities);
    let probe = client.probe(wire::ProbeRequest {}).await;
    ground.fine("Probe", "nothing", probe);
}

fn create(name: &str) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(64 * MIB)),
        volume_capabilities: vec![csi::mount("ext4")],
        ..Default::default()
    }
}

async fn refused(
    ground: &mut Ground,
    what: &str,
    codes: &[Code],
    request: wire::CreateVolumeRequest,
) {
    let answer = ground.csi.controller().create_volume(request).await;
    ground.row("CreateVolume", what, codes, answer);
}

async fn names(ground: &mut Ground) {
    refused(ground, "no name", INVALID, create("")).await;
    refused(
        ground,
        "a name of 129 bytes",
        INVALID,
        create(&"x".repeat(129)),
    )
    .await;
    let wide = "\u{fffd}".repeat(43);
    refused(
        ground,
        "a name of 43 characters, 129 bytes",
        INVALID,
        create(&wide),
    )
    .await;
    for (what, name) in control_strings() {
        refused(
            ground,
            &format!("{what} in the name"),
            INVALID,
            create(&name),
        )
        .await;
    }
}

async fn sizes(ground: &mut Ground) {
    let rows: [(&str, i64, i64, &[Code]); 8] = [
        ("a negative size", -1, 0, RANGE),
        ("the most negative size", i64::MIN, 0, RANGE),
        ("a negative limit", 0, -1, RANGE),
        ("a limit below what is required", 64 << 20, 32 << 20, RANGE),
        ("a limit of one byte", 0, 1, RANGE),
        (
            "a limit that rounding exceeds",
            (64 << 20) + 1,
            (64 << 20) + 2,
            RANGE,
        ),
        ("more than any drive has", 1 << 50, 0, TOO_MUCH),
        ("the largest number", i64::MAX, 0, TOO_MUCH),
    ];
    for (what, required_bytes, limit_bytes, codes) in rows {
        let mut request = create("sized");
        request.capacity_range = Some(CapacityRange {
            required_bytes,
            limit_bytes,
        });
        refused(ground, what, codes, request).await;
    }
    let mut request = create("files");
    request.capacity_range = Some(csi::bytes(512 * MIB));
    let codes = &[Code::AlreadyExists];
    refused(
        ground,
        "the name of a volume of another size",
        codes,
        request,
    )
    .await;
    let mut request = create("files");
    request.capacity_range = Some(csi::bytes(256 * MIB));
    request.volume_capabilities = vec![csi::block()];
    refused(
        ground,
        "the name of a volume of another mode",
        codes,
        request,
    )
    .await;
}

/// Capabilities that are wrong in themselves.
pub(super) fn bad_capabilities() -> Vec<(String, VolumeCapability)> {
    let mount =
        |mount: MountVolume| csi::capability(AccessType::Mount(mount), Mode::SingleNodeWriter);
    let mut rows = vec![
        (
            "an empty capability".to_owned(),
            VolumeCapability::default(),
        ),
        (
            "no access type".to_owned(),
            VolumeCapability {
                access_type: None,
                ..csi::block()
            },
        ),
        (
            "no access mode".to_owned(),
            VolumeCapability {
                access_mode: None,
                ..csi::block()
            },
        ),
        (
            "access mode UNKNOWN".to_owned(),
            VolumeCapability {
                access_mode: Some(AccessMode::default()),
                ..csi::block()
            },
        ),
        (
            "an access mode of tomorrow".to_owned(),
            VolumeCapability {
                access_mode: Some(AccessMode { mode: 99 }),
                ..csi::block()
            },
        ),
    ];
    for mode in [
        Mode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter,
        Mode::MultiNodeReaderOnly,
    ] {
        let capability = csi::capability(AccessType::Mount(MountVolume::default()), mode);
        rows.push((
            format!("a local volume for {}", mode.as_str_name()),
            capability,
        ));
    }
    for fs_type in [
        "ntfs",
        "EXT4",
        "ext4;reboot",
        "-t",
        "ext4 ",
        "../ext4",
        "ext4\n",
    ] {
        let capability = mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..MountVolume::default()
        });
        rows.push((format!("filesystem {fs_type:?}"), capability));
    }
    for (what, flag) in hostile_flags() {
        let capability = mount(MountVolume {
            mount_flags: vec![flag.clone()],
            ..MountVolume::default()
        });
        rows.push((format!("{what} {flag:?}"), capability));
    }
    rows
}

async fn capabilities(ground: &mut Ground) {
    let mut request = create("capable");
    request.volume_capabilities.clear();
    refused(ground, "no capability", INVALID, request).await;
    let mut request = create("capable");
    request.volume_capabilities.push(csi::block());
    refused(ground, "mount and block at once", INVALID, request).await;
    for (what, capability) in bad_capabilities() {
        let mut request = create("capable");
        request.volume_capabilities = vec![capability];
        refused(ground, &what, INVALID, request).await;
    }
}

async fn parameters(ground: &mut Ground) {
    let rows = [
        ("an unknown parameter", "clas", "demo"),
        ("an unknown class", "class", "no-such-class"),
        ("an unknown filesystem", "fsType", "ntfs"),
        ("a control character", "mountOptions", "noatime\nbind"),
        ("a hostile mount option", "mountOptions", "bind"),
        (
            "a hostile option among others",
            "mountOptions",
            "noatime,loop",
        ),
        ("mkfs asked to read a file", "mkfsOptions", "-d /etc"),
        ("mkfs given another device", "mkfsOptions", "/dev/sda"),
        (
            "a pattern that is none",
            "antiAffinityPattern",
            "data-(db-[0-9]+",
        ),
        (
            "a pattern that captures nothing",
            "antiAffinityPattern",
            "data-db-0",
        ),
        (
            "a pattern and no claim's name",
            "antiAffinityPattern",
            "data-(db-0)",
        ),
        ("hard without a pattern", "antiAffinity", "hard"),
        (
            "what only Drivebay writes",
            "antiAffinityGroup",
            "prod/db-0",
        ),
        ("a claim that is no metadata", "claim", "data-db-0"),
        (
            "mkfs given a control character",
            "mkfsOptions",
            "-m 0\n-d /etc",
        ),
    ];
    for (what, key, value) in rows {
        let mut request = create("tuned");
        request.parameters = HashMap::from([(key.to_owned(), value.to_owned())]);
        refused(
            ground,
            &format!("{what} ({key}={value:?})"),
            INVALID,
            request,
        )
        .await;
    }
    let mut request = create("tuned");
    request.mutable_parameters = HashMap::from([("XXX_FakeKey".to_owned(), "x".to_owned())]);
    refused(ground, "a mutable parameter", INVALID, request).await;
    let answer = {
        let mut request = create("tuned");
        request.parameters = HashMap::from([("clas".to_owned(), "demo".to_owned())]);
        ground.csi.controller().create_volume(request).await
    };
    // It names the ones that exist.
    let message = answer
        .as_ref()
        .map_or_else(|status| status.message().to_owned(), |_| String::new());
    if !["class", "fsType", "mkfsOptions", "mountOptions"]
        .iter()
        .all(|name| message.contains(name))
    {
        ground.row(
            "CreateVolume",
            &format!("the message {message:?} does not name the parameters that exist"),
            &[],
            answer,
        );
    }
}

async fn sources(ground: &mut Ground) {
    use wire::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let rows = [
        Type::Snapshot(SnapshotSource {
            snapshot_id: "snap".to_owned(),
        }),
        Type::Volume(VolumeSource {
            volume_id: ground.files.id.clone(),
        }),
    ];
    for source in rows {
        let what = format!("a content source that is not served: {source:?}");
        let mut request = create("copied");
        request.volume_content_source = Some(wire::VolumeContentSource {
            r#type: Some(source),
        });
        refused(ground, &what, INVALID, request).await;
    }
    let mut request = create("elsewhere");
    let there = wire::Topology {
        segments: HashMap::from([("csi.drivebay.io/node".to_owned(), "no-such-node".to_owned())]),
    };
    request.accessibility_requirements = Some(wire::TopologyRequirement {
        requisite: vec![there.clone()],
        preferred: vec![there],
    });
    let codes = &[Code::ResourceExhausted, Code::InvalidArgument];
    refused(ground, "a node that does not exist", codes, request).await;
}

/// Calls that name a volume.
async fn by_id(ground: &mut Ground) {
    let mut client = ground.csi.controller();
    let answer = client
        .delete_volume(wire::DeleteVolumeRequest::default())
        .await;
    ground.row("DeleteVolume", "no id", INVALID, answer);
    let strangers = [
        UNKNOWN.to_owned(),
        "fake-vol-id".to_owned(),
        "x".repeat(4096),
        "../../etc/passwd".to_owned(),
        ground.files.id.to_uppercase(),
        ground
            .files
            .id
            .split('@')
            .next()
            .unwrap_or_default()
            .to_owned(),
    ];
    // Of a node that never connected nobody can say that it has no such volume.
    let elsewhere = "00000000-0000-4000-8000-0000000000ff@node2".to_owned();
    let answer = client
        .delete_volume(wire::DeleteVolumeRequest {
            volume_id: elsewhere.clone(),
            ..Default::default()
        })
        .await;
    ground.row("DeleteVolume", "another node's id", UNAVAILABLE, answer);
    let answer = client
        .controller_get_volume(wire::ControllerGetVolumeRequest {
            volume_id: elsewhere,
        })
        .await;
    ground.row(
        "ControllerGetVolume",
        "another node's id",
        UNAVAILABLE,
        answer,
    );
    for id in strangers {
        let shown: String = id.chars().take(60).collect();
        let answer = client
            .delete_volume(wire::DeleteVolumeRequest {
                volume_id: id.clone(),
                ..Default::default()
            })
            .await;
        ground.fine("DeleteVolume", &format!("unknown id {shown:?}"), answer);
        let answer = client
            .controller_get_volume(wire::ControllerGetVolumeRequest {
                volume_id: id.clone(),
            })
            .await;
        ground.row(
            "ControllerGetVolume",
            &format!("unknown id {shown:?}"),
            NOT_FOUND,
            answer,
        );
        let answer = client
            .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
                volume_id: id.clone(),
                volume_capabilities: vec![csi::block()],
                ..Default::default()
            })
            .await;
        ground.row(
            "ValidateVolumeCapabilities",
            &format!("unknown id {shown:?}"),
            NOT_FOUND,
            answer,
        );
        let answer = client
            .controller_get_volume_health(wire::ControllerGetVolumeHealthRequest {
                volume_id: id.clone(),
                ..Default::default()
            })
            .await;
        ground.row(
            "ControllerGetVolumeHealth",
            &format!("unknown id {shown:?}"),
            NOT_FOUND,
            answer,
        );
    }
    let answer = client
        .controller_get_volume(wire::ControllerGetVolumeRequest::default())
        .await;
    ground.row("ControllerGetVolume", "no id", INVALID, answer);
    let answer = client
        .controller_get_volume_health(wire::ControllerGetVolumeHealthRequest::default())
        .await;
    ground.row("ControllerGetVolumeHealth", "no id", INVALID, answer);
    let answer = client
        .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
            volume_capabilities: vec![csi::block()],
            ..Default::default()
        })
        .await;
    ground.row("ValidateVolumeCapabilities", "no id", INVALID, answer);
    let answer = client
        .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
            volume_id: ground.files.id.clone(),
            ..Default::default()
        })
        .await;
    ground.row(
        "ValidateVolumeCapabilities",
        "no capability",
        INVALID,
        answer,
    );
    unsupported(ground).await;
}

/// Known volume, unsupported use: OK, not confirmed, and said why.
async fn unsupported(ground: &mut Ground) {
    let answer = ground
        .csi
        .controller()
        .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
            volume_id: ground.files.id.clone(),
            volume_capabilities: vec![csi::block()],
            ..Default::default()
        })
        .await;
    let explained = answer.as_ref().is_ok_and(|answer| {
        let answer = answer.get_ref();
        answer.confirmed.is_none() && !answer.message.is_empty()
    });
    if explained {
        ground.fine("ValidateVolumeCapabilities", "unsupported use", answer);
    } else {
        ground.row(
            "ValidateVolumeCapabilities",
            "unsupported use (unconfirmed, with a message)",
            &[],
            answer,
        );
    }
}

async fn lists(ground: &mut Ground) {
    let mut client = ground.csi.controller();
    for token in ["invalid-token", "\n", "-1", "99999999999999999999"] {
        let answer = client
            .list_volumes(wire::ListVolumesRequest {
                starting_token: token.to_owned(),
                ..Default::default()
            })
            .await;
        ground.row(
            "ListVolumes",
            &format!("token {token:?}"),
            &[Code::Aborted],
            answer,
        );
        let answer = client
            .controller_list_volume_health(wire::ControllerListVolumeHealthRequest {
                starting_token: token.to_owned(),
                ..Default::default()
            })
            .await;
        ground.row(
            "ControllerListVolumeHealth",
            &format!("token {token:?}"),
            &[Code::Aborted],
            answer,
        );
    }
    let answer = client
        .list_volumes(wire::ListVolumesRequest {
            max_entries: -1,
            ..Default::default()
        })
        .await;
    ground.row("ListVolumes", "a negative page size", INVALID, answer);
    let answer = client
        .controller_list_volume_health(wire::ControllerListVolumeHealthRequest {
            max_entries: -1,
            ..Default::default()
        })
        .await;
    ground.row(
        "ControllerListVolumeHealth",
        "a negative page size",
        INVALID,
        answer,
    );
    // A typo in a StorageClass must not stop the scheduler's question about room.
    let answer = client
        .get_capacity(wire::GetCapacityRequest {
            parameters: HashMap::from([(
                "csi.storage.k8s.io/fstype".to_owned(),
                "ext4".to_owned(),
            )]),
            ..Default::default()
        })
        .await;
    ground.fine(
        "GetCapacity",
        "a parameter that the provisioner owns",
        answer,
    );
    let answer = client
        .controller_get_capabilities(wire::ControllerGetCapabilitiesRequest {})
        .await;
    ground.fine("ControllerGetCapabilities", "nothing", answer);
}

async fn expand(ground: &mut Ground) {
    let mut client = ground.csi.controller();
    let files = ground.files.id.clone();
    let request =
        |id: &str, required_bytes: i64, limit_bytes: i64| wire::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            ..Default::default()
        };
    let gib = i64::try_from(GIB).unwrap_or(0);
    let rows: [(&str, wire::ControllerExpandVolumeRequest, &[Code]); 9] = [
        ("no id", request("", gib, 0), INVALID),
        ("an unknown id", request(UNKNOWN, gib, 0), NOT_FOUND),
        (
            "an id that is none",
            request("fake-vol-id", gib, 0),
            NOT_FOUND,
        ),
        ("a size of 0", request(&files, 0, 0), RANGE),
        ("a negative size", request(&files, -1, 0), RANGE),
        (
            "a limit below what is required",
            request(&files, gib, gib / 2),
            RANGE,
        ),
        (
            "a limit below what it has",
            request(&files, 0, 1 << 20),
            RANGE,
        ),
        (
            "more than any drive has",
            request(&files, 1 << 50, 0),
            &[Code::OutOfRange, Code::ResourceExhausted],
        ),
        (
            "the largest number",
            request(&files, i64::MAX, 0),
            &[Code::OutOfRange, Code::ResourceExhausted],
        ),
    ];
    for (what, request, codes) in rows {
        let answer = client.controller_expand_volume(request).await;
        ground.row("ControllerExpandVolume", what, codes, answer);
    }
    let answer = client
        .controller_expand_volume(wire::ControllerExpandVolumeRequest {
            volume_id: files.clone(),
            ..Default::default()
        })
        .await;
    ground.row("ControllerExpandVolume", "no size", INVALID, answer);
    let mut wrong = request(&files, gib, 0);
    wrong.volume_capability = Some(csi::block());
    let answer = client.controller_expand_volume(wrong).await;
    ground.row(
        "ControllerExpandVolume",
        "a filesystem volume as block",
        INVALID,
        answer,
    );
}
