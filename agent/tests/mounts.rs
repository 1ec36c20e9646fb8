//! Filesystems and mounts, with real tools, real filesystems and real loop devices. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod mounts_support;

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use drivebay_fs::jobs::{FsError, Growth, Stage};
use drivebay_model::{FsType, MIB, RecordState, Signatures};
use drivebay_sys::{
    cmd::{self, Tool},
    mount::mount_fs,
    tool_namespace,
};
use mounts_support::{Bench, may_grow_ext4, sh, skipped};

fn is_ours(bench: &Bench, fs_type: FsType) -> bool {
    let RecordState::Fs { fs_uuid, .. } = bench.state() else {
        return false;
    };
    let Signatures::Found(signatures) = bench.signatures() else {
        return false;
    };
    signatures.len() == 1
        && signatures[0].kind == fs_type.as_str()
        && signatures[0].uuid == fs_uuid.to_string()
}

/// Tests the whole life cycle: created once, written, staged again without a process, published, expanded online, unpublished, unstaged,
/// and staged again with the data still there.
fn life(fs_type: FsType, mib: u64) {
    if skipped() {
        return;
    }
    let bench = Bench::new(mib, Some(fs_type));
    let staged = bench.stage().unwrap();
    assert!(staged.formatted && !staged.already);
    assert!(matches!(
        bench.state(),
        RecordState::Fs { mounted: true, .. }
    ));
    assert!(is_ours(&bench, fs_type));
    assert_eq!(
        bench.ran.lock().unwrap().len(),
        1,
        "one mkfs and nothing else"
    );
    bench.ran.lock().unwrap().clear();

    fs::write(bench.path("staging/data"), "precious").unwrap();
    for _ in 0..3 {
        let again = bench.stage().unwrap();
        assert!(again.already && !again.formatted && again.growth == Growth::NotTried);
        assert_eq!(bench.mounts("staging"), 1);
    }
    for _ in 0..3 {
        bench.publish("a", false).unwrap();
        assert_eq!(bench.mounts("pods/a"), 1);
    }
    assert!(
        !bench.publish("a", false).unwrap(),
        "the repeat says that it was so already"
    );
    assert!(matches!(
        bench.publish("a", true),
        Err(FsError::Conflict { .. })
    ));
    assert_eq!(
        fs::read_to_string(bench.path("pods/a/data")).unwrap(),
        "precious"
    );
    assert!(
        bench.ran.lock().unwrap().is_empty(),
        "repeats run no process"
    );

    let usage = bench.stats("pods/a").unwrap();
    assert!(usage.unreadable.is_none() && !usage.read_only);
    assert!(usage.total_bytes > mib * MIB / 2 && usage.available_bytes <= usage.total_bytes);
    assert_eq!(usage.inodes.is_none(), fs_type == FsType::Btrfs);
    assert!(matches!(bench.stats("pods"), Err(FsError::NotHere { .. })));
    assert!(matches!(
        bench.stats("pods/missing"),
        Err(FsError::NotHere { .. })
    ));

    assert!(!bench.grow("pods/a").unwrap().changed);
    bench.enlarge(2 * mib);
    match bench.grow("pods/a") {
        Err(FsError::Grow { output, .. }) if fs_type == FsType::Ext4 && !may_grow_ext4() => {
            assert!(output.contains("CAP_SYS_RESOURCE"), "{output}");
        }
        grown => {
            let grown = grown.unwrap();
            assert!(grown.changed && grown.device_bytes == 2 * mib * MIB);
            assert!(
                !bench.grow("staging").unwrap().changed,
                "a grown filesystem needs no tool"
            );
            assert!(bench.stats("pods/a").unwrap().total_bytes > usage.total_bytes * 3 / 2);
        }
    }

    assert_eq!(bench.unmount("pods/a").unwrap().count, 1);
    assert!(!bench.path("pods/a").exists());
    assert_eq!(bench.unmount("pods/a").unwrap().count, 0);
    assert_eq!(bench.unmount("staging").unwrap().count, 1);
    assert!(bench.path("staging").exists());
    assert!(!bench.stage().unwrap().formatted);
    assert_eq!(
        fs::read_to_string(bench.path("staging/data")).unwrap(),
        "precious"
    );
    let may_grow = fs_type != FsType::Ext4 || may_grow_ext4();
    assert!(
        !may_grow || bench.ran.lock().unwrap().is_empty(),
        "a normal stage runs no process"
    );
}

