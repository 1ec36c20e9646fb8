//! Isolation of data: a volume is formatted once, never twice, and deleted data is never readable again.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, digest, need, rig::Placed, tools, tree, wait,
};
use drivebay_proto::csi::volume_capability::{AccessMode, access_mode::Mode};
use tonic::Code;

#[tokio::test]
async fn a_volume_whose_filesystem_was_zeroed_is_refused_and_not_formatted_again() {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", fs "ext4", fs "xfs");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    for fs_type in ["ext4", "xfs"] {
        let volume = rig
            .volume(
                &format!("zeroed-{fs_type}"),
                512 * MIB,
                &csi::mount(fs_type),
            )
            .await;
        rig.use_volume(&volume).await;
        fs::write(volume.target.join("letter"), "the only copy").unwrap();
        rig.leave_volume(&volume).await;
        let device = rig.device(&volume).await;
        zero_edges(&device);
        let before = digest::of(&device).unwrap();

        for restarted in [false, true] {
            if restarted {
                rig.agent.kill9();
                rig.start_again().await;
            }
            let refused = rig
                .csi
                .stage(&volume.id, &volume.staging, &volume.capability)
                .await
                .expect_err("a volume without its filesystem was staged");
            let message = refused.message().to_lowercase();
            assert!(message.contains("not formatted"), "{fs_type}: {refused:?}");
            assert_eq!(tree::mounted_times(&volume.staging), 0);
            assert_eq!(
                digest::of(&device).unwrap(),
                before,
                "{fs_type} was written to"
            );
        }
    }
}

#[tokio::test]
async fn a_filesystem_whose_first_superblock_is_damaged_comes_back_by_the_command_that_its_refusal_names()
 {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    // Sectors of a superblock torn by a power failure; for XFS, whose superblock is one sector, all of it.
    for (fs_type, at, bytes, answer) in [
        ("ext4", 1536, 512, "-y"),
        ("xfs", 0, 512, ""),
        ("btrfs", 66048, 2048, "-y"),
    ] {
        let name = format!("torn-{fs_type}");
        let capability = csi::mount(fs_type);
        let volume = rig.volume(&name, 512 * MIB, &capability).await;
        rig.use_volume(&volume).await;
        let letter = volume.target.join("letter");
        fs::write(&letter, "the only copy").unwrap();
        rig.leave_volume(&volume).await;
        let device = rig.device(&volume).await;
        let node = File::options().write(true).open(&device).unwrap();
        node.write_all_at(&vec![0x5a; bytes], at).unwrap();
        node.sync_all().unwrap();
        let before = digest::of(&device).unwrap();

        let stage = || {
            rig.csi
                .stage(&volume.id, &volume.staging, &volume.capability)
        };
        let refused = stage().await.expect_err("a torn superblock was mounted");
        assert_eq!(digest::of(&device).unwrap(), before, "{fs_type}");
        let named = refused.message().split('`').nth(1);
        let named = named.unwrap_or_else(|| panic!("no command is named: {refused:?}"));
        let (tool, words) = named.split_once(' ').unwrap();
        let words: Vec<&str> = words.split(' ').chain(answer.split_whitespace()).collect();
        // e2fsck exits with 1 when it has repaired errors.
        let output = tools::run(tool, &words);
        let staged = stage().await;
        staged.unwrap_or_else(|error| panic!("{fs_type}: {error:?} after {output:?}"));
        rig.use_volume(&volume).await;
        assert_eq!(fs::read_to_string(&letter).unwrap(), "the only copy");
        rig.leave_volume(&volume).await;
    }
}

/// Installs a tool that waits for the file `go-on` before it works, appends a line to `begun` at each start, and writes the mounts that it
/// sees to `mounts`.
fn patient(tool: &str, dir: &Path) -> PathBuf {
    let tools = dir.join("tools");
    fs::create_dir(&tools).unwrap();
    let script = format!(
        "#!/bin/sh\ncat /proc/self/mountinfo >{0}/mounts\necho begun >>{0}/begun\nwhile [ ! -e {0}/go-on ]; do sleep 0.1; done\nexec {1} \"$@\"\n",
        tools.display(),
        tools::find(tool).unwrap().display()
    );
    let program = tools.join(tool);
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    tools
}

