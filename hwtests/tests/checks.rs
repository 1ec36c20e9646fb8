//! Read-only checks of filesystems on drives made of files: their findings, that they change nothing, and that they yield to a stage.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, digest, need, rig::Placed, tools::must as run, wait,
};
use drivebay_model::{CheckMethod, CheckOutcome, Checked, Inconclusive};

/// A check begins seconds after the volume was unmounted, and takes less than one second.
const CHECKED: Duration = Duration::from_secs(60);
/// Every unmount is followed by a check.
const ALWAYS: &str = "[checks]\ninterval = \"0s\"\n";

async fn rig(more: &str) -> Rig {
    let more = more.to_owned();
    Rig::tuned(vec![DriveSpec::blank("a", 5 * GIB)], |settings| {
        settings.more = more;
    })
    .await
}

fn uuid(volume: &Placed) -> &str {
    volume.id.split('@').next().unwrap()
}

fn checked(rig: &Rig, volume: &Placed) -> Option<Checked> {
    let path = rig
        .shelf
        .dir()
        .join(format!("state/checks/{}.json", uuid(volume)));
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Waits for a result that differs from `before`. A check that an error makes due while the volume is still mounted is recorded as
/// deferred, which is not a result.
fn next_check(rig: &Rig, volume: &Placed, before: Option<&Checked>) -> Checked {
    let what = format!("volume {} is checked", volume.id);
    wait::until(CHECKED, &what, || {
        checked(rig, volume).filter(|now| Some(now) != before && !is_deferred(now))
    })
}

fn is_deferred(checked: &Checked) -> bool {
    let latest = checked.latest.as_ref();
    latest.is_some_and(|check| matches!(check.outcome, CheckOutcome::NotCheckable { .. }))
}

/// Writes directories and files, enough for metadata in several places. Returns the inode number of one file.
fn fill(target: &Path) -> u64 {
    for dir in 0..8 {
        let dir = target.join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..60 {
            fs::write(dir.join(format!("f{file}")), vec![7; 3000]).unwrap();
        }
    }
    fs::metadata(target.join("d5/f17")).unwrap().ino()
}

/// Returns a volume of each filesystem with files, all unmounted at the same time, each with its device and an inode number.
async fn used(rig: &Rig, fs_types: &[&'static str]) -> Vec<Used> {
    let mut all = Vec::new();
    for &fs_type in fs_types {
        let volume = rig.volume(fs_type, GIB, &csi::mount(fs_type)).await;
        rig.use_volume(&volume).await;
        let inode = fill(&volume.target);
        let device = rig.device(&volume).await;
        all.push(Used {
            fs_type,
            volume,
            device,
            inode,
        });
    }
    for used in &all {
        rig.leave_volume(&used.volume).await;
    }
    all
}

struct Used {
    fs_type: &'static str,
    volume: Placed,
    device: PathBuf,
    inode: u64,
}

/// Every supported filesystem. A check begins some seconds after an unmount; testing all together takes one wait.
const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

#[tokio::test]
async fn each_filesystem_is_checked_after_its_use_and_not_a_byte_changes() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "mkfs.xfs", fs "xfs", tool "mkfs.btrfs", fs "btrfs");
    let rig = rig("").await;
    let all = used(&rig, &FILESYSTEMS).await;
    let before = digest::of(&rig.shelf.file("a")).unwrap();
    for Used {
        fs_type, volume, ..
    } in &all
    {
        let checked = next_check(&rig, volume, None);
        let check = checked.conclusive.expect("it says something");
        assert_eq!(check.outcome, CheckOutcome::Clean, "{fs_type}: {check:?}");
        assert_eq!(check.method, Some(CheckMethod::Unmounted), "{fs_type}");
        assert_eq!(rig.reasons(volume).await, [""; 0], "{fs_type}");
    }
    assert_eq!(digest::of(&rig.shelf.file("a")).unwrap(), before);
    assert!(rig.agent.log().contains("filesystem check completed"));
    for used in &all {
        rig.use_volume(&used.volume).await;
        rig.leave_volume(&used.volume).await;
    }
}

