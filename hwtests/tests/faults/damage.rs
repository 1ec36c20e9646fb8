//! Metadata overwritten in the essential blocks, below a mounted filesystem that then reads them.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use drivebay_hwtests::{faults::Case, need};

use crate::stand::{Stand, sh};

/// Number of files: enough for a directory of several blocks.
const FILES: usize = 600;

/// Creates a directory with many files, syncs it, and returns its inode number.
fn directory(target: &Path) -> u64 {
    let dir = target.join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..FILES {
        fs::write(dir.join(format!("a-file-with-a-long-name-{number}")), "x").unwrap();
    }
    sh(&format!("sync -f {}", dir.display()));
    fs::metadata(&dir).unwrap().ino()
}

fn forget() {
    sh("sync; echo 3 >/proc/sys/vm/drop_caches");
}

/// Overwrites a range of the device with garbage, with O_DIRECT.
fn destroy(device: &Path, offset: u64, bytes: usize) {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(nix::libc::O_DIRECT)
        .open(device)
        .unwrap();
    // O_DIRECT needs aligned memory.
    let mut room = vec![0xa5u8; bytes + 4096];
    let skip = room.as_ptr().align_offset(4096);
    let nonsense = &mut room[skip..skip + bytes];
    file.write_all_at(nonsense, offset).unwrap();
    file.sync_all().unwrap();
}

async fn damaged(fs_type: &str, reason: &str, place: impl Fn(&Path, u64) -> Vec<(u64, usize)>) {
    let stand = Stand::new(fs_type).await;
    let mut case = Case::new(
        &format!("{fs_type} metadata destroyed"),
        "garbage over a directory's blocks, mounted, loop drive",
    );
    let device = stand.rig.device(&stand.troubled).await;
    let target = &stand.troubled.target;
    let inode = directory(target);
    // A copy-on-write filesystem may have moved the block before it was overwritten: then it is repeated.
    let detected = (0..5).any(|_| {
        forget();
        let places = place(&device, inode);
        assert!(!places.is_empty(), "no place to destroy was found");
        case.strikes();
        for (offset, bytes) in places {
            destroy(&device, offset, bytes);
        }
        forget();
        // A read by another program.
        let listed = fs::read_dir(target.join("dir")).map(|dir| dir.filter_map(Result::ok).count());
        listed.map_or(true, |count| count < FILES)
    });
    assert!(detected, "the damage is not seen");
    let volumes = [&stand.troubled];
    case.of_volume(&stand.rig, &stand.troubled, reason, stand.one(&volumes))
        .await;
    case.stays("stays while the damage does");
    stand.leave().await;
}

#[tokio::test]
async fn an_ext4_whose_directory_is_destroyed() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    damaged("ext4", "FilesystemError", |device, inode| {
        let output = sh(&format!(
            "debugfs -R 'blocks <{inode}>' {} 2>/dev/null",
            device.display()
        ));
        let blocks = output.split_whitespace().map(|block| block.parse::<u64>());
        // The first block is the index of the others.
        let blocks = blocks.map(|block| (block.unwrap() * 4096, 4096));
        blocks.collect()
    })
    .await;
}

#[tokio::test]
async fn an_xfs_whose_inodes_are_destroyed() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_db", fs "xfs");
    damaged("xfs", "FilesystemCorrupted", |device, inode| {
        let output = sh(&format!(
            "xfs_db -r -c 'convert ino {inode} daddr' {}",
            device.display()
        ));
        // "0x80 (128)", in sectors of 512 bytes; inodes are read in clusters of 16 KiB or less.
        let sector = output.split(['(', ')']).nth(1).unwrap().parse::<u64>();
        vec![(sector.unwrap() * 512 / 4096 * 4096, 4096)]
    })
    .await;
}

#[tokio::test]
async fn a_btrfs_whose_tree_is_destroyed() {
    need!(root, loop, tool "mkfs.btrfs", tool "btrfs-map-logical", fs "btrfs");
    damaged("btrfs", "FilesystemCorrupted", |device, inode| {
        let device = device.display();
        // The leaves with the items of the directory.
        let output = sh(&format!(
            "btrfs inspect-internal dump-tree -t 5 {device} | awk '/^leaf /{{leaf=$2}} /\\({inode} DIR_/{{print leaf}}' | sort -u | head -n 3"
        ));
        let mut places = Vec::new();
        for leaf in output.lines() {
            // Each copy of the block.
            let mapped = sh(&format!("btrfs-map-logical -l {leaf} {device} | sed -n 's/.*physical \\([0-9]*\\) .*/\\1/p'"));
            places.extend(mapped.lines().map(|at| (at.parse().unwrap(), 16384)));
        }
        places
    })
    .await;
}
