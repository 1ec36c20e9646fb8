//! Rows of the Controller service except CreateVolume: one field changed at a time.

use drivebay_hwtests::{MIB, csi};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability, validate_volume_capabilities_response::Confirmed,
};
use tonic::{Code::*, Response, Status};

use super::{
    fields::{Capable, Row, capabilities, ids, ranges, row, rows, send, unread},
    table::Ground,
};

pub(crate) async fn rows(ground: &mut Ground) {
    plain(ground).await;
    by_id(ground).await;
    validating(ground).await;
    listing(ground).await;
    capacity(ground).await;
    expanding(ground).await;
}

/// Requests without fields, of Identity too.
async fn plain(ground: &mut Ground) {
    let mut client = ground.controller.identity();
    let answer = client.get_plugin_info(wire::GetPluginInfoRequest {}).await;
    ground.fine("GetPluginInfo", "nothing", answer);
    let request = wire::GetPluginCapabilitiesRequest {};
    let answer = client.get_plugin_capabilities(request).await;
    ground.fine("GetPluginCapabilities", "nothing", answer);
    let answer = client.probe(wire::ProbeRequest {}).await;
    ground.fine("Probe", "nothing", answer);
    let mut client = ground.controller.controller();
    let request = wire::ControllerGetCapabilitiesRequest {};
    let answer = client.controller_get_capabilities(request).await;
    ground.fine("ControllerGetCapabilities", "nothing", answer);
}

async fn by_id(ground: &mut Ground) {
    type Delete = wire::DeleteVolumeRequest;
    type Get = wire::ControllerGetVolumeRequest;
    type Health = wire::ControllerGetVolumeHealthRequest;
    let client = ground.controller.controller();
    let volume_id = ground.files.id.clone();
    let good = Delete {
        volume_id: volume_id.clone(),
        ..Default::default()
    };
    let rows = ids(|r: &mut Delete| &mut r.volume_id, Ok, Unavailable);
    let call = async |request| client.clone().delete_volume(request).await;
    send(ground, "DeleteVolume", &good, rows, call).await;

    let good = Get {
        volume_id: volume_id.clone(),
    };
    let rows = ids(|r: &mut Get| &mut r.volume_id, NotFound, Unavailable);
    let call = async |request| client.clone().controller_get_volume(request).await;
    send(ground, "ControllerGetVolume", &good, rows, call).await;

    let good = Health {
        volume_id,
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Health| &mut r.volume_id, NotFound, Unavailable);
    rows.extend(unread("secrets", |r: &mut Health| &mut r.secrets));
    let call = async |request| client.clone().controller_get_volume_health(request).await;
    send(ground, "ControllerGetVolumeHealth", &good, rows, call).await;
}

/// Rows of a staged volume.
pub(crate) async fn in_use(ground: &mut Ground) {
    let request = wire::DeleteVolumeRequest {
        volume_id: ground.files.id.clone(),
        ..Default::default()
    };
    let answer = ground.controller.controller().delete_volume(request).await;
    ground.exactly(
        "DeleteVolume",
        "a volume in use",
        FailedPrecondition,
        answer,
    );
}

async fn validating(ground: &mut Ground) {
    type Validate = wire::ValidateVolumeCapabilitiesRequest;
    type Validated = wire::ValidateVolumeCapabilitiesResponse;
    let client = ground.controller.controller();
    let good = Validate {
        volume_id: ground.files.id.clone(),
        volume_capabilities: vec![csi::mount("ext4")],
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Validate| &mut r.volume_id, NotFound, Unavailable);
    rows.extend(rows! { Validate {
        "a context of more than 4 KiB" => InvalidArgument, |r| {
            r.volume_context.insert("a".into(), "x".repeat(4096));
        };
        "a flag that the filesystem may know" => Ok, |r| r.volume_capabilities = vec![csi::flags(&["noatime,discard"])];
    }});
    rows.extend(unread("secrets", |r: &mut Validate| &mut r.secrets));
    let call = async |request| client.clone().validate_volume_capabilities(request).await;
    send(ground, "ValidateVolumeCapabilities", &good, rows, call).await;

    // A well-formed, unsupported capability returns OK, unconfirmed, with a message.
    let mut rows = capabilities(
        |r: &mut Validate, capability| r.volume_capabilities = capability.into_iter().collect(),
        Capable {
            unsupported: Ok,
            hostile: Ok,
            ..Capable::REFUSED
        },
    );
    rows.push(row("as block", Ok, |r: &mut Validate| {
        r.volume_capabilities = vec![csi::block()]
    }));
    for key in ["class", "clas", "fsType"] {
        rows.push(row(
            format!("parameter {key}"),
            Ok,
            move |r: &mut Validate| {
                r.parameters.insert(key.into(), "nothing".into());
            },
        ));
    }
    let unconfirmed = |answer: Response<Validated>| {
        let Validated { confirmed, message } = answer.get_ref();
        let confirms: Option<&Confirmed> = confirmed.as_ref();
        match confirms.is_none() && !message.is_empty() {
            true => Result::Ok(answer),
            false => Err(Status::unknown(
                "it is confirmed, or nothing is said against it",
            )),
        }
    };
    let call = async |request| {
        let answer = client.clone().validate_volume_capabilities(request).await;
        answer.and_then(unconfirmed)
    };
    send(ground, "ValidateVolumeCapabilities", &good, rows, call).await;
}

