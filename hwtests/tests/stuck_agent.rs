//! A whole agent with a drive that stops responding: everything else is served as before, a restart is possible and makes nothing worse,
//! and the drive recovers without a restart. Needs root, FUSE and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    future::Future,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, agent,
    csi::{self, Csi},
    hang::{Hang, HungDrive},
    need,
    rig::Placed,
    wait,
};
use drivebay_proto::{
    agent::{RescanRequest, agent_client::AgentClient},
    csi::{self as wire, VolumeCondition},
};
use drivebay_sys::process;
use tokio::time::timeout;
use tonic::{Code, Status};

/// Time limit of each call that does not concern the hung drive: less than the shortest deadline of a step that hangs (10 s), so that it
/// cannot have waited for one; a busy machine needs some of it.
const PROMPT: Duration = Duration::from_secs(8);
/// Time limit of a sample: its deadline is half a second; the rest is for a busy machine, and shorter than the second that a killed worker
/// may take to end.
const SAMPLE: Duration = Duration::from_millis(1400);
/// Time limit of a call for the hung drive, once it is known to be stuck.
const REFUSED: Duration = Duration::from_secs(3);

/// Fields are dropped in this order: the agent and the mounts before the drive.
struct Stand {
    rig: Rig,
    hang: HungDrive,
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Before everything else, or the rest would never end.
        self.hang.resume();
    }
}

impl Stand {
    async fn new() -> Self {
        let hang = HungDrive::new(512 * MIB).unwrap();
        let rig = Rig::tuned(vec![DriveSpec::blank("healthy", 4 * GIB)], |settings| {
            settings.more = hang.class("hung", "partition");
        })
        .await;
        Self { rig, hang }
    }

    async fn create(&self, class: &str, name: &str) -> Result<wire::Volume, Status> {
        create(&self.rig.csi, class, name).await
    }

    async fn volume(&self, class: &str, name: &str) -> Placed {
        let volume = self.create(class, name).await.unwrap();
        self.rig.place(&volume, name, &csi::mount("ext4"))
    }

    /// Returns the id of the hung drive in the agent's inventory.
    async fn drive_id(&self) -> String {
        let kernel_name = self.hang.drive_ref().unwrap().kernel_name;
        let inventory = self.rig.inventory().await;
        let drive = inventory
            .drives
            .iter()
            .find(|drive| drive.kernel_name == kernel_name);
        drive.expect("the agent lists the drive").id.clone()
    }

    fn note(&self, drive: &str) -> PathBuf {
        let name = format!("foreground-{drive}.json");
        self.rig.dir().join("run/workers").join(name)
    }

    /// Requests a scan of all drives, which hangs on one of them.
    async fn rescan(&self) -> tokio::task::JoinHandle<Result<(), Status>> {
        let socket = self.rig.agent.settings().agent_socket();
        let mut client = AgentClient::new(csi::channel(&socket).await.unwrap());
        tokio::spawn(async move { client.rescan(RescanRequest {}).await.map(drop) })
    }

    /// Waits for a hung worker, in D state by the kernel, and returns its process id.
    async fn hung_worker(&self) -> i32 {
        let agent = self.rig.agent.pid();
        wait::until_async(
            Duration::from_secs(20),
            "a worker is in D state",
            async || {
                let workers = agent::descendants(agent).into_iter();
                let mut pids = workers.filter_map(|pid| i32::try_from(pid).ok());
                pids.find(|pid| is_hung(*pid))
                    .filter(|_| self.hang.hanging() > 0)
            },
        )
        .await
    }

    /// Returns the process id of the worker of the drive's foreground slot, in the note for the agent's successor. Another worker may hang
    /// in the background.
    fn noted_worker(&self, drive: &str) -> i32 {
        let note = fs::read_to_string(self.note(drive)).unwrap();
        let note: serde_json::Value = serde_json::from_str(&note).unwrap();
        i32::try_from(note["pid"].as_i64().unwrap()).unwrap()
    }

