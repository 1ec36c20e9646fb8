//! The lab itself: a guest that boots, responds, enforces deadlines, and leaves nothing behind.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, Guest, LabRig, Machine, MachineSpec, agent, shared},
    long, wait,
};

fn machine() -> shared::Shared {
    shared(|| Machine::restored(MachineSpec::new("self")))
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_guest_has_systemd_udevd_and_device_mapper() {
    let machine = machine();
    let guest = machine.guest();
    assert_eq!(guest.run("hostname"), "self\n");
    assert_eq!(guest.run("cat /proc/1/comm"), "systemd\n");
    guest.run("systemctl is-active systemd-udevd");
    assert!(guest.run("dmsetup version").contains("Driver version"));
    assert_eq!(guest.run("systemctl list-units --failed --no-legend"), "");
    for tool in [
        "lvm",
        "nvme",
        "smartctl",
        "mkfs.xfs",
        "mkfs.btrfs",
        "sgdisk",
        "strace",
    ] {
        guest.run(&format!("command -v {tool}"));
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_command_returns_its_exit_code_and_its_output() {
    let machine = machine();
    let ran = machine
        .guest()
        .ran("echo 'out it'\"'\"'s'; echo err >&2; exit 7");
    assert_eq!(ran.code, 7);
    assert_eq!(ran.stdout, "out it's\n");
    assert_eq!(ran.stderr, "err\n");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_command_is_ended_at_its_deadline_and_the_error_names_it() {
    let machine = machine();
    let start = Instant::now();
    let trouble = machine
        .guest()
        .try_run("echo begun; sleep 4711", Duration::from_secs(2))
        .unwrap_err()
        .to_string();
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    assert!(trouble.contains("sleep 4711"), "{trouble}");
    assert!(trouble.contains("begun"), "{trouble}");
    assert!(trouble.contains("not done within 2.0 s"), "{trouble}");
    assert!(trouble.contains("logs: /"), "{trouble}");
    assert!(
        !machine.guest().ran("pgrep -f 'sleep [4]711'").ok(),
        "it still runs"
    );
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_file_comes_out_as_it_went_in() {
    let machine = machine();
    let guest = machine.guest();
    let bytes: Vec<u8> = (0..MIB).map(|at| (at * 7 / 3) as u8).collect();
    let there = Path::new("/root/a dir/it's a file");
    guest.write(there, &bytes);
    assert!(guest.read(there) == bytes);
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().join("copy");
    guest.copy_out(there, &here);
    assert!(fs::read(&here).unwrap() == bytes);
    guest.copy_in(&here, Path::new("/root/back"));
    guest.run("cmp /root/back \"/root/a dir/it's a file\"");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_journal_is_followed_in_the_guest_and_into_a_file_here() {
    let machine = machine();
    let guest = machine.guest();
    let lines = guest.follow("lab-says").unwrap();
    // The follower may still be starting: the message is repeated until it is received.
    guest
        .run("systemd-run --quiet --unit=lab-says sh -c 'while sleep 0.5; do echo said $((6 * 7)); done'");
    assert_eq!(
        lines.wait_for("said 42", Duration::from_secs(30)),
        "said 42"
    );
    guest.run("systemctl stop lab-says");
    assert!(guest.journal("lab-says").contains(&"said 42".to_owned()));
    let file = machine.run_dir().file("journal.log");
    wait::until(Duration::from_secs(20), "the word is in the file", || {
        let text = fs::read_to_string(&file).unwrap();
        text.contains("said 42").then_some(())
    });
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_release_build_of_this_machine_runs_inside() {
    let machine = machine();
    agent::install(machine.guest()).unwrap();
    let output = machine
        .guest()
        .run(&format!("{} --version", agent::PROGRAM));
    assert!(output.starts_with("drivebay-agent "), "{output}");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_woken_guest_has_the_time_and_an_identity_of_its_own() {
    let ours = machine();
    let other = Machine::restored(MachineSpec::new("other")).unwrap();
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_secs_f64()
    };
    for machine in [&*ours, &other] {
        let there: f64 = machine.guest().run("date +%s.%N").trim().parse().unwrap();
        assert!((now() - there).abs() < 5.0, "{there} is not {}", now());
    }
    for file in ["/etc/machine-id", "/proc/sys/kernel/random/uuid"] {
        let id = |machine: &Machine| machine.guest().run(&format!("cat {file}"));
        assert_ne!(id(&ours), id(&other), "{file}");
    }
    assert_eq!(other.guest().run("hostname"), "other\n");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_dropped_machine_leaves_no_process_and_no_file() {
    let machine = Machine::restored(MachineSpec::new("dropped")).unwrap();
    let pid = machine.pid().unwrap();
    let (dir, sockets) = (
        machine.run_dir().dir.clone(),
        machine.run_dir().sockets.clone(),
    );
    let proc = format!("/proc/{pid}");
    assert!(Path::new(&proc).exists() && dir.exists() && sockets.exists());
    drop(machine);
    assert!(!Path::new(&proc).exists() && !dir.exists() && !sockets.exists());
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn what_was_flushed_survives_a_reboot_and_a_power_cut() {
    // A boot, a reboot and another boot; that flushed data survives a power cut is also tested with a volume, below.
    long!();
    let mut machine = Machine::boot(MachineSpec::new("rebooted")).unwrap();
    machine
        .guest()
        .write(Path::new("/var/lib/letter"), b"dear reader");
    machine.reboot().unwrap();
    assert_eq!(
        machine.guest().read(Path::new("/var/lib/letter")),
        b"dear reader"
    );
    machine
        .guest()
        .run("test -d /host/release || test -d /host/debug");
    machine.power_off();
    assert!(
        machine
            .guest()
            .try_run("true", Duration::from_secs(1))
            .is_err()
    );
    machine.power_again().unwrap();
    assert_eq!(
        machine.guest().read(Path::new("/var/lib/letter")),
        b"dear reader"
    );
    assert_eq!(machine.guest().run("hostname"), "rebooted\n");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn an_agent_inside_is_queried_from_here_as_any_other() {
    let machine = Machine::restored(MachineSpec::new("node1")).unwrap();
    let mut lab = LabRig::on(machine, "partition").await;
    let inventory = lab.inventory().await;
    // The root disk is the only drive, and is not managed.
    assert!(inventory.volumes.is_empty());
    assert!(
        lab.csi
            .create("none", 64 * MIB, &csi::block())
            .await
            .is_err()
    );
    lab.agent.kill9();
    lab.start_again().await;
    assert!(lab.csi.list().await.unwrap().is_empty());
    let ran = lab.agent.run_command(&["drives", "-o", "json"]);
    assert!(ran.ok(), "{}", ran.stderr);
    lab.agent.stop();
    assert!(!lab.agent.runs());
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_volume_in_the_lab_is_used_as_on_a_shelf_and_is_there_after_a_boot_with_drives_in_another_order()
 {
    let drives = ["left", "right"].map(|name| DriveSpec::nvme(name, 2 * GIB));
    let mut lab = LabRig::with(drives.into(), "partition").await;
    let volume = lab.volume("kept", 256 * MIB, &csi::mount("ext4")).await;
    lab.use_volume(&volume).await;
    let letter = volume.target.join("letter");
    lab.guest().write(&letter, b"dear reader");

    lab.machine.power_cycle(&["right", "left"]).unwrap();
    lab.start_again().await;
    lab.use_volume(&volume).await;
    assert_eq!(lab.guest().read(&letter), b"dear reader");
    lab.leave_volume(&volume).await;

    lab.machine.unplug("left");
    lab.machine.unplug("right");
    let gone = |guest: &Guest| {
        let left = guest.run("lsblk --noheadings --output NAME --nodeps");
        (!left.contains("nvme")).then_some(())
    };
    lab.guest()
        .wait_until(Duration::from_secs(30), "the drives are gone", gone);
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_test_program_runs_inside_on_loop_drives() {
    let machine = machine();
    let tally = machine
        .guest()
        .run_test_binary(
            "harness",
            &["a_dropped_shelf", "as_it_was_ordered"],
            &[("CI", "true")],
        )
        .unwrap();
    assert_eq!((tally.passed, tally.failed), (2, 0), "{}", tally.output);
    assert!(tally.skipped.is_empty(), "{:?}", tally.skipped);
}
