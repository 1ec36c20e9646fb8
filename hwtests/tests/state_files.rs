//! State of the agent that cannot be saved, or was lost, is reported and never believed; a full runtime directory keeps nothing
//! mounted. On loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, need, scrape, tools::must as run, tree, wait,
};

/// The agent retries within seconds, and publishes at once.
const SOON: Duration = Duration::from_secs(30);

/// Exit code, and everything that a command printed.
fn ask(rig: &Rig, line: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = rig.agent.ask(&words).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Waits until `health` reports this code, or no longer does.
fn health_has(rig: &Rig, code: &str, wanted: bool) {
    wait::until(SOON, &format!("health reports {code}: {wanted}"), || {
        let (exit, text) = ask(rig, "health");
        let has = text.contains(code);
        assert!(
            !has || exit == Some(1),
            "reported, and exit code {exit:?}: {text}"
        );
        (has == wanted).then_some(())
    });
}

fn trouble(rig: &Rig, file: &str, trouble: &str) -> Option<f64> {
    let page = scrape::scrape(&rig.agent.settings().metrics_socket()).unwrap();
    let labels = [format!("file=\"{file}\""), format!("trouble=\"{trouble}\"")];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    scrape::value(&page, "drivebay_state_file_trouble", &labels)
}

#[tokio::test]
async fn a_mount_by_hand_that_cannot_be_saved_is_neither_made_nor_forgotten() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    let at = |name: &str| {
        let path = rig.dir().join("srv").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (db, web) = (at("db"), at("web"));
    for name in ["db", "web"] {
        let (code, text) = ask(
            &rig,
            &format!("volume create {name} --size 256MiB --fs ext4"),
        );
        assert_eq!(code, Some(0), "{text}");
    }
    let mount =
        |name: &str, path: &Path| format!("volume mount {name} {} --persist", path.display());
    let (code, text) = ask(&rig, &mount("db", &db));
    assert_eq!(code, Some(0), "{text}");
    // A directory in the temporary file's place: what a read-only directory is to anybody but root.
    let in_the_way = rig.dir().join("state/hand-mounts.json.new");
    fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let (code, text) = ask(&rig, &mount("web", &web));
        assert_ne!(code, Some(0), "{text}");
        assert_eq!(tree::mounted_times(&web), 0);
        let (code, text) = ask(&rig, "volume unmount db");
        assert_ne!(code, Some(0), "{text}");
    }
    health_has(&rig, "StateNotSaved", true);
    assert_eq!(trouble(&rig, "hand-mounts.json", "not-saved"), Some(1.0));
    let file = fs::read_to_string(rig.dir().join("state/hand-mounts.json")).unwrap();
    assert!(
        file.contains("srv/db") && !file.contains("srv/web"),
        "{file}"
    );
    // The next agent knows what this one knows.
    rig.agent.stop().unwrap();
    rig.start_again().await;
    let (code, text) = ask(&rig, "volume unmount db");
    assert_ne!(code, Some(0), "{text}");
    fs::remove_dir(&in_the_way).unwrap();
    let (code, text) = ask(&rig, "volume unmount db");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = ask(&rig, &mount("web", &web));
    assert_eq!(code, Some(0), "{text}");
    health_has(&rig, "StateNotSaved", false);
    assert_eq!(trouble(&rig, "hand-mounts.json", "not-saved"), None);
    let file = fs::read_to_string(rig.dir().join("state/hand-mounts.json")).unwrap();
    assert!(
        !file.contains("srv/db") && file.contains("srv/web"),
        "{file}"
    );
    let (code, text) = ask(&rig, "volume unmount web");
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn state_that_was_damaged_is_reported_until_its_copy_is_removed() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    health_has(&rig, "StateLost", false);
    rig.agent.stop().unwrap();
    let state = rig.dir().join("state");
    for name in ["known.json", "tombstones.json"] {
        fs::write(state.join(name), "{ torn").unwrap();
    }
    for _ in 0..2 {
        rig.start_again().await;
        health_has(&rig, "StateLost", true);
        let (_, text) = ask(&rig, "health");
        for name in ["known.json.bad-1", "tombstones.json.bad-1"] {
            assert!(text.replace('\n', " ").contains(name), "{text}");
        }
        assert_eq!(trouble(&rig, "tombstones.json", "set-aside"), Some(1.0));
        rig.agent.stop().unwrap();
    }
    for name in ["known.json.bad-1", "tombstones.json.bad-1"] {
        fs::remove_file(state.join(name)).unwrap();
    }
    rig.start_again().await;
    health_has(&rig, "StateLost", false);
}

#[tokio::test]
async fn state_that_cannot_be_read_is_left_alone_and_reported() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.agent.stop().unwrap();
    // A directory cannot be read as a file, also by root.
    let file = rig.dir().join("state/tombstones.json");
    let _ = fs::remove_file(&file);
    fs::create_dir_all(&file).unwrap();
    rig.start_again().await;
    health_has(&rig, "StateNotRead", true);
    assert!(file.is_dir());
    rig.agent.stop().unwrap();
    fs::remove_dir(&file).unwrap();
    rig.start_again().await;
    health_has(&rig, "StateNotRead", false);
}

/// A small filesystem in memory, for as long as it lives.
struct Small(PathBuf);

impl Small {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                "size=1M",
                "none",
                path.to_str().unwrap(),
            ],
        );
        Self(path)
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("full")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        assert!(fs::write(self.0.join("more"), "x").is_err(), "it is full");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[tokio::test]
async fn with_a_full_runtime_directory_the_agent_starts_and_volumes_are_unmounted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut small = None;
    let mut rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        small = Some(Small::at(settings.runtime.clone()));
    })
    .await;
    let small = small.unwrap();
    let volume = rig.volume("v", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    rig.agent.stop().unwrap();
    // As after a boot: no room is left by files of an earlier agent.
    let _ = fs::remove_file(small.0.join("agent.lock"));
    small.fill();
    rig.node.csi = rig.agent.start_unready().await.unwrap();
    rig.csi.unpublish(&volume.id, &volume.target).await.unwrap();
    rig.csi.unstage(&volume.id, &volume.staging).await.unwrap();
    assert_eq!(tree::mounted_times(&volume.staging), 0);
    fs::remove_file(small.0.join("full")).unwrap();
    rig.rescan().await;
    rig.drive_is("a", "claimed").await;
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
    drop(rig);
}
