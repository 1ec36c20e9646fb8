//! Worker processes: how many stay while there are no calls, and their memory.

use std::time::Duration;

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, agent, csi,
    memory::{self, Tree},
    need,
    starts::Starts,
    wait,
};
use drivebay_node::volumes::samplers;

/// Number of drives, each with a volume in use.
const DRIVES: u64 = 8;
/// Number of workers that stay for samples, for all drives.
const KEPT: u64 = (samplers::STATS + samplers::SAMPLES) as u64;
/// Private memory of an idle worker of a debug build, KiB.
const PRIVATE: u64 = 1536;
/// Longest time until a drive is read again.
const MINUTE: Duration = Duration::from_secs(100);
/// A worker that is not kept exits after seconds; the machine may be busy.
const GONE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_few_small_workers_for_all_drives_stay_when_there_are_no_requests() {
    need!(root, loop, tool "strace", tool "mkfs.ext4", fs "ext4");
    let names = (0..DRIVES).map(|number| format!("d{number}"));
    let drives = names.map(|name| DriveSpec::blank(&name, 2 * GIB)).collect();
    let rig = Rig::tuned(drives, |settings| {
        "spread".clone_into(&mut settings.placement);
        settings.more = "[workers]\nidle = \"1h\"\n".to_owned();
    })
    .await;
    let mut volumes = Vec::new();
    for number in 0..DRIVES {
        let name = format!("v{number}");
        let volume = rig.volume(&name, 64 * MIB, &csi::mount("ext4")).await;
        rig.use_volume(&volume).await;
        let other = volume.target.with_file_name("other");
        let (csi, id) = (&rig.csi, &volume.id);
        csi.stats(id, &volume.target).await.unwrap();
        csi.unpublish(id, &other).await.unwrap();
        volumes.push(volume);
    }
    let tree = || Tree::of(rig.agent.pid());
    assert!(
        tree().workers.processes > DRIVES,
        "staging has workers of its own: {:?}",
        tree()
    );
    let few = || Some(tree()).filter(|tree| tree.workers.processes <= KEPT);
    let idle = wait::until(GONE, "the other workers are gone", few);
    assert!(idle.workers.processes > 0, "{idle:?}");
    assert_eq!(idle.server.processes, 1, "{idle:?}");
    assert!(idle.workers.private <= KEPT * PRIVATE, "{idle:?}");
    if need::is_long() {
        are_polled_by_running_workers(&rig);
    }
    for volume in &volumes {
        rig.leave_volume(volume).await;
    }
}

/// Verifies that every drive is read and every filesystem sampled once a minute without starting workers.
fn are_polled_by_running_workers(rig: &Rig) {
    let starts = Starts::watch(rig.agent.pid(), rig.dir()).unwrap();
    let counts = || {
        let reads = |name: &str| {
            let stat = std::fs::read_to_string(format!("/sys/class/block/{name}/stat")).unwrap();
            stat.split_whitespace().next().map(str::to_owned)
        };
        let drives = rig.shelf.drives().iter();
        drives
            .map(|drive| reads(&drive.kernel_name))
            .collect::<Vec<_>>()
    };
    let before = counts();
    let all = || {
        (counts()
            .iter()
            .zip(&before)
            .all(|(now, before)| now != before))
        .then_some(())
    };
    wait::until(MINUTE, "every drive was read", all);
    let mut started = starts.finish().unwrap();
    // A worker's parent exits at once. Others are started now and then for a drive of the machine that is unreadable.
    let all = agent::descendants(rig.agent.pid());
    let server = all.into_iter().find(|pid| memory::is_server(*pid)).unwrap();
    started.retain(|line| line.split_whitespace().next() == Some(&server.to_string()));
    assert!(started.len() < DRIVES as usize, "{started:#?}");
}
