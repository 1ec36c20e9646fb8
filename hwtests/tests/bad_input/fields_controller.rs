//! Rows of the Controller service: one field bent at a time.

use std::collections::HashMap;

use drivebay_hwtests::{MIB, csi};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability,
    volume_content_source::{SnapshotSource, Type as Source, VolumeSource},
};
use tonic::Code::*;

use super::{
    fields::{Capable, Row, capabilities, create, ids, ranges, row, send, unread},
    table::{Ground, control_strings, hostile_flags},
};

pub(crate) async fn rows(ground: &mut Ground) {
    creating(ground).await;
    by_id(ground).await;
    validating(ground).await;
    listing(ground).await;
    expanding(ground).await;
}

type Create = wire::CreateVolumeRequest;

fn parameter(what: &str, key: &'static str, value: &str) -> Row<Create> {
    let value = value.to_owned();
    row(
        format!("{what} ({key}={value:?})"),
        InvalidArgument,
        move |r: &mut Create| {
            r.parameters.insert(key.to_owned(), value.clone());
        },
    )
}

fn parameters() -> Vec<Row<Create>> {
    let mut rows = Vec::new();
    for key in [
        "",
        "clas",
        "Class",
        "CLASS",
        "fstype",
        "size",
        "byHand",
        "createdAt",
        "claim",
        "antiAffinityGroup",
        "class\n",
    ] {
        rows.push(parameter("an unknown parameter", key, "x"));
    }
    for class in ["", "no-such-class", "demo ", "DEMO", "demo\n", "../demo"] {
        rows.push(parameter("a class that is none", "class", class));
    }
    for fs_type in ["ntfs", "EXT4", "ext4 ", "ext4\n", "-t"] {
        rows.push(parameter("a filesystem that is none", "fsType", fs_type));
    }
    for key in ["fsType", "csi.storage.k8s.io/fstype"] {
        rows.push(parameter(
            "another filesystem than the capability's",
            key,
            "xfs",
        ));
    }
    for options in [
        "-d /etc",
        "/dev/sda",
        "sda",
        "-F",
        "-m 0 sda",
        "-U random",
        "-J device=/dev/sda",
        "-O ^has_journal",
        "-b",
        "-b -F",
        "--",
        "-L a\nb",
        "-E offset=4096",
        "-z undo",
        // Of a form that the list allows: the tool refuses them.
        "-b 99",
        "-I 99999",
        "-O no_such_feature",
        "-J size=100000",
        "-i 1",
        "-g 1",
        "-m 99",
        "-N -1",
    ] {
        rows.push(parameter(
            "options that mkfs must not have",
            "mkfsOptions",
            options,
        ));
    }
    for (_, flag) in hostile_flags() {
        // An empty one is none.
        if !flag.is_empty() {
            rows.push(parameter(
                "a mount option that must not be",
                "mountOptions",
                &flag,
            ));
        }
    }
    for pattern in ["data-(db-[0-9]+", "data-db-0", "(", "data-(db-0)"] {
        rows.push(parameter(
            "a pattern without use",
            "antiAffinityPattern",
            pattern,
        ));
    }
    for word in ["hard", "soft", "maybe", ""] {
        rows.push(parameter(
            "anti-affinity without a pattern",
            "antiAffinity",
            word,
        ));
    }
    rows.push(row(
        "parameters of more than 4 KiB",
        InvalidArgument,
        |r: &mut Create| {
            r.parameters
                .insert("mountOptions".into(), "noatime,".repeat(600));
        },
    ));
    rows
}

