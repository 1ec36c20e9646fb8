//! Changes to a volume's mounts without the agent are reported for that volume until they are undone; those by its orchestrator are no
//! condition; filesystem errors; what persists across a restart. On loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, long_on_drives, need, rig::Placed, tools::must as run, wait,
};
use drivebay_proto::{
    agent as wire,
    csi::{self as api, volume_capability::AccessType},
};

/// Most is reported at once; what a poll detects takes up to a minute, until the drive's turn.
const REPORT_LIMIT: Duration = Duration::from_secs(150);

async fn rig() -> Rig {
    Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await
}

async fn is_reported(rig: &Rig, volume: &Placed, status: &str, reason: &str) -> wire::Condition {
    let condition = rig.has_condition(volume, reason).await;
    assert_eq!(condition.status, status);
    condition
}

async fn quiet(rig: &Rig, volume: &Placed) {
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().conditions, []);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_mount_that_somebody_took_away_is_missed_until_it_is_put_back_or_given_up() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = rig().await;
    let (volume, other) = rig.two_in_use("ext4").await;
    let device = rig.device(&volume).await;

    run("umount", &[text(&volume.staging)]);
    let missing = is_reported(&rig, &volume, "INACCESSIBLE", "StagingMountMissing").await;
    assert!(
        missing.message.contains(text(&volume.staging)),
        "{missing:?}"
    );
    run("mount", &[text(&device), text(&volume.staging)]);
    rig.is_well(&volume).await;

    run("umount", &[text(&volume.target)]);
    is_reported(&rig, &volume, "INACCESSIBLE", "TargetMountMissing").await;
    // The kubelet samples the target, and gets an answer with usage.
    let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    let condition = stats.volume_condition.unwrap();
    assert!(condition.abnormal);
    assert!(
        condition.message.contains("is not mounted any more"),
        "{condition:?}"
    );
    assert!(stats.usage[0].total > 0);
    let elsewhere = rig.csi.stats(&volume.id, Path::new("/some/path")).await;
    assert_eq!(elsewhere.unwrap_err().code(), tonic::Code::NotFound);
    run(
        "mount",
        &["--bind", text(&volume.staging), text(&volume.target)],
    );
    rig.is_well(&volume).await;

    for path in [&volume.target, &volume.staging] {
        run("umount", &[text(path)]);
    }
    is_reported(&rig, &volume, "INACCESSIBLE", "TargetMountMissing").await;
    quiet(&rig, &other).await;
    rig.leave_volume(&volume).await;
    rig.is_well(&volume).await;
}

#[tokio::test]
async fn a_target_that_something_else_is_mounted_at_is_reported_until_that_is_gone() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = rig().await;
    let (volume, other) = rig.two_in_use("ext4").await;
    run("mount", &["-t", "tmpfs", "none", text(&volume.target)]);
    is_reported(&rig, &volume, "INACCESSIBLE", "WrongDevice").await;
    run("umount", &[text(&volume.target)]);
    rig.is_well(&volume).await;
    // Another volume is no better than any other wrong source.
    run("umount", &[text(&volume.target)]);
    run(
        "mount",
        &["--bind", text(&other.target), text(&volume.target)],
    );
    is_reported(&rig, &volume, "INACCESSIBLE", "WrongDevice").await;
    quiet(&rig, &other).await;
    // Unpublishing this volume must not unmount another one.
    let refused = rig.csi.unpublish(&volume.id, &volume.target).await;
    let status = refused.expect_err("another volume was unmounted");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    run("umount", &[text(&volume.target)]);
    rig.leave_volume(&volume).await;
    rig.is_well(&volume).await;
}

