//! Rows for the Node service.

use drivebay_hwtests::{GIB, csi};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};
use tonic::Code;

use super::{
    controller::bad_capabilities,
    table::{Ground, UNKNOWN, bad_paths},
};

const INVALID: &[Code] = &[Code::InvalidArgument];
const NOT_FOUND: &[Code] = &[Code::NotFound];
/// The specification has both for a use that the volume does not have.
const USE: &[Code] = &[Code::InvalidArgument, Code::FailedPrecondition];
/// Unstage and unpublish of what is not there.
const PATH: &[Code] = &[Code::InvalidArgument];
const GONE: &[Code] = &[Code::NotFound, Code::InvalidArgument];

pub(crate) async fn rows(ground: &mut Ground) {
    let mut client = ground.csi.node();
    let info = client.node_get_info(wire::NodeGetInfoRequest {}).await;
    ground.fine("NodeGetInfo", "nothing", info);
    let capabilities = client
        .node_get_capabilities(wire::NodeGetCapabilitiesRequest {})
        .await;
    ground.fine("NodeGetCapabilities", "nothing", capabilities);
    stage(ground).await;
    publish(ground).await;
    leave(ground).await;
    stats(ground).await;
    expand(ground).await;
}

fn staging(ground: &Ground) -> wire::NodeStageVolumeRequest {
    let _ = std::fs::create_dir_all(&ground.files.staging);
    wire::NodeStageVolumeRequest {
        volume_id: ground.files.id.clone(),
        staging_target_path: csi::text(&ground.files.staging),
        volume_capability: Some(csi::mount("ext4")),
        ..Default::default()
    }
}

/// A change of a good request.
type Bend<T> = Box<dyn Fn(&mut T)>;

fn staged(
    change: impl Fn(&mut wire::NodeStageVolumeRequest) + 'static,
) -> Bend<wire::NodeStageVolumeRequest> {
    Box::new(change)
}

fn published(
    change: impl Fn(&mut wire::NodePublishVolumeRequest) + 'static,
) -> Bend<wire::NodePublishVolumeRequest> {
    Box::new(change)
}

async fn stage(ground: &mut Ground) {
    let raw = ground.raw.id.clone();
    let mut rows: Vec<(String, &[Code], Bend<wire::NodeStageVolumeRequest>)> = vec![
        ("no id".into(), INVALID, staged(|r| r.volume_id.clear())),
        (
            "no staging path".into(),
            INVALID,
            staged(|r| r.staging_target_path.clear()),
        ),
        (
            "no capability".into(),
            INVALID,
            staged(|r| r.volume_capability = None),
        ),
        (
            "an unknown volume".into(),
            NOT_FOUND,
            staged(|r| r.volume_id = UNKNOWN.into()),
        ),
        (
            "an id that is none".into(),
            NOT_FOUND,
            staged(|r| r.volume_id = "fake-vol-id".into()),
        ),
        (
            "a filesystem volume as block".into(),
            USE,
            staged(|r| r.volume_capability = Some(csi::block())),
        ),
        (
            "another filesystem than it has".into(),
            USE,
            staged(|r| r.volume_capability = Some(csi::mount("xfs"))),
        ),
        (
            "a block volume as filesystem".into(),
            USE,
            staged(move |r| r.volume_id.clone_from(&raw)),
        ),
    ];
    for (what, path) in bad_paths() {
        rows.push((
            what.into(),
            PATH,
            staged(move |r| r.staging_target_path.clone_from(&path)),
        ));
    }
    for (what, capability) in bad_capabilities() {
        rows.push((
            what,
            USE,
            staged(move |r| r.volume_capability = Some(capability.clone())),
        ));
    }
    for (what, codes, change) in rows {
        let mut request = staging(ground);
        change(&mut request);
        let answer = ground.csi.node().node_stage_volume(request).await;
        ground.row("NodeStageVolume", &what, codes, answer);
    }
}

fn publishing(ground: &Ground) -> wire::NodePublishVolumeRequest {
    wire::NodePublishVolumeRequest {
        volume_id: ground.files.id.clone(),
        staging_target_path: csi::text(&ground.files.staging),
        target_path: csi::text(&ground.files.target),
        volume_capability: Some(csi::mount("ext4")),
        ..Default::default()
    }
}

