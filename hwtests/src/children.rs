//! Child processes that are killed when this process ends, also by SIGKILL or Ctrl-C.
//!
//! The kernel ties a parent-death signal to the *thread* that started the process, and a test's thread ends with the test. So one thread
//! that lives as long as this process starts all of them.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use crate::{Trouble, tools, wait};

/// Longest time for a killed process to end.
const KILL_LIMIT: Duration = Duration::from_secs(10);

type Job = (Command, mpsc::Sender<io::Result<Child>>);

static SPAWNER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, inbox) = mpsc::channel::<Job>();
    thread::Builder::new()
        .name("spawner".to_owned())
        .spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        })
        .expect("starting a thread");
    Mutex::new(jobs)
});

/// Returns a command that, if started by [`start`], is killed when this process ends.
///
/// # Errors
/// The program, or setpriv, is not installed.
pub fn mortal(program: &str) -> Result<Command, Trouble> {
    let missing = |what: &str| {
        Trouble::new(format!(
            "{what} is not installed; hwtests/all-tests and hwtests/lab install what they need"
        ))
    };
    let program = tools::find(program).ok_or_else(|| missing(program))?;
    let mut command = Command::new(tools::find("setpriv").ok_or_else(|| missing("setpriv"))?);
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        // Own process group: Ctrl-C on the terminal goes to the harness, and the death signal follows.
        .process_group(0);
    Ok(command)
}

/// Starts a command from a thread that lives as long as this process.
///
/// # Errors
/// It cannot be started.
pub fn start(command: Command) -> io::Result<Child> {
    let (reply, answer) = mpsc::channel();
    let jobs = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    jobs.send((command, reply)).map_err(io::Error::other)?;
    drop(jobs);
    answer.recv().map_err(io::Error::other)?
}

/// A background process; killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program with its output appended to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start<S: AsRef<OsStr>>(program: &str, args: &[S], log: &Path) -> Result<Self, Trouble> {
        let mut command = mortal(program)?;
        command.args(args);
        Self::of(command, log)
    }

    /// Starts a command of [`mortal`] with its output appended to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn of(mut command: Command, log: &Path) -> Result<Self, Trouble> {
        let log = File::options().create(true).append(true).open(log)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let what = format!("starting {command:?}");
        let child = start(command).map_err(|error| Trouble::doing(what, &error))?;
        Ok(Self { child })
    }

    /// Returns the exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        if wait::poll(KILL_LIMIT, || self.ended()).is_none() {
            eprintln!("process {} cannot be killed", self.pid());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
