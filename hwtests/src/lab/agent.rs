//! The agent in a guest: a transient systemd unit on a generated configuration, whose sockets
//! answer on this machine.

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

/// The unit's name.
pub const UNIT: &str = "drivebay-agent";
/// Where the program is in the guest.
pub const PROGRAM: &str = "/usr/local/bin/drivebay-agent";
/// Where its sockets and state are in the guest; on the root disk, so that it survives a reboot.
pub const DIR: &str = "/var/lib/drivebay-lab";

/// An emulated machine is five to ten times slower.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// Lines of its journal that a failing start shows.
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

/// What an agent in a guest is started with, if a test does not say otherwise: every drive is
/// its class's; the guest's own is refused by the agent itself.
pub fn settings(node: &str, layout: &str) -> Settings {
    Settings {
        node: node.to_owned(),
        cluster: "lab".to_owned(),
        select: "min-size = \"1MiB\"".to_owned(),
        allow_loop: false,
        layout: layout.to_owned(),
        // A power cut tears what is not on tmpfs, also the notes of workers.
        runtime: "/run/drivebay-lab".into(),
        // Guests are young, and tests do not wait for a drive that they took away.
        boot_grace: "0s".to_owned(),
        ..Settings::new(Path::new(DIR), "")
    }
}

/// The release agent (or DRIVEBAY_AGENT), as the guest sees it.
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

/// Puts the agent's program into the guest; what runs from the share runs slowly.
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
    /// Installs the program, writes the configuration, starts the agent, and waits until Probe says ready.
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

    /// As `start`, as the service that this repository's unit file makes of it. Its sockets are in the directory of the
    /// settings, which is set to the unit's.
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

    /// One that a test has installed as the documents say and started as a service: its sockets, once it is ready.
    ///
    /// # Errors
    /// It did not become ready: with the end of its log.
    pub async fn found(machine: &Machine) -> Result<Self, Trouble> {
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

    /// Writes the configuration file as the settings now are.
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

    /// Starts it again, after `stop`, `kill9` or a reboot of its machine.
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

    /// Makes its sockets answer on this machine, as after a reboot that it came up with by itself.
    pub fn forward_sockets(&self) {
        // A new connection has none; an old one takes it once more.
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
        let (start, mut looked) = (Instant::now(), Instant::now());
        loop {
            let csi = Csi::connect(&self.csi_socket).await;
            if let Ok(csi) = csi
                && csi.ready().await
            {
                return Ok(());
            }
            if looked.elapsed() > Duration::from_secs(3) {
                looked = Instant::now();
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

    /// Whether its unit is active.
    pub fn runs(&self) -> bool {
        self.guest.ran(&format!("systemctl is-active {UNIT}")).ok()
    }

    /// What it was started with; `configure` and `start_again` make a change true.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// What it was started with; paths are the guest's.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The `Agent` service's socket, on this machine.
    pub fn agent_socket(&self) -> &Path {
        &self.agent_socket
    }

    /// A client for its CSI socket, which makes the kubelet's directories in the guest.
    ///
    /// # Errors
    /// Nothing answers there.
    pub async fn csi(&self) -> Result<Csi, Trouble> {
        let guest = self.guest.clone();
        let csi = Csi::connect(&self.csi_socket).await?;
        Ok(csi.with_dirs(move |dir| guest.make_dir(dir)))
    }

    /// Its process id in the guest.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        let said = self
            .guest
            .run(&format!("systemctl show --property=MainPID --value {UNIT}"));
        let pid = said.trim().parse().unwrap_or(0);
        assert_ne!(pid, 0, "the agent does not run");
        pid
    }

    /// Stops it in order; answers with how long that took, with the way there and back.
    ///
    /// # Panics
    /// When it cannot be stopped.
    pub fn stop(&mut self) -> Duration {
        let start = Instant::now();
        self.guest.run(&format!("systemctl stop {UNIT}"));
        start.elapsed()
    }

    /// Kills it without a chance to say goodbye; systemd then ends its workers.
    ///
    /// # Panics
    /// When it is not gone then.
    pub fn kill9(&mut self) {
        self.guest.run(&format!(
            "systemctl kill --kill-who=main --signal=KILL {UNIT}"
        ));
        self.guest
            .wait_until(READY_LIMIT, "the killed agent is gone", |_| {
                (!self.runs()).then_some(())
            });
    }

    /// Runs one of its other commands against its socket, e.g. `["drives", "-o", "json"]`.
    pub fn ask(&self, args: &[&str]) -> Ran {
        let args: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
        let socket = self.settings.agent_socket();
        self.guest.ran(&format!(
            "{PROGRAM} {} --socket {}",
            args.join(" "),
            socket.display()
        ))
    }

    /// Everything it has written since the guest booted.
    pub fn log(&self) -> Vec<String> {
        self.guest.journal(UNIT)
    }
}
