//! Counting the processes that an agent starts: the kernel's own record, through strace,
//! of the agent and everything below it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Trouble, agent, memory};

/// The calls that start programs and processes.
const STARTS: &str = "execve,execveat,?fork,?vfork,clone,clone3";

/// For statmount(2), listmount(2), and what tells the same on older kernels: not every strace knows their names or takes their
/// numbers, but all show them.
const MOUNTS: &str = "all";

/// A running count.
#[derive(Debug)]
pub struct Starts {
    strace: Child,
    record: PathBuf,
    counts: fn(&str) -> bool,
}

impl Starts {
    /// Begins to count the starts of a process and all its present and future descendants.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.push(pid);
        Self::watch_these(&pids, dir, STARTS, is_start)
    }

    /// As `watch`, of the process, the one that its workers are forked from, and their future descendants only: strace waits for
    /// ever for one that hangs in a drive.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_only(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.retain(|pid| memory::is_server(*pid));
        pids.push(pid);
        Self::watch_these(&pids, dir, STARTS, is_start)
    }

    /// Of the process and its future descendants: counts the calls by which filesystems are marked for their error events.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_marks(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        Self::watch_these(&[pid], dir, "fanotify_mark", |line| {
            line.contains("fanotify_mark(")
        })
    }

    /// Of a process and all its present and future descendants: counts the calls that tell the mounts of the host. statmount(2) tells
    /// one, listmount(2) the ids of all.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_mounts(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.push(pid);
        Self::watch_these(&pids, dir, MOUNTS, |line| {
            is_statmount(line) || is_listmount(line) || line.contains("mountinfo")
        })
    }

    /// Of a process and all its present and future descendants: counts files opened and flushes, with their paths.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_files(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.push(pid);
        Self::watch_these(&pids, dir, "openat,fsync,fdatasync", |line| {
            ["openat(", "fsync(", "fdatasync("]
                .iter()
                .any(|call| line.contains(call))
        })
    }

    /// Of the process alone: counts the lists of children that it reads.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_searches(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        Self::watch_these(&[pid], dir, "openat", |line| line.contains("/children\""))
    }

    fn watch_these(
        pids: &[u32],
        dir: &Path,
        calls: &str,
        counts: fn(&str) -> bool,
    ) -> Result<Self, Trouble> {
        let record = dir.join("starts.strace");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-y", "-e", &format!("trace={calls}")])
            .args(["-e", "signal=none", "-o"])
            .arg(&record);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let mut strace = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // Counting begins when strace says of each process that it is attached.
        let mut said = String::new();
        let mut attached = 0;
        let mut lines = BufReader::new(
            strace
                .stderr
                .take()
                .ok_or_else(|| Trouble::new("strace has no stderr"))?,
        );
        while attached < pids.len() {
            let from = said.len();
            if lines.read_line(&mut said)? == 0 {
                return Err(Trouble::new(format!("strace did not attach: {said}")));
            }
            let line = &said[from..];
            // A worker that went in between cannot start anything any more.
            if line.contains(" attached") || line.contains("No such process") {
                attached += 1;
            }
        }
        // Later lines (threads coming and going) are not read; the pipe is drained so that strace never waits.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(Self {
            strace,
            record,
            counts,
        })
    }

    /// Ends the count; answers with one line per process started, in the kernel's words.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn finish(mut self) -> Result<Vec<String>, Trouble> {
        agent::terminate(self.strace.id());
        self.strace.wait()?;
        self.so_far()
    }

    /// What was started until now. A process that hangs cannot be let go, so the count cannot be ended then.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn so_far(&self) -> Result<Vec<String>, Trouble> {
        let record = fs::read_to_string(&self.record)?;
        Ok(record
            .lines()
            .filter(|line| (self.counts)(line))
            .map(str::to_owned)
            .collect())
    }
}

/// Whether a line is of a call that tells one mount.
pub fn is_statmount(line: &str) -> bool {
    line.contains("statmount(") || line.contains("syscall_0x1c9(")
}

/// Whether a line is of a call that lists all mounts.
pub fn is_listmount(line: &str) -> bool {
    line.contains("listmount(") || line.contains("syscall_0x1ca(")
}

/// A new program or a new process; a new thread is neither.
fn is_start(line: &str) -> bool {
    let call = ["execve(", "execveat(", "fork(", "clone(", "clone3("]
        .iter()
        .any(|call| line.contains(call));
    call && !line.contains("CLONE_THREAD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_not_processes() {
        assert!(!is_start(
            "12 clone3({flags=CLONE_VM|CLONE_THREAD|CLONE_SYSVSEM, ...}, 88) = 13"
        ));
        assert!(is_start(
            "12 clone3({flags=CLONE_VM|CLONE_VFORK, ...}, 88) = 13"
        ));
        assert!(is_start("12 vfork() = 13"));
        assert!(is_start(
            "13 execve(\"/sbin/mkfs.ext4\", [...], 0x7 /* 9 vars */) = 0"
        ));
        assert!(!is_start("13 +++ exited with 0 +++"));
    }

    #[test]
    fn a_start_of_a_watched_process_is_seen() {
        crate::need!(root, tool "strace");
        let dir = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", "read go; /bin/true; read go"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let starts = Starts::watch(shell.id(), dir.path()).unwrap();
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"\n").unwrap();
        let record = dir.path().join("starts.strace");
        crate::wait::until(
            std::time::Duration::from_secs(10),
            "the shell ran true",
            || {
                fs::read_to_string(&record)
                    .unwrap_or_default()
                    .contains("+++ exited")
                    .then_some(())
            },
        );
        let seen = starts.finish().unwrap();
        drop(input);
        shell.wait().unwrap();
        assert!(
            seen.iter().any(|line| line.contains("/bin/true")),
            "{seen:?}"
        );
    }
}