#[test]
fn ext4_is_made_once_and_keeps_its_data() {
    life(FsType::Ext4, 64);
}

#[test]
fn xfs_is_made_once_and_keeps_its_data() {
    life(FsType::Xfs, 320);
}

#[test]
fn btrfs_is_made_once_and_keeps_its_data() {
    life(FsType::Btrfs, 160);
}

#[test]
fn a_filesystem_grows_when_it_is_staged_on_a_larger_partition() {
    for (fs_type, mib) in [(FsType::Ext4, 64), (FsType::Xfs, 320), (FsType::Btrfs, 256)] {
        if skipped() {
            return;
        }
        let bench = Bench::new(mib, Some(fs_type));
        bench.stage().unwrap();
        bench.unmount("staging").unwrap();
        bench.enlarge(mib + 8);
        let may_grow = fs_type != FsType::Ext4 || may_grow_ext4();
        assert_eq!(
            bench.stage().unwrap().growth == Growth::Grown,
            may_grow,
            "{fs_type}: what cannot grow is staged all the same"
        );
        bench.unmount("staging").unwrap();
        let again = bench.stage().unwrap().growth;
        assert_eq!(
            again == Growth::Fits,
            may_grow,
            "{fs_type} is grown once: {again:?}"
        );
    }
}

#[test]
fn a_btrfs_too_small_for_the_kernel_to_resize_is_reported() {
    if skipped() {
        return;
    }
    let bench = Bench::new(160, Some(FsType::Btrfs));
    bench.stage().unwrap();
    bench.enlarge(200);
    assert!(
        matches!(bench.grow("staging"), Err(FsError::Grow { output, .. }) if output.contains("256 MiB"))
    );
    bench.enlarge(300);
    assert!(bench.grow("staging").unwrap().changed);
}

#[test]
fn ext4s_size_is_foretold_as_resize2fs_makes_it() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let (file, name) = (
        fs::File::create_new(&image).unwrap(),
        image.to_str().unwrap(),
    );
    for block in ["1024", "4096"] {
        file.set_len(0).unwrap();
        file.set_len(200 * MIB).unwrap();
        sh("mkfs.ext4", &["-q", "-b", block, name]);
        // Just past a group's end, where a group too small for itself is dropped, and elsewhere.
        for bytes in [
            200 * MIB + 4096,
            256 * MIB,
            256 * MIB + 4096,
            256 * MIB + 40 * 4096,
            257 * MIB + 512,
            264 * MIB,
            391 * MIB,
        ] {
            file.set_len(bytes).unwrap();
            let superblock = || {
                drivebay_fs::kind::ext4::superblock::parse(&fs::read(&image).unwrap()[..4096])
                    .unwrap()
            };
            let foretold = superblock().blocks_on(bytes);
            sh("e2fsck", &["-f", "-p", name]);
            sh("resize2fs", &[name]);
            assert_eq!(
                superblock().blocks,
                foretold,
                "{bytes} bytes in blocks of {block}"
            );
        }
    }
}