/// Damages an unmounted volume in a way that a mount does not detect.
fn damage(fs_type: &str, device: &Path, inode: u64) {
    let node = device.to_str().unwrap();
    match fs_type {
        "ext4" => drop(run("debugfs", &["-w", "-R", "clri d3", node])),
        "xfs" => {
            let at = format!("inode {inode}");
            drop(run(
                "xfs_db",
                &["-x", "-c", &at, "-c", "write -d core.mode 0", node],
            ));
        }
        _ => {
            // A leaf in the middle of the tree of files: a mount reads the first and the last.
            let tree = run(
                "btrfs",
                &["inspect-internal", "dump-tree", "-t", "fs", node],
            );
            let leaves = tree.lines().filter_map(|line| line.strip_prefix("leaf "));
            let leaves: Vec<&str> = leaves.map(|line| line.split(' ').next().unwrap()).collect();
            assert!(leaves.len() > 2, "{leaves:?}");
            let middle = leaves[leaves.len() / 2];
            let copies = run("btrfs-map-logical", &["-l", middle, node]);
            let raw = fs::OpenOptions::new().write(true).open(device).unwrap();
            let mut hit = 0;
            for line in copies.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let Some(at) = words.iter().position(|word| *word == "physical") else {
                    continue;
                };
                raw.write_all_at(&[0x55; 4096], words[at + 1].parse().unwrap())
                    .unwrap();
                hit += 1;
            }
            assert_eq!(hit, 2, "metadata has two copies: {copies}");
            raw.sync_all().unwrap();
        }
    }
}

async fn damage_is_reported(rig: &Rig, all: &[Used]) {
    for Used {
        fs_type, volume, ..
    } in all
    {
        let condition = wait::until_async(CHECKED, "the damage is reported", async || {
            let conditions = rig.volume_of(&volume.id).await?.conditions;
            let mut conditions = conditions.into_iter();
            conditions.find(|one| one.reason == "FilesystemCorrupted")
        })
        .await;
        assert_eq!(condition.status, "DATA_LOSS", "{fs_type}");
        println!("{fs_type}: {}", condition.message);
    }
}

