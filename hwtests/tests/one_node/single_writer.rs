//! SINGLE_NODE_SINGLE_WRITER, the mode of ReadWriteOncePod: one target, however often it is published.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, tools, tree};
use drivebay_proto::csi::{
    VolumeCapability,
    volume_capability::{AccessMode, access_mode::Mode},
};
use tonic::Code;

fn single_writer(mut capability: VolumeCapability) -> VolumeCapability {
    capability.access_mode = Some(AccessMode {
        mode: Mode::SingleNodeSingleWriter.into(),
    });
    capability
}

fn bind(from: &Path, to: &Path) {
    tools::must(
        "mount",
        &["--bind", from.to_str().unwrap(), to.to_str().unwrap()],
    );
}

/// Binds a path as the kubelet does beside the target: a subPath of a filesystem, or the device for the container. Returns the path.
fn kubelet_bind(target: &Path) -> PathBuf {
    let path = target.with_file_name("volume-subpaths");
    if target.is_dir() {
        let directory = target.join("var/db");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(&path).unwrap();
        bind(&directory, &path);
    } else {
        fs::write(&path, "").unwrap();
        bind(target, &path);
    }
    path
}

#[tokio::test]
async fn a_single_writer_volume_is_published_again_beside_the_kubelets_binds() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    // The kubelet's directory, by the path in the configuration.
    let link = rig.dir().join("link");
    fs::create_dir_all(rig.dir().join("kubelet")).unwrap();
    symlink(rig.dir().join("kubelet"), &link).unwrap();
    for (name, capability) in [("fs", csi::mount("ext4")), ("raw", csi::block())] {
        let capability = single_writer(capability);
        let mut volume = rig.volume(name, 64 * MIB, &capability).await;
        let kubelet = rig.dir().join("kubelet");
        let linked = |path: &Path| link.join(path.strip_prefix(&kubelet).unwrap());
        (volume.staging, volume.target) = (linked(&volume.staging), linked(&volume.target));
        rig.use_volume(&volume).await;
        let other = volume.target.with_file_name("other");
        let bound = kubelet_bind(&volume.target);

        for restarted in [false, true] {
            if restarted {
                rig.agent.kill9();
                rig.start_again().await;
            }
            // As the kubelet does after a restart.
            rig.use_volume(&volume).await;
            assert_eq!(
                tree::mounted_times(&fs::canonicalize(&volume.target).unwrap()),
                1
            );
            let refused = rig
                .csi
                .publish(&volume.id, &volume.staging, &other, &capability, false)
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            let target = fs::canonicalize(&volume.target).unwrap();
            assert!(
                refused.message().contains(target.to_str().unwrap()),
                "{refused:?}"
            );
        }

        // A bind mount left by the kubelet for the last pod is no target.
        rig.csi.unpublish(&volume.id, &volume.target).await.unwrap();
        rig.csi
            .publish(&volume.id, &volume.staging, &other, &capability, false)
            .await
            .unwrap();
        tools::must("umount", &[bound.to_str().unwrap()]);
        volume.target = other;
        rig.leave_volume(&volume).await;
    }
}

fn several_writers(mut capability: VolumeCapability) -> VolumeCapability {
    capability.access_mode = Some(AccessMode {
        mode: Mode::SingleNodeMultiWriter.into(),
    });
    capability
}

#[tokio::test]
async fn what_is_published_for_a_single_writer_gets_no_second_target_for_several() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    for (name, capability) in [("fs", csi::mount("ext4")), ("raw", csi::block())] {
        let volume = rig
            .volume(name, 64 * MIB, &single_writer(capability.clone()))
            .await;
        rig.use_volume(&volume).await;
        let other = volume.target.with_file_name("other");
        for restarted in [false, true] {
            if restarted {
                rig.agent.stop().unwrap();
                rig.start_again().await;
            }
            for another in [several_writers(capability.clone()), capability.clone()] {
                let refused = rig
                    .csi
                    .publish(&volume.id, &volume.staging, &other, &another, false)
                    .await
                    .unwrap_err();
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
                assert!(!other.exists(), "a refused target is left");
            }
        }
        rig.csi.unpublish(&volume.id, &volume.target).await.unwrap();
        let several = several_writers(capability);
        for target in [&volume.target, &other] {
            rig.csi
                .publish(&volume.id, &volume.staging, target, &several, false)
                .await
                .unwrap();
        }
        rig.csi.unpublish(&volume.id, &other).await.unwrap();
        rig.leave_volume(&volume).await;
    }
}
