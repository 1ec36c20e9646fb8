//! Running a tool to its end, bounded: own process group, no stdin but what it is given, output limited,
//! killed as a group at its deadline. For worker processes (it blocks).
//!
//! Nothing here waits for the end of a pipe: a grandchild in D state may hold it open. The tool stays in the worker's session, by which the
//! agent finds it if the worker is killed, and it is killed with the thread that started it (PR_SET_PDEATHSIG).

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};

use super::{scratch, seclude::Secluded};
use drivebay_model::units::human_millis;

/// Bytes that are kept of each stream; the rest is read and dropped, so that the tool never blocks on a full pipe.
const KEPT: usize = 1024 * 1024;
/// Time for a killed tool to end; after that it is left behind (`left_behind`).
const REAP: Duration = Duration::from_secs(1);
/// Interval of checking the tool if the kernel has no pidfd (before 5.3).
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of calling `go_on` of an idle tool.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// Tools that were killed and had not ended after `REAP`; `left_behind` reaps them.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A tool and its arguments. Never goes through a shell.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Program name, found in PATH plus /usr/sbin and /sbin.
    pub program: &'static str,
    pub args: Vec<OsString>,
    /// Environment variables, besides the worker's own.
    pub env: Vec<(&'static str, OsString)>,
    /// The only device node that the tool can access; None: all of the host's.
    pub only: Option<PathBuf>,
    /// Limit after which the tool is killed.
    pub deadline: Duration,
}

/// Result of a tool that ended by itself.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code; None when a signal ended it.
    pub code: Option<i32>,
    /// At most 1 MiB, lossy UTF-8.
    pub stdout: String,
    /// At most 1 MiB, lossy UTF-8.
    pub stderr: String,
}

/// The tool did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CmdError {
    #[error("{0} is not installed")]
    Missing(&'static str),
    /// The program could not be started or waited for.
    #[error("cannot start {program}")]
    Spawn {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The deadline passed; the process group was killed.
    #[error("{program} did not end within {}", human_millis(*limit_ms))]
    Deadline {
        program: &'static str,
        /// Deadline that the tool was run with, milliseconds.
        limit_ms: u64,
    },
}

/// Runs the tool and waits until its deadline, and then at most one second for it to end after a kill. Processes that it left in its
/// process group are killed when it ends.
pub fn run(tool: &Tool) -> Result<Output, CmdError> {
    to_its_end(tool, Stdio::null())
}

/// Runs the tool as `run` does, with these bytes as its standard input. It may open `/dev/stdin` as often as it likes: each time it reads all
/// of them. They are in memory only, and in that of no other process.
pub fn run_with_input(tool: &Tool, input: &[u8]) -> Result<Output, CmdError> {
    let file = scratch::file_of(input).map_err(|source| CmdError::Spawn {
        program: tool.program,
        source,
    })?;
    to_its_end(tool, file.into())
}

fn to_its_end(tool: &Tool, input: Stdio) -> Result<Output, CmdError> {
    match attend(tool, false, input, &mut || true)? {
        Some(output) => Ok(output),
        // `go_on` always returns true.
        None => Err(CmdError::Spawn {
            program: tool.program,
            source: io::Error::other("it was stopped"),
        }),
    }
}

/// Runs the tool as `run` does, with idle I/O priority, the lowest CPU priority, and first in line for the OOM killer. `go_on` is called
/// several times a second; if it returns false, the tool is killed as at its deadline, and the result is None.
pub fn run_idle(tool: &Tool, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Output>, CmdError> {
    attend(tool, true, Stdio::null(), go_on)
}

fn attend(
    tool: &Tool,
    idle: bool,
    input: Stdio,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Output>, CmdError> {
    let program = tool.program;
    let failed = |source| CmdError::Spawn { program, source };
    let mut child = match start(tool, idle, input) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CmdError::Missing(program));
        }
        Err(error) => return Err(failed(error)),
    };
    let deadline = Instant::now() + tool.deadline;
    let pid = Pid::from_raw(child.id().cast_signed());
    let pidfd = pidfd(pid);
    let mut stdout = Capture::new(child.stdout.take().map(OwnedFd::from));
    let mut stderr = Capture::new(child.stderr.take().map(OwnedFd::from));

    let mut stopped;
    let ended = loop {
        let until = if idle {
            deadline.min(Instant::now() + IDLE_INTERVAL)
        } else {
            deadline
        };
        let captures = [&mut stdout, &mut stderr];
        let ended = follow(pid, pidfd.as_ref(), captures, until);
        stopped = matches!(ended, Ok(false)) && !go_on();
        if stopped || !matches!(ended, Ok(false)) || Instant::now() >= deadline {
            break ended;
        }
    };
    // Not reaped yet, so the group's number is still ours.
    let _ = killpg(pid, Signal::SIGKILL);
    match ended {
        Ok(true) => {
            stdout.take_available();
            stderr.take_available();
            let status = child.wait().map_err(failed)?;
            Ok(Some(output(status, stdout, stderr)))
        }
        Ok(false) => {
            let nothing: [&mut Capture; 2] = [&mut Capture::new(None), &mut Capture::new(None)];
            let reaped = follow(pid, pidfd.as_ref(), nothing, Instant::now() + REAP);
            leave(child, matches!(reaped, Ok(true)));
            if stopped {
                return Ok(None);
            }
            Err(CmdError::Deadline {
                program,
                limit_ms: u64::try_from(tool.deadline.as_millis()).unwrap_or(u64::MAX),
            })
        }
        Err(error) => {
            leave(child, false);
            Err(failed(error.into()))
        }
    }
}