async fn listing(ground: &mut Ground) {
    type List = wire::ListVolumesRequest;
    type Health = wire::ControllerListVolumeHealthRequest;
    let client = ground.controller.controller();
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
    let good = Health::default();
    send(ground, "ControllerListVolumeHealth", &good, health, call).await;
}

/// An error would leave the provisioner's last value in place: every request is answered with the capacity.
async fn capacity(ground: &mut Ground) {
    type Capacity = wire::GetCapacityRequest;
    let client = ground.controller.controller();
    let mut rows = capabilities(
        |r: &mut Capacity, capability| r.volume_capabilities = capability.into_iter().collect(),
        Capable {
            malformed: Ok,
            unsupported: Ok,
            hostile: Ok,
        },
    );
    for (key, value) in [
        ("class", "nothing\n"),
        ("clas", "nothing\n"),
        ("fsType", "nothing\n"),
        ("csi.storage.k8s.io/fstype", "nothing\n"),
        ("csi.storage.k8s.io/fstype", "ext4"),
        ("mkfsOptions", "nothing\n"),
    ] {
        rows.push(row(
            format!("parameter {key}={value:?}"),
            Ok,
            move |r: &mut Capacity| {
                r.parameters.insert(key.into(), value.into());
            },
        ));
    }
    let call = async |request| client.clone().get_capacity(request).await;
    send(ground, "GetCapacity", &Capacity::default(), rows, call).await;
}

async fn expanding(ground: &mut Ground) {
    type Expand = wire::ControllerExpandVolumeRequest;
    let client = ground.controller.controller();
    let good = Expand {
        volume_id: ground.files.id.clone(),
        capacity_range: Some(csi::bytes(64 * MIB)),
        volume_capability: Some(csi::mount("ext4")),
        ..Default::default()
    };
    let range = |r: &mut Expand, required_bytes: i64, limit_bytes: i64| {
        r.capacity_range = Some(CapacityRange {
            required_bytes,
            limit_bytes,
        });
    };
    let mut rows = ids(|r: &mut Expand| &mut r.volume_id, NotFound, Unavailable);
    rows.extend(ranges(|r: &mut Expand, range| r.capacity_range = range));
    rows.extend(rows! { Expand {
        "no range" => InvalidArgument, |r| r.capacity_range = None;
        "a range that says nothing" => InvalidArgument, move |r| range(r, 0, 0);
        "a limit below what it has" => OutOfRange, move |r| range(r, 0, 1 << 20);
        "more than any drive has" => OutOfRange, move |r| range(r, 1 << 50, 0);
        "the largest number" => OutOfRange, move |r| range(r, i64::MAX, 0);
        "a limit that rounding exceeds" => OutOfRange, move |r| range(r, (64 << 20) + 1, (64 << 20) + 2);
        "less than it has" => Ok, move |r| range(r, 1, 0);
        "a filesystem volume as block" => InvalidArgument, |r| r.volume_capability = Some(csi::block());
    }});
    rows.extend(capabilities(
        // The field is optional.
        |r: &mut Expand, capability: Option<VolumeCapability>| {
            r.volume_capability = Some(capability.unwrap_or_default());
        },
        Capable::REFUSED,
    ));
    rows.extend(unread("secrets", |r: &mut Expand| &mut r.secrets));
    let call = async |request| client.clone().controller_expand_volume(request).await;
    send(ground, "ControllerExpandVolume", &good, rows, call).await;
}
