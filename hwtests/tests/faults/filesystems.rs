//! Filesystems that shut down, turn read-only or count errors.

use std::fs;

use drivebay_hwtests::{csi, faults::Case, need};
use drivebay_proto::csi::volume_capability::AccessType;

use crate::stand::{Stand, sh};

#[tokio::test]
async fn an_xfs_that_shuts_down() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_io", fs "xfs");
    let stand = Stand::new("xfs").await;
    let mut case = Case::new("XFS shut down", "xfs_io shutdown, loop drive");
    case.strikes();
    sh(&format!(
        "xfs_io -x -c shutdown {}",
        stand.troubled.target.display()
    ));
    let volumes = [&stand.troubled];
    case.of_volume(
        &stand.rig,
        &stand.troubled,
        "FilesystemShutDown",
        stand.one(&volumes),
    )
    .await;
    stand.mount_afresh().await;
    case.back(&stand.rig, &volumes).await;
    stand.leave().await;
}

fn trigger(device: &std::path::Path) {
    let name = device.file_name().unwrap().to_str().unwrap();
    let file = format!("/sys/fs/ext4/{name}/trigger_fs_error");
    fs::write(file, "a test's error").unwrap();
}

#[tokio::test]
async fn an_ext4_that_finds_an_error() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("ext4 found an error", "trigger_fs_error, loop drive");
    case.strikes();
    trigger(&stand.rig.device(&stand.troubled).await);
    let volumes = [&stand.troubled];
    case.of_volume(
        &stand.rig,
        &stand.troubled,
        "FilesystemError",
        stand.one(&volumes),
    )
    .await;
    stand.mount_afresh().await;
    case.back(&stand.rig, &volumes).await;
    stand.leave().await;
}

#[tokio::test]
async fn an_ext4_that_turns_read_only() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut how = csi::mount("ext4");
    if let Some(AccessType::Mount(mount)) = &mut how.access_type {
        mount.mount_flags.push("errors=remount-ro".to_owned());
    }
    let stand = Stand::of(&how, |_| ()).await;
    let mut case = Case::new("ext4 errors=remount-ro", "trigger_fs_error, loop drive");
    case.strikes();
    trigger(&stand.rig.device(&stand.troubled).await);
    let volumes = [&stand.troubled];
    case.of_volume(&stand.rig, &stand.troubled, "ReadOnly", stand.one(&volumes))
        .await;
    stand.mount_afresh().await;
    case.back(&stand.rig, &volumes).await;
    stand.leave().await;
}
