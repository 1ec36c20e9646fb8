//! What an agent under test is started with, and the configuration file that says so.

use std::path::{Path, PathBuf};

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where sockets, state and logs go.
    pub dir: PathBuf,
    /// Pattern of the drives' backing files.
    pub pattern: String,
    /// Node id.
    pub node: String,
    /// Further lines for the one class, "demo".
    pub class: String,
    /// Further sections at the end of the file.
    pub more: String,
    /// Value of --health-api; the default when None.
    pub health_api: Option<String>,
    /// The program's log filter (DRIVEBAY_LOG).
    pub log: String,
}

impl Settings {
    /// For a shelf's directory and pattern.
    pub fn new(dir: &Path, pattern: &str) -> Self {
        Self {
            dir: dir.to_owned(),
            pattern: pattern.to_owned(),
            node: "node1".to_owned(),
            class: String::new(),
            more: String::new(),
            health_api: None,
            log: "info,drivebay_agent=debug,drivebay_controller=debug".to_owned(),
        }
    }

    /// The CSI socket.
    pub fn csi_socket(&self) -> PathBuf {
        self.dir.join("csi.sock")
    }

    /// The `Agent` service's socket.
    pub fn agent_socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
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
        let Self {
            pattern,
            node,
            class,
            more,
            ..
        } = self;
        format!(
            r#"[node]
name = "{node}"
cluster = "demo"

[csi]
socket = "{dir}/csi.sock"

[agent]
socket = "{dir}/agent.sock"
state-dir = "{dir}/state"
runtime-dir = "{dir}/run"

[kubelet]
dir = "{dir}/kubelet"
registration = false

[discovery]
allow-loop = true
rescan = "5m"

[erase]
max-bytes-per-second = "unlimited"

[[class]]
name = "demo"
layout = "partition"
fs = "ext4"
{class}
[class.select]
path = ["{pattern}"]
{more}"#
        )
    }
}