    async fn condition(&self, id: &str) -> VolumeCondition {
        let entries = prompt("ListVolumes", self.rig.csi.list()).await.unwrap();
        let entry = entries.into_iter().find(|entry| {
            let volume = entry.volume.as_ref();
            volume.is_some_and(|volume| volume.volume_id == id)
        });
        let status = entry.expect("the volume is listed").status;
        status.and_then(|status| status.volume_condition).unwrap()
    }

    /// Verifies that calls that do not concern the hung drive are served.
    async fn the_rest_is_served(&self, healthy: &Placed, hung: &Placed, round: &str) {
        let csi = &self.rig.csi;
        assert!(prompt("Probe", csi.ready()).await);
        let mut node = csi.node();
        let info = node.node_get_info(wire::NodeGetInfoRequest {});
        prompt("NodeGetInfo", info).await.unwrap();
        let ids = prompt("ListVolumes", csi.ids()).await.unwrap();
        assert!(
            ids.contains(&healthy.id) && ids.contains(&hung.id),
            "{ids:?}"
        );
        assert!(prompt("GetCapacity", csi.capacity()).await.unwrap() > 0);
        let stats = csi.stats(&healthy.id, &healthy.target);
        let stats = prompt("NodeGetVolumeStats", stats).await.unwrap();
        assert!(!stats.volume_condition.unwrap().abnormal);

        // Each filesystem is made beside it: mkfs.btrfs would query the hung drive for its UUID, too.
        for (fs_type, size) in [("ext4", 64), ("xfs", 320), ("btrfs", 320)] {
            let name = format!("beside-{round}-{fs_type}");
            let capability = csi::mount(fs_type);
            let made = make(csi, "demo", &name, (size * MIB, &capability));
            let made = prompt("CreateVolume", made).await.unwrap();
            let made = self.rig.place(&made, &name, &capability);
            prompt(
                &format!("stage and publish {fs_type}"),
                self.rig.use_volume(&made),
            )
            .await;
            fs::write(made.target.join("file"), "written").unwrap();
            let unpublish = csi.unpublish(&made.id, &made.target);
            prompt("NodeUnpublishVolume", unpublish).await.unwrap();
            let unstage = csi.unstage(&made.id, &made.staging);
            prompt("NodeUnstageVolume", unstage).await.unwrap();
            prompt("DeleteVolume", csi.delete(&made.id)).await.unwrap();
        }
    }

    /// Verifies that the last sample is returned at once.
    async fn the_hung_volume_is_sampled(&self, hung: &Placed) -> VolumeCondition {
        let begun = Instant::now();
        let stats = self.rig.csi.stats(&hung.id, &hung.target).await.unwrap();
        let took = begun.elapsed();
        assert!(took < SAMPLE, "a sample took {took:?}");
        assert!(stats.usage[0].total > 0, "{stats:?}");
        stats.volume_condition.unwrap()
    }

    /// Verifies that every call for the stuck drive is refused.
    async fn the_hung_drive_is_refused(&self, hung: &Placed, spare: &Placed) {
        let csi = &self.rig.csi;
        let other = self.rig.dir().join("kubelet/pods/other/mount");
        refused(
            "stage",
            csi.stage(&spare.id, &spare.staging, &spare.capability),
        )
        .await;
        let publish = csi.publish(&hung.id, &hung.staging, &other, &hung.capability, false);
        refused("publish", publish).await;
        refused("delete", csi.delete(&spare.id)).await;
        let expand = csi.expand(&spare.id, 2 * spare.bytes, &spare.capability);
        refused("expand", expand).await;
        // Another node may have space: the scheduler must try it.
        let create = timeout(REFUSED, self.create("hung", "more")).await;
        let code = create.expect("create answers").unwrap_err().code();
        assert!(
            matches!(code, Code::ResourceExhausted | Code::Unavailable),
            "{code:?}"
        );
    }

