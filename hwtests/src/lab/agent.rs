//! The agent in a guest: a transient systemd unit with a generated configuration, whose sockets are forwarded to this machine.

use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Guest, Machine, Ran,
    guest::quote,
    image::{in_guest, target_dir},
    service,
};
use crate::{Csi, Settings, Trouble};

/// Name of the unit.
pub const UNIT: &str = "drivebay-agent";
/// Path of the program in the guest.
pub const PROGRAM: &str = "/usr/local/bin/drivebay-agent";
/// Directory of its sockets and state in the guest; on the root disk, so that it survives a reboot.
pub const DIR: &str = "/var/lib/drivebay-lab";

/// An emulated machine is five to ten times slower than a real one.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// Number of journal lines that a failing start shows.
const LOG_TAIL: usize = 60;

/// An agent in a guest; it ends with its machine.
#[derive(Debug)]
pub struct LabAgent {
    guest: Guest,
    settings: Settings,
    csi_socket: PathBuf,
    agent_socket: PathBuf,
    is_installed: bool,
}

/// Default settings of an agent in a guest: its class selects every drive; the agent itself rejects the guest's root disk.
pub fn settings(node: &str, layout: &str) -> Settings {
    Settings {
        node: node.to_owned(),
        cluster: "lab".to_owned(),
        select: "min-size = \"1MiB\"".to_owned(),
        allow_loop: false,
        layout: layout.to_owned(),
        // On tmpfs: a power cut can tear other files, also the state files of workers.
        runtime: "/run/drivebay-lab".into(),
        // Guests have booted recently, and tests do not wait for drives that they removed.
        boot_grace: "0s".to_owned(),
        ..Settings::new(Path::new(DIR), "")
    }
}

/// Returns the path of the release agent (or DRIVEBAY_AGENT) in the guest.
///
/// # Errors
/// It is not built, or not in the target directory.
pub fn program_in_guest() -> Result<PathBuf, Trouble> {
    let program = match env::var_os("DRIVEBAY_AGENT") {
        Some(named) => PathBuf::from(named),
        None => target_dir()?.join("release/drivebay-agent"),
    };
    if !program.is_file() {
        return Err(Trouble::new(format!(
            "no agent at {}: run cargo build --release --locked -p drivebay-agent (hwtests/lab test does)",
            program.display()
        )));
    }
    in_guest(&program)
}

/// Copies the agent's program into the guest; programs run slowly from the share.
///
/// # Errors
/// It is not built, or cannot be copied.
pub fn install(guest: &Guest) -> Result<(), Trouble> {
    let from = quote(&program_in_guest()?.display().to_string());
    let script = format!(
        "cmp -s {from} {PROGRAM} || {{ cp {from} {PROGRAM}.new && sync {PROGRAM}.new && mv {PROGRAM}.new {PROGRAM}; }}"
    );
    let ran = guest.try_run(&script, READY_LIMIT)?;
    if ran.ok() {
        return Ok(());
    }
    Err(Trouble::new(format!(
        "copying the agent into the guest: {}",
        ran.stderr
    )))
}

impl LabAgent {
    /// Installs the program, writes the configuration, starts the agent, and waits until Probe answers ready.
    ///
    /// # Errors
    /// It did not become ready: with the end of its log.
    pub async fn start(machine: &Machine, settings: Settings) -> Result<Self, Trouble> {
        let mut agent = Self::of(machine, settings, false);
        install(&agent.guest)?;
        agent.configure();
        agent.start_again().await?;
        Ok(agent)
    }

    /// Like `start`, as the service of this repository's unit file. Sets the directory in the settings, which has its sockets, to the
    /// unit's.
    ///
    /// # Errors
    /// It did not become ready: with the end of its log.
    pub async fn installed(machine: &Machine, mut settings: Settings) -> Result<Self, Trouble> {
        settings.dir = PathBuf::from(service::RUN_DIR);
        let mut agent = Self::of(machine, settings, true);
        service::install(&agent.guest, &agent.settings)?;
        agent.start_again().await?;
        Ok(agent)
    }

    /// Returns an agent that a test has installed and started as a service, as documented; waits until it is ready.
    ///
    /// # Errors
    /// It did not become ready: with the end of its log.
    pub async fn attach(machine: &Machine) -> Result<Self, Trouble> {
        let mut settings = settings(machine.node(), "lvm");
        settings.dir = PathBuf::from(service::RUN_DIR);
        let agent = Self::of(machine, settings, true);
        agent.forward_sockets();
        agent.ready().await?;
        Ok(agent)
    }

    fn of(machine: &Machine, settings: Settings, is_installed: bool) -> Self {
        let run = machine.run_dir();
        Self {
            guest: machine.guest().clone(),
            settings,
            csi_socket: run.socket("csi.sock"),
            agent_socket: run.socket("agent.sock"),
            is_installed,
        }
    }