#[tokio::test]
async fn a_long_repair_is_answered_with_aborted_and_neither_begun_again_nor_in_anybodys_way() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        settings.tools = Some(patient("e2fsck", &settings.dir));
    })
    .await;
    let tools = rig.shelf.dir().join("tools");
    let volume = rig.volume("broken", 64 * MIB, &csi::mount("ext4")).await;
    let beside = rig.volume("beside", 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let letter = volume.target.join("letter");
    fs::write(&letter, "the only copy").unwrap();
    rig.leave_volume(&volume).await;
    let device = rig.device(&volume).await;
    tools::run(
        "debugfs",
        &["-w", "-R", "ssv state 3", device.to_str().unwrap()],
    )
    .unwrap();

    let stage = async || {
        let (id, staging) = (&volume.id, &volume.staging);
        rig.csi.stage(id, staging, &volume.capability).await
    };
    // A caller that cancels, as the kubelet does after two minutes.
    let gave_up = tokio::time::timeout(Duration::from_secs(3), stage()).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    for _ in 0..2 {
        let status = stage().await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Aborted, "{status:?}");
        rig.use_volume(&beside).await;
        rig.leave_volume(&beside).await;
    }
    fs::write(tools.join("go-on"), "").unwrap();
    wait::until_async(
        Duration::from_secs(30),
        "the volume is staged",
        async || stage().await.is_ok().then_some(()),
    )
    .await;
    let begun = fs::read_to_string(tools.join("begun")).unwrap();
    assert_eq!(begun.lines().count(), 1, "e2fsck was started again");
    rig.use_volume(&volume).await;
    assert_eq!(fs::read_to_string(&letter).unwrap(), "the only copy");
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn while_one_volume_is_formatted_the_others_of_its_drive_are_used_and_well() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        settings.tools = Some(patient("mkfs.ext4", &settings.dir));
    })
    .await;
    let tools = rig.shelf.dir().join("tools");
    let (go_on, begun) = (tools.join("go-on"), tools.join("begun"));
    let well = rig.volume("well", 64 * MIB, &csi::mount("ext4")).await;
    let slow = rig.volume("slow", 64 * MIB, &csi::mount("ext4")).await;
    fs::write(&go_on, "").unwrap();
    rig.use_volume(&well).await;
    fs::remove_file(&go_on).unwrap();
    fs::remove_file(&begun).unwrap();

    let formatted = rig.csi.stage(&slow.id, &slow.staging, &slow.capability);
    let others = async {
        wait::until_async(Duration::from_secs(10), "mkfs begins", async || {
            begun.exists().then_some(())
        })
        .await;
        // If it were visible there, it would stay mounted: unstaging would not end its filesystem before mkfs has ended.
        let mounts = fs::read_to_string(tools.join("mounts")).unwrap();
        let staging = well.staging.to_str().unwrap();
        assert!(
            !mounts.contains(staging),
            "mkfs sees another volume: {mounts}"
        );
        for _ in 0..3 {
            let stats = rig.csi.stats(&well.id, &well.target).await.unwrap();
            let condition = stats.volume_condition.unwrap();
            assert!(!condition.abnormal, "{}", condition.message);
            rig.leave_volume(&well).await;
            rig.use_volume(&well).await;
        }
        let made = rig.volume("third", 64 * MIB, &csi::mount("ext4")).await;
        rig.csi.delete(&made.id).await.unwrap();
        fs::write(&go_on, "").unwrap();
    };
    let (formatted, ()) = tokio::join!(formatted, others);
    formatted.unwrap();
    rig.use_volume(&slow).await;
    rig.leave_volume(&slow).await;
    rig.leave_volume(&well).await;
}

