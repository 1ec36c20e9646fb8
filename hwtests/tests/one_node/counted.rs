//! Processes are counted, not timed: reads and repeated calls start none once a drive's worker is warm.

use std::{fs, path::Path, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, agent, csi, memory, need,
    node::Placed,
    starts::{self, Starts},
    wait,
};
use drivebay_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};
use drivebay_sys::mountinfo;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Number of windows. Another event (a new loop device, a scan) may start a worker in one of them; a call that needs a process shows in
/// every one.
const WINDOWS: usize = 5;
/// Number of calls of each kind in a window.
const CALLS: usize = 10;
/// Time after which the agent has processed a change of mounts.
const SETTLED: Duration = Duration::from_millis(1500);
/// Most mounts that one publish or unpublish queries: of the target, the staging path, and the system's places.
const MOUNTS: usize = 30;

#[tokio::test]
async fn publish_stats_list_and_capacity_start_no_process_once_warm() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    // Several targets on one node, so that a window has fresh publishes and not only repeats.
    let capability = csi::capability(
        AccessType::Mount(MountVolume::default()),
        Mode::SingleNodeMultiWriter,
    );
    let volume = rig.volume("warm", 256 * MIB, &capability).await;
    rig.use_volume(&volume).await;
    let target = volume.target.clone();

    let mut windows = Vec::new();
    for window in 0..WINDOWS {
        // Warm: the drive's worker and the worker for samples have just answered.
        rig.publish(&volume).await;
        rig.csi.stats(&volume.id, &target).await.unwrap();
        let mut others = Vec::new();
        let starts = Starts::watch(rig.agent.pid(), rig.dir()).unwrap();
        for round in 0..CALLS {
            rig.publish(&volume).await;
            let other = target.with_file_name(format!("other-{window}-{round}"));
            rig.csi
                .publish(&volume.id, &volume.staging, &other, &capability, false)
                .await
                .unwrap();
            rig.csi.stats(&volume.id, &other).await.unwrap();
            rig.csi.list().await.unwrap();
            rig.csi.capacity().await.unwrap();
            others.push(other);
        }
        let recorded = starts.finish().unwrap();
        // Unmounting has a separate worker, which is not counted.
        for other in &others {
            rig.csi.unpublish(&volume.id, other).await.unwrap();
        }
        if recorded.is_empty() {
            rig.leave_volume(&volume).await;
            return;
        }
        windows.push(recorded);
    }
    panic!("processes were started in every window: {windows:#?}");
}

#[tokio::test]
async fn the_life_of_a_volume_starts_mkfs_and_nothing_else_once_warm() {
    // Layout lvm runs commands of LVM; the lab counts them.
    need!(root, loop, layout "partition", tool "strace", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let life = async |name: &str| {
        let volume = rig.volume(name, 256 * MIB, &csi::mount("ext4")).await;
        rig.use_volume(&volume).await;
        rig.csi.stats(&volume.id, &volume.target).await.unwrap();
        rig.leave_volume(&volume).await;
        rig.csi.delete(&volume.id).await.unwrap();
        rig.erased().await;
    };
    let mut windows = Vec::new();
    for window in 0..WINDOWS {
        // Warm: every worker that a volume's life needs has just worked.
        life(&format!("warm-{window}")).await;
        let starts = Starts::watch(rig.agent.pid(), rig.dir()).unwrap();
        life(&format!("counted-{window}")).await;
        let recorded = starts.finish().unwrap();
        // One process, which may search several directories for its program.
        let (programs, processes): (Vec<_>, Vec<_>) =
            recorded.iter().partition(|line| line.contains("execve"));
        let is_mkfs =
            !programs.is_empty() && programs.iter().all(|line| line.contains("mkfs.ext4"));
        if is_mkfs && processes.len() == 1 {
            return;
        }
        windows.push(recorded);
    }
    panic!("not mkfs.ext4 alone in any window: {windows:#?}");
}

#[tokio::test]
async fn the_count_sees_a_stage() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    // Control: without this the test above could pass because nothing is ever recorded.
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("cold", 256 * MIB, &csi::mount("ext4")).await;
    let starts = Starts::watch(rig.agent.pid(), rig.dir()).unwrap();
    rig.use_volume(&volume).await;
    let recorded = starts.finish().unwrap();
    assert!(
        recorded.iter().any(|line| line.contains("mkfs.ext4")),
        "making a filesystem was not seen: {recorded:#?}"
    );
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn a_filesystem_is_marked_once_for_its_errors_and_not_again_when_it_is_to_be_unmounted() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("marked", 256 * MIB, &csi::mount("ext4")).await;
    let marks = Starts::watch_marks(rig.agent.pid(), rig.dir()).unwrap();
    for round in 1..=CALLS {
        rig.use_volume(&volume).await;
        wait::until(Duration::from_secs(20), "it is marked", || {
            let recorded = marks.so_far().ok()?;
            (recorded.len() >= round).then_some(())
        });
        rig.leave_volume(&volume).await;
    }
    // The volume's conditions are evaluated once more after each change of the mount table.
    let recorded = marks.finish().unwrap();
    assert_eq!(recorded.len(), CALLS, "{recorded:#?}");
}

