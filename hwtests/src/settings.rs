//! What an agent under test is started with, and the configuration file that says so.

use std::path::{Path, PathBuf};

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where sockets, state and logs go.
    pub dir: PathBuf,
    /// Lines of the one class's selector: which drives it takes.
    pub select: String,
    /// Whether loop devices are drives.
    pub allow_loop: bool,
    /// How drives are carved: "partition", "lvm"; empty: the class does not say.
    pub layout: String,
    /// How the one class chooses drives; empty: the class does not say. Many tests count on two volumes in a row lying on one
    /// drive, and on the rest of the drive being in one piece.
    pub placement: String,
    /// The agent's runtime directory: on tmpfs where the machine is booted again.
    pub runtime: PathBuf,
    /// Node id.
    pub node: String,
    /// Cluster name.
    pub cluster: String,
    /// How long after the host's boot a known drive that is not there may still appear; empty: the configuration does not say.
    pub boot_grace: String,
    /// The quarantine of volumes deleted while their drive was away.
    pub quarantine: String,
    /// How fast deleted volumes are erased.
    pub erase_rate: String,
    /// Where metrics are served: `[metrics] listen`. A socket by default, so that agents side by side have no port in common.
    pub metrics: String,
    /// Further lines for the one class, "demo".
    pub class: String,
    /// Further sections at the end of the file.
    pub more: String,
    /// Further keys of `[controller]`, which a pair writes.
    pub controller_keys: String,
    /// Whether it serves the Controller service too; else the CSI socket has Identity and Node.
    pub headless: bool,
    /// Whether it registers with a kubelet; the kubelet's directory then needs a plugins_registry.
    pub registration: bool,
    /// Value of --health-api; the default when None.
    pub health_api: Option<String>,
    /// What the agent is started under, usually nothing: on this machine a program that executes its arguments; in
    /// the lab a program and arguments (unshare).
    pub under: String,
    /// A directory whose programs come before the system's.
    pub tools: Option<PathBuf>,
    /// The program's log filter (DRIVEBAY_LOG).
    pub log: String,
}

impl Settings {
    /// For a shelf's directory and the pattern of its drives' backing files.
    pub fn new(dir: &Path, pattern: &str) -> Self {
        Self {
            dir: dir.to_owned(),
            runtime: dir.join("run"),
            select: format!("path = [\"{pattern}\"]"),
            allow_loop: true,
            layout: layout(),
            placement: "pack".to_owned(),
            node: "node1".to_owned(),
            // One of its own per shelf: what another shelf left behind on a loop device is not this one's.
            cluster: dir
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .trim_start_matches('.')
                .to_owned(),
            boot_grace: String::new(),
            quarantine: "24h".to_owned(),
            erase_rate: "unlimited".to_owned(),
            metrics: dir.join("metrics.sock").display().to_string(),
            class: String::new(),
            more: String::new(),
            controller_keys: String::new(),
            headless: true,
            registration: false,
            health_api: None,
            under: String::new(),
            tools: None,
            log: "info,drivebay=debug".to_owned(),
        }
    }

    /// The CSI socket.
    pub fn csi_socket(&self) -> PathBuf {
        self.dir.join("csi.sock")
    }

    /// The registration socket, if `registration`.
    pub fn registration_socket(&self) -> PathBuf {
        self.dir
            .join("kubelet/plugins_registry/csi.drivebay.io-reg.sock")
    }

    /// The `Agent` service's socket.
    pub fn agent_socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// Where metrics are served.
    pub fn metrics_socket(&self) -> PathBuf {
        self.dir.join("metrics.sock")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("agent.toml")
    }

    /// The log file.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    /// The configuration, as TOML.
    pub fn toml(&self) -> String {
        let dir = self.dir.display();
        let runtime = self.runtime.display();
        let Self {
            select,
            allow_loop,
            layout,
            placement,
            node,
            cluster,
            boot_grace,
            quarantine,
            erase_rate,
            metrics,
            class,
            more,
            controller_keys: _,
            registration,
            ..
        } = self;
        let said = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{key} = \"{value}\""),
        };
        let (layout, placement) = (said("layout", layout), said("placement", placement));
        let boot_grace = said("boot-grace", boot_grace);
        format!(
            r#"[node]
name = "{node}"
cluster = "{cluster}"

[csi]
socket = "{dir}/csi.sock"

[agent]
socket = "{dir}/agent.sock"
state-dir = "{dir}/state"
runtime-dir = "{runtime}"

[kubelet]
dir = "{dir}/kubelet"
registration = {registration}

[metrics]
listen = "{metrics}"

[discovery]
allow-loop = {allow_loop}
rescan = "5m"
{boot_grace}

[erase]
max-bytes-per-second = "{erase_rate}"
quarantine = "{quarantine}"

[[class]]
name = "demo"
{layout}
{placement}
fs = "ext4"
{class}
[class.select]
{select}
{more}"#
        )
    }
}

/// The layout that the tests are run on: DRIVEBAY_TEST_LAYOUT, else "partition".
pub fn layout() -> String {
    std::env::var("DRIVEBAY_TEST_LAYOUT").unwrap_or_else(|_| "partition".to_owned())
}