#[tokio::test]
async fn a_mount_that_turned_read_only_is_reported_until_it_is_writable_and_a_requested_one_is_not()
{
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = rig().await;
    let (volume, other) = rig.two_in_use("ext4").await;
    let target = text(&volume.target);
    run("mount", &["-o", "remount,bind,ro", target]);
    is_reported(&rig, &volume, "DEGRADED", "ReadOnly").await;
    run("mount", &["-o", "remount,bind,rw", target]);
    rig.is_well(&volume).await;
    // The whole filesystem is remounted.
    run("mount", &["-o", "remount,ro", text(&volume.staging)]);
    is_reported(&rig, &volume, "DEGRADED", "ReadOnly").await;
    run("mount", &["-o", "remount,rw", text(&volume.staging)]);
    rig.is_well(&volume).await;

    rig.csi.unpublish(&other.id, &other.target).await.unwrap();
    let published = rig.csi.publish(
        &other.id,
        &other.staging,
        &other.target,
        &other.capability,
        true,
    );
    published.await.unwrap();
    // The next reported condition was detected after that change.
    run("umount", &[target]);
    is_reported(&rig, &volume, "INACCESSIBLE", "TargetMountMissing").await;
    quiet(&rig, &other).await;
}

#[tokio::test]
async fn a_block_volume_whose_node_is_taken_away_is_missed() {
    need!(root, loop);
    let rig = rig().await;
    let volume = rig.volume("raw", 512 * MIB, &csi::block()).await;
    rig.use_volume(&volume).await;
    run("umount", &[text(&volume.target)]);
    is_reported(&rig, &volume, "INACCESSIBLE", "TargetMountMissing").await;
    rig.leave_volume(&volume).await;
    rig.is_well(&volume).await;
}

#[tokio::test]
async fn pods_that_come_and_go_are_no_trouble() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = rig().await;
    let (one, other) = rig.two_in_use("ext4").await;
    for round in 0..50 {
        let (one, other) = tokio::join!(
            async {
                rig.leave_volume(&one).await;
                rig.use_volume(&one).await;
                rig.reasons(&one).await
            },
            async {
                rig.csi.unpublish(&other.id, &other.target).await.unwrap();
                rig.publish(&other).await;
                rig.reasons(&other).await
            }
        );
        assert_eq!((one, other), (vec![], vec![]), "round {round}");
    }
    // A temporary condition is in the log.
    let log = rig.agent.log();
    let logged = wait::line(&log, &["reason="]);
    assert_eq!(logged, None);
}

#[tokio::test]
async fn a_path_that_a_caller_names_raises_no_condition_of_a_volume_that_is_not_there() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = rig().await;
    let (volume, other) = rig.two_in_use("ext4").await;
    let file = rig.dir().join("file");
    fs::write(&file, "").unwrap();
    let raw = rig.volume("raw", 256 * MIB, &csi::block()).await;
    rig.use_volume(&raw).await;
    for path in [
        &file,
        &file.join("below"),
        &rig.dir().join("x".repeat(300)),
        &PathBuf::from(format!("/{}", "x/".repeat(3000))),
        Path::new("/proc/self/root"),
        Path::new("/proc/self/fd/0"),
        Path::new("/proc/1/mem"),
        Path::new("/"),
        &other.target,
    ] {
        for volume in [&volume, &raw] {
            let stats = rig.csi.stats(&volume.id, path).await;
            let refused = stats.map(|stats| stats.volume_condition).unwrap_err();
            assert_eq!(
                refused.code(),
                tonic::Code::NotFound,
                "{path:?}: {refused:?}"
            );
        }
    }
    // A volume that is not staged need not be mounted.
    let request = api::NodeGetVolumeStatsRequest {
        volume_id: volume.id.clone(),
        volume_path: text(&volume.target).to_owned(),
        staging_target_path: "/some/path".to_owned(),
    };
    let stats = rig.csi.node().node_get_volume_stats(request).await;
    let condition = stats.unwrap().into_inner().volume_condition.unwrap();
    assert!(!condition.abnormal, "{condition:?}");
    for volume in [&volume, &raw, &other] {
        quiet(&rig, volume).await;
    }
}

