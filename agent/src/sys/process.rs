//! Worker processes: start clean, signal, reap, and find again after a restart.
//!
//! A worker leads a session of its own, and the tools that it runs stay in that session although
//! each has its own process group. So "is anything of this worker left" can be answered from
//! /proc/PID/stat, which never blocks (unlike cmdline and environ, which take the memory lock of
//! a process that may be stuck). A session's number is not given to another process while
//! anything in that session lives.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd, RawFd},
        unix::{fs::FileTypeExt, net::UnixStream},
    },
    path::Path,
    process::Stdio,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use procfs::{
    ProcError,
    process::{Process, Stat},
};
use tokio::process::{Child, ChildStderr, Command};

use super::tool_namespace;

/// A worker that was just started.
#[derive(Debug)]
pub struct Started {
    /// To wait for; never without a bound.
    pub child: Child,
    /// Also its process group and session.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
    /// The agent's end of its descriptor 0; not blocking.
    pub socket: UnixStream,
    /// What it logs.
    pub stderr: ChildStderr,
}

/// Starts `<program> worker <args>` with nothing inherited but a socket as descriptor 0, /dev/null
/// as 1, a pipe as 2, and the tools' namespace. Blocks for the time of a fork and exec; needs a tokio runtime.
pub fn start_worker(program: &Path, args: &[&str]) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(program);
    command
        .arg("worker")
        .args(args)
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(directory) = super::lvm::directory() {
        command.env(super::lvm::DIR_VARIABLE, directory);
    }
    let namespace = tool_namespace::descriptor();
    match namespace {
        Some(number) => command.env(tool_namespace::VARIABLE, number.to_string()),
        None => command.env_remove(tool_namespace::VARIABLE),
    };
    // The service manager's: a worker must not speak for the agent.
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
    ] {
        command.env_remove(name);
    }
    // SAFETY: only async-signal-safe calls on values that live in the closure.
    unsafe {
        command.pre_exec(move || start_clean(namespace));
    }
    let mut child = command.spawn()?;
    let pid = child.id().map(u32::cast_signed);
    let (Some(pid), Some(stderr)) = (pid, child.stderr.take()) else {
        return Err(io::Error::other("the worker was reaped by another process"));
    };
    // It is not reaped, so this is there even if it ended already.
    let start_ticks = match stat(pid) {
        Ok(Some(stat)) => stat.start_ticks,
        other => {
            kill_group(pid);
            return Err(other
                .err()
                .unwrap_or_else(|| io::Error::other("the new worker is not in /proc")));
        }
    };
    Ok(Started {
        child,
        pid,
        start_ticks,
        socket: ours,
        stderr,
    })
}

/// Between fork and exec: own session, default signals, no descriptors above 2 but the one that is passed.
fn start_clean(passed: Option<RawFd>) -> io::Result<()> {
    // SAFETY: async-signal-safe calls, no allocation; the signal set is initialised before use.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=libc::SIGRTMAX() {
            // KILL, STOP and the C library's own cannot be set; nothing to do about it.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        // Marked, not closed: the standard library reports a failed exec through one of them.
        let marked = libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if marked != 0 {
            // Before 5.11: one by one.
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            let end = i32::try_from(limit.rlim_cur.min(1 << 20)).unwrap_or(1 << 20);
            for fd in 3..end {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        if let Some(fd) = passed
            && libc::fcntl(fd, libc::F_SETFD, 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// In the worker: takes the socket from descriptor 0 and leaves /dev/null there, so that no tool
/// inherits it.
pub fn socket_from_stdin() -> io::Result<UnixStream> {
    let stdin = io::stdin();
    // SAFETY: F_DUPFD_CLOEXEC makes a new descriptor that nobody else owns.
    let socket = unsafe {
        use std::os::fd::FromRawFd;
        OwnedFd::from_raw_fd(fcntl(&stdin, FcntlArg::F_DUPFD_CLOEXEC(3))?)
    };
    let file = fs::File::from(socket);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "descriptor 0 is no socket; workers are started by the agent only",
        ));
    }
    let null = fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    Ok(UnixStream::from(OwnedFd::from(file)))
}

/// Whether nobody holds the other end of a socket any more. A peer that only stopped sending still does.
pub fn is_hung_up(socket: &UnixStream) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds.iter().any(|fd| {
            fd.revents()
                .is_some_and(|events| events.contains(PollFlags::POLLHUP))
        })
}

/// What /proc/PID/stat says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStat {
    /// Process id.
    pub pid: i32,
    /// R, S, D, Z, T, …
    pub state: char,
    /// Session id.
    pub session: i32,
    /// Threads, the main one included.
    pub threads: u64,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
}

impl ProcStat {
    /// Dead in all of its threads, only not reaped. A zombie with a thread left is stuck.
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

impl From<Stat> for ProcStat {
    fn from(stat: Stat) -> Self {
        Self {
            pid: stat.pid,
            state: stat.state,
            session: stat.session,
            threads: stat.num_threads.cast_unsigned(),
            start_ticks: stat.starttime,
        }
    }
}

/// One process; None when it is gone.
pub fn stat(pid: i32) -> io::Result<Option<ProcStat>> {
    match Process::new(pid).and_then(|process| process.stat()) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// What still lives of a worker: the worker itself and everything in its session. When it cannot
/// be known, that is an error: something may live.
pub fn remains(pid: i32, start_ticks: u64) -> io::Result<Vec<ProcStat>> {
    if let Some(leader) = stat(pid)?
        && leader.start_ticks != start_ticks
    {
        // The number was given away, so nothing of that session is left.
        return Ok(Vec::new());
    }
    let mut alive = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(process) = stat(id)?
            && (process.session == pid || process.pid == pid)
            && process.start_ticks >= start_ticks
            && !process.is_dead()
        {
            alive.push(process);
        }
    }
    Ok(alive)
}

/// Kills what still lives of a worker and says what that was; empty: nothing is left.
pub fn kill_remains(pid: i32, start_ticks: u64) -> io::Result<Vec<ProcStat>> {
    let alive = remains(pid, start_ticks)?;
    for process in &alive {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    Ok(alive)
}

/// Kills a process group. The caller knows that its leader is not reaped yet.
pub fn kill_group(pid: i32) {
    match killpg(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(pid, %error, "cannot kill a worker"),
    }
}

/// A name for this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    procfs::sys::kernel::random::boot_id().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_is_gone_has_hung_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!is_hung_up(&ours));
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!is_hung_up(&ours));
        drop(theirs);
        assert!(is_hung_up(&ours));
    }

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
