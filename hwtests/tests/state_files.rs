//! Agent state that cannot be saved, or was lost, is reported and never assumed; a full runtime directory keeps nothing mounted. On loop
//! devices.
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

/// The agent retries within seconds, and publishes the result at once.
const SOON: Duration = Duration::from_secs(30);
/// An unreadable file is read again about every 20 s.
const READ_AGAIN: Duration = Duration::from_secs(90);

/// Runs a command. Returns its exit code and its whole output.
fn call(rig: &Rig, line: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = rig.agent.run_command(&words).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Waits until `health` reports this code, or no longer does.
fn health_has(rig: &Rig, code: &str, wanted: bool) {
    wait::until(SOON, &format!("health reports {code}: {wanted}"), || {
        let (exit, text) = call(rig, "health");
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
        let (code, text) = call(
            &rig,
            &format!("volume create {name} --size 256MiB --fs ext4"),
        );
        assert_eq!(code, Some(0), "{text}");
    }
    let mount =
        |name: &str, path: &Path| format!("volume mount {name} {} --persist", path.display());
    let (code, text) = call(&rig, &mount("db", &db));
    assert_eq!(code, Some(0), "{text}");
    // A directory in place of the temporary file: has the effect that a read-only directory has for users other than root.
    let in_the_way = rig.dir().join("state/hand-mounts.json.new");
    fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let (code, text) = call(&rig, &mount("web", &web));
        assert_ne!(code, Some(0), "{text}");
        assert_eq!(tree::mounted_times(&web), 0);
        let (code, text) = call(&rig, "volume unmount db");
        assert_ne!(code, Some(0), "{text}");
    }
    health_has(&rig, "StateNotSaved", true);
    assert_eq!(trouble(&rig, "hand-mounts.json", "not-saved"), Some(1.0));
    let file = fs::read_to_string(rig.dir().join("state/hand-mounts.json")).unwrap();
    assert!(
        file.contains("srv/db") && !file.contains("srv/web"),
        "{file}"
    );
    // The next agent knows the state of this one.
    rig.agent.stop().unwrap();
    rig.start_again().await;
    let (code, text) = call(&rig, "volume unmount db");
    assert_ne!(code, Some(0), "{text}");
    fs::remove_dir(&in_the_way).unwrap();
    let (code, text) = call(&rig, "volume unmount db");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = call(&rig, &mount("web", &web));
    assert_eq!(code, Some(0), "{text}");
    health_has(&rig, "StateNotSaved", false);
    assert_eq!(trouble(&rig, "hand-mounts.json", "not-saved"), None);
    let file = fs::read_to_string(rig.dir().join("state/hand-mounts.json")).unwrap();
    assert!(
        !file.contains("srv/db") && file.contains("srv/web"),
        "{file}"
    );
    let (code, text) = call(&rig, "volume unmount web");
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
        let (_, text) = call(&rig, "health");
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

#[tokio::test]
async fn state_that_can_be_read_again_is_taken_up_without_a_restart_and_never_written_over() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![
        DriveSpec::blank("a", 2 * GIB),
        DriveSpec::blank("b", 2 * GIB),
    ])
    .await;
    for name in ["a", "b"] {
        rig.drive_is(name, "available").await;
    }
    let (code, text) = call(&rig, "volume create db --size 256MiB --fs ext4");
    assert_eq!(code, Some(0), "{text}");
    let at = rig.dir().join("srv/db");
    fs::create_dir_all(&at).unwrap();
    let mount = format!("volume mount db {} --persist", at.display());
    let (code, text) = call(&rig, &mount);
    assert_eq!(code, Some(0), "{text}");
    // A volume deleted while its drive was missing.
    let (code, text) = call(&rig, "volume create gone --size 1900MiB --fs ext4");
    assert_eq!(code, Some(0), "{text}");
    let gone = rig.inventory().await;
    let gone = gone.volumes.iter().find(|one| one.name == "gone").unwrap();
    let (gone, on) = (gone.id.clone(), gone.drive.clone());
    let shelf_name = ["a", "b"]
        .into_iter()
        .find(|name| on.starts_with(&format!("loop-{name}.img-")))
        .unwrap();
    rig.shelf.pull(shelf_name);
    rig.drive_is(shelf_name, "missing").await;
    rig.csi.delete(&gone).await.unwrap();
    rig.agent.stop().unwrap();

    let names = ["known.json", "tombstones.json", "hand-mounts.json"];
    let state = rig.dir().join("state");
    let before = names.map(|name| fs::read(state.join(name)).unwrap());
    for name in names {
        fs::rename(state.join(name), state.join(format!("{name}.away"))).unwrap();
        fs::create_dir(state.join(name)).unwrap();
    }
    rig.start_again().await;
    health_has(&rig, "StateNotRead", true);
    let (code, text) = call(&rig, "volume unmount db");
    assert_ne!(code, Some(0), "{text}");
    for name in names {
        assert!(state.join(name).is_dir(), "{name}");
        fs::remove_dir(state.join(name)).unwrap();
        fs::rename(state.join(format!("{name}.away")), state.join(name)).unwrap();
    }
    for (name, bytes) in names.iter().zip(&before) {
        assert_eq!(fs::read(state.join(name)).unwrap(), *bytes, "{name}");
    }
    wait::until(READ_AGAIN, "it is read again", || {
        let (_, text) = call(&rig, "health");
        (!text.contains("StateNotRead")).then_some(())
    });
    for name in names {
        assert_eq!(trouble(&rig, name, "not-read"), None, "{name}");
    }
    // The drive is missing again, and the volume deleted: it returns quarantined.
    rig.drive_is(shelf_name, "missing").await;
    rig.shelf.plug(shelf_name).unwrap();
    rig.volume_is(&gone, "quarantined").await;
    let (code, text) = call(&rig, "volume unmount db");
    assert_eq!(code, Some(0), "{text}");
}