#[tokio::test]
async fn a_filesystem_that_is_gone_is_reported_with_the_answer_to_the_call_that_finds_it_gone() {
    need!(root, loop, tool "mkfs.ext4", tool "wipefs", fs "ext4");
    let mut rig = rig().await;
    let (volume, other) = rig.two_in_use("ext4").await;
    let device = rig.device(&volume).await;
    rig.leave_volume(&volume).await;
    let head = fs::read(&device)
        .map(|bytes| bytes[..4096].to_vec())
        .unwrap();
    run("wipefs", &["--all", "--quiet", text(&device)]);
    let stage = |rig: &Rig, flags: &[&str]| {
        let mut capability = csi::mount("ext4");
        if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
            mount.mount_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        }
        let (csi, id, staging) = (rig.csi.clone(), volume.id.clone(), volume.staging.clone());
        async move { csi.stage(&id, &staging, &capability).await }
    };
    stage(&rig, &[]).await.unwrap_err();
    let conditions = rig.volume_of(&volume.id).await.unwrap().conditions;
    let reported: Vec<_> = conditions
        .iter()
        .map(|one| (one.status.as_str(), one.reason.as_str()))
        .collect();
    assert_eq!(reported, [("DATA_LOSS", "FilesystemNotFound")]);
    let health = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(health.status.code(), Some(1));
    // The next agent knows it without a stage.
    let state = rig.dir().join("state/health.json");
    wait::until(REPORT_LIMIT, "it is written down", || {
        let written = fs::read_to_string(&state).unwrap_or_default();
        written.contains("FilesystemNotFound").then_some(())
    });
    rig.agent.stop().unwrap();
    rig.start_again().await;
    is_reported(&rig, &volume, "DATA_LOSS", "FilesystemNotFound").await;
    quiet(&rig, &other).await;

    fs::OpenOptions::new()
        .write(true)
        .open(&device)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &head, 0))
        .unwrap();
    rig.use_volume(&volume).await;
    quiet(&rig, &volume).await;
    rig.leave_volume(&volume).await;
    // Mount options that the kernel refuses are the caller's error.
    stage(&rig, &["nosuchoption"]).await.unwrap_err();
    quiet(&rig, &volume).await;
}

/// Returns the messages of the abnormal conditions in `ListVolumes` and `ControllerGetVolume`, in the form of CSI 1.12, where a message
/// begins with the reason.
async fn listed(rig: &Rig, volume: &Placed) -> Vec<String> {
    let all = rig.csi.list().await.unwrap();
    let is_it = |entry: &&api::list_volumes_response::Entry| {
        let listed = entry.volume.as_ref();
        listed.is_some_and(|one| one.volume_id == volume.id)
    };
    let entry = all.iter().find(is_it).unwrap();
    let in_list = entry.status.as_ref().unwrap().volume_condition.clone();
    let request = api::ControllerGetVolumeRequest {
        volume_id: volume.id.clone(),
    };
    let got = rig.csi.controller().controller_get_volume(request).await;
    let alone = got.unwrap().into_inner().status.unwrap().volume_condition;
    let both = [in_list, alone].map(|condition| condition.unwrap());
    let abnormal = both.into_iter().filter(|condition| condition.abnormal);
    abnormal.map(|condition| condition.message).collect()
}

