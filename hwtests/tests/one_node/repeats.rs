//! A repeated call with other parameters returns OK only if it changed nothing because the state matches the request.

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need};
use drivebay_proto::csi::{
    VolumeCapability,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};
use tonic::Code;

fn with(fs_type: &str, flags: &[&str], mode: Mode) -> VolumeCapability {
    let mount = MountVolume {
        fs_type: fs_type.to_owned(),
        mount_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..MountVolume::default()
    };
    csi::capability(AccessType::Mount(mount), mode)
}

#[tokio::test]
async fn a_stage_with_other_options_is_refused_also_by_the_next_agent_and_taken_after_an_unstage() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let first = with("ext4", &["noatime", "commit=30"], Mode::SingleNodeWriter);
    let same = with("ext4", &["commit=30,noatime"], Mode::SingleNodeWriter);
    let volume = rig.volume("files", 64 * MIB, &first).await;
    rig.use_volume(&volume).await;
    for restarted in [false, true] {
        if restarted {
            rig.agent.stop().unwrap();
            rig.start_again().await;
        }
        for again in [&first, &same] {
            rig.csi
                .stage(&volume.id, &volume.staging, again)
                .await
                .unwrap();
        }
        for flags in [&["noatime"][..], &["commit=30"], &["noatime", "commit=5"]] {
            let other = with("ext4", flags, Mode::SingleNodeWriter);
            let refused = rig.csi.stage(&volume.id, &volume.staging, &other).await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "{flags:?} {refused:?}");
            assert!(
                refused.message().contains("other mount options"),
                "{refused:?}"
            );
        }
    }
    rig.leave_volume(&volume).await;
    let other = with("ext4", &["noexec"], Mode::SingleNodeWriter);
    rig.csi
        .stage(&volume.id, &volume.staging, &other)
        .await
        .unwrap();
    rig.csi.unstage(&volume.id, &volume.staging).await.unwrap();
}

#[tokio::test]
async fn a_filesystem_that_is_mounted_for_reading_is_not_grown_and_that_is_no_internal_error() {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", fs "ext4", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    for (fs_type, size) in [("ext4", 64 * MIB), ("xfs", 320 * MIB)] {
        let writing = with(fs_type, &[], Mode::SingleNodeWriter);
        let reading = with(fs_type, &[], Mode::SingleNodeReaderOnly);
        let volume = rig.volume(fs_type, size, &writing).await;
        rig.use_volume(&volume).await;
        rig.leave_volume(&volume).await;
        rig.csi
            .stage(&volume.id, &volume.staging, &reading)
            .await
            .unwrap();
        // No growth is no reason for an error.
        rig.csi
            .node_expand(&volume.id, &volume.staging, size)
            .await
            .unwrap();
        rig.csi
            .expand(&volume.id, 2 * size, &writing)
            .await
            .unwrap();
        let refused = rig
            .csi
            .node_expand(&volume.id, &volume.staging, 2 * size)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("read-only"), "{refused:?}");
        rig.csi.unstage(&volume.id, &volume.staging).await.unwrap();
        // The filesystem grows when it is staged writable.
        rig.use_volume(&volume).await;
        let now = nix::sys::statvfs::statvfs(&volume.target).unwrap();
        let is_grown = now.blocks() * now.fragment_size() > size + size / 2;
        // Growing a mounted ext4 needs a capability that a container may lack.
        let may_grow = fs_type != "ext4" || need::SYS_RESOURCE.check().is_ok();
        assert_eq!(is_grown, may_grow, "{fs_type}");
        rig.leave_volume(&volume).await;
    }
}