    async fn the_hung_drive_is_shown(&self, id: &str) {
        let inventory = self.rig.inventory().await;
        let drive = inventory.drives.iter().find(|drive| drive.id == id);
        let drive = drive.expect("the drive is listed");
        assert!(
            !["available", "claimed"].contains(&drive.state.as_str()),
            "{drive:?}"
        );
        assert_eq!(drive.class, "hung");
        assert!(
            drive.all_notes().iter().any(|note| note.contains("stuck")),
            "{drive:?}"
        );
        let table = self.rig.agent.run_command(&["drives"]).unwrap();
        let table = String::from_utf8_lossy(&table.stdout).into_owned();
        let row = table.lines().find(|line| line.contains(&drive.kernel_name));
        let row = row.unwrap_or_else(|| panic!("no row in\n{table}"));
        assert!(
            !row.contains("available") && !row.contains("blank"),
            "{row}"
        );
    }
}

async fn create(csi: &Csi, class: &str, name: &str) -> Result<wire::Volume, Status> {
    make(csi, class, name, (64 * MIB, &csi::mount("ext4"))).await
}

async fn make(
    csi: &Csi,
    class: &str,
    name: &str,
    (size, capability): (u64, &wire::VolumeCapability),
) -> Result<wire::Volume, Status> {
    csi.create_with(wire::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(size)),
        volume_capabilities: vec![capability.clone()],
        parameters: [("class".to_owned(), class.to_owned())].into(),
        ..Default::default()
    })
    .await
}

fn is_hung(pid: i32) -> bool {
    matches!(process::stat(pid), Ok(Some(stat)) if stat.state == 'D')
}

async fn prompt<T>(what: &str, call: impl Future<Output = T>) -> T {
    let answer = timeout(PROMPT, call).await;
    answer.unwrap_or_else(|_| panic!("{what} did not answer within {} s", PROMPT.as_secs()))
}

async fn refused<T: std::fmt::Debug>(what: &str, call: impl Future<Output = Result<T, Status>>) {
    let answer = timeout(REFUSED, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} did not answer"));
    let status = answer.expect_err(what);
    assert!(
        matches!(
            status.code(),
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded
        ),
        "{what}: {status}"
    );
}

#[tokio::test]
async fn a_drive_that_hangs_costs_its_own_volumes_and_nothing_else() {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    let mut stand = Stand::new().await;
    let healthy = stand.volume("demo", "healthy").await;
    let hung = stand.volume("hung", "hung").await;
    let spare = stand.volume("hung", "spare").await;
    for volume in [&healthy, &hung] {
        stand.rig.use_volume(volume).await;
        fs::write(volume.target.join("before"), "before").unwrap();
        let stats = stand.rig.csi.stats(&volume.id, &volume.target).await;
        assert!(!stats.unwrap().volume_condition.unwrap().abnormal);
    }
    let drive = stand.drive_id().await;

    stand.hang.hang();
    let rescan = stand.rescan().await;
    stand.hung_worker().await;
    // No sign of the hang yet: the drive's worker has other work.
    stand.the_hung_volume_is_sampled(&hung).await;
    stand.the_rest_is_served(&healthy, &hung, "busy").await;

    // The scan's deadline passes and its worker is killed. A worker that happens to be in an interruptible call ends, and that of the next
    // scan does not.
    timeout(Duration::from_secs(30), rescan)
        .await
        .expect("the rescan answers")
        .unwrap()
        .unwrap();
    let limit = Duration::from_secs(30);
    wait::until_async(limit, "the drive is shown as stuck", async || {
        let inventory = stand.rig.inventory().await;
        let notes = inventory.drives.iter().find(|of| of.id == drive)?;
        notes
            .all_notes()
            .iter()
            .any(|note| note.contains("stuck"))
            .then_some(())
    })
    .await;
    let worker = stand.noted_worker(&drive);
    assert!(is_hung(worker));
    stand.the_hung_drive_is_shown(&drive).await;
    assert!(stand.condition(&hung.id).await.abnormal);
    assert!(stand.the_hung_volume_is_sampled(&hung).await.abnormal);
    stand.the_hung_drive_is_refused(&hung, &spare).await;
    stand.the_rest_is_served(&healthy, &hung, "stuck").await;

    stand.rig.agent.stop().unwrap();
    assert!(is_hung(worker));
    let noted = fs::read_to_string(stand.note(&drive)).unwrap();
    assert!(noted.contains(&worker.to_string()), "{noted}");

    stand.rig.start_again().await;
    assert!(is_hung(worker));
    stand.the_hung_drive_is_shown(&drive).await;
    assert!(stand.condition(&hung.id).await.abnormal);
    assert!(stand.the_hung_volume_is_sampled(&hung).await.abnormal);
    stand.the_hung_drive_is_refused(&hung, &spare).await;
    stand.the_rest_is_served(&healthy, &hung, "restarted").await;
    let now = fs::read_to_string(stand.note(&drive)).unwrap();
    assert_eq!(now, noted, "a second worker was started");

    stand.hang.resume();
    let back = Duration::from_secs(30);
    wait::until_async(back, "the volume is well again", async || {
        (!stand.condition(&hung.id).await.abnormal).then_some(())
    })
    .await;
    let stats = stand.rig.csi.stats(&hung.id, &hung.target).await.unwrap();
    assert!(!stats.volume_condition.unwrap().abnormal);
    assert_eq!(fs::read(hung.target.join("before")).unwrap(), b"before");
    fs::write(hung.target.join("after"), "after").unwrap();
    stand.rig.leave_volume(&hung).await;
    stand.rig.use_volume(&hung).await;
    assert_eq!(fs::read(hung.target.join("after")).unwrap(), b"after");
    for volume in [&hung, &healthy] {
        stand.rig.leave_volume(volume).await;
        stand.rig.csi.delete(&volume.id).await.unwrap();
    }
    stand.rig.csi.delete(&spare.id).await.unwrap();
    stand.rig.erased().await;
}

