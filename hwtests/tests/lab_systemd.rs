//! The agent as a systemd service: ready when it reports it, restarted and killed under volumes in use, not blocked by a drive that hangs,
//! and running again after a reboot.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, Guest, Held, LabRig, Machine, MachineSpec, Writer,
        letters::{LAB_LIMIT, class_per_drive},
        nbd::Throttle,
        service,
    },
    long,
    node::Placed,
    wait,
};
use tokio::sync::{Mutex, MutexGuard};

const UNIT: &str = "drivebay-agent";
const DRIVES: [(&str, &str); 2] = [("calm-drive", "partition"), ("odd-drive", "lvm")];
/// Time limit of a stop: the agent's ten seconds, and more for a busy emulated machine.
const STOP_LIMIT: Duration = Duration::from_secs(45);

static LAB: Mutex<Option<LabRig>> = Mutex::const_new(None);

async fn lab() -> Held<MutexGuard<'static, Option<LabRig>>> {
    let mut held = Held(LAB.lock().await);
    if let Some(lab) = held.as_mut() {
        // Each test has a separate runtime, and a connection ends with its runtime.
        lab.node.csi = lab.agent.csi().await.unwrap();
        return held;
    }
    let drives = vec![
        DriveSpec::nvme("calm-drive", GIB),
        DriveSpec::scsi("odd-drive", GIB).served(),
    ];
    let classes = DRIVES.map(|(name, layout)| (name, layout, name));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let lab = LabRig::installed(machine, "partition", class_per_drive(&classes)).await;
    lab.are_available(&DRIVES.map(|(name, _)| name)).await;
    *held = Some(lab);
    held
}

fn property(guest: &Guest, name: &str) -> String {
    let output = guest.run(&format!("systemctl show --property={name} --value {UNIT}"));
    output.trim().to_owned()
}

/// Returns a mount in the mount namespace of the host's first process: its id changes if it is ever unmounted.
fn mount_of_host(guest: &Guest, target: &Path) -> String {
    let target = target.display();
    guest.run(&format!(
        "findmnt --task 1 --noheadings --output ID,SOURCE,FSTYPE {target}"
    ))
}

/// Lists the agent's processes with their states.
fn processes(guest: &Guest) -> Vec<String> {
    let output = guest.run("ps -eo state=,args= | grep '[d]rivebay-agent' || true");
    output.lines().map(str::to_owned).collect()
}

fn workers(guest: &Guest) -> Vec<String> {
    let mut all = processes(guest);
    all.retain(|line| line.contains(" worker"));
    all
}

async fn used(lab: &LabRig, class: &str, name: &str) -> (Placed, String) {
    let volume = lab
        .volume_in(class, name, 64 * MIB, &csi::mount("ext4"))
        .await;
    lab.serve(&volume).await;
    let written = lab.put_letter(&volume, 1024);
    (volume, written)
}