#[test]
fn a_lost_filesystem_is_refused_and_never_made_again() {
    for (fs_type, mib) in [(FsType::Ext4, 64), (FsType::Xfs, 320), (FsType::Btrfs, 160)] {
        if skipped() {
            return;
        }
        let bench = Bench::new(mib, Some(fs_type));
        bench.stage().unwrap();
        bench.unmount("staging").unwrap();
        bench.zero();
        bench.ran.lock().unwrap().clear();
        for _ in 0..2 {
            assert!(
                matches!(bench.stage(), Err(FsError::FilesystemGone { .. })),
                "{fs_type}"
            );
        }
        assert_eq!(bench.signatures(), Signatures::Empty);
        assert!(bench.ran.lock().unwrap().is_empty());
        assert_eq!(bench.mounts("staging"), 0);
    }
}

#[test]
fn a_signature_wins_over_a_record_in_state_new() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    fs::write(bench.path("staging/data"), "precious").unwrap();
    bench.unmount("staging").unwrap();
    bench.edit(|record| record.state = RecordState::New);
    assert!(matches!(bench.stage(), Err(FsError::Unexpected { .. })));
    mount_fs(
        Path::new(&bench.node()),
        &bench.path("staging"),
        "ext4",
        0,
        "",
    )
    .unwrap();
    assert_eq!(
        fs::read_to_string(bench.path("staging/data")).unwrap(),
        "precious"
    );
}

#[test]
fn a_failed_probe_is_not_an_empty_volume() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    *bench.probe_fails.lock().unwrap() = true;
    assert!(matches!(bench.stage(), Err(FsError::Probe { .. })));
    assert_eq!(bench.state(), RecordState::New);
    assert!(bench.ran.lock().unwrap().is_empty());
}

#[test]
fn a_crash_after_mkfs_is_finished_by_the_next_call_with_the_same_filesystem() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    *bench.crash_before_mounted.lock().unwrap() = true;
    assert!(matches!(bench.stage(), Err(FsError::Layout(_))));
    assert_eq!(
        bench.mounts("staging"),
        0,
        "a final error leaves no mount behind"
    );
    let before = bench.state();
    assert!(matches!(before, RecordState::Fs { mounted: false, .. }));
    *bench.crash_before_mounted.lock().unwrap() = false;
    assert!(!bench.stage().unwrap().formatted);
    let (
        RecordState::Fs { fs_uuid: first, .. },
        RecordState::Fs {
            fs_uuid: second,
            mounted,
            ..
        },
    ) = (before, bench.state())
    else {
        panic!("the record went back");
    };
    assert!(first == second && mounted);
}

#[test]
fn an_interrupted_mkfs_starts_over_with_the_planned_uuid() {
    if skipped() {
        return;
    }
    let bench = Bench::new(320, Some(FsType::Xfs));
    *bench.crash_before_mounted.lock().unwrap() = true;
    bench.stage().unwrap_err();
    *bench.crash_before_mounted.lock().unwrap() = false;
    let RecordState::Fs { fs_uuid, .. } = bench.state() else {
        panic!("no plan")
    };
    // Lost before it reached the drive at all.
    sh(
        "dd",
        &[
            "if=/dev/zero",
            &format!("of={}", bench.node()),
            "bs=1M",
            "count=4",
            "conv=fsync",
        ],
    );
    assert!(bench.stage().unwrap().formatted);
    assert!(
        matches!(bench.state(), RecordState::Fs { fs_uuid: same, mounted: true, .. } if same == fs_uuid)
    );
    assert!(is_ours(&bench, FsType::Xfs));
}

