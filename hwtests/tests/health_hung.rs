//! Drives with unreadable places, or that do not respond: unreadable places are found by reading now and then. With every drive of a node
//! hung, volumes are reported as inaccessible, and NodeGetVolumeStats answers in time and starts no process. Needs root, FUSE and loop
//! devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi, hang::HungDrive, long_on_drives, need, rig::Placed,
    starts::Starts, wait,
};
use drivebay_proto::csi as wire;
use drivebay_sys::fanotify::FsErrors;

/// Time limit of a sample: its deadline is half a second; the rest is for a busy machine, and shorter than the second that a killed worker
/// may take to end.
const SAMPLE: Duration = Duration::from_millis(1400);
/// Ten seconds until a stall, a check every three seconds, and a busy machine.
const REPORT_LIMIT: Duration = Duration::from_secs(60);

const WINDOWS: usize = 5;
/// A place is read each minute, one time in eight outside of volumes.
const READ_LIMIT: Duration = Duration::from_secs(400);

/// Fields are dropped in this order: the agent and the mounts before the drives.
struct Stand {
    rig: Rig,
    drives: Vec<HungDrive>,
    readers: Vec<Child>,
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Before everything else, or the rest would never end.
        for drive in &self.drives {
            drive.resume();
        }
        for reader in &mut self.readers {
            let _ = reader.wait();
        }
    }
}

impl Stand {
    async fn new() -> Self {
        let drives: Vec<HungDrive> = (0..2).map(|_| HungDrive::new(512 * MIB).unwrap()).collect();
        let class = |(n, drive): (usize, &HungDrive)| drive.class(&format!("hung{n}"), "partition");
        let more: String = drives.iter().enumerate().map(class).collect();
        // The agent needs a class for the shelf's drive; this one is never claimed.
        let rig = Rig::tuned(vec![DriveSpec::blank("unused", GIB)], |settings| {
            settings.more = more;
        })
        .await;
        Self {
            rig,
            drives,
            readers: Vec::new(),
        }
    }

    async fn volume(&self, n: usize) -> Placed {
        self.named_volume(&format!("volume{n}"), n).await
    }

    /// Returns a volume on the n-th drive, in use.
    async fn named_volume(&self, name: &str, n: usize) -> Placed {
        let volume = self.rig.csi.create_with(wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(64 * MIB)),
            volume_capabilities: vec![csi::mount("ext4")],
            parameters: [("class".to_owned(), format!("hung{n}"))].into(),
            ..Default::default()
        });
        let volume = match volume.await {
            Ok(volume) => volume,
            Err(status) => panic!("{status}: {:#?}", self.rig.inventory().await),
        };
        let placed = self.rig.place(&volume, name, &csi::mount("ext4"));
        self.rig.use_volume(&placed).await;
        placed
    }

    fn hang(&mut self) {
        // A sample without cached data waits for the drive.
        sh("sync; echo 3 >/proc/sys/vm/drop_caches");
        for drive in &self.drives {
            drive.hang();
            // Read by another program.
            let node = drive.drive_ref().unwrap().node();
            let reader = Command::new("dd")
                .arg(format!("if={}", node.display()))
                .args(["of=/dev/null", "iflag=direct", "bs=4096", "count=1"])
                .stderr(Stdio::null())
                .spawn();
            self.readers.push(reader.unwrap());
        }
    }

    async fn sample(&self, volume: &Placed) -> wire::NodeGetVolumeStatsResponse {
        let begun = Instant::now();
        let stats = self
            .rig
            .csi
            .stats(&volume.id, &volume.target)
            .await
            .unwrap();
        let took = begun.elapsed();
        assert!(took < SAMPLE, "a sample took {took:?}");
        assert!(stats.usage[0].total > 0, "{stats:?}");
        stats
    }

    async fn is_sampled(&self, volume: &Placed, abnormal: bool) {
        let condition = self.sample(volume).await.volume_condition.unwrap();
        assert_eq!(condition.abnormal, abnormal, "{condition:?}");
    }
}