/// True if a killed tool has not ended. Such a worker must take no more work: the next tool would run beside this one on the same drive.
pub fn left_behind() -> bool {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    !left.is_empty()
}

fn leave(mut child: Child, ended: bool) {
    if !(ended && child.wait().is_ok()) {
        LEFT.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
    }
}

fn start(tool: &Tool, idle: bool, input: Stdio) -> io::Result<Child> {
    let mut command = Command::new(tool.program);
    command
        .args(&tool.args)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C")
        .env("PATH", search_path(std::env::var_os("PATH").as_deref()))
        .envs(tool.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    let parent = std::process::id();
    let secluded = tool.only.as_deref().map(Secluded::with).transpose()?;
    // SAFETY: prctl, getppid, _exit and what `Secluded` and `be_idle` call are async-signal-safe, and nothing is
    // allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent died before the line above, so its death does not kill this process.
            if libc::getppid().cast_unsigned() != parent {
                libc::_exit(127);
            }
            if idle {
                be_idle();
            }
            secluded.as_ref().map_or(Ok(()), Secluded::enter)
        });
    }
    command.spawn()
}

/// Lowers the priorities between fork and exec. Each call may be refused (in a container, for example); the tool then runs with normal
/// priority, and still with a deadline.
fn be_idle() {
    /// IOPRIO_CLASS_IDLE, above the 13 bits of the level (linux/ioprio.h).
    const IDLE: libc::c_int = 3 << 13;
    /// IOPRIO_WHO_PROCESS; with 0: the caller.
    const PROCESS: libc::c_int = 1;
    // SAFETY: system calls on constants and on a static string; nothing is allocated.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, PROCESS, 0, IDLE);
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        let path = c"/proc/self/oom_score_adj";
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, c"1000".as_ptr().cast(), 4);
            libc::close(fd);
        }
    }
}

