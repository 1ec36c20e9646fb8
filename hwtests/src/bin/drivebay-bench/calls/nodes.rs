//! Nodes with few and with many drives: concurrent calls, scrapes, hotplug, and the agent's start.

pub(super) mod follow;
pub(super) mod idle;
pub(super) mod late;
pub(super) mod start;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, MIB, Rig, Trouble, csi,
    hang::HungDrive,
    node::{Node, Placed},
    scrape, wait,
};
use drivebay_proto::agent::{InventoryUpdate, WatchInventoryRequest, agent_client::AgentClient};
use tokio::{sync::Semaphore, task::JoinSet};

use self::start::Started;
use super::table::{Pair, Table, Times, clocked, timed};

const DRIVES: [usize; 2] = [8, 64];
/// Volumes created concurrently, and one after another.
const VOLUMES: usize = 64;
const VOLUME: u64 = 64 * MIB;
/// Further unused volumes on the node with most drives, for a scrape of many.
const MANY: usize = 256 - VOLUMES;
const MANY_FULL: usize = 1000 - VOLUMES;
const SMALL: u64 = 16 * MIB;
/// Pause between the last call and measuring idle load: follow-up work of calls, and workers kept for them, take minutes.
const SETTLED: Duration = Duration::from_secs(20);
const SETTLED_FULL: Duration = Duration::from_secs(180);
/// Duration of measuring idle load.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_FULL: Duration = Duration::from_secs(120);
/// Longest time until a plugged drive is listed.
const LISTED: Duration = Duration::from_secs(60);

/// Results for one number of drives.
struct Figures {
    drives: usize,
    /// All volumes: concurrently, beside sequentially.
    wall: Pair,
    /// Creating and staging one volume: among concurrent ones, beside sequentially.
    each: Pair,
    scrape: Times,
    /// Scrape with this many volumes.
    many: Option<(usize, Times)>,
    idle: idle::Idle,
    plug: Times,
    start: Started,
}

pub(super) async fn measure(table: &mut Table, rounds: usize, full: bool) -> Result<(), Trouble> {
    let mut all = Vec::new();
    for drives in DRIVES {
        all.push(of(drives, rounds, full).await?);
    }
    table.section(
        "64 volumes created and staged (ext4) at once, beside: one after another. Placement spread",
    );
    let size = |of: &Figures| format!("{} drives", of.drives);
    for of in &all {
        table.pair("64 x create+stage, all of it", &size(of), &of.wall);
    }
    for of in &all {
        table.pair("64 x create+stage, each", &size(of), &of.each);
    }
    table.section("A node with 64 volumes in use");
    for of in &all {
        table.alone("scrape", &size(of), &of.scrape);
    }
    for (count, times) in all.iter().filter_map(|of| of.many.as_ref()) {
        table.alone("scrape", &format!("{count} volumes"), times);
    }
    for of in &all {
        table.alone("drive plugged until listed", &size(of), &of.plug);
    }
    for of in &all {
        table.alone("start until first RPC", &size(of), &of.start.answers);
    }
    for of in &all {
        table.alone(
            "start until all drives listed",
            &size(of),
            &of.start.complete,
        );
    }
    for of in &all {
        table.note(&format!("    idle, {}: {}", size(of), of.idle));
    }
    Ok(())
}

/// Returns the number of rounds for measurements that take many seconds each.
pub(super) fn long(rounds: usize) -> usize {
    rounds.div_ceil(12)
}

async fn of(drives: usize, rounds: usize, full: bool) -> Result<Figures, Trouble> {
    let (mut wall, mut each) = (Pair::default(), Pair::default());
    let mut last = None;
    let many = if full { MANY_FULL } else { MANY };
    let more = if drives == DRIVES[1] { many } else { 0 };
    for _ in 0..long(rounds) {
        // Blank drives in both cases, since the first volume of a drive claims it.
        drop(last.take());
        let rig = rig(drives, 0).await;
        let (volumes, time) = timed(make(&rig.node, VOLUMES, 1)).await;
        wall.bare.push(time);
        let (volumes, times) = volumes?;
        each.bare.extend(times);
        leave(&rig.node, volumes).await;
        drop(rig);

        let rig = self::rig(drives, more).await;
        let (volumes, time) = timed(make(&rig.node, VOLUMES, VOLUMES)).await;
        wall.ours.push(time);
        let (volumes, times) = volumes?;
        each.ours.extend(times);
        last = Some((rig, volumes));
    }
    let (mut rig, volumes) = last.ok_or_else(|| Trouble::new("no round"))?;
    let scrape = scrapes(&rig, 20 * rounds)?;
    tokio::time::sleep(if full { SETTLED_FULL } else { SETTLED }).await;
    let idle = idle::measure(rig.agent.pid(), if full { IDLE_FULL } else { IDLE }).await?;
    let plug = plug(&mut rig, rounds).await?;
    let start = start::measure(&mut rig, drives, rounds).await?;
    leave(&rig.node, volumes).await;
    let mut many = None;
    if more > 0 {
        add(&rig.node, more).await?;
        many = Some((VOLUMES + more, scrapes(&rig, 20 * rounds)?));
    }
    Ok(Figures {
        drives,
        wall,
        each,
        scrape,
        many,
        idle,
        plug,
        start,
    })
}