#[test]
fn a_half_made_filesystem_is_made_again_only_while_it_was_never_mounted() {
    if skipped() {
        return;
    }
    for (mounted, expected) in [(false, true), (true, false)] {
        let bench = Bench::new(64, Some(FsType::Ext4));
        let fs_uuid = uuid::Uuid::new_v4();
        sh(
            "mkfs.ext4",
            &["-q", "-U", &fs_uuid.to_string(), &bench.node()],
        );
        // Its group descriptors are damaged: the signature is there, and the kernel refuses to mount.
        sh(
            "dd",
            &[
                "if=/dev/urandom",
                &format!("of={}", bench.node()),
                "bs=4096",
                "seek=1",
                "count=1",
                "conv=fsync,notrunc",
            ],
        );
        let small = sh("dumpe2fs", &["-h", &bench.node()]);
        if small.contains("Block size:               1024") {
            sh(
                "dd",
                &[
                    "if=/dev/urandom",
                    &format!("of={}", bench.node()),
                    "bs=1024",
                    "seek=2",
                    "count=2",
                    "conv=fsync,notrunc",
                ],
            );
        }
        bench.edit(|record| {
            record.state = RecordState::Fs {
                fs_type: FsType::Ext4,
                fs_uuid,
                mounted,
            }
        });
        match bench.stage() {
            Ok(staged) => assert!(staged.formatted && expected),
            Err(error) => assert!(
                matches!(error, FsError::Mount { .. }) && !expected,
                "{error:?}"
            ),
        }
        assert_eq!(bench.ran.lock().unwrap().contains(&"mkfs.ext4"), expected);
    }
}

#[test]
fn a_whole_filesystem_that_does_not_mount_is_not_made_again() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    *bench.crash_before_mounted.lock().unwrap() = true;
    assert!(bench.stage().is_err());
    *bench.crash_before_mounted.lock().unwrap() = false;
    assert!(matches!(
        bench.state(),
        RecordState::Fs { mounted: false, .. }
    ));
    assert!(is_ours(&bench, FsType::Ext4));
    bench.ran.lock().unwrap().clear();
    // The kernel takes each by itself and answers EINVAL to both, as it does for a superblock that mkfs did not finish.
    let both = bench.stage_job(&["data=journal,delalloc"], false);
    let refused = bench.run_stage(&both);
    assert!(matches!(refused, Err(FsError::Mount { .. })), "{refused:?}");
    assert_eq!(*bench.ran.lock().unwrap(), [""; 0]);
    assert!(!bench.stage().unwrap().formatted);
}

// A sample of the directory below the mount point, or of none, would report a condition that the volume does not have.
#[test]
fn a_sample_beside_an_unmounting_is_of_the_volume_or_fails() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    bench.publish("a", false).unwrap();
    let whole = bench.stats("pods/a").unwrap().total_bytes;
    let (over, samples) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    match bench.stats("pods/a") {
                        Ok(usage) => {
                            assert_eq!((usage.unreadable, usage.total_bytes), (None, whole));
                            samples.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert!(matches!(error, FsError::NotHere { .. }), "{error:?}")
                        }
                    }
                }
            });
        }
        let mut unmounted = 0;
        for _ in 0..400 {
            // A sample holds it for a moment.
            unmounted += u32::from(bench.unmount("pods/a").is_ok());
            bench.publish("a", false).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(unmounted > 20 && samples.load(Ordering::Relaxed) > 20);
    });
    bench.unmount("pods/a").unwrap();
    bench.unmount("staging").unwrap();
}

#[test]
fn a_sample_writes_nothing_where_every_access_is_dated() {
    if skipped() {
        return;
    }
    for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        let mib = if fs_type == FsType::Xfs { 320 } else { 128 };
        let bench = Bench::new(mib, Some(fs_type));
        bench.edit(|record| record.mount_options = vec!["strictatime".to_owned()]);
        bench.stage().unwrap();
        bench.publish("a", false).unwrap();
        let target = bench.path("pods/a");
        let atime = || fs::metadata(&target).unwrap().atime();
        sh("touch", &["-a", "-d", "@1", &target.display().to_string()]);
        assert!(bench.stats("pods/a").unwrap().total_bytes > 0);
        assert_eq!(atime(), 1, "{fs_type:?}");
        // Anybody else's look is dated, or this would prove nothing.
        assert_eq!(
            fs::read_dir(&target)
                .unwrap()
                .filter(Result::is_err)
                .count(),
            0
        );
        assert!(atime() > 1, "{fs_type:?}");
        bench.unmount("pods/a").unwrap();
        bench.unmount("staging").unwrap();
    }
}

