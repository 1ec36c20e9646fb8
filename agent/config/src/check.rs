//! Turns the parsed file into the configuration: defaults, ranges, and consistency of keys. Pure.
//!
//! Every mistake is found in one pass: an unusable value is reported and replaced by its default, so that later checks still run.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{local::MAX_SOCKET_PATH, metrics::Listen, sizes::parse_size};
use drivebay_proto::{names, volume_id::is_node_id};

use super::{
    checks::{self, ChecksConfig},
    classes,
    controller::{self, ControllerConfig},
    health::{self, HealthConfig},
    moves::{self, AutomaticConfig},
    node_id::node_id_from_hostname,
    raw::{Raw, Size},
    report::{Given, Problem, Report, value},
    texts::{MAX_DRIVER_NAME, is_driver_name, is_too_long, path, socket},
};
use drivebay_fs::{
    MountFlags,
    kernel_options::{self, OptionsCheck},
};
use drivebay_model::{ClassConfig, FsType, MIB};
use drivebay_sys::statefile;

/// Default address of metrics: this machine only.
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9810);

/// The checked configuration of the agent.
#[derive(Debug, Clone)]
pub struct Config {
    /// Node id: label syntax, 1–63 characters.
    pub node_id: String,
    /// Cluster name, written into labels of claimed drives.
    pub cluster: String,
    /// CSI driver name: at most 63 lower-case letters, digits, '-' and '.', like a DNS name; `csi.drivebay.io` unless the file sets it.
    pub driver_name: String,
    /// CSI socket (Identity + Node, and Controller when headless).
    pub csi_socket: PathBuf,
    /// Socket of the `Agent` service, for the command line and the controller.
    pub agent_socket: PathBuf,
    /// The kubelet's directory (/var/lib/kubelet); its drive is a system drive.
    pub kubelet_dir: PathBuf,
    /// Directory of registration sockets; None: no kubelet registration.
    pub registration_dir: Option<PathBuf>,
    /// Path of the CSI socket as the kubelet sees it (default: `csi_socket`).
    pub kubelet_csi_socket: PathBuf,
    /// Directory of persisted state about absent objects: missing drives, tombstones.
    pub state_dir: PathBuf,
    /// Directory of the lock file, worker records and sockets.
    pub runtime_dir: PathBuf,
    /// True if loop devices count as drives.
    pub allow_loop: bool,
    /// Interval of full scans, which recover from lost events.
    pub rescan: Duration,
    /// Time after the host's boot within which every drive appears: a known one that is absent later is missing.
    pub boot_grace: Duration,
    /// Time after a drive's return at which a volume is erased that was deleted while the drive was missing.
    pub quarantine: Duration,
    /// Rate of erasing on one drive, bytes per second; None: no limit.
    pub erase_bytes_per_second: Option<u64>,
    /// Rate of each copy of a move, bytes per second; None: no limit.
    pub move_bytes_per_second: Option<u64>,
    /// Minimum time for which the old place of a moved volume is kept.
    pub old_place_delay: Duration,
    /// Limits of evacuations that the agent starts automatically.
    pub automatic: AutomaticConfig,
    /// Time without work after which a worker is ended.
    pub worker_idle: Duration,
    /// Settings of read-only filesystem checks.
    pub checks: ChecksConfig,
    /// HTTP address of /metrics, /healthz and /readyz.
    pub metrics: Listen,
    /// HTTP address of /healthz and /readyz only.
    pub probes: Listen,
    /// Controllers to connect to; None: none.
    pub controller: Option<ControllerConfig>,
    pub health: HealthConfig,
    pub classes: Vec<ClassConfig>,
}

/// A configuration with its warnings.
#[derive(Debug, Clone)]
pub struct Checked {
    pub config: Config,
    /// Allowed but probably unintended settings, for the log and for check-config.
    pub warnings: Vec<Problem>,
}

