//! The agent's configuration, checked. Reading TOML and finding mistakes is `config::raw`'s work.

use std::{path::PathBuf, time::Duration};

use crate::model::ClassConfig;

/// Which health API is advertised. All health RPCs are served regardless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthApi {
    /// VOLUME_CONDITION (CSI 1.12 and earlier).
    Legacy,
    /// The health RPCs of CSI 1.13.
    V1_13,
    /// Both generations.
    Both,
    /// Neither.
    None,
}

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
    /// Classes of drives.
    pub classes: Vec<ClassConfig>,
}
