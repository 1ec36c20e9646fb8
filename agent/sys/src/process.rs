//! Worker processes in /proc: remaining processes of a worker, also after a restart of the agent.
//!
//! A worker leads a session of its own, and the tools that it runs stay in that session although each has its own process group. So
//! remaining processes are found by /proc/PID/stat, which never blocks (unlike cmdline and environ, which take the memory lock of a process
//! that may be in D state). A session's number is not reused while a process of that session lives.

use std::{fs, io};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use procfs::{
    ProcError,
    process::{Process, Stat},
};

/// Leaves all memory out of core dumps of this process and of those that it starts from here on: it may hold secrets of encrypted volumes.
/// (Not PR_SET_DUMPABLE, with which others of the same user could not open its files in /proc any more.)
pub fn keep_memory_out_of_core_dumps() -> io::Result<()> {
    // No kind of memory, core(5).
    fs::write("/proc/self/coredump_filter", "0")
}

/// A process as in /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStat {
    pub pid: i32,
    /// R, S, D, Z, T, …
    pub state: char,
    pub parent: i32,
    pub session: i32,
    /// Number of threads, the main one included.
    pub threads: u64,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcStat {
    /// True if all threads have ended and the process is not reaped. A zombie with another thread is stuck.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

impl From<Stat> for ProcStat {
    fn from(stat: Stat) -> Self {
        Self {
            pid: stat.pid,
            state: stat.state,
            parent: stat.ppid,
            session: stat.session,
            threads: stat.num_threads.cast_unsigned(),
            start_ticks: stat.starttime,
        }
    }
}

/// Returns one process; None if there is none.
pub fn stat(pid: i32) -> io::Result<Option<ProcStat>> {
    match Process::new(pid).and_then(|process| process.stat()) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Returns the living processes of a worker: the worker itself and all others in its session. Errs if that is unknown: some may live.
pub fn remains(pid: i32, start_ticks: u64) -> io::Result<Vec<ProcStat>> {
    if let Some(leader) = stat(pid)?
        && leader.start_ticks != start_ticks
    {
        // The number was reused, so no process of that session is left.
        return Ok(Vec::new());
    }
    all(|process| {
        (process.session == pid || process.pid == pid)
            && process.start_ticks >= start_ticks
            && !process.is_dead()
    })
}

/// Returns the processes of the host for which `is` is true.
pub(super) fn all(is: impl Fn(&ProcStat) -> bool) -> io::Result<Vec<ProcStat>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        processes.extend(stat(id)?.filter(&is));
    }
    Ok(processes)
}

/// Kills the living processes of a worker and returns them; empty if none is left.
pub fn kill_remains(pid: i32, start_ticks: u64) -> io::Result<Vec<ProcStat>> {
    let alive = remains(pid, start_ticks)?;
    for process in &alive {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    Ok(alive)
}

/// Kills a process group. The caller must know that its leader is not reaped yet.
pub fn kill_group(pid: i32) {
    match killpg(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(pid, %error, "cannot kill a worker"),
    }
}

/// Returns the kernel's random id of this boot.
pub fn boot_id() -> io::Result<String> {
    procfs::sys::kernel::random::boot_id().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_with_a_thread_left_is_not_dead() {
        let mut process = stat(std::process::id().cast_signed()).unwrap().unwrap();
        assert!(!process.is_dead());
        (process.state, process.threads) = ('Z', 2);
        assert!(!process.is_dead());
        process.threads = 1;
        assert!(process.is_dead());
    }

    #[test]
    fn a_recycled_number_leaves_nothing_of_the_old_worker() {
        let me = stat(std::process::id().cast_signed()).unwrap().unwrap();
        assert!(!remains(me.pid, me.start_ticks).unwrap().is_empty());
        assert_eq!(remains(me.pid, me.start_ticks + 1).unwrap(), vec![]);
    }
}