#[tokio::test]
async fn a_repair_that_hangs_delays_no_other_drive() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut stand = Stand::new().await;
    stand.volume("hung", "hung").await;
    stand.rig.agent.stop().unwrap();
    // The header of the backup table, which the agent restores as soon as it detects the damage.
    let drive = stand.hang.drive_ref().unwrap();
    let node = fs::File::options().write(true).open(drive.node()).unwrap();
    node.write_all_at(&[0; 512], drive.size_bytes - 512)
        .unwrap();
    node.sync_all().unwrap();
    drop(node);
    stand.hang.hang_writes();

    stand.rig.start_again().await;
    wait::until_async(PROMPT, "the repair hangs", async || {
        (stand.hang.hanging() > 0).then_some(())
    })
    .await;
    stand.rig.shelf.add(DriveSpec::blank("late", GIB)).unwrap();
    wait::until_async(PROMPT, "a drive that is plugged in is listed", async || {
        let late = stand.rig.drive("late").await?;
        (late.state == "available").then_some(())
    })
    .await;
    let made = prompt("CreateVolume", stand.create("demo", "beside")).await;
    stand
        .rig
        .csi
        .delete(&made.unwrap().volume_id)
        .await
        .unwrap();
    assert!(stand.hang.hanging() > 0, "the repair is over");
}

