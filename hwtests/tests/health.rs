//! Kernel messages about drives and filesystems are read, and reported for the right drive and volume.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    time::Duration,
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, tools::must as run, wait};
use tonic::Code;

#[tokio::test]
async fn a_filesystem_that_shut_down_is_reported_for_its_volume_until_it_is_mounted_afresh() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_io", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    let (troubled, quiet) = rig.two_in_use("xfs").await;
    run(
        "xfs_io",
        &["-x", "-c", "shutdown", troubled.target.to_str().unwrap()],
    );
    let condition = rig.has_condition(&troubled, "FilesystemShutDown").await;
    assert_eq!(condition.status, "INACCESSIBLE");
    assert_eq!(rig.volume_of(&quiet.id).await.unwrap().conditions, []);
    // It states nothing about the drive.
    assert_eq!(rig.drive("a").await.unwrap().verdict, "UNKNOWN");

    rig.leave_volume(&troubled).await;
    rig.use_volume(&troubled).await;
    rig.is_well(&troubled).await;
}

#[tokio::test]
async fn an_error_that_ext4_finds_is_reported_for_its_volume() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    let (troubled, quiet) = rig.two_in_use("ext4").await;
    let device = rig.device(&troubled).await;
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::write(
        format!("/sys/fs/ext4/{name}/trigger_fs_error"),
        "a test's error",
    )
    .unwrap();
    rig.has_condition(&troubled, "FilesystemError").await;
    assert_eq!(rig.volume_of(&quiet.id).await.unwrap().conditions, []);
    rig.leave_volume(&troubled).await;
    rig.use_volume(&troubled).await;
    rig.is_well(&troubled).await;
}

/// Time after which the agent has finished its work following a creation.
const SETTLED: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn a_drive_whose_requests_fail_is_suspect_and_gets_no_new_volumes() {
    need!(root, loop);
    let specs = ["a", "b"].map(|name| DriveSpec::blank(name, 4 * GIB));
    let rig = Rig::with(specs.into()).await;
    for name in ["a", "b"] {
        rig.drive_is(name, "available").await;
    }
    // The larger first, so that the drives can be distinguished.
    let troubled = rig.volume("troubled", 3 * GIB, &csi::block()).await;
    let on = rig.volume_of(&troubled.id).await.unwrap().drive;
    let quiet = rig.volume("quiet", 3 * GIB, &csi::block()).await;
    rig.use_volume(&troubled).await;
    let name = if rig.drive("a").await.unwrap().id == on {
        "a"
    } else {
        "b"
    };
    // The scan after the creations would find the backup partition table missing, and write it again: then the file has its former length,
    // and every read succeeds.
    tokio::time::sleep(SETTLED).await;
    cut_short(&rig, name);
    // The kernel rate-limits its log, also across tests: the file is read until a line is logged.
    wait::until_async(
        Duration::from_secs(60),
        "IoErrors is reported",
        async || {
            let read = fs::read(&troubled.target);
            assert!(
                read.is_err(),
                "beyond the end of the file under the drive nothing reads"
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
            let conditions = rig.volume_of(&troubled.id).await?.conditions;
            conditions.into_iter().find(|one| one.reason == "IoErrors")
        },
    )
    .await;
    assert!(rig.has_condition(&troubled, "DriveSuspect").await.abnormal);
    let drive = rig.drive(name).await.unwrap();
    assert_eq!(drive.verdict, "SUSPECT");
    assert!(
        drive
            .all_notes()
            .iter()
            .any(|note| note.starts_with("KernelIoError")),
        "{drive:#?}"
    );
    assert_eq!(rig.volume_of(&quiet.id).await.unwrap().conditions, []);

    // Free space there is not offered: a volume that fits goes to the other drive, the next one nowhere.
    let placed = rig.volume("new", 900 * MIB, &csi::block()).await;
    let other = rig.volume_of(&placed.id).await.unwrap().drive;
    assert_ne!(other, on);
    let full = rig.csi.create("newer", 900 * MIB, &csi::block()).await;
    let full = full.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("SUSPECT"), "{full:?}");
    rig.leave_volume(&troubled).await;
}

fn cut_short(rig: &Rig, name: &str) {
    let file = OpenOptions::new()
        .write(true)
        .open(rig.shelf.file(name))
        .unwrap();
    file.set_len(1 << 30).unwrap();
}

#[tokio::test]
async fn what_a_program_writes_into_the_kernel_log_is_nobodys_trouble() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "xfs_io", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    let (forged, real) = rig.two_in_use("xfs").await;
    let device = rig.device(&forged).await;
    let name = device.file_name().unwrap().to_str().unwrap();
    let mut log = OpenOptions::new()
        .write(true)
        .open(Path::new("/dev/kmsg"))
        .unwrap();
    writeln!(
        log,
        "<2>XFS ({name}): Corruption detected. Unmount and run xfs_repair"
    )
    .unwrap();
    // The log is ordered: when this line is read, the other one was.
    run(
        "xfs_io",
        &["-x", "-c", "shutdown", real.target.to_str().unwrap()],
    );
    rig.has_condition(&real, "FilesystemShutDown").await;
    assert_eq!(rig.volume_of(&forged.id).await.unwrap().conditions, []);
}
