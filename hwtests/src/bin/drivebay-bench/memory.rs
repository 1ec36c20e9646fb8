//! Memory of an agent and its workers: while all drives are in use, and after an idle period.

use std::time::{Duration, Instant};

use clap::Args;
use drivebay_hwtests::{
    Agent, DriveSpec, MIB, Rig, Settings, Shelf, Trouble, csi,
    memory::Tree,
    program,
    rig::{Node, Placed},
};
use drivebay_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};
use tokio::task::JoinSet;

/// Size of a volume, and a drive's further space: for its label, and spare.
const VOLUME: u64 = 32 * MIB;
const BESIDE: u64 = 64 * MIB;
/// Number of volumes that are created, staged and published concurrently.
const AT_ONCE: usize = 8;
/// Interval at which a kubelet calls NodeGetVolumeStats for each volume.
const KUBELET: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Numbers of drives.
    #[arg(long, value_delimiter = ',', default_value = "8,64")]
    drives: Vec<u64>,
    /// Numbers of volumes on each drive.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    volumes: Vec<u64>,
    /// 8, 64 and 128 drives with 1 and 16 volumes each.
    #[arg(long)]
    full: bool,
    /// Seconds between all drives being asked and the idle figure; a kubelet's calls each minute go on. More than a minute, so
    /// that each drive has been read by the agent's own checks.
    #[arg(long, default_value_t = 150)]
    idle: u64,
}

/// One line of the table.
struct Row {
    drives: u64,
    volumes: u64,
    when: &'static str,
    tree: Tree,
}

pub(crate) async fn run(options: Options) -> Result<(), Trouble> {
    let (drives, volumes) = if options.full {
        (vec![8, 64, 128], vec![1, 16])
    } else {
        (options.drives, options.volumes)
    };
    let program = program::agent()?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "agent {}, Linux {}, KiB; PSS shares a page among those that map it",
        program.display(),
        kernel.trim()
    );
    println!(
        "{:>6} {:>7}  {:<5} {:>9}  {:>9} {:>9} {:>9} {:>9}  {:>9}  {:>14} {:>14}",
        "drives",
        "volumes",
        "when",
        "processes",
        "agent",
        "server",
        "workers",
        "all",
        "all, MiB",
        "private/worker",
        "growth/drive"
    );
    for volumes in volumes {
        let mut before: Option<[Row; 2]> = None;
        for drives in &drives {
            let rows = measure(*drives, volumes, Duration::from_secs(options.idle)).await?;
            for (at, row) in rows.iter().enumerate() {
                print(row, before.as_ref().map(|rows| &rows[at]));
            }
            before = Some(rows);
        }
    }
    Ok(())
}

fn print(row: &Row, smaller: Option<&Row>) {
    let Row {
        drives,
        volumes,
        when,
        tree,
    } = row;
    let all = tree.all();
    let private = tree
        .workers
        .private
        .checked_div(tree.workers.processes)
        .map_or_else(|| "-".to_owned(), |kib| kib.to_string());
    let growth = smaller.map_or_else(
        || "-".to_owned(),
        |smaller| {
            let more = all.pss as f64 - smaller.tree.all().pss as f64;
            format!("{:.0}", more / (*drives as f64 - smaller.drives as f64))
        },
    );
    println!(
        "{drives:>6} {volumes:>7}  {when:<5} {:>9}  {:>9} {:>9} {:>9} {:>9}  {:>9.1}  {private:>14} {growth:>14}",
        all.processes,
        tree.agent.pss,
        tree.server.pss,
        tree.workers.pss,
        all.pss,
        all.pss as f64 / 1024.0
    );
}

/// Measures an agent with this many drives: right after all were used, and after an idle period.
async fn measure(drives: u64, volumes: u64, idle: Duration) -> Result<[Row; 2], Trouble> {
    let mut shelf = Shelf::new()?;
    for number in 0..drives {
        let bytes = BESIDE + volumes * VOLUME;
        shelf.add(DriveSpec::blank(&format!("d{number}"), bytes))?;
    }
    let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
    "spread".clone_into(&mut settings.placement);
    "partition".clone_into(&mut settings.layout);
    "info".clone_into(&mut settings.log);
    let agent = Agent::start(settings).await?;
    let rig = Rig::of(agent, shelf).await;

    let capability = csi::capability(
        AccessType::Mount(MountVolume::default()),
        Mode::SingleNodeMultiWriter,
    );
    let mut made = Vec::new();
    let names: Vec<String> = (0..drives * volumes).map(|n| format!("v{n}")).collect();
    for names in names.chunks(AT_ONCE) {
        let mut making = JoinSet::new();
        for name in names {
            let (node, name, capability) = (rig.node.clone(), name.clone(), capability.clone());
            making.spawn(async move {
                let volume = node.volume(&name, VOLUME, &capability).await;
                node.use_volume(&volume).await;
                volume
            });
        }
        made.extend(making.join_all().await);
    }

    call_all(&rig.node, &made).await;
    let row = |when| Row {
        drives,
        volumes,
        when,
        tree: Tree::of(rig.agent.pid()),
    };
    let busy = row("busy");
    let end = Instant::now() + idle;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(KUBELET)).await;
        if left <= KUBELET {
            break;
        }
        sample_all(&rig.node, &made).await;
    }
    let rows = [busy, row("idle")];
    // Concurrently, which is faster than the shelf's sequential unmounting.
    let mut leaving = JoinSet::new();
    for volume in made {
        let node = rig.node.clone();
        leaving.spawn(async move { node.leave_volume(&volume).await });
    }
    leaving.join_all().await;
    Ok(rows)
}

async fn sample_all(node: &Node, volumes: &[Placed]) {
    for volume in volumes {
        let sample = node.csi.stats(&volume.id, &volume.target).await;
        sample.unwrap();
    }
}

/// Publishes every volume once more, samples and unpublishes it, all concurrently, during a scan of all drives.
async fn call_all(node: &Node, volumes: &[Placed]) {
    let mut tasks = JoinSet::new();
    for volume in volumes {
        let (node, volume) = (node.clone(), volume.clone());
        tasks.spawn(async move {
            let csi = &node.csi;
            let other = volume.target.with_file_name("other");
            let published = csi.publish(
                &volume.id,
                &volume.staging,
                &other,
                &volume.capability,
                false,
            );
            published.await.unwrap();
            csi.stats(&volume.id, &other).await.unwrap();
            csi.unpublish(&volume.id, &other).await.unwrap();
        });
    }
    node.rescan().await;
    tasks.join_all().await;
}
