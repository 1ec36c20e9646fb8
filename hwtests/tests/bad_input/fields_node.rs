//! Rows of the other RPCs of the Node service: one field changed at a time.

use std::path::Path;

use drivebay_hwtests::{MIB, csi};
use drivebay_proto::csi as wire;
use tonic::Code::*;

use super::{
    fields::{Capable, capabilities, ids, no_paths, occupied, ranges, row, rows, send, unread},
    table::{Ground, UNKNOWN},
};

pub(crate) async fn rows(ground: &mut Ground, dir: &Path) {
    plain(ground).await;
    unpublishing(ground, dir).await;
    unstaging(ground, dir).await;
    looking(ground).await;
    expanding(ground).await;
}

/// Checks that the RPCs whose requests have no fields answer OK.
async fn plain(ground: &mut Ground) {
    let mut client = ground.csi.node();
    let answer = client.node_get_info(wire::NodeGetInfoRequest {}).await;
    ground.fine("NodeGetInfo", "nothing", answer);
    let request = wire::NodeGetCapabilitiesRequest {};
    let answer = client.node_get_capabilities(request).await;
    ground.fine("NodeGetCapabilities", "nothing", answer);
}

async fn unpublishing(ground: &mut Ground, dir: &Path) {
    type Unpublish = wire::NodeUnpublishVolumeRequest;
    let client = ground.csi.node();
    let good = Unpublish {
        volume_id: ground.files.id.clone(),
        target_path: csi::text(&dir.join("odd/nothing-here")),
    };
    let mut rows = no_paths("target", |r: &mut Unpublish| &mut r.target_path);
    rows.extend(rows! { Unpublish {
        "no id" => InvalidArgument, |r| r.volume_id.clear();
        "no target" => InvalidArgument, |r| r.target_path.clear();
        "where it is not published" => Ok, |_| ();
        "below a directory that is not there" => Ok, |r| r.target_path.push_str("/a/b");
        "an id that is none" => Ok, |r| r.volume_id = "fake-vol-id".into();
        "an id without its parts" => Ok, |r| r.volume_id = "@".into();
        "an unknown volume" => Ok, |r| r.volume_id = UNKNOWN.into();
        "a mount of the system" => FailedPrecondition, |r| r.target_path = "/proc".into();
    }});
    for (what, path) in occupied(&dir.join("odd")) {
        rows.push(row(what, FailedPrecondition, move |r: &mut Unpublish| {
            r.target_path.clone_from(&path)
        }));
    }
    let call = async |request| client.clone().node_unpublish_volume(request).await;
    send(ground, "NodeUnpublishVolume", &good, rows, call).await;
}

async fn unstaging(ground: &mut Ground, dir: &Path) {
    type Unstage = wire::NodeUnstageVolumeRequest;
    let client = ground.csi.node();
    let good = Unstage {
        volume_id: ground.files.id.clone(),
        staging_target_path: csi::text(&dir.join("odd/nothing-here")),
    };
    let mut rows = no_paths("staging path", |r: &mut Unstage| &mut r.staging_target_path);
    rows.extend(rows! { Unstage {
        "no id" => InvalidArgument, |r| r.volume_id.clear();
        "no staging path" => InvalidArgument, |r| r.staging_target_path.clear();
        "where it is not staged" => Ok, |_| ();
        "an id that is none" => Ok, |r| r.volume_id = "fake-vol-id".into();
        "an id without its parts" => Ok, |r| r.volume_id = "@".into();
        "an unknown volume" => Ok, |r| r.volume_id = UNKNOWN.into();
        "a mount of the system" => FailedPrecondition, |r| r.staging_target_path = "/proc".into();
    }});
    let call = async |request| client.clone().node_unstage_volume(request).await;
    send(ground, "NodeUnstageVolume", &good, rows, call).await;
}

async fn looking(ground: &mut Ground) {
    type Stats = wire::NodeGetVolumeStatsRequest;
    type Health = wire::NodeGetVolumeHealthRequest;
    type Storage = wire::NodeGetStorageHealthRequest;
    let client = ground.csi.node();
    let good = Stats {
        volume_id: ground.files.id.clone(),
        volume_path: csi::text(&ground.files.target),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Stats| &mut r.volume_id, NotFound, NotFound);
    let unstaged = csi::text(&ground.unstaged.target);
    rows.extend(rows! { Stats {
        "where it is" => Ok, |_| ();
        "no path" => InvalidArgument, |r| r.volume_path.clear();
        // The conformance suite requires NOT_FOUND here, not an error about relative paths.
        "an unknown volume, a relative path" => NotFound, |r| {
            r.volume_id = UNKNOWN.into();
            r.volume_path = "some/path".into();
        };
        "where it is not published" => NotFound, move |r| r.volume_path.clone_from(&unstaged);
    }});
    for path in ["some/path", "/", "/proc", "/var/../etc", "/a\nb", "/a\0b"] {
        rows.push(row(
            format!("path {path:?}"),
            NotFound,
            move |r: &mut Stats| r.volume_path = path.into(),
        ));
    }
    let call = async |request| client.clone().node_get_volume_stats(request).await;
    send(ground, "NodeGetVolumeStats", &good, rows, call).await;

    let good = Health {
        volume_id: ground.files.id.clone(),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Health| &mut r.volume_id, NotFound, NotFound);
    rows.push(row("no paths", Ok, |_: &mut Health| ()));
    let call = async |request| client.clone().node_get_volume_health(request).await;
    send(ground, "NodeGetVolumeHealth", &good, rows, call).await;
    let call = async |request| client.clone().node_get_storage_health(request).await;
    let rows = unread("secrets", |r: &mut Storage| &mut r.secrets);
    send(
        ground,
        "NodeGetStorageHealth",
        &Storage::default(),
        rows,
        call,
    )
    .await;
}

async fn expanding(ground: &mut Ground) {
    type Expand = wire::NodeExpandVolumeRequest;
    let client = ground.csi.node();
    let good = Expand {
        volume_id: ground.files.id.clone(),
        volume_path: csi::text(&ground.files.target),
        capacity_range: Some(csi::bytes(64 * MIB)),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Expand| &mut r.volume_id, NotFound, NotFound);
    rows.extend(ranges(|r: &mut Expand, range| r.capacity_range = range));
    rows.extend(rows! { Expand {
        "as large as it is" => Ok, |r| r.capacity_range = None;
        "more than its device has" => OutOfRange, |r| r.capacity_range = Some(csi::bytes(128 * MIB));
        "the largest number" => OutOfRange, |r| r.capacity_range = Some(csi::bytes(u64::MAX));
        "no path" => InvalidArgument, |r| r.volume_path.clear();
        "an unknown volume, a relative path" => NotFound, |r| {
            r.volume_id = UNKNOWN.into();
            r.volume_path = "some/path".into();
        };
    }});
    for path in ["some/path", "/", "/proc", "/no/such/path", "/a\nb"] {
        rows.push(row(
            format!("path {path:?}"),
            NotFound,
            move |r: &mut Expand| r.volume_path = path.into(),
        ));
    }
    rows.extend(capabilities(
        // The field is optional.
        |r: &mut Expand, capability| r.volume_capability = Some(capability.unwrap_or_default()),
        Capable::REFUSED,
    ));
    rows.extend(unread("secrets", |r: &mut Expand| &mut r.secrets));
    let call = async |request| client.clone().node_expand_volume(request).await;
    send(ground, "NodeExpandVolume", &good, rows, call).await;
}
