//! A real agent, started headless on a generated configuration, which can be killed, stopped and restarted; a failing test prints the end
//! of its log.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Csi, Settings, Trouble, program, wait};

/// Longest time for a stopped agent to end.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for a started agent to become ready; the machine may be building at the same time.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Number of log lines that a failing test prints.
const LOG_TAIL: usize = 120;
/// Environment variable of an agent and its workers with the agent's directory.
const DIRECTORY: &str = "DRIVEBAY_TEST_DIRECTORY";

/// An agent that is running, stopped or killed. Stopped on drop.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    program: PathBuf,
    child: Option<Child>,
}

impl Agent {
    /// Writes the configuration, starts the agent, and waits until Probe answers ready.
    ///
    /// # Errors
    /// It did not become ready: with the end of its log.
    pub async fn start(settings: Settings) -> Result<Self, Trouble> {
        for part in ["state", "run", "kubelet"] {
            fs::create_dir_all(settings.dir.join(part))?;
        }
        fs::write(settings.config(), settings.toml())?;
        let mut agent = Self {
            program: program::agent()?,
            settings,
            child: None,
        };
        agent.launch().await?;
        Ok(agent)
    }

    async fn launch(&mut self) -> Result<(), Trouble> {
        self.child = Some(self.spawn(&self.settings.config(), &self.settings.log_file())?);
        self.until(async |csi| csi.ready().await).await.map(drop)
    }

    /// Starts the agent again after `stop` or `kill9`, and returns as soon as its CSI socket accepts connections; it may not have scanned
    /// any drive.
    ///
    /// # Errors
    /// It did not listen: with the end of its log.
    pub async fn start_unready(&mut self) -> Result<Csi, Trouble> {
        self.child = Some(self.spawn(&self.settings.config(), &self.settings.log_file())?);
        self.until(async |_| true).await
    }

    /// Waits until Probe answers ready.
    ///
    /// # Errors
    /// It does not become ready: with the end of its log.
    pub async fn until_ready(&mut self) -> Result<Csi, Trouble> {
        self.until(async |csi| csi.ready().await).await
    }

    async fn until(&mut self, is: impl AsyncFn(&Csi) -> bool) -> Result<Csi, Trouble> {
        let start = Instant::now();
        loop {
            let csi = Csi::connect(&self.settings.csi_socket()).await;
            if let Ok(csi) = csi
                && is(&csi).await
            {
                return Ok(csi);
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                self.child = None;
                return Err(Trouble::new(format!(
                    "the agent ended with {status} before it was ready\n{}",
                    self.log_tail()
                )));
            }
            if start.elapsed() > READY_LIMIT {
                return Err(Trouble::new(format!(
                    "the agent was not ready within {} s\n{}",
                    READY_LIMIT.as_secs(),
                    self.log_tail()
                )));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts `drivebay-agent run` on any configuration, with its output appended to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, config: &Path, log: &Path) -> Result<Child, Trouble> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = match self.settings.under.is_empty() {
            true => Command::new(&self.program),
            false => {
                let mut under = Command::new(&self.settings.under);
                under.arg(&self.program);
                under
            }
        };
        command
            .args(["run", "--config"])
            .arg(config)
            .env("DRIVEBAY_LOG", &self.settings.log)
            // Inherited by workers, which distinguishes them from those of other agents.
            .env(DIRECTORY, &self.settings.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Own process group: Ctrl-C on the terminal goes to the harness, which then stops the agent in order.
            .process_group(0);
        if self.settings.headless {
            command.arg("--headless");
        }
        command.env("PATH", self.settings.path());
        if let Some(api) = &self.settings.health_api {
            command.args(["--health-api", api]);
        }
        command
            .spawn()
            .map_err(|error| Trouble::doing(format!("starting {}", self.program.display()), &error))
    }

    /// True if a process was started by an agent with these settings.
    pub fn is_of(&self, pid: u32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let ours = format!("{DIRECTORY}={}", self.settings.dir.display());
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == ours.as_bytes())
    }

    /// Returns the settings of the next start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings, and writes the configuration for the next start.
    ///
    /// # Errors
    /// The configuration cannot be written.
    pub fn retune(&mut self, tune: impl FnOnce(&mut Settings)) -> Result<(), Trouble> {
        tune(&mut self.settings);
        Ok(fs::write(self.settings.config(), self.settings.toml())?)
    }

    /// Returns the path of the agent's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Connects to its CSI socket.
    ///
    /// # Errors
    /// Nothing answers there.
    pub async fn csi(&self) -> Result<Csi, Trouble> {
        Csi::connect(&self.settings.csi_socket()).await
    }

    /// Returns its process id.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the agent runs");
        child.kill().expect("killing the agent");
        child.wait().expect("reaping the agent");
    }

    /// Stops it with SIGTERM; returns how long that took, zero if it was not running.
    ///
    /// # Errors
    /// It still runs after `STOP_LIMIT` (it is then killed), or it failed.
    pub fn stop(&mut self) -> Result<Duration, Trouble> {
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        let start = Instant::now();
        terminate(child.id());
        let ended = wait::poll(STOP_LIMIT, || child.try_wait().transpose());
        match ended {
            Some(Ok(status)) if status.success() => Ok(start.elapsed()),
            Some(Ok(status)) => Err(Trouble::new(format!(
                "the agent ended with {status} when stopped\n{}",
                self.log_tail()
            ))),
            Some(Err(error)) => Err(Trouble::doing("waiting for the agent", &error)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Trouble::new(format!(
                    "the agent was not stopped within {} s\n{}",
                    STOP_LIMIT.as_secs(),
                    self.log_tail()
                )))
            }
        }
    }

    /// Starts the agent again after `stop` or `kill9`, with the same configuration, and waits until it is ready.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn start_again(&mut self) -> Result<(), Trouble> {
        self.launch().await
    }

    /// Runs another command of the program on its socket, e.g. `["drives", "-o", "json"]`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run_command(&self, args: &[&str]) -> Result<Output, Trouble> {
        Ok(Command::new(&self.program)
            .args(args)
            .arg("--socket")
            .arg(self.settings.agent_socket())
            .stdin(Stdio::null())
            .output()?)
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.settings.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_TAIL);
        format!(
            "--- {} (last {} lines)\n{}\n---",
            self.settings.log_file().display(),
            lines.len() - from,
            lines[from..].join("\n")
        )
    }

    /// Leaves the agent running after the drop.
    pub fn keep(mut self) -> Settings {
        self.child = None;
        self.settings.clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        if let Err(trouble) = self.stop()
            && !std::thread::panicking()
        {
            eprintln!("{trouble}");
        }
    }
}

/// Sends SIGTERM to a process.
pub fn terminate(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// Sends SIGKILL to a process.
pub fn kill_at_once(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Returns all descendants of a process, as listed by the kernel.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut pids = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok());
            for child in children {
                pids.push(child);
                open.push(child);
            }
        }
    }
    pids
}
