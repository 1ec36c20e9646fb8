//! Invalid requests of the Controller service's RPCs for snapshots, and of the GroupController service: one bad field at a time. The
//! drives have layout partition, so that no snapshot is ever taken.

use drivebay_proto::csi as wire;
use tonic::Code::*;

use super::{
    fields::{Row, ids, row, rows, send},
    table::{Ground, UNKNOWN, control_strings},
};

/// Id of no snapshot, with letters: in capitals it is not an id.
const NOT_TAKEN: &str = "0badc0de-0000-4000-8000-00000000beef@node1";

/// Invalid parameters, with their values.
const PARAMETERS: [(&str, &str); 11] = [
    ("Reserve", "20%"),
    ("reserve", "0%"),
    ("reserve", "101%"),
    ("reserve", "20"),
    ("leastReserve", "1G"),
    ("mostReserve", "0GiB"),
    ("mostReserve", "a\nb"),
    ("maxAge", "59s"),
    ("maxAge", "7"),
    ("maxAge", "never"),
    ("maxAge", "a\nb"),
];

pub(crate) async fn rows(ground: &mut Ground) {
    creating(ground).await;
    by_id(ground).await;
    listing(ground).await;
    creating_groups(ground).await;
    groups_by_id(ground).await;
}

async fn creating(ground: &mut Ground) {
    type Create = wire::CreateSnapshotRequest;
    let client = ground.controller.controller();
    let good = Create {
        source_volume_id: ground.files.id.clone(),
        name: "never taken".to_owned(),
        ..Default::default()
    };
    let mut rows = ids(
        |r: &mut Create| &mut r.source_volume_id,
        NotFound,
        Unavailable,
    );
    rows.extend(rows! { Create {
        "a volume of layout partition" => FailedPrecondition, |_| ();
        "no name" => InvalidArgument, |r| r.name.clear();
        "a name of 129 bytes" => InvalidArgument, |r| r.name = "x".repeat(129);
        "bounds that no size is in" => InvalidArgument, |r| {
            r.parameters.insert("leastReserve".into(), "2GiB".into());
            r.parameters.insert("mostReserve".into(), "1GiB".into());
        };
    }});
    for (what, name) in control_strings() {
        rows.push(row(
            format!("{what} in the name"),
            InvalidArgument,
            move |r: &mut Create| r.name.clone_from(&name),
        ));
    }
    for (key, value) in PARAMETERS {
        rows.push(row(
            format!("parameter {key}={value:?}"),
            InvalidArgument,
            move |r: &mut Create| {
                r.parameters.insert(key.into(), value.into());
            },
        ));
    }
    let call = async |request| client.clone().create_snapshot(request).await;
    send(ground, "CreateSnapshot", &good, rows, call).await;
}

async fn creating_groups(ground: &mut Ground) {
    type Create = wire::CreateVolumeGroupSnapshotRequest;
    let mut client = ground.controller.group_controller();
    let request = wire::GroupControllerGetCapabilitiesRequest {};
    let answer = client.group_controller_get_capabilities(request).await;
    ground.fine("GroupControllerGetCapabilities", "nothing", answer);
    let good = Create {
        source_volume_ids: vec![ground.files.id.clone(), ground.raw.id.clone()],
        name: "never taken".to_owned(),
        ..Default::default()
    };
    let mut rows = ids(
        |r: &mut Create| &mut r.source_volume_ids[1],
        NotFound,
        Unavailable,
    );
    rows.extend(rows! { Create {
        "volumes of layout partition" => FailedPrecondition, |_| ();
        "no volumes" => InvalidArgument, |r| r.source_volume_ids.clear();
        "a volume twice" => InvalidArgument, |r| {
            let first = r.source_volume_ids[0].clone();
            r.source_volume_ids.push(first);
        };
        "33 volumes" => InvalidArgument, |r| {
            r.source_volume_ids.extend((0..31).map(|n| format!("{n}@node1")));
        };
        "32 volumes that there are not" => NotFound, |r| {
            r.source_volume_ids = (0..32).map(|n| format!("{n}@node1")).collect();
        };
        "no name" => InvalidArgument, |r| r.name.clear();
        "a name of 129 bytes" => InvalidArgument, |r| r.name = "x".repeat(129);
    }});
    for (what, name) in control_strings() {
        rows.push(row(
            format!("{what} in the name"),
            InvalidArgument,
            move |r: &mut Create| r.name.clone_from(&name),
        ));
    }
    for (key, value) in PARAMETERS {
        rows.push(row(
            format!("parameter {key}={value:?}"),
            InvalidArgument,
            move |r: &mut Create| {
                r.parameters.insert(key.into(), value.into());
            },
        ));
    }
    let call = async |request| client.clone().create_volume_group_snapshot(request).await;
    send(ground, "CreateVolumeGroupSnapshot", &good, rows, call).await;
}