    /// Writes the configuration file with the current settings.
    pub fn configure(&self) {
        if self.is_installed {
            return service::configure(&self.guest, &self.settings);
        }
        let dir = self.settings.dir.display();
        self.guest
            .run(&format!("mkdir -p {dir}/state {dir}/run {dir}/kubelet"));
        let toml = self.settings.toml();
        self.guest.write(&self.settings.config(), toml.as_bytes());
    }

    /// Starts the agent again after `stop`, `kill9` or a reboot of its machine.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn start_again(&mut self) -> Result<(), Trouble> {
        if self.is_installed {
            let start = format!("systemctl start {UNIT}");
            let ran = self.guest.try_run(&start, READY_LIMIT)?;
            if !ran.ok() {
                return Err(self.trouble(&ran.stderr));
            }
        } else {
            self.run_transient();
        }
        self.forward_sockets();
        self.ready().await
    }

    /// Forwards its sockets to this machine, also after a reboot after which it started automatically.
    pub fn forward_sockets(&self) {
        // A new connection has no forwarding; for an existing one a second is harmless.
        let _ = self.forward(&self.csi_socket, &self.settings.csi_socket());
        let _ = self.forward(&self.agent_socket, &self.settings.agent_socket());
    }

    fn run_transient(&self) {
        let log = quote(&format!("DRIVEBAY_LOG={}", self.settings.log));
        let config = self.settings.config();
        let mut script = format!(
            "systemd-run --quiet --collect --unit={UNIT} --property=KillMode=mixed \
             --property=TimeoutStopSec=20 --setenv={log} \
             --setenv=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
             {} {PROGRAM} run --headless --config {}",
            self.settings.under,
            config.display()
        );
        if let Some(api) = &self.settings.health_api {
            script.push_str(&format!(" --health-api {}", quote(api)));
        }
        self.guest.run(&script);
    }

    fn forward(&self, here: &Path, there: &Path) -> Result<(), Trouble> {
        self.guest.forward(here, there).map(drop)
    }

    async fn ready(&self) -> Result<(), Trouble> {
        let (start, mut checked) = (Instant::now(), Instant::now());
        loop {
            let csi = Csi::connect(&self.csi_socket).await;
            if let Ok(csi) = csi
                && csi.ready().await
            {
                return Ok(());
            }
            if checked.elapsed() > Duration::from_secs(3) {
                checked = Instant::now();
                if !self.runs() {
                    return Err(self.trouble("the agent ended before it was ready"));
                }
            }
            if start.elapsed() > READY_LIMIT {
                return Err(self.trouble(&format!(
                    "the agent was not ready within {} s",
                    READY_LIMIT.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn trouble(&self, what: &str) -> Trouble {
        let log = self.log();
        let tail = log[log.len().saturating_sub(LOG_TAIL)..].join("\n");
        Trouble::new(format!("{what}\n--- the end of its log\n{tail}\n---"))
    }

    /// True if its unit is active.
    pub fn runs(&self) -> bool {
        self.guest.ran(&format!("systemctl is-active {UNIT}")).ok()
    }

    /// Returns the settings; `configure` and `start_again` apply a change.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Returns the settings; paths are the guest's.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the forwarded socket of the `Agent` service.
    pub fn agent_socket(&self) -> &Path {
        &self.agent_socket
    }

    /// Connects to its CSI socket, with a client that creates the kubelet's directories in the guest.
    ///
    /// # Errors
    /// Nothing answers there.
    pub async fn csi(&self) -> Result<Csi, Trouble> {
        let guest = self.guest.clone();
        let csi = Csi::connect(&self.csi_socket).await?;
        Ok(csi.with_dirs(move |dir| guest.make_dir(dir)))
    }

    /// Returns its process id in the guest.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        let output = self
            .guest
            .run(&format!("systemctl show --property=MainPID --value {UNIT}"));
        let pid = output.trim().parse().unwrap_or(0);
        assert_ne!(pid, 0, "the agent does not run");
        pid
    }

    /// Stops it in order; returns how long that took, including the connection to the guest.
    ///
    /// # Panics
    /// When it cannot be stopped.
    pub fn stop(&mut self) -> Duration {
        let start = Instant::now();
        self.guest.run(&format!("systemctl stop {UNIT}"));
        start.elapsed()
    }

    /// Kills it with SIGKILL; systemd then ends its workers.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill9(&mut self) {
        self.guest.run(&format!(
            "systemctl kill --kill-who=main --signal=KILL {UNIT}"
        ));
        self.guest
            .wait_until(READY_LIMIT, "the killed agent is gone", |_| {
                (!self.runs()).then_some(())
            });
    }

    /// Runs another command of the program on its socket, e.g. `["drives", "-o", "json"]`.
    pub fn run_command(&self, args: &[&str]) -> Ran {
        let args: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
        let socket = self.settings.agent_socket();
        self.guest.ran(&format!(
            "{PROGRAM} {} --socket {}",
            args.join(" "),
            socket.display()
        ))
    }

    /// Returns its journal since the guest booted.
    pub fn log(&self) -> Vec<String> {
        self.guest.journal(UNIT)
    }
}
