//! Rows of the Node service: one field bent at a time, of a volume that is staged and published.

use std::path::Path;

use drivebay_hwtests::{MIB, csi, rig::Placed};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};
use tonic::Code::{self, *};

use super::{
    fields::{Capable, Row, capabilities, ids, no_paths, occupied, ranges, row, send, unread},
    table::Ground,
};

type Stage = wire::NodeStageVolumeRequest;
type Publish = wire::NodePublishVolumeRequest;

const USE: Capable = Capable {
    malformed: InvalidArgument,
    unsupported: FailedPrecondition,
    hostile: InvalidArgument,
};

pub(crate) async fn rows(ground: &mut Ground, dir: &Path) {
    let occupied = occupied(&dir.join("odd"));
    staging(ground, dir, &occupied).await;
    publishing(ground, dir, &occupied).await;
    leaving(ground, dir, &occupied).await;
    looking(ground).await;
    expanding(ground).await;
}

fn with_flags(flags: &[&str]) -> VolumeCapability {
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..MountVolume::default()
    };
    csi::capability(AccessType::Mount(mount), Mode::SingleNodeWriter)
}

fn of_mode(capability: &VolumeCapability, mode: Mode) -> VolumeCapability {
    csi::capability(capability.access_type.clone().unwrap(), mode)
}

