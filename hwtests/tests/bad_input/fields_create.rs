//! Rows of CreateVolume.

use std::collections::HashMap;

use drivebay_hwtests::csi;
use drivebay_proto::csi::{
    self as wire, CapacityRange,
    volume_capability::access_mode::Mode,
    volume_content_source::{SnapshotSource, Type as Source, VolumeSource},
};
use tonic::Code::*;

use super::{
    fields::{Capable, Row, capabilities, create, ranges, row, rows, send, unread},
    table::{Ground, UNKNOWN, control_strings, hostile_flags},
};

type Create = wire::CreateVolumeRequest;

/// Invalid parameters: reason, key, and values.
const PARAMETERS: [(&str, &str, &[&str]); 12] = [
    (
        "a class that is none",
        "class",
        &["", "no-such-class", "demo ", "DEMO", "demo\n", "../demo"],
    ),
    (
        "a filesystem that is none",
        "fsType",
        &["ntfs", "EXT4", "ext4 ", "ext4\n", "-t"],
    ),
    (
        "another filesystem than the capability's",
        "fsType",
        &["xfs"],
    ),
    (
        "another filesystem than the capability's",
        "csi.storage.k8s.io/fstype",
        &["xfs"],
    ),
    (
        "options that mkfs must not have",
        "mkfsOptions",
        &[
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
            "-m 0\n-d /etc",
            "-E offset=4096",
            "-z undo",
        ],
    ),
    (
        "options of a form that the list allows and the tool refuses",
        "mkfsOptions",
        &[
            "-b 99",
            "-I 99999",
            "-O no_such_feature",
            "-J size=100000",
            "-i 1",
            "-g 1",
            "-m 99",
            "-N -1",
        ],
    ),
    (
        "a pattern without use",
        "antiAffinityPattern",
        &["data-(db-[0-9]+", "data-db-0", "(", "data-(db-0)"],
    ),
    (
        "anti-affinity without a pattern",
        "antiAffinity",
        &["hard", "soft", "maybe", ""],
    ),
    (
        "another word for what becomes of unreadable blocks",
        "copyUnreadable",
        &["", "zero", "Zeros", "true"],
    ),
    ("what only Drivebay counts", "copyUnreadableBytes", &["0"]),
    (
        "what only Drivebay writes",
        "antiAffinityGroup",
        &["prod/db-0"],
    ),
    ("a claim that is no metadata", "claim", &["data-db-0"]),
];

fn parameter(what: &str, key: &'static str, value: &str) -> Row<Create> {
    let value = value.to_owned();
    let what = format!("{what} ({key}={value:?})");
    row(what, InvalidArgument, move |r: &mut Create| {
        r.parameters.insert(key.to_owned(), value.clone());
    })
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
        "class\n",
    ] {
        rows.push(parameter("an unknown parameter", key, "x"));
    }
    for (what, key, values) in PARAMETERS {
        rows.extend(values.iter().map(|value| parameter(what, key, value)));
    }
    // An empty value is the same as none.
    for (_, flag) in hostile_flags()
        .into_iter()
        .filter(|(_, flag)| !flag.is_empty())
    {
        rows.push(parameter(
            "a mount option that must not be",
            "mountOptions",
            &flag,
        ));
    }
    let many = "noatime,".repeat(600);
    rows.push(parameter(
        "parameters of more than 4 KiB",
        "mountOptions",
        &many,
    ));
    rows
}

fn topology(key: &str, value: &str) -> wire::TopologyRequirement {
    let there = wire::Topology {
        segments: HashMap::from([(key.to_owned(), value.to_owned())]),
    };
    wire::TopologyRequirement {
        requisite: vec![there.clone()],
        preferred: vec![there],
    }
}

/// Returns a request for a volume on a node that does not exist.
pub(crate) fn on_no_such_node() -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        accessibility_requirements: Some(topology("csi.drivebay.io/node", "no-such-node")),
        ..create("never made")
    }
}