async fn creating(ground: &mut Ground) {
    let client = ground.csi.controller();
    let call = async |request| client.clone().create_volume(request).await;
    let mut rows: Vec<Row<Create>> = vec![
        row("no name", InvalidArgument, |r: &mut Create| r.name.clear()),
        row("a name of 129 bytes", InvalidArgument, |r: &mut Create| {
            r.name = "x".repeat(129)
        }),
        row(
            "a name of 43 characters, 129 bytes",
            InvalidArgument,
            |r: &mut Create| {
                r.name = "\u{fffd}".repeat(43);
            },
        ),
        row("no capability", InvalidArgument, |r: &mut Create| {
            r.volume_capabilities.clear()
        }),
        row(
            "mount and block at once",
            InvalidArgument,
            |r: &mut Create| {
                r.volume_capabilities.push(csi::block());
            },
        ),
        row("two filesystems", InvalidArgument, |r: &mut Create| {
            r.volume_capabilities.push(csi::mount("xfs"));
        }),
        row("a mutable parameter", InvalidArgument, |r: &mut Create| {
            r.mutable_parameters.insert("a".into(), "b".into());
        }),
        row(
            "a source without a type",
            InvalidArgument,
            |r: &mut Create| {
                r.volume_content_source = Some(wire::VolumeContentSource::default());
            },
        ),
        row("a snapshot as source", InvalidArgument, |r: &mut Create| {
            let snapshot_id = "snap".to_owned();
            r.volume_content_source = Some(wire::VolumeContentSource {
                r#type: Some(Source::Snapshot(SnapshotSource { snapshot_id })),
            });
        }),
        row("a volume as source", InvalidArgument, |r: &mut Create| {
            let volume_id = "vol".to_owned();
            r.volume_content_source = Some(wire::VolumeContentSource {
                r#type: Some(Source::Volume(VolumeSource { volume_id })),
            });
        }),
        row("a limit of one byte", OutOfRange, |r: &mut Create| {
            range(r, 0, 1)
        }),
        row(
            "a limit that rounding exceeds",
            OutOfRange,
            |r: &mut Create| {
                range(r, (64 << 20) + 1, (64 << 20) + 2);
            },
        ),
        row(
            "more than any drive has",
            ResourceExhausted,
            |r: &mut Create| range(r, 1 << 50, 0),
        ),
        row("the largest number", OutOfRange, |r: &mut Create| {
            range(r, i64::MAX, 0)
        }),
    ];
    for (what, name) in control_strings() {
        rows.push(row(
            format!("{what} in the name"),
            InvalidArgument,
            move |r: &mut Create| {
                r.name.clone_from(&name);
            },
        ));
    }
    rows.extend(ranges(|r: &mut Create, range| r.capacity_range = range));
    rows.extend(capabilities(
        |r: &mut Create, capability| r.volume_capabilities = capability.into_iter().collect(),
        Capable {
            malformed: InvalidArgument,
            unsupported: InvalidArgument,
            hostile: InvalidArgument,
        },
    ));
    rows.extend(parameters());
    for (key, value) in [
        ("csi.drivebay.io/node", "no-such-node"),
        ("csi.drivebay.io/node", ""),
        ("zone", "a"),
    ] {
        rows.push(row(
            format!("topology {key}={value:?}"),
            ResourceExhausted,
            move |r: &mut Create| {
                let there = wire::Topology {
                    segments: HashMap::from([(key.to_owned(), value.to_owned())]),
                };
                r.accessibility_requirements = Some(wire::TopologyRequirement {
                    requisite: vec![there.clone()],
                    preferred: vec![there],
                });
            },
        ));
    }
    send(ground, "CreateVolume", &create("never made"), rows, &call).await;

    // Of a volume that exists.
    let mut rows: Vec<Row<Create>> = vec![
        row("repeated", Ok, |_: &mut Create| ()),
        row("less", Ok, |r: &mut Create| range(r, 1, 0)),
        row("a limit that it keeps", Ok, |r: &mut Create| {
            range(r, 0, 64 << 20)
        }),
        row("for another access mode", Ok, |r: &mut Create| {
            r.volume_capabilities = vec![csi::capability(
                csi::mount("ext4").access_type.unwrap(),
                wire::volume_capability::access_mode::Mode::SingleNodeSingleWriter,
            )];
        }),
        row("of another size", AlreadyExists, |r: &mut Create| {
            range(r, 512 << 20, 0)
        }),
        row(
            "with a limit below its size",
            AlreadyExists,
            |r: &mut Create| range(r, 0, 32 << 20),
        ),
        row("of another mode", AlreadyExists, |r: &mut Create| {
            r.volume_capabilities = vec![csi::block()];
        }),
        row("of another filesystem", AlreadyExists, |r: &mut Create| {
            r.volume_capabilities = vec![csi::mount("xfs")];
            range(r, 1, 0);
        }),
        row("with another parameter", AlreadyExists, |r: &mut Create| {
            r.parameters.insert("mountOptions".into(), "noatime".into());
        }),
        row("in another topology", AlreadyExists, |r: &mut Create| {
            let there = wire::Topology {
                segments: HashMap::from([("csi.drivebay.io/node".into(), "no-such-node".into())]),
            };
            r.accessibility_requirements = Some(wire::TopologyRequirement {
                requisite: vec![there],
                preferred: Vec::new(),
            });
        }),
    ];
    rows.extend(unread("secrets", |r: &mut Create| &mut r.secrets));
    send(ground, "CreateVolume", &create("files"), rows, &call).await;
}

