//! Mounts removed or covered by others, filesystems that are unreadable or full, devices changed by others.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use drivebay_hwtests::{
    DriveSpec, GIB, Rig, csi,
    faults::{About, Case},
    long_on_drives, need,
    rig::Placed,
};

use crate::stand::{Stand, sh};

impl Stand {
    /// Waits until the fault is reported for the troubled volume, for this reason, and for nothing else.
    async fn is_reported(&self, case: &mut Case, reason: &str) {
        let volumes = [&self.troubled];
        let about = self.one(&volumes);
        case.of_volume(&self.rig, &self.troubled, reason, about)
            .await;
    }

    /// Waits until the condition is cleared, after a repair just now.
    async fn is_mended(&self, mut case: Case) {
        case.back(&self.rig, &[&self.troubled]).await;
        drop(case);
        self.leave().await;
    }
}

#[tokio::test]
async fn a_staging_mount_that_is_taken_away() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("unmounted by hand (staging)", "umount, loop drive");
    let staging = stand.troubled.staging.display();
    let device = stand.rig.device(&stand.troubled).await;
    case.strikes();
    sh(&format!("umount {staging}"));
    stand.is_reported(&mut case, "StagingMountMissing").await;
    sh(&format!("mount {} {staging}", device.display()));
    stand.is_mended(case).await;
}

#[tokio::test]
async fn a_target_mount_that_is_taken_away() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("unmounted by hand (target)", "umount, loop drive");
    let volume = &stand.troubled;
    case.strikes();
    sh(&format!("umount {}", volume.target.display()));
    stand.is_reported(&mut case, "TargetMountMissing").await;
    let (from, to) = (volume.staging.display(), volume.target.display());
    sh(&format!("mount --bind {from} {to}"));
    stand.is_mended(case).await;
}

#[tokio::test]
async fn a_target_that_something_else_is_mounted_at() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("target mounted from elsewhere", "tmpfs over it, loop drive");
    let target = stand.troubled.target.display();
    case.strikes();
    sh(&format!("mount -t tmpfs none {target}"));
    stand.is_reported(&mut case, "WrongDevice").await;
    sh(&format!("umount {target}"));
    stand.is_mended(case).await;
}

#[tokio::test]
async fn a_mount_that_is_made_read_only() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("mount turned read-only", "remount, loop drive");
    let target = stand.troubled.target.display();
    case.strikes();
    sh(&format!("mount -o remount,bind,ro {target}"));
    stand.is_reported(&mut case, "ReadOnly").await;
    sh(&format!("mount -o remount,bind,rw {target}"));
    stand.is_mended(case).await;
}

#[tokio::test]
async fn a_device_that_is_made_read_only() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "blockdev");
    long_on_drives!();
    let stand = Stand::new("ext4").await;
    let mut case = Case::new("read-only device", "blockdev --setro, loop drive");
    let device = stand.rig.device(&stand.troubled).await;
    case.strikes();
    sh(&format!("blockdev --setro {}", device.display()));
    stand.is_reported(&mut case, "DeviceReadOnly").await;
    sh(&format!("blockdev --setrw {}", device.display()));
    stand.is_mended(case).await;
}

#[tokio::test]
async fn a_root_directory_that_does_not_read() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "debugfs", tool "e2fsck");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new(
        "directory unreadable",
        "garbage over the root directory, unmounted, loop drive",
    );
    let device = stand.rig.device(&stand.troubled).await;
    stand.rig.leave_volume(&stand.troubled).await;
    let block = sh(&format!("debugfs -R 'blocks /' {}", device.display()));
    let disk = File::options().write(true).open(&device).unwrap();
    let place = block.parse::<u64>().unwrap() * 4096;
    disk.write_all_at(&[0x5a; 4096], place).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    case.strikes();
    stand.rig.use_volume(&stand.troubled).await;
    stand.is_reported(&mut case, "Unreadable").await;
    stand.rig.leave_volume(&stand.troubled).await;
    // Exits with 1 after a repair.
    let mended = Command::new("e2fsck").arg("-fy").arg(&device).output();
    assert!(mended.unwrap().status.code() < Some(4));
    stand.rig.use_volume(&stand.troubled).await;
    stand.is_mended(case).await;
}

fn fill(file: &Path) {
    let mut filling = File::create(file).unwrap();
    while filling.write_all(&[1; 1 << 20]).is_ok() {}
    // Only data that was written back is known to have space.
    let _ = filling.sync_all();
    while filling.write_all(&[1; 512]).is_ok() {}
}

