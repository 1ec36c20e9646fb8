//! Drives that are unplugged and plugged in repeatedly: the inventory is correct each time, updated by events, and no resource leaks.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    MIB,
    lab::{DriveSpec, Guest, Kind, LabRig, progress::print_progress},
    node::Placed,
    wait,
};

use super::stand::{named, rig, volume};

/// Resources that could leak, counted in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    descriptors: u64,
    threads: u64,
    workers: u64,
    mounts: u64,
    mapped: String,
    loops: String,
}

fn left(guest: &Guest, pid: u32) -> Left {
    let number = |script: &str| guest.run(script).trim().parse().unwrap();
    Left {
        descriptors: number(&format!("ls /proc/{pid}/fd | wc -l")),
        threads: number(&format!("ls /proc/{pid}/task | wc -l")),
        workers: number("pgrep -fc 'drivebay-agent [w]orker ' || true"),
        mounts: number("wc -l </proc/self/mountinfo"),
        mapped: guest.run("dmsetup ls | sort; ls /dev/mapper"),
        loops: guest.run("losetup --list --noheadings"),
    }
}

fn resident_kib(guest: &Guest, pid: u32) -> u64 {
    let output = guest.run(&format!("awk '/^VmRSS/ {{ print $2 }}' /proc/{pid}/status"));
    output.trim().parse().unwrap()
}

/// Returns the agent's open files, to identify a leaked descriptor.
fn open_files(guest: &Guest, pid: u32) -> String {
    guest.run(&format!(
        "ls -l /proc/{pid}/fd | awk '{{ print $9, $11 }}'; ss -xp | grep -F 'pid={pid},' || true"
    ))
}

impl Left {
    /// True if nothing has leaked since `before`. Idle connections of the test end, so that there may be fewer descriptors and threads.
    fn is_no_more_than(&self, before: &Self) -> bool {
        let (descriptors, threads) = (self.descriptors, self.threads);
        descriptors <= before.descriptors
            && threads <= before.threads
            && *self
                == Self {
                    descriptors,
                    threads,
                    ..before.clone()
                }
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn drives_that_come_and_go_are_listed_right_each_time_and_leave_nothing() {
    let long = std::env::var_os("DRIVEBAY_LAB_LONG").is_some();
    let rounds = if long { 50 } else { 15 };
    let kinds = [Kind::Nvme, Kind::Scsi, Kind::Virtio];
    let mut drives = Vec::new();
    let mut names = Vec::new();
    for what in ["part", "in-lv", "blank"] {
        for kind in kinds {
            let name = format!("{}-{what}", kind.to_string().to_lowercase());
            let bytes = if what == "blank" { 128 } else { 256 };
            drives.push(DriveSpec::new(kind, &name, bytes * MIB));
            names.push(name);
        }
    }
    let mut lab = rig(drives).await;
    let mut volumes = Vec::new();
    for at in 0..3 {
        for class in ["demo", "lv"] {
            volumes.push(volume(&lab, &format!("{class}-{at}"), class, 150 * MIB).await);
        }
    }
    let pid = lab.agent.pid();
    // One-time initialization is complete by then: each drive has been unplugged once.
    for name in &names {
        round(&mut lab, name, &volumes).await;
    }
    let guest = lab.guest().clone();
    let (before, memory) = (quiet(&lab, pid).await, resident_kib(&guest, pid));
    let open = open_files(&guest, pid);
    let from = Instant::now();
    let mut slowest = Duration::ZERO;
    for at in 0..rounds {
        let took = round(&mut lab, &names[at % names.len()], &volumes).await;
        slowest = slowest.max(took);
    }
    // A thread that wrote a state file ends when it has been idle for ten seconds.
    let settled = wait::poll(Duration::from_secs(60), || {
        left(&guest, pid).is_no_more_than(&before).then_some(())
    });
    let after = (quiet(&lab, pid).await, resident_kib(&guest, pid));
    print_progress(format!(
        "{rounds} rounds in {:.0} s, an event told after {:.1} s at most, {memory} KiB before, {} KiB after, {:?}",
        from.elapsed().as_secs_f64(),
        slowest.as_secs_f64(),
        after.1,
        after.0
    ));
    assert!(
        after.0.is_no_more_than(&before),
        "{before:#?} before, settled: {}\n{open}\nafter:\n{}",
        settled.is_some(),
        open_files(&guest, pid)
    );
    assert!(
        after.1 < memory + 8 * 1024,
        "{} KiB after {memory} KiB",
        after.1
    );
    // All volumes are still usable.
    for volume in &volumes {
        lab.use_volume(volume).await;
        lab.leave_volume(volume).await;
    }
}

/// Waits until idle workers have ended, and returns the resources that remain.
async fn quiet(lab: &LabRig, pid: u32) -> Left {
    drivebay_hwtests::wait::until_async(Duration::from_secs(90), "idle workers go", async || {
        let left = left(lab.guest(), pid);
        (left.workers == 0).then_some(left)
    })
    .await
}

/// Unplugs a drive and plugs it in again. Returns the longer of the times until the inventory had either change.
async fn round(lab: &mut LabRig, name: &str, volumes: &[Placed]) -> Duration {
    let here = lab.drive_where(named(name)).await.unwrap();
    let claimed = here.state == "claimed";
    let inventory = lab.inventory().await;
    let on: Vec<&Placed> = volumes
        .iter()
        .filter(|placed| {
            inventory
                .volumes
                .iter()
                .any(|of| of.id == placed.id && of.drive == here.id)
        })
        .collect();
    assert_eq!(on.len(), usize::from(claimed), "{name}: {:?}", here);

    lab.machine.unplug(name);
    let gone = Instant::now();
    if claimed {
        lab.drive_where_is(name, "missing", |drive| drive.id == here.id)
            .await;
        lab.volume_is(&on[0].id, "missing").await;
    } else {
        lab.no_drive(name, named(name)).await;
    }
    let gone = gone.elapsed();
    let others = lab.inventory().await;
    let (missing, all) = (
        others
            .volumes
            .iter()
            .filter(|of| of.state != "ready" && of.state != "new")
            .count(),
        others.volumes.len(),
    );
    assert_eq!((missing, all), (on.len(), volumes.len()), "{others:#?}");

    lab.machine.plug(name);
    let back = Instant::now();
    let again = lab.drive_where_is(name, &here.state, named(name)).await;
    assert_eq!((&again.id, again.size_bytes), (&here.id, here.size_bytes));
    for volume in &on {
        lab.volume_is(&volume.id, "new").await;
    }
    gone.max(back.elapsed())
}
