//! The agent's configuration, checked.
//!
//! In two phases: `raw` reads the file key by key (`section`), `check` turns it into a `Config` or
//! a list of every mistake in it. Nothing here opens a socket or touches a drive.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{model::ClassConfig, sys::statefile};

pub mod check;
pub mod checks;
pub mod classes;
pub mod controller;
pub mod health;
pub mod node_id;
pub mod raw;
pub mod section;
pub mod target;
pub mod units;

pub use check::HostFacts;
pub use checks::ChecksConfig;
pub use controller::ControllerConfig;
pub use drivebay_common::metrics::Listen;
pub use drivebay_controller::HealthApi;
pub use health::{DeviceOverride, HealthConfig};
pub use section::Problem;
pub use target::Target;

/// Where the config is looked for when nobody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/drivebay/drivebay.toml";
/// Where the command line looks for the agent when nobody says otherwise.
pub const DEFAULT_AGENT_SOCKET: &str = "/run/drivebay/agent.sock";
/// A config larger than this (bytes) is not one.
const MAX_FILE: u64 = 1024 * 1024;

/// Everything the agent needs to know, after checking.
#[derive(Debug, Clone)]
pub struct Config {
    /// Node id: label syntax, 1–63 characters.
    pub node_id: String,
    /// Cluster name, written into labels of claimed drives.
    pub cluster: String,
    /// CSI driver name.
    pub driver_name: String,
    /// CSI socket (Identity + Node, and Controller when headless).
    pub csi_socket: PathBuf,
    /// Socket of the `Agent` service, for the command line and the controller.
    pub agent_socket: PathBuf,
    /// The kubelet's directory (/var/lib/kubelet); its drive is the system's.
    pub kubelet_dir: PathBuf,
    /// Directory of registration sockets; None: no kubelet registration.
    pub registration_dir: Option<PathBuf>,
    /// Path of the CSI socket as the kubelet sees it (default: `csi_socket`).
    pub kubelet_csi_socket: PathBuf,
    /// Memory of absent things: missing drives, tombstones.
    pub state_dir: PathBuf,
    /// Lock file, worker notes, sockets.
    pub runtime_dir: PathBuf,
    /// Loop devices count as drives.
    pub allow_loop: bool,
    /// Slow full rescan that repairs lost events.
    pub rescan: Duration,
    /// A volume deleted while its drive was away is erased this long after the drive's return.
    pub quarantine: Duration,
    /// Bytes per second that erasing may write on one drive; None: as fast as it goes.
    pub erase_bytes_per_second: Option<u64>,
    /// A worker without work for this long is let go.
    pub worker_idle: Duration,
    /// Read-only checks of filesystems.
    pub checks: ChecksConfig,
    /// Where /metrics, /healthz and /readyz are served over HTTP.
    pub metrics: Listen,
    /// Where only /healthz and /readyz are served over HTTP.
    pub probes: Listen,
    /// The controllers to dial; None: none.
    pub controller: Option<ControllerConfig>,
    /// SMART polls, thresholds and overrides.
    pub health: HealthConfig,
    /// Classes of drives.
    pub classes: Vec<ClassConfig>,
}

/// A config, and what is odd about it but not wrong.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    /// For the log and for check-config.
    pub warnings: Vec<Problem>,
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It was read and is wrong. Every mistake is listed, one per line, as `<file>:<line>: <key>: <what>`.
    #[error("{}", listed(path, problems))]
    Invalid {
        path: PathBuf,
        /// All mistakes, by line.
        problems: Vec<Problem>,
    },
}

/// Problems as lines that an editor can jump to.
pub fn listed(path: &Path, problems: &[Problem]) -> String {
    let mut text = String::new();
    for (index, problem) in problems.iter().enumerate() {
        let newline = if index == 0 { "" } else { "\n" };
        let space = if problem.line.is_none() { " " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{newline}{}:{space}{problem}", path.display());
    }
    text
}

/// Reads and checks a config file.
pub fn load(path: &Path) -> Result<Checked, ConfigError> {
    let read = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let text = statefile::read_text(path, MAX_FILE).map_err(read)?;
    parse(&text, &HostFacts::here()).map_err(|problems| ConfigError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

/// Checks a config's text. Pure: all that comes from the machine is in `host`.
pub fn parse(text: &str, host: &HostFacts) -> Result<Checked, Vec<Problem>> {
    let mut problems = Vec::new();
    let raw = raw::parse(text, &mut problems);
    if problems
        .iter()
        .any(|problem| problem.message.starts_with("not TOML"))
    {
        return Err(problems);
    }
    check::check(raw, host, problems)
}

#[cfg(test)]
mod tests;