#[test]
fn read_only_staging_never_formats_and_never_writes() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    let read_only = bench.stage_job(&[], true);
    assert!(matches!(
        bench.run_stage(&read_only),
        Err(FsError::Incompatible { .. })
    ));
    assert_eq!(bench.signatures(), Signatures::Empty);
    bench.stage().unwrap();
    assert!(matches!(
        bench.run_stage(&read_only),
        Err(FsError::Conflict { .. })
    ));
    bench.unmount("staging").unwrap();
    bench.run_stage(&read_only).unwrap();
    assert!(fs::write(bench.path("staging/x"), "").is_err());
    assert!(bench.run_stage(&read_only).unwrap().already);
    assert!(matches!(
        bench.publish("a", false),
        Err(FsError::StagedOtherwise { .. })
    ));
    assert!(bench.publish("a", true).unwrap());
    assert!(
        !bench.publish("a", true).unwrap(),
        "a bind of a read-only mount is not a conflict with itself"
    );
    assert!(bench.stats("pods/a").unwrap().read_only);
    bench.unmount("pods/a").unwrap();
    assert!(
        bench.stage().unwrap().already,
        "read-only where writing is wanted is remounted"
    );
    fs::write(bench.path("staging/x"), "").unwrap();
}

#[test]
fn a_read_only_publish_is_never_writable_not_for_a_moment() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    fs::write(bench.path("staging/file"), "x").unwrap();
    let file = bench.path("pods/ro/file");
    let (written, refusals) = (AtomicBool::new(false), AtomicU32::new(0));
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Ends when `end` is dropped, also by a failing assertion.
        let end = end;
        let (file, written, refusals) = (&file, &written, &refusals);
        scope.spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                match fs::OpenOptions::new().write(true).open(file) {
                    Ok(_) => written.store(true, Ordering::Relaxed),
                    Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                        refusals.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {}
                }
            }
        });
        for _ in 0..300 {
            let before = refusals.load(Ordering::Relaxed);
            assert!(bench.publish("ro", true).unwrap());
            // On a busy machine the other thread may not have run at all meanwhile.
            while refusals.load(Ordering::Relaxed) == before && !written.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // An open in flight holds the mount for a moment, so a busy answer is expected here.
            while matches!(bench.unmount("pods/ro"), Err(FsError::Unmount { source, .. }) if source.errno() == Some(libc::EBUSY))
            {
            }
            assert_eq!(bench.mounts("pods/ro"), 0);
        }
        drop(end);
    });
    assert!(
        !written.into_inner(),
        "the file was opened for writing through a read-only publish"
    );
    assert!(bench.publish("ro", true).unwrap());
    assert!(!bench.publish("ro", true).unwrap());
    assert!(matches!(
        bench.publish("ro", false),
        Err(FsError::Conflict { .. })
    ));
    fs::write(
        bench.path("staging/file"),
        "the staging mount stays writable",
    )
    .unwrap();
}

#[test]
fn publishing_what_is_not_staged_leaves_nothing_behind() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    assert!(matches!(
        bench.publish("a", false),
        Err(FsError::NotStaged { .. })
    ));
    mount_fs(Path::new("tmpfs"), &bench.path("staging"), "tmpfs", 0, "").unwrap();
    assert!(matches!(
        bench.publish("a", false),
        Err(FsError::NotStaged { .. })
    ));
    assert!(matches!(bench.stage(), Err(FsError::Conflict { .. })));
    assert!(
        matches!(bench.unmount("staging"), Err(FsError::NotAVolume { .. })),
        "a foreign mount is not taken away"
    );
    assert!(!bench.path("pods/a").exists());
}