/// Overwrites the first and last MiB with zeros.
fn zero_edges(device: &Path) {
    let mut node = File::options().write(true).open(device).unwrap();
    let zeros = vec![0; usize::try_from(MIB).unwrap()];
    node.write_all(&zeros).unwrap();
    node.seek(SeekFrom::End(-i64::try_from(MIB).unwrap()))
        .unwrap();
    node.write_all(&zeros).unwrap();
    node.sync_all().unwrap();
}

#[tokio::test]
async fn a_block_volume_full_of_data_is_never_formatted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = rig.volume("raw", 64 * MIB, &csi::block()).await;
    rig.use_volume(&volume).await;
    fill(&volume.target, volume.bytes, b"somebody's raw bytes");
    let written = digest::of(&volume.target).unwrap();

    for round in 0..3 {
        rig.leave_volume(&volume).await;
        if round == 1 {
            rig.agent.kill9();
            rig.start_again().await;
        }
        let as_mount = rig
            .csi
            .stage(
                &volume.id,
                &volume.staging.with_extension("fs"),
                &csi::mount("ext4"),
            )
            .await;
        assert!(
            as_mount.is_err(),
            "a block volume was staged with a filesystem"
        );
        rig.use_volume(&volume).await;
        rig.use_volume(&volume).await;
        assert_eq!(
            digest::of(&volume.target).unwrap(),
            written,
            "round {round}"
        );
    }
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn a_partition_whose_number_changes_between_stage_and_publish_is_published_by_the_new_one() {
    need!(root, loop, layout "partition", tool "addpart");
    let rig = Rig::with(["a", "b"].map(|name| DriveSpec::blank(name, GIB)).into()).await;
    let volume = rig.volume("raw", 64 * MIB, &csi::block()).await;
    let staged = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability);
    staged.await.unwrap();
    let device = rig.device(&volume).await.display().to_string();
    let (drive, number) = device.rsplit_once('p').unwrap();
    let of = |what: &str| {
        let name = device.trim_start_matches("/dev/");
        let text = fs::read_to_string(format!("/sys/class/block/{name}/{what}")).unwrap();
        text.trim().to_owned()
    };
    let drives = rig.shelf.drives().iter();
    let mut others = drives.map(|of| of.device.display().to_string());
    let other = others.find(|of| of != drive).unwrap();
    let (before, start, size) = (of("dev"), of("start"), of("size"));
    // As udevd does after a program has closed the drive; another partition takes the number meanwhile. A udevd of this host reads no
    // partition table of a drive that is locked.
    let locks = [drive, other.as_str()].map(|of| File::open(of).unwrap());
    for lock in &locks {
        lock.lock().unwrap();
    }
    tools::run("delpart", &[drive, number]).unwrap();
    // The kernel assigns the lowest free number. This one becomes free when the kernel has released the former partition, usually at
    // once; where that takes long (60 s were observed), a new number must do.
    let mut takers: Vec<String> = Vec::new();
    let release = |takers: &mut Vec<String>| {
        for taker in takers.drain(..) {
            tools::run("delpart", &[&other, &taker]).unwrap();
        }
    };
    let taken = wait::poll(Duration::from_secs(20), || {
        if takers.len() == 15 {
            release(&mut takers);
        }
        let at = takers.len() + 1;
        let (taker, sector) = ((at + 8).to_string(), (at * 2048).to_string());
        tools::run("addpart", &[&other, &taker, &sector, "2048"]).unwrap();
        takers.push(taker);
        Path::new("/sys/dev/block")
            .join(&before)
            .exists()
            .then_some(())
    });
    if taken.is_none() {
        eprintln!("no other partition was given {before}");
    }
    tools::run("addpart", &[drive, number, &start, &size]).unwrap();
    assert_ne!(of("dev"), before, "the kernel gave the same number again");
    drop(locks);

    rig.publish(&volume).await;
    let node = fs::metadata(&volume.target).unwrap().rdev();
    let (major, minor) = (libc::major(node), libc::minor(node));
    assert_eq!(format!("{major}:{minor}"), of("dev"));
    release(&mut takers);
    rig.leave_volume(&volume).await;
}