fn range(request: &mut Create, required_bytes: i64, limit_bytes: i64) {
    request.capacity_range = Some(CapacityRange {
        required_bytes,
        limit_bytes,
    });
}

async fn by_id(ground: &mut Ground) {
    let client = ground.csi.controller();
    let id = ground.files.id.clone();
    let good = wire::DeleteVolumeRequest {
        volume_id: id.clone(),
        ..Default::default()
    };
    let mut rows = ids(
        |r: &mut wire::DeleteVolumeRequest| &mut r.volume_id,
        Ok,
        Unavailable,
    );
    rows.push(row(
        "a volume in use",
        FailedPrecondition,
        |_: &mut wire::DeleteVolumeRequest| (),
    ));
    let call = async |request| client.clone().delete_volume(request).await;
    send(ground, "DeleteVolume", &good, rows, call).await;

    let good = wire::ControllerGetVolumeRequest {
        volume_id: id.clone(),
    };
    let rows = ids(
        |r: &mut wire::ControllerGetVolumeRequest| &mut r.volume_id,
        NotFound,
        Unavailable,
    );
    let call = async |request| client.clone().controller_get_volume(request).await;
    send(ground, "ControllerGetVolume", &good, rows, call).await;

    let good = wire::ControllerGetVolumeHealthRequest {
        volume_id: id,
        ..Default::default()
    };
    let mut rows = ids(
        |r: &mut wire::ControllerGetVolumeHealthRequest| &mut r.volume_id,
        NotFound,
        Unavailable,
    );
    rows.extend(unread(
        "secrets",
        |r: &mut wire::ControllerGetVolumeHealthRequest| &mut r.secrets,
    ));
    let call = async |request| client.clone().controller_get_volume_health(request).await;
    send(ground, "ControllerGetVolumeHealth", &good, rows, call).await;
}

async fn validating(ground: &mut Ground) {
    type Validate = wire::ValidateVolumeCapabilitiesRequest;
    let client = ground.csi.controller();
    let good = Validate {
        volume_id: ground.files.id.clone(),
        volume_capabilities: vec![csi::mount("ext4")],
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Validate| &mut r.volume_id, NotFound, Unavailable);
    rows.extend(capabilities(
        |r: &mut Validate, capability| r.volume_capabilities = capability.into_iter().collect(),
        // What is well-formed and not supported is answered with OK and why.
        Capable {
            malformed: InvalidArgument,
            unsupported: Ok,
            hostile: Ok,
        },
    ));
    rows.push(row(
        "a context of more than 4 KiB",
        InvalidArgument,
        |r: &mut Validate| {
            r.volume_context.insert("a".into(), "x".repeat(4096));
        },
    ));
    for key in ["class", "clas", "fsType"] {
        rows.push(row(
            format!("parameter {key}"),
            Ok,
            move |r: &mut Validate| {
                r.parameters.insert(key.into(), "nothing".into());
            },
        ));
    }
    rows.extend(unread("secrets", |r: &mut Validate| &mut r.secrets));
    let call = async |request| client.clone().validate_volume_capabilities(request).await;
    send(ground, "ValidateVolumeCapabilities", &good, rows, call).await;
}