async fn publish(ground: &mut Ground) {
    const UNSTAGED: &[Code] = &[Code::FailedPrecondition];
    let mut rows: Vec<(String, &[Code], Bend<wire::NodePublishVolumeRequest>)> = vec![
        ("no id".into(), INVALID, published(|r| r.volume_id.clear())),
        (
            "no target".into(),
            INVALID,
            published(|r| r.target_path.clear()),
        ),
        (
            "no capability".into(),
            INVALID,
            published(|r| r.volume_capability = None),
        ),
        (
            "no capability and no staging path".into(),
            INVALID,
            published(|r| {
                r.volume_capability = None;
                r.staging_target_path.clear();
            }),
        ),
        (
            "no staging path".into(),
            UNSTAGED,
            published(|r| r.staging_target_path.clear()),
        ),
        (
            "an unknown volume".into(),
            NOT_FOUND,
            published(|r| r.volume_id = UNKNOWN.into()),
        ),
        (
            "a volume that is not staged".into(),
            UNSTAGED,
            published(|_| ()),
        ),
        (
            "a filesystem volume as block".into(),
            USE,
            published(|r| r.volume_capability = Some(csi::block())),
        ),
    ];
    for (what, path) in bad_paths() {
        let target = path.clone();
        rows.push((
            format!("{what} as target"),
            PATH,
            published(move |r| r.target_path.clone_from(&target)),
        ));
        rows.push((
            format!("{what} as staging path"),
            PATH,
            published(move |r| r.staging_target_path.clone_from(&path)),
        ));
    }
    for (what, capability) in bad_capabilities() {
        rows.push((
            what,
            USE,
            published(move |r| r.volume_capability = Some(capability.clone())),
        ));
    }
    for (what, codes, change) in rows {
        let mut request = publishing(ground);
        change(&mut request);
        let answer = ground.csi.node().node_publish_volume(request).await;
        ground.row("NodePublishVolume", &what, codes, answer);
    }
}

/// Unpublish and unstage.
async fn leave(ground: &mut Ground) {
    let mut client = ground.csi.node();
    let id = ground.files.id.clone();
    let unpublish = |id: &str, path: &str| wire::NodeUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        target_path: path.to_owned(),
    };
    let unstage = |id: &str, path: &str| wire::NodeUnstageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: path.to_owned(),
    };
    let target = csi::text(&ground.files.target);
    let answer = client.node_unpublish_volume(unpublish("", &target)).await;
    ground.row("NodeUnpublishVolume", "no id", INVALID, answer);
    let answer = client.node_unpublish_volume(unpublish(&id, "")).await;
    ground.row("NodeUnpublishVolume", "no target", INVALID, answer);
    let answer = client.node_unstage_volume(unstage("", &target)).await;
    ground.row("NodeUnstageVolume", "no id", INVALID, answer);
    let answer = client.node_unstage_volume(unstage(&id, "")).await;
    ground.row("NodeUnstageVolume", "no staging path", INVALID, answer);
    for (what, path) in bad_paths() {
        let answer = client.node_unpublish_volume(unpublish(&id, &path)).await;
        ground.row("NodeUnpublishVolume", what, PATH, answer);
        let answer = client.node_unstage_volume(unstage(&id, &path)).await;
        ground.row("NodeUnstageVolume", what, PATH, answer);
    }
    // What is not there need not be taken away.
    let answer = client.node_unpublish_volume(unpublish(&id, &target)).await;
    ground.fine(
        "NodeUnpublishVolume",
        "a volume that is not published",
        answer,
    );
    let answer = client.node_unstage_volume(unstage(&id, &target)).await;
    ground.fine("NodeUnstageVolume", "a volume that is not staged", answer);
    // Somebody else's mount is not ours to unmount, whatever id it is asked with.
    let codes = &[
        Code::InvalidArgument,
        Code::FailedPrecondition,
        Code::NotFound,
        Code::Internal,
    ];
    let answer = client.node_unstage_volume(unstage(&id, "/proc")).await;
    ground.row("NodeUnstageVolume", "a mount of the system", codes, answer);
    let answer = client.node_unpublish_volume(unpublish(&id, "/proc")).await;
    ground.row(
        "NodeUnpublishVolume",
        "a mount of the system",
        codes,
        answer,
    );
}