/// True if the program is found where `run` looks for it.
pub fn is_installed(program: &str) -> bool {
    let path = search_path(std::env::var_os("PATH").as_deref());
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Returns the absolute directories of PATH, then /usr/sbin and /sbin.
fn search_path(path: Option<&OsStr>) -> OsString {
    let own = path.map(std::env::split_paths).into_iter().flatten();
    let dirs = own
        .filter(|dir| dir.is_absolute())
        .chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(dirs).unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".into())
}

fn pidfd(pid: Pid) -> Option<OwnedFd> {
    // SAFETY: no pointers are passed; a returned descriptor is owned only here.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        i32::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Reads output until the process has ended (true) or `until` has passed (false). Does not reap.
fn follow(
    pid: Pid,
    pidfd: Option<&OwnedFd>,
    mut captures: [&mut Capture; 2],
    until: Instant,
) -> Result<bool, Errno> {
    loop {
        if has_ended(pid)? {
            return Ok(true);
        }
        let mut left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if pidfd.is_none() {
            left = left.min(POLL_INTERVAL);
        }
        let mut fds: Vec<PollFd> = captures
            .iter()
            .filter_map(|capture| capture.pipe.as_ref())
            .chain(pidfd)
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        // Rounded up; else the last millisecond would be a busy loop.
        let millis = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        match poll(
            &mut fds,
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        for capture in &mut captures {
            capture.take_available();
        }
    }
}

fn has_ended(pid: Pid) -> Result<bool, Errno> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid), flags) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error),
    }
}

fn output(status: ExitStatus, stdout: Capture, stderr: Capture) -> Output {
    Output {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout.kept).into_owned(),
        stderr: String::from_utf8_lossy(&stderr.kept).into_owned(),
    }
}

/// Output of one stream of the tool.
struct Capture {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
}

impl Capture {
    fn new(pipe: Option<OwnedFd>) -> Self {
        let pipe = pipe.filter(|fd| fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok());
        Self {
            pipe,
            kept: Vec::new(),
        }
    }