#[tokio::test]
async fn a_worker_that_leaves_by_itself_has_the_agent_search_for_nobody() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let agent = rig.agent.pid();
    let workers = || {
        let mut all = agent::descendants(agent);
        all.retain(|pid| !memory::is_server(*pid));
        all
    };
    let mut windows = Vec::new();
    for window in 0..WINDOWS {
        // Has run a tool, and is idle.
        let name = format!("v{window}");
        let volume = rig.volume(&name, 256 * MIB, &csi::mount("ext4")).await;
        rig.use_volume(&volume).await;
        let searches = Starts::watch_searches(agent, rig.dir()).unwrap();
        let before = workers();
        wait::until(Duration::from_secs(60), "a worker leaves", || {
            let now = workers();
            before.iter().any(|pid| !now.contains(pid)).then_some(())
        });
        tokio::time::sleep(SETTLED).await;
        let recorded = searches.finish().unwrap();
        if recorded.is_empty() {
            return;
        }
        windows.push(recorded);
    }
    panic!("the agent searched in every window: {windows:#?}");
}

/// Mounts of other programs; unmounted when dropped.
struct Others(std::path::PathBuf);

impl Others {
    fn new(dir: &Path, count: usize) -> Self {
        let none = None::<&str>;
        let root = dir.join("others");
        fs::create_dir(&root).unwrap();
        mount(Some("others"), &root, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        let others = Self(root);
        for number in 0..count {
            let point = others.0.join(number.to_string());
            fs::create_dir(&point).unwrap();
            mount(Some(dir), &point, none, MsFlags::MS_BIND, none).unwrap();
        }
        others
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Returns the bytes that the agent and its workers have read; those of ended workers count with the agent.
fn bytes_read(agent: u32) -> u64 {
    let mut pids = agent::descendants(agent);
    pids.push(agent);
    let of = |pid: &u32| {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let line = io.lines().find_map(|line| line.strip_prefix("rchar: "))?;
        line.parse::<u64>().ok()
    };
    pids.iter().filter_map(of).sum()
}

/// A volume in use that permits several targets, on a host with a thousand other mounts.
struct OneOfMany {
    rig: Rig,
    volume: Placed,
    others: Others,
}

/// Returns None if the kernel cannot be queried for single mounts: older kernels have mountinfo only.
async fn one_of_many(test: &str) -> Option<OneOfMany> {
    if !mountinfo::supports_single_mounts() {
        need::skipped(
            test,
            "this kernel has no statmount with ids of mounts (Linux 6.15)",
        );
        return None;
    }
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let capability = csi::capability(
        AccessType::Mount(MountVolume::default()),
        Mode::SingleNodeMultiWriter,
    );
    let volume = rig.volume("one of many", 256 * MIB, &capability).await;
    rig.use_volume(&volume).await;
    let others = Others::new(rig.dir(), 1000);
    Some(OneOfMany {
        rig,
        volume,
        others,
    })
}

#[tokio::test]
async fn publish_and_unpublish_query_the_mounts_of_the_volume_alone() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    let Some(OneOfMany {
        rig,
        volume,
        others,
    }) = one_of_many("publish_and_unpublish_query_the_mounts_of_the_volume_alone").await
    else {
        return;
    };
    let target = volume.target.with_file_name("other");
    // The lines of each call, in the window that has the fewest: mounts of other programs are read a moment after each change.
    let mut least: [Option<Vec<String>>; 2] = [None, None];
    for _ in 0..2 * WINDOWS {
        if least.iter().all(|recorded| {
            recorded
                .as_ref()
                .is_some_and(|recorded| queries_its_own(recorded))
        }) {
            break;
        }
        for (call, least) in least.iter_mut().enumerate() {
            tokio::time::sleep(SETTLED).await;
            let lines = Starts::watch_mounts(rig.agent.pid(), rig.dir()).unwrap();
            let csi = &rig.csi;
            let done = match call {
                0 => {
                    csi.publish(
                        &volume.id,
                        &volume.staging,
                        &target,
                        &volume.capability,
                        false,
                    )
                    .await
                }
                _ => csi.unpublish(&volume.id, &target).await,
            };
            done.unwrap();
            let recorded = lines.so_far().unwrap();
            lines.finish().unwrap();
            if least
                .as_ref()
                .is_none_or(|least| recorded.len() < least.len())
            {
                *least = Some(recorded);
            }
        }
    }
    drop(others);
    rig.leave_volume(&volume).await;
    for recorded in least {
        let recorded = recorded.expect("each call was made");
        assert!(queries_its_own(&recorded), "{recorded:#?}");
    }
}

/// True if a call queried single mounts only, and few of them.
fn queries_its_own(recorded: &[String]) -> bool {
    let count = |of: fn(&str) -> bool| recorded.iter().filter(|line| of(line)).count();
    count(starts::is_listmount) == 0
        && (1..=MOUNTS).contains(&count(starts::is_statmount))
        && !recorded.iter().any(|line| line.contains("mountinfo"))
}

#[tokio::test]
async fn a_first_stage_opens_and_flushes_its_drive_a_few_times() {
    need!(root, loop, layout "partition", tool "strace", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let mut windows = Vec::new();
    for window in 0..WINDOWS {
        let volume = rig
            .volume(&format!("{window}"), 128 * MIB, &csi::mount("ext4"))
            .await;
        tokio::time::sleep(SETTLED).await;
        let lines = Starts::watch_files(rig.agent.pid(), rig.dir()).unwrap();
        rig.use_volume(&volume).await;
        let recorded = lines.finish().unwrap();
        rig.leave_volume(&volume).await;
        let staged = Staged::of(&recorded);
        if staged.is_as_expected() {
            return;
        }
        windows.push(staged);
    }
    panic!("more or less than {STAGED:?} in every window: {windows:?}");
}

#[tokio::test]
async fn making_a_btrfs_queries_no_other_device_of_the_host() {
    need!(root, loop, tool "strace", tool "mkfs.btrfs", fs "btrfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = rig.volume("v", 256 * MIB, &csi::mount("btrfs")).await;
    let lines = Starts::watch_files(rig.agent.pid(), rig.dir()).unwrap();
    rig.use_volume(&volume).await;
    let recorded = lines.finish().unwrap();
    let source = mountinfo::at(Path::new(&volume.staging))
        .unwrap()
        .remove(0)
        .source;
    rig.leave_volume(&volume).await;
    // mkfs queries its own disk only, since its list of devices is empty; each other device takes some thirty system calls.
    let own = [
        rig.drive("a").await.unwrap().kernel_name,
        source.file_name().unwrap().to_string_lossy().into_owned(),
    ];
    let own = own.map(|name| format!("/sys/block/{name}/"));
    let is_own = |line: &&String| own.iter().any(|own| line.contains(own));
    let queries = recorded
        .iter()
        .filter(|line| line.contains("\"/sys/block/"));
    let (own, others): (Vec<_>, Vec<_>) = queries.partition(is_own);
    assert_eq!(others, Vec::<&String>::new());
    assert!(!own.is_empty(), "nothing of mkfs was seen: {recorded:#?}");
}

/// Operations of the process that stages, in the first stage of a volume.
#[derive(Debug, Default)]
struct Staged {
    /// Number of flushes of the drive and of the volume's device.
    flushes: usize,
    /// Number of opens of the drive's and the volume's device node.
    opens: usize,
    /// Number of sysfs files opened by absolute path, of which the kernel checks each directory.
    attributes: usize,
}

/// Opens to read the label: the drive, and to lock it. To open, probe, claim and probe the volume again: its device, four times, and once
/// for its size, once more when it is to grow. To write the record: the drive, to lock it, to write to it. Flushes: the new filesystem, and
/// two copies of the record. mkfs is not counted.
const STAGED: Staged = Staged {
    flushes: 3,
    opens: 10,
    attributes: 30,
};

impl Staged {
    fn is_as_expected(&self) -> bool {
        self.flushes == STAGED.flushes
            && self.opens == STAGED.opens
            && (1..=STAGED.attributes).contains(&self.attributes)
    }

    fn of(lines: &[String]) -> Self {
        let is_flush = |line: &&String| line.contains("sync(") && line.contains("</dev/loop");
        // mkfs flushes the volume's device alone, whose name has a `p`.
        let is_of_drive = |line: &&String| {
            let name = line.split("</dev/loop").nth(1).unwrap_or_default();
            name.split('>')
                .next()
                .is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let worker = lines.iter().filter(is_flush).find(is_of_drive);
        let worker = worker.and_then(|line| line.split_whitespace().next());
        let own = lines
            .iter()
            .filter(|line| line.split_whitespace().next() == worker);
        let mut staged = Self::default();
        for line in own {
            if is_flush(&line) {
                staged.flushes += 1;
            } else if line.contains("\"/dev/loop") {
                staged.opens += 1;
            } else if line.contains("\"/sys/") {
                staged.attributes += 1;
            }
        }
        staged
    }
}

#[tokio::test]
async fn publish_and_unpublish_do_not_read_the_mounts_of_others() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let Some(OneOfMany {
        rig,
        volume,
        others,
    }) = one_of_many("publish_and_unpublish_do_not_read_the_mounts_of_others").await
    else {
        return;
    };
    let table = fs::read("/proc/self/mountinfo").unwrap().len() as u64;
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let before = bytes_read(rig.agent.pid());
        for round in 0..CALLS {
            let other = volume.target.with_file_name(format!("other-{round}"));
            rig.csi
                .publish(
                    &volume.id,
                    &volume.staging,
                    &other,
                    &volume.capability,
                    false,
                )
                .await
                .unwrap();
            rig.csi.unpublish(&volume.id, &other).await.unwrap();
        }
        windows.push(bytes_read(rig.agent.pid()) - before);
    }
    drop(others);
    rig.leave_volume(&volume).await;
    // Less than the table once, in twenty calls; samples of a drive read meanwhile, too.
    let least = windows.iter().min().copied();
    assert!(least < Some(table), "{windows:?}, the table has {table}");
}