#[tokio::test]
async fn damaged_metadata_of_each_filesystem_is_found_and_reported_until_it_is_mended() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4", tool "mkfs.xfs", tool "xfs_db", fs "xfs", tool "mkfs.btrfs", tool "btrfs-map-logical", fs "btrfs");
    let mut rig = rig(ALWAYS).await;
    let quiet = rig.volume("quiet", 512 * MIB, &csi::mount("ext4")).await;
    let all = used(&rig, &FILESYSTEMS).await;
    let mut clean = Vec::new();
    for used in &all {
        let checked = next_check(&rig, &used.volume, None);
        assert_eq!(
            checked.latest.as_ref().unwrap().outcome,
            CheckOutcome::Clean,
            "{}",
            used.fs_type
        );
        clean.push(checked);
    }
    for used in &all {
        damage(used.fs_type, &used.device, used.inode);
        rig.use_volume(&used.volume).await;
    }
    for used in &all {
        rig.leave_volume(&used.volume).await;
    }
    for (used, clean) in all.iter().zip(&clean) {
        let checked = next_check(&rig, &used.volume, Some(clean));
        assert!(checked.is_corrupt(), "{}: {checked:?}", used.fs_type);
    }
    damage_is_reported(&rig, &all).await;
    let entries = rig.csi.list().await.unwrap();
    let condition = |id: &str| {
        let entry = entries
            .iter()
            .find(|entry| entry.volume.as_ref().unwrap().volume_id == id);
        let status = entry.unwrap().status.as_ref().unwrap();
        status.volume_condition.clone().unwrap()
    };
    for Used { volume, .. } in &all {
        let condition = condition(&volume.id);
        assert!(condition.abnormal);
        assert!(
            condition.message.contains("found its filesystem damaged"),
            "{condition:?}"
        );
    }
    assert!(!condition(&quiet.id).abnormal);

    // The result is persisted with its time, and reported by the next agent before its own check.
    rig.agent.stop().unwrap();
    rig.start_again().await;
    damage_is_reported(&rig, &all).await;

    let ext4 = &all[0];
    let status = Command::new("e2fsck")
        .arg("-fy")
        .arg(&ext4.device)
        .output()
        .unwrap()
        .status;
    assert_eq!(status.code(), Some(1), "e2fsck mends it");
    rig.use_volume(&ext4.volume).await;
    rig.leave_volume(&ext4.volume).await;
    wait::until_async(CHECKED, "the mended volume is well", async || {
        rig.reasons(&ext4.volume).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_log_that_was_not_replayed_is_no_damage() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_io", fs "xfs");
    let rig = rig(ALWAYS).await;
    let volume = rig.volume("a", GIB, &csi::mount("xfs")).await;
    rig.use_volume(&volume).await;
    fill(&volume.target);
    run(
        "xfs_io",
        &["-x", "-c", "shutdown -f", volume.target.to_str().unwrap()],
    );
    wait::until(CHECKED, "a check is deferred while it is mounted", || {
        checked(&rig, &volume).filter(is_deferred)
    });
    rig.leave_volume(&volume).await;
    let checked = next_check(&rig, &volume, None);
    let latest = checked.latest.unwrap().outcome;
    assert!(
        matches!(
            latest,
            CheckOutcome::Inconclusive {
                why: Inconclusive::DirtyLog,
                ..
            }
        ),
        "{latest:?}"
    );
    assert_eq!(checked.conclusive, None);
    let reasons = rig.reasons(&volume).await;
    assert!(
        !reasons.contains(&"FilesystemCorrupted".to_owned()),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn a_check_with_a_checker_older_than_the_filesystem_is_inconclusive() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    let rig = rig(ALWAYS).await;
    let Used { volume, device, .. } = used(&rig, &["ext4"]).await.remove(0);
    let before = next_check(&rig, &volume, None);
    assert_eq!(
        before.conclusive.as_ref().unwrap().outcome,
        CheckOutcome::Clean
    );
    // A feature that the kernel may ignore when it writes, and that is unknown to every e2fsck.
    run(
        "debugfs",
        &["-w", "-R", "feature FEATURE_C20", device.to_str().unwrap()],
    );
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
    let checked = next_check(&rig, &volume, Some(&before));
    let latest = checked.latest.unwrap().outcome;
    let CheckOutcome::Inconclusive { why, detail } = latest else {
        panic!("{latest:?}");
    };
    assert_eq!(why, Inconclusive::ToolTooOld, "{detail}");
    assert!(detail.contains("upgrade package e2fsprogs"), "{detail}");
    assert_eq!(
        checked.conclusive, before.conclusive,
        "the last result stays"
    );
    assert_eq!(rig.reasons(&volume).await, [""; 0]);
}

/// Creates a directory with an `e2fsck` that waits before it checks, and writes its process id to the file `begun` there.
fn slow_tools(dir: &Path) -> PathBuf {
    let tools = dir.join("tools");
    fs::create_dir(&tools).unwrap();
    let script = format!(
        "#!/bin/sh\nfor device; do :; done\nexec 9<$device\necho $$ >{0}/pid\nmv {0}/pid {0}/begun\nsleep 1000\nexec /usr/sbin/e2fsck \"$@\"\n",
        tools.display()
    );
    let program = tools.join("e2fsck");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    tools
}

/// Returns a rig, its only volume, which a slow tool is checking, and the tool's process id.
async fn being_checked() -> (Rig, Placed, u32) {
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 3 * GIB)], |settings| {
        settings.tools = Some(slow_tools(&settings.dir));
    })
    .await;
    let volume = used(&rig, &["ext4"]).await.remove(0).volume;
    let begun = rig.shelf.dir().join("tools/begun");
    let tool = wait::until(CHECKED, "the check begins", || {
        fs::read_to_string(&begun).ok()?.trim().parse().ok()
    });
    (rig, volume, tool)
}

/// True if any process of the tool's process group is alive.
fn is_alive(tool: u32) -> bool {
    let stats = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    // After the name, which may contain anything: state, parent, process group.
    let fields = |stat: String| -> Option<(String, u32)> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    stats
        .filter_map(fields)
        .any(|(state, group)| group == tool && state != "Z")
}

#[tokio::test]
async fn a_volume_that_is_wanted_again_is_staged_and_its_check_is_gone() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, tool) = being_checked().await;
    let running = || async {
        let inventory = rig.inventory().await;
        inventory.volumes[0]
            .running_check
            .clone()
            .map(|it| it.method)
    };
    assert_eq!(running().await.as_deref(), Some("unmounted"));
    rig.use_volume(&volume).await;
    assert_eq!(running().await, None);
    assert!(
        !is_alive(tool),
        "the tool is gone before the volume is mounted"
    );
    assert_eq!(
        checked(&rig, &volume),
        None,
        "what was called off is no result"
    );
    fs::write(volume.target.join("x"), "x").unwrap();
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn a_volume_that_is_checked_is_deleted_and_grown_as_any_other() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, tool) = being_checked().await;
    let size = GIB + 64 * MIB;
    rig.csi
        .expand(&volume.id, size, &volume.capability)
        .await
        .unwrap();
    assert!(!is_alive(tool));
    let begun = rig.shelf.dir().join("tools/begun");
    let tool = wait::until(CHECKED, "it is checked again", || {
        let pid = fs::read_to_string(&begun).ok()?.trim().parse().ok()?;
        (pid != tool).then_some(pid)
    });
    rig.csi.delete(&volume.id).await.unwrap();
    assert!(!is_alive(tool));
    rig.erased().await;
}

