//! Rows of NodeStageVolume and NodePublishVolume: one field changed at a time, for volumes that are staged and published.

use std::path::Path;

use drivebay_hwtests::{csi, rig::Placed};
use drivebay_proto::csi::{self as wire, VolumeCapability, volume_capability::access_mode::Mode};
use tonic::Code::{self, *};

use super::{
    fields::{Capable, Row, capabilities, ids, no_paths, occupied, row, rows, send, unread},
    table::Ground,
};

type Stage = wire::NodeStageVolumeRequest;
type Publish = wire::NodePublishVolumeRequest;

/// Mount options that contradict a mount made without options.
const OTHER_FLAGS: [&[&str]; 15] = [
    &["noatime"],
    &["strictatime"],
    &["nosuid"],
    &["nodev"],
    &["noexec"],
    &["nodiratime"],
    &["sync"],
    &["dirsync"],
    &["lazytime"],
    &["discard"],
    &["commit=30"],
    &["data=journal"],
    &["errors=continue"],
    &["ro"],
    &["nosuid", "nodev", "noexec"],
];
/// Mount options that are equivalent to none.
const SAME_FLAGS: [&[&str]; 5] = [
    &["relatime"],
    &["defaults"],
    &["x-systemd.automount"],
    &["rw"],
    &["noexec", "exec"],
];

fn of_mode(capability: &VolumeCapability, mode: Mode) -> VolumeCapability {
    csi::capability(capability.access_type.clone().unwrap(), mode)
}

/// Repeats a successful call with mount options.
fn repeats<R: 'static>(set: fn(&mut R, VolumeCapability)) -> Vec<Row<R>> {
    let other = OTHER_FLAGS.into_iter().map(|flags| (flags, AlreadyExists));
    let same = SAME_FLAGS.into_iter().map(|flags| (flags, Ok));
    let bent = |(flags, code): (&'static [&'static str], Code)| {
        row(format!("repeated with {flags:?}"), code, move |r| {
            set(r, csi::flags(flags))
        })
    };
    other.chain(same).map(bent).collect()
}

pub(crate) async fn rows(ground: &mut Ground, dir: &Path) {
    let occupied = occupied(&dir.join("odd"));
    staging(ground).await;
    staging_paths(ground, dir, &occupied).await;
    for volume in [ground.files.clone(), ground.raw.clone()] {
        publishing(ground, dir, &occupied, &volume).await;
    }
    publishing_files(ground, dir).await;
}

fn stage(volume: &Placed) -> Stage {
    Stage {
        volume_id: volume.id.clone(),
        staging_target_path: csi::text(&volume.staging),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    }
}

async fn staging(ground: &mut Ground) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_stage_volume(request).await;
    let mut rows = ids(|r: &mut Stage| &mut r.volume_id, NotFound, NotFound);
    rows.extend(no_paths("staging path", |r: &mut Stage| {
        &mut r.staging_target_path
    }));
    rows.extend(capabilities(
        |r: &mut Stage, capability| r.volume_capability = capability,
        Capable::NODE,
    ));
    rows.extend(rows! { Stage {
        "repeated" => Ok, |_| ();
        "no staging path" => InvalidArgument, |r| r.staging_target_path.clear();
        "as block" => FailedPrecondition, |r| r.volume_capability = Some(csi::block());
        "another filesystem" => FailedPrecondition, |r| r.volume_capability = Some(csi::mount("xfs"));
        "repeated for reading" => AlreadyExists, |r| {
            r.volume_capability = Some(of_mode(&csi::mount("ext4"), Mode::SingleNodeReaderOnly));
        };
    }});
    rows.extend(repeats(|r: &mut Stage, capability| {
        r.volume_capability = Some(capability)
    }));
    rows.extend(unread("publish_context", |r: &mut Stage| {
        &mut r.publish_context
    }));
    rows.extend(unread("secrets", |r: &mut Stage| &mut r.secrets));
    rows.extend(unread("volume_context", |r: &mut Stage| {
        &mut r.volume_context
    }));
    let good = stage(&ground.files);
    send(ground, "NodeStageVolume", &good, rows, &call).await;

    let mut rows = rows! { Stage {
        "repeated, raw" => Ok, |_| ();
        "raw, as a filesystem" => FailedPrecondition, |r| r.volume_capability = Some(csi::mount("ext4"));
    }};
    rows.extend(no_paths("staging path, raw,", |r: &mut Stage| {
        &mut r.staging_target_path
    }));
    let good = stage(&ground.raw);
    send(ground, "NodeStageVolume", &good, rows, &call).await;
}