/// Facts about the machine that the checks depend on.
#[derive(Debug, Clone)]
pub struct HostFacts {
    pub hostname: String,
    /// Returns true if a directory exists, for defaults that depend on it.
    pub has_dir: fn(&Path) -> bool,
    /// Checks mount options with the machine's kernel.
    pub check_mount_options: fn(FsType, &MountFlags) -> OptionsCheck,
}

impl HostFacts {
    /// Returns the facts of this machine, without checking mount options: an option that the kernel refuses must not prevent the agent's
    /// start, since other classes may be in use.
    pub fn here() -> Self {
        let hostname = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Self {
            hostname,
            has_dir: statefile::is_dir,
            check_mount_options: |_, _| OptionsCheck::Accepted,
        }
    }

    /// Returns the facts of this machine. Mount options are checked by its kernel, which may load filesystem modules for that.
    pub fn with_kernel() -> Self {
        Self {
            check_mount_options: kernel_options::check,
            ..Self::here()
        }
    }
}

/// Checks everything. `problems`: those found by reading the file.
pub(super) fn check(
    raw: &Raw,
    host: &HostFacts,
    problems: Vec<Problem>,
) -> Result<Checked, Vec<Problem>> {
    let mut report = Report {
        problems,
        warnings: Vec::new(),
    };
    let config = config(raw, host, &mut report);
    let Report {
        mut problems,
        mut warnings,
    } = report;
    if problems.is_empty() {
        warnings.sort_by_key(|warning| warning.line);
        Ok(Checked { config, warnings })
    } else {
        problems.sort_by_key(|problem| problem.line);
        Err(problems)
    }
}