/// Starts a node with this many blank drives, and waits until all are listed.
async fn rig(drives: usize, more: usize) -> Rig {
    let [per_drive, more] = [VOLUMES, more].map(|all| all.div_ceil(drives) as u64);
    let bytes = 64 * MIB + per_drive * VOLUME + more * SMALL;
    let specs = (0..drives).map(|number| DriveSpec::blank(&format!("d{number}"), bytes));
    let rig = Rig::tuned(specs.collect(), |settings| {
        "partition".clone_into(&mut settings.layout);
        "spread".clone_into(&mut settings.placement);
        "info".clone_into(&mut settings.log);
    })
    .await;
    available(&rig, drives).await;
    rig
}

async fn available(rig: &Rig, drives: usize) {
    wait::until_async(LISTED, "all drives are available", async || {
        let listed = rig.inventory().await.drives;
        let available = listed.iter().filter(|drive| drive.state == "available");
        (available.count() == drives).then_some(())
    })
    .await;
}

/// Creates and stages all volumes, `at_once` at a time; returns the duration of each.
async fn make(
    node: &Node,
    volumes: usize,
    at_once: usize,
) -> Result<(Vec<Placed>, Times), Trouble> {
    let turns = Arc::new(Semaphore::new(at_once));
    let mut making = JoinSet::new();
    for number in 0..volumes {
        let (node, turns) = (node.clone(), Arc::clone(&turns));
        making.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let begin = Instant::now();
            let capability = csi::mount("ext4");
            let name = format!("v{number}");
            let made = node.csi.create(&name, VOLUME, &capability).await?;
            let volume = node.place(&made, &name, &capability);
            let staged = node.csi.stage(&volume.id, &volume.staging, &capability);
            staged.await?;
            Ok::<_, Trouble>((volume, begin.elapsed()))
        });
    }
    let (mut volumes, mut times) = (Vec::new(), Times::default());
    for made in making.join_all().await {
        let (volume, time) = made?;
        volumes.push(volume);
        times.push(time);
    }
    Ok((volumes, times))
}

/// Creates this many volumes that are not used.
async fn add(node: &Node, volumes: usize) -> Result<(), Trouble> {
    let turns = Arc::new(Semaphore::new(DRIVES[0]));
    let mut making = JoinSet::new();
    for number in 0..volumes {
        let (node, turns) = (node.clone(), Arc::clone(&turns));
        making.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let name = format!("more{number}");
            node.csi.create(&name, SMALL, &csi::block()).await
        });
    }
    for made in making.join_all().await {
        made?;
    }
    Ok(())
}

/// Unstages all concurrently, which is faster than the shelf's sequential unmounting.
async fn leave(node: &Node, volumes: Vec<Placed>) {
    let mut leaving = JoinSet::new();
    for volume in volumes {
        let node = node.clone();
        leaving.spawn(async move { node.leave_volume(&volume).await });
    }
    leaving.join_all().await;
}

fn scrapes(rig: &Rig, count: usize) -> Result<Times, Trouble> {
    let socket = rig.agent.settings().metrics_socket();
    let mut times = Times::default();
    for _ in 0..count {
        let (text, time) = clocked(|| scrape::scrape(&socket));
        text?;
        times.push(time);
    }
    Ok(times)
}

/// Measures the time from the return of losetup until the agent's inventory lists the drive as available.
async fn plug(rig: &mut Rig, count: usize) -> Result<Times, Trouble> {
    let mut times = Times::default();
    for number in 0..count {
        let channel = csi::channel(&rig.agent_socket).await?;
        let mut updates = AgentClient::new(channel)
            .watch_inventory(WatchInventoryRequest {})
            .await?
            .into_inner();
        let name = format!("plugged{number}");
        let drive = rig.shelf.add(DriveSpec::blank(&name, 64 * MIB))?;
        let is_listed = |update: &InventoryUpdate| {
            update.drives.iter().any(|listed| {
                listed.kernel_name == drive.kernel_name && listed.state == "available"
            })
        };
        let listed = async {
            while let Some(update) = updates.message().await? {
                if is_listed(&update) {
                    return Ok(());
                }
            }
            Err(Trouble::new("the agent ended its inventory"))
        };
        let (listed, time) = timed(tokio::time::timeout(LISTED, listed)).await;
        listed.map_err(|_| Trouble::new("a plugged drive is not listed"))??;
        times.push(time);
        rig.shelf.pull(&name);
        let id = format!("loop-{name}.img-");
        rig.no_drive(&name, |listed| listed.id.starts_with(&id))
            .await;
    }
    Ok(times)
}
