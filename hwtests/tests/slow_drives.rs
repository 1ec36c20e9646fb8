//! Slow drives, detected by the real agent from the real kernel's counters: loop drives with delayed requests, under a load of random reads
//! and writes. A minute of the comparison takes ten seconds here. Needs root, FUSE and loop devices.
//!
//! Also: how well slow drives are distinguished from loaded ones on generated traces, the small version of `hwtests/slow`.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    ffi::OsString,
    fs::File,
    path::PathBuf,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, children::Process, csi, hang::HungDrive, need, rig::Placed, scrape,
    slow_traces, wait,
};
use drivebay_proto::{agent::Drive, csi as wire};

const DRIVES: usize = 4;
/// Time of a read from a healthy drive.
const READ: Duration = Duration::from_millis(2);
const WRITE: Duration = Duration::from_millis(1);
const LOAD: &str = env!("CARGO_BIN_EXE_drivebay-load");

/// Fields are dropped in this order: the load before the mounts, these and the agent before the drives.
struct Stand {
    /// Duration of a minute of the comparison.
    minute: Duration,
    loads: Vec<Process>,
    volumes: Vec<Placed>,
    rig: Rig,
    drives: Vec<HungDrive>,
}

impl Stand {
    async fn new(minute: Duration) -> Self {
        let drives: Vec<HungDrive> = (0..DRIVES)
            .map(|_| HungDrive::new(512 * MIB).unwrap())
            .collect();
        let class = |(n, drive): (usize, &HungDrive)| drive.class(&format!("slow{n}"), "partition");
        let more: String = drives.iter().enumerate().map(class).collect();
        let seconds = minute.as_secs();
        let rig = Rig::tuned(vec![DriveSpec::blank("unused", GIB)], |settings| {
            settings.more = format!("{more}[health]\nlatency-interval = \"{seconds}s\"\n");
        })
        .await;
        let mut stand = Self {
            minute,
            loads: Vec::new(),
            volumes: Vec::new(),
            rig,
            drives,
        };
        for n in 0..DRIVES {
            stand.volumes.push(stand.volume(n).await);
            stand.slow(n, 1, 1);
            let device = stand.drives[n].drive_ref().unwrap().node();
            let file = stand.volumes[n].target.join("load");
            File::create(&file).unwrap().set_len(8 * MIB).unwrap();
            // With different loads.
            let pause = (2 + n).to_string();
            let args = [
                "--pause".into(),
                pause.into(),
                "--depth=2".into(),
                device.into(),
                file.into(),
            ];
            let args: [OsString; 5] = args;
            let log = stand.rig.agent.settings().dir.join(format!("load{n}.log"));
            stand.loads.push(Process::start(LOAD, &args, &log).unwrap());
        }
        // Long enough for a baseline, and without findings meanwhile.
        let end = Instant::now() + minute * 10;
        while Instant::now() < end {
            assert_eq!(stand.slow_numbers().await, Vec::<usize>::new());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stand
    }

    async fn volume(&self, n: usize) -> Placed {
        let name = format!("volume{n}");
        let volume = self.rig.csi.create_with(wire::CreateVolumeRequest {
            name: name.clone(),
            capacity_range: Some(csi::bytes(64 * MIB)),
            volume_capabilities: vec![csi::mount("ext4")],
            parameters: [("class".to_owned(), format!("slow{n}"))].into(),
            ..Default::default()
        });
        let placed = self
            .rig
            .place(&volume.await.unwrap(), &name, &csi::mount("ext4"));
        self.rig.use_volume(&placed).await;
        placed
    }

    /// Multiplies the time of the n-th drive's reads and writes.
    fn slow(&self, n: usize, reads: u32, writes: u32) {
        self.drives[n].answer_late(READ * reads, WRITE * writes);
    }

    async fn drive(&self, n: usize) -> Drive {
        let name = self.drives[n].drive_ref().unwrap().kernel_name;
        let drive = self.rig.drive_where(|drive| drive.kernel_name == name);
        drive.await.unwrap()
    }

    async fn finding(&self, n: usize) -> Option<String> {
        let drive = self.drive(n).await;
        let findings = drive.health.unwrap_or_default().findings.into_iter();
        let mut slow = findings.filter(|finding| finding.code == "Slow" && !finding.acknowledged);
        slow.next().map(|finding| finding.message)
    }

    /// Returns the numbers of the drives with a finding.
    async fn slow_numbers(&self) -> Vec<usize> {
        let mut numbers = Vec::new();
        for n in 0..DRIVES {
            if self.finding(n).await.is_some() {
                numbers.push(n);
            }
        }
        numbers
    }

    /// Waits for a finding on the n-th drive. Returns the minutes of the comparison until then.
    async fn is_found(&self, n: usize) -> f64 {
        let begun = Instant::now();
        wait::until_async(self.minute * 30, "the drive is found slow", async || {
            self.finding(n).await.map(|_| ())
        })
        .await;
        begun.elapsed().as_secs_f64() / self.minute.as_secs_f64()
    }

    /// Ends without waiting for delayed requests.
    fn end(mut self) {
        for drive in &self.drives {
            drive.answer_late(Duration::ZERO, Duration::ZERO);
        }
        self.loads.clear();
    }

    fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let socket: PathBuf = self.rig.agent.settings().metrics_socket();
        scrape::value(&scrape::scrape(&socket).unwrap(), name, labels)
    }
}