#[tokio::test]
async fn a_filesystem_that_cannot_be_grown_is_reported_until_it_is_grown() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_growfs", fs "xfs");
    let mut refuses = PathBuf::new();
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 4 * GIB)], |settings| {
        let tools = settings.dir.join("tools");
        fs::create_dir_all(&tools).unwrap();
        refuses = tools.join("refuses");
        let script = tools.join("xfs_growfs");
        let text = format!(
            "#!/bin/sh\nif test -e {}; then echo 'xfs_growfs: cannot resize' >&2; exit 1; fi\nPATH=/usr/sbin:/sbin:/usr/bin:/bin exec xfs_growfs \"$@\"\n",
            refuses.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        settings.tools = Some(tools);
    })
    .await;
    let volume = rig.volume("v", 512 * MIB, &csi::mount("xfs")).await;
    rig.use_volume(&volume).await;
    fs::write(&refuses, "").unwrap();
    let capability = csi::mount("xfs");
    let grown = rig.csi.expand(&volume.id, GIB, &capability).await;
    let (size, on_the_node) = grown.unwrap();
    assert_eq!((size, on_the_node), (GIB as i64, true));
    let grow = async || {
        let path = &volume.target;
        rig.csi.node_expand(&volume.id, path, GIB).await
    };
    let failed = grow().await.unwrap_err();
    assert!(failed.message().contains("cannot resize"), "{failed:?}");
    let conditions = rig.volume_of(&volume.id).await.unwrap().conditions;
    let reported: Vec<_> = conditions
        .iter()
        .map(|one| (one.status.as_str(), one.reason.as_str()))
        .collect();
    assert_eq!(reported, [("DEGRADED", "FilesystemNotGrown")]);
    let listed_while_small =
        wait::until_async(REPORT_LIMIT, "the controller lists it", async || {
            let messages = listed(&rig, &volume).await;
            (messages.len() == 2).then_some(messages)
        })
        .await;
    for message in listed_while_small {
        assert!(message.contains("FilesystemNotGrown"), "{message}");
    }
    let health = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(health.status.code(), Some(1));
    let output = String::from_utf8(health.stdout).unwrap();
    assert!(output.contains("FilesystemNotGrown"), "{output}");
    // A repeated stage, and another one, find it equally small.
    grow().await.unwrap_err();
    rig.leave_volume(&volume).await;
    rig.use_volume(&volume).await;
    assert_eq!(rig.reasons(&volume).await, ["FilesystemNotGrown"]);

    fs::remove_file(&refuses).unwrap();
    grow().await.unwrap();
    quiet(&rig, &volume).await;
    wait::until_async(
        REPORT_LIMIT,
        "the controller lists it as well",
        async || listed(&rig, &volume).await.is_empty().then_some(()),
    )
    .await;
    let health = rig.agent.run_command(&["health"]).unwrap();
    let output = String::from_utf8(health.stdout).unwrap();
    assert!(!output.contains("FilesystemNotGrown"), "{output}");
    rig.leave_volume(&volume).await;
}

/// Stages a volume with these mount flags.
async fn staged_with(
    rig: &Rig,
    volume: &Placed,
    fs_type: &str,
    flags: &[&str],
) -> Result<(), tonic::Status> {
    let mut capability = csi::mount(fs_type);
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        mount.mount_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    }
    rig.csi
        .stage(&volume.id, &volume.staging, &capability)
        .await
}

/// Tests a superblock that the kernel refuses with EINVAL, as it does a wrong option: the first is the volume's condition when the call
/// returns, the second the caller's error.
async fn refused_with_einval(fs_type: &str, wrong: &[&str], damage: impl FnOnce(&str)) {
    let rig = rig().await;
    let volume = rig.volume("v", 512 * MIB, &csi::mount(fs_type)).await;
    rig.use_volume(&volume).await;
    let device = rig.device(&volume).await;
    rig.leave_volume(&volume).await;
    let refused = staged_with(&rig, &volume, fs_type, wrong)
        .await
        .unwrap_err();
    assert!(refused.message().contains("option"), "{refused:?}");
    quiet(&rig, &volume).await;

    let head = fs::read(&device).map(|bytes| bytes[..4096].to_vec());
    damage(text(&device));
    let refused = staged_with(&rig, &volume, fs_type, &[]).await.unwrap_err();
    assert!(
        refused.message().contains("Invalid argument"),
        "{refused:?}"
    );
    let conditions = rig.volume_of(&volume.id).await.unwrap().conditions;
    let reported: Vec<_> = conditions
        .iter()
        .map(|one| (one.status.as_str(), one.reason.as_str()))
        .collect();
    assert_eq!(reported, [("DATA_LOSS", "FilesystemCorrupted")]);
    assert!(
        conditions[0].message.contains("the kernel logged"),
        "{conditions:?}"
    );
    // A wrong option neither raises nor clears a condition.
    staged_with(&rig, &volume, fs_type, wrong)
        .await
        .unwrap_err();
    assert_eq!(rig.reasons(&volume).await, ["FilesystemCorrupted"]);

    fs::OpenOptions::new()
        .write(true)
        .open(&device)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &head.unwrap(), 0))
        .unwrap();
    rig.use_volume(&volume).await;
    quiet(&rig, &volume).await;
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn an_ext4_that_the_kernel_refuses_is_reported_as_damaged_and_a_wrong_option_is_not() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    // Each is a valid option; the kernel refuses both together.
    refused_with_einval("ext4", &["data=journal", "delalloc"], |device| {
        run(
            "debugfs",
            &["-w", "-R", "ssv blocks_count 99999999", device],
        );
    })
    .await;
}

