//! Counts the processes that an agent starts, by tracing it and its descendants with strace.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Trouble, agent, memory};

/// System calls that start programs and processes.
const STARTS: &str = "execve,execveat,?fork,?vfork,clone,clone3";

/// System calls traced for reads of mounts: all, since not every strace knows the names or accepts the numbers of statmount(2) and
/// listmount(2), but each shows them.
const MOUNTS: &str = "all";

/// A running strace of processes, with the kind of calls that its `watch` function counts. `finish` ends it.
#[derive(Debug)]
pub struct Starts {
    strace: Child,
    record: PathBuf,
    counts: fn(&str) -> bool,
}

impl Starts {
    /// Counts the starts of a process and all its present and future descendants.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.push(pid);
        Self::watch_these(&pids, dir, STARTS, is_start)
    }

    /// Like `watch`, for the process, the one that its workers are forked from, and their future descendants only: strace waits forever
    /// for a process that hangs on a drive.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_only(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        let mut pids = agent::descendants(pid);
        pids.retain(|pid| memory::is_server(*pid));
        pids.push(pid);
        Self::watch_these(&pids, dir, STARTS, is_start)
    }

    /// Counts the calls of a process and its future descendants that mark filesystems for error events.
    ///
    /// # Errors
    /// strace cannot attach.
    pub fn watch_marks(pid: u32, dir: &Path) -> Result<Self, Trouble> {
        Self::watch_these(&[pid], dir, "fanotify_mark", |line| {
            line.contains("fanotify_mark(")
        })
    }

    /// Counts the calls of a process and all its present and future descendants that read the host's mounts: statmount(2) for one,
    /// listmount(2) for the ids of all, and reads of mountinfo.
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

    /// Records opened files and flushes, with their paths, of a process and all its present and future descendants.
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

    /// Counts the lists of children that a process reads.
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
        // Counting begins when strace has attached to each process.
        let mut stderr = String::new();
        let mut attached = 0;
        let mut lines = BufReader::new(
            strace
                .stderr
                .take()
                .ok_or_else(|| Trouble::new("strace has no stderr"))?,
        );
        while attached < pids.len() {
            let from = stderr.len();
            if lines.read_line(&mut stderr)? == 0 {
                return Err(Trouble::new(format!("strace did not attach: {stderr}")));
            }
            let line = &stderr[from..];
            // A worker that ended in between cannot start anything any more.
            if line.contains(" attached") || line.contains("No such process") {
                attached += 1;
            }
        }
        // Further lines (threads that start and end) are ignored; the pipe is drained so that strace never blocks.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(Self {
            strace,
            record,
            counts,
        })
    }

    /// Ends the count; returns one line of strace per counted call.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn finish(mut self) -> Result<Vec<String>, Trouble> {
        agent::terminate(self.strace.id());
        self.strace.wait()?;
        self.so_far()
    }

    /// Returns the counted calls so far. With a process that hangs the count cannot be ended, since strace cannot detach.
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

/// True for a line with a call that reads one mount.
pub fn is_statmount(line: &str) -> bool {
    line.contains("statmount(") || line.contains("syscall_0x1c9(")
}

/// True for a line with a call that lists all mounts.
pub fn is_listmount(line: &str) -> bool {
    line.contains("listmount(") || line.contains("syscall_0x1ca(")
}

/// True for a line that starts a program or a process, not a thread.
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
        let lines = starts.finish().unwrap();
        drop(input);
        shell.wait().unwrap();
        assert!(
            lines.iter().any(|line| line.contains("/bin/true")),
            "{lines:?}"
        );
    }
}