async fn give_back(lab: &LabRig, volume: &Placed) {
    lab.leave_volume(volume).await;
    lab.csi.delete(&volume.id).await.unwrap();
    lab.all_erased().await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn starting_it_returns_when_calls_are_answered_and_not_before() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    lab.agent.stop();
    lab.machine
        .drive("odd-drive")
        .nbd()
        .throttle(Some(Throttle {
            latency: Duration::from_millis(100),
            ..Throttle::default()
        }));
    lab.guest().run(&format!(
        "echo 3 >/proc/sys/vm/drop_caches; systemctl start --no-block {UNIT}"
    ));
    lab.guest()
        .wait_until(LAB_LIMIT, "it looks at the drives", |guest| {
            (property(guest, "StatusText") == "looking at the drives").then_some(())
        });
    assert_eq!(property(lab.guest(), "ActiveState"), "activating");
    let begun = Instant::now();
    let started = lab
        .guest()
        .try_run(&format!("systemctl start {UNIT}"), LAB_LIMIT)
        .unwrap();
    assert!(started.ok(), "{started:?}");
    let drives = lab.agent.run_command(&["drives", "-o", "json"]);
    eprintln!(
        "slow drive: start returned {:.1} s after the agent had begun to look",
        begun.elapsed().as_secs_f64()
    );
    assert!(!drives.stdout.contains("unprobed"), "{drives:?}");
    for (name, _) in DRIVES {
        assert!(drives.stdout.contains(name), "{drives:?}");
    }
    assert_eq!(property(lab.guest(), "StatusText"), "serving node node1");
    // The unit grants the privileges for that.
    let journal = lab.guest().journal(UNIT).join("\n");
    assert!(
        !journal.contains("cannot make a mount namespace"),
        "{journal}"
    );
    lab.agent.forward_sockets();
    assert!(
        lab.agent.csi().await.unwrap().ready().await,
        "started, but not ready"
    );
    lab.machine.drive("odd-drive").nbd().throttle(None);
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn restarts_and_a_kill_leave_mounts_and_writers_alone_and_a_stop_ends_the_workers() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let guest = lab.guest().clone();
    let mut used_ones = Vec::new();
    for (class, _) in DRIVES {
        used_ones.push(used(lab, class, &format!("written-{class}")).await);
    }
    let mounts = || {
        let targets = used_ones
            .iter()
            .flat_map(|(of, _)| [&of.staging, &of.target]);
        targets
            .map(|path| mount_of_host(&guest, path))
            .collect::<Vec<_>>()
    };
    let before = mounts();
    let writers: Vec<Writer> = used_ones
        .iter()
        .map(|(of, _)| {
            Writer::start(
                &guest,
                &format!(
                    "writer-{}",
                    of.target.parent().unwrap().file_name().unwrap().display()
                ),
                &of.target,
            )
        })
        .collect();
    let pid = property(&guest, "MainPID");

    let begun = Instant::now();
    let ran = guest
        .try_run(&format!("systemctl restart {UNIT}"), LAB_LIMIT)
        .unwrap();
    assert!(ran.ok(), "{ran:?}");
    let restarted = begun.elapsed();
    assert_ne!(property(&guest, "MainPID"), pid);
    lab.comes_up().await;
    assert_eq!(mounts(), before);
    writers
        .iter()
        .for_each(|writer| assert!(writer.advances() > 0));

    let pid = property(&guest, "MainPID");
    let begun = Instant::now();
    guest.run(&format!(
        "systemctl kill --kill-who=main --signal=KILL {UNIT}"
    ));
    guest.wait_until(LAB_LIMIT, "it is there again", |guest| {
        (property(guest, "ActiveState") == "active" && property(guest, "MainPID") != pid)
            .then_some(())
    });
    let back = begun.elapsed();
    lab.comes_up().await;
    assert_eq!(property(&guest, "NRestarts"), "1");
    assert_eq!(mounts(), before);
    // The repeated calls have nothing left to do.
    for (volume, written) in &used_ones {
        lab.serve(volume).await;
        assert_eq!(&lab.letter(volume), written);
    }
    assert_eq!(mounts(), before);

    let stopped = lab.agent.stop();
    assert!(stopped < STOP_LIMIT, "{stopped:?}");
    assert_eq!(
        processes(&guest),
        Vec::<String>::new(),
        "left after the stop"
    );
    assert_eq!(property(&guest, "Result"), "success");
    writers
        .iter()
        .for_each(|writer| assert!(writer.advances() > 0));
    assert_eq!(mounts(), before);
    lab.start_again().await;
    let lines: Vec<usize> = writers.into_iter().map(Writer::finish).collect();
    eprintln!(
        "restart {:.1} s, back after kill -9 {:.1} s, stop {:.1} s; lines synced meanwhile: {lines:?}",
        restarted.as_secs_f64(),
        back.as_secs_f64(),
        stopped.as_secs_f64()
    );
    for (volume, _) in &used_ones {
        give_back(lab, volume).await;
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_worker_stuck_in_a_drive_holds_up_neither_a_stop_nor_a_start() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let guest = lab.guest().clone();
    let (calm, calms) = used(lab, "calm-drive", "beside").await;
    let (odd, odds) = used(lab, "odd-drive", "stuck").await;
    lab.machine.drive("odd-drive").nbd().hang();
    // A call that must read the drive; the caller does not wait for it indefinitely.
    let (client, socket) = (lab.csi.clone(), csi::bytes(8 * MIB));
    let call = tokio::spawn(async move {
        let request = drivebay_proto::csi::CreateVolumeRequest {
            name: "never".to_owned(),
            capacity_range: Some(socket),
            volume_capabilities: vec![csi::block()],
            parameters: [("class".to_owned(), "odd-drive".to_owned())].into(),
            ..Default::default()
        };
        client.create_with(request).await
    });
    let stuck = || {
        let mut all = workers(&guest);
        all.retain(|line| line.starts_with('D'));
        all
    };
    // The first start makes a worker hang, if none did before: it must probe the drive.
    for way in ["restart", "stop", "start", "restart"] {
        let before = stuck();
        let begun = Instant::now();
        let ran = guest.try_run(&format!("systemctl {way} {UNIT}"), 2 * LAB_LIMIT);
        let (ran, took) = (ran.unwrap(), begun.elapsed());
        let (result, left) = (property(&guest, "Result"), stuck());
        eprintln!(
            "{way} beside {} stuck worker(s): {:.1} s, {result}; stuck now: {left:?}",
            before.len(),
            took.as_secs_f64()
        );
        assert!(ran.ok() && result == "success", "{way}: {ran:?} {result}");
        assert!(took < STOP_LIMIT, "{way} took {took:?}");
        assert!(left.len() <= 1, "a second worker on a stuck slot: {left:?}");
        if way != "stop" {
            lab.comes_up().await;
            lab.leave_volume(&calm).await;
            lab.serve(&calm).await;
            assert_eq!(lab.letter(&calm), calms);
            guest.wait_until(LAB_LIMIT, "a worker is stuck", |_| {
                (stuck().len() == 1).then_some(())
            });
        }
    }
    call.abort();
    lab.machine.drive("odd-drive").nbd().resume();
    wait::until_async(LAB_LIMIT, "the drive is well again", async || {
        let well = lab.abnormal(&odd.id).await.is_none();
        (well && stuck().is_empty()).then_some(())
    })
    .await;
    lab.serve(&odd).await;
    assert_eq!(lab.letter(&odd), odds);
    give_back(lab, &odd).await;
    give_back(lab, &calm).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_mistake_in_the_configuration_fails_the_start_and_the_status_names_it() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let guest = lab.guest().clone();
    let (volume, written) = used(lab, "calm-drive", "kept").await;
    let before = mount_of_host(&guest, &volume.target);
    guest.run(&format!(
        "cp {0} {0}.good && sed -i 's/^layout = \"lvm\"/layout = \"lwm\"/' {0}",
        service::CONFIG
    ));
    let ran = guest
        .try_run(&format!("systemctl restart {UNIT}"), LAB_LIMIT)
        .unwrap();
    assert!(!ran.ok(), "it starts with a mistake: {ran:?}");
    assert_eq!(
        property(&guest, "ActiveState"),
        "failed",
        "it is tried again"
    );
    // journald attributes a line to its unit a moment after the process has ended.
    guest.wait_until(LAB_LIMIT, "the status says what is wrong", |guest| {
        let status = guest.ran(&format!("systemctl status --no-pager --full {UNIT}"));
        (status.stdout.contains("lwm") && status.stdout.contains("partition")).then_some(())
    });
    assert_eq!(mount_of_host(&guest, &volume.target), before);
    guest.run(&format!("mv {0}.good {0}", service::CONFIG));
    lab.start_again().await;
    assert_eq!(lab.letter(&volume), written);
    give_back(lab, &volume).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn with_the_unit_enabled_it_is_there_after_a_reboot_and_volumes_are_served_again() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let mut used_ones = Vec::new();
    for (class, _) in DRIVES {
        used_ones.push(used(lab, class, &format!("rebooted-{class}")).await);
    }
    lab.guest().run(&format!("systemctl enable {UNIT}"));
    lab.machine.reboot().unwrap();
    lab.guest()
        .wait_until(LAB_LIMIT, "the service is up", |guest| {
            (property(guest, "ActiveState") == "active").then_some(())
        });
    lab.comes_up().await;
    for (volume, written) in &used_ones {
        lab.volume_is(&volume.id, "ready").await;
        lab.serve(volume).await;
        assert_eq!(&lab.letter(volume), written);
        assert!(mount_of_host(lab.guest(), &volume.target).contains("ext4"));
        give_back(lab, volume).await;
    }
}