#[test]
fn unmounting_takes_every_stacked_mount_and_no_neighbour() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    bench.publish("mount", false).unwrap();
    bench.publish("mount2", false).unwrap();
    let target = bench.path("pods/mount");
    for _ in 0..3 {
        sh(
            "mount",
            &[
                "--bind",
                bench.path("staging").to_str().unwrap(),
                target.to_str().unwrap(),
            ],
        );
    }
    assert_eq!(bench.mounts("pods/mount"), 4);
    assert_eq!(bench.unmount("pods/mount").unwrap().count, 4);
    assert_eq!(bench.mounts("pods/mount2"), 1);
    assert!(!target.exists());
}

#[test]
fn a_path_through_a_symbolic_link_is_the_same_mount() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    std::os::unix::fs::symlink(bench.path("pods"), bench.path("link")).unwrap();
    bench.publish("../link/a", false).unwrap();
    assert!(!bench.publish("a", false).unwrap());
    assert_eq!(bench.unmount("link/a").unwrap().count, 1);
    assert!(!bench.path("pods/a").exists());
}

#[test]
fn a_busy_mount_is_named_with_its_holder_and_detached_only_when_allowed() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    let open = fs::File::create(bench.path("staging/open")).unwrap();
    match bench.unmount("staging") {
        Err(FsError::Unmount { hint, source, .. }) => {
            assert_eq!(source.errno(), Some(libc::EBUSY));
            assert!(
                hint.contains(&format!("pid {}", std::process::id())),
                "{hint}"
            );
        }
        other => panic!("{other:?}"),
    }
    let mut job = bench.unmount_job("staging");
    job.may_detach = true;
    let done =
        drivebay_fs::unmount::unmount(&job, &mut drivebay_worker::Context::silent()).unwrap();
    assert!(done.detached && done.count == 1);
    assert!(drivebay_fs::unmount::superblock_lives(&bench.device));
    drop(open);
}

#[test]
fn a_filesystem_that_shut_down_is_reported_and_unmounted() {
    if skipped() {
        return;
    }
    let bench = Bench::new(320, Some(FsType::Xfs));
    bench.stage().unwrap();
    bench.publish("a", false).unwrap();
    sh(
        "xfs_io",
        &[
            "-x",
            "-c",
            "shutdown",
            bench.path("staging").to_str().unwrap(),
        ],
    );
    let usage = bench.stats("pods/a").unwrap();
    assert_eq!(usage.unreadable, Some(libc::EIO));
    assert!(usage.total_bytes > 0);
    sh("losetup", &["-d", bench.drive.node().to_str().unwrap()]);
    assert_eq!(bench.unmount("pods/a").unwrap().count, 1);
    assert!(!bench.path("pods/a").exists());
    assert_eq!(bench.unmount("staging").unwrap().count, 1);
}

#[test]
fn xfs_gives_up_on_a_dying_drive() {
    if skipped() {
        return;
    }
    let bench = Bench::new(320, Some(FsType::Xfs));
    bench.stage().unwrap();
    for class in ["EIO", "ENODEV", "ENOSPC", "default"] {
        let file = format!(
            "/sys/fs/xfs/{}/error/metadata/{class}/max_retries",
            bench.device
        );
        assert_eq!(fs::read_to_string(file).unwrap().trim(), "0", "{class}");
    }
    // A class may leave it to the kernel, whose default is to retry without limit.
    bench.unmount("staging").unwrap();
    let mut job = bench.stage_job(&[], false);
    job.mount.as_mut().unwrap().xfs_retry_forever = true;
    bench.run_stage(&job).unwrap();
    let file = format!(
        "/sys/fs/xfs/{}/error/metadata/EIO/max_retries",
        bench.device
    );
    assert_eq!(fs::read_to_string(file).unwrap().trim(), "-1");
}

