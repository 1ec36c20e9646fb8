//! Starts workers: forked by the worker server, or, if there is none, executed.
//!
//! Either way a worker leads a session of its own and has default signals, a socket, a log, the tool namespace, and no other descriptor of
//! the agent. It gets no job before the agent has recorded it, and exits when its socket is closed: one that was started without the
//! agent's knowledge does no harm and ends.

use std::{
    io,
    os::{
        fd::{OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{fcntl::OFlag, unistd::pipe2};
use tokio::net::unix::pipe;

use super::{
    child::{self, Child, Starting},
    process, tool_namespace,
    worker_server::Line,
};

/// Time for which workers are executed after a server that never responded.
const AGAIN: Duration = Duration::from_secs(60);

/// Variables of the service manager: a worker must not report for the agent.
const NOT_INHERITED: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

#[derive(Debug)]
pub struct Started {
    /// The worker's process; waited for with a time limit only.
    pub child: Child,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The agent's end of the worker's descriptor 0; non-blocking.
    pub socket: UnixStream,
    /// Read end of the worker's stderr, its log. It ends when the last process that has the write end exits.
    pub stderr: pipe::Receiver,
}

/// Starts the workers of a pool.
#[derive(Debug)]
pub struct Starter {
    program: PathBuf,
    server: Mutex<Server>,
}

#[derive(Debug)]
enum Server {
    /// No server is used; workers are executed.
    Never,
    /// No server runs; another may be started: at once, or from `until` on.
    Down {
        until: Option<Instant>,
    },
    /// A server is being started, which may block like any other program.
    Starting,
    Up(Line),
}

impl Starter {
    /// Creates a starter. With `fork`, workers are forked by a server and share its memory; else each is executed.
    pub fn new(program: PathBuf, fork: bool) -> Self {
        let server = match fork.then(child::adopt_orphans) {
            Some(Ok(())) => Server::Down { until: None },
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot adopt orphaned processes; workers do not share memory");
                Server::Never
            }
            None => Server::Never,
        };
        Self {
            program,
            server: Mutex::new(server),
        }
    }

    /// Starts a worker. `args` are shown in the process list. Blocks for the time of a fork, or of an exec; needs a tokio runtime.
    pub fn start(&self, args: &[&str]) -> io::Result<Started> {
        match self.fork(args) {
            Some(started) => Ok(started),
            None => start_worker(&self.program, args),
        }
    }

    /// Starts the server, so that the first worker does not wait for it.
    pub fn prepare(&self) {
        self.revive();
    }

    /// Returns the process id of the server; None if none runs.
    pub fn server(&self) -> Option<i32> {
        match &*self.lock() {
            Server::Up(line) => Some(line.pid()),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server fork a worker; None if it must be executed.
    fn fork(&self, args: &[&str]) -> Option<Started> {
        // The second time, the server had died since its last use.
        for _ in 0..2 {
            self.revive();
            let mut server = self.lock();
            let Server::Up(line) = &mut *server else {
                return None;
            };
            match line.fork(args) {
                Ok(started) => return Some(started),
                Err(error) => {
                    let log = line.end();
                    tracing::warn!(%error, log, "worker server failed; starting another");
                    let until = (!line.has_answered()).then(|| Instant::now() + AGAIN);
                    *server = Server::Down { until };
                }
            }
        }
        None
    }

    /// Starts a server if none runs and its retry time has come.
    fn revive(&self) {
        let mut server = self.lock();
        match &*server {
            Server::Down { until } if until.is_none_or(|until| until <= Instant::now()) => {}
            _ => return,
        }
        *server = Server::Starting;
        drop(server);
        // Not locked: this may block, and other callers must not wait for it.
        let started = Line::start(&self.program);
        *self.lock() = match started {
            Ok(line) => Server::Up(line),
            Err(error) => {
                tracing::warn!(%error, "cannot start the worker server; workers do not share memory");
                Server::Down {
                    until: Some(Instant::now() + AGAIN),
                }
            }
        };
    }
}

/// Executes `<program> worker <args>`. Blocks for the time of a fork and exec; needs a tokio runtime.
pub fn start_worker(program: &Path, args: &[&str]) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    let (log, theirs_log) = pipe2(OFlag::O_CLOEXEC)?;
    let starting = Starting::begin();
    let args = [&["worker"], args].concat();
    let child = execute(program, &args, theirs.into(), theirs_log, &starting)?;
    started(child, ours, log)
}

/// Assembles a new worker, and kills it on error.
pub(super) fn started(child: Child, socket: UnixStream, log: OwnedFd) -> io::Result<Started> {
    socket.set_nonblocking(true)?;
    // Not reaped, so the process exists even if it has ended already.
    match process::stat(child.pid()) {
        Ok(Some(stat)) if stat.parent == std::process::id().cast_signed() => Ok(Started {
            child,
            start_ticks: stat.start_ticks,
            socket,
            stderr: pipe::Receiver::from_owned_fd(log)?,
        }),
        other => {
            child.kill();
            Err(other
                .err()
                .unwrap_or_else(|| io::Error::other("the new worker is no child of the agent")))
        }
    }
}

/// Starts a program that inherits nothing but descriptor 0, /dev/null as 1, a log as 2, and the tool namespace.
pub(super) fn execute(
    program: &Path,
    args: &[&str],
    stdin: OwnedFd,
    log: OwnedFd,
    starting: &Starting,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir("/")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log));
    if let Some(directory) = super::lvm::directory() {
        command.env(super::lvm::DIR_VARIABLE, directory);
    }
    let namespace = tool_namespace::descriptor();
    match namespace {
        Some(number) => command.env(tool_namespace::VARIABLE, number.to_string()),
        None => command.env_remove(tool_namespace::VARIABLE),
    };
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    // SAFETY: only async-signal-safe calls on values that live in the closure.
    unsafe {
        command.pre_exec(move || start_clean(namespace));
    }
    // Dropped without waiting: `Child` waits.
    let pid = command.spawn()?.id().cast_signed();
    starting
        .child(pid)
        .inspect_err(|_| process::kill_group(pid))
}

/// Runs between fork and exec: own session, default signals, no descriptors above 2 but `passed`.
fn start_clean(passed: Option<RawFd>) -> io::Result<()> {
    // SAFETY: async-signal-safe calls, no allocation; the signal set is initialised before use.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in 1..=libc::SIGRTMAX() {
            // KILL, STOP and the C library's own signals cannot be set; the error is ignored.
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
