//! Cost of checking a mounted volume on a snapshot: the slowdown of its writes, by type of snapshot store, and the duration of the check.
//! Runs in the lab's guest, which has two drives for it.

mod stores;
pub(crate) mod volume;
mod writes;

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use drivebay_hwtests::{Trouble, tools};

use self::{
    stores::Store,
    volume::Volume,
    writes::{BLOCK, Kind, Pass, Target},
};
use crate::calls::table::{Pair, Table, Times, clocked, significant};

/// Size of the volume, and of a snapshot's store, MiB.
const SIZE: u64 = 2048;
const STORE: u64 = 1536;
/// Duration of the workload without a check, for comparison.
const ALONE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds that each request of the drive takes longer: a drive that is slow, as disks are. Fewer writes, fewer stores.
    #[arg(long, default_value_t = 0)]
    slow: u64,
    /// This part alone.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// What the serials of the two drives begin with. They are overwritten; only qemu's drives are taken.
    #[arg(long, default_value = "bench")]
    drives: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Writes, by how a snapshot stores.
    Writes,
    /// The check's time, and the writes during it.
    Time,
}

pub(crate) fn run(options: &Options) -> Result<(), Trouble> {
    let drives = volume::drives(&options.drives)?;
    let [(_, first), (_, second), ..] = drives.as_slice() else {
        return Err(Trouble::new(format!(
            "needs two drives of qemu whose serials begin with {}: run hwtests/bench check",
            options.drives
        )));
    };
    tools::run(
        "modprobe",
        &["-a", "dm-snapshot", "dm-era", "dm-delay", "dm-thin-pool"],
    )?;
    let volumes = Volume::both([first, second], options.slow, SIZE, STORE)?;
    let [volume, thin] = &volumes;
    let written = |volume: &Volume| Target::new(&volume.dir.join("written"));
    let target = written(volume)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "ext4 of {SIZE} MiB on LVM, each request of its drive delayed by {} ms, Linux {}, {} rounds",
        options.slow,
        kernel.trim(),
        options.rounds
    );
    println!(
        "Writes of 4 KiB, O_DIRECT, one after another, to blocks not written since the snapshot was made."
    );
    if options.only != Some(Part::Time) {
        let thin = (thin, &written(thin)?);
        writes((volume, &target), thin, options)?;
        println!();
    }
    if options.only != Some(Part::Writes) {
        check(volume, &target, options)?;
    }
    Ok(())
}

/// Results of one kind of write with one store: without and with it, in each round.
#[derive(Debug, Clone, Default)]
struct Figures {
    rounds: Vec<[Pass; 2]>,
    /// Bytes stored; None if it stores nothing.
    stored: Option<u64>,
}

impl Figures {
    fn push(&mut self, alone: Pass, with: Pass, stored: Option<u64>) {
        self.rounds.push([alone, with]);
        if let Some(bytes) = stored {
            *self.stored.get_or_insert(0) += bytes;
        }
    }

