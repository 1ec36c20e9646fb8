//! Scans have no side effects: the agent's probes cause no events, and its own changes do not cause endless scans.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    MIB,
    lab::{DriveSpec, Guest, agent::UNIT, guest::Lines},
    wait,
};

use super::stand::{EVENT_LIMIT, named, rig, volume};

/// Time without an event after which no further one is expected; an event takes milliseconds.
const SILENCE: Duration = Duration::from_secs(3);

/// Largest number of the kernel's and udevd's events in one volume's life, including the claim of its drive.
const MOST_EVENTS: usize = 200;

/// Receives the kernel's and udevd's events of block devices.
struct Ear(Lines);

impl Ear {
    fn open(guest: &Guest) -> Self {
        let lines = guest
            .stream("exec udevadm monitor --kernel --udev --subsystem-match=block")
            .unwrap();
        let ear = Self(lines);
        // udevadm prints its header before it receives events.
        ear.0.wait_for("KERNEL - the kernel uevent", EVENT_LIMIT);
        ear.until_silent();
        ear
    }

    /// Returns the events received until there is none for [SILENCE].
    fn until_silent(&self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(line) = self.0.next(SILENCE) {
            if line.starts_with("KERNEL[") || line.starts_with("UDEV ") {
                heard.push(line);
            }
        }
        heard
    }
}

/// Returns the number of scans that the agent has logged because of events.
fn scan_count(guest: &Guest) -> usize {
    let log = guest.journal(UNIT);
    log.iter()
        .filter(|line| line.contains("scanning changed drives"))
        .count()
}

/// Waits until no further scan is logged for [SILENCE], and returns the number of scans so far.
fn settled(guest: &Guest) -> usize {
    let mut last = (scan_count(guest), Instant::now());
    wait::until(EVENT_LIMIT, "the agent does not look for ever", || {
        let now = scan_count(guest);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > SILENCE).then_some(now)
    })
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn probes_rescans_and_the_agents_start_make_no_event() {
    let mut drives = vec![DriveSpec::nvme("blank", 128 * MIB)];
    for name in ["part", "in-lv"] {
        drives.push(DriveSpec::nvme(&format!("nvme-{name}"), 256 * MIB));
        drives.push(DriveSpec::scsi(&format!("scsi-{name}"), 256 * MIB));
        drives.push(DriveSpec::virtio(&format!("virtio-{name}"), 256 * MIB));
    }
    let mut lab = rig(drives).await;
    for (class, at) in [
        ("demo", 0),
        ("lv", 0),
        ("demo", 1),
        ("lv", 1),
        ("demo", 2),
        ("lv", 2),
    ] {
        let made = volume(&lab, &format!("{class}-{at}"), class, 150 * MIB).await;
        if at == 0 {
            lab.use_volume(&made).await;
        }
    }
    let guest = lab.guest().clone();
    settled(&guest);
    let blank = lab
        .drive_where_is("blank", "available", named("blank"))
        .await;

    let ear = Ear::open(&guest);
    guest.run(&format!(": <>/dev/{}", blank.kernel_name));
    let heard = ear.until_silent();
    assert!(
        heard.iter().any(|line| line.contains(" change ")),
        "the control was not heard: {heard:?}"
    );
    settled(&guest);

    for restart in 0..2 {
        if restart == 1 {
            lab.agent.stop();
            lab.start_again().await;
        }
        for _ in 0..20 {
            lab.rescan().await;
        }
    }
    let heard = ear.until_silent();
    assert!(heard.is_empty(), "{heard:#?}");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_change_of_its_own_makes_the_agent_scan_a_few_times_and_no_more() {
    let drives = vec![
        DriveSpec::nvme("nvme-part", 512 * MIB),
        DriveSpec::scsi("scsi-in-lv", 512 * MIB),
    ];
    let lab = rig(drives).await;
    let guest = lab.guest();
    for class in ["demo", "lv"] {
        let mut before = settled(guest);
        for round in 0..4 {
            let name = format!("{class}-{round}");
            let ear = Ear::open(guest);
            let made = volume(&lab, &name, class, 64 * MIB).await;
            lab.use_volume(&made).await;
            lab.leave_volume(&made).await;
            lab.csi.delete(&made.id).await.unwrap();
            lab.erased().await;
            let after = settled(guest);
            let (scans, heard) = (after - before, ear.until_silent().len());
            println!("{name}: {heard} events, looked {scans} times");
            // The number of events per scan depends on the speed of the guest; at least one scan is needed.
            assert!(
                scans <= heard && heard <= MOST_EVENTS,
                "{name}: {heard} events, looked {scans} times"
            );
            before = after;
        }
    }
}