async fn groups_by_id(ground: &mut Ground) {
    type Delete = wire::DeleteVolumeGroupSnapshotRequest;
    type Get = wire::GetVolumeGroupSnapshotRequest;
    let client = ground.controller.group_controller();
    let good = Delete {
        group_snapshot_id: NOT_TAKEN.to_owned(),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Delete| &mut r.group_snapshot_id, Ok, Unavailable);
    rows.push(row("snapshots of no group", Ok, |r: &mut Delete| {
        r.snapshot_ids = vec![UNKNOWN.to_owned(), "a\nb".to_owned(), String::new()];
    }));
    let call = async |request| client.clone().delete_volume_group_snapshot(request).await;
    send(ground, "DeleteVolumeGroupSnapshot", &good, rows, call).await;

    let good = Get {
        group_snapshot_id: NOT_TAKEN.to_owned(),
        ..Default::default()
    };
    let rows = ids(
        |r: &mut Get| &mut r.group_snapshot_id,
        NotFound,
        Unavailable,
    );
    let call = async |request| client.clone().get_volume_group_snapshot(request).await;
    send(ground, "GetVolumeGroupSnapshot", &good, rows, call).await;
}

async fn by_id(ground: &mut Ground) {
    type Delete = wire::DeleteSnapshotRequest;
    type Get = wire::GetSnapshotRequest;
    let client = ground.controller.controller();
    let good = Delete {
        snapshot_id: NOT_TAKEN.to_owned(),
        ..Default::default()
    };
    let rows = ids(|r: &mut Delete| &mut r.snapshot_id, Ok, Unavailable);
    let call = async |request| client.clone().delete_snapshot(request).await;
    send(ground, "DeleteSnapshot", &good, rows, call).await;

    let good = Get {
        snapshot_id: NOT_TAKEN.to_owned(),
        ..Default::default()
    };
    let rows = ids(|r: &mut Get| &mut r.snapshot_id, NotFound, Unavailable);
    let call = async |request| client.clone().get_snapshot(request).await;
    send(ground, "GetSnapshot", &good, rows, call).await;
}

async fn listing(ground: &mut Ground) {
    type List = wire::ListSnapshotsRequest;
    const ELSEWHERE: &str = "00000000-0000-4000-8000-0000000000ff@node2";
    let client = ground.controller.controller();
    let mut rows: Vec<Row<List>> = rows! { List {
        "a snapshot that there is not" => Ok, |r| UNKNOWN.clone_into(&mut r.snapshot_id);
        "a volume that there is not" => Ok, |r| UNKNOWN.clone_into(&mut r.source_volume_id);
        "what is no id" => Ok, |r| "none-exist-id".clone_into(&mut r.snapshot_id);
        "a snapshot of another node" => Unavailable, |r| ELSEWHERE.clone_into(&mut r.snapshot_id);
        "a volume of another node" => Unavailable, |r| ELSEWHERE.clone_into(&mut r.source_volume_id);
    }};
    for (max, code) in [
        (-1, InvalidArgument),
        (i32::MIN, InvalidArgument),
        (0, Ok),
        (1, Ok),
        (i32::MAX, Ok),
    ] {
        let what = format!("max_entries {max}");
        rows.push(row(what, code, move |r: &mut List| r.max_entries = max));
    }
    for token in ["invalid-token", "\n", "\0", "-1", " ", "../..", "\u{202e}"] {
        let what = format!("token {token:?}");
        rows.push(row(what, Aborted, move |r: &mut List| {
            r.starting_token = token.into()
        }));
    }
    let call = async |request| client.clone().list_snapshots(request).await;
    send(ground, "ListSnapshots", &List::default(), rows, call).await;
}
