//! Settings of an agent under test, and its configuration file.

use std::path::{Path, PathBuf};

/// Settings of an agent under test.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory for sockets, state and logs.
    pub dir: PathBuf,
    /// Lines of the only class's selector, which determine its drives.
    pub select: String,
    /// True if loop devices are accepted as drives.
    pub allow_loop: bool,
    /// Layout of drives: "partition" or "lvm"; empty: not in the configuration.
    pub layout: String,
    /// Placement of the only class; empty: not in the configuration. Many tests rely on two consecutive volumes being on one drive, and on
    /// the rest of the drive being contiguous.
    pub placement: String,
    /// Runtime directory of the agent; on tmpfs if the machine is rebooted.
    pub runtime: PathBuf,
    /// Node id: `name` in the section `[node]`.
    pub node: String,
    /// Cluster name: `cluster` in the section `[node]`. `Settings::new` makes it unique to the shelf.
    pub cluster: String,
    /// Time after the host's boot in which a known drive may still appear; empty: not in the configuration.
    pub boot_grace: String,
    /// Quarantine of volumes that were deleted while their drive was missing.
    pub quarantine: String,
    /// Rate of erasing deleted volumes.
    pub erase_rate: String,
    /// Address of metrics: `[metrics] listen`. A socket by default, so that agents on one machine share no port.
    pub metrics: String,
    /// Further lines for the only class, "demo".
    pub class: String,
    /// Further sections at the end of the file.
    pub more: String,
    /// Further keys of `[controller]`, which a pair writes.
    pub controller_keys: String,
    /// True if it serves the Controller service too; else the CSI socket has Identity and Node.
    pub headless: bool,
    /// True if it registers with a kubelet; the kubelet's directory then needs a plugins_registry.
    pub registration: bool,
    /// Value of --health-api; the default when None.
    pub health_api: Option<String>,
    /// Command that runs the agent, usually empty: on this machine a program that executes its arguments; in the lab a program and
    /// arguments (unshare).
    pub under: String,
    /// Directory whose programs take precedence over the system's.
    pub tools: Option<PathBuf>,
    /// Log filter of the program (DRIVEBAY_LOG).
    pub log: String,
}

impl Settings {
    /// Returns the PATH of the agent and of its commands.
    pub fn path(&self) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        match &self.tools {
            Some(tools) => format!("{}:{path}", tools.display()),
            None => path,
        }
    }

    /// Returns the settings for a shelf's directory and the pattern of its drives' backing files.
    pub fn new(dir: &Path, pattern: &str) -> Self {
        Self {
            dir: dir.to_owned(),
            runtime: dir.join("run"),
            select: format!("path = [\"{pattern}\"]"),
            allow_loop: true,
            layout: layout(),
            placement: "pack".to_owned(),
            node: "node1".to_owned(),
            // Unique per shelf: drives that another shelf left behind on a loop device belong to another cluster.
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

    /// Returns the CSI socket.
    pub fn csi_socket(&self) -> PathBuf {
        self.dir.join("csi.sock")
    }

    /// Returns the registration socket, if `registration`.
    pub fn registration_socket(&self) -> PathBuf {
        self.dir
            .join("kubelet/plugins_registry/csi.drivebay.io-reg.sock")
    }

    /// Returns the socket of the `Agent` service.
    pub fn agent_socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// Returns the socket of metrics.
    pub fn metrics_socket(&self) -> PathBuf {
        self.dir.join("metrics.sock")
    }

    /// Returns the path of the configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("agent.toml")
    }

    /// Returns the path of the log file.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    /// Returns the configuration, as TOML.
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
        let entry = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{key} = \"{value}\""),
        };
        let (layout, placement) = (entry("layout", layout), entry("placement", placement));
        let boot_grace = entry("boot-grace", boot_grace);
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

/// Returns the layout of this run: DRIVEBAY_TEST_LAYOUT, else "partition".
pub fn layout() -> String {
    std::env::var("DRIVEBAY_TEST_LAYOUT").unwrap_or_else(|_| "partition".to_owned())
}