#[tokio::test]
async fn an_xfs_that_the_kernel_refuses_is_reported_as_damaged_and_a_wrong_option_is_not() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_db", fs "xfs");
    refused_with_einval("xfs", &["logbufs=99"], |device| {
        let write = "write -d rootino 7777777";
        run("xfs_db", &["-x", "-c", "sb 0", "-c", write, device]);
    })
    .await;
}

/// Writes a script that runs the agent without a kernel log, for the agent only.
fn without_kernel_log(dir: &Path) -> PathBuf {
    let script = dir.join("deaf");
    let text = "#!/bin/sh\nexec unshare --mount --propagation unchanged sh -c 'mount --make-private /dev && mount --bind /dev/null /dev/kmsg && exec \"$0\" \"$@\"' \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    script
}

/// A directory shared between mount namespaces: mounts there by an agent in a private namespace are visible here.
struct Shared(PathBuf);

impl Shared {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        run("mount", &["--bind", text(&dir), text(&dir)]);
        run("mount", &["--make-shared", text(&dir)]);
        Self(dir)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Already unmounted if the shelf was cleared first; the output is ignored.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[tokio::test]
async fn an_error_that_a_filesystem_reports_is_received_without_the_kernel_log_and_listening_keeps_nothing_mounted()
 {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "unshare");
    long_on_drives!();
    let mut shared = None;
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 4 * GIB)], |settings| {
        shared = Some(Shared::new(settings.dir.join("kubelet")));
        settings.under = without_kernel_log(&settings.dir).display().to_string();
    })
    .await;
    let log = rig.agent.log();
    assert!(wait::line(&log, &["cannot read the kernel log"]).is_some());
    let (volume, other) = rig.two_in_use("ext4").await;
    let device = rig.device(&volume).await;
    let counters = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
    for _ in 0..2 {
        fs::write(counters.join("trigger_fs_error"), "a test's error").unwrap();
        is_reported(&rig, &volume, "DEGRADED", "FilesystemError").await;
        let log = rig.agent.log();
        assert!(
            wait::line(&log, &["filesystem error event"]).is_some(),
            "{log}"
        );
        quiet(&rig, &other).await;
        rig.leave_volume(&volume).await;
        assert!(!counters.exists(), "nothing keeps the superblock");
        // The watch was renewed, or this would not be reported again.
        rig.use_volume(&volume).await;
        rig.is_well(&volume).await;
    }
    for volume in [&volume, &other] {
        rig.leave_volume(volume).await;
    }
    drop(rig);
    drop(shared);
}

#[tokio::test]
async fn the_next_agent_has_persisted_conditions_and_those_logged_meanwhile_and_each_once() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_io", fs "xfs");
    let mut rig = rig().await;
    let (first, second) = rig.two_in_use("xfs").await;
    let shut_down =
        |volume: &Placed| run("xfs_io", &["-x", "-c", "shutdown", text(&volume.target)]);
    shut_down(&first);
    is_reported(&rig, &first, "INACCESSIBLE", "FilesystemShutDown").await;
    let state = rig.dir().join("state/health.json");
    wait::until(REPORT_LIMIT, "it is written down", || {
        let written = fs::read_to_string(&state).unwrap_or_default();
        written.contains("FilesystemShutDown").then_some(())
    });
    rig.agent.kill9();
    shut_down(&second);
    run("umount", &[text(&second.target)]);
    rig.start_again().await;
    is_reported(&rig, &first, "INACCESSIBLE", "FilesystemShutDown").await;
    is_reported(&rig, &second, "INACCESSIBLE", "FilesystemShutDown").await;
    is_reported(&rig, &second, "INACCESSIBLE", "TargetMountMissing").await;

    for volume in [&first, &second] {
        rig.leave_volume(volume).await;
        rig.use_volume(volume).await;
        rig.is_well(volume).await;
    }
    rig.agent.stop().unwrap();
    rig.start_again().await;
    // Read after all earlier messages.
    shut_down(&first);
    is_reported(&rig, &first, "INACCESSIBLE", "FilesystemShutDown").await;
    quiet(&rig, &second).await;
}