fn source(source: Option<Source>) -> Option<wire::VolumeContentSource> {
    Some(wire::VolumeContentSource { r#type: source })
}

fn of_snapshot(id: &str) -> Option<wire::VolumeContentSource> {
    let snapshot_id = id.to_owned();
    source(Some(Source::Snapshot(SnapshotSource { snapshot_id })))
}

fn of_volume(id: &str) -> Option<wire::VolumeContentSource> {
    let volume_id = id.to_owned();
    source(Some(Source::Volume(VolumeSource { volume_id })))
}

fn range(request: &mut Create, required_bytes: i64, limit_bytes: i64) {
    request.capacity_range = Some(CapacityRange {
        required_bytes,
        limit_bytes,
    });
}

pub(crate) async fn rows(ground: &mut Ground) {
    let client = ground.controller.controller();
    let call = async |request| client.clone().create_volume(request).await;
    let mut rows = rows! { Create {
        "no name" => InvalidArgument, |r| r.name.clear();
        "a name of 129 bytes" => InvalidArgument, |r| r.name = "x".repeat(129);
        "a name of 43 characters, 129 bytes" => InvalidArgument, |r| r.name = "\u{fffd}".repeat(43);
        "mount and block at once" => InvalidArgument, |r| r.volume_capabilities.push(csi::block());
        "two filesystems" => InvalidArgument, |r| r.volume_capabilities.push(csi::mount("xfs"));
        "a mutable parameter" => InvalidArgument, |r| { r.mutable_parameters.insert("a".into(), "b".into()); };
        "a source without a type" => InvalidArgument, |r| r.volume_content_source = source(None);
        "a snapshot without an id as source" => InvalidArgument, |r| r.volume_content_source = of_snapshot("");
        "a volume without an id as source" => InvalidArgument, |r| r.volume_content_source = of_volume("");
        "a snapshot that there is not as source" => NotFound, |r| r.volume_content_source = of_snapshot("snap");
        "a volume that there is not as source" => NotFound, |r| r.volume_content_source = of_volume(UNKNOWN);
        "a volume of another node as source" => Unavailable, |r| {
            r.volume_content_source = of_volume("00000000-0000-4000-8000-0000000000ff@node2");
        };
        "a limit of one byte" => OutOfRange, |r| range(r, 0, 1);
        "a limit that rounding exceeds" => OutOfRange, |r| range(r, (64 << 20) + 1, (64 << 20) + 2);
        "more than any drive has" => ResourceExhausted, |r| range(r, 1 << 50, 0);
        "the largest number" => OutOfRange, |r| range(r, i64::MAX, 0);
    }};
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
        Capable::REFUSED,
    ));
    rows.extend(parameters());
    for (key, value) in [
        ("csi.drivebay.io/node", "no-such-node"),
        ("csi.drivebay.io/node", ""),
        ("zone", "a"),
    ] {
        let what = format!("topology {key}={value:?}");
        rows.push(row(what, ResourceExhausted, move |r: &mut Create| {
            r.accessibility_requirements = Some(topology(key, value));
        }));
    }
    send(ground, "CreateVolume", &create("never made"), rows, &call).await;

    // Rows of an existing volume.
    let mut rows = rows! { Create {
        "repeated" => Ok, |_| ();
        "less" => Ok, |r| range(r, 1, 0);
        "a limit that it keeps" => Ok, |r| range(r, 0, 64 << 20);
        "for another access mode" => Ok, |r| {
            let access = csi::mount("ext4").access_type.unwrap();
            r.volume_capabilities = vec![csi::capability(access, Mode::SingleNodeSingleWriter)];
        };
        "of another size" => AlreadyExists, |r| range(r, 512 << 20, 0);
        "with a limit below its size" => AlreadyExists, |r| range(r, 0, 32 << 20);
        "of another mode" => AlreadyExists, |r| r.volume_capabilities = vec![csi::block()];
        "of another filesystem" => AlreadyExists, |r| {
            r.volume_capabilities = vec![csi::mount("xfs")];
            range(r, 1, 0);
        };
        "with another parameter" => AlreadyExists, |r| {
            r.parameters.insert("mountOptions".into(), "noatime".into());
        };
        "in another topology" => AlreadyExists, |r| {
            r.accessibility_requirements = Some(topology("csi.drivebay.io/node", "no-such-node"));
        };
    }};
    rows.extend(unread("secrets", |r: &mut Create| &mut r.secrets));
    send(ground, "CreateVolume", &create("files"), rows, &call).await;
    names_the_parameters(ground).await;
}

/// The error for an unknown parameter lists the valid ones.
async fn names_the_parameters(ground: &mut Ground) {
    let mut request = create("never made");
    request.parameters.insert("clas".into(), "demo".into());
    let answer = ground.controller.controller().create_volume(request).await;
    let message = answer
        .as_ref()
        .map_or_else(|status| status.message().to_owned(), |_| String::new());
    let named = ["class", "fsType", "mkfsOptions", "mountOptions"]
        .iter()
        .all(|name| message.contains(name));
    let expected: &[tonic::Code] = if named { &[InvalidArgument] } else { &[] };
    ground.row(
        "CreateVolume",
        "an unknown parameter, whose refusal names those that exist",
        expected,
        answer,
    );
}
