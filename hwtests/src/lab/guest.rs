//! The guest as a test sees it: commands, files, the journal; each with a deadline.

use std::{
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::Child,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use super::ssh::Ssh;
pub use super::ssh::{Ran, quote};
use crate::{Trouble, wait};

/// A command that a test gives no deadline has this one.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// A file of some hundred MiB is copied within this.
const COPY_LIMIT: Duration = Duration::from_secs(300);

/// A way into a guest, which outlives its reboots; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    ssh: Arc<Mutex<Option<Arc<Ssh>>>>,
}

impl Guest {
    pub(super) fn connected(&self, ssh: Option<Ssh>) {
        *self.ssh.lock().unwrap_or_else(PoisonError::into_inner) = ssh.map(Arc::new);
    }

    fn ssh(&self) -> Result<Arc<Ssh>, Trouble> {
        let ssh = self.ssh.lock().unwrap_or_else(PoisonError::into_inner);
        ssh.clone()
            .ok_or_else(|| Trouble::new("the guest does not run"))
    }

    /// Runs a shell command; how it ended is the answer.
    ///
    /// # Errors
    /// The guest is gone, or the deadline passed (the command is then killed): with the command and where the logs are.
    pub fn try_run(&self, script: &str, limit: Duration) -> Result<Ran, Trouble> {
        Ok(self.ssh()?.run(script, &[], limit)?.0)
    }

    /// Runs a shell command that may fail.
    ///
    /// # Panics
    /// When the guest is gone, or it takes longer than `COMMAND_LIMIT`.
    pub fn ran(&self, script: &str) -> Ran {
        self.try_run(script, COMMAND_LIMIT).unwrap()
    }

    /// Runs a shell command that must succeed; answers with what it printed.
    ///
    /// # Panics
    /// When it fails, with its exit code, stdout and stderr.
    pub fn run(&self, script: &str) -> String {
        let ran = self.ran(script);
        assert!(
            ran.ok(),
            "in the guest: {script}\n  ended with {}\n  stdout: {}\n  stderr: {}",
            ran.code,
            ran.stdout.trim_end(),
            ran.stderr.trim_end()
        );
        ran.stdout
    }

    /// As `run`, and fails also if a command of a pipe other than the last one fails. Uses bash: the shell of `run` has no such option.
    ///
    /// # Panics
    /// If the script fails, with its output.
    pub fn run_pipes(&self, script: &str) -> String {
        self.run(&format!("bash -o pipefail -c {}", quote(script)))
    }

    /// Writes a file, durably, with its directories.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: &Path, contents: &[u8]) {
        let to = quote(&path.display().to_string());
        let script = format!("mkdir -p \"$(dirname {to})\" && cat >{to} && sync {to}");
        let done = self
            .ssh()
            .and_then(|ssh| ssh.run(&script, contents, COPY_LIMIT));
        let (ran, _) = done.unwrap();
        assert!(
            ran.ok(),
            "writing {} in the guest: {}",
            path.display(),
            ran.stderr
        );
    }

    /// Reads a file.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(&self, path: &Path) -> Vec<u8> {
        let script = format!("cat {}", quote(&path.display().to_string()));
        let done = self.ssh().and_then(|ssh| ssh.run(&script, &[], COPY_LIMIT));
        let (ran, bytes) = done.unwrap();
        assert!(
            ran.ok(),
            "reading {} in the guest: {}",
            path.display(),
            ran.stderr
        );
        bytes
    }

    /// Copies a file of this machine in, with its mode.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy_in(&self, here: &Path, there: &Path) {
        use std::os::unix::fs::PermissionsExt;
        let read = || io::Result::Ok((std::fs::read(here)?, std::fs::metadata(here)?));
        let (bytes, meta) = read().unwrap_or_else(|error| panic!("{}: {error}", here.display()));
        self.write(there, &bytes);
        let mode = meta.permissions().mode() & 0o7777;
        self.run(&format!(
            "chmod {mode:o} {}",
            quote(&there.display().to_string())
        ));
    }

    /// Copies a file of the guest out.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy_out(&self, there: &Path, here: &Path) {
        let bytes = self.read(there);
        std::fs::write(here, bytes).unwrap_or_else(|error| panic!("{}: {error}", here.display()));
    }

    /// Looks in the guest until there is an answer.
    ///
    /// # Panics
    /// When the deadline passes, saying what was waited for.
    pub fn wait_until<T>(
        &self,
        limit: Duration,
        what: &str,
        mut check: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        wait::until(limit, what, || check(self))
    }

    /// Returns the lines that a unit has logged since the guest booted.
    ///
    /// # Panics
    /// When the journal cannot be read.
    pub fn journal(&self, unit: &str) -> Vec<String> {
        let unit = quote(unit);
        let all = self.run(&format!(
            "journalctl --sync; journalctl --boot --quiet --no-pager --output=cat --unit={unit}"
        ));
        all.lines().map(str::to_owned).collect()
    }

    /// Follows what a unit says from now on.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn follow(&self, unit: &str) -> Result<Lines, Trouble> {
        let unit = quote(unit);
        self.stream(&format!(
            "exec journalctl --follow --lines=0 --output=cat --unit={unit}"
        ))
    }

    /// Starts a shell command whose lines (of both outputs) are read as they come. It is hung up
    /// on, but not killed, when the lines are dropped.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn stream(&self, script: &str) -> Result<Lines, Trouble> {
        let mut child = self.ssh()?.spawn(&format!("exec 2>&1; {script}"))?;
        let (send, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("its output is a pipe");
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Lines { child, lines })
    }

    /// A shell on this terminal, until it ends.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn interactive(&self) -> Result<(), Trouble> {
        self.ssh()?.interactive()
    }

    /// Makes a socket of the guest answer on this machine.
    ///
    /// # Errors
    /// ssh says why not.
    pub fn forward(&self, here: &Path, there: &Path) -> Result<PathBuf, Trouble> {
        self.ssh()?.forward(here, there)?;
        Ok(here.to_owned())
    }

    /// Makes a directory, with its parents.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let script = format!("mkdir -p {}", quote(&dir.display().to_string()));
        let ran = self
            .try_run(&script, COMMAND_LIMIT)
            .map_err(io::Error::other)?;
        if ran.ok() {
            return Ok(());
        }
        Err(io::Error::other(ran.stderr))
    }
}

/// Lines of a running command.
#[derive(Debug)]
pub struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    /// The next line; None when none came in time, or the command has ended.
    pub fn next(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The next line that holds a text.
    ///
    /// # Panics
    /// When none comes within the deadline.
    pub fn wait_for(&self, text: &str, limit: Duration) -> String {
        let end = std::time::Instant::now() + limit;
        let mut lines = Vec::new();
        while let Some(line) = self.next(end.saturating_duration_since(std::time::Instant::now())) {
            if line.contains(text) {
                return line;
            }
            lines.push(line);
        }
        panic!(
            "no line with {text:?} within {} s, but: {lines:#?}",
            limit.as_secs()
        );
    }

    /// The command's exit code, once its lines have ended.
    ///
    /// # Errors
    /// It still runs after the deadline.
    pub fn code(&mut self, limit: Duration) -> Result<i32, Trouble> {
        match wait::poll(limit, || self.child.try_wait().transpose()) {
            Some(status) => Ok(status?.code().unwrap_or(-1)),
            None => Err(Trouble::new(format!(
                "it still runs after {} s",
                limit.as_secs()
            ))),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
