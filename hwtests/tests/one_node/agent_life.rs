//! The agent is killed, stopped, started, and started twice; volumes are unaffected.

use std::{fs, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig,
    agent::{self, STOP_LIMIT},
    csi, memory, need, tree, wait,
};

use super::writer::Writer;

#[tokio::test]
async fn a_volume_survives_a_killed_agent_while_a_process_writes_into_it() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("written", 512 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let writer = Writer::start(&volume.target);

    rig.agent.kill9();
    writer.advances();
    rig.start_again().await;
    writer.advances();
    // The new agent knows the results of the old one: repeated calls change nothing.
    rig.use_volume(&volume).await;
    assert_eq!(tree::mounted_times(&volume.target), 1);
    assert_eq!(tree::mounted_times(&volume.staging), 1);
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    writer.advances();
    writer.finish();

    rig.leave_volume(&volume).await;
    assert!(tree::mounts_of(rig.dir()).is_empty());
    rig.csi.delete(&volume.id).await.unwrap();
}

#[tokio::test]
async fn volumes_are_found_again_after_a_restart() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("kept", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("letter"), "dear reader").unwrap();
    rig.leave_volume(&volume).await;
    rig.agent.stop().unwrap();

    // The agent's state outside the drives is a cache; losing it loses no volume.
    let state = rig.dir().join("state");
    fs::remove_dir_all(&state).unwrap();
    fs::create_dir(&state).unwrap();
    rig.start_again().await;
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    let again = rig.volume("kept", 256 * MIB, &csi::mount("ext4")).await;
    assert_eq!(again.id, volume.id);
    rig.use_volume(&volume).await;
    let letter = fs::read_to_string(volume.target.join("letter")).unwrap();
    assert_eq!(letter, "dear reader");
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn the_pod_of_a_volume_is_shown_by_its_name_also_by_the_next_agent() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let mount = csi::mount("ext4");
    let volume = rig.volume("shown", 256 * MIB, &mount).await;
    let staged = rig.csi.stage(&volume.id, &volume.staging, &mount).await;
    staged.unwrap();
    let pod = [
        ("csi.storage.k8s.io/pod.name", "db-0"),
        ("csi.storage.k8s.io/pod.namespace", "shop"),
        ("csi.storage.k8s.io/pod.uid", "5b0c3c5e"),
    ];
    let (staging, target) = (&volume.staging, &volume.target);
    let published = rig
        .csi
        .publish_with(&volume.id, staging, target, &mount, false, &pod);
    published.await.unwrap();
    let pods = |rig: &Rig| {
        let list = rig.agent.run_command(&["volumes", "-o", "json"]).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        list["volumes"][0]["pods"].clone()
    };
    assert_eq!(pods(&rig), serde_json::json!(["shop/db-0"]));
    let list = rig.agent.run_command(&["volumes"]).unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("  pod shop/db-0  "), "{list}");

    rig.agent.stop().unwrap();
    rig.start_again().await;
    assert_eq!(pods(&rig), serde_json::json!(["shop/db-0"]));
    rig.leave_volume(&volume).await;
    assert_eq!(pods(&rig), serde_json::json!([]));
}

#[tokio::test]
async fn a_stopped_agent_is_gone_within_ten_seconds_with_its_workers_and_leaves_mounts() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("mounted", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let workers = agent::descendants(rig.agent.pid());

    let took = rig.agent.stop().unwrap();
    assert!(took <= STOP_LIMIT, "{took:?}");
    wait::until(Duration::from_secs(5), "the workers are gone", || {
        workers.iter().all(|pid| !is_worker(*pid)).then_some(())
    });
    assert_eq!(tree::mounted_times(&volume.target), 1);
    fs::write(volume.target.join("note"), "the agent is away").unwrap();
    assert!(
        !rig.agent.settings().csi_socket().exists(),
        "the CSI socket is left"
    );

    rig.start_again().await;
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn a_killed_agent_leaves_neither_idle_workers_nor_what_they_were_forked_from() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("mounted", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let left = agent::descendants(rig.agent.pid());
    assert!(left.iter().any(|pid| memory::is_server(*pid)));
    assert!(left.iter().any(|pid| is_worker(*pid)));

    rig.agent.kill9();
    wait::until(Duration::from_secs(20), "they are gone", || {
        left.iter().all(|pid| !is_worker(*pid)).then_some(())
    });
    rig.start_again().await;
    rig.leave_volume(&volume).await;
}

/// True if the process is a worker, or the server that workers are forked from.
fn is_worker(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.windows(7).any(|word| word == b"\0worker"))
}

#[tokio::test]
async fn a_second_agent_on_the_same_machine_is_refused_with_a_clear_message() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let settings = rig.agent.settings();
    // Separate sockets, so that only the lock can prevent a start.
    let toml = settings
        .toml()
        .replace("csi.sock", "csi2.sock")
        .replace("agent.sock", "agent2.sock");
    let (config, log) = (rig.dir().join("second.toml"), rig.dir().join("second.log"));
    fs::write(&config, toml).unwrap();

    let mut second = rig.agent.spawn(&config, &log).unwrap();
    let ended = wait::poll(Duration::from_secs(10), || second.try_wait().unwrap());
    let _ = second.kill();
    let _ = second.wait();
    let output = fs::read_to_string(&log).unwrap();
    let status = ended.unwrap_or_else(|| panic!("a second agent runs:\n{output}"));
    assert!(!status.success(), "a second agent ended well:\n{output}");
    assert!(
        output.contains("already") || output.contains("another"),
        "the message does not say why:\n{output}"
    );
    assert!(rig.csi.ready().await, "the first agent suffered");
}

#[tokio::test]
async fn a_volume_is_unmounted_after_its_drive_was_unplugged() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("orphan", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("letter"), "unsent").unwrap();
    let drive = rig.shelf.drives()[0].clone();
    // The kernel detaches a mounted loop device when its last user closes it: unplugged means detaching.
    drivebay_hwtests::tools::run("losetup", &["-d", &drive.device.display().to_string()]).unwrap();
    rig.leave_volume(&volume).await;
    assert!(tree::mounts_of(rig.dir()).is_empty());
    // Repeated calls have nothing to do.
    rig.leave_volume(&volume).await;
    rig.shelf.unplug("a");
}

#[tokio::test]
async fn a_volume_is_unmounted_after_its_drive_stopped_reading() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("cut", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("letter"), "unsent").unwrap();
    rig.shelf.flush().unwrap();
    // Every read of the drive fails after this.
    let file = fs::File::options()
        .write(true)
        .open(&rig.shelf.drives()[0].file)
        .unwrap();
    file.set_len(0).unwrap();
    rig.leave_volume(&volume).await;
    assert!(tree::mounts_of(rig.dir()).is_empty());
}
