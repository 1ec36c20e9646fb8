//! Slow drives in the lab: four NVMe drives under dd, reading and writing at different paces; one of them is made 50, 10 and 3
//! times slower. A minute of the comparison has 20 seconds here: an emulated machine does little in five.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    GIB,
    lab::{DriveSpec, LabRig, Machine, MachineSpec, nbd::Throttle},
    wait,
};

const MINUTE: Duration = Duration::from_secs(20);
/// What a request of a healthy one takes.
const LATENCY: Duration = Duration::from_millis(4);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn slow(lab: &LabRig, name: &str, times: u32) {
    lab.machine.drive(name).nbd().throttle(Some(Throttle {
        bytes_per_second: None,
        latency: LATENCY * times,
    }));
}

/// The drives that have the finding, by serial number.
async fn found(lab: &LabRig) -> Vec<String> {
    let inventory = lab.inventory().await;
    let slow = inventory.drives.into_iter().filter(|drive| {
        let health = drive.health.clone().unwrap_or_default();
        health.findings.iter().any(|finding| finding.code == "Slow")
    });
    slow.map(|drive| drive.serial).collect()
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_is_slower_than_its_peers_is_found_and_no_other() {
    let drives = NAMES.map(|name| DriveSpec::nvme(name, GIB).served());
    let machine = Machine::restored(MachineSpec::new("node1").with(drives.into())).unwrap();
    let seconds = MINUTE.as_secs();
    let lab = LabRig::tuned(machine, "partition", |settings| {
        settings.more = format!("[health]\nlatency-interval = \"{seconds}s\"\n");
    })
    .await;
    for (number, name) in NAMES.into_iter().enumerate() {
        slow(&lab, name, 1);
        let drive = lab.drive_where(|drive| drive.serial == name).await.unwrap();
        let device = format!("/dev/{}", drive.kernel_name);
        // Drives that are blank are nobody's: what is written to their middle is lost with the machine.
        let pause = 0.02 * (number + 1) as f64;
        lab.guest().run(&format!(
            "systemd-run --quiet --collect --unit=load-{name} bash -c '\
             while :; do \
               dd if={device} of=/dev/null bs=4k count=40 skip=$((RANDOM % 9000 + 60000)) iflag=direct 2>/dev/null; \
               dd if=/dev/zero of={device} bs=4k count=20 seek=$((RANDOM % 9000 + 90000)) oflag=direct conv=notrunc 2>/dev/null; \
               sleep {pause}; \
             done'"
        ));
    }
    let end = Instant::now() + MINUTE * 12;
    while Instant::now() < end {
        assert_eq!(found(&lab).await, Vec::<String>::new());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let mut expected: Vec<&str> = Vec::new();
    for (name, times) in [("a", 50), ("b", 10), ("c", 3)] {
        slow(&lab, name, times);
        let begun = Instant::now();
        wait::until_async(MINUTE * 20, "the drive is found slow", async || {
            found(&lab)
                .await
                .iter()
                .any(|serial| serial == name)
                .then_some(())
        })
        .await;
        let minutes = begun.elapsed().as_secs_f64() / MINUTE.as_secs_f64();
        println!("{times} times: found after {minutes:.1} minutes");
        expected.push(name);
        let mut seen = found(&lab).await;
        seen.sort();
        assert_eq!(seen, expected);
    }
}