async fn listing(ground: &mut Ground) {
    type List = wire::ListVolumesRequest;
    type Health = wire::ControllerListVolumeHealthRequest;
    type Capacity = wire::GetCapacityRequest;
    let client = ground.csi.controller();
    let mut lists: Vec<Row<List>> = Vec::new();
    let mut health: Vec<Row<Health>> = Vec::new();
    for (max, code) in [
        (-1, InvalidArgument),
        (i32::MIN, InvalidArgument),
        (0, Ok),
        (1, Ok),
        (i32::MAX, Ok),
    ] {
        let what = format!("max_entries {max}");
        lists.push(row(&*what, code, move |r: &mut List| r.max_entries = max));
        health.push(row(&*what, code, move |r: &mut Health| r.max_entries = max));
    }
    for token in [
        "invalid-token",
        "\n",
        "\0",
        "-1",
        " ",
        "99999999999999999999",
        "../..",
        "\u{202e}",
    ] {
        let what = format!("token {token:?}");
        lists.push(row(&*what, Aborted, move |r: &mut List| {
            r.starting_token = token.into()
        }));
        health.push(row(&*what, Aborted, move |r: &mut Health| {
            r.starting_token = token.into()
        }));
    }
    let call = async |request| client.clone().list_volumes(request).await;
    send(ground, "ListVolumes", &List::default(), lists, call).await;
    let call = async |request| client.clone().controller_list_volume_health(request).await;
    send(
        ground,
        "ControllerListVolumeHealth",
        &Health::default(),
        health,
        call,
    )
    .await;

    // An error would leave the provisioner's last figure standing: whatever is asked, the answer is how much there is.
    let mut rows: Vec<Row<Capacity>> = capabilities(
        |r: &mut Capacity, capability| r.volume_capabilities = capability.into_iter().collect(),
        Capable {
            malformed: Ok,
            unsupported: Ok,
            hostile: Ok,
        },
    );
    for key in [
        "class",
        "clas",
        "fsType",
        "csi.storage.k8s.io/fstype",
        "mkfsOptions",
    ] {
        rows.push(row(
            format!("parameter {key}"),
            Ok,
            move |r: &mut Capacity| {
                r.parameters.insert(key.into(), "nothing\n".into());
            },
        ));
    }
    let call = async |request| client.clone().get_capacity(request).await;
    send(ground, "GetCapacity", &Capacity::default(), rows, call).await;
}

async fn expanding(ground: &mut Ground) {
    type Expand = wire::ControllerExpandVolumeRequest;
    let client = ground.csi.controller();
    let good = Expand {
        volume_id: ground.files.id.clone(),
        capacity_range: Some(csi::bytes(64 * MIB)),
        volume_capability: Some(csi::mount("ext4")),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Expand| &mut r.volume_id, NotFound, Unavailable);
    rows.extend(ranges(|r: &mut Expand, range| r.capacity_range = range));
    let of = |required_bytes: i64, limit_bytes: i64| CapacityRange {
        required_bytes,
        limit_bytes,
    };
    for (what, code, range) in [
        ("no range", InvalidArgument, None),
        ("a range that says nothing", InvalidArgument, Some(of(0, 0))),
        (
            "a limit below what it has",
            OutOfRange,
            Some(of(0, 1 << 20)),
        ),
        ("more than any drive has", OutOfRange, Some(of(1 << 50, 0))),
        ("the largest number", OutOfRange, Some(of(i64::MAX, 0))),
        (
            "a limit that rounding exceeds",
            OutOfRange,
            Some(of((64 << 20) + 1, (64 << 20) + 2)),
        ),
        ("less than it has", Ok, Some(of(1, 0))),
    ] {
        rows.push(row(what, code, move |r: &mut Expand| {
            r.capacity_range = range
        }));
    }
    rows.push(row(
        "a filesystem volume as block",
        InvalidArgument,
        |r: &mut Expand| {
            r.volume_capability = Some(csi::block());
        },
    ));
    let set = |r: &mut Expand, capability: Option<VolumeCapability>| {
        // It may be left out.
        r.volume_capability = Some(capability.unwrap_or_default());
    };
    rows.extend(capabilities(
        set,
        Capable {
            malformed: InvalidArgument,
            unsupported: InvalidArgument,
            hostile: Ok,
        },
    ));
    rows.extend(unread("secrets", |r: &mut Expand| &mut r.secrets));
    let call = async |request| client.clone().controller_expand_volume(request).await;
    send(ground, "ControllerExpandVolume", &good, rows, call).await;
}