/// A small tmpfs, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        let to = path.to_str().unwrap();
        let options = "size=1M,nr_inodes=200";
        run("mount", &["-t", "tmpfs", "-o", options, "none", to]);
        Self(path)
    }

    /// Takes every inode; those of the present files are free again when these are removed.
    fn use_up_inodes(&self) {
        let dir = self.0.join("inodes");
        fs::create_dir(&dir).unwrap();
        let made = (0..1000).take_while(|n| File::create(dir.join(n.to_string())).is_ok());
        assert!(made.count() < 200);
    }

    fn remove_all_but(&self, kept: &[&str]) {
        for entry in fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            if kept.iter().all(|name| !path.ends_with(name)) {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_dir_all(&path);
            }
        }
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("full")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        assert!(fs::write(self.0.join("more"), "x").is_err(), "it is full");
    }

    /// Takes all space, like `fill`, without a new file.
    fn fill_if_possible(&self) {
        let path = self.0.join("inodes/0");
        let mut file = File::options().append(true).open(path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
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
    // As after a boot: files of an earlier agent have left no space.
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

#[tokio::test]
async fn with_no_inode_left_in_the_runtime_directory_volumes_are_unmounted_and_the_rest_waits_for_room()
 {
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
    // As after a boot, with all of the agent's files to be created, its command-line socket too.
    small.remove_all_but(&[]);
    small.use_up_inodes();
    small.fill_if_possible();
    let config = rig.agent.settings().config();
    let socket = small.0.join("agent.sock");
    let text = fs::read_to_string(&config).unwrap();
    let usual = rig.agent.settings().agent_socket();
    let moved = text.replace(usual.to_str().unwrap(), socket.to_str().unwrap());
    assert_ne!(moved, text);
    fs::write(&config, moved).unwrap();
    rig.node.csi = rig.agent.start_unready().await.unwrap();
    rig.csi.unpublish(&volume.id, &volume.target).await.unwrap();
    rig.csi.unstage(&volume.id, &volume.staging).await.unwrap();
    assert_eq!(tree::mounted_times(&volume.staging), 0);
    assert!(!socket.exists());
    let log = rig.agent.log();
    for message in [
        "cannot make the command-line socket",
        "cannot make the directory for worker records",
    ] {
        assert!(log.contains(message), "{message}: {}", rig.agent.log_tail());
    }
    // With space again, everything else recovers without a restart.
    small.remove_all_but(&[]);
    rig.node.agent_socket = socket.clone();
    wait::until(SOON, "the socket is made", || socket.exists().then_some(()));
    rig.rescan().await;
    rig.drive_is("a", "claimed").await;
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
    drop(rig);
}

#[tokio::test]
async fn an_agent_whose_csi_socket_finds_no_room_ends_and_reports_it() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.agent.stop().unwrap();
    let small = Small::at(rig.dir().join("sockets"));
    let config = rig.agent.settings().config();
    let text = fs::read_to_string(&config).unwrap();
    let usual = rig.agent.settings().csi_socket();
    let socket = small.0.join("csi.sock");
    let moved = text.replace(usual.to_str().unwrap(), socket.to_str().unwrap());
    assert_ne!(moved, text);
    fs::write(&config, moved).unwrap();
    // The file of a killed agent frees enough space.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    small.use_up_inodes();
    let log = rig.dir().join("other.log");
    let mut child = rig.agent.spawn(&config, &log).unwrap();
    wait::until(SOON, "it listens", || {
        std::os::unix::net::UnixStream::connect(&socket)
            .ok()
            .map(drop)
    });
    child.kill().unwrap();
    child.wait().unwrap();

    fs::remove_file(&socket).unwrap();
    fs::write(small.0.join("one-more"), "").unwrap();
    let mut child = rig.agent.spawn(&config, &log).unwrap();
    let ended = wait::until(SOON, "it ends", || child.try_wait().unwrap());
    assert!(!ended.success());
    let log = fs::read_to_string(log).unwrap();
    for message in [
        "the orchestrator can neither mount nor unmount volumes on this node",
        "no space or no inode is left on its filesystem",
        "df -i",
    ] {
        assert!(log.contains(message), "{message}: {log}");
    }
}
