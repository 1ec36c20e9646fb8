//! Slow drives, found by the real agent from the real kernel's counters: loop drives whose requests take longer, under a load of
//! random reads and writes. A minute of the comparison has ten seconds here. Needs root, FUSE and loop devices.
//!
//! Besides: how well slow drives are told from loaded ones on generated traces, the small version of `hwtests/slow`.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, hang::HungDrive, need, rig::Placed, scrape, slow_traces, wait,
};
use drivebay_proto::{agent::Drive, csi as wire};

const DRIVES: usize = 4;
/// What a healthy one takes.
const READ: Duration = Duration::from_millis(2);
const WRITE: Duration = Duration::from_millis(1);
/// A minute of the comparison.
const MINUTE: Duration = Duration::from_secs(10);
const BLOCK: usize = 4096;

/// Reads a drive and writes a file on it, past the cache, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// `pause`: between two requests, so that the drives are not equally busy.
    fn new(device: &Path, file: &Path, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let open = |path: &Path, write| {
            OpenOptions::new()
                .read(true)
                .write(write)
                .create(write)
                .custom_flags(nix::libc::O_DIRECT)
                .open(path)
                .unwrap()
        };
        let device = Arc::new(open(device, false));
        let file = Arc::new(open(file, true));
        let blocks = 8 * MIB / BLOCK as u64;
        let threads = (0..2).map(|_| {
            let (stop, device, file) = (stop.clone(), device.clone(), file.clone());
            thread::spawn(move || {
                let mut room = vec![0u8; 2 * BLOCK];
                let skip = room.as_ptr().align_offset(BLOCK);
                let block = &mut room[skip..skip + BLOCK];
                while !stop.load(Ordering::Relaxed) {
                    let at = fastrand::u64(..blocks) * BLOCK as u64;
                    if fastrand::u8(..8) == 0 {
                        write(&file, block, at);
                    } else {
                        device.read_exact_at(block, at).unwrap();
                    }
                    thread::sleep(pause);
                }
            })
        });
        let threads = threads.collect();
        Self { stop, threads }
    }
}

