//! NodeGetVolumeStats by several clients, on a node with few mounts and with those of thousands of volumes.

use std::time::Duration;

use drivebay_hwtests::{Csi, DriveSpec, MIB, Rig, Trouble, csi, node::Placed};
use drivebay_proto::csi as wire;
use nix::sys::statfs::statfs;
use tokio::task::JoinSet;

use super::{
    admin::Others,
    table::{Pair, Table, Times, clocked, timed},
};

const CLIENTS: [usize; 3] = [1, 8, 64];
const DRIVES: usize = 8;
/// Volumes that are sampled; of further ones only the mounts exist, two for each.
const VOLUMES: usize = 10;
/// Calls of all clients in a round, followed by as many statfs(2).
const CALLS: usize = 320;
const QUIET: Duration = Duration::from_secs(2);

pub(super) async fn measure(table: &mut Table, rounds: usize, full: bool) -> Result<(), Trouble> {
    let sizes: &[usize] = match full {
        true => &[VOLUMES, 1000, 5000],
        false => &[VOLUMES, 1000],
    };
    let drives = (0..DRIVES).map(|number| DriveSpec::blank(&format!("d{number}"), 1024 * MIB));
    let rig = Rig::tuned(drives.collect(), |settings| {
        "partition".clone_into(&mut settings.layout);
        "spread".clone_into(&mut settings.placement);
        "info".clone_into(&mut settings.log);
    })
    .await;
    let mut volumes = Vec::new();
    for number in 0..VOLUMES {
        let name = format!("v{number}");
        let volume = rig.volume(&name, 64 * MIB, &csi::mount("ext4")).await;
        rig.use_volume(&volume).await;
        volumes.push(volume);
    }
    let mut clients = Vec::new();
    for _ in 0..CLIENTS[CLIENTS.len() - 1] {
        clients.push(rig.agent.csi().await?);
    }

    let mut figures = Vec::new();
    for size in sizes {
        let others = Others::new(rig.dir(), &volumes[0].target, 2 * (size - VOLUMES))?;
        tokio::time::sleep(QUIET).await;
        for count in CLIENTS {
            let (mut pair, mut empty) = (Pair::default(), Pair::default());
            let clients = &clients[..count];
            for _ in 0..rounds {
                let ours = sample(clients, &volumes, CALLS).await?;
                pair.ours.extend(ours.clone());
                pair.bare.extend(bare(&volumes, CALLS)?);
                empty.ours.extend(ours);
                let probe = by_all(clients, &volumes, CALLS, Call::Probe).await?;
                empty.bare.extend(probe);
            }
            figures.push((count, size, pair, empty));
        }
        drop(others);
    }
    for volume in &volumes {
        rig.leave_volume(volume).await;
    }

    table.section(
        "NodeGetVolumeStats, beside: statfs(2). 10 volumes on 8 drives; of more, the mounts alone",
    );
    for of in CLIENTS {
        for (_, size, pair, _) in figures.iter().filter(|(count, ..)| *count == of) {
            let what = format!("stats, clients at once: {of}");
            table.pair(&what, &format!("{size} volumes"), pair);
        }
    }
    table.section(
        "The same calls, beside: Probe by as many clients, for which the agent looks at nothing",
    );
    for of in CLIENTS {
        let mut empty = figures.iter().filter(|(count, ..)| *count == of);
        if let Some((_, size, _, empty)) = empty.next() {
            let what = format!("stats, clients at once: {of}");
            table.pair(&what, &format!("{size} volumes"), empty);
        }
    }
    Ok(())
}

pub(super) async fn sample(
    clients: &[Csi],
    volumes: &[Placed],
    calls: usize,
) -> Result<Times, Trouble> {
    by_all(clients, volumes, calls, Call::Stats).await
}

#[derive(Clone, Copy)]
enum Call {
    Stats,
    /// Probe, for which the agent reads nothing: the basic cost of a call, with the client's part.
    Probe,
}

async fn by_all(
    clients: &[Csi],
    volumes: &[Placed],
    calls: usize,
    call: Call,
) -> Result<Times, Trouble> {
    let mut tasks = JoinSet::new();
    for (number, csi) in clients.iter().enumerate() {
        let (csi, volumes) = (csi.clone(), volumes.to_vec());
        let calls = calls / clients.len();
        tasks.spawn(async move {
            let mut times = Times::default();
            for volume in volumes.iter().cycle().skip(number).take(calls) {
                let (answer, time) = match call {
                    Call::Stats => {
                        let (answer, time) = timed(csi.stats(&volume.id, &volume.target)).await;
                        (answer.map(drop), time)
                    }
                    Call::Probe => {
                        let request = wire::ProbeRequest {};
                        let (answer, time) = timed(csi.identity().probe(request)).await;
                        (answer.map(drop), time)
                    }
                };
                answer?;
                times.push(time);
            }
            Ok::<_, Trouble>(times)
        });
    }
    let mut all = Times::default();
    for times in tasks.join_all().await {
        all.extend(times?);
    }
    Ok(all)
}

fn bare(volumes: &[Placed], calls: usize) -> Result<Times, Trouble> {
    let mut times = Times::default();
    for volume in volumes.iter().cycle().take(calls) {
        let (answer, time) = clocked(|| statfs(&volume.target));
        answer.map_err(|error| Trouble::doing("statfs", &error))?;
        times.push(time);
    }
    Ok(times)
}