async fn staging(ground: &mut Ground, dir: &Path, occupied: &[(&'static str, String)]) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_stage_volume(request).await;
    let stage = |volume: &Placed| Stage {
        volume_id: volume.id.clone(),
        staging_target_path: csi::text(&volume.staging),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Stage| &mut r.volume_id, NotFound, NotFound);
    rows.extend(no_paths("staging path", |r: &mut Stage| {
        &mut r.staging_target_path
    }));
    rows.extend(capabilities(
        |r: &mut Stage, capability| r.volume_capability = capability,
        USE,
    ));
    rows.push(row("repeated", Ok, |_: &mut Stage| ()));
    rows.push(row("no staging path", InvalidArgument, |r: &mut Stage| {
        r.staging_target_path.clear()
    }));
    rows.push(row("as block", FailedPrecondition, |r: &mut Stage| {
        r.volume_capability = Some(csi::block());
    }));
    rows.push(row(
        "another filesystem",
        FailedPrecondition,
        |r: &mut Stage| {
            r.volume_capability = Some(csi::mount("xfs"));
        },
    ));
    for flags in [
        &["noatime"][..],
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
        &["nosuid", "nodev", "noexec"],
    ] {
        rows.push(row(
            format!("repeated with {flags:?}"),
            AlreadyExists,
            move |r: &mut Stage| {
                r.volume_capability = Some(with_flags(flags));
            },
        ));
    }
    for flags in [
        &["relatime"][..],
        &["defaults"],
        &["x-systemd.automount"],
        &["rw"],
        &["noexec", "exec"],
    ] {
        rows.push(row(
            format!("repeated with {flags:?}"),
            Ok,
            move |r: &mut Stage| {
                r.volume_capability = Some(with_flags(flags));
            },
        ));
    }
    rows.push(row(
        "repeated for reading",
        AlreadyExists,
        |r: &mut Stage| {
            r.volume_capability = Some(of_mode(&csi::mount("ext4"), Mode::SingleNodeReaderOnly));
        },
    ));
    rows.push(row("repeated with ro", AlreadyExists, |r: &mut Stage| {
        r.volume_capability = Some(with_flags(&["ro"]));
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

    // Of one that is not staged, so that the path is looked at.
    let mut rows: Vec<Row<Stage>> = Vec::new();
    for (what, path) in occupied
        .iter()
        .filter(|(what, _)| !what.contains("not empty"))
    {
        let path = path.clone();
        rows.push(row(
            format!("{what} as staging path"),
            FailedPrecondition,
            move |r: &mut Stage| {
                r.staging_target_path.clone_from(&path);
            },
        ));
    }
    for (what, path) in [
        (
            "a staging path that is not there",
            csi::text(&dir.join("odd/missing")),
        ),
        (
            "a staging path below a file",
            csi::text(&dir.join("odd/content/x")),
        ),
        (
            "a staging path below nothing",
            csi::text(&dir.join("odd/missing/x")),
        ),
    ] {
        rows.push(row(what, FailedPrecondition, move |r: &mut Stage| {
            r.staging_target_path.clone_from(&path);
        }));
    }
    rows.push(row(
        "a mount option that the kernel does not know",
        InvalidArgument,
        |r: &mut Stage| {
            r.volume_capability = Some(with_flags(&["nobarier"]));
        },
    ));
    let mut good = stage(&ground.files);
    good.volume_id.clone_from(&ground.unstaged.id);
    let _ = std::fs::create_dir_all(dir.join("odd/staging"));
    good.staging_target_path = csi::text(&dir.join("odd/staging"));
    send(ground, "NodeStageVolume", &good, rows, &call).await;

    let good = stage(&ground.raw);
    let mut rows: Vec<Row<Stage>> = vec![
        row("repeated, raw", Ok, |_: &mut Stage| ()),
        row(
            "raw, as a filesystem",
            FailedPrecondition,
            |r: &mut Stage| {
                r.volume_capability = Some(csi::mount("ext4"));
            },
        ),
    ];
    rows.extend(no_paths("staging path, raw,", |r: &mut Stage| {
        &mut r.staging_target_path
    }));
    send(ground, "NodeStageVolume", &good, rows, &call).await;
}

async fn publishing(ground: &mut Ground, dir: &Path, occupied: &[(&'static str, String)]) {
    let client = ground.csi.node();
    let call = async |request| client.clone().node_publish_volume(request).await;
    let publish = |volume: &Placed| Publish {
        volume_id: volume.id.clone(),
        staging_target_path: csi::text(&volume.staging),
        target_path: csi::text(&volume.target),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    };
    for volume in [ground.files.clone(), ground.raw.clone()] {
        let is_raw = volume.capability == csi::block();
        let other = match is_raw {
            true => csi::mount("ext4"),
            false => csi::block(),
        };
        let own = volume.capability.clone();
        let mut rows: Vec<Row<Publish>> = vec![
            row("repeated", Ok, |_: &mut Publish| ()),
            row("no target", InvalidArgument, |r: &mut Publish| {
                r.target_path.clear()
            }),
            row("no staging path", FailedPrecondition, |r: &mut Publish| {
                r.staging_target_path.clear();
            }),
            row(
                "no capability and no staging path",
                InvalidArgument,
                |r: &mut Publish| {
                    r.volume_capability = None;
                    r.staging_target_path.clear();
                },
            ),
            row(
                "as the other mode",
                FailedPrecondition,
                move |r: &mut Publish| {
                    r.volume_capability = Some(other.clone());
                },
            ),
            row("repeated for reading", AlreadyExists, |r: &mut Publish| {
                r.readonly = true
            }),
        ];
        let new_target = csi::text(&dir.join("odd/second"));
        rows.push(row(
            "a second target for one writer",
            FailedPrecondition,
            move |r: &mut Publish| {
                r.target_path.clone_from(&new_target);
                r.volume_capability = Some(of_mode(&own, Mode::SingleNodeSingleWriter));
            },
        ));
        rows.extend(no_paths("target", |r: &mut Publish| &mut r.target_path));
        rows.extend(no_paths("staging path", |r: &mut Publish| {
            &mut r.staging_target_path
        }));
        for (what, path) in occupied {
            let path = path.clone();
            rows.push(row(
                format!("{what} as target"),
                FailedPrecondition,
                move |r: &mut Publish| {
                    r.target_path.clone_from(&path);
                },
            ));
        }
        for (what, path) in [
            ("a target without a parent", "odd/missing/target"),
            ("a target below a file", "odd/content/target"),
        ] {
            let path = csi::text(&dir.join(path));
            rows.push(row(what, FailedPrecondition, move |r: &mut Publish| {
                r.target_path.clone_from(&path);
            }));
        }
        if !is_raw {
            rows.extend(ids(|r: &mut Publish| &mut r.volume_id, NotFound, NotFound));
            let set = |r: &mut Publish, capability| r.volume_capability = capability;
            rows.extend(capabilities(set, USE));
            let elsewhere = csi::text(&dir.join("odd/staging"));
            rows.push(row(
                "where it is not staged",
                FailedPrecondition,
                move |r: &mut Publish| {
                    r.staging_target_path.clone_from(&elsewhere);
                    r.target_path.push('2');
                },
            ));
            rows.extend(unread("publish_context", |r: &mut Publish| {
                &mut r.publish_context
            }));
            rows.extend(unread("secrets", |r: &mut Publish| &mut r.secrets));
            rows.extend(unread("volume_context", |r: &mut Publish| {
                &mut r.volume_context
            }));
        }
        send(ground, "NodePublishVolume", &publish(&volume), rows, &call).await;
    }
}

async fn leaving(ground: &mut Ground, dir: &Path, occupied: &[(&'static str, String)]) {
    type Unpublish = wire::NodeUnpublishVolumeRequest;
    type Unstage = wire::NodeUnstageVolumeRequest;
    let client = ground.csi.node();
    let nowhere = csi::text(&dir.join("odd/nothing-here"));
    let good = Unpublish {
        volume_id: ground.files.id.clone(),
        target_path: nowhere.clone(),
    };
    let mut rows = no_paths("target", |r: &mut Unpublish| &mut r.target_path);
    rows.push(row("no id", InvalidArgument, |r: &mut Unpublish| {
        r.volume_id.clear()
    }));
    rows.push(row("no target", InvalidArgument, |r: &mut Unpublish| {
        r.target_path.clear()
    }));
    rows.push(row("where it is not published", Ok, |_: &mut Unpublish| ()));
    rows.push(row(
        "below a directory that is not there",
        Ok,
        |r: &mut Unpublish| {
            r.target_path.push_str("/a/b");
        },
    ));
    for id in ["fake-vol-id", "@", super::table::UNKNOWN] {
        rows.push(row(format!("id {id:?}"), Ok, move |r: &mut Unpublish| {
            r.volume_id = id.into()
        }));
    }
    for (what, path) in occupied {
        let path = path.clone();
        rows.push(row(*what, FailedPrecondition, move |r: &mut Unpublish| {
            r.target_path.clone_from(&path);
        }));
    }
    rows.push(row(
        "a mount of the system",
        FailedPrecondition,
        |r: &mut Unpublish| {
            r.target_path = "/proc".into();
        },
    ));
    let call = async |request| client.clone().node_unpublish_volume(request).await;
    send(ground, "NodeUnpublishVolume", &good, rows, call).await;

    let good = Unstage {
        volume_id: ground.files.id.clone(),
        staging_target_path: nowhere,
    };
    let mut rows = no_paths("staging path", |r: &mut Unstage| &mut r.staging_target_path);
    rows.push(row("no id", InvalidArgument, |r: &mut Unstage| {
        r.volume_id.clear()
    }));
    rows.push(row(
        "no staging path",
        InvalidArgument,
        |r: &mut Unstage| {
            r.staging_target_path.clear();
        },
    ));
    rows.push(row("where it is not staged", Ok, |_: &mut Unstage| ()));
    for id in ["fake-vol-id", "@", super::table::UNKNOWN] {
        rows.push(row(format!("id {id:?}"), Ok, move |r: &mut Unstage| {
            r.volume_id = id.into()
        }));
    }
    rows.push(row(
        "a mount of the system",
        FailedPrecondition,
        |r: &mut Unstage| {
            r.staging_target_path = "/proc".into();
        },
    ));
    let call = async |request| client.clone().node_unstage_volume(request).await;
    send(ground, "NodeUnstageVolume", &good, rows, call).await;
}

async fn looking(ground: &mut Ground) {
    type Stats = wire::NodeGetVolumeStatsRequest;
    type Health = wire::NodeGetVolumeHealthRequest;
    let client = ground.csi.node();
    let good = Stats {
        volume_id: ground.files.id.clone(),
        volume_path: csi::text(&ground.files.target),
        ..Default::default()
    };
    let mut rows = ids(|r: &mut Stats| &mut r.volume_id, NotFound, NotFound);
    rows.push(row("where it is", Ok, |_: &mut Stats| ()));
    rows.push(row("no path", InvalidArgument, |r: &mut Stats| {
        r.volume_path.clear()
    }));
    for path in ["some/path", "/", "/proc"] {
        rows.push(row(
            format!("path {path:?}"),
            NotFound,
            move |r: &mut Stats| {
                r.volume_path = path.into();
            },
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
    let rows = unread("secrets", |r: &mut wire::NodeGetStorageHealthRequest| {
        &mut r.secrets
    });
    send(
        ground,
        "NodeGetStorageHealth",
        &Default::default(),
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
    let too_much: [(&str, Code, Option<CapacityRange>); 3] = [
        ("as large as it is", Ok, None),
        (
            "more than its device has",
            OutOfRange,
            Some(csi::bytes(128 * MIB)),
        ),
        ("the largest number", OutOfRange, Some(csi::bytes(u64::MAX))),
    ];
    for (what, code, range) in too_much {
        rows.push(row(what, code, move |r: &mut Expand| {
            r.capacity_range = range
        }));
    }
    rows.push(row("no path", InvalidArgument, |r: &mut Expand| {
        r.volume_path.clear()
    }));
    for path in ["some/path", "/", "/proc", "/no/such/path", "/a\nb"] {
        rows.push(row(
            format!("path {path:?}"),
            NotFound,
            move |r: &mut Expand| {
                r.volume_path = path.into();
            },
        ));
    }
    let set = |r: &mut Expand, capability: Option<VolumeCapability>| {
        // It may be left out.
        r.volume_capability = Some(capability.unwrap_or_default());
    };
    rows.extend(capabilities(
        set,
        Capable {
            unsupported: InvalidArgument,
            ..USE
        },
    ));
    rows.extend(unread("secrets", |r: &mut Expand| &mut r.secrets));
    let call = async |request| client.clone().node_expand_volume(request).await;
    send(ground, "NodeExpandVolume", &good, rows, call).await;
}