/// A volume without free space or inodes, and its row of the fault table.
struct Full {
    volume: Placed,
    case: Case,
    reason: &'static str,
    /// File whose removal frees space.
    most: PathBuf,
}

impl Full {
    async fn of_space(rig: &Rig, fs_type: &str) -> Self {
        let volume = rig.volume(fs_type, 2 * GIB, &csi::mount(fs_type)).await;
        rig.use_volume(&volume).await;
        let fault = format!("{fs_type} full (space)");
        let mut case = Case::new(&fault, "written until it was, loop drive");
        // Allocated space need not be written.
        let most = volume.target.join("most");
        sh(&format!("fallocate -l 1536M {}", most.display()));
        fill(&volume.target.join("rest"));
        case.strikes();
        Self {
            volume,
            case,
            reason: "VolumeFull",
            most,
        }
    }

    async fn of_inodes(rig: &Rig) -> Self {
        let volume = rig.volume("inodes", GIB, &csi::mount("ext4")).await;
        rig.use_volume(&volume).await;
        let mut case = Case::new("full (inodes)", "files made until it was, loop drive");
        let most = volume.target.join("files");
        fs::create_dir(&most).unwrap();
        let make = |n: u32| File::create(most.join(n.to_string())).is_ok();
        assert!((0..1_000_000).take_while(|n| make(*n)).count() > 1000);
        case.strikes();
        Self {
            volume,
            case,
            reason: "InodesExhausted",
            most,
        }
    }

    async fn is_reported(&mut self, rig: &Rig, all: &[&Placed]) {
        let about = About {
            drives: &[],
            volumes: all,
        };
        let volume = self
            .case
            .of_volume(rig, &self.volume, self.reason, about)
            .await;
        let reasons = volume.conditions.iter().map(|one| one.reason.as_str());
        assert_eq!(reasons.collect::<Vec<_>>(), [self.reason]);
    }

    async fn is_mended(&mut self, rig: &Rig) {
        self.case.back(rig, &[&self.volume]).await;
    }
}

// Space is sampled each minute: one after another, each would take two minutes.
#[tokio::test]
async fn filesystems_without_room_or_inodes() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "mkfs.xfs", fs "xfs");
    long_on_drives!();
    let drives = ["a", "b"].map(|name| DriveSpec::blank(name, 4 * GIB));
    let rig = Rig::with(drives.into()).await;
    let quiet = rig.volume("quiet", GIB, &csi::mount("ext4")).await;
    rig.use_volume(&quiet).await;
    let mut ext4 = Full::of_space(&rig, "ext4").await;
    let mut xfs = Full::of_space(&rig, "xfs").await;
    let mut inodes = Full::of_inodes(&rig).await;

    let volumes = [&ext4, &xfs, &inodes].map(|one| one.volume.clone());
    let all = volumes.each_ref();
    tokio::join!(
        ext4.is_reported(&rig, &all),
        xfs.is_reported(&rig, &all),
        inodes.is_reported(&rig, &all)
    );
    fs::remove_file(&ext4.most).unwrap();
    fs::remove_file(&xfs.most).unwrap();
    fs::remove_dir_all(&inodes.most).unwrap();
    for volume in all {
        sh(&format!("sync -f {}", volume.target.display()));
    }
    tokio::join!(
        ext4.is_mended(&rig),
        xfs.is_mended(&rig),
        inodes.is_mended(&rig)
    );
    for volume in all.into_iter().chain([&quiet]) {
        rig.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn a_partition_that_is_removed_from_the_table() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4", tool "sfdisk");
    let stand = Stand::new("ext4").await;
    let mut case = Case::new(
        "partition removed by hand",
        "sfdisk --delete while it is mounted, rescan, loop drive",
    );
    let device = stand.rig.device(&stand.troubled).await;
    let device = device.to_str().unwrap();
    let (disk, number) = device.rsplit_once('p').unwrap();
    let before = stand.rig.dir().join("table");
    sh(&format!("sfdisk --dump {disk} >{}", before.display()));
    let quietly = "sfdisk --no-reread --no-tell-kernel --force";
    case.strikes();
    sh(&format!("{quietly} --delete {disk} {number}"));
    // Where udevd runs, its event suffices.
    stand.rig.rescan().await;
    stand.is_reported(&mut case, "RecordMismatch").await;
    sh(&format!("{quietly} {disk} <{}", before.display()));
    stand.rig.rescan().await;
    stand.is_mended(case).await;
}
