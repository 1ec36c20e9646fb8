//! Mount options unknown to the kernel are refused before anything is written, with the kernel's message.

use std::collections::HashMap;

use drivebay_hwtests::{MIB, Rig, csi};
use drivebay_proto::csi as wire;
use tonic::{Code, Response, Status};

/// An unknown option, and the kernel's message.
const UNKNOWN: (&str, &str) = ("nobarier", "ext4: Unknown parameter 'nobarier'");
const BAD: (&str, &str) = ("commit=soon", "ext4: Bad value for 'commit'");

/// A class whose options the running kernel refuses: the agent starts, and its other class works.
pub(crate) const A_CLASS: &str = "\n[[class]]\nname = \"odd\"\nlayout = \"partition\"\nmount-options = [\"noatime\", \"nobarier\"]\n\
    [class.select]\npath = [\"/no/such/drive\"]\n";

fn refused<T: std::fmt::Debug>(answer: Result<Response<T>, Status>, says: &[&str]) {
    let status = answer.expect_err("the option is refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    for words in says {
        assert!(status.message().contains(words), "{words}: {status:?}");
    }
}

/// Tests the options in a class, a StorageClass and a request, on a blank drive.
pub(crate) async fn refused_before_anything_is_written(rig: &Rig) {
    let blank = rig.shelf.digests().unwrap();
    let create = |parameter: &str, flags: &[&str]| {
        let mut request = wire::CreateVolumeRequest {
            name: "files".to_owned(),
            capacity_range: Some(csi::bytes(64 * MIB)),
            volume_capabilities: vec![csi::flags(flags)],
            ..Default::default()
        };
        request.parameters = HashMap::from([("class".into(), "demo".into())]);
        if !parameter.is_empty() {
            let options = ("mountOptions".into(), parameter.into());
            request.parameters.extend([options]);
        }
        request
    };
    let mut client = rig.csi.controller();
    let answer = client.create_volume(create(UNKNOWN.0, &[])).await;
    refused(answer, &[UNKNOWN.1, "mountOptions of the StorageClass"]);
    let answer = client.create_volume(create("", &["noatime", BAD.0])).await;
    refused(answer, &[BAD.1]);
    // Both at once; the valid options beside them are not named.
    let both = create(&format!("discard,{}", BAD.0), &[UNKNOWN.0]);
    refused(
        client.create_volume(both).await,
        &["refuses \"commit=soon,nobarier\"", UNKNOWN.1, BAD.1],
    );
    let mut odd = create("", &[]);
    odd.parameters.insert("class".into(), "odd".into());
    let answer = client.create_volume(odd).await;
    refused(answer, &[UNKNOWN.1, "mount-options of class odd"]);
    let log = rig.agent.log();
    let logged = "kernel refuses mount options of a class; its volumes cannot be mounted";
    let line = log.lines().find(|line| line.contains(logged));
    assert!(
        line.is_some_and(|line| line.contains("odd") && line.contains("nobarier")),
        "{line:?}"
    );
    assert_eq!(rig.shelf.digests().unwrap(), blank, "the drive is claimed");

    let options = "discard,data=ordered";
    let volume = client.create_volume(create(options, &["commit=30"])).await;
    let id = volume.unwrap().into_inner().volume.unwrap().volume_id;
    rig.zeroed().await;
    rig.shelf.flush().unwrap();
    let created = rig.shelf.digests().unwrap();
    let staging = rig.dir().join("staging");
    std::fs::create_dir_all(&staging).unwrap();
    let stage = |flags: &[&str]| wire::NodeStageVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: csi::text(&staging),
        volume_capability: Some(csi::flags(flags)),
        ..Default::default()
    };
    let mut node = rig.csi.node();
    for (option, says) in [UNKNOWN, BAD] {
        refused(node.node_stage_volume(stage(&[option])).await, &[says]);
    }
    rig.shelf.flush().unwrap();
    assert_eq!(rig.shelf.digests().unwrap(), created, "it is formatted");
    node.node_stage_volume(stage(&["commit=30"])).await.unwrap();
    let unstage = wire::NodeUnstageVolumeRequest {
        volume_id: id,
        staging_target_path: csi::text(&staging),
    };
    node.node_unstage_volume(unstage).await.unwrap();
}

/// Tests mkfs options that are valid on a drive with 512-byte sectors only. `small`: such a drive is present.
pub(crate) async fn refused_for_their_sectors(rig: &Rig, small: bool) {
    let blank = rig.shelf.digests().unwrap();
    let mut client = rig.csi.controller();
    let create = |fs_type: &str, options: &str| {
        let mut request = wire::CreateVolumeRequest {
            name: format!("{fs_type} {options}"),
            capacity_range: Some(csi::bytes(320 * MIB)),
            volume_capabilities: vec![csi::mount(fs_type)],
            ..Default::default()
        };
        request.parameters = HashMap::from([("mkfsOptions".into(), options.into())]);
        request
    };
    for (fs_type, options, says) in [
        ("ext4", "-b 1024", "too small for device"),
        ("xfs", "-b size=1024", "sector size 4096"),
        ("xfs", "-s size=512", "less than the drive's 4096"),
    ] {
        let answer = client.create_volume(create(fs_type, options)).await;
        if small {
            let id = answer.unwrap().into_inner().volume.unwrap().volume_id;
            let drive = rig.volume_of(&id).await.unwrap().drive;
            let large = rig.drive("large").await.unwrap();
            assert_ne!(drive, large.id, "{options}");
            rig.csi.delete(&id).await.unwrap();
            rig.erased().await;
        } else {
            refused(answer, &[says, "sectors of 4096 bytes"]);
        }
    }
    if !small {
        assert_eq!(rig.shelf.digests().unwrap(), blank, "the drive is claimed");
        for (fs_type, options) in [("ext4", "-b 4096"), ("xfs", "-s size=4096")] {
            let made = client.create_volume(create(fs_type, options)).await;
            let made = made.unwrap().into_inner().volume.unwrap();
            let volume = rig.place(&made, fs_type, &csi::mount(fs_type));
            rig.use_volume(&volume).await;
            rig.leave_volume(&volume).await;
            rig.csi.delete(&volume.id).await.unwrap();
        }
    }
}