#[tokio::test]
#[ignore = "takes ten minutes; hwtests/faults --long runs it"]
async fn a_drive_that_takes_3_10_or_50_times_as_long_is_found_and_no_other() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut stand = Stand::new(Duration::from_secs(10)).await;
    // All requests take fifty times as long.
    stand.slow(0, 50, 50);
    let took = stand.is_found(0).await;
    println!("50 times: found after {took:.1} minutes");
    assert_eq!(stand.slow_numbers().await, [0]);
    let drive = stand.drive(0).await;
    assert_eq!(drive.verdict, "SUSPECT");
    // Its volume has the condition, the others do not.
    stand
        .rig
        .has_condition(&stand.volumes[0], "DriveSuspect")
        .await;
    stand.rig.is_well(&stand.volumes[1]).await;
    let id = format!("drive=\"{}\"", drive.id);
    let code = [id.as_str(), "code=\"Slow\""];
    assert_eq!(stand.metric("drivebay_drive_finding", &code), Some(1.0));
    let reads = [id.as_str(), "direction=\"read\""];
    let latency = stand.metric("drivebay_drive_io_latency_seconds", &reads);
    assert!(latency > Some(0.1), "{latency:?}");
    let shown = stand
        .rig
        .agent
        .run_command(&["drive", "show", &drive.id])
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("compared with 3 other drives of its"),
        "{shown}"
    );
    assert!(shown.contains('█') && shown.contains("slow for"), "{shown}");
    println!("{shown}");

    // The finding survives a restart of any kind.
    let message = stand.finding(0).await;
    stand.rig.agent.stop().unwrap();
    stand.rig.start_again().await;
    assert_eq!(stand.finding(0).await, message);
    stand.rig.agent.kill9();
    stand.rig.start_again().await;
    assert_eq!(stand.finding(0).await, message);

    // Reads only, ten times as long; the first drive is still slow, and acknowledged.
    wait::until(Duration::from_secs(30), "the drive is acknowledged", || {
        let ack = ["drive", "ack", &drive.id, "--by", "operator"];
        let answer = stand.rig.agent.run_command(&ack).unwrap();
        answer.status.success().then_some(())
    });
    assert_eq!(stand.slow_numbers().await, Vec::<usize>::new());
    stand.slow(1, 10, 1);
    let took = stand.is_found(1).await;
    println!("10 times, reads: found after {took:.1} minutes");
    assert_eq!(stand.slow_numbers().await, [1]);
    let message = stand.finding(1).await.unwrap();
    assert!(message.starts_with("reads take"), "{message}");
    assert!(!message.contains("writes"), "{message}");
    stand.rig.agent.kill9();
    stand.rig.start_again().await;
    assert_eq!(
        stand.slow_numbers().await,
        [1],
        "the acknowledgement is kept"
    );

    // Three times as long. Drives that are slow already are no reference; their earlier times are.
    stand.slow(2, 3, 3);
    let took = stand.is_found(2).await;
    println!("3 times: found after {took:.1} minutes");
    assert_eq!(stand.slow_numbers().await, [1, 2]);
    stand.end();
}

#[test]
fn slow_drives_are_distinguished_from_loaded_ones_on_generated_traces() {
    // A threefold delay is missed now and then, which counts for more among few; `hwtests/slow` evaluates a thousand.
    let (traces, least) = if need::is_long() { (32, 0.9) } else { (8, 0.7) };
    let table = slow_traces::evaluate(7, traces);
    let all = table.all();
    assert!(
        all.recall() >= least,
        "{}\n{:#?}",
        table.render(),
        table.missed
    );
    assert!(
        table.false_alarms.len() <= 1,
        "{}\n{:#?}",
        table.render(),
        table.false_alarms
    );
    assert_eq!(slow_traces::replay(7, 4), Vec::<String>::new());
}