fn config(raw: &Raw, host: &HostFacts, report: &mut Report) -> Config {
    let node_id = report
        .require(
            raw.node.name.as_ref(),
            is_node_id,
            "cannot be a node id: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit (it becomes a node label)",
        )
        .map_or_else(|| node_id_from_hostname(&host.hostname), str::to_owned);
    let cluster = report.require(
        raw.node.cluster.as_ref(),
        is_node_id,
        "is not allowed: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
    );
    let driver_name = report
        .require(
            raw.csi.driver_name.as_ref(),
            is_driver_name,
            &format!("cannot be a CSI driver name: at most {MAX_DRIVER_NAME} lower-case letters, digits, '-' and '.', like a DNS name, beginning and ending with a letter"),
        )
        .unwrap_or(names::DRIVER_NAME);

    let kubelet_dir = path(&raw.kubelet.dir, "/var/lib/kubelet".into(), report);
    let runtime_dir = path(&raw.agent.runtime_dir, "/run/drivebay".into(), report);
    let state_dir = path(&raw.agent.state_dir, "/var/lib/drivebay".into(), report);
    let has_kubelet = (host.has_dir)(&kubelet_dir);
    let registers = *value(&raw.kubelet.registration).unwrap_or(&has_kubelet);
    // It does not matter which program registers the socket with the kubelet: it must be where the kubelet's pods can mount it.
    let for_kubelet = has_kubelet || registers;
    let csi_dir = if for_kubelet {
        kubelet_dir.join("plugins").join(driver_name)
    } else {
        runtime_dir.clone()
    };
    let csi_socket = socket(
        &raw.csi.socket,
        "[csi] socket",
        csi_dir.join("csi.sock"),
        report,
    );
    if let Some(at) = &raw.kubelet.dir
        && raw.csi.socket.is_none()
        && !for_kubelet
    {
        report.warn(
            at,
            format!(
                "there is no such directory, so CSI is served at {}; if a kubelet comes later, set [csi] socket",
                csi_socket.display()
            ),
        );
    }
    let agent_socket = socket(
        &raw.agent.socket,
        "[agent] socket",
        runtime_dir.join("agent.sock"),
        report,
    );
    let kubelet_csi_socket = socket(
        &raw.kubelet.csi_socket,
        "[kubelet] csi-socket",
        csi_socket.clone(),
        report,
    );
    if csi_socket == agent_socket {
        let at = raw.agent.socket.as_ref().or(raw.csi.socket.as_ref());
        report.problems.push(Problem::new(
            at.map(|at| at.line),
            "[agent] socket",
            format!(
                "is the CSI socket too ({}); give each its own path",
                csi_socket.display()
            ),
        ));
    }
    let registration_dir = registers.then(|| kubelet_dir.join("plugins_registry"));
    if let Some(dir) = &registration_dir {
        let socket = dir.join(format!("{driver_name}-reg.sock"));
        if is_too_long(&socket) {
            let at = raw.kubelet.dir.as_ref().or(raw.csi.driver_name.as_ref());
            report.problems.push(Problem::new(
                at.map(|at| at.line),
                "[kubelet] dir",
                format!(
                    "the registration socket {} would have more than {MAX_SOCKET_PATH} bytes; shorten the kubelet's directory or the driver name",
                    socket.display()
                ),
            ));
        }
    }

    let allow_loop = value(&raw.discovery.allow_loop) == Some(&true);
    let quarantine = value(&raw.erase.quarantine).map_or(Duration::from_hours(24), |it| it.0);
    if quarantine.is_zero()
        && let Some(at) = &raw.erase.quarantine
    {
        report.warn(
            at,
            "a volume deleted while its drive was missing is erased as soon as the drive returns",
        );
    }
    let metrics = listen(&raw.metrics.listen, Listen::Tcp(METRICS), report);
    let probes = listen(&raw.probes.listen, Listen::Off, report);
    if let Some(at) = &raw.probes.listen
        && probes != Listen::Off
        && probes == metrics
    {
        report.error(
            at,
            format!(
                "{probes} is [metrics] listen too, which serves /healthz and /readyz as well; leave this out, or give another address"
            ),
        );
    }
    Config {
        node_id,
        cluster: cluster.unwrap_or("default").to_owned(),
        driver_name: driver_name.to_owned(),
        csi_socket,
        agent_socket,
        kubelet_dir,
        registration_dir,
        kubelet_csi_socket,
        state_dir,
        runtime_dir,
        allow_loop,
        rescan: value(&raw.discovery.rescan).map_or(Duration::from_mins(5), |it| it.0),
        boot_grace: value(&raw.discovery.boot_grace).map_or(Duration::from_secs(120), |it| it.0),
        quarantine,
        erase_bytes_per_second: rate(&raw.erase.max_bytes_per_second, report),
        move_bytes_per_second: rate(&raw.moves.max_bytes_per_second, report),
        old_place_delay: value(&raw.moves.old_place_delay)
            .map_or(Duration::from_hours(24), |it| it.0),
        automatic: moves::check(&raw.moves, &raw.classes, report),
        // Longer than the kubelet's interval between two NodeGetVolumeStats of a volume: one to two minutes.
        worker_idle: value(&raw.workers.idle).map_or(Duration::from_secs(150), |it| it.0),
        checks: checks::check(&raw.checks, report),
        metrics,
        probes,
        controller: controller::check(&raw.controller, report),
        health: health::check(&raw.smart, &raw.health, report),
        classes: classes::check(&raw.classes, allow_loop, registers, host, report),
    }
}

fn listen(given: &Given<String>, default: Listen, report: &mut Report) -> Listen {
    match given {
        None => default,
        // A refused address is not compared with the other one.
        Some(_) => report
            .parse(given.as_ref(), str::parse)
            .unwrap_or(Listen::Off),
    }
}

/// Bytes per second; None: no limit.
fn rate(given: &Given<Size>, report: &mut Report) -> Option<u64> {
    if given.is_none() {
        return Some(200 * MIB);
    }
    let rate = report.parse(given.as_ref(), |text| match parse_size(text) {
        _ if text == "unlimited" => Ok(None),
        Ok(bytes) if bytes < MIB => Err("must be at least \"1MiB\", or \"unlimited\"".to_owned()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => Err(format!("{error}, or \"unlimited\"")),
    });
    rate.flatten()
}