fn sh(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status();
    assert!(status.unwrap().success(), "{script}");
}

/// Every pod on a hung drive can be removed, whatever their number, also when the agent was restarted meanwhile; the rest of the node is
/// unaffected.
#[tokio::test]
async fn every_volume_of_a_hung_drive_is_unpublished_and_unstaged_in_its_time() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    const VOLUMES: usize = 5;
    // The kubelet's call lasts two minutes.
    const CALL: Duration = Duration::from_secs(100);
    let restarts: &[bool] = match need::is_long() {
        true => &[false, true],
        false => &[true],
    };
    for &restart in restarts {
        let mut stand = Stand::new().await;
        let mut volumes = Vec::new();
        for n in 0..VOLUMES {
            let volume = stand.named_volume(&format!("pod{n}"), 0).await;
            std::fs::write(volume.target.join("file"), vec![7; 1 << 20]).unwrap();
            volumes.push(volume);
        }
        let beside = stand.named_volume("beside", 1).await;
        stand.drives[0].hang();
        let node = stand.drives[0].drive_ref().unwrap().node();
        let reader = Command::new("dd")
            .arg(format!("if={}", node.display()))
            .args(["of=/dev/null", "iflag=direct", "bs=4096", "count=1"])
            .stderr(Stdio::null())
            .spawn();
        stand.readers.push(reader.unwrap());
        if restart {
            stand.rig.agent.kill9();
            stand.rig.agent.start_again().await.unwrap();
            stand.rig.csi = stand.rig.agent.csi().await.unwrap();
        }
        let begun = Instant::now();
        // All pods are deleted at once, and each call is repeated until it returns OK.
        let mut gone = tokio::task::JoinSet::new();
        for volume in volumes.clone() {
            let csi = stand.rig.csi.clone();
            gone.spawn(async move {
                let repeated = async {
                    while csi.unpublish(&volume.id, &volume.target).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                    while csi.unstage(&volume.id, &volume.staging).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                };
                tokio::time::timeout(CALL, repeated).await
            });
        }
        for _ in 0..3 {
            stand.rig.leave_volume(&beside).await;
            stand.rig.use_volume(&beside).await;
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "beside it: {took:?}");
        let all = gone.join_all().await;
        let late = all.iter().filter(|one| one.is_err()).count();
        assert_eq!(
            late, 0,
            "restart {restart}: {late} of {VOLUMES} volumes are still mounted"
        );
        eprintln!(
            "restart {restart}: {VOLUMES} volumes left a hung drive in {:?}",
            begun.elapsed()
        );
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        for volume in &volumes {
            assert!(!mounts.contains(volume.target.to_str().unwrap()));
            assert!(!mounts.contains(volume.staging.to_str().unwrap()));
        }
        stand.rig.leave_volume(&beside).await;
    }
}

