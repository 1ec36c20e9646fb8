//! Idle load of an agent: CPU time, and wake-ups of its threads.

use std::{fmt, fs, path::Path, time::Duration};

use drivebay_hwtests::{
    Trouble, agent,
    memory::{Memory, Tree},
};

/// Clock ticks per second in /proc, the same on all current Linux systems.
const TICKS: f64 = 100.0;

/// Load over a period.
#[derive(Debug)]
pub(crate) struct Idle {
    over: Duration,
    ticks: u64,
    wakes: u64,
    tree: Tree,
}

impl Idle {
    /// Returns CPU time in percent of a core.
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.ticks as f64 / TICKS / self.over.as_secs_f64()
    }

    pub(crate) fn wakes_per_second(&self) -> f64 {
        self.wakes as f64 / self.over.as_secs_f64()
    }

    /// Returns the memory of the process and its descendants.
    pub(crate) fn all(&self) -> Memory {
        self.tree.all()
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.over.as_secs_f64();
        let all = self.all();
        write!(
            f,
            "{:.2} % of a core, {:.1} wake-ups/s of the agent, over {seconds} s; {} processes, {:.1} MiB PSS",
            self.percent(),
            self.wakes_per_second(),
            all.processes,
            all.pss as f64 / 1024.0
        )
    }
}

pub(crate) async fn measure(pid: u32, over: Duration) -> Result<Idle, Trouble> {
    let (ticks, wakes) = (ticks(pid), wakes(pid)?);
    tokio::time::sleep(over).await;
    Ok(Idle {
        over,
        ticks: self::ticks(pid).saturating_sub(ticks),
        wakes: self::wakes(pid)?.saturating_sub(wakes),
        tree: Tree::of(pid),
    })
}

/// Returns the CPU ticks of the agent and its workers, including ended ones.
fn ticks(pid: u32) -> u64 {
    let mut pids = agent::descendants(pid);
    pids.push(pid);
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // utime, stime, and both of reaped children; the name may contain blanks.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields = rest.split(' ').skip(11).take(4);
        Some(
            fields
                .filter_map(|field| field.parse::<u64>().ok())
                .sum::<u64>(),
        )
    };
    pids.iter().filter_map(of).sum()
}

/// Returns the voluntary context switches of all threads of the agent.
fn wakes(pid: u32) -> Result<u64, Trouble> {
    let mut all = 0;
    for task in fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += line
            .and_then(|count| count.trim().parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(all)
}