/// Fills a device with a pattern, at the start of every 4 KiB.
fn fill(device: &Path, bytes: u64, pattern: &[u8]) {
    let mut row = vec![b'.'; usize::try_from(MIB).unwrap()];
    for block in row.chunks_mut(4096) {
        block[..pattern.len()].copy_from_slice(pattern);
    }
    let node = File::options().write(true).open(device).unwrap();
    for at in (0..bytes).step_by(row.len()) {
        let left = usize::try_from(bytes - at).unwrap().min(row.len());
        node.write_all_at(&row[..left], at).unwrap();
    }
    node.sync_all().unwrap();
}

#[tokio::test]
async fn a_second_publish_stacks_no_mount() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    for (name, capability) in [("files", csi::mount("ext4")), ("raw", csi::block())] {
        let volume = rig.volume(name, 256 * MIB, &capability).await;
        rig.use_volume(&volume).await;
        let mounts = tree::mounts().len();
        for _ in 0..3 {
            rig.use_volume(&volume).await;
        }
        assert_eq!(tree::mounted_times(&volume.target), 1, "{name}");
        assert!(tree::mounted_times(&volume.staging) <= 1, "{name}");
        assert!(tree::mounts().len() <= mounts, "{name}");
        rig.leave_volume(&volume).await;
        assert_eq!(tree::mounted_times(&volume.target), 0, "{name}");
        assert!(!volume.target.exists(), "{name}: the target is left");
        assert!(
            volume.staging.exists(),
            "{name}: the staging directory is the orchestrator's"
        );
    }
}

#[tokio::test]
async fn a_read_only_publish_cannot_be_written() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("files", 256 * MIB, &csi::mount("ext4")).await;
    let (id, capability) = (&volume.id, &volume.capability);
    rig.csi
        .stage(id, &volume.staging, capability)
        .await
        .unwrap();
    rig.csi
        .publish(id, &volume.staging, &volume.target, capability, true)
        .await
        .unwrap();
    let error = fs::write(volume.target.join("x"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // The same target, writable: the contents are not replaced under a reader.
    let refused = rig
        .csi
        .publish(id, &volume.staging, &volume.target, capability, false)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused:?}");
    rig.leave_volume(&volume).await;
}

/// Binds the device as the kubelet does for a pod, beside the target of the driver. Returns the path.
fn kubelet_bind(volume: &Placed) -> PathBuf {
    let path = volume.target.with_file_name("kubelet-bind");
    fs::write(&path, "").unwrap();
    let from = volume.target.display().to_string();
    tools::run("mount", &["--bind", &from, &path.display().to_string()]).unwrap();
    path
}

fn bound_read_only(path: &Path) -> bool {
    let entries = drivebay_sys::mountinfo::read().unwrap();
    let at = entries.iter().rfind(|entry| entry.mount_point == path);
    at.expect("nothing is bound there").read_only()
}