#[tokio::test]
async fn with_every_drive_hung_volumes_are_inaccessible_and_samples_come_in_time_without_a_process()
{
    need!(root, loop, tool "mkfs.ext4", fs "ext4", tool "strace");
    let mut stand = Stand::new().await;
    let volumes = [stand.volume(0).await, stand.volume(1).await];
    for volume in &volumes {
        stand.is_sampled(volume, false).await;
    }
    // Before any drive hangs: the workers that it can start are those of the drives' two other slots.
    stand.hang();
    for volume in &volumes {
        // It need not be reported yet.
        stand.sample(volume).await;
    }
    for volume in &volumes {
        let what = format!(
            "{} is reported to be on a drive that stands still",
            volume.id
        );
        let condition = wait::until_async(REPORT_LIMIT, &what, async || {
            let volume = stand.rig.volume_of(&volume.id).await?;
            let mut conditions = volume.conditions.into_iter();
            conditions.find(|one| one.reason == "DriveStalled")
        })
        .await;
        assert_eq!(condition.status, "INACCESSIBLE");
        assert!(condition.message.contains("IoStalled"), "{condition:?}");
    }
    let starts = Starts::watch(stand.rig.agent.pid(), stand.rig.dir()).unwrap();
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let before = starts.so_far().unwrap().len();
        for _ in 0..20 {
            for volume in &volumes {
                stand.is_sampled(volume, true).await;
            }
        }
        windows.push(starts.so_far().unwrap().split_off(before));
    }
    // The agent may have begun a poll in one of them.
    assert!(
        windows.iter().any(Vec::is_empty),
        "processes were started in every window: {windows:#?}"
    );
    for drive in &stand.drives {
        drive.resume();
    }
    starts.finish().unwrap();
    for volume in &volumes {
        let what = format!("{} is well again", volume.id);
        wait::until_async(REPORT_LIMIT, &what, async || {
            let volume = stand.rig.volume_of(&volume.id).await?;
            volume.conditions.is_empty().then_some(())
        })
        .await;
        stand.is_sampled(volume, false).await;
        stand.rig.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn a_place_that_does_not_read_is_found_and_reported_until_it_reads_again() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    long_on_drives!();
    let stand = Stand::new().await;
    let (bad, quiet) = (stand.volume(0).await, stand.volume(1).await);
    // No program reads there, so only the agent can find it: the volume begins behind the label, of 4 MiB and more.
    stand.drives[0].spoil(8 * MIB..60 * MIB);
    let condition = wait::until_async(READ_LIMIT, "a place does not read", async || {
        let volume = stand.rig.volume_of(&bad.id).await?;
        let mut conditions = volume.conditions.into_iter();
        conditions.find(|one| one.reason == "ReadFailed")
    })
    .await;
    assert_eq!(condition.status, "DEGRADED");
    let inventory = stand.rig.inventory().await;
    let on = stand.rig.volume_of(&bad.id).await.unwrap().drive;
    let drive = inventory
        .drives
        .iter()
        .find(|drive| drive.id == on)
        .unwrap();
    assert_eq!(drive.verdict, "SUSPECT");
    let note = |note: &String| note.starts_with("ReadFailed");
    assert!(drive.all_notes().iter().any(note), "{drive:#?}");
    assert_eq!(stand.rig.volume_of(&quiet.id).await.unwrap().conditions, []);

    stand.drives[0].spoil(0..0);
    // Kernel messages about the drive count for a day; findings of the agent's own reads are cleared.
    wait::until_async(READ_LIMIT, "everything reads again", async || {
        let volume = stand.rig.volume_of(&bad.id).await?;
        let mut conditions = volume.conditions.iter();
        (!conditions.any(|one| one.reason == "ReadFailed")).then_some(())
    })
    .await;
    stand.rig.leave_volume(&bad).await;
}

#[tokio::test]
async fn listening_to_a_filesystem_waits_for_no_drive_and_keeps_nothing_mounted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let drive = HungDrive::new(64 * MIB).unwrap();
    let drive_ref = drive.drive_ref().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (node, path) = (drive_ref.node(), dir.path().to_owned());
    let (node, at) = (node.display(), path.display());
    sh(&format!("mkfs.ext4 -q {node}; mount {node} {at}"));
    sh("sync; echo 3 >/proc/sys/vm/drop_caches");
    let group = FsErrors::new().unwrap();
    let marker = group.marker().unwrap();
    drive.hang();
    let (done, wait) = mpsc::channel();
    let marked = path.clone();
    thread::spawn(move || done.send(marker.mark(&marked)));
    let marked = wait.recv_timeout(REPORT_LIMIT);
    drive.resume();
    marked.expect("the mark waits for the drive").unwrap();
    sh(&format!("umount {at}"));
    let superblock = Path::new("/sys/fs/ext4").join(&drive_ref.kernel_name);
    assert!(!superblock.exists(), "the mark keeps it");
    drop(group);
}