/// Rows of a volume that is not staged, so that the path is examined.
async fn staging_paths(ground: &mut Ground, dir: &Path, occupied: &[(&'static str, String)]) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_stage_volume(request).await;
    let mut rows = rows! { Stage {
        "a mount option that the kernel does not know" => InvalidArgument, |r| {
            r.volume_capability = Some(csi::flags(&["nobarier"]));
        };
    }};
    let at = |path: &str| csi::text(&dir.join(path));
    let full = |what: &str| what.contains("not empty");
    let missing = [
        ("one that is not there", at("odd/missing")),
        ("one below a file", at("odd/content/x")),
        ("one below nothing", at("odd/missing/x")),
    ];
    let occupied = occupied.iter().filter(|(what, _)| !full(what)).cloned();
    for (what, path) in occupied.chain(missing) {
        let what = format!("{what} as staging path");
        rows.push(row(what, FailedPrecondition, move |r: &mut Stage| {
            r.staging_target_path.clone_from(&path);
        }));
    }
    let mut good = stage(&ground.files);
    good.volume_id.clone_from(&ground.unstaged.id);
    let _ = std::fs::create_dir_all(dir.join("odd/staging"));
    good.staging_target_path = at("odd/staging");
    send(ground, "NodeStageVolume", &good, rows, &call).await;
}

fn publish(volume: &Placed) -> Publish {
    Publish {
        volume_id: volume.id.clone(),
        staging_target_path: csi::text(&volume.staging),
        target_path: csi::text(&volume.target),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    }
}

/// Rows of each access mode.
async fn publishing(
    ground: &mut Ground,
    dir: &Path,
    occupied: &[(&'static str, String)],
    volume: &Placed,
) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_publish_volume(request).await;
    let other = match volume.capability == csi::block() {
        true => csi::mount("ext4"),
        false => csi::block(),
    };
    let multi = of_mode(&volume.capability, Mode::SingleNodeMultiWriter);
    let single = of_mode(&volume.capability, Mode::SingleNodeSingleWriter);
    let reader = of_mode(&volume.capability, Mode::SingleNodeReaderOnly);
    let (second, again) = (csi::text(&dir.join("odd/second")), single.clone());
    let mut rows = rows! { Publish {
        "repeated" => Ok, |_| ();
        "no target" => InvalidArgument, |r| r.target_path.clear();
        "no staging path" => FailedPrecondition, |r| r.staging_target_path.clear();
        "no capability and no staging path" => InvalidArgument, |r| {
            r.volume_capability = None;
            r.staging_target_path.clear();
        };
        "as the other mode" => FailedPrecondition, move |r| r.volume_capability = Some(other.clone());
        "repeated for reading" => AlreadyExists, |r| r.readonly = true;
        "repeated for a reader" => AlreadyExists, move |r| r.volume_capability = Some(reader.clone());
        "repeated for one writer only" => AlreadyExists, move |r| r.volume_capability = Some(again.clone());
        // Has the effect of SINGLE_NODE_WRITER.
        "repeated for several writers" => Ok, move |r| r.volume_capability = Some(multi.clone());
        "a second target for one writer" => FailedPrecondition, move |r| {
            r.target_path.clone_from(&second);
            r.volume_capability = Some(single.clone());
        };
    }};
    rows.extend(no_paths("target", |r: &mut Publish| &mut r.target_path));
    rows.extend(no_paths("staging path", |r: &mut Publish| {
        &mut r.staging_target_path
    }));
    let missing = [
        (
            "one without a parent",
            csi::text(&dir.join("odd/missing/target")),
        ),
        (
            "one below a file",
            csi::text(&dir.join("odd/content/target")),
        ),
    ];
    for (what, path) in occupied.iter().cloned().chain(missing) {
        rows.push(row(
            format!("{what} as target"),
            FailedPrecondition,
            move |r: &mut Publish| {
                r.target_path.clone_from(&path);
            },
        ));
    }
    send(ground, "NodePublishVolume", &publish(volume), rows, &call).await;
}

async fn publishing_files(ground: &mut Ground, dir: &Path) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_publish_volume(request).await;
    let mut rows = ids(|r: &mut Publish| &mut r.volume_id, NotFound, NotFound);
    rows.extend(capabilities(
        |r: &mut Publish, capability| r.volume_capability = capability,
        Capable::NODE,
    ));
    rows.extend(repeats(|r: &mut Publish, capability| {
        r.volume_capability = Some(capability)
    }));
    // A bind mount cannot have options that the staged mount lacks.
    for flags in OTHER_FLAGS.into_iter().filter(|flags| *flags != ["ro"]) {
        let second = csi::text(&dir.join("odd/second"));
        rows.push(row(
            format!("a second target with {flags:?}"),
            FailedPrecondition,
            move |r: &mut Publish| {
                r.target_path.clone_from(&second);
                r.volume_capability = Some(csi::flags(flags));
            },
        ));
    }
    let elsewhere = csi::text(&dir.join("odd/staging"));
    let unstaged = ground.unstaged.clone();
    rows.extend(rows! { Publish {
        "another filesystem" => FailedPrecondition, |r| r.volume_capability = Some(csi::mount("xfs"));
        "where it is not staged" => FailedPrecondition, move |r| {
            r.staging_target_path.clone_from(&elsewhere);
            r.target_path.push('2');
        };
        "a volume that is not staged" => FailedPrecondition, move |r| {
            *r = publish(&unstaged);
        };
    }});
    rows.extend(unread("publish_context", |r: &mut Publish| {
        &mut r.publish_context
    }));
    rows.extend(unread("secrets", |r: &mut Publish| &mut r.secrets));
    rows.extend(unread("volume_context", |r: &mut Publish| {
        &mut r.volume_context
    }));
    let good = publish(&ground.files);
    send(ground, "NodePublishVolume", &good, rows, &call).await;
}