/// The record is in state creating, and the next repairing scan undoes that: an answer of OK would be for a volume that then disappears.
#[tokio::test]
async fn a_creation_that_was_cut_off_is_undone_before_it_is_answered_with_ok() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut stand = Stand::new().await;
    let claimed = stand.volume("hung", "claimed").await;
    // The label is written before the table.
    stand.hang.hang_on(Hang::WritesTo(0..MIB));
    let csi = stand.rig.csi.clone();
    let cut_off = tokio::spawn(async move { create(&csi, "hung", "cut-off").await });
    wait::until_async(PROMPT, "the creation hangs", async || {
        (stand.hang.hanging() > 0).then_some(())
    })
    .await;
    stand.rig.agent.kill9();
    cut_off.await.unwrap().unwrap_err();
    // This call kills the worker, which ends as soon as it can.
    stand.rig.agent.start_again().await.unwrap();
    stand.rig.agent.stop().unwrap();
    stand.hang.resume();
    stand.hang.hang_writes();
    stand.rig.start_again().await;
    wait::until_async(PROMPT, "the repair hangs", async || {
        (stand.hang.hanging() > 0).then_some(())
    })
    .await;
    let inventory = stand.rig.inventory().await;
    let mut names = inventory.volumes.iter().map(|volume| &volume.name);
    assert!(names.any(|name| name == "cut-off"), "{inventory:?}");

    let answer = timeout(Duration::from_secs(30), stand.create("hung", "cut-off")).await;
    let status = answer.expect("it is answered").unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    stand.hang.resume();
    let made = wait::until_async(Duration::from_secs(60), "it is created", async || {
        stand.create("hung", "cut-off").await.ok()
    })
    .await;
    let made = stand.rig.place(&made, "cut-off", &csi::mount("ext4"));
    for volume in [&made, &claimed] {
        stand.rig.use_volume(volume).await;
        stand.rig.leave_volume(volume).await;
        stand.rig.csi.delete(&volume.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_sample_that_hangs_leaves_the_samples_of_other_drives_fresh() {
    need!(root, loop, tool "mkfs.ext4", tool "blockdev", fs "ext4");
    let stand = Stand::new().await;
    let healthy = stand.volume("demo", "healthy").await;
    let hung = stand.volume("hung", "hung").await;
    for volume in [&healthy, &hung] {
        stand.rig.use_volume(volume).await;
        stand
            .rig
            .csi
            .stats(&volume.id, &volume.target)
            .await
            .unwrap();
    }
    // So that reading the root directory needs the drive. It was never written to, or its journal would keep it in memory.
    let run = |program: &str, args: &[&std::ffi::OsStr]| {
        let status = std::process::Command::new(program).args(args).status();
        assert!(status.unwrap().success(), "{program}");
    };
    run("sync", &["-f".as_ref(), hung.target.as_os_str()]);
    let device = stand.rig.device(&hung).await;
    run("blockdev", &["--flushbufs".as_ref(), device.as_os_str()]);

    stand.hang.hang();
    for round in 0..3 {
        stand.the_hung_volume_is_sampled(&hung).await;
        assert!(stand.hang.hanging() > 0, "sampling did not read the drive");
        let used = async || {
            let stats = stand.rig.csi.stats(&healthy.id, &healthy.target);
            prompt("NodeGetVolumeStats", stats).await.unwrap().usage[0].used
        };
        let before = used().await;
        let file = fs::File::create(healthy.target.join(format!("{round}"))).unwrap();
        file.write_all_at(&vec![1; 4 << 20], 0).unwrap();
        file.sync_all().unwrap();
        assert!(used().await >= before + (4 << 20), "round {round}");
    }
    stand.hang.resume();
    wait::until_async(
        Duration::from_secs(30),
        "the volume is well again",
        async || (!stand.condition(&hung.id).await.abnormal).then_some(()),
    )
    .await;
    for volume in [&hung, &healthy] {
        stand.rig.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn the_first_scan_goes_on_without_a_drive_that_hangs() {
    need!(root, loop, tool "mkfs.ext4", tool "blockdev", fs "ext4");
    let mut stand = Stand::new().await;
    let hung = stand.volume("hung", "hung").await;
    stand.rig.agent.stop().unwrap();
    let node = stand.hang.drive_ref().unwrap().node();
    let flushed = std::process::Command::new("blockdev")
        .arg("--flushbufs")
        .arg(&node)
        .status();
    assert!(flushed.unwrap().success());
    stand.hang.hang();
    // The agent is ready while the worker still waits for the drive: the other drive is used, and nothing is decided about the volume.
    stand.rig.start_again().await;
    assert!(stand.hang.hanging() > 0, "the scan did not read the drive");
    let listed = stand.rig.volume_of(&hung.id).await.unwrap();
    let messages = listed.conditions.iter().map(|one| &one.message);
    let messages: Vec<_> = messages.collect();
    assert!(
        messages
            .iter()
            .any(|message| message.contains("it has not answered the first scan yet")),
        "{messages:#?}"
    );
    let healthy = stand.volume("demo", "healthy").await;
    stand.rig.use_volume(&healthy).await;
    let refused = stand.rig.csi.delete(&hung.id).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");

    stand.hang.resume();
    stand.rig.is_well(&hung).await;
    stand.rig.use_volume(&hung).await;
    for volume in [&hung, &healthy] {
        stand.rig.leave_volume(volume).await;
    }
}