    fn median(&self, of: impl Fn(&[Pass; 2]) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the 99th percentile of a write's duration, milliseconds.
    fn p99(&self, side: usize) -> f64 {
        let mut all = Times::default();
        for round in &self.rounds {
            all.extend(round[side].times.clone());
        }
        all.at(99).as_secs_f64() * 1000.0
    }

    fn head() {
        println!(
            "\n{:<22} {:<17} {:>6} {:>9} {:>9} {:>7} {:>9} {:>9} {:>8}",
            "writes",
            "with",
            "n",
            "alone, /s",
            "with, /s",
            "slower",
            "p99, ms",
            "with, ms",
            "stored"
        );
    }

    fn print(&self, what: &str, with: &str) {
        let n: usize = self.rounds.iter().map(|round| round[1].writes).sum();
        let stored = self.stored.map_or_else(String::new, |bytes| {
            significant(bytes as f64 / (n as u64 * BLOCK) as f64)
        });
        let figures = [
            self.median(|round| round[0].per_second()),
            self.median(|round| round[1].per_second()),
            self.median(|round| round[0].per_second() / round[1].per_second()),
            self.p99(0),
            self.p99(1),
        ];
        let [alone, with_it, slower, p99, p99_with] = figures.map(significant);
        println!(
            "{what:<22} {with:<17} {n:>6} {alone:>9} {with_it:>9} {slower:>7} {p99:>9} {p99_with:>9} {stored:>8}"
        );
    }
}

fn writes(
    linear: (&Volume, &Target),
    thin: (&Volume, &Target),
    options: &Options,
) -> Result<(), Trouble> {
    let slow = options.slow > 0;
    let stores = if slow { &Store::FEW[..] } else { &Store::ALL };
    let kinds = if slow { &Kind::FEW[..] } else { &Kind::ALL };
    let blocks = if slow { 64 } else { 512 };
    let mut all = vec![vec![Figures::default(); kinds.len()]; stores.len()];
    let begin = Instant::now();
    for round in 1..=options.rounds {
        for (store, figures) in stores.iter().zip(&mut all) {
            let (volume, target) = match store {
                Store::Thin => thin,
                _ => linear,
            };
            let mut alone = Vec::new();
            for kind in kinds {
                alone.push(target.pass(*kind, blocks)?);
            }
            let added = store.add(volume)?;
            for ((kind, figures), alone) in kinds.iter().zip(figures.iter_mut()).zip(alone) {
                let before = added.stored()?;
                let with = target.pass(*kind, blocks)?;
                let stored = before.zip(added.stored()?);
                figures.push(
                    alone,
                    with,
                    stored.map(|(from, to)| to.saturating_sub(from)),
                );
            }
            added.remove()?;
        }
        // The lab expects a line at least every half hour.
        println!("round {round}: {} s", begin.elapsed().as_secs());
    }
    Figures::head();
    for (at, kind) in kinds.iter().enumerate() {
        for (store, figures) in stores.iter().zip(&all) {
            figures[at].print(kind.name(), &store.name());
        }
    }
    println!("Medians of the rounds; slower: by this factor. stored: bytes for each byte written.");
    Ok(())
}

/// Runs a check with the agent's tools, beside the same on the unmounted filesystem. Without the agent, whose snapshot needs other LVM
/// commands and is erased.
fn check(volume: &Volume, target: &Target, options: &Options) -> Result<(), Trouble> {
    let stores = [Store::Lvm(4), Store::Lvm(64), Store::Transient(4)];
    let mut head = Table::begin(&["Milliseconds. ratio: to the same beside it.".to_owned()]);
    let mut rows = vec![Rows::default(); stores.len()];
    for _ in 0..options.rounds {
        for (store, rows) in stores.iter().zip(&mut rows) {
            rows.round(*store, volume, target)?;
        }
    }
    head.section("e2fsck -fn on a snapshot, beside: on the unmounted volume");
    for (store, rows) in stores.iter().zip(&rows) {
        head.pair("not written to", &store.name(), &rows.idle);
        head.pair("written to at random", &store.name(), &rows.busy);
    }
    head.section(
        "The snapshot made, its journal replayed, checked, removed, beside: e2fsck -fn alone",
    );
    for (store, rows) in stores.iter().zip(&rows) {
        head.pair("all of it, written to", &store.name(), &rows.whole);
    }
    Figures::head();
    for (store, rows) in stores.iter().zip(&rows) {
        rows.writes.print("random, whole check", &store.name());
    }
    Ok(())
}

#[derive(Debug, Clone, Default)]
struct Rows {
    idle: Pair,
    busy: Pair,
    whole: Pair,
    writes: Figures,
}

impl Rows {
    fn round(&mut self, store: Store, volume: &Volume, target: &Target) -> Result<(), Trouble> {
        volume.unmount()?;
        let bare = fsck(volume.node())?;
        volume.mount()?;

        let added = store.add(volume)?;
        replay(&added.node())?;
        self.idle.push(fsck(&added.node())?, bare);
        added.remove()?;

        let ((), alone) = while_written(target, || {
            thread::sleep(ALONE);
            Ok(())
        })?;
        let ((busy, stored, whole), with) = while_written(target, || {
            let (done, whole) = clocked(|| {
                let added = store.add(volume)?;
                replay(&added.node())?;
                let busy = fsck(&added.node())?;
                let stored = added.stored()?;
                added.remove()?;
                Ok::<_, Trouble>((busy, stored))
            });
            done.map(|(busy, stored)| (busy, stored, whole))
        })?;
        self.busy.push(busy, bare);
        self.whole.push(whole, bare);
        self.writes.push(alone, with, stored);
        Ok(())
    }
}

fn replay(node: &str) -> Result<(), Trouble> {
    // e2fsck exits with 1 if it replayed anything.
    let script = format!("e2fsck -E journal_only -p {node} >/dev/null || [ $? = 1 ]");
    tools::run("sh", &["-c", &script]).map(drop)
}

/// Returns the duration of a check with an empty page cache.
fn fsck(node: &str) -> Result<Duration, Trouble> {
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let (done, took) = clocked(|| tools::run("e2fsck", &["-fn", node]));
    done.map(|_| took)
}

/// Returns the result of a task, and the random writes done during it.
fn while_written<T>(
    target: &Target,
    task: impl FnOnce() -> Result<T, Trouble>,
) -> Result<(T, Pass), Trouble> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| target.until(&stop));
        let done = task();
        stop.store(true, Ordering::Relaxed);
        let pass = writer
            .join()
            .map_err(|_| Trouble::new("the writer panicked"))?;
        Ok((done?, pass?))
    })
}