async fn stats(ground: &mut Ground) {
    let mut client = ground.csi.node();
    let request = |id: &str, path: &str| wire::NodeGetVolumeStatsRequest {
        volume_id: id.to_owned(),
        volume_path: path.to_owned(),
        ..Default::default()
    };
    let id = ground.files.id.clone();
    let target = csi::text(&ground.files.target);
    let rows: [(&str, String, String, &[Code]); 6] = [
        ("no id", String::new(), target.clone(), INVALID),
        ("no path", id.clone(), String::new(), INVALID),
        // The conformance suite wants NOT_FOUND here, not a word about relative paths.
        (
            "an unknown volume, a relative path",
            UNKNOWN.into(),
            "some/path".into(),
            NOT_FOUND,
        ),
        ("a relative path", id.clone(), "some/path".into(), NOT_FOUND),
        ("a path where it is not", id.clone(), "/".into(), NOT_FOUND),
        (
            "a volume that is not published",
            id.clone(),
            target,
            NOT_FOUND,
        ),
    ];
    for (what, id, path, codes) in rows {
        let answer = client.node_get_volume_stats(request(&id, &path)).await;
        ground.row("NodeGetVolumeStats", what, codes, answer);
    }
    for path in ["/var/../etc", "/a\nb", "/a\0b"] {
        let answer = client.node_get_volume_stats(request(&id, path)).await;
        ground.row(
            "NodeGetVolumeStats",
            &format!("path {path:?}"),
            GONE,
            answer,
        );
    }
    let answer = client
        .node_get_volume_health(wire::NodeGetVolumeHealthRequest::default())
        .await;
    ground.row("NodeGetVolumeHealth", "no id", INVALID, answer);
    let answer = client
        .node_get_volume_health(wire::NodeGetVolumeHealthRequest {
            volume_id: UNKNOWN.into(),
            ..Default::default()
        })
        .await;
    ground.row(
        "NodeGetVolumeHealth",
        "an unknown volume",
        NOT_FOUND,
        answer,
    );
    let answer = client
        .node_get_storage_health(wire::NodeGetStorageHealthRequest::default())
        .await;
    ground.fine("NodeGetStorageHealth", "nothing", answer);
}

async fn expand(ground: &mut Ground) {
    const RANGE: &[Code] = &[Code::InvalidArgument, Code::OutOfRange, Code::NotFound];
    let mut client = ground.csi.node();
    let id = ground.files.id.clone();
    let target = csi::text(&ground.files.target);
    let request = |id: &str, path: &str, required_bytes: i64, limit_bytes: i64| {
        wire::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: path.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            ..Default::default()
        }
    };
    let gib = i64::try_from(GIB).unwrap_or(0);
    let rows: [(&str, wire::NodeExpandVolumeRequest, &[Code]); 7] = [
        ("no id", request("", &target, gib, 0), INVALID),
        ("no path", request(&id, "", gib, 0), INVALID),
        (
            "an unknown volume, a relative path",
            request(UNKNOWN, "some/path", gib, 0),
            NOT_FOUND,
        ),
        ("a relative path", request(&id, "some/path", gib, 0), GONE),
        (
            "a path where it is not",
            request(&id, "/proc", gib, 0),
            GONE,
        ),
        ("a negative size", request(&id, &target, -1, 0), RANGE),
        (
            "a limit below what is required",
            request(&id, &target, gib, 1),
            RANGE,
        ),
    ];
    for (what, request, codes) in rows {
        let answer = client.node_expand_volume(request).await;
        ground.row("NodeExpandVolume", what, codes, answer);
    }
    let mut wrong = request(&id, "/proc", gib, 0);
    wrong.volume_capability = Some(VolumeCapability {
        access_mode: None,
        ..csi::capability(
            AccessType::Mount(MountVolume::default()),
            Mode::SingleNodeWriter,
        )
    });
    let answer = client.node_expand_volume(wrong).await;
    ground.row(
        "NodeExpandVolume",
        "a capability without a mode",
        GONE,
        answer,
    );
}
