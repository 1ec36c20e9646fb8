//! Child processes of the agent: waited for, and reaped together with their orphans.
//!
//! The agent is a subreaper: a process whose parent has died becomes the agent's child, also where the agent is not pid 1. So a worker that
//! the worker server forked is waited for like any other child, and when a worker has ended, its surviving descendants are among the
//! agent's children, without a search through all processes of the host.

use std::{
    collections::BTreeSet,
    fs, io,
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::Path,
    process::ExitStatus,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl::set_child_subreaper,
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::getsid,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::process::{self, ProcStat};

/// Interval of checking a child if the kernel has no pidfd (before 5.3), or a debugger holds the child.
const AGAIN: Duration = Duration::from_millis(20);

/// Children that only their `Child` may reap.
#[derive(Debug)]
struct Children {
    /// Process ids, from the start until each is reaped.
    awaited: BTreeSet<i32>,
    /// Starts in progress: their processes are not in `awaited` yet.
    starting: usize,
    /// True if orphans become the agent's children.
    adopts: bool,
}

static CHILDREN: Mutex<Children> = Mutex::new(Children {
    awaited: BTreeSet::new(),
    starting: 0,
    adopts: false,
});

/// Locks the list of children. Do not block while holding it.
fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the agent the parent of its children's orphans. Call before the first child is started.
pub(super) fn adopt_orphans() -> io::Result<()> {
    adopt()?;
    children().adopts = true;
    Ok(())
}

/// Makes the process, a worker, the parent of its tools' orphans. Call before the first tool is started.
pub fn adopt() -> io::Result<()> {
    set_child_subreaper(true)?;
    // With SIGCHLD ignored the kernel would reap children and reuse their numbers.
    // SAFETY: system calls; the structure is plain data that the first one fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
        {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
    Ok(())
}

/// True if a child has ended and is not reaped yet, awaited or not. One system call.
pub fn any_has_ended() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(
        waitid(Id::All, flags),
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)
    )
}

/// Reaps all children that have ended; true if none is left. For a worker that adopts and has no job. Does not block.
pub fn reap_all() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// While it exists, `reap_orphans` reaps nothing: a new process is not in `awaited` yet.
#[derive(Debug)]
pub(super) struct Starting(());

impl Starting {
    pub(super) fn begin() -> Self {
        children().starting += 1;
        Self(())
    }

    /// Returns the handle of a process that was started meanwhile. Needs a tokio runtime.
    pub(super) fn child(&self, pid: i32) -> io::Result<Child> {
        let child = Child {
            pid,
            // SAFETY: an `OwnedFd` is the same descriptor for as long as it lives.
            ended: pidfd(pid)
                .map(|fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) })
                .transpose()?,
            status: None,
        };
        children().awaited.insert(pid);
        Ok(child)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        children().starting -= 1;
    }
}

/// A child of the agent. If dropped before it is reaped, `reap_orphans` reaps it.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    /// Pidfd, readable when the process has ended; None if the kernel has none.
    ended: Option<AsyncFd<OwnedFd>>,
    status: Option<ExitStatus>,
}

impl Child {
    /// Returns the process id, which is not reused until the child is reaped.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Reaps the child if it has ended, and returns its status; None while it runs.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let mut children = children();
            self.status = reap(self.pid)?;
            if self.status.is_some() {
                children.awaited.remove(&self.pid);
            }
        }
        Ok(self.status)
    }

    /// Waits until the child has ended, and reaps it. Cancel-safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if let Some(ended) = &self.ended {
                let _ = ended.readable().await?;
                if let Some(status) = self.try_wait()? {
                    return Ok(status);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Kills the child and its process group, unless it is reaped.
    pub fn kill(&self) {
        if self.status.is_none() {
            process::kill_group(self.pid);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            children().awaited.remove(&self.pid);
        }
    }
}

/// Reaps the child if it has ended. Does not block.
fn reap(pid: i32) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: a system call that writes to a number that outlives it.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
        0 => Ok(None),
        reaped if reaped == pid => Ok(Some(ExitStatus::from_raw(status))),
        _ => Err(io::Error::last_os_error()),
    }
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: no pointers are passed; a returned descriptor is owned only here.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        i32::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Lists that are read at most; children that still change after that are handled by the next call.
const ROUNDS: usize = 8;

/// Reaps orphans that have ended. True if no other orphan is left, so that no descendant of a reaped worker lives; false if one may.
/// Blocks, but on /proc only.
pub fn reap_orphans() -> bool {
    // Locked until the end: a child that is not awaited now is an orphan, and its number is not reused meanwhile.
    let children = children();
    if !children.adopts || children.starting > 0 {
        return false;
    }
    let Ok(session) = getsid(None) else {
        return false;
    };
    let list = || {
        let mut all = all()?;
        all.retain(|pid| !children.awaited.contains(pid));
        Ok(all)
    };
    none_lives(list, |pid| {
        let Some(orphan) = process::stat(pid)? else {
            return Ok(None);
        };
        let fate = fate(&orphan, session.as_raw());
        if fate == Fate::Reap && reap(pid)?.is_none() {
            return Ok(None);
        }
        Ok(Some(fate))
    })
}