#[test]
fn ext4_with_its_error_flag_is_repaired_before_it_is_mounted_and_only_by_who_has_the_time() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.stage().unwrap();
    bench.unmount("staging").unwrap();
    sh("debugfs", &["-w", "-R", "ssv state 3", &bench.node()]);
    bench.ran.lock().unwrap().clear();
    let at_once = Stage {
        may_repair: false,
        ..bench.stage_job(&[], false)
    };
    let refused = bench.run_stage(&at_once);
    assert!(
        matches!(refused, Err(FsError::NeedsRepair { .. })),
        "{refused:?}"
    );
    assert_eq!(*bench.ran.lock().unwrap(), [""; 0]);
    // Who only reads it repairs nothing.
    bench.run_stage(&bench.stage_job(&[], true)).unwrap();
    assert_eq!(*bench.ran.lock().unwrap(), [""; 0]);
    bench.unmount("staging").unwrap();
    bench.stage().unwrap();
    assert_eq!(*bench.ran.lock().unwrap(), ["e2fsck"]);
}

#[test]
fn a_raw_volume_is_published_as_its_node_and_never_formatted() {
    if skipped() {
        return;
    }
    let bench = Bench::new(32, None);
    let job = Stage {
        drive: bench.drive.clone(),
        uuid: bench.uuid,
        mount: None,
        may_repair: false,
        secrets: None,
    };
    assert!(!bench.run_stage(&job).unwrap().already);
    assert_eq!(bench.state(), RecordState::Block);
    assert!(bench.run_stage(&job).unwrap().already);
    assert!(
        matches!(bench.stage(), Err(FsError::Incompatible { .. })),
        "asked for as a mount volume"
    );
    for _ in 0..3 {
        bench.publish("raw", false).unwrap();
        assert_eq!(bench.mounts("pods/raw"), 1);
    }
    let node = bench.path("pods/raw");
    assert!(fs::metadata(&node).unwrap().file_type().is_block_device());
    fs::OpenOptions::new().write(true).open(&node).unwrap();
    assert_eq!(bench.stats("pods/raw").unwrap().total_bytes, 32 * MIB);
    assert_eq!(bench.grow("pods/raw").unwrap().device_bytes, 32 * MIB);
    // Read-only beside it: the same again is OK, the opposite at the same target is not.
    assert!(bench.publish("reader", true).unwrap());
    assert!(!bench.publish("reader", true).unwrap());
    for (target, read_only) in [("reader", false), ("raw", true)] {
        let refused = bench.publish(target, read_only);
        assert!(matches!(refused, Err(FsError::Conflict { .. })), "{target}");
        assert_eq!(bench.mounts(&format!("pods/{target}")), 1);
    }
    assert_eq!(bench.stats("pods/reader").unwrap().total_bytes, 32 * MIB);
    assert_eq!(bench.grow("pods/reader").unwrap().device_bytes, 32 * MIB);
    assert_eq!(bench.unmount("pods/reader").unwrap().count, 1);
    assert!(!bench.path("pods/reader").exists());
    fs::write(bench.path("pods/file"), "").unwrap();
    assert!(matches!(
        bench.stats("pods/file"),
        Err(FsError::NotHere { .. })
    ));
    assert!(bench.ran.lock().unwrap().is_empty());
    assert_eq!(bench.signatures(), Signatures::Empty);
    assert_eq!(bench.unmount("pods/raw").unwrap().count, 1);
    assert!(!node.exists());
}

#[test]
fn a_read_only_mount_does_not_protect_a_device_node() {
    // Why whoever starts a container has to keep it from writing to a raw volume; see `publish`.
    if skipped() {
        return;
    }
    let bench = Bench::new(32, None);
    let target = bench.path("pods/raw");
    fs::write(&target, "").unwrap();
    let tree = drivebay_sys::mount::DetachedMount::clone_of(Path::new(&bench.node())).unwrap();
    tree.set_read_only().unwrap();
    tree.attach(&target).unwrap();
    fs::OpenOptions::new().write(true).open(&target).unwrap();
}

