//! Released programs that do a part of the agent's work, measured alternately with it: topolvm's node plugin for calls, smartctl_exporter
//! for scrapes.

mod api;
mod calls;
mod exporter;
mod scrapes;
mod topolvm;

use std::{
    env,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{DriveSpec, MIB, Rig, Trouble, csi, replay, starts::Starts};
use tokio::task::JoinSet;

use self::{
    calls::Calls,
    exporter::{Exporter, free_address},
    scrapes::Scrapes,
    topolvm::Topolvm,
};
use super::{
    nodes::idle::{self, Idle},
    table::Table,
};

const DRIVES: [usize; 2] = [8, 64];
/// Volumes in use, on each side.
const VOLUMES: usize = 8;
const VOLUME_MIB: u64 = 64;
/// Pause between the last call and measuring idle load, and the duration of that.
const SETTLED: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(20);

struct Figures {
    drives: usize,
    calls: Option<Calls>,
    scrapes: Option<Scrapes>,
    idle: Vec<(&'static str, Idle)>,
}

pub(super) async fn measure(table: &mut Table, rounds: usize) -> Result<(), Trouble> {
    if [topolvm::PROGRAM, exporter::PROGRAM]
        .into_iter()
        .all(|variable| named(variable).is_none())
    {
        table.section("Peers: not measured; hwtests/bench peers builds and measures them");
        return Ok(());
    }
    let mut all = Vec::new();
    for drives in DRIVES {
        all.push(of(drives, rounds).await?);
    }
    let size = |of: &Figures| format!("{} drives", of.drives);
    for of in &all {
        if let Some(calls) = &of.calls {
            table.section(
                "Node calls, ext4, 8 drives, beside: topolvm-node, whose LVM only prints a file",
            );
            table.pair("stage+publish, their publish", "", &calls.publish);
            table.pair("unpublish+unstage, unpublish", "", &calls.unpublish);
            for (count, pair) in &calls.stats {
                let what = format!("stats, clients at once: {count}");
                table.pair(&what, "8 volumes", pair);
            }
            processes(table, "a call", &calls.started);
        }
    }
    let scrapes = || all.iter().filter_map(|of| Some((of, of.scrapes.as_ref()?)));
    if scrapes().next().is_some() {
        table.section(
            "Scrape, beside: smartctl_exporter, whose smartctl only prints a file. Its first scrape after 60 s\n\
             polls all drives, those before are answered from its cache; the agent's scrapes never poll",
        );
    }
    for (of, scrapes) in scrapes() {
        table.pair("scrape, beside: polls", &size(of), &scrapes.polling);
    }
    for (of, scrapes) in scrapes() {
        table.pair("scrape, beside: cached", &size(of), &scrapes.cached);
    }
    for (of, scrapes) in scrapes() {
        processes(table, &format!("a scrape, {}", size(of)), &scrapes.started);
    }
    table.section("Idle for 20 s, 8 volumes in use; with 8 drives after the calls above");
    for of in &all {
        for (name, idle) in &of.idle {
            let memory = idle.all();
            table.note(&format!(
                "    {:<9} {name:<18} {:>5.2} % of a core {:>6.1} wake-ups/s {:>3} processes {:>6.1} MiB PSS",
                size(of),
                idle.percent(),
                idle.wakes_per_second(),
                memory.processes,
                memory.pss as f64 / 1024.0
            ));
        }
    }
    Ok(())
}

/// Returns the path of a peer's program, if the environment names it.
fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

fn processes(table: &mut Table, of: &str, started: &[(&'static str, [usize; 2])]) {
    for (what, [ours, theirs]) in started {
        let of = format!("{of} ({what})");
        table.note(&format!(
            "    processes started by {of}: {ours}, beside: {theirs}"
        ));
    }
}

async fn of(drives: usize, rounds: usize) -> Result<Figures, Trouble> {
    let metrics = free_address()?;
    let specs = (0..drives).map(|number| DriveSpec::blank(&format!("d{number}"), 1024 * MIB));
    let rig = Rig::tuned(specs.collect(), |settings| {
        "partition".clone_into(&mut settings.layout);
        "spread".clone_into(&mut settings.placement);
        "info".clone_into(&mut settings.log);
        settings.metrics = metrics.to_string();
        settings.more = replay::smartctl(&settings.dir.join("smart"), 0);
    })
    .await;
    let mut volumes = Vec::new();
    for number in 0..VOLUMES {
        let name = format!("v{number}");
        let capability = csi::mount("ext4");
        volumes.push(rig.volume(&name, VOLUME_MIB * MIB, &capability).await);
    }
    let mut calls = None;
    let topolvm = Topolvm::start(&rig.shelf, VOLUMES, VOLUME_MIB).await?;
    if let Some(topolvm) = topolvm.as_ref().filter(|_| drives == DRIVES[0]) {
        calls = Some(calls::mounted(&rig, &volumes[0], topolvm, rounds).await?);
    }
    for volume in &volumes {
        rig.use_volume(volume).await;
    }
    if let Some(topolvm) = &topolvm {
        for volume in &topolvm.volumes {
            topolvm.publish(volume).await?;
        }
        if let Some(calls) = &mut calls {
            calls::sampled(calls, &rig, &volumes, topolvm, rounds).await?;
        }
    }
    let answer = rig.dir().join("smart/answer.json");
    let scraped = scrapes::measure(&rig, metrics, &answer, drives, rounds).await?;
    let (scrapes, exporter) = scraped.unzip();
    tokio::time::sleep(SETTLED).await;
    let mut measuring = JoinSet::new();
    let programs = [
        ("drivebay-agent", Some(rig.agent.pid())),
        ("topolvm-node", topolvm.as_ref().map(Topolvm::pid)),
        ("smartctl_exporter", exporter.as_ref().map(Exporter::pid)),
    ];
    for (name, pid) in programs {
        if let Some(pid) = pid {
            measuring.spawn(async move { (name, idle::measure(pid, IDLE).await) });
        }
    }
    let mut idle = Vec::new();
    for (name, measured) in measuring.join_all().await {
        idle.push((name, measured?));
    }
    idle.sort_by_key(|(name, _)| programs.iter().position(|(of, _)| of == name));
    if let Some(topolvm) = &topolvm {
        for volume in &topolvm.volumes {
            topolvm.unpublish(volume).await?;
        }
    }
    for volume in &volumes {
        rig.leave_volume(volume).await;
    }
    Ok(Figures {
        drives,
        calls,
        scrapes,
        idle,
    })
}

/// Counts the processes that a program starts during `done`. Not for timing: counting slows it down.
async fn started(
    pid: u32,
    dir: &Path,
    done: impl Future<Output = Result<(), Trouble>>,
) -> Result<usize, Trouble> {
    let starts = Starts::watch(pid, dir)?;
    done.await?;
    let lines = starts.finish()?;
    // An exec in a new process is not a further process.
    Ok(lines.iter().filter(|line| !line.contains("execve")).count())
}
