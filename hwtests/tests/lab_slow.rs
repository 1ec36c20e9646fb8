//! Slow drives in the lab: four NVMe drives, each with a volume under a separate fio load. One after another becomes slower, in each way
//! that a drive can, and gets the finding; load and erasing cause none. A minute of the comparison is shortened to 20 seconds, not less: an
//! emulated machine does little in five.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig, Machine, MachineSpec, nbd::Throttle},
    long,
    rig::Placed,
};

const MINUTE: Duration = Duration::from_secs(20);
/// Latency of a healthy drive's request; several times the emulation's own, which is not slowed down with it.
const LATENCY: Duration = Duration::from_millis(8);
/// Names, which are also the serial numbers: a single letter would be no identity.
const NAMES: [&str; 4] = ["drive-a", "drive-b", "drive-c", "drive-d"];
/// fio options of each volume's load: small and large requests, more reads or more writes, steady and in bursts.
const LOADS: [&str; 4] = [
    "--rw=randrw --rwmixread=70 --bs=4k --iodepth=1 --rate_iops=30,15",
    "--rw=randrw --rwmixread=50 --bs=16k --iodepth=2 --rate_iops=20,20",
    "--rw=randrw --rwmixread=80 --bs=4k --iodepth=2 --thinktime=700ms --thinktime_blocks=24",
    "--rw=randrw --rwmixread=60 --bssplit=4k/60:64k/40 --iodepth=1 --rate_iops=15,10",
];
/// Time limit of a finding, in minutes of the comparison.
const LATEST: u32 = 20;

struct Stand {
    lab: LabRig,
    /// The volume on each drive, in the order of `NAMES`.
    volumes: Vec<Placed>,
}

impl Stand {
    async fn new() -> Self {
        let drives = NAMES.map(|name| DriveSpec::nvme(name, GIB).served());
        let machine = Machine::restored(MachineSpec::new("node1").with(drives.into())).unwrap();
        let seconds = MINUTE.as_secs();
        let lab = LabRig::tuned(machine, "partition", |settings| {
            settings.placement = "spread".to_owned();
            settings.more = format!("[health]\nlatency-interval = \"{seconds}s\"\n");
        })
        .await;
        for name in NAMES {
            lab.drive_where_is(name, "available", |drive| drive.serial == name)
                .await;
        }
        let mut placed = Vec::new();
        for number in 0..NAMES.len() {
            let name = format!("volume{number}");
            let volume = lab.volume(&name, 128 * MIB, &csi::mount("ext4")).await;
            lab.use_volume(&volume).await;
            let drive = lab.volume_of(&volume.id).await.unwrap().drive;
            let drive = lab.drive_where(|of| of.id == drive).await.unwrap();
            placed.push((drive.serial, volume));
        }
        // Placement is spread: one on each drive.
        placed.sort_by(|a, b| a.0.cmp(&b.0));
        let serials: Vec<&str> = placed.iter().map(|(serial, _)| serial.as_str()).collect();
        assert_eq!(serials, NAMES);
        let stand = Self {
            lab,
            volumes: placed.into_iter().map(|(_, volume)| volume).collect(),
        };
        for (number, load) in LOADS.into_iter().enumerate() {
            stand.takes(number, 1, 1);
            stand.load(number, "steady", load, MINUTE * 600);
        }
        stand
    }

    /// Slows a drive down: latencies of reads and of all other requests, in multiples of [LATENCY].
    fn takes(&self, number: usize, reads: u32, others: u32) {
        let nbd = self.lab.machine.drive(NAMES[number]).nbd();
        nbd.throttle(Some(Throttle {
            bytes_per_second: None,
            latency: LATENCY * others,
            read_latency: Some(LATENCY * reads),
        }));
    }

    fn load(&self, number: usize, name: &str, load: &str, time: Duration) {
        let target = self.volumes[number].target.display();
        let (unit, seconds) = (format!("{name}-{}", NAMES[number]), time.as_secs());
        self.lab.guest().run(&format!(
            "systemd-run --quiet --collect --unit={unit} fio --name={unit} --filename={target}/load --size=32M --direct=1 \
             --ioengine=libaio {load} --time_based --runtime={seconds}"
        ));
    }

    /// Returns the serial numbers of the drives with the finding Slow, sorted.
    async fn slow_serials(&self) -> Vec<String> {
        let inventory = self.lab.inventory().await;
        let slow = inventory.drives.into_iter().filter(|drive| {
            let health = drive.health.clone().unwrap_or_default();
            health.findings.iter().any(|finding| finding.code == "Slow")
        });
        let mut serials: Vec<String> = slow.map(|drive| drive.serial).collect();
        serials.sort();
        serials
    }

    /// Checks for `minutes` that these drives, and no others, have the finding.
    async fn stays(&self, minutes: u32, expected: &[&str]) {
        let end = Instant::now() + MINUTE * minutes;
        while Instant::now() < end {
            assert_eq!(self.slow_serials().await, expected);
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    }

    /// Waits until this drive has the finding in addition to those before it, and no other one; then restores its latency. `each` runs
    /// meanwhile, with the minutes passed.
    async fn is_found(&self, number: usize, how: &str, mut each: impl AsyncFnMut(f64)) {
        let begun = Instant::now();
        let minutes = || begun.elapsed().as_secs_f64() / MINUTE.as_secs_f64();
        while self.slow_serials().await.len() <= number {
            assert!(minutes() < f64::from(LATEST), "{how}: not found");
            each(minutes()).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        println!("{how}: found after {:.1} minutes", minutes());
        assert_eq!(self.slow_serials().await, NAMES[..=number]);
        self.takes(number, 1, 1);
    }

    /// Creates and deletes a volume, and waits until it is erased. It is placed on a drive with space that is not SUSPECT.
    async fn erases(&self) {
        let volume = self.lab.volume("erased", 512 * MIB, &csi::block()).await;
        self.lab.csi.delete(&volume.id).await.unwrap();
        self.lab.erased().await;
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_is_slower_than_its_peers_is_found_and_no_other() {
    long!();
    let stand = Stand::new().await;
    // Normal load; then more than a drive can handle, for a while, and erasing.
    stand.stays(10, &[]).await;
    let all = "--rw=randrw --rwmixread=50 --bs=32k --iodepth=8";
    stand.load(3, "burst", all, MINUTE * 2);
    stand.erases().await;
    stand.stays(6, &[]).await;

    stand.takes(0, 50, 50);
    stand.is_found(0, "50 times", async |_| ()).await;
    stand.takes(1, 3, 1);
    stand.is_found(1, "reads 3 times", async |_| ()).await;
    let bursts = async |minutes: f64| {
        let times = if minutes % 3.0 < 2.0 { 10 } else { 1 };
        stand.takes(2, times, times);
    };
    stand
        .is_found(2, "10 times, two of three minutes", bursts)
        .await;
    stand.takes(3, 3, 3);
    stand
        .is_found(3, "3 times while it is erased", async |_| {
            stand.erases().await
        })
        .await;
}