fn write(file: &File, block: &[u8], at: u64) {
    file.write_all_at(block, at).unwrap();
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Fields go in this order: the load before the mounts, these and the agent before the drives.
struct Stand {
    loads: Vec<Load>,
    volumes: Vec<Placed>,
    rig: Rig,
    drives: Vec<HungDrive>,
}

impl Stand {
    async fn new() -> Self {
        let drives: Vec<HungDrive> = (0..DRIVES)
            .map(|_| HungDrive::new(512 * MIB).unwrap())
            .collect();
        let class = |(n, drive): (usize, &HungDrive)| {
            let path = drive.file();
            let path = path.display();
            format!(
                "[[class]]\nname = \"slow{n}\"\nlayout = \"partition\"\nfs = \"ext4\"\n[class.select]\npath = [\"{path}\"]\n"
            )
        };
        let more: String = drives.iter().enumerate().map(class).collect();
        let seconds = MINUTE.as_secs();
        let rig = Rig::tuned(vec![DriveSpec::blank("unused", GIB)], |settings| {
            settings.more = format!("{more}[health]\nlatency-interval = \"{seconds}s\"\n");
        })
        .await;
        let mut stand = Self {
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
            let pause = Duration::from_millis(2 + n as u64);
            stand.loads.push(Load::new(&device, &file, pause));
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

    /// The n-th drive takes so many times as long.
    fn slow(&self, n: usize, reads: u32, writes: u32) {
        self.drives[n].answer_late(READ * reads, WRITE * writes);
    }

    async fn drive(&self, n: usize) -> Drive {
        let name = self.drives[n].drive_ref().unwrap().kernel_name;
        let found = self.rig.drive_where(|drive| drive.kernel_name == name);
        found.await.unwrap()
    }

    async fn finding(&self, n: usize) -> Option<String> {
        let drive = self.drive(n).await;
        let findings = drive.health.unwrap_or_default().findings.into_iter();
        let mut slow = findings.filter(|finding| finding.code == "Slow");
        slow.next().map(|finding| finding.message)
    }

    /// The drives that are slow.
    async fn found(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for n in 0..DRIVES {
            if self.finding(n).await.is_some() {
                found.push(n);
            }
        }
        found
    }

    /// Waits until the n-th drive is found slow; how long that took.
    async fn is_found(&self, n: usize) -> Duration {
        let begun = Instant::now();
        wait::until_async(MINUTE * 30, "the drive is found slow", async || {
            self.finding(n).await.map(|_| ())
        })
        .await;
        begun.elapsed()
    }

    fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let socket: PathBuf = self.rig.agent.settings().metrics_socket();
        scrape::value(&scrape::scrape(&socket).unwrap(), name, labels)
    }
}

#[tokio::test]
async fn a_drive_that_takes_3_10_or_50_times_as_long_is_found_and_no_other() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut stand = Stand::new().await;
    // Enough to know what is usual, and no finding meanwhile.
    let end = Instant::now() + MINUTE * 10;
    while Instant::now() < end {
        assert_eq!(stand.found().await, Vec::<usize>::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    // All requests fifty times.
    stand.slow(0, 50, 50);
    let took = stand.is_found(0).await;
    println!("50 times: found after {:.1} minutes", minutes(took));
    assert_eq!(stand.found().await, [0]);
    let drive = stand.drive(0).await;
    assert_eq!(drive.verdict, "SUSPECT");
    // The volume on it is told, the others are not.
    stand.rig.is_told(&stand.volumes[0], "DriveSuspect").await;
    stand.rig.is_well(&stand.volumes[1]).await;
    let id = format!("drive=\"{}\"", drive.id);
    let code = [id.as_str(), "code=\"Slow\""];
    assert_eq!(stand.metric("drivebay_drive_finding", &code), Some(1.0));
    let reads = [id.as_str(), "direction=\"read\""];
    let latency = stand.metric("drivebay_drive_io_latency_seconds", &reads);
    assert!(latency > Some(0.1), "{latency:?}");
    let shown = stand.rig.agent.ask(&["drive", "show", &drive.id]).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("compared with 3 others of its"), "{shown}");
    assert!(shown.contains('█') && shown.contains("slow for"), "{shown}");
    println!("{shown}");

    // A restart forgets nothing, however it comes.
    let message = stand.finding(0).await;
    stand.rig.agent.stop().unwrap();
    stand.rig.start_again().await;
    assert_eq!(stand.finding(0).await, message);
    stand.rig.agent.kill9();
    stand.rig.start_again().await;
    assert_eq!(stand.finding(0).await, message);

    // Reads only, ten times; the first is still slow, and known.
    wait::until(Duration::from_secs(30), "the drive is acknowledged", || {
        let answer = stand.rig.agent.ask(&["drive", "ack", &drive.id]).unwrap();
        answer.status.success().then_some(())
    });
    assert_eq!(stand.found().await, Vec::<usize>::new());
    stand.slow(1, 10, 1);
    let took = stand.is_found(1).await;
    println!("10 times, reads: found after {:.1} minutes", minutes(took));
    assert_eq!(stand.found().await, [1]);
    let message = stand.finding(1).await.unwrap();
    assert!(message.starts_with("reads take"), "{message}");
    assert!(!message.contains("writes"), "{message}");
    stand.rig.agent.kill9();
    stand.rig.start_again().await;
    assert_eq!(stand.found().await, [1], "the acknowledgement is kept");

    // Three times. Those that are slow already are no measure; what they were before is.
    stand.slow(2, 3, 3);
    let took = stand.is_found(2).await;
    println!("3 times: found after {:.1} minutes", minutes(took));
    assert_eq!(stand.found().await, [1, 2]);
    stand.loads.clear();
    for n in 0..DRIVES {
        stand.drives[n].answer_late(Duration::ZERO, Duration::ZERO);
    }
}

fn minutes(took: Duration) -> f64 {
    took.as_secs_f64() / MINUTE.as_secs_f64()
}

#[test]
fn slow_drives_are_told_from_loaded_ones_on_generated_traces() {
    let table = slow_traces::evaluate(7, 32);
    let all = table.all();
    assert!(
        all.recall() >= 0.9,
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
    assert_eq!(slow_traces::replay(7, 8), Vec::<String>::new());
}