/// Reaps the dead orphans and returns true if none is left. `list` returns the children that may be orphans; `settle` reaps one if it is
/// dead and returns its fate, or None if that is unknown.
///
/// A child that dies leaves its own children to the agent: they are in no list that was read before. So a list counts only if none of its
/// children had to be reaped, and only if the one before was the same, since the kernel may leave a child out of a list while another is
/// reaped (proc(5), children).
fn none_lives(
    mut list: impl FnMut() -> io::Result<Vec<i32>>,
    mut settle: impl FnMut(i32) -> io::Result<Option<Fate>>,
) -> bool {
    let mut before = None;
    for _ in 0..ROUNDS {
        let Ok(all) = list() else { return false };
        let mut reaped = false;
        for pid in &all {
            match settle(*pid) {
                Ok(Some(Fate::NotOurs)) => {}
                Ok(Some(Fate::Reap)) => reaped = true,
                Ok(Some(Fate::Lives) | None) | Err(_) => return false,
            }
        }
        if !reaped && before.as_ref() == Some(&all) {
            return true;
        }
        before = Some(all);
    }
    false
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// A tool that the agent runs and reaps itself: it is in the agent's session.
    NotOurs,
    Reap,
    Lives,
}

fn fate(orphan: &ProcStat, session: i32) -> Fate {
    if orphan.session == session {
        Fate::NotOurs
    } else if orphan.is_dead() {
        Fate::Reap
    } else {
        Fate::Lives
    }
}

/// Lists the agent's children. The kernel lists them by thread: one that the agent started with the thread that started it, an orphan with
/// the first living thread, as are the children of a thread that ends. That is the process's first thread, which lives as long as the
/// agent, so it is read last.
fn all() -> io::Result<Vec<i32>> {
    let own = std::process::id().to_string();
    let mut threads: Vec<_> = fs::read_dir("/proc/self/task")?
        .map(|thread| thread.map(|thread| thread.file_name()))
        .collect::<io::Result<_>>()?;
    threads.sort_by_key(|thread| *thread == *own);
    let mut children = Vec::new();
    for thread in threads {
        let list = Path::new("/proc/self/task").join(&thread).join("children");
        match fs::read_to_string(list) {
            Ok(list) => children.extend(
                list.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            ),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // A kernel without CONFIG_PROC_CHILDREN.
            Err(_) if *thread == *own => {
                let own = std::process::id().cast_signed();
                let processes = process::all(|process| process.parent == own)?;
                return Ok(processes.into_iter().map(|process| process.pid).collect());
            }
            // The thread has ended.
            Err(_) => {}
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeMap};

    use super::*;

    #[test]
    fn orphans_are_reaped_when_dead_and_tools_of_the_agent_are_left_to_it() {
        let mut process = process::stat(std::process::id().cast_signed())
            .unwrap()
            .unwrap();
        let other = process.session + 1;
        assert_eq!(fate(&process, other), Fate::Lives);
        process.state = 'Z';
        process.threads = 2;
        assert_eq!(fate(&process, other), Fate::Lives);
        process.threads = 1;
        assert_eq!(fate(&process, other), Fate::Reap);
        assert_eq!(fate(&process, process.session), Fate::NotOurs);
    }

    /// A process tree: the listed children, the children of each process, and the dead ones, whose children go to the agent.
    fn judge(listed: Vec<i32>, children: &BTreeMap<i32, Vec<i32>>, dead: &[i32]) -> (bool, usize) {
        let listed = RefCell::new(listed);
        let mut lists = 0;
        let none = none_lives(
            || {
                lists += 1;
                Ok(listed.borrow().clone())
            },
            |pid| {
                if !dead.contains(&pid) {
                    return Ok(Some(Fate::Lives));
                }
                let mut listed = listed.borrow_mut();
                listed.retain(|other| *other != pid);
                listed.extend(children.get(&pid).into_iter().flatten());
                Ok(Some(Fate::Reap))
            },
        );
        (none, lists)
    }

    #[test]
    fn who_is_left_by_a_child_that_dies_meanwhile_is_not_overlooked() {
        let children = BTreeMap::from([(1, vec![2]), (2, vec![3])]);
        assert!(!judge(vec![1], &children, &[1]).0);
        assert!(!judge(vec![1], &children, &[1, 2]).0);
        assert!(judge(vec![1], &children, &[1, 2, 3]).0);
        assert_eq!(judge(vec![], &children, &[]), (true, 2));
    }

    #[test]
    fn a_child_that_one_list_leaves_out_is_not_overlooked() {
        let mut lists = vec![vec![7], vec![7, 8], vec![7, 8]].into_iter();
        let none = none_lives(
            || lists.next().ok_or_else(|| io::ErrorKind::NotFound.into()),
            |pid| Ok(Some(if pid == 7 { Fate::NotOurs } else { Fate::Lives })),
        );
        assert!(!none);
    }

    #[test]
    fn nothing_is_certain_while_a_child_is_being_started() {
        let starting = Starting::begin();
        assert!(!reap_orphans());
        drop(starting);
    }
}