#[tokio::test]
async fn a_raw_block_volume_is_published_read_only() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = rig.volume("raw", 64 * MIB, &csi::block()).await;
    let (id, block) = (volume.id.as_str(), &volume.capability);
    rig.csi.stage(id, &volume.staging, block).await.unwrap();
    let publish = async |target: &Path, capability, read_only| {
        rig.csi
            .publish(id, &volume.staging, target, capability, read_only)
            .await
    };

    // Twice: by the flag, and by the access mode.
    publish(&volume.target, block, true).await.unwrap();
    publish(&volume.target, block, true).await.unwrap();
    let mut reader = block.clone();
    reader.access_mode = Some(AccessMode {
        mode: Mode::SingleNodeReaderOnly.into(),
    });
    publish(&volume.target, &reader, false).await.unwrap();
    assert_eq!(tree::mounted_times(&volume.target), 1);
    assert!(bound_read_only(&volume.target));
    let refused = publish(&volume.target, block, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused:?}");

    // Another pod may write.
    let writable = volume.target.with_file_name("writable");
    publish(&writable, block, false).await.unwrap();
    assert!(!bound_read_only(&writable));
    let refused = publish(&writable, block, true).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused:?}");
    fs::write(&writable, "written").unwrap();
    let mut read = [0; 7];
    File::open(&volume.target)
        .unwrap()
        .read_exact(&mut read)
        .unwrap();
    assert_eq!(&read, b"written");

    // The kubelet samples its own bind, which is read-only too.
    let bind = kubelet_bind(&volume);
    assert!(bound_read_only(&bind));
    let stats = rig.csi.stats(id, &bind).await.unwrap();
    assert_eq!(stats.usage[0].total, 64 << 20);
    let condition = stats.volume_condition.unwrap();
    assert!(!condition.abnormal, "{condition:?}");
    rig.csi.expand(id, 128 * MIB, block).await.unwrap();
    let size = rig.csi.node_expand(id, &bind, 128 * MIB).await.unwrap();
    assert_eq!(size, 128 << 20);

    tools::run("umount", &[&bind.display().to_string()]).unwrap();
    fs::remove_file(&bind).unwrap();
    for target in [&writable, &volume.target] {
        rig.csi.unpublish(id, target).await.unwrap();
        rig.csi.unpublish(id, target).await.unwrap();
        assert!(!target.exists(), "{} is left", target.display());
    }
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn create_delete_create_of_one_name_is_two_volumes_that_no_late_delete_confuses() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let capability = csi::mount("ext4");
    let first = rig.volume("same", 256 * MIB, &capability).await;
    rig.csi.delete(&first.id).await.unwrap();
    let second = rig.volume("same", 256 * MIB, &capability).await;
    assert_ne!(first.id, second.id);
    rig.use_volume(&second).await;
    fs::write(second.target.join("letter"), "of the second").unwrap();

    // Late, repeated, and after the space of the first one was erased.
    rig.csi.delete(&first.id).await.unwrap();
    rig.erased().await;
    rig.csi.delete(&first.id).await.unwrap();
    assert_eq!(rig.csi.ids().await.unwrap(), [second.id.as_str()]);
    let in_use = rig.csi.delete(&second.id).await.unwrap_err();
    assert_eq!(in_use.code(), Code::FailedPrecondition, "{in_use:?}");
    let letter = fs::read_to_string(second.target.join("letter")).unwrap();
    assert_eq!(letter, "of the second");
    rig.leave_volume(&second).await;
    rig.use_volume(&second).await;
    assert!(second.target.join("letter").exists());
    rig.leave_volume(&second).await;
}

#[tokio::test]
async fn a_pattern_written_to_a_deleted_volume_is_nowhere_in_the_next() {
    need!(root, loop);
    const PATTERN: &[u8] = b"tenant-one-secret-6f1d2c";
    let rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    // Most of the drive, so that the next volume must reuse the space.
    let size = 192 * MIB;
    let first = rig.volume("first", size, &csi::block()).await;
    rig.use_volume(&first).await;
    fill(&first.target, first.bytes, PATTERN);
    rig.shelf.flush().unwrap();
    let file = rig.shelf.drives()[0].file.clone();
    assert!(!digest::find(&file, PATTERN).unwrap().is_empty());
    rig.leave_volume(&first).await;
    rig.csi.delete(&first.id).await.unwrap();

    let second = next(&rig, "second", size).await;
    assert_ne!(first.id, second.id);
    rig.use_volume(&second).await;
    assert!(digest::find(&second.target, PATTERN).unwrap().is_empty());
    let mut bytes = Vec::new();
    File::open(&second.target)
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert!(digest::is_zeros(&bytes), "the new volume is not zeros");
    rig.shelf.flush().unwrap();
    assert!(digest::find(&file, PATTERN).unwrap().is_empty());
    rig.leave_volume(&second).await;
}

/// Creates a volume as soon as the space is free again; until then every answer must be RESOURCE_EXHAUSTED.
async fn next(rig: &Rig, name: &str, size: u64) -> Placed {
    let volume = wait::until_async(
        Duration::from_secs(120),
        "the space is offered again",
        async || match rig.csi.create(name, size, &csi::block()).await {
            Ok(volume) => Some(volume),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                None
            }
        },
    )
    .await;
    rig.place(&volume, name, &csi::block())
}