#[test]
fn a_partition_that_is_not_where_its_record_has_it_is_not_touched() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.edit(|record| record.extent.start += MIB);
    assert!(matches!(bench.stage(), Err(FsError::Unexpected { .. })));
    bench.edit(|record| record.extent.start -= MIB);
    let mut job = bench.stage_job(&[], false);
    job.drive.minor += 1;
    assert!(matches!(
        bench.run_stage(&job),
        Err(FsError::Unexpected { .. })
    ));
    assert_eq!(bench.signatures(), Signatures::Empty);
}

#[test]
fn hostile_options_stop_before_anything_is_written() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    for flag in [
        "bind",
        "remount,rw",
        "loop",
        "journal_path=/dev/loop0",
        "errors=panic",
    ] {
        let job = bench.stage_job(&[flag], false);
        assert!(
            matches!(bench.run_stage(&job), Err(FsError::Option { .. })),
            "{flag}"
        );
    }
    bench
        .edit(|record| record.mkfs_options = vec!["-J".to_owned(), "device=/dev/loop0".to_owned()]);
    assert!(matches!(bench.stage(), Err(FsError::Option { .. })));
    assert_eq!(bench.signatures(), Signatures::Empty);
    assert!(bench.ran.lock().unwrap().is_empty());
}

#[test]
fn mount_and_mkfs_options_take_effect() {
    if skipped() {
        return;
    }
    let bench = Bench::new(64, Some(FsType::Ext4));
    bench.edit(|record| {
        record.mkfs_options = ["-b", "1024", "-E", "stride=8", "-L", "mine"]
            .map(str::to_owned)
            .to_vec();
        record.mount_options = vec!["noatime".to_owned()];
    });
    bench
        .run_stage(&bench.stage_job(&["nodev,discard"], false))
        .unwrap();
    let entries = drivebay_sys::mountinfo::read().unwrap();
    let staged = entries
        .iter()
        .find(|entry| entry.mount_point.ends_with("staging"))
        .unwrap();
    assert!(staged.options.contains("noatime") && staged.options.contains("nodev"));
    assert!(
        staged.super_options.contains("discard")
            && staged.super_options.contains("errors=remount-ro")
    );
    assert!(sh("dumpe2fs", &["-h", &bench.node()]).contains("mine"));
}

/// Tools run where no volume's mount is to be seen, so none of them can tell by the mount table that a device is in use.
#[test]
fn a_device_whose_mount_a_tool_cannot_see_is_refused_and_left_as_it_is() {
    if skipped() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    tool_namespace::prepare(scratch.path()).unwrap();
    for (fs_type, mib) in [(FsType::Ext4, 32), (FsType::Xfs, 320), (FsType::Btrfs, 128)] {
        let bench = Bench::new(mib, Some(fs_type));
        bench.stage().unwrap();
        fs::write(bench.path("staging/data"), "precious").unwrap();
        sh("sync", &["-f", bench.path("staging").to_str().unwrap()]);
        let node = Path::new("/dev").join(&bench.device);
        let tools: [(&'static str, &[&str]); 5] = [
            ("mkfs.ext4", &["-q", "-F"]),
            ("mkfs.xfs", &["-q", "-f"]),
            ("mkfs.btrfs", &["-q", "-f"]),
            ("e2fsck", &["-f", "-y"]),
            ("xfs_repair", &[]),
        ];
        for (program, options) in tools {
            let mut args: Vec<OsString> = options.iter().map(OsString::from).collect();
            args.push(node.clone().into());
            let tool = Tool {
                program,
                args,
                env: Vec::new(),
                only: Some(node.clone()),
                deadline: Duration::from_secs(60),
            };
            let output = cmd::run(&tool).unwrap();
            let what = format!("{program} on a mounted {}: {output:?}", fs_type.as_str());
            assert_ne!(output.code, Some(0), "{what}");
            assert!(is_ours(&bench, fs_type), "{what}");
        }
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let data = fs::read_to_string(bench.path("staging/data")).unwrap();
        assert_eq!(data, "precious");
    }
}