#[tokio::test]
async fn nothing_of_a_check_outlives_an_agent_that_is_killed() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume, tool) = being_checked().await;
    let worker = run("ps", &["-o", "ppid=", "-p", &tool.to_string()]);
    let worker: u32 = worker.trim().parse().unwrap();
    rig.agent.kill9();
    for (what, pid) in [("the tool", tool), ("its worker", worker)] {
        wait::until(Duration::from_secs(30), &format!("{what} is gone"), || {
            (!is_alive(pid)).then_some(())
        });
    }
    rig.start_again().await;
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
}

/// Returns a configuration with a window that is open now, and has been for more than half of its length.
fn open_window() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let clock = |at: u64| format!("{:02}:{:02}", at / 3600 % 24, at / 60 % 60);
    format!(
        "[checks]\ninterval = \"0s\"\nwindow = \"{}-{}\"\n",
        clock(now - 13 * 3600),
        clock(now + 10 * 3600)
    )
}

#[tokio::test]
async fn a_mounted_btrfs_is_scrubbed_in_its_window_and_damage_is_reported() {
    need!(root, loop, tool "mkfs.btrfs", tool "btrfs-map-logical", tool "filefrag", fs "btrfs");
    let rig = rig("").await;
    let volume = rig.volume("a", GIB, &csi::mount("btrfs")).await;
    rig.use_volume(&volume).await;
    let device = rig.device(&volume).await;
    fs::write(volume.target.join("big"), vec![0xA7; 8 << 20]).unwrap();
    run("sync", &["-f", volume.target.to_str().unwrap()]);
    let map = run(
        "filefrag",
        &["-v", "-b4096", volume.target.join("big").to_str().unwrap()],
    );
    let row = map
        .lines()
        .find(|line| line.trim_start().starts_with("0:"))
        .unwrap();
    let block: u64 = row
        .split_whitespace()
        .nth(3)
        .unwrap()
        .trim_end_matches('.')
        .parse()
        .unwrap();
    let node = device.to_str().unwrap();
    let copies = run(
        "btrfs-map-logical",
        &["-l", &(block * 4096).to_string(), node],
    );
    let words: Vec<&str> = copies.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "physical").unwrap();
    let at: u64 = words[at + 1].parse().unwrap();
    rig.leave_volume(&volume).await;
    let rig = in_window(rig).await;

    rig.use_volume(&volume).await;
    let clean = wait::until(CHECKED, "it is scrubbed", || {
        checked(&rig, &volume).filter(|now| {
            now.latest
                .as_ref()
                .is_some_and(|check| check.method == Some(CheckMethod::Scrub))
        })
    });
    assert_eq!(clean.latest.as_ref().unwrap().outcome, CheckOutcome::Clean);
    rig.leave_volume(&volume).await;

    let raw = fs::OpenOptions::new().write(true).open(&device).unwrap();
    raw.write_all_at(&[0x55; 4096], at).unwrap();
    raw.sync_all().unwrap();
    drop(raw);
    // A volume scrubbed a moment ago is not due for hours; without the persisted state it is due at once.
    let file = rig
        .shelf
        .dir()
        .join(format!("state/checks/{}.json", uuid(&volume)));
    let mut rig = rig;
    rig.agent.stop().unwrap();
    fs::remove_file(file).unwrap();
    rig.start_again().await;
    rig.use_volume(&volume).await;
    wait::until_async(CHECKED, "the damage is reported", async || {
        let reasons = rig.reasons(&volume).await;
        reasons
            .contains(&"FilesystemCorrupted".to_owned())
            .then_some(())
    })
    .await;
    rig.leave_volume(&volume).await;
}

/// Restarts the rig's agent with an open window.
async fn in_window(mut rig: Rig) -> Rig {
    rig.agent.stop().unwrap();
    let config = rig.agent.settings().config();
    let text = fs::read_to_string(&config).unwrap() + &open_window();
    fs::write(&config, text).unwrap();
    rig.start_again().await;
    rig
}