#[tokio::test]
async fn each_filesystem_is_made_written_grown_online_and_read_back() {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    for fs_type in ["ext4", "xfs", "btrfs"] {
        if fs_type == "ext4"
            && let Err(missing) = need::SYS_RESOURCE.check()
        {
            need::skipped("growing a mounted ext4", &missing.reason);
            continue;
        }
        let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
        let volume = rig.volume(fs_type, GIB, &csi::mount(fs_type)).await;
        rig.use_volume(&volume).await;
        let mounted = tree::mounts()
            .into_iter()
            .find(|mount| mount.point == volume.target)
            .unwrap();
        assert_eq!(mounted.fs_type, fs_type);
        let file = volume.target.join("file");
        fs::write(&file, vec![0x5a; 8 << 20]).unwrap();
        let (before, print) = (total(&rig, &volume).await, digest::of(&file).unwrap());
        let (bytes, on_node) = rig
            .csi
            .expand(&volume.id, 2 * GIB, &volume.capability)
            .await
            .unwrap();
        assert_eq!(u64::try_from(bytes), Ok(2 * GIB), "{fs_type}");
        assert!(on_node, "{fs_type}: the filesystem has to grow too");
        rig.csi
            .node_expand(&volume.id, &volume.target, 2 * GIB)
            .await
            .unwrap();
        let after = total(&rig, &volume).await;
        assert!(
            after > before + 700 * MIB as i64,
            "{fs_type}: {before} -> {after}"
        );
        assert_eq!(digest::of(&file).unwrap(), print, "{fs_type}");
        rig.leave_volume(&volume).await;
        rig.use_volume(&volume).await;
        assert_eq!(digest::of(&file).unwrap(), print, "{fs_type}");
        rig.leave_volume(&volume).await;
    }
}

async fn total(rig: &Rig, volume: &Placed) -> i64 {
    let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    stats.usage[0].total
}

/// Returns a drive whose samples are zeros, with earlier data between them.
fn formerly_used(bytes: u64, pattern: &'static [u8]) -> DriveSpec {
    DriveSpec::blank("used", bytes).holding(move |file| {
        let file = File::options().write(true).open(file)?;
        // Few enough that no sample finds one.
        for at in (40 * MIB..bytes - 40 * MIB).step_by(40_000_000) {
            file.write_all_at(pattern, at + 77_777)?;
        }
        Ok(())
    })
}

#[tokio::test]
async fn raw_volumes_and_their_growth_show_nothing_of_a_former_owner_also_after_a_kill() {
    need!(root, loop);
    const PATTERN: &[u8] = b"former-owner-5c1e77";
    let mut rig = Rig::tuned(vec![formerly_used(GIB, PATTERN)], |settings| {
        // Half a minute for all of it: the calls come earlier.
        "32MiB".clone_into(&mut settings.erase_rate);
    })
    .await;
    assert!(
        !digest::find(&rig.shelf.file("used"), PATTERN)
            .unwrap()
            .is_empty()
    );
    let (create, limit) = (csi::block(), Duration::from_secs(60));
    let first = wait::until_async(limit, "the first volume is made", async || {
        rig.csi.create("first", 128 * MIB, &create).await.ok()
    })
    .await;
    let first = rig.place(&first, "first", &create);
    rig.use_volume(&first).await;
    assert!(digest::find(&first.target, PATTERN).unwrap().is_empty());
    for bytes in [192 * MIB, 256 * MIB] {
        rig.agent.kill9();
        rig.start_again().await;
        wait::until_async(limit, "the volume has grown", async || {
            rig.csi.expand(&first.id, bytes, &create).await.ok()
        })
        .await;
        assert!(digest::find(&first.target, PATTERN).unwrap().is_empty());
    }
    let second = wait::until_async(limit, "the second volume is made", async || {
        rig.csi.create("second", 512 * MIB, &create).await.ok()
    })
    .await;
    let second = rig.place(&second, "second", &create);
    rig.use_volume(&second).await;
    assert!(digest::find(&second.target, PATTERN).unwrap().is_empty());
}