    /// Reads available output, at most 2 MiB per call: a tool that writes without end must not delay the check of the deadline.
    fn take_available(&mut self) {
        let mut chunk = [0; 64 * 1024];
        for _ in 0..32 {
            let Some(pipe) = self.pipe.take() else { return };
            let mut file = std::fs::File::from(pipe);
            let result = file.read(&mut chunk);
            match result {
                Ok(0) => return,
                Ok(count) => {
                    let room = KEPT.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&chunk[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.pipe = Some(file.into());
                    }
                    return;
                }
            }
            self.pipe = Some(file.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, deadline_ms: u64) -> Tool {
        Tool {
            program: "sh",
            args: vec!["-c".into(), script.into()],
            env: vec![],
            only: None,
            deadline: Duration::from_millis(deadline_ms),
        }
    }

    #[test]
    fn output_and_exit_code_of_a_tool_are_kept_apart() {
        let output = run(&sh("echo out; echo err >&2; exit 3", 10_000)).unwrap();
        assert_eq!(
            (output.code, output.stdout.as_str(), output.stderr.as_str()),
            (Some(3), "out\n", "err\n")
        );
    }

    #[test]
    fn a_tool_reads_its_input_as_often_as_it_opens_it() {
        let tool = sh("cat; cat /dev/stdin; cat /dev/stdin", 10_000);
        let output = run_with_input(&tool, b"a\n").unwrap();
        assert_eq!(output.stdout, "a\na\na\n", "{output:?}");
        // Without one it has none.
        assert_eq!(run(&tool).unwrap().stdout, "");
    }

    #[test]
    fn a_program_is_installed_where_it_would_be_run_from() {
        assert!(is_installed("sh") && !is_installed("drivebay-no-such-tool"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let tool = Tool {
            program: "drivebay-no-such-tool",
            args: vec![],
            env: vec![],
            only: None,
            deadline: Duration::from_secs(1),
        };
        assert!(matches!(
            run(&tool),
            Err(CmdError::Missing("drivebay-no-such-tool"))
        ));
    }

    /// Some loop device's node, which needs no backing file; None without root or such a node.
    fn some_block_device() -> Option<PathBuf> {
        let root = nix::unistd::geteuid().is_root();
        let node = PathBuf::from("/dev/loop0");
        (root && node.exists()).then_some(node)
    }

    #[test]
    fn a_secluded_tool_sees_one_device_and_its_world_is_not_ours() {
        let Some(node) = some_block_device() else {
            return;
        };
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        let tool = Tool {
            only: Some(node),
            ..sh(
                "cd /dev && echo *; ls /sys/block | wc -l; test -e /sys/dev/block/7:0/size || exit 9; test -b loop0 && echo x >null; \
                 grep -c ' /dev ' /proc/self/mountinfo",
                10_000,
            )
        };
        let output = run(&tool).unwrap();
        assert!(
            output
                .stdout
                .starts_with("loop0 null random urandom zero\n0\n"),
            "{output:?}"
        );
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(mounts(), before);
        assert!(std::path::Path::new("/dev/tty").exists());

        let nowhere = Tool {
            only: Some("/tmp".into()),
            ..sh("true", 10_000)
        };
        assert!(matches!(run(&nowhere), Err(CmdError::Spawn { .. })));
    }

    #[test]
    fn a_tool_that_hangs_is_killed_at_its_deadline() {
        let begun = Instant::now();
        let result = run(&sh("sleep 60", 200));
        assert!(matches!(
            result,
            Err(CmdError::Deadline {
                program: "sh",
                limit_ms: 200
            })
        ));
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn an_idle_tool_is_idle_and_is_stopped_when_it_shall_not_go_on() {
        let script = "ionice -p $$; cut -d' ' -f19 /proc/$$/stat; cat /proc/$$/oom_score_adj";
        let output = run_idle(&sh(script, 10_000), &mut || true).unwrap();
        assert_eq!(output.unwrap().stdout, "idle\n19\n1000\n");
        let mut calls = 0;
        let stopped = run_idle(&sh("sleep 60", 60_000), &mut || {
            calls += 1;
            calls < 2
        });
        assert!(stopped.unwrap().is_none());
        assert!(!left_behind());
        let late = run_idle(&sh("sleep 60", 300), &mut || true);
        assert!(matches!(late, Err(CmdError::Deadline { .. })));
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_is_not_waited_for_and_dies() {
        let begun = Instant::now();
        let output = run(&sh("sleep 60 & echo $!", 30_000)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5));
        let pid = output.stdout.trim().parse::<i32>().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        let alive = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains("(sleep)") && !stat.contains(") Z "))
        };
        while alive() {
            assert!(Instant::now() < end, "grandchild {pid} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_grandchild_outside_the_group_is_not_waited_for_either() {
        let begun = Instant::now();
        let output = run(&sh("setsid sleep 3 & echo said", 30_000)).unwrap();
        assert_eq!(output.stdout, "said\n");
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn output_without_end_is_bounded_and_never_blocks_the_tool() {
        let output = run(&sh(
            "head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2",
            30_000,
        ));
        let output = output.unwrap();
        assert_eq!(output.code, Some(0));
        assert_eq!((output.stdout.len(), output.stderr.len()), (KEPT, KEPT));

        let begun = Instant::now();
        assert!(matches!(
            run(&sh("exec cat /dev/zero", 300)),
            Err(CmdError::Deadline { .. })
        ));
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_tool_that_a_signal_ends_has_no_code() {
        assert_eq!(run(&sh("kill -9 $$", 10_000)).unwrap().code, None);
    }

    #[test]
    fn stdin_is_empty_and_the_locale_is_c() {
        let output = run(&sh("cat; echo $LC_ALL", 10_000)).unwrap();
        assert_eq!(output.stdout, "C\n");
    }

    #[test]
    fn a_tool_leads_a_process_group_of_its_own() {
        let output = run(&sh("cut -d' ' -f1,5 /proc/$$/stat", 10_000)).unwrap();
        let (pid, group) = output.stdout.trim().split_once(' ').unwrap();
        assert_eq!(pid, group);
    }

    #[test]
    fn relative_directories_are_not_searched() {
        let path = search_path(Some(OsStr::new(":.:bin:/opt/bin")));
        assert_eq!(path, "/opt/bin:/usr/sbin:/sbin");
        assert_eq!(search_path(None), "/usr/sbin:/sbin");
    }
}
